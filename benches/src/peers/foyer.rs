//! foyer's in-memory cache with its default order of use (LRU), or with its W-TinyLFU; no expiry.

use foyer_memory::{Cache, CacheBuilder, CacheProperties, EvictionConfig, LfuConfig, LruConfig};

use crate::peer::{Card, Hasher, Key, Peer, Plan, Problem, Role, Value};

/// `foyer_memory::Cache`.
pub struct Foyer<K: Key, V: Value>(Cache<K, V, Hasher, CacheProperties>);

impl<K: Key, V: Value> Foyer<K, V> {
    /// With its W-TinyLFU, for workloads that ask about hit ratios.
    pub fn tiny_lfu(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Self::with(plan, LfuConfig::default())
    }

    fn with(plan: &Plan<K, V>, eviction: impl Into<EvictionConfig>) -> Result<Self, Problem> {
        plan.without_expiry()?;
        plan.without_listener("no expiry to listen to")?;
        let capacity = plan.bound() as usize;
        Ok(Self(
            CacheBuilder::new(capacity)
                .with_hash_builder(Hasher::default())
                .with_eviction_config(eviction)
                .build(),
        ))
    }
}

impl<K: Key, V: Value> Peer<K, V> for Foyer<K, V> {
    const CARD: Card = Card {
        name: "foyer-memory",
        role: Role::Cache,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Self::with(plan, LruConfig::default())
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).map(|entry| entry.value().clone())
    }

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|entry| read(entry.value()))
    }

    calls!(insert, remove, entries);
}
