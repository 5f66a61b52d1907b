//! dashmap: a bare map of locked shards.

use crate::peer::{Card, Hasher, Key, Peer, Plan, Problem, Role, Value};

/// `dashmap::DashMap`.
pub struct DashMap<K, V>(dashmap::DashMap<K, V, Hasher>);

/// A bare map can stand in only where nothing expires and nothing has to make room.
pub(super) fn fits<K, V>(plan: &Plan<K, V>) -> Result<(), Problem> {
    plan.without_expiry()?;
    plan.without_listener("no expiry")?;
    if plan
        .capacity
        .is_some_and(|capacity| capacity <= plan.expected as u64)
    {
        return Err(Problem::Unsupported("no bound"));
    }
    Ok(())
}

impl<K: Key, V: Value> Peer<K, V> for DashMap<K, V> {
    const CARD: Card = Card {
        name: "dashmap",
        role: Role::Floor,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        fits(plan)?;
        Ok(Self(dashmap::DashMap::with_hasher(Hasher::default())))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).map(|entry| entry.value().clone())
    }

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get(key).map(|entry| read(entry.value()))
    }

    calls!(insert, remove, len);
}
