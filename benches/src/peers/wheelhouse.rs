//! wheelhouse with its default settings and an ordinary policy, as a user writes it; then with
//! other policies and settings, each as a peer of its own.

use std::{sync::LazyLock, time::Duration};

use wheelhouse::{
    Cache, CacheBuilder, QuantaRecent, RemovalCause, Scheduler, compute::Entry, expiry,
};

use super::policies::{AsTold, OnAccess, OnCreate, OnWrite};
use crate::{
    figure::Problem,
    peer::{Card, Expiring, Key, Loads, LoadsByFuture, Peer, Plan, Value},
};

// The styles of a cache, which `notes.md` describes.
pub const ORDINARY: usize = 0;
pub const BATCHES: usize = 1;
pub const READS_AS_TOLD: usize = 2;
pub const WRITES_ONLY: usize = 3;
pub const READY: usize = 4;
pub const IDLE_LIMIT: usize = 5;
pub const FINE: usize = 6;
pub const RECENT: usize = 7;

/// As the tables call them.
const NAMES: [&str; 8] = [
    "wheelhouse",
    "wheelhouse, 16 at once",
    "wheelhouse, reads as told",
    "wheelhouse, writes_only",
    "wheelhouse, creating",
    "wheelhouse, idle limit",
    "wheelhouse, 16.8 ms buckets",
    "wheelhouse, recent time",
];

/// quanta's recent time is written once in so long, to the end of the process.
static UPKEEP: LazyLock<quanta::Handle> = LazyLock::new(|| {
    let upkeep = quanta::Upkeep::new(Duration::from_millis(1));
    upkeep.start().expect("the upkeep of quanta starts")
});

/// The cache that this package is about.
pub struct Wheelhouse<K = u64, V = u64, const STYLE: usize = ORDINARY>(pub(crate) Cache<K, V>);

impl<K: Key, V: Value, const STYLE: usize> Wheelhouse<K, V, STYLE> {
    /// Builds what `plan` asks for, with settings that a plan does not know.
    pub fn with(
        plan: &Plan<K, V>,
        set: impl FnOnce(CacheBuilder<K, V>) -> CacheBuilder<K, V>,
    ) -> Result<Self, Problem> {
        let (mut builder, lifetime) = (Cache::<K, V>::builder(), plan.lifetime);
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        if let Some(listener) = plan.listener.clone() {
            builder = builder.removal_listener(move |key: &K, value: &V, cause| {
                listener(key, value, cause == RemovalCause::Expired);
            });
        }
        builder = match (STYLE, plan.expiring) {
            (READS_AS_TOLD, _) => builder.expire_after(AsTold(lifetime)),
            (WRITES_ONLY, _) => builder.expire_after(expiry::writes_only(AsTold(lifetime))),
            (READY, _) => {
                let life = move |key: &K, value: &V| Some(lifetime(key, value));
                builder.expire_after(expiry::creating(life))
            }
            (IDLE_LIMIT, _) => {
                let idle = plan.uniform.filter(|_| plan.expiring == Expiring::Access);
                builder.time_to_idle(idle.ok_or(Problem::Unsupported("not the same work"))?)
            }
            (FINE, _) => {
                let resolution = Duration::from_nanos(1 << 24);
                builder
                    .expire_after(OnWrite(lifetime))
                    .expiry_resolution(resolution)
            }
            (RECENT, _) => {
                LazyLock::force(&UPKEEP);
                builder
                    .expire_after(OnWrite(lifetime))
                    .ticker(QuantaRecent::new())
                    .scheduler(Scheduler::background())
            }
            (_, Expiring::Never) => builder,
            (_, Expiring::Create) => builder.expire_after(OnCreate(lifetime)),
            (_, Expiring::Write) => builder.expire_after(OnWrite(lifetime)),
            (_, Expiring::Access) => builder.expire_after(OnAccess(lifetime)),
        };
        Ok(Self(set(builder).build()))
    }
}

/// As many as `get_many` looks up together.
const BATCH: usize = 16;

impl<K: Key, V: Value, const STYLE: usize> Peer<K, V> for Wheelhouse<K, V, STYLE> {
    const CARD: Card = Card::subject(NAMES[STYLE]);

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Self::with(plan, |builder| builder)
    }

    calls!(get: get, insert: insert, remove: invalidate);
    calls!(entries: entry_count, settle: run_pending_tasks);

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get_ref(key).map(|entry| read(&entry))
    }

    #[inline]
    fn count_right(&self, keys: &[K], right: impl Fn(&K, &V) -> bool) -> u64 {
        let is_right = |key, value: Option<V>| value.is_some_and(|value| right(key, &value));
        let mut count = 0;
        if STYLE != BATCHES {
            for key in keys {
                count += u64::from(is_right(key, self.0.get(key)));
            }
            return count;
        }
        for keys in keys.chunks(BATCH) {
            for (key, value) in keys.iter().zip(self.0.get_many(keys)) {
                count += u64::from(is_right(key, value));
            }
        }
        count
    }
}

impl<const STYLE: usize> Loads for Wheelhouse<u64, u64, STYLE> {
    loads_as_moka!(Entry<u64, u64>, |entry| (*entry.key(), *entry.value()));
}

impl<const STYLE: usize> LoadsByFuture for Wheelhouse<u64, u64, STYLE> {
    async fn get_with_future(&self, key: u64, load: impl Future<Output = u64> + Send) -> u64 {
        self.0.get_with_async(key, load).await
    }
}
