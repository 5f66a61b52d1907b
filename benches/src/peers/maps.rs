//! Peers in a few lines each: bare maps, and caches without expiry.

use foyer_memory::{CacheBuilder, CacheProperties, EvictionConfig, LfuConfig, LruConfig};
use quick_cache::{
    UnitWeighter,
    sync::{DefaultLifecycle, EntryAction, EntryResult},
};

use crate::{
    figure::Problem,
    peer::{Card, Hasher, Key, Loads, LoadsByFuture, Peer, Plan, Value},
};

/// A bare map can stand in only where nothing expires and nothing has to make room.
fn fits<K, V>(plan: &Plan<K, V>) -> Result<(), Problem> {
    plan.plain("no expiry")?;
    match plan.capacity {
        Some(capacity) if capacity <= plan.expected as u64 => Err(Problem::Unsupported("no bound")),
        _ => Ok(()),
    }
}

/// papaya: a bare map without locks, pinned for each operation.
pub struct Papaya<K, V>(papaya::HashMap<K, V, Hasher>);

impl<K: Key, V: Value> Peer<K, V> for Papaya<K, V> {
    const CARD: Card = Card::floor("papaya");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        fits(plan)?;
        Ok(Self(papaya::HashMap::with_hasher(Hasher::default())))
    }

    get_in_place!(|cache, key, read| cache.pin().get(key).map(read));

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.pin().insert(key, value);
    }

    #[inline]
    fn remove(&self, key: &K) {
        self.0.pin().remove(key);
    }

    calls!(entries: len);
}

/// foyer's in-memory cache with its default order of use (LRU), or with its W-TinyLFU; no expiry.
pub struct Foyer<K: Key = u64, V: Value = u64>(foyer_memory::Cache<K, V, Hasher, CacheProperties>);

impl<K: Key, V: Value> Foyer<K, V> {
    /// With its W-TinyLFU, for workloads that ask about hit ratios.
    pub fn tiny_lfu(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Self::with(plan, LfuConfig::default())
    }

    fn with(plan: &Plan<K, V>, eviction: impl Into<EvictionConfig>) -> Result<Self, Problem> {
        plan.plain("no expiry to listen to")?;
        let builder = CacheBuilder::new(plan.bound() as usize)
            .with_hash_builder(Hasher::default())
            .with_eviction_config(eviction);
        Ok(Self(builder.build()))
    }
}

impl<K: Key, V: Value> Peer<K, V> for Foyer<K, V> {
    const CARD: Card = Card::cache("foyer-memory");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Self::with(plan, LruConfig::default())
    }

    get_in_place!(|cache, key, read| cache.get(key).map(|entry| read(entry.value())));
    calls!(insert: insert, remove: remove, entries: entries);
}

/// quick_cache: no expiry at all.
pub struct QuickCache<K = u64, V = u64>(Quick<K, V>);

pub(super) type Quick<K, V> =
    quick_cache::sync::Cache<K, V, UnitWeighter, Hasher, DefaultLifecycle<K, V>>;

/// A quick_cache as two of the peers here use it.
pub(super) fn quick<K: Key, V: Value, W: Value>(plan: &Plan<K, V>) -> Quick<K, W> {
    let (hasher, lifecycle) = (Hasher::default(), DefaultLifecycle::default());
    quick_cache::sync::Cache::with(plan.expected, plan.bound(), UnitWeighter, hasher, lifecycle)
}

impl<K: Key, V: Value> Peer<K, V> for QuickCache<K, V> {
    const CARD: Card = Card::cache("quick_cache");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.plain("no expiry to listen to")?;
        Ok(Self(quick(plan)))
    }

    calls!(get: get, insert: insert, remove: remove, entries: len);
}

impl Loads for QuickCache {
    #[inline]
    fn try_get_with(&self, key: u64, load: impl FnOnce() -> Result<u64, ()>) -> Option<u64> {
        self.0.get_or_insert_with(&key, load).ok()
    }

    #[inline]
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
        self.try_get_with(key, || Ok(load()))
            .expect("no load fails")
    }

    #[inline]
    fn add_one(&self, key: u64) {
        let add = |_: &u64, value: &mut u64| {
            *value += 1;
            EntryAction::Retain(())
        };
        if let EntryResult::Vacant(guard) = self.0.entry(&key, None, add) {
            // Fails only if another thread has inserted meanwhile, and no workload does.
            let _ = guard.insert(1);
        }
    }

    fn copy(&self) -> Vec<(u64, u64)> {
        self.0.iter().collect()
    }
}

impl LoadsByFuture for QuickCache {
    async fn get_with_future(&self, key: u64, load: impl Future<Output = u64> + Send) -> u64 {
        let load = async { Ok::<u64, ()>(load.await) };
        let loaded = self.0.get_or_insert_async(&key, load).await;
        loaded.expect("no load fails")
    }
}
