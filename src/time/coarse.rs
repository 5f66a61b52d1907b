//! A time for look-ups that is cheap to read: stored every now and then, instead of taken from the
//! processor's counter.
//!
//! # How it works
//!
//! A cache with `coarse_reads` has a [`Coarse`]: a word that shows what the cache's clock showed a
//! moment ago. One thread of the process, the [`Keeper`]'s, renews the words of all such caches,
//! each time half of the shortest staleness has gone by. It starts with the first of these caches
//! and ends with the last; it knows words and clocks, never a cache, so it keeps none alive and
//! runs no code of the user's.
//!
//! # Invariants
//!
//! 1. A word shows a past reading of the very clock that the cache reads elsewhere: it is never
//!    ahead of it. So a look-up that goes by it sees nothing expire early.
//! 2. A word never goes back. So a later look-up never finds alive what an earlier one has found
//!    due.
//! 3. A thread is running exactly while there are members; `running` changes under the roster's
//!    lock.
//!
//! # Cost
//!
//! Two loads for a look-up. For the process a thread that wakes twice in each staleness: 20 to 80
//! microseconds each time, nearly all of it the system's, on the virtual machine where this was
//! written.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
// The standard library's also in models: their caches have a ticker, hence no coarse time.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The least staleness that may be asked for. Here the keeper takes 3 percent of a core, what ten
/// million hits a second in a small set save, and on a busy machine a thread is often woken later
/// than that.
pub(crate) const FINEST: Duration = Duration::from_millis(1);

/// The greatest. With two wake-ups a second there is nothing left to save; and by default what
/// expired a second ago is being removed, which ends every look-up's sight of it.
pub(crate) const COARSEST: Duration = Duration::from_secs(1);

/// The members of a process.
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
    /// A time at most `staleness` behind `clock`, as long as the system wakes the keeper in time.
    /// `None` if there can be no keeper, which has been reported then.
    pub(super) fn of(
        clock: impl Fn() -> u64 + Send + Sync + 'static,
        staleness: Duration,
    ) -> Option<Self> {
        PROCESS.take_in(clock, staleness)
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        // Relaxed: nothing but the time is learnt from it; and looks at one word that happen one
        // after the other never see it go back.
        self.word.shows.load(Ordering::Relaxed)
    }
}

impl Drop for Coarse {
    fn drop(&mut self) {
        self.keeper.let_go(&self.word);
    }
}

impl fmt::Debug for Coarse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coarse").field("now", &self.now()).finish()
    }
}

impl Word {
    fn renew(&self) {
        // Not a store: another core's counter may be behind by a little.
        self.shows.fetch_max((self.clock)(), Ordering::Relaxed);
    }
}

/// A thread to be, and the words that it renews.
pub(crate) struct Keeper {
    roster: Mutex<Roster>,
    changed: Condvar,
    start: fn(&'static Keeper) -> io::Result<()>,
}

struct Roster {
    members: Vec<Arc<Word>>,
    running: bool,
    /// How long the thread sleeps between renewals.
    asleep_for: Duration,
    /// That it could not be started has been said.
    reported: bool,
}

impl Keeper {
    pub(crate) const fn new(start: fn(&'static Keeper) -> io::Result<()>) -> Self {
        Self {
            roster: Mutex::new(Roster {
                members: Vec::new(),
                running: false,
                asleep_for: Duration::MAX,
                reported: false,
            }),
            changed: Condvar::new(),
            start,
        }
    }

    /// Makes a word for a clock and sees to it that it is renewed.
    pub(crate) fn take_in(
        &'static self,
        clock: impl Fn() -> u64 + Send + Sync + 'static,
        staleness: Duration,
    ) -> Option<Coarse> {
        let word = Arc::new(Word {
            shows: AtomicU64::new(clock()),
            clock: Box::new(clock),
            // Half, so that a thread that is woken late, by as much again, still keeps the promise.
            period: staleness / 2,
        });
        let mut roster = self.lock();
        if !roster.running {
            if let Err(error) = (self.start)(self) {
                if !roster.reported {
                    roster.reported = true;
                    // Not `eprintln`, which panics where standard error is closed.
                    _ = writeln!(
                        io::stderr(),
                        "wheelhouse: the thread for coarse reads could not be started ({error}); look-ups go by the exact clock"
                    );
                }
                return None;
            }
            roster.running = true;
        }
        if word.period < roster.asleep_for {
            self.changed.notify_one();
        }
        roster.members.push(Arc::clone(&word));
        Some(Coarse { word, keeper: self })
    }

    fn let_go(&self, word: &Arc<Word>) {
        let mut roster = self.lock();
        if let Some(at) = roster.members.iter().position(|m| Arc::ptr_eq(m, word)) {
            roster.members.swap_remove(at);
        }
        if roster.members.is_empty() {
            self.changed.notify_one();
        }
    }

    /// The thread's life.
    fn keep(&self) {
        let mut roster = self.lock();
        while let Some(period) = roster.renew() {
            roster.asleep_for = period;
            let waited = self.changed.wait_timeout(roster, period);
            roster = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        roster.running = false;
        roster.asleep_for = Duration::MAX;
    }

    fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews all words, in place of the thread.
    #[cfg(test)]
    pub(crate) fn renew(&self) {
        self.lock().renew();
    }

    /// One of a test's own, kept for ever where a leak detector sees it.
    #[cfg(test)]
    pub(crate) fn of_a_test(start: fn(&'static Self) -> io::Result<()>) -> &'static Self {
        static KEPT: Mutex<Vec<&'static Keeper>> = Mutex::new(Vec::new());
        let keeper: &'static Self = Box::leak(Box::new(Self::new(start)));
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(keeper);
        keeper
    }
}

impl Roster {
    /// Renews all words; says when to do so again, if there are any.
    fn renew(&self) -> Option<Duration> {
        self.members.iter().for_each(|word| word.renew());
        self.members.iter().map(|word| word.period).min()
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
        keeper.take_in(move || ticker.nanos(), STALENESS)
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
        assert!(keeper.lock().running);
        drop(other);
        until(|| !keeper.lock().running);
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
            keeper.take_in(move || ticker.nanos(), Duration::from_secs(3_600))
        };
        until(|| keeper.lock().asleep_for == Duration::from_secs(1_800));
        let fast = member(keeper, &ticker);
        ticker.advance(STALENESS);
        // Renewed long before its own half an hour is over.
        until(|| slow.as_ref().unwrap().now() > 0);
        assert_eq!(keeper.lock().asleep_for, STALENESS / 2);
        drop((slow, fast));
        until(|| !keeper.lock().running);
    }

    #[test]
    fn thousands_of_members_that_come_and_go_leave_nothing() {
        let (keeper, ticker) = (Keeper::of_a_test(start), ManualTicker::new());
        for _ in 0..2_000 {
            drop(member(keeper, &ticker));
        }
        let many: Vec<_> = (0..2_000).map(|_| member(keeper, &ticker)).collect();
        assert_eq!(keeper.lock().members.len(), 2_000);
        drop(many);
        until(|| !keeper.lock().running);
        assert!(keeper.lock().members.is_empty());
    }

    #[test]
    fn without_a_thread_there_is_no_coarse_time() {
        let keeper = Keeper::of_a_test(|_| Err(io::Error::other("told to fail")));
        for _ in 0..2 {
            assert!(member(keeper, &ManualTicker::new()).is_none());
        }
        let roster = keeper.lock();
        assert!(roster.reported && !roster.running && roster.members.is_empty());
    }
}
