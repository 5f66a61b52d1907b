//! stretto, a port of Ristretto: striped buffers, one thread that admits and evicts.

use stretto::{
    Cache, CacheBuilder, DefaultCacheCallback, DefaultCoster, DefaultKeyBuilder,
    DefaultUpdateValidator,
};

use crate::{
    figure::Problem,
    peer::{Card, Expiring, Hasher, Key, Lifetime, Peer, Plan, Value},
};

pub struct Stretto<K: Key, V: Value>(Inside<K, V>, Option<Lifetime<K, V>>);

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
    const CARD: Card = Card::cache("stretto");

    // Two results were seen: a round that took two minutes, and a cache over its bound, which fails
    // the round.
    const EVICTS: Result<(), Problem> =
        Err(Problem::Unsupported("its own backlog takes it minutes"));

    // Writes that come faster than its one thread takes them, and removals that it puts off.
    const DROPS_WRITES: bool = true;

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_listener("the listener is not given the key")?;
        let lifetime = match plan.expiring {
            Expiring::Never => None,
            Expiring::Access => return Err(Problem::Unsupported("no expiry that reads extend")),
            Expiring::Create | Expiring::Write => Some(plan.lifetime),
        };
        let builder = CacheBuilder::new(plan.expected * 10, plan.bound() as i64);
        let cache = builder.set_hasher(Hasher::default()).finalize();
        let cache = cache.map_err(|error| Problem::Wrong(error.to_string()))?;
        Ok(Self(cache, lifetime))
    }

    get_in_place!(|cache, key, read| cache.get(key).map(|entry| read(entry.value())));

    #[inline]
    fn insert(&self, key: K, value: V) {
        match self.1.map(|lifetime| lifetime(&key, &value)) {
            None => self.0.insert(key, value, 1),
            Some(left) => self.0.insert_with_ttl(key, value, 1, left),
        };
    }

    calls!(remove: remove, entries: len);

    fn settle(&self) {
        let waited = self.0.wait();
        waited.expect("the cache is open and this is not a callback");
    }
}
