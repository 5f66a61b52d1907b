//! wheelhouse with its default settings (exact TSC clock, background scheduler), with look-ups by a coarse time, with many look-ups by one
//! call, and with an idle limit in place of a policy.

use std::time::Duration;

use wheelhouse::{Cache, CacheBuilder, RemovalCause, expiry};

use crate::peer::{Card, Expiring, Key, Left, Peer, Plan, Problem, Role, Value};

/// The cache that this package is about.
pub struct Wheelhouse<K, V>(Cache<K, V>);

impl<K: Key, V: Value> Wheelhouse<K, V> {
    /// Builds what `plan` asks for, with settings that a plan does not know.
    pub fn with(
        plan: &Plan<K, V>,
        set: impl FnOnce(CacheBuilder<K, V>) -> CacheBuilder<K, V>,
    ) -> Self {
        let mut builder = Cache::<K, V>::builder();
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        let lifetime = plan.lifetime;
        let lives = move |key: &K, value: &V| Some(lifetime(key, value));
        builder = match plan.expiring {
            Expiring::Never => builder,
            Expiring::Create => builder.expire_after(expiry::creating(lives)),
            Expiring::Write => builder.expire_after(expiry::writing(lives)),
            Expiring::Access => builder.expire_after(expiry::accessing(lives)),
        };
        if let Some(listener) = plan.listener.clone() {
            builder = builder.removal_listener(move |key: &K, value: &V, cause| {
                listener(key, value, Left::of(cause == RemovalCause::Expired));
            });
        }
        Self(set(builder).build())
    }
}

impl<K: Key, V: Value> Peer<K, V> for Wheelhouse<K, V> {
    const CARD: Card = Card {
        name: "wheelhouse",
        role: Role::Subject,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Ok(Self::with(plan, |builder| builder))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key)
    }

    #[inline]
    fn look<R>(&self, key: &K, read: impl FnOnce(&V) -> R) -> Option<R> {
        self.0.get_ref(key).map(|entry| read(&entry))
    }

    #[inline]
    fn insert(&self, key: K, value: V) {
        self.0.insert(key, value);
    }

    #[inline]
    fn remove(&self, key: &K) {
        self.0.invalidate(key);
    }

    fn settle(&self) {
        self.0.run_pending_tasks();
    }

    fn entries(&self) -> Option<u64> {
        Some(self.0.entry_count())
    }
}

/// The calls of a peer that is wheelhouse, built otherwise.
macro_rules! as_wheelhouse {
    () => {
        #[inline]
        fn get(&self, key: &K) -> Option<V> {
            self.0.get(key)
        }

        #[inline]
        fn insert(&self, key: K, value: V) {
            self.0.insert(key, value);
        }

        #[inline]
        fn remove(&self, key: &K) {
            self.0.remove(key);
        }

        fn settle(&self) {
            self.0.settle();
        }

        fn entries(&self) -> Option<u64> {
            self.0.entries()
        }
    };
}

/// wheelhouse whose look-ups go by a time that a thread stores every five milliseconds.
pub struct CoarseReads<K, V>(Wheelhouse<K, V>);

impl<K: Key, V: Value> Peer<K, V> for CoarseReads<K, V> {
    const CARD: Card = Card {
        name: "wheelhouse, coarse reads",
        role: Role::Subject,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        let staleness = Duration::from_millis(10);
        let coarse = Wheelhouse::with(plan, |builder| builder.coarse_reads(staleness));
        Ok(Self(coarse))
    }

    as_wheelhouse!();
}

/// wheelhouse as it is by default, asked for sixteen keys at once where many are looked up.
pub struct Batches<K, V>(Wheelhouse<K, V>);

/// As many as `get_many` looks up together.
const BATCH: usize = 16;

impl<K: Key, V: Value> Peer<K, V> for Batches<K, V> {
    const CARD: Card = Card {
        name: "wheelhouse, 16 at once",
        role: Role::Subject,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        Wheelhouse::build(plan).map(Self)
    }

    #[inline]
    fn count_right(&self, keys: &[K], right: impl Fn(&K, &V) -> bool) -> u64 {
        let mut count = 0;
        for keys in keys.chunks(BATCH) {
            let values = self.0.0.get_many(keys);
            for (key, value) in keys.iter().zip(values) {
                count += u64::from(value.is_some_and(|value| right(key, &value)));
            }
        }
        count
    }

    as_wheelhouse!();
}

/// wheelhouse without a policy: one idle limit for all entries, which every read extends.
pub struct IdleLimit<K, V>(Wheelhouse<K, V>);

impl<K: Key, V: Value> Peer<K, V> for IdleLimit<K, V> {
    const CARD: Card = Card {
        name: "wheelhouse, idle limit",
        role: Role::Subject,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        let Some(idle) = plan.uniform.filter(|_| plan.expiring == Expiring::Access) else {
            return Err(Problem::Unsupported("not the same work"));
        };
        let plan = Plan {
            expiring: Expiring::Never,
            ..plan.clone()
        };
        Ok(Self(Wheelhouse::with(&plan, |builder| {
            builder.time_to_idle(idle)
        })))
    }

    as_wheelhouse!();
}
