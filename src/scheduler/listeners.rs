//! The threads that call listeners, shared by all caches of the process.
//!
//! # How it works
//!
//! A cache with something to deliver puts a [`Job`] into the queue. Each thread takes the oldest
//! job, runs it, and takes the next. A job of a cache delivers a bounded number of notifications;
//! if there are more, it goes back to the end of the queue. A thread that has found no job for
//! [`IDLE_TIME`] ends; when the last cache is dropped, all end.
//!
//! If jobs wait and every thread has one, perhaps all of them are held up by slow listeners. So one
//! thread takes no job but *watches*: it starts more threads if the others have taken few jobs in a
//! while. It starts as many as are held up, so soon each slow listener has a thread. If the others
//! are fast, it only looks on: ten thousand caches with fast listeners need two threads.
//!
//! # Invariants
//!
//! 1. If a job waits, a thread is not at work on a listener: it is about to look at the queue, or
//!    it watches. Except where no thread could be started: then the first thread that ends its job
//!    takes the next one.
//! 2. `starting` threads have not begun, `busy` ones run a job, `resting` ones wait for one, and at
//!    most one watches.
//!
//! # Cost
//!
//! A lock for each job; a system call if a thread has to be woken.

use super::gate::{Gate, Task, TaskRef};
use super::thread::{Role, Starter, lock, wait};
use crate::contain::contain;
use crate::sync::IS_MODEL;
use std::collections::VecDeque;
// The standard library's locks, as in `thread`.
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a thread without a job stays.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// How often the thread that watches naps before it judges, and how long it naps if one thread has
/// a job, or several. The threads need a processor meanwhile: on a busy machine they may all wait
/// for one, or for a thread that has lost it in a lock.
const NAPS: u32 = 10;
const NAP: Duration = Duration::from_millis(10);
const LONG_NAP: Duration = Duration::from_millis(20);

/// A nap that takes this many times as long as it should shows that the machine is busy, or that
/// the process was stopped. It does not count. After so many naps the thread judges all the same.
const LATE: u32 = 3;
const MOST_NAPS: u32 = 40;

/// If the threads take no more jobs than this while they are watched, they are held up.
const FEW_JOBS: u64 = 2;

/// The work of a shared thread.
pub(super) enum Job {
    /// Deliver what waits.
    Deliver(TaskRef),
    /// [End](Gate::end) a cache: the thread that was to do that must not wait.
    End(Arc<Gate>, Arc<dyn Task>),
}

fn threads() -> &'static Listeners {
    static THREADS: LazyLock<Listeners> = LazyLock::new(Listeners::default);
    &THREADS
}

/// Has the job run by a shared thread. False if there is no thread and none can be started: the job
/// was dropped.
pub(super) fn run(job: Job) -> bool {
    !IS_MODEL && threads().add(job)
}

/// The last cache was dropped: waits for the end of the threads.
pub(super) fn end() {
    threads().end();
}

/// See the module docs.
#[derive(Default)]
struct Listeners {
    state: Mutex<State>,
    /// For threads without a job.
    added: Condvar,
    /// For the thread that watches: it is not woken by jobs.
    watch: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that were started and have not begun.
    starting: usize,
    busy: usize,
    resting: usize,
    has_watcher: bool,
    /// How many jobs were taken so far.
    taken: u64,
    /// How many calls wait for the end of the threads: they end when no job is left.
    ending: usize,
    starter: Starter,
}

impl Listeners {
    fn add(&'static self, job: Job) -> bool {
        let mut state = lock(&self.state);
        if state.resting > 0 {
            self.added.notify_one();
        } else if !state.is_covered() && !self.start(&mut state) && state.busy == 0 {
            return false;
        }
        state.jobs.push_back(job);
        true
    }

    /// Starts a thread.
    fn start(&'static self, state: &mut State) -> bool {
        let work = || self.work();
        let started = (state.starter).start("wheelhouse-listener", Role::Listener, work);
        state.starting += usize::from(started);
        started
    }

    /// Waits for the end of the threads.
    fn end(&self) {
        let mut state = lock(&self.state);
        state.ending += 1;
        let threads = std::mem::take(&mut state.starter.threads);
        drop(state);
        self.added.notify_all();
        self.watch.notify_all();
        Starter::join(threads);
        lock(&self.state).ending -= 1;
    }

    /// The loop of a thread.
    fn work(&'static self) {
        let mut state = lock(&self.state);
        state.starting -= 1;
        state.busy += 1;
        loop {
            if state.jobs.is_empty() {
                let Some(woken) = self.rest(state) else {
                    return;
                };
                state = woken;
            } else if state.busy > 1 && !state.is_covered() && state.starter.failed_at.is_none() {
                state = self.watch(state);
            } else if let Some(job) = state.jobs.pop_front() {
                state.taken += 1;
                if !state.jobs.is_empty() && !state.is_covered() {
                    self.start(&mut state);
                }
                drop(state);
                let again = contain(|| job.run()).flatten();
                state = lock(&self.state);
                state.jobs.extend(again);
            }
        }
    }

    /// Waits for a job; `None` if there is none for long.
    fn rest<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Option<MutexGuard<'a, State>> {
        state.busy -= 1;
        state.resting += 1;
        let until = Instant::now() + IDLE_TIME;
        while state.ending == 0 {
            let left = until.saturating_duration_since(Instant::now());
            state = wait(&self.added, state, left);
            if !state.jobs.is_empty() {
                state.resting -= 1;
                state.busy += 1;
                return Some(state);
            }
            if Instant::now() >= until {
                break;
            }
        }
        state.resting -= 1;
        None
    }

    /// Watches the threads that have jobs, and starts more if these are held up.
    fn watch(&'static self, mut state: MutexGuard<'static, State>) -> MutexGuard<'static, State> {
        state.busy -= 1;
        state.has_watcher = true;
        while !state.jobs.is_empty() && state.busy > 0 {
            let before = state.taken;
            let (mut in_time, mut naps) = (0, 0);
            loop {
                let length = if state.busy > 1 { LONG_NAP } else { NAP };
                let began = Instant::now();
                state = wait(&self.watch, state, length);
                in_time += u32::from(began.elapsed() < length * LATE);
                naps += 1;
                if in_time == NAPS || naps == MOST_NAPS || !state.is_held_up_since(before) {
                    break;
                }
            }
            if state.is_held_up_since(before) {
                let held_up = state.busy.min(state.jobs.len());
                if !(0..held_up).all(|_| self.start(&mut state)) {
                    break;
                }
            }
        }
        state.has_watcher = false;
        state.busy += 1;
        state
    }
}

impl State {
    /// Whether jobs wait, and few were taken since `before` were.
    fn is_held_up_since(&self, before: u64) -> bool {
        self.resting == 0 && !self.jobs.is_empty() && self.taken - before <= FEW_JOBS
    }

    /// Whether a thread that has no job will look at the queue.
    fn is_covered(&self) -> bool {
        self.has_watcher || self.resting + self.starting > 0
    }
}

impl Job {
    /// Runs the job; returns it if there is more to do.
    fn run(self) -> Option<Self> {
        match self {
            Self::Deliver(cache) => {
                let more = cache.with(true, |task| task.deliver()) == Some(true);
                more.then_some(Self::Deliver(cache))
            }
            Self::End(gate, cache) => {
                gate.end(cache, true, 1);
                None
            }
        }
    }
}
