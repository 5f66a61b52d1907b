//! quick_cache with expiry by hand: the deadline lies in the value, and a hit reads the clock and
//! compares. Nothing is removed on time and no listener is called. By the standard library's clock,
//! which is the one at hand, or by quanta's, which costs less.

use std::{marker::PhantomData, ops::Add, time::Duration};

use ::quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};

use super::quick_cache;
use crate::peer::{Card, Expiring, Hasher, Key, Lifetime, Peer, Plan, Problem, Role, Value};

/// `quick_cache::sync::Cache` with a deadline in each value, by the clock of `M`.
pub struct QuickCacheDeadline<K, V, M> {
    cache: Inner<K, Timed<V, M>>,
    lifetime: Lifetime<K, V>,
    clock: PhantomData<M>,
}

type Inner<K, T> = Cache<K, T, UnitWeighter, Hasher, DefaultLifecycle<K, T>>;

#[derive(Clone)]
struct Timed<V, M> {
    value: V,
    deadline: M,
}

/// A moment by a clock.
pub trait Moment: Value + PartialOrd + Add<Duration, Output = Self> {
    /// The peer that goes by this clock.
    const NAME: &'static str;

    /// The present.
    fn now() -> Self;
}

impl Moment for quanta::Instant {
    const NAME: &'static str = "quick_cache+deadline";

    #[inline]
    fn now() -> Self {
        Self::now()
    }
}

impl Moment for std::time::Instant {
    const NAME: &'static str = "quick_cache+Instant";

    #[inline]
    fn now() -> Self {
        Self::now()
    }
}

impl<K: Key, V: Value, M: Moment> Peer<K, V> for QuickCacheDeadline<K, V, M> {
    const CARD: Card = Card {
        name: M::NAME,
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
        plan.without_listener("what has expired is not removed")?;
        Ok(Self {
            cache: quick_cache::build(plan),
            lifetime: plan.lifetime,
            clock: PhantomData,
        })
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        let timed = self.cache.get(key)?;
        if M::now() >= timed.deadline {
            self.cache.remove(key);
            return None;
        }
        Some(timed.value)
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        let deadline = M::now() + (self.lifetime)(&key, &value);
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
