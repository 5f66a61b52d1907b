//! TinyUFO, pingora's cache: lock-free, S3-FIFO with a TinyLFU sketch; no expiry.

use crate::peer::{Card, Key, Peer, Plan, Problem, Role, Value};

/// `tinyufo::TinyUfo`.
pub struct TinyUfo<K, V>(tinyufo::TinyUfo<K, V>);

impl<K: Key, V: Value> Peer<K, V> for TinyUfo<K, V> {
    const CARD: Card = Card {
        name: "TinyUFO",
        role: Role::Cache,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_expiry()?;
        plan.without_listener("no removal listener")?;
        let capacity = plan.bound() as usize;
        Ok(Self(tinyufo::TinyUfo::new(capacity, plan.expected)))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key)
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.put(key, value, 1);
    }

    #[inline]
    fn remove(&self, key: &K) {
        self.0.remove(key);
    }

    fn entries(&self) -> Option<u64> {
        None
    }
}
