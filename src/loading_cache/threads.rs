//! The threads that reload for a [`Loader`](crate::Loader): up to a fixed number, started when they
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
//! | a call misses or computes the key | the call takes the load over and runs it (`load`) |
//! | a thread that leads a load waits for it | that thread takes it over and runs it |
//! | a write revokes it, and no call waits | it is not run |
//!
//! The load itself says whether it waits for a thread still. The queue forgets those that do not
//! when a thread gets to them, or when it has doubled. Then it also keeps each load once: one that
//! was taken over may be queued again.
//!
//! So a loader that hangs keeps its thread from the reloads behind it, and from the refreshes that
//! wait for one of them.
//!
//! A thread leads a load while it claims or ends it, in the closure of a call, in a loader, in a
//! poll of the future of either, and while a lease exists that it got. A task that awaits a
//! refresh, instead, blocks no thread, and runs no blocking loader: it waits for the queue. So does
//! a thread that got its lease from another thread.

use super::kinds::AnyLoader;
use crate::contain::contain;
use crate::load::{CacheHasher, CacheKey, CacheValue, OwnedGuard};
use crate::sync::block::run_blocking;
use std::collections::{HashSet, VecDeque};
// The standard library's locks: models run no threads of the crate.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread waits for another load before it ends.
const IDLE: Duration = Duration::from_secs(10);

pub(super) struct ReloadThreads<K, V, E, S> {
    loader: Arc<dyn AnyLoader<K, V, E>>,
    name: String,
    state: Mutex<State<K, V, S>>,
    changed: Condvar,
}

struct State<K, V, S> {
    /// The loads that wait for a thread, in their order. Among them stand loads that another call
    /// has taken over, or a write has revoked.
    queue: VecDeque<OwnedGuard<K, V, S>>,
    threads: usize,
    idle: usize,
    /// How many threads there may be; none when the last handle of the loading cache is gone.
    most: usize,
}

impl<K, V, E, S> ReloadThreads<K, V, E, S> {
    /// No user code runs under this lock, and a panic under it leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State<K, V, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No reload begins any more; threads end.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.most = 0;
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        self.changed.notify_all();
        end(waiting);
    }
}

/// Ends loads that are not run. With the lock released. A destructor that panics keeps no other
/// load queued.
fn end<K, V, S>(guards: impl IntoIterator<Item = OwnedGuard<K, V, S>>) {
    let guards = guards.into_iter();
    guards.for_each(|guard| _ = contain(|| drop(guard.take_queued())));
}

impl<K: CacheKey, V: CacheValue, E: Send + Sync + 'static, S: CacheHasher>
    ReloadThreads<K, V, E, S>
{
    pub(super) fn new(
        loader: Arc<dyn AnyLoader<K, V, E>>,
        cache: Option<&str>,
        most: usize,
    ) -> Self {
        Self {
            loader,
            name: format!("wheelhouse-{}-reload", cache.unwrap_or("cache")),
            state: Mutex::new(State {
                queue: VecDeque::new(),
                threads: 0,
                idle: 0,
                most,
            }),
            changed: Condvar::new(),
        }
    }

    /// Makes a thread run the loader.
    pub(super) fn push(self: &Arc<Self>, guard: OwnedGuard<K, V, S>) {
        let guard = guard.into_queue();
        let mut state = self.lock();
        let mut needless = VecDeque::new();
        if state.queue.len() == state.queue.capacity() {
            // It has doubled since the last time.
            let mut kept = HashSet::new();
            let is_needed = |guard: &OwnedGuard<_, _, _>| {
                let load = guard.load();
                load.is_queued() && load.is_wanted() && kept.insert(Arc::as_ptr(load))
            };
            let queue = std::mem::take(&mut state.queue).into_iter();
            (state.queue, needless) = queue.partition(is_needed);
            let count = state.queue.len();
            state.queue.reserve(count);
        }
        state.queue.push_back(guard);
        let start = state.idle < state.queue.len() && state.threads < state.most;
        state.threads += usize::from(start);
        drop(state);
        self.changed.notify_one();
        if start {
            self.start();
        }
        // The others have been taken over, or are queued behind this once more.
        end((needless.into_iter()).filter(|guard| !guard.load().is_wanted()));
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
            end(failed.unwrap_or_default());
        }
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            state.idle += 1;
            let is_empty = |state: &mut State<_, _, _>| state.most > 0 && state.queue.is_empty();
            let woken = self.changed.wait_timeout_while(state, IDLE, is_empty);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
            let Some(guard) = state.queue.pop_front() else {
                break;
            };
            drop(state);
            // Also the destructors of what the run has made, or of a load that is not run.
            contain(|| {
                if let Some(guard) = guard.take_queued() {
                    drop(run_blocking(guard.run_loader(&*self.loader)));
                }
            });
            state = self.lock();
        }
        state.threads -= 1;
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use crate::{Cache, loader_fn};
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    /// The one thread hangs. Refreshes queue loads, and misses take them over: they fail, and are
    /// remembered, so that the next refresh queues the same load again.
    #[test]
    fn the_queue_keeps_a_load_once() {
        for keys in 1..=3 {
            let (begins, began) = mpsc::channel();
            let (go, gate) = mpsc::channel::<()>();
            let (begins, gate) = (Mutex::new(begins), Mutex::new(gate));
            let load = loader_fn(move |key: &u64| {
                if *key > 0 {
                    return Err("down");
                }
                begins.lock().unwrap().send(()).unwrap();
                _ = gate.lock().unwrap().recv();
                Ok(1_u64)
            });
            let users = Cache::builder()
                .loading(load)
                .failure_backoff(|_| Some(Duration::from_secs(60)))
                .build();
            drop(users.refresh(0));
            began.recv().unwrap();
            for round in 0..1_000 {
                let key = 1 + round % keys;
                drop(users.refresh(key));
                assert!(users.get(&key).is_err());
            }
            let queued = users.inner.threads.lock().queue.len();
            assert!(queued < 20, "{queued} for {keys} keys");
            drop(go);
        }
    }
}
