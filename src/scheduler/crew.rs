//! The *crew*: the threads that all caches of the process share.
//!
//! # How it works
//!
//! - One thread *keeps the time*. It sleeps until the first moment of the schedule, and runs the
//!   maintenance of the cache that is due. Such a run is bounded and calls no listener (a
//!   destructor in it may). So a busy cache does not delay the others: its next run comes after
//!   those that were due before. A thread is started for that, and ends when there is no time to
//!   keep.
//! - The others take a [`Job`], run it, and look for the next. Without a job such a thread is
//!   *free*: it keeps the time if no other thread does, or sleeps until a job comes. It ends if
//!   none has come for [`IDLE_TIME`].
//!
//! A listener may take long, so the thread that keeps the time takes no other job, unless no other
//! thread can be started. It watches: if jobs wait, no thread is free, and none has taken a job for
//! [`PATIENCE`], the threads at work are held up, and it starts as many again. So each slow
//! listener soon has a thread, while ten thousand caches with fast listeners need two.
//!
//! A delivery does a bounded amount of work. If there is more, it goes back to the end of the
//! queue.
//!
//! The crew holds the caches weakly. When the last cache of the process has ended, all threads end.
//! The drop of that cache waits for their end: the code may be unloaded then.
//!
//! # Invariants
//!
//! 1. The moment of a member is the earliest one requested since its last run began, and
//!    `(moment, member)` is in `schedule` exactly while there is one.
//! 2. Each thread that was started and has not ended is counted in `free` or in `busy`, or it keeps
//!    the time.
//! 3. If a member has a moment, a thread keeps the time, or a free one is about to. Except where no
//!    thread could be started: then `failed` says so, and callers do all maintenance.
//! 4. If a job waits, a free thread is about to take it, or a thread watches those at work, or one
//!    of these takes it when its job has ended.

use super::gate::{self, CacheRef, CacheWork};
use crate::contain::contain;
use crate::hash::NumberMap;
use crate::sync::{IS_MODEL, thread_local};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
// The standard library's locks: models run no threads of the crate.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a free thread stays.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// How long jobs wait, without one being taken, before more threads are started.
const PATIENCE: Duration = Duration::from_millis(10);

/// A look that comes after so many times [`PATIENCE`] is late: the machine is busy, or the process
/// was stopped. The threads at work may have had no processor either, so this look does not count.
/// After so many late looks the next one counts all the same.
const LATE: u32 = 2;
const MOST_LATE: u32 = 20;

/// After so many times [`PATIENCE`] a call that brings a job looks itself: a destructor may hold up
/// the thread that keeps the time.
const VERY_LATE: u32 = 50;

/// How long after a failure to start a thread it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The name of the thread that is started to keep the time.
const TIME: &str = "wheelhouse";

/// The name of a thread that is started for a job.
const JOBS: &str = "wheelhouse-listener";

/// A piece of work for one cache.
pub(super) enum Job {
    /// Do the maintenance that is due. The run requests its own next one.
    Run(CacheRef),
    /// Call the listener for what waits.
    Deliver(CacheRef),
    /// [End](CacheRef::end) a cache, whose last handle was dropped by a thread that must not wait.
    End(CacheRef, Arc<dyn CacheWork>),
}

impl Job {
    /// Runs the job; returns it if there is more to do.
    fn run(self) -> Option<Self> {
        match self {
            Self::Run(cache) => {
                cache.with(false, |cache| cache.run_due());
                None
            }
            Self::Deliver(cache) => {
                if cache.with(true, |cache| cache.deliver()) == Some(true) {
                    Some(Self::Deliver(cache))
                } else {
                    None
                }
            }
            Self::End(cache, last) => {
                // False after a while if a thread inside waits for a lease: that may last.
                while !cache.end() {}
                drop(last);
                None
            }
        }
    }
}

thread_local! {
    static IS_CREW_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is one of the crew. It serves other caches too, so it waits for none.
pub(crate) fn is_crew_thread() -> bool {
    IS_CREW_THREAD.try_with(Cell::get).unwrap_or(false)
}

/// The crew of this process.
pub(crate) static CREW: Crew = Crew::new();

/// See the module docs.
pub(crate) struct Crew {
    state: Mutex<CrewState>,
    /// For free threads: a job has come, or a thread has to keep the time.
    came: Condvar,
    /// For the thread that keeps the time: the schedule begins earlier, or jobs wait.
    changed: Condvar,
    /// For the drop of the last cache: a thread has ended.
    ended: Condvar,
    failed: AtomicBool,
}

struct CrewState {
    /// How many caches were built and have not ended.
    caches: usize,
    /// When each member runs next, by its address: a cache is a member from its first request.
    members: NumberMap<usize, Option<Instant>>,
    schedule: BTreeMap<(Instant, usize), CacheRef>,
    /// The jobs that wait for a thread; no runs.
    jobs: VecDeque<Job>,
    /// When a job was last taken, or came while none waited.
    moved_at: Option<Instant>,
    /// Threads that look for a job, or are about to.
    free: usize,
    /// Threads that run a job.
    busy: usize,
    /// Whether a thread keeps the time.
    has_keeper: bool,
    /// Whether that thread sleeps for [`PATIENCE`] at most.
    is_watched: bool,
    /// When the last start failed, unless one has succeeded since.
    failed_at: Option<Instant>,
    /// The threads, until another thread waits for their end. Some may have ended.
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    const fn new() -> Self {
        Self {
            state: Mutex::new(CrewState {
                caches: 0,
                members: HashMap::with_hasher(BuildHasherDefault::new()),
                schedule: BTreeMap::new(),
                jobs: VecDeque::new(),
                moved_at: None,
                free: 0,
                busy: 0,
                has_keeper: false,
                is_watched: false,
                failed_at: None,
                threads: Vec::new(),
            }),
            came: Condvar::new(),
            changed: Condvar::new(),
            ended: Condvar::new(),
            failed: AtomicBool::new(false),
        }
    }

    /// No user code runs under this lock, so the state stays whole.
    fn lock(&self) -> MutexGuard<'_, CrewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no thread could be started, so that callers do all maintenance.
    ///
    /// Relaxed: a thread that sees it late makes one idle request.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Has the listener of a cache called for what waits. False if no thread can be started for it.
    pub(crate) fn deliver_soon(&'static self, cache: &CacheRef) -> bool {
        self.push(Job::Deliver(cache.clone()))
    }

    /// Has a job done. False if there is no thread and none can be started: the job was dropped.
    pub(super) fn push(&'static self, job: Job) -> bool {
        if IS_MODEL {
            return false;
        }
        let mut state = self.lock();
        if state.jobs.is_empty() {
            state.moved_at = Some(Instant::now());
        }
        state.jobs.push_back(job);
        if state.free > 0 {
            self.came.notify_one();
            return true;
        }
        // The thread that keeps the time may itself be held up, by a destructor.
        let is_stuck = state.is_waiting(Instant::now(), PATIENCE * VERY_LATE);
        let is_wanted = !state.has_keeper || state.busy == 0 || is_stuck;
        if is_wanted && self.start(&mut state, JOBS) {
            return true;
        }
        if !state.has_threads() {
            let refused = state.jobs.pop_back();
            drop(state);
            drop(refused);
            return false;
        }
        self.have_watched(&mut state);
        true
    }

    /// Has the threads at work watched, if jobs wait for them.
    fn have_watched(&'static self, state: &mut CrewState) {
        if !state.is_short() || state.is_watched {
            return;
        }
        if state.has_keeper {
            self.changed.notify_one();
        } else {
            self.start(state, JOBS);
        }
    }

    /// Asks for a run of a cache after a time.
    pub(super) fn wake(&'static self, cache: &CacheRef, after: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        // A moment that the platform cannot express counts as never.
        let is_first = match now.checked_add(after) {
            Some(at) => state.schedule(cache, at) && state.first() == Some((at, cache.address())),
            None => false,
        };
        if state.has_keeper {
            if is_first {
                self.changed.notify_one();
            }
        } else if !self.start(&mut state, TIME) {
            // A thread that is there keeps the time.
            self.came.notify_one();
        }
    }

    /// Starts a thread; false if it cannot be started, or could not a moment ago.
    fn start(&'static self, state: &mut CrewState, name: &str) -> bool {
        let now = Instant::now();
        if let Some(at) = state.failed_at {
            if now - at < RETRY {
                // There may have been a thread then, which has ended.
                self.failed.store(!state.has_threads(), Ordering::Relaxed);
                return false;
            }
        }
        state.threads.retain(|thread| !thread.is_finished());
        let keeps_time = name == TIME;
        match thread::Builder::new()
            .name(name.into())
            .spawn(move || self.work(keeps_time))
        {
            Ok(thread) => {
                state.threads.push(thread);
                if keeps_time {
                    state.has_keeper = true;
                } else {
                    state.free += 1;
                }
                state.failed_at = None;
                self.failed.store(false, Ordering::Relaxed);
                true
            }
            Err(error) => {
                state.failed_at = Some(now);
                self.failed.store(!state.has_threads(), Ordering::Relaxed);
                report(&error);
                false
            }
        }
    }

    /// What a thread does. One that was started to keep the time ends when there is none to keep.
    fn work(&'static self, keeps_time: bool) {
        IS_CREW_THREAD.with(|here| here.set(true));
        let mut state = self.lock();
        if keeps_time {
            state = self.keep_time(state);
            state.has_keeper = false;
            self.ended.notify_all();
            return;
        }
        loop {
            if state.needs_keeper() {
                state.free -= 1;
                state.has_keeper = true;
                state = self.keep_time(state);
                state.has_keeper = false;
                state.free += 1;
            } else if let Some(job) = state.take_job() {
                state.free -= 1;
                state.busy += 1;
                self.have_watched(&mut state);
                state = self.run(state, job);
                state.busy -= 1;
                state.free += 1;
            } else if state.caches == 0 {
                break;
            } else {
                let (woken, waited) = self.wait(&self.came, state, IDLE_TIME);
                state = woken;
                if waited >= IDLE_TIME && state.jobs.is_empty() && !state.needs_keeper() {
                    break;
                }
            }
        }
        state.free -= 1;
        self.ended.notify_all();
    }

    /// Waits for a change, for `most` at most. Returns how long it has waited.
    fn wait<'a>(
        &self,
        on: &Condvar,
        state: MutexGuard<'a, CrewState>,
        most: Duration,
    ) -> (MutexGuard<'a, CrewState>, Duration) {
        let began = Instant::now();
        let (state, _) = on
            .wait_timeout(state, most)
            .unwrap_or_else(PoisonError::into_inner);
        (state, began.elapsed())
    }

    /// Runs a job with the lock released.
    fn run<'a>(&'a self, state: MutexGuard<'a, CrewState>, job: Job) -> MutexGuard<'a, CrewState> {
        drop(state);
        // A panic in a ticker or in a destructor has been reported by the panic hook. It must not
        // end the thread that other caches rely on.
        let ended = contain(|| job.run());
        let mut state = self.lock();
        if let Some(Some(again)) = ended {
            state.jobs.push_back(again);
        }
        state
    }

    /// Keeps the time, until there is nothing to wait for and nothing to watch.
    fn keep_time<'a>(
        &'static self,
        mut state: MutexGuard<'a, CrewState>,
    ) -> MutexGuard<'a, CrewState> {
        let mut late = 0;
        while state.has_time_to_keep() {
            let now = Instant::now();
            // First: there may always be a run that is due.
            let is_held_up = state.is_held_up(now);
            if is_held_up {
                state.moved_at = Some(now);
                let wanted = state.busy.clamp(1, state.jobs.len());
                let started = (0..wanted).all(|_| self.start(&mut state, JOBS));
                if !started && state.busy == 0 {
                    // There is no other thread: a slow listener delays all caches.
                    if let Some(job) = state.take_job() {
                        state = self.run(state, job);
                    }
                }
            }
            if let Some(job) = state.take_due(now) {
                state = self.run(state, job);
                continue;
            }
            if is_held_up {
                continue;
            }
            let most = state.time_to_sleep(now);
            state.is_watched = state.is_short();
            let (woken, waited) = self.wait(&self.changed, state, most);
            state = woken;
            let watched = std::mem::take(&mut state.is_watched);
            if watched && waited >= PATIENCE * LATE && late < MOST_LATE {
                late += 1;
                state.moved_at = Some(Instant::now());
            }
            if !state.is_short() {
                late = 0;
            }
        }
        state
    }

    /// A cache was built: until it is dropped, it may need a thread.
    pub(crate) fn cache_begins(&self) {
        self.lock().caches += 1;
    }

    /// A cache was dropped. If it was the last one of the process, waits for the end of the
    /// threads.
    pub(crate) fn cache_ends(&self, cache: &CacheRef) {
        let mut state = self.lock();
        state.caches -= 1;
        state.leave(cache.address());
        if state.members.is_empty() {
            self.changed.notify_one();
        }
        if state.caches > 0 {
            return;
        }
        self.came.notify_all();
        if is_crew_thread() || gate::is_inside_any() {
            return;
        }
        // No listener runs. If another cache is built meanwhile, the threads are needed again, and
        // its listener may run.
        while state.caches == 0 && state.has_threads() {
            (state, _) = self.wait(&self.ended, state, PATIENCE);
        }
        if state.caches == 0 {
            let threads = std::mem::take(&mut state.threads);
            drop(state);
            for thread in threads {
                // The jobs contain the panics of user code.
                _ = thread.join();
            }
        }
    }
}

impl CrewState {
    /// Notes that a member is to run at a moment; true if none before was noted.
    fn schedule(&mut self, cache: &CacheRef, at: Instant) -> bool {
        let id = cache.address();
        let moment = self.members.entry(id).or_default();
        match *moment {
            Some(known) if known <= at => return false,
            Some(known) => _ = self.schedule.remove(&(known, id)),
            None => {}
        }
        *moment = Some(at);
        self.schedule.insert((at, id), cache.clone());
        true
    }

    fn leave(&mut self, id: usize) {
        if let Some(Some(at)) = self.members.remove(&id) {
            self.schedule.remove(&(at, id));
        }
    }

    /// The next moment, and whose it is.
    fn first(&self) -> Option<(Instant, usize)> {
        self.schedule.keys().next().copied()
    }

    /// Takes the run that is due first.
    fn take_due(&mut self, now: Instant) -> Option<Job> {
        let (at, id) = self.first()?;
        if at > now {
            return None;
        }
        self.members.insert(id, None);
        let cache = self.schedule.remove(&(at, id))?;
        Some(Job::Run(cache))
    }

    /// Takes the job that has waited longest.
    fn take_job(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.moved_at = Some(Instant::now());
        Some(job)
    }

    fn has_threads(&self) -> bool {
        self.has_keeper || self.free + self.busy > 0
    }

    /// Whether jobs wait for threads that all have one.
    fn is_short(&self) -> bool {
        !self.jobs.is_empty() && self.free == 0
    }

    /// Whether the thread that keeps the time has something to wait for, or threads to watch.
    fn has_time_to_keep(&self) -> bool {
        !self.members.is_empty() || self.is_short()
    }

    /// Whether a free thread has to keep the time. It takes the only job itself if no other thread
    /// is at work.
    fn needs_keeper(&self) -> bool {
        let watches = self.busy > 0 && self.free == 1 && !self.jobs.is_empty();
        !self.has_keeper && (!self.members.is_empty() || watches)
    }

    /// Whether the thread that keeps the time has to start another one: jobs wait, and no thread is
    /// there for them, or none has taken a job for a while.
    fn is_held_up(&self, now: Instant) -> bool {
        self.is_short() && (self.busy == 0 || self.is_waiting(now, PATIENCE))
    }

    /// Whether jobs have waited for so long without one being taken.
    fn is_waiting(&self, now: Instant, long: Duration) -> bool {
        let waited = match self.moved_at {
            Some(at) => now.saturating_duration_since(at),
            None => Duration::MAX,
        };
        !self.jobs.is_empty() && waited >= long
    }

    /// How long the thread that keeps the time may sleep.
    fn time_to_sleep(&self, now: Instant) -> Duration {
        // Without a timeout: the platform cannot express this one.
        let mut most = Duration::MAX;
        if let Some((at, _)) = self.first() {
            most = at - now;
        }
        if self.is_short() {
            most = most.min(PATIENCE);
        }
        most
    }
}

/// Reports, once in a process, that there is no thread.
fn report(error: &io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        // Not `eprintln`, which panics where standard error is closed.
        _ = writeln!(
            io::stderr(),
            "wheelhouse: the background thread could not be started ({error}); maintenance is left \
             to the callers"
        );
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
