//! A time for look-ups that is cheap to read: a thread stores it every now and then, so a look-up
//! does not read the processor's counter.
//!
//! # How it works
//!
//! A cache with `coarse_reads` has a [`Coarse`]: a word that holds a recent reading of the cache's
//! clock. One thread of the process renews the words of all such caches, twice in the shortest
//! staleness that one of them asks for. The thread starts with the first of these caches and ends
//! with the last. Its [`Keeper`] knows words and clocks, but no cache: so it keeps no cache alive
//! and runs no code of the user's.
//!
//! # Invariants
//!
//! 1. A word holds a past reading of the same clock that the cache reads elsewhere, so it is never
//!    ahead of that clock. A look-up that goes by it sees nothing expire early.
//! 2. A word never goes back. A later look-up never finds alive what an earlier one found due.
//! 3. The thread runs exactly while the keeper has words. `runs_in` changes under the members'
//!    lock.
//! 4. A child made by `fork` has the words, and no thread. It starts one when a cache with coarse
//!    reads is built there, or when it [converts](super::Clock::view) times, as a write with a
//!    lifetime does: [`attend`]. Until then its look-ups go by the time of the `fork`.
//!
//! # Cost
//!
//! Two loads for a look-up. For the process, a thread that wakes twice in each staleness; nearly
//! all of that cost is the system's.

use std::fmt;
use std::io::{self, Write};
use std::process;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
// The standard library's also in models: caches there have a ticker, so they have no coarse time.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The least staleness that may be asked for. A shorter one would cost more of a core than it
/// saves, and a busy machine often wakes a thread later than that.
pub(crate) const FINEST: Duration = Duration::from_millis(1);

/// The greatest staleness. Two wake-ups a second cost nothing that is worth saving; and by default
/// an entry that expired a second ago is removed, so no look-up finds it.
pub(crate) const COARSEST: Duration = Duration::from_secs(1);

/// The keeper of the process.
static PROCESS: Keeper = Keeper::new(start);

/// A time that lags behind a clock.
pub(crate) struct Coarse {
    word: Arc<Word>,
    keeper: &'static Keeper,
}

struct Word {
    shows: AtomicU64,
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    /// How long after a renewal the next is due.
    period: Duration,
}

impl Coarse {
    /// A time at most `staleness` behind `clock`, as long as the system wakes the thread in time.
    /// `None` if the thread cannot be started; this has been reported then.
    pub(super) fn of(
        clock: impl Fn() -> u64 + Send + Sync + 'static,
        staleness: Duration,
    ) -> Option<Self> {
        PROCESS.add(clock, staleness)
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        // Relaxed: a look-up learns only the time from it, and successive loads of one word never
        // see it go back.
        self.word.shows.load(Ordering::Relaxed)
    }
}

/// Called now and then by threads that convert times: in a child made by `fork`, starts the thread
/// again.
pub(super) fn attend() {
    PROCESS.attend();
}

impl Drop for Coarse {
    fn drop(&mut self) {
        self.keeper.remove(&self.word);
    }
}

impl fmt::Debug for Coarse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coarse").field("now", &self.now()).finish()
    }
}

impl Word {
    fn renew(&self) {
        // Not a store: the counter of another core may be a little behind.
        self.shows.fetch_max((self.clock)(), Ordering::Relaxed);
    }
}

/// The words of a process, and the thread that renews them.
pub(crate) struct Keeper {
    members: Mutex<Members>,
    changed: Condvar,
    start: fn(&'static Keeper) -> io::Result<()>,
    /// The process in which the thread runs; 0 if there is no thread.
    runs_in: AtomicU32,
}

struct Members {
    words: Vec<Arc<Word>>,
    /// How long the thread sleeps between renewals.
    asleep_for: Duration,
    /// It has been reported that the thread could not be started.
    reported: bool,
}

impl Keeper {
    pub(crate) const fn new(start: fn(&'static Keeper) -> io::Result<()>) -> Self {
        Self {
            members: Mutex::new(Members {
                words: Vec::new(),
                asleep_for: Duration::MAX,
                reported: false,
            }),
            changed: Condvar::new(),
            start,
            runs_in: AtomicU32::new(0),
        }
    }

    /// Makes a word for a clock, which the thread renews from now on.
    pub(crate) fn add(
        &'static self,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
        staleness: Duration,
    ) -> Option<Coarse> {
        let word = Arc::new(Word {
            shows: AtomicU64::new(clock()),
            clock: Box::new(clock),
            // Half, so that a thread which is woken late by as much again keeps the promise.
            period: staleness / 2,
        });
        let mut members = self.lock();
        if self.runs_in.load(Ordering::Relaxed) != process::id() && !self.run(&mut members) {
            return None;
        }
        if word.period < members.asleep_for {
            self.changed.notify_one();
        }
        members.words.push(Arc::clone(&word));
        Some(Coarse { word, keeper: self })
    }

    /// Starts the thread in this process; false if it could not be started.
    fn run(&'static self, members: &mut Members) -> bool {
        if let Err(error) = (self.start)(self) {
            if !members.reported {
                members.reported = true;
                // Not `eprintln`: it panics where standard error is closed.
                _ = writeln!(
                    io::stderr(),
                    "wheelhouse: the thread for coarse reads could not be started ({error}); look-ups go by the exact clock"
                );
            }
            return false;
        }
        members.asleep_for = Duration::MAX;
        self.runs_in.store(process::id(), Ordering::Relaxed);
        true
    }

    /// In a child made by `fork`, starts the thread that the parent had. Never waits: where the
    /// lock is taken, perhaps by a thread of the parent, a later call does it.
    fn attend(&'static self) {
        // Relaxed: the caller compares it with the number of its own process.
        let runs_in = self.runs_in.load(Ordering::Relaxed);
        if runs_in != 0
            && runs_in != process::id()
            && let Ok(mut members) = self.members.try_lock()
            && self.runs_in.load(Ordering::Relaxed) == runs_in
            && !members.words.is_empty()
        {
            self.run(&mut members);
        }
    }

    fn remove(&self, word: &Arc<Word>) {
        let mut members = self.lock();
        if let Some(at) = members.words.iter().position(|m| Arc::ptr_eq(m, word)) {
            members.words.swap_remove(at);
        }
        if members.words.is_empty() {
            self.changed.notify_one();
        }
    }

    /// What the thread runs.
    fn keep(&self) {
        let mut members = self.lock();
        while let Some(period) = members.renew() {
            members.asleep_for = period;
            let waited = self.changed.wait_timeout(members, period);
            members = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.runs_in.store(0, Ordering::Relaxed);
        members.asleep_for = Duration::MAX;
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews all words, in place of the thread.
    #[cfg(test)]
    fn is_running(&self) -> bool {
        let _members = self.lock();
        self.runs_in.load(Ordering::Relaxed) != 0
    }

    #[cfg(test)]
    pub(crate) fn renew(&self) {
        self.lock().renew();
    }

    /// A keeper for one test, kept for ever where a leak detector sees it.
    #[cfg(test)]
    pub(crate) fn of_a_test(start: fn(&'static Self) -> io::Result<()>) -> &'static Self {
        static KEPT: Mutex<Vec<&'static Keeper>> = Mutex::new(Vec::new());
        let keeper: &'static Self = Box::leak(Box::new(Self::new(start)));
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(keeper);
        keeper
    }
}

impl Members {
    /// Renews all words. Returns after how long to do so again, if there are any.
    fn renew(&self) -> Option<Duration> {
        self.words.iter().for_each(|word| word.renew());
        self.words.iter().map(|word| word.period).min()
    }
}

fn start(keeper: &'static Keeper) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("wheelhouse-time".into());
    thread.spawn(|| keeper.keep()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ManualTicker, Ticker};
    use std::time::Instant;

    const STALENESS: Duration = Duration::from_millis(10);

    fn member(keeper: &'static Keeper, ticker: &ManualTicker) -> Option<Coarse> {
        let ticker = ticker.clone();
        keeper.add(move || ticker.nanos(), STALENESS)
    }

    /// Waits for what the thread does.
    #[track_caller]
    fn until(done: impl Fn() -> bool) {
        let started = Instant::now();
        while !done() {
            assert!(started.elapsed() < Duration::from_secs(60), "in vain");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_word_shows_the_last_renewal_and_never_goes_back() {
        let (keeper, ticker) = (Keeper::of_a_test(|_| Ok(())), ManualTicker::starting_at(5));
        let coarse = member(keeper, &ticker).unwrap();
        ticker.advance(Duration::from_nanos(5));
        assert_eq!(coarse.now(), 5);
        keeper.renew();
        assert_eq!(coarse.now(), 10);
        ticker.advance(Duration::from_nanos(3_u64.wrapping_neg()));
        keeper.renew();
        assert_eq!((ticker.nanos(), coarse.now()), (7, 10));
    }

    #[test]
    fn the_thread_renews_and_ends_with_its_last_member() {
        let (keeper, ticker) = (Keeper::of_a_test(start), ManualTicker::new());
        let (one, other) = (member(keeper, &ticker), member(keeper, &ticker));
        let (one, other) = (one.unwrap(), other.unwrap());
        ticker.advance(STALENESS);
        until(|| one.now() > 0 && other.now() > 0);
        drop(one);
        ticker.advance(STALENESS);
        until(|| other.now() == 20_000_000);
        assert!(keeper.is_running());
        drop(other);
        until(|| !keeper.is_running());
        // And starts again.
        let again = member(keeper, &ticker).unwrap();
        ticker.advance(STALENESS);
        until(|| again.now() == 30_000_000);
    }

    #[test]
    fn the_shortest_staleness_sets_the_pace() {
        let (keeper, ticker) = (Keeper::of_a_test(start), ManualTicker::new());
        let slow = {
            let ticker = ticker.clone();
            keeper.add(move || ticker.nanos(), Duration::from_secs(3_600))
        };
        until(|| keeper.lock().asleep_for == Duration::from_secs(1_800));
        let fast = member(keeper, &ticker);
        ticker.advance(STALENESS);
        // Renewed long before its own half an hour is over.
        until(|| slow.as_ref().unwrap().now() > 0);
        assert_eq!(keeper.lock().asleep_for, STALENESS / 2);
        drop((slow, fast));
        until(|| !keeper.is_running());
    }

    #[test]
    fn thousands_of_members_that_come_and_go_leave_nothing() {
        let (keeper, ticker) = (Keeper::of_a_test(start), ManualTicker::new());
        for _ in 0..2_000 {
            drop(member(keeper, &ticker));
        }
        let many: Vec<_> = (0..2_000).map(|_| member(keeper, &ticker)).collect();
        assert_eq!(keeper.lock().words.len(), 2_000);
        drop(many);
        until(|| !keeper.is_running());
        assert!(keeper.lock().words.is_empty());
    }

    #[test]
    fn without_a_thread_there_is_no_coarse_time() {
        let keeper = Keeper::of_a_test(|_| Err(io::Error::other("told to fail")));
        for _ in 0..2 {
            assert!(member(keeper, &ManualTicker::new()).is_none());
        }
        assert!(!keeper.is_running());
        let members = keeper.lock();
        assert!(members.reported && members.words.is_empty());
    }
}
