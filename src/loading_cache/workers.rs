//! The threads that reload for a [`Loader`]: up to a fixed number, started when they are needed.
//! All take keys from one queue. A child made by `fork` has none of these threads: it starts its
//! own.
//!
//! They hold no cache: a thread ends when it has had nothing to do for a while, or when the last
//! handle of the loading cache is dropped.

use super::loader::{Loader, Reloaded};
use super::source::{between, reload_result};
use crate::contain::contain;
use crate::load::{Load, RevokedBy, WorkerSlot, thread_number, with_worker_slot};
use crate::loading::{CacheHasher, CacheKey, CacheValue, Right};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::process;
// The standard library's locks, as in `scheduler/thread.rs`: they keep no list of sleeping threads,
// of which a child made by `fork` would have a copy.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How long a thread waits for another key before it ends.
const IDLE: Duration = Duration::from_secs(10);

pub(super) struct Workers<K: Eq + 'static, V: 'static, S> {
    most: usize,
    name: String,
    state: Mutex<State<K, V, S>>,
    changed: Condvar,
}

/// The load that a thread runs.
struct Running<K, V> {
    load: Arc<Load<K, V>>,
    thread: ThreadId,
    /// Whether it was overdue when a key was pushed last: its thread may be stuck.
    is_stuck: bool,
    /// Whether its loader waits for another load, perhaps for one that stands in the queue.
    is_away: bool,
}

struct State<K: Eq + 'static, V: 'static, S> {
    queue: VecDeque<Right<K, V, S>>,
    running: Vec<Running<K, V>>,
    threads: usize,
    idle: usize,
    closed: bool,
    /// The process that has these threads.
    process: u32,
}

impl<K: Eq + 'static, V: 'static, S> State<K, V, S> {
    /// The threads that are neither stuck nor away.
    fn usable_threads(&self) -> usize {
        let rests = |running: &&Running<K, V>| running.is_stuck || running.is_away;
        self.threads - self.running.iter().filter(rests).count()
    }

    /// In a child made by `fork`: forgets the threads of the parent. Their loads stay current until
    /// they become overdue.
    fn forget_other_process(&mut self) -> Vec<Running<K, V>> {
        let process = process::id();
        if self.process == process {
            return Vec::new();
        }
        (self.process, self.threads, self.idle) = (process, 0, 0);
        std::mem::take(&mut self.running)
    }
}

impl<K: Eq + 'static, V: 'static, S> Workers<K, V, S> {
    /// No user code runs under this lock, and a panic under it leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State<K, V, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> Workers<K, V, S> {
    pub(super) fn new(most: usize, name: Option<&str>) -> Self {
        Self {
            most,
            name: format!("wheelhouse-{}-reload", name.unwrap_or("cache")),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                running: Vec::new(),
                threads: 0,
                idle: 0,
                closed: false,
                process: process::id(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Makes a thread run the loader. A thread whose load is overdue is no longer counted, so that
    /// stuck loads do not end all reloads.
    pub(super) fn push<E: Send + Sync + 'static>(
        self: &Arc<Self>,
        loader: &Arc<dyn Loader<K, V, Error = E>>,
        right: Right<K, V, S>,
        is_overdue: impl Fn(&Load<K, V>) -> bool,
    ) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return;
        }
        let gone = state.forget_other_process();
        state.queue.push_back(right);
        for running in &mut state.running {
            running.is_stuck = is_overdue(&running.load);
        }
        self.start_if_needed(state, loader);
        // With the lock released: keys may be dropped with them.
        drop(gone);
    }

    /// Starts a thread if the queue needs one and it is allowed; else wakes one that is idle.
    fn start_if_needed<E: Send + Sync + 'static>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<K, V, S>>,
        loader: &Arc<dyn Loader<K, V, Error = E>>,
    ) {
        let start = state.idle < state.queue.len() && state.usable_threads() < self.most;
        state.threads += usize::from(start);
        drop(state);
        self.changed.notify_one();
        if !start {
            return;
        }
        let (workers, loader) = (Arc::clone(self), Arc::clone(loader));
        let slot = OwnSlot {
            workers: Arc::clone(self),
            loader: Arc::clone(&loader),
        };
        let work = move || with_worker_slot(Arc::new(slot), || workers.work(&*loader));
        let thread = thread::Builder::new().name(self.name.clone());
        if thread.spawn(work).is_err() {
            let mut state = self.lock();
            state.threads -= 1;
            // Without a thread the queued keys would wait for ever. So fail them; a later read
            // tries again.
            let failed = if state.usable_threads() == 0 {
                std::mem::take(&mut state.queue)
            } else {
                VecDeque::new()
            };
            drop(state);
            drop(failed);
        }
    }

    fn work<E: Send + Sync + 'static>(&self, loader: &dyn Loader<K, V, Error = E>) {
        let mut state = self.lock();
        while !state.closed {
            if let Some(right) = state.queue.pop_front() {
                let load = Arc::clone(right.load());
                state.running.push(Running {
                    load: Arc::clone(&load),
                    thread: thread::current().id(),
                    is_stuck: false,
                    is_away: false,
                });
                drop(state);
                contain(|| run(loader, right));
                state = self.lock();
                let found = state
                    .running
                    .iter()
                    .position(|other| Arc::ptr_eq(&other.load, &load));
                let ended = found.map(|at| state.running.swap_remove(at));
                drop(state);
                // With the lock released: a key may be dropped with it.
                drop((ended, load));
                state = self.lock();
                // Another thread has taken the place of one that was stuck.
                if state.usable_threads() > self.most {
                    break;
                }
                continue;
            }
            let began = Instant::now();
            state.idle += 1;
            let woken = self.changed.wait_timeout(state, IDLE);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
            if began.elapsed() >= IDLE && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// No reload begins any more; threads end.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        self.changed.notify_all();
        drop(waiting);
    }
}

/// The slot of a thread, for that thread.
struct OwnSlot<K: Eq + 'static, V: 'static, S, E> {
    workers: Arc<Workers<K, V, S>>,
    loader: Arc<dyn Loader<K, V, Error = E>>,
}

impl<K: Eq + 'static, V: 'static, S, E> OwnSlot<K, V, S, E> {
    /// Notes whether the thread is away.
    fn note(&self, is_away: bool) -> MutexGuard<'_, State<K, V, S>> {
        let (me, mut state) = (thread::current().id(), self.workers.lock());
        let mut running = state.running.iter_mut();
        if let Some(own) = running.find(|running| running.thread == me) {
            own.is_away = is_away;
        }
        state
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher, E: Send + Sync + 'static> WorkerSlot
    for OwnSlot<K, V, S, E>
{
    fn release(&self) {
        let state = self.note(true);
        self.workers.start_if_needed(state, &self.loader);
    }

    fn reacquire(&self) {
        drop(self.note(false));
    }
}

/// Runs the loader for a key, on this thread.
fn run<K, V, S, E>(loader: &dyn Loader<K, V, Error = E>, right: Right<K, V, S>)
where
    K: CacheKey,
    V: CacheValue,
    S: BuildHasher,
    E: Send + Sync + 'static,
{
    let load = Arc::clone(right.load());
    if load.revoked() == Some(RevokedBy::NewerLoad) {
        // The load waited for so long that a newer one has replaced it. Dropping the right counts
        // as a failure.
        return;
    }
    let Some(began) = right.begin_run() else {
        return;
    };
    // Until the end of the run: what is loaded is committed on this thread as well.
    load.set_leader(thread_number());
    let made = contain(|| {
        let old = if right.is_reload() { right.old() } else { None };
        let made = match &old {
            Some(old) => loader.reload(load.key(), old),
            None => loader.load(load.key()).map(Reloaded::New),
        };
        (made, old)
    });
    let took = between(began, right.now().unwrap_or(began));
    let (made, old) = made.map_or((None, None), |(made, old)| (Some(made), old));
    let reload = right.is_reload();
    right.finish(reload_result(made, old, took, reload));
}
