//! quick_cache with expiry by hand: the deadline lies in the value, a hit reads the clock and compares. What one writes when the
//! fastest cache at hand has no expiry.

use ::quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use quanta::Instant;

use super::{Hasher, quick_cache};
use crate::peer::{Card, Expiring, Key, Lifetime, Peer, Plan, Problem, Role, Value};

/// `quick_cache::sync::Cache` with a deadline in each value.
pub struct QuickCacheDeadline<K, V> {
    cache: Cache<K, Timed<V>, UnitWeighter, Hasher, DefaultLifecycle<K, Timed<V>>>,
    lifetime: Lifetime<K, V>,
}

#[derive(Clone)]
struct Timed<V> {
    value: V,
    deadline: Instant,
}

impl<K: Key, V: Value> Peer<K, V> for QuickCacheDeadline<K, V> {
    const CARD: Card = Card {
        name: "quick_cache+deadline",
        role: Role::Cache,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        match plan.expiring {
            Expiring::Never => {
                return Err(Problem::Unsupported("without expiry it is quick_cache"));
            }
            Expiring::Access => {
                return Err(Problem::Unsupported(
                    "a read would need a shared cell in each value",
                ));
            }
            Expiring::Create | Expiring::Write => {}
        }
        plan.without_listener("nobody looks for what has expired")?;
        Ok(Self {
            cache: quick_cache::build(plan),
            lifetime: plan.lifetime,
        })
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        let timed = self.cache.get(key)?;
        if Instant::now() >= timed.deadline {
            self.cache.remove(key);
            return None;
        }
        Some(timed.value)
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        let deadline = Instant::now() + (self.lifetime)(&key, &value);
        self.cache.insert(key, Timed { value, deadline });
    }

    #[inline]
    fn remove(&self, key: &K) {
        self.cache.remove(key);
    }

    fn entries(&self) -> Option<u64> {
        Some(self.cache.len() as u64)
    }
}
