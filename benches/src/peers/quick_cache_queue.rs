//! Equal promises as a user would write them: quick_cache for the values, a `DelayQueue` of
//! tokio-util under a mutex for the deadlines, and a thread that removes what is due and calls the
//! listener. All writes take the mutex, so that a timer never fires for another value of its key.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Instant,
};

use ::quick_cache::{Lifecycle, UnitWeighter, sync::Cache};
use tokio::runtime::{Builder, Runtime};
use tokio_util::time::{DelayQueue, delay_queue};

use crate::{
    figure::Problem,
    peer::{Card, Hasher, Key, Lifetime, Listener, Peer, Plan, Value},
};

/// `quick_cache::sync::Cache`, `tokio_util::time::DelayQueue`, and a thread.
pub struct QuickCacheQueue<K, V> {
    shared: Arc<Shared<K, V>>,
    lifetime: Lifetime<K, V>,
    /// Has the thread, and ends it. A queue takes timers only within a runtime.
    runtime: Runtime,
}

struct Shared<K, V> {
    cache: Cache<K, Timed<V>, UnitWeighter, Hasher, Collect>,
    timers: Mutex<DelayQueue<K>>,
    listener: Option<Listener<K, V>>,
}

#[derive(Clone)]
struct Timed<V> {
    value: V,
    deadline: Instant,
    timer: delay_queue::Key,
}

/// Keeps what an insert evicts or replaces until the shard's lock is released.
#[derive(Clone)]
struct Collect;

impl<K, V> Lifecycle<K, V> for Collect {
    type RequestState = Vec<(K, V)>;

    fn on_evict(&self, gone: &mut Vec<(K, V)>, key: K, value: V) {
        gone.push((key, value));
    }
}

impl<K: Key, V: Value> Shared<K, V> {
    fn tell(&self, key: &K, timed: &Timed<V>, expired: bool) {
        if let Some(listener) = &self.listener {
            listener(key, &timed.value, expired);
        }
    }

    /// The next entry that was due and is removed. The queue wakes the task for the next timer, and
    /// if it is empty, when one is started.
    fn poll_due(&self, context: &mut Context<'_>) -> Poll<(K, Timed<V>)> {
        let mut timers = self.timers.lock().unwrap();
        while let Poll::Ready(Some(expired)) = timers.poll_expired(context) {
            let timer = expired.key();
            let is_same = |timed: &Timed<V>| timed.timer == timer;
            if let Some(gone) = self.cache.remove_if(expired.get_ref(), is_same) {
                return Poll::Ready(gone);
            }
        }
        Poll::Pending
    }
}

impl<K: Key, V: Value> Peer<K, V> for QuickCacheQueue<K, V> {
    const CARD: Card = Card::cache("quick_cache+DelayQueue");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.by_hand("a read would have to move a timer that another thread may just remove")?;
        let (size, hasher) = (plan.expected, Hasher::default());
        let shared = Arc::new(Shared {
            cache: Cache::with(size, plan.bound(), UnitWeighter, hasher, Collect),
            timers: Mutex::default(),
            listener: plan.listener.clone(),
        });
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_time().build();
        let runtime = runtime.map_err(|error| Problem::Wrong(error.to_string()))?;
        let theirs = Arc::clone(&shared);
        runtime.spawn(async move {
            loop {
                let (key, timed) = poll_fn(|context| theirs.poll_due(context)).await;
                theirs.tell(&key, &timed, true);
            }
        });
        Ok(Self {
            shared,
            lifetime: plan.lifetime,
            runtime,
        })
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        let timed = self.shared.cache.get(key)?;
        // The thread may be late.
        (Instant::now() < timed.deadline).then_some(timed.value)
    }

    fn insert(&self, key: K, value: V) {
        let deadline = Instant::now() + (self.lifetime)(&key, &value);
        let mut gone = Vec::new();
        let mut timers = self.shared.timers.lock().unwrap();
        let within = self.runtime.enter();
        let timer = timers.insert_at(key.clone(), deadline.into());
        let timed = Timed {
            value,
            deadline,
            timer,
        };
        self.shared
            .cache
            .insert_with_lifecycle(key, timed, &mut gone);
        for (_, timed) in &gone {
            timers.try_remove(&timed.timer);
        }
        drop(within);
        drop(timers);
        for (key, timed) in &gone {
            self.shared.tell(key, timed, false);
        }
    }

    fn remove(&self, key: &K) {
        let mut timers = self.shared.timers.lock().unwrap();
        if let Some((key, timed)) = self.shared.cache.remove(key) {
            timers.try_remove(&timed.timer);
            drop(timers);
            self.shared.tell(&key, &timed, false);
        }
    }

    fn entries(&self) -> Option<u64> {
        Some(self.shared.cache.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;
    use crate::{peer::Expiring, workloads::plan};

    #[test]
    fn removes_on_time_and_tells_each_entry_once() {
        let (told, heard) = mpsc::channel();
        let told = Mutex::new(told);
        let tell = move |key: &u64, value: &u64, expired| {
            told.lock().unwrap().send((*key, *value, expired)).unwrap();
        };
        let mut plan = plan(Expiring::Write, 100, Some(100));
        plan.lifetime = |_, millis| Duration::from_millis(*millis);
        plan.listener = Some(Arc::new(tell));
        let cache = QuickCacheQueue::build(&plan).unwrap();
        let wait = || heard.recv_timeout(Duration::from_secs(10)).unwrap();
        cache.insert(1, 3_600_000);
        cache.insert(2, 3_600_000);
        cache.insert(1, 30);
        assert_eq!(wait(), (1, 3_600_000, false));
        assert_eq!(wait(), (1, 30, true));
        cache.remove(&2);
        assert_eq!(wait(), (2, 3_600_000, false));
        assert_eq!((cache.get(&1), cache.entries()), (None, Some(0)));
        cache.insert(3, 20);
        assert_eq!(wait(), (3, 20, true));
        drop((cache, plan));
        assert!(heard.recv().is_err());
    }
}
