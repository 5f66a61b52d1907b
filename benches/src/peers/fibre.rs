//! fibre_cache: a lifetime for each entry, in a map of shards behind locks.

use fibre_cache::{Cache, CacheBuilder, Entry};

use crate::{
    figure::Problem,
    peer::{Card, Expiring, Hasher, Key, Lifetime, Loads, Peer, Plan, Value},
};

pub struct Fibre<K: Key = u64, V: Value = u64>(Cache<K, V, Hasher>, Option<Lifetime<K, V>>);

impl<K: Key, V: Value> Peer<K, V> for Fibre<K, V> {
    const CARD: Card = Card::cache("fibre_cache");

    // Its callers evict nothing, and its one thread wakes once a second.
    const EVICTS: Result<(), Problem> = Err(Problem::Unsupported(
        "evicts once a second, so the bound does not hold",
    ));

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_listener("the listener is called once a second")?;
        let mut builder = CacheBuilder::<K, V, Hasher>::default().hasher(Hasher::default());
        if let Some(capacity) = plan.capacity {
            builder = builder.capacity(capacity);
        }
        let lifetime = match plan.expiring {
            Expiring::Never => None,
            Expiring::Create | Expiring::Write => Some(plan.lifetime),
            Expiring::Access => {
                let idle = plan.uniform;
                builder = builder
                    .time_to_idle(idle.ok_or(Problem::Unsupported("no idle limit per entry"))?);
                None
            }
        };
        let cache = builder.build();
        let cache = cache.map_err(|error| Problem::Wrong(error.to_string()))?;
        Ok(Self(cache, lifetime))
    }

    get_in_place!(|cache, key, read| cache.get(key, read));

    #[inline]
    fn insert(&self, key: K, value: V) {
        match self.1.map(|lifetime| lifetime(&key, &value)) {
            None => self.0.insert(key, value, 1),
            Some(left) => self.0.insert_with_ttl(key, value, 1, left),
        };
    }

    fn remove(&self, key: &K) {
        self.0.invalidate(key);
    }

    fn entries(&self) -> Option<u64> {
        Some(self.0.metrics().current_cost)
    }

    fn settle(&self) {
        self.0.run_maintenance();
    }
}

/// By `entry`, since its `fetch_with` has one loader for all calls.
impl Loads for Fibre {
    const LOADS_EXPIRE: Result<(), Problem> = Err(Problem::Unsupported(
        "its `entry` neither compares deadlines nor sets one for each entry",
    ));

    #[inline]
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
        *self.0.entry(key).or_insert_with(load, 1)
    }

    fn try_get_with(&self, key: u64, load: impl FnOnce() -> Result<u64, ()>) -> Option<u64> {
        match self.0.entry(key) {
            Entry::Occupied(there) => Some(*there.get()),
            Entry::Vacant(absent) => load().ok().map(|value| *absent.insert(value, 1)),
        }
    }

    #[inline]
    fn add_one(&self, key: u64) {
        if !self.0.compute(&key, |value| *value += 1) {
            self.0.insert(key, 1, 1);
        }
    }

    fn copy(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(key, value)| (key, *value)).collect()
    }
}
