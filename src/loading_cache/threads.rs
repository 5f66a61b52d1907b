//! The threads that reload for a [`Loader`](super::Loader): up to a fixed number, started when they
//! are needed. All take loads from one queue.
//!
//! They hold no cache: a thread ends when it has had nothing to do for a while, or when the last
//! handle of the loading cache is dropped.
//!
//! # What becomes of a load in the queue
//!
//! | meanwhile | then |
//! |---|---|
//! | a thread gets to it | it runs the loader |
//! | a call misses or computes the key | the call takes the load over and runs it (`load`); the queue forgets it |
//! | a thread that leads a load waits for it ([`ReloadThreads::run_queued`]) | that thread runs it |
//! | a write revokes it, and no call waits | it is not run |
//!
//! So a loader that hangs keeps its thread from the reloads behind it, and from the refreshes that
//! wait for one of them.
//!
//! A thread leads a load in the closure of a call, in a loader, in a poll of the future of either,
//! and while a lease exists that it got. A task that awaits a refresh, instead, blocks no thread,
//! and runs no blocking loader: it waits for the queue. So does a thread that got its lease from
//! another thread.

use super::call::run_here;
use super::kinds::AnyLoader;
use crate::contain::contain;
use crate::load::state::Load;
use crate::load::wait::runs_loader;
use crate::load::{CacheHasher, CacheKey, CacheValue, OwnedGuard};
use crate::process::Process;
use std::collections::VecDeque;
// The standard library's locks: models run no threads of the crate.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread waits for another load before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// From this length on, a queue that has doubled is cleared of loads that need no thread any more.
const FIRST_CLEARING: usize = 64;

pub(super) struct ReloadThreads<K, V, E, S> {
    loader: Arc<dyn AnyLoader<K, V, E>>,
    most: usize,
    name: String,
    state: Mutex<State<K, V, S>>,
    changed: Condvar,
    process: Process,
}

struct State<K, V, S> {
    queue: VecDeque<OwnedGuard<K, V, S>>,
    /// The length of the queue at which it is cleared.
    clear_at: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl<K, V, S> State<K, V, S> {
    /// Takes out what needs no thread any more, if the queue has doubled since the last time. It
    /// has to [leave the queue](OwnedGuard::leave_queue) with the lock released.
    fn clear(&mut self) -> VecDeque<OwnedGuard<K, V, S>> {
        if self.queue.len() < self.clear_at {
            return VecDeque::new();
        }
        let queue = std::mem::take(&mut self.queue).into_iter();
        let (needed, rest) = queue.partition(OwnedGuard::is_queued);
        self.queue = needed;
        self.clear_at = (self.queue.len() * 2).max(FIRST_CLEARING);
        rest
    }
}

impl<K, V, E, S> ReloadThreads<K, V, E, S> {
    pub(super) fn new(
        loader: Arc<dyn AnyLoader<K, V, E>>,
        most: usize,
        cache: Option<&str>,
    ) -> Self {
        Self {
            loader,
            most,
            name: format!("wheelhouse-{}-reload", cache.unwrap_or("cache")),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                clear_at: FIRST_CLEARING,
                threads: 0,
                idle: 0,
                closed: false,
            }),
            changed: Condvar::new(),
            process: Process::current(),
        }
    }

    /// No user code runs under this lock, and a panic under it leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State<K, V, S>> {
        self.process.check();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No reload begins any more; threads end.
    pub(super) fn close(&self) {
        if !self.process.is_current() {
            return;
        }
        let mut state = self.lock();
        state.closed = true;
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        self.changed.notify_all();
        drop(waiting);
    }
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    ReloadThreads<K, V, E, S>
{
    /// Makes a thread run the loader.
    pub(super) fn push(self: &Arc<Self>, mut guard: OwnedGuard<K, V, S>) {
        guard.enter_queue();
        let load = Arc::clone(guard.load());
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return;
        }
        let needless = state.clear();
        state.queue.push_back(guard);
        let start = state.idle < state.queue.len() && state.threads < self.most;
        state.threads += usize::from(start);
        drop(state);
        self.changed.notify_one();
        // A loader may have begun to wait for it, and has not found it in the queue.
        load.wake_waiters();
        if start {
            self.start();
        }
        // Since then, another guard may have queued the load again.
        let again = needless.into_iter().filter_map(OwnedGuard::leave_queue);
        again.for_each(|guard| self.push(guard));
    }

    fn start(self: &Arc<Self>) {
        let threads = Arc::clone(self);
        let thread = thread::Builder::new().name(self.name.clone());
        if thread.spawn(move || threads.work()).is_err() {
            let mut state = self.lock();
            state.threads -= 1;
            // Without a thread the queued loads would wait for ever. So fail them; a later read
            // tries again.
            let failed = (state.threads == 0).then(|| std::mem::take(&mut state.queue));
            drop(state);
            drop(failed);
        }
    }

    fn work(&self) {
        let mut state = self.lock();
        while !state.closed {
            if let Some(guard) = state.queue.pop_front() {
                drop(state);
                self.run(guard);
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let is_empty = |state: &mut State<_, _, _>| !state.closed && state.queue.is_empty();
            let woken = self.changed.wait_timeout_while(state, IDLE, is_empty);
            let (woken, waited) = woken.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Runs a load from the queue on this thread, unless another call has taken it over.
    fn run(&self, guard: OwnedGuard<K, V, S>) {
        contain(|| run_here(&self.loader, guard.leave_queue()?).ok());
    }

    /// On a thread that leads a load and would wait for this one: runs it if it is queued, since
    /// the threads that reload may all have to wait for that thread. True if it was queued.
    pub(super) fn run_queued(&self, load: &Arc<Load<K, V>>) -> bool {
        if !runs_loader() || !load.is_queued() {
            return false;
        }
        let mut state = self.lock();
        let mut queue = state.queue.iter();
        let at = queue.position(|guard| Arc::ptr_eq(guard.load(), load));
        let guard = at.and_then(|at| state.queue.remove(at));
        drop(state);
        guard.map(|guard| self.run(guard)).is_some()
    }
}
