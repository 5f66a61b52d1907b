//! stretto, a port of Ristretto: striped buffers, one thread that admits and evicts.

use stretto::{
    Cache, CacheBuilder, DefaultCacheCallback, DefaultCoster, DefaultKeyBuilder,
    DefaultUpdateValidator,
};

use crate::peer::{Card, Expiring, Hasher, Key, Lifetime, Peer, Plan, Problem, Role, Value};

/// `stretto::Cache`.
pub struct Stretto<K: Key, V: Value> {
    cache: Inside<K, V>,
    lifetime: Option<Lifetime<K, V>>,
}

type Inside<K, V> = Cache<
    K,
    V,
    DefaultKeyBuilder<K>,
    DefaultCoster<V>,
    DefaultUpdateValidator<V>,
    DefaultCacheCallback<V>,
    Hasher,
>;

impl<K: Key, V: Value> Peer<K, V> for Stretto<K, V> {
    const CARD: Card = Card {
        name: "stretto",
        role: Role::Cache,
    };

    // Seen from two minutes for one round to over its bound, which fails it.
    const SITS_OUT_EVICTION: Option<&'static str> = Some("its own backlog takes it minutes");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_listener("the listener is not given the key")?;
        let lifetime = match plan.expiring {
            Expiring::Never => None,
            Expiring::Access => return Err(Problem::Unsupported("no expiry that reads extend")),
            Expiring::Create | Expiring::Write => Some(plan.lifetime),
        };
        let capacity = plan.bound() as i64;
        let cache = CacheBuilder::new(plan.expected * 10, capacity)
            .set_hasher(Hasher::default())
            .finalize()
            .map_err(|error| Problem::Wrong(error.to_string()))?;
        Ok(Self { cache, lifetime })
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.cache.get(key).map(|entry| entry.value().clone())
    }

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.cache.get(key).map(|entry| read(entry.value()))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        match self.lifetime {
            None => self.cache.insert(key, value, 1),
            Some(lifetime) => {
                let left = lifetime(&key, &value);
                self.cache.insert_with_ttl(key, value, 1, left)
            }
        };
    }

    #[inline]
    fn remove(&self, key: &K) {
        self.cache.remove(key);
    }

    fn settle(&self) {
        self.cache
            .wait()
            .expect("the cache is open and this is not a callback");
    }

    fn entries(&self) -> Option<u64> {
        Some(self.cache.len() as u64)
    }
}
