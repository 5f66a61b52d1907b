//! moka's concurrent cache with its `Expiry`, and mini-moka's, which knows one lifetime for all.

use std::time::{Duration, Instant};

use mini_moka::sync::ConcurrentCacheExt;
use moka::{Expiry, notification::RemovalCause, sync::Cache};

use crate::{
    figure::Problem,
    peer::{Card, Expiring, Hasher, Key, Lifetime, Loads, LoadsByFuture, Peer, Plan, Value},
};

/// `moka::sync::Cache`.
pub struct Moka<K = u64, V = u64>(Cache<K, V, Hasher>);

struct Policy<K, V> {
    expiring: Expiring,
    lifetime: Lifetime<K, V>,
}

type Life = Option<Duration>;

impl<K: Key, V: Value> Expiry<K, V> for Policy<K, V> {
    fn expire_after_create(&self, key: &K, value: &V, _: Instant) -> Life {
        Some((self.lifetime)(key, value))
    }

    fn expire_after_update(&self, key: &K, value: &V, _: Instant, left: Life) -> Life {
        match self.expiring {
            Expiring::Create => left,
            _ => Some((self.lifetime)(key, value)),
        }
    }

    fn expire_after_read(&self, key: &K, value: &V, _: Instant, left: Life, _: Instant) -> Life {
        match self.expiring {
            Expiring::Access => Some((self.lifetime)(key, value)),
            _ => left,
        }
    }
}

impl<K: Key, V: Value> Peer<K, V> for Moka<K, V> {
    const CARD: Card = Card::cache("moka");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        let (expiring, lifetime) = (plan.expiring, plan.lifetime);
        let mut builder = Cache::builder();
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        if expiring != Expiring::Never {
            builder = builder.expire_after(Policy { expiring, lifetime });
        }
        if let Some(listener) = plan.listener.clone() {
            builder = builder.eviction_listener(move |key, value, cause| {
                listener(&key, &value, cause == RemovalCause::Expired);
            });
        }
        Ok(Self(builder.build_with_hasher(Hasher::default())))
    }

    calls!(insert, invalidate, get: get, len: entry_count, settle: run_pending_tasks);
}

impl Loads for Moka {
    loads_as_moka!(moka::Entry<u64, u64>, |(key, value)| (*key, value));
}

/// moka's cache for tasks, which is another type.
impl LoadsByFuture for moka::future::Cache<u64, u64> {
    async fn get_with_future(&self, key: u64, load: impl Future<Output = u64> + Send) -> u64 {
        self.get_with(key, load).await
    }
}

/// `mini_moka::sync::Cache`.
pub struct MiniMoka<K, V>(mini_moka::sync::Cache<K, V, Hasher>);

impl<K: Key, V: Value> Peer<K, V> for MiniMoka<K, V> {
    const CARD: Card = Card::cache("mini-moka");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_listener("no removal listener")?;
        let mut builder = mini_moka::sync::Cache::builder();
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        let lifetime = plan
            .uniform
            .ok_or(Problem::Unsupported("no expiry per entry"));
        builder = match plan.expiring {
            Expiring::Never => builder,
            Expiring::Access => builder.time_to_idle(lifetime?),
            Expiring::Create | Expiring::Write => builder.time_to_live(lifetime?),
        };
        Ok(Self(builder.build_with_hasher(Hasher::default())))
    }

    calls!(insert, invalidate, get: get, len: entry_count, settle: sync);
}
