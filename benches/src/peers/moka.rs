//! moka's concurrent cache for threads, with its `Expiry`.

use std::time::{Duration, Instant};

use moka::{Expiry, notification::RemovalCause, sync::Cache};

use crate::peer::{
    Card, Expiring, Hasher, Key, Left, Lifetime, Loads, LoadsByFuture, Peer, Plan, Problem, Role,
    Value,
};

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

impl Loads for Moka<u64, u64> {
    #[inline]
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
        self.0.get_with(key, load)
    }

    fn fails_with(&self, key: u64, load: impl FnOnce()) -> bool {
        let failing = || {
            load();
            Err::<u64, ()>(())
        };
        self.0.try_get_with(key, failing).is_err()
    }

    #[inline]
    fn add_one(&self, key: u64) {
        let add = |old: Option<moka::Entry<u64, u64>>| old.map_or(1, |old| old.into_value() + 1);
        self.0.entry(key).and_upsert_with(add);
    }

    fn copy(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(key, value)| (*key, value)).collect()
    }
}

/// moka's cache for tasks, which is another type.
impl LoadsByFuture for moka::future::Cache<u64, u64> {
    async fn get_with_future(&self, key: u64, load: impl Future<Output = u64> + Send) -> u64 {
        self.get_with(key, load).await
    }
}
