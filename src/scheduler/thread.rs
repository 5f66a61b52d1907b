//! The *scheduler thread*, which runs the maintenance of all caches with a background scheduler.
//!
//! # How it works
//!
//! A [`Worker`] is a thread with a list of members: caches, each with the moment at which it is to
//! run next, and their tasks in the order of these moments. The thread starts at the first
//! request, sleeps until the earliest moment, runs that member's job, and ends when its last member
//! has left. With nothing scheduled it sleeps without a timeout. It holds the caches weakly.
//!
//! It runs a bounded number of passes for one cache and calls no listener, so a busy cache does not
//! delay the others. The busy cache requests another run immediately; this run comes after those of
//! all members that were due before.
//!
//! # Invariants
//!
//! 1. The moment of a member is the earliest one requested since its last run began, and
//!    `(moment, member)` is in `schedule` exactly while there is one.
//! 2. At most one thread for each worker; `running` changes under the state's lock.
//!
//! # Cost
//!
//! A request takes a lock that the thread holds only while it picks a member, and a step in the
//! ordered set: it grows with the logarithm of the number of caches.

use super::gate::{self, TaskRef};
use super::listeners;
use crate::contain::contain;
use crate::sync::thread_local;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
// The standard library's locks: models run no threads of the crate.
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long after a failure to start a thread it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a thread is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It belongs to the program.
    Program,
    Scheduler,
    Listener,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Program) };
}

/// What the calling thread is for.
pub(crate) fn role() -> Role {
    ROLE.try_with(Cell::get).unwrap_or(Role::Program)
}

/// Starts threads of the crate.
#[derive(Default)]
pub(super) struct Starter {
    /// When the last start failed, unless one has succeeded since.
    pub(super) failed_at: Option<Instant>,
    /// The threads, until another thread waits for their end. Some may have ended.
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl Starter {
    /// Waits for the end of the threads that were started, which contain the panics of user code.
    /// Not under a lock.
    pub(super) fn join(threads: Vec<JoinHandle<()>>) {
        threads.into_iter().for_each(|thread| _ = thread.join());
    }

    /// Starts a thread; false if it cannot be started, or could not a moment ago.
    pub(super) fn start(
        &mut self,
        name: &str,
        role: Role,
        work: impl FnOnce() + Send + 'static,
    ) -> bool {
        let now = Instant::now();
        if self.failed_at.is_some_and(|at| now - at < RETRY) {
            return false;
        }
        self.threads.retain(|thread| !thread.is_finished());
        let started = thread::Builder::new().name(name.into()).spawn(move || {
            ROLE.with(|here| here.set(role));
            work();
        });
        self.failed_at = started.is_err().then_some(now);
        self.threads.extend(started.inspect_err(report));
        self.failed_at.is_none()
    }
}

/// Locks a state that stays whole, since no user code runs under its lock.
pub(super) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change of such a state, for `most` at most.
pub(super) fn wait<'a, T>(
    changed: &Condvar,
    state: MutexGuard<'a, T>,
    most: Duration,
) -> MutexGuard<'a, T> {
    let woken = changed.wait_timeout(state, most);
    woken.unwrap_or_else(PoisonError::into_inner).0
}

/// The worker of all caches of this process that have a background scheduler.
pub(super) fn worker() -> &'static Worker {
    static WORKER: LazyLock<Worker> = LazyLock::new(Worker::default);
    &WORKER
}

/// See the module docs.
#[derive(Default)]
pub(super) struct Worker {
    state: Mutex<State>,
    /// The thread has to look at its schedule again.
    changed: Condvar,
    /// Whether the thread could not be started, so that callers do all maintenance.
    failed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// How many caches the process has built and not dropped.
    caches: usize,
    /// When each runs next, by the address of its task.
    members: BTreeMap<usize, Option<Instant>>,
    schedule: BTreeMap<(Instant, usize), TaskRef>,
    running: bool,
    /// Whether the thread has to end, though caches may have come since.
    ending: bool,
    starter: Starter,
}

impl Worker {
    /// Relaxed: a thread that sees it late makes one idle request.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Asks for a run after a time.
    pub(super) fn wake(&'static self, task: &TaskRef, after: Duration) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        // A moment that the platform cannot express counts as never.
        if let Some(at) = now.checked_add(after) {
            if state.schedule(task, at) && state.first() == Some((at, task.address())) {
                self.changed.notify_one();
            }
        }
        if !state.running {
            self.start(&mut state);
        }
    }

    fn start(&'static self, state: &mut State) {
        let work = || self.work();
        state.running = (state.starter).start("wheelhouse", Role::Scheduler, work);
        self.failed.store(!state.running, Ordering::Relaxed);
    }

    /// A cache was built.
    pub(super) fn cache_begins(&self) {
        lock(&self.state).caches += 1;
    }

    /// A cache was dropped. If it was the last one, the threads of the crate end, and the caller
    /// waits for that: the code may be unloaded then. Not if the caller is such a thread, or inside
    /// a listener.
    pub(super) fn cache_ends(&self, task: &TaskRef) {
        let mut state = lock(&self.state);
        state.caches -= 1;
        state.leave(task.address());
        if state.members.is_empty() {
            self.changed.notify_one();
        }
        if state.caches == 0 && role() == Role::Program && !gate::is_inside_any() {
            state.ending = state.running;
            let threads = std::mem::take(&mut state.starter.threads);
            drop(state);
            Starter::join(threads);
            listeners::end();
        }
    }

    /// The loop of the thread.
    fn work(&'static self) {
        let mut state = lock(&self.state);
        while !state.members.is_empty() && !state.ending {
            let next = state.first();
            let now = Instant::now();
            state = match next {
                Some((at, _)) if at <= now => self.run(state),
                Some((at, _)) => wait(&self.changed, state, at - now),
                // Without a timeout: the platform cannot express this one.
                None => wait(&self.changed, state, Duration::MAX),
            };
        }
        (state.running, state.ending) = (false, false);
        if !state.members.is_empty() {
            self.start(&mut state);
        }
    }

    /// Runs the member that is first in the schedule.
    fn run<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if let Some(((_, id), task)) = state.schedule.pop_first() {
            state.members.insert(id, None);
            drop(state);
            // A panic in a ticker or in a destructor has been reported by the panic hook. It must
            // not end the thread that other caches rely on.
            // The run arranges its own next one.
            contain(|| task.with(false, |task| task.run_due()));
            drop(task);
            state = lock(&self.state);
        }
        state
    }
}

impl State {
    /// Notes that a member is to run at a moment; true if none before was noted.
    fn schedule(&mut self, task: &TaskRef, at: Instant) -> bool {
        let id = task.address();
        let moment = self.members.entry(id).or_default();
        if moment.is_some_and(|known| known <= at) {
            return false;
        }
        if let Some(known) = moment.replace(at) {
            self.schedule.remove(&(known, id));
        }
        self.schedule.insert((at, id), task.clone());
        true
    }

    fn leave(&mut self, id: usize) {
        if let Some(at) = self.members.remove(&id).flatten() {
            self.schedule.remove(&(at, id));
        }
    }

    /// The next moment, and whose it is.
    fn first(&self) -> Option<(Instant, usize)> {
        self.schedule.keys().next().copied()
    }
}

/// Reports, once in a process, that there is no thread.
fn report(error: &io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    report_once(
        &REPORTED,
        format_args!(
            "the background thread could not be started ({error}); maintenance is left to the \
             callers"
        ),
    );
}

/// Reports a fault that has not been `reported`, on standard error.
pub(super) fn report_once(reported: &AtomicBool, fault: fmt::Arguments<'_>) {
    if !reported.swap(true, Ordering::Relaxed) {
        // Not `eprintln`, which panics where standard error is closed.
        _ = writeln!(io::stderr(), "wheelhouse: {fault}");
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_scheduled_once_for_the_earliest_of_its_moments() {
        let tasks = [(); 3].map(|()| TaskRef::idle());
        let mut state = State::default();
        let now = Instant::now();
        let mut schedule = |task: usize, after: u64| {
            let noted = state.schedule(&tasks[task], now + Duration::from_secs(after));
            let (at, id) = state.first().expect("something is scheduled");
            let first = tasks.iter().position(|task| task.address() == id);
            (noted, (at - now).as_secs(), first, state.schedule.len())
        };
        assert_eq!(schedule(1, 9), (true, 9, Some(1), 1));
        assert_eq!(schedule(2, 5), (true, 5, Some(2), 2));
        assert_eq!(schedule(1, 10), (false, 5, Some(2), 2), "later than known");
        assert_eq!(
            schedule(1, 3),
            (true, 3, Some(1), 2),
            "in place of the former"
        );
        assert_eq!(schedule(2, 5), (false, 3, Some(1), 2), "known");
        state.leave(tasks[1].address());
        state.leave(tasks[0].address());
        assert_eq!(state.schedule.len(), 1);
        assert_eq!(state.members.len(), 1);
    }
}
