//! moka's concurrent cache for threads, with its `Expiry`.

use std::time::{Duration, Instant};

use moka::{Expiry, notification::RemovalCause, sync::Cache};

use crate::peer::{Card, Expiring, Hasher, Key, Left, Lifetime, Peer, Plan, Problem, Role, Value};

/// `moka::sync::Cache`.
pub struct Moka<K, V>(Cache<K, V, Hasher>);

struct Policy<K, V> {
    expiring: Expiring,
    lifetime: Lifetime<K, V>,
}

impl<K: Key, V: Value> Expiry<K, V> for Policy<K, V> {
    fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Option<Duration> {
        Some((self.lifetime)(key, value))
    }

    fn expire_after_update(
        &self,
        key: &K,
        value: &V,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        if self.expiring == Expiring::Create {
            left
        } else {
            Some((self.lifetime)(key, value))
        }
    }

    fn expire_after_read(
        &self,
        key: &K,
        value: &V,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        if self.expiring == Expiring::Access {
            Some((self.lifetime)(key, value))
        } else {
            left
        }
    }
}

impl<K: Key, V: Value> Peer<K, V> for Moka<K, V> {
    const CARD: Card = Card {
        name: "moka",
        role: Role::Cache,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        let mut builder = Cache::builder();
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        if plan.expiring != Expiring::Never {
            builder = builder.expire_after(Policy {
                expiring: plan.expiring,
                lifetime: plan.lifetime,
            });
        }
        if let Some(listener) = plan.listener.clone() {
            builder = builder.eviction_listener(move |key, value, cause| {
                listener(&key, &value, Left::of(cause == RemovalCause::Expired));
            });
        }
        Ok(Self(builder.build_with_hasher(Hasher::default())))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key)
    }

    calls!(insert, invalidate, entry_count);

    fn settle(&self) {
        self.0.run_pending_tasks();
    }
}
