//! papaya: a bare map without locks.

use super::dashmap::fits;
use crate::peer::{Card, Hasher, Key, Peer, Plan, Problem, Role, Value};

/// `papaya::HashMap`, pinned for each operation.
pub struct Papaya<K, V>(papaya::HashMap<K, V, Hasher>);

impl<K: Key, V: Value> Peer<K, V> for Papaya<K, V> {
    const CARD: Card = Card {
        name: "papaya",
        role: Role::Floor,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        fits(plan)?;
        Ok(Self(papaya::HashMap::with_hasher(Hasher::default())))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.pin().get(key).cloned()
    }

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.pin().get(key).map(read)
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.pin().insert(key, value);
    }

    #[inline]
    fn remove(&self, key: &K) {
        self.0.pin().remove(key);
    }

    fn entries(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }
}
