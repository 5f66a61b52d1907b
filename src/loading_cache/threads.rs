//! The threads that reload for a [`Loader`]: up to a fixed number, started when they
//! are needed.
//! All take loads from one queue.
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
//! | a thread that leads a load waits for it ([`ReloadThreads::take`]) | that thread runs it |
//! | a write revokes it, and no call waits | it is not run |
//!
//! So a loader that hangs keeps its thread from the reloads behind it, and from the refreshes that
//! wait for one of them.
//!
//! A thread leads a load in the closure of a call, in a loader, in a poll of the future of either,
//! and while a lease exists that it got. A task that awaits a refresh, instead, blocks no thread,
//! and runs no blocking loader: it waits for the queue. So does a thread that got its lease from
//! another thread.

use super::call::run_now;
use super::loader::Loader;
use crate::contain::contain;
use crate::load::state::Load;
use crate::load::{CacheHasher, CacheKey, CacheValue, OwnedGuard};
use crate::process::Process;
use std::collections::VecDeque;
// The standard library's locks: models run no threads of the crate.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread waits for another load before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// From this length on, a queue that has doubled is cleared of loads that need no thread any more.
const FIRST_CLEARING: usize = 64;

pub(super) struct ReloadThreads<K: Eq + 'static, V: 'static, S> {
    most: usize,
    name: String,
    state: Mutex<State<K, V, S>>,
    changed: Condvar,
    process: Process,
}

struct State<K: Eq + 'static, V: 'static, S> {
    queue: VecDeque<OwnedGuard<K, V, S>>,
    /// The length of the queue at which it is cleared.
    clear_at: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl<K: Eq + 'static, V: 'static, S> State<K, V, S> {
    /// Takes out what needs no thread any more, if the queue has doubled since the last time. It
    /// has to [leave the queue](OwnedGuard::leave_queue) with the lock released.
    fn clear(&mut self) -> VecDeque<OwnedGuard<K, V, S>> {
        if self.queue.len() < self.clear_at {
            return VecDeque::new();
        }
        let queue = std::mem::take(&mut self.queue);
        let (needed, rest): (VecDeque<_>, VecDeque<_>) =
            queue.into_iter().partition(OwnedGuard::is_queued);
        self.queue = needed;
        self.clear_at = (self.queue.len() * 2).max(FIRST_CLEARING);
        rest
    }
}

impl<K: CacheKey, V: CacheValue, S: CacheHasher> ReloadThreads<K, V, S> {
    pub(super) fn new(most: usize, name: Option<&str>) -> Self {
        Self {
            most,
            name: format!("wheelhouse-{}-reload", name.unwrap_or("cache")),
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

    /// Makes a thread run the loader.
    pub(super) fn push<E: Send + Sync + 'static>(
        self: &Arc<Self>,
        loader: &Arc<dyn Loader<K, V, Error = E>>,
        mut guard: OwnedGuard<K, V, S>,
    ) {
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
            self.start(loader);
        }
        for guard in needless {
            // Since then, another guard may have queued the load again.
            if let Some(guard) = guard.leave_queue() {
                self.push(loader, guard);
            }
        }
    }

    fn start<E: Send + Sync + 'static>(
        self: &Arc<Self>,
        loader: &Arc<dyn Loader<K, V, Error = E>>,
    ) {
        let (threads, loader) = (Arc::clone(self), Arc::clone(loader));
        let thread = thread::Builder::new().name(self.name.clone());
        if thread.spawn(move || threads.work(&loader)).is_err() {
            let mut state = self.lock();
            state.threads -= 1;
            // Without a thread the queued loads would wait for ever. So fail them; a later read
            // tries again.
            let failed = if state.threads == 0 {
                std::mem::take(&mut state.queue)
            } else {
                VecDeque::new()
            };
            drop(state);
            drop(failed);
        }
    }

    fn work<E: Send + Sync + 'static>(&self, loader: &Arc<dyn Loader<K, V, Error = E>>) {
        let mut state = self.lock();
        while !state.closed {
            if let Some(guard) = state.queue.pop_front() {
                drop(state);
                contain(|| {
                    if let Some(guard) = guard.leave_queue() {
                        run_now(&**loader, guard);
                    }
                });
                state = self.lock();
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

    /// Takes a load out of the queue, for a thread that leads a load and would wait for this one:
    /// the threads that reload may all have to wait for that thread.
    pub(super) fn take(&self, load: &Arc<Load<K, V>>) -> Option<OwnedGuard<K, V, S>> {
        let mut state = self.lock();
        let mut queue = state.queue.iter();
        let at = queue.position(|guard| Arc::ptr_eq(guard.load(), load))?;
        let guard = state.queue.remove(at);
        drop(state);
        guard?.leave_queue()
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
