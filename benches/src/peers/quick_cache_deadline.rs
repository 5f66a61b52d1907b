//! quick_cache with expiry by hand: the deadline lies in the value, and a hit reads the clock and
//! compares. Nothing is removed on time and no listener is called. One peer reads the standard
//! library's clock; the other reads quanta's, which costs less.

use std::{ops::Add, time::Duration};

use super::maps::{Quick, quick};
use crate::{
    figure::Problem,
    peer::{Card, Key, Lifetime, Peer, Plan, Value},
};

/// `quick_cache::sync::Cache` with a deadline in each value, by the clock of `M`.
pub struct QuickCacheDeadline<K, V, M>(Quick<K, (V, M)>, Lifetime<K, V>);

/// A moment by a clock.
pub trait Moment: Value + PartialOrd + Add<Duration, Output = Self> {
    /// The peer that goes by this clock.
    const NAME: &'static str;

    fn now() -> Self;
}

macro_rules! moment {
    ($clock:ty, $name:literal) => {
        impl Moment for $clock {
            const NAME: &'static str = $name;

            #[inline]
            fn now() -> Self {
                Self::now()
            }
        }
    };
}
moment!(quanta::Instant, "quick_cache+deadline");
moment!(std::time::Instant, "quick_cache+Instant");

impl<K: Key, V: Value, M: Moment> Peer<K, V> for QuickCacheDeadline<K, V, M> {
    const CARD: Card = Card::cache(M::NAME);

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.by_hand("a read would need a shared cell in each value")?;
        plan.without_listener("what has expired is not removed")?;
        Ok(Self(quick(plan), plan.lifetime))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        let (value, deadline) = self.0.get(key)?;
        if M::now() >= deadline {
            self.0.remove(key);
            return None;
        }
        Some(value)
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        let deadline = M::now() + (self.1)(&key, &value);
        self.0.insert(key, (value, deadline));
    }

    calls!(remove: remove, entries: len);
}
