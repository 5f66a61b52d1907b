//! quick_cache: no expiry at all.

use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};

use crate::peer::{Card, Hasher, Key, Peer, Plan, Problem, Role, Value};

/// `quick_cache::sync::Cache`.
pub struct QuickCache<K, V>(Inside<K, V>);

type Inside<K, V> = Cache<K, V, UnitWeighter, Hasher, DefaultLifecycle<K, V>>;

/// A quick_cache as both of its peers here use it.
pub(super) fn build<K: Key, V: Value, W: Value>(plan: &Plan<K, V>) -> Inside<K, W> {
    let capacity = plan.bound();
    Cache::with(
        plan.expected,
        capacity,
        UnitWeighter,
        Hasher::default(),
        DefaultLifecycle::default(),
    )
}

impl<K: Key, V: Value> Peer<K, V> for QuickCache<K, V> {
    const CARD: Card = Card {
        name: "quick_cache",
        role: Role::Cache,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_expiry()?;
        plan.without_listener("no expiry to listen to")?;
        Ok(Self(build(plan)))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key)
    }

    calls!(insert, remove, len);
}
