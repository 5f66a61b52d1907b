//! The *scheduler thread*, which runs the maintenance of all caches with a background scheduler.
//!
//! # How it works
//!
//! A [`Worker`] is a thread with a list of members: the tasks of caches, each with the moment at
//! which it is to run next, and an ordered set of these moments. The thread starts at the first
//! request, sleeps until the earliest moment, runs that member's job, and ends when its last member
//! has left. With nothing scheduled it sleeps without a timeout. It holds the caches weakly.
//!
//! It runs a bounded number of passes for one cache and calls no listener, so a busy cache does not
//! delay the others. The busy cache requests another run immediately; this run comes after those of
//! all members that were due before.
//!
//! # Invariants
//!
//! 1. `wake_at` of a member is the earliest moment requested since its last run began, and
//!    `(moment, member)` is in `schedule` exactly while it is set.
//! 2. At most one thread for each worker; `running` changes under the state's lock.
//! 3. A worker belongs to one process: a child made by `fork` has none of its threads.
//!
//! # Cost
//!
//! A request takes a lock that the thread holds only while it picks a member, and a step in the
//! ordered set: it grows with the logarithm of the number of caches.

use super::gate;
use super::listeners;
use super::task::TaskRef;
use crate::contain::contain;
use crate::process::PerProcess;
use crate::sync::thread_local;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
// The standard library's locks: models run no threads of the crate.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long after a failure to start a thread it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Whether the scheduler thread could not be started, so that callers do all maintenance.
static FAILED: AtomicBool = AtomicBool::new(false);

/// The worker of all caches that have a background scheduler.
static COMMON: PerProcess<Arc<Worker>> = PerProcess::new();

/// What a thread is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It belongs to the program.
    Program,
    Scheduler,
    Listener,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Program) };
}

/// What the calling thread is for.
pub(super) fn role() -> Role {
    ROLE.try_with(Cell::get).unwrap_or(Role::Program)
}

/// Starts threads of the crate.
#[derive(Default)]
pub(super) struct Starter {
    /// When the last start failed, unless one has succeeded since.
    pub(super) failed_at: Option<Instant>,
}

impl Starter {
    /// Starts a thread; `None` if it cannot be started, or could not a moment ago.
    pub(super) fn start(
        &mut self,
        name: &str,
        role: Role,
        work: impl FnOnce() + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let now = Instant::now();
        if self.failed_at.is_some_and(|at| now - at < RETRY) {
            return None;
        }
        let started = thread::Builder::new().name(name.into()).spawn(move || {
            ROLE.with(|here| here.set(role));
            work();
        });
        self.failed_at = started.is_err().then_some(now);
        started.inspect_err(report).ok()
    }
}

/// A cache was built.
pub(super) fn cache_begins() {
    COMMON
        .get_or_make(Worker::new)
        .caches
        .fetch_add(1, Ordering::Relaxed);
}

/// A cache was dropped. If it was the last one, the threads of the crate end, and the caller waits
/// for that: the code may be unloaded then. Not if the caller is such a thread, or inside a
/// listener.
pub(super) fn cache_ends() {
    let Some(worker) = COMMON.get() else {
        return;
    };
    // AcqRel: what was done for the other caches happens before the end.
    if worker.caches.fetch_sub(1, Ordering::AcqRel) == 1
        && role() == Role::Program
        && !gate::is_inside_any()
    {
        worker.end();
        listeners::end();
    }
}

/// The registration of a cache with the scheduler thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemberId(u64);

impl MemberId {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whether the scheduler thread could not be started, so that callers do all maintenance.
///
/// Relaxed: a thread that sees it late makes one idle request.
#[inline]
pub(super) fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Asks the scheduler thread for a run after a time.
pub(super) fn wake(member: MemberId, task: &TaskRef, after: Duration) {
    let worker = COMMON.get_or_make(Worker::new);
    let started = worker.wake(member, task, after);
    if started == has_failed() {
        FAILED.store(!started, Ordering::Relaxed);
    }
}

/// The cache is being dropped: removes its registration.
pub(super) fn leave(member: MemberId) {
    if let Some(worker) = COMMON.get() {
        worker.leave(member);
    }
}

/// See the module docs.
struct Worker {
    /// How many caches the process has built and not dropped.
    caches: AtomicUsize,
    state: Mutex<State>,
    /// The thread has to look at its schedule again.
    changed: Condvar,
}

struct State {
    members: BTreeMap<MemberId, Member>,
    schedule: BTreeSet<(Instant, MemberId)>,
    running: bool,
    /// The thread that was started last, until another thread waits for its end.
    thread: Option<JoinHandle<()>>,
    /// Whether the thread has to end, though caches may have come since.
    ending: bool,
    /// Until when the thread sleeps; a past moment while it runs a job, `None` while it sleeps
    /// without a timeout.
    asleep_until: Option<Instant>,
    starter: Starter,
}

struct Member {
    task: TaskRef,
    wake_at: Option<Instant>,
}

impl Worker {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            caches: AtomicUsize::new(0),
            state: Mutex::new(State {
                members: BTreeMap::new(),
                schedule: BTreeSet::new(),
                running: false,
                thread: None,
                ending: false,
                asleep_until: None,
                starter: Starter::default(),
            }),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under this lock, so the state is whole even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a run after a time; false if there is no thread and none can be started.
    fn wake(self: &Arc<Self>, id: MemberId, task: &TaskRef, after: Duration) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        // A moment that the platform cannot express counts as never.
        if let Some(at) = now.checked_add(after)
            && state.schedule(id, task, at)
            && state.running
            && state.asleep_until.is_none_or(|until| at < until)
        {
            self.changed.notify_one();
        }
        state.running || self.start(&mut state)
    }

    fn start(self: &Arc<Self>, state: &mut State) -> bool {
        let worker = Arc::clone(self);
        let work = move || worker.work();
        let thread = (state.starter).start("wheelhouse", Role::Scheduler, work);
        state.running = thread.is_some();
        if state.running {
            state.thread = thread;
        }
        state.running
    }

    /// Waits for the end of the thread, if no cache is there.
    fn end(&self) {
        let mut state = self.lock();
        if !state.members.is_empty() {
            return;
        }
        let Some(thread) = state.thread.take() else {
            return;
        };
        state.ending = state.running;
        drop(state);
        self.changed.notify_one();
        // The thread contains the panics of user code.
        _ = thread.join();
    }

    fn leave(&self, id: MemberId) {
        let mut state = self.lock();
        let member = state.members.remove(&id);
        if let Some(at) = member.as_ref().and_then(|member| member.wake_at) {
            state.schedule.remove(&(at, id));
        }
        if state.members.is_empty() {
            self.changed.notify_one();
        }
        drop(state);
    }

    /// The loop of the thread.
    fn work(self: &Arc<Self>) {
        let mut state = self.lock();
        while !state.members.is_empty() && !state.ending {
            let Some(&(at, id)) = state.schedule.first() else {
                state.asleep_until = None;
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let now = Instant::now();
            if at > now {
                state.asleep_until = Some(at);
                let woken = self.changed.wait_timeout(state, at - now);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            // In the past: the thread looks at the schedule after the run in any case.
            state.asleep_until = Some(now);
            state = self.run(state, id);
        }
        (state.running, state.ending) = (false, false);
        if !state.members.is_empty() {
            self.start(&mut state);
        }
    }

    /// Runs the member that is first in the schedule.
    fn run<'a>(&'a self, mut state: MutexGuard<'a, State>, id: MemberId) -> MutexGuard<'a, State> {
        state.schedule.pop_first();
        if let Some(member) = state.members.get_mut(&id) {
            member.wake_at = None;
            let task = member.task.clone();
            drop(state);
            // A panic in a ticker or in a destructor has been reported by the panic hook. It must
            // not end the thread that other caches rely on.
            // The run arranges its own next one.
            contain(|| task.with(|task| _ = task.run_due()));
            drop(task);
            state = self.lock();
        }
        state
    }
}

impl State {
    /// Notes that a member is to run at a moment; true if none before was noted.
    fn schedule(&mut self, id: MemberId, task: &TaskRef, at: Instant) -> bool {
        let member = self.members.entry(id).or_insert_with(|| Member {
            task: task.clone(),
            wake_at: None,
        });
        match member.wake_at {
            Some(known) if known <= at => return false,
            Some(known) => _ = self.schedule.remove(&(known, id)),
            None => (),
        }
        member.wake_at = Some(at);
        self.schedule.insert((at, id))
    }
}

/// Reports, once in a process, that there is no thread.
fn report(error: &io::Error) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        // Not `eprintln`, which panics where standard error is closed.
        _ = writeln!(
            io::stderr(),
            "wheelhouse: the background thread could not be started ({error}); maintenance is \
             left to the callers"
        );
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::super::task::Idle;
    use super::*;
    use std::sync::Weak;

    #[test]
    fn a_member_is_scheduled_once_for_the_earliest_of_its_moments() {
        let task = TaskRef::new(Weak::<Idle>::new());
        let worker = Worker::new();
        let mut state = worker.lock();
        let now = Instant::now();
        let mut schedule = |id, after: u64| {
            let at = now + Duration::from_secs(after);
            let noted = state.schedule(MemberId(id), &task, at);
            let first = state.schedule.first().map(|(at, id)| (*at - now, id.0));
            let (at, id) = first.expect("something is scheduled");
            (noted, at.as_secs(), id, state.schedule.len())
        };
        assert_eq!(schedule(1, 9), (true, 9, 1, 1));
        assert_eq!(schedule(2, 5), (true, 5, 2, 2));
        assert_eq!(schedule(1, 10), (false, 5, 2, 2), "later than known");
        assert_eq!(schedule(1, 3), (true, 3, 1, 2), "in place of the former");
        assert_eq!(schedule(2, 5), (false, 3, 1, 2), "known");
        drop(state);
        worker.leave(MemberId(1));
        worker.leave(MemberId(7));
        let state = worker.lock();
        assert_eq!(state.schedule.len(), 1);
        assert_eq!(state.members.len(), 1);
    }
}
