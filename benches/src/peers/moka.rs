//! moka's concurrent cache with its `Expiry`.

use moka::{notification::RemovalCause, sync::Cache};

use super::policies::{OnAccess, OnCreate, OnWrite};
use crate::{
    figure::Problem,
    peer::{Card, Expiring, Hasher, Key, Loads, LoadsByFuture, Peer, Plan, Value},
};

pub struct Moka<K = u64, V = u64>(Cache<K, V, Hasher>);

impl<K: Key, V: Value> Peer<K, V> for Moka<K, V> {
    const CARD: Card = Card::cache("moka");

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        let (mut builder, lifetime) = (Cache::builder(), plan.lifetime);
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        builder = match plan.expiring {
            Expiring::Never => builder,
            Expiring::Create => builder.expire_after(OnCreate(lifetime)),
            Expiring::Write => builder.expire_after(OnWrite(lifetime)),
            Expiring::Access => builder.expire_after(OnAccess(lifetime)),
        };
        if let Some(listener) = plan.listener.clone() {
            builder = builder.eviction_listener(move |key, value, cause| {
                listener(&key, &value, cause == RemovalCause::Expired);
            });
        }
        Ok(Self(builder.build_with_hasher(Hasher::default())))
    }

    calls!(get: get, insert: insert, remove: invalidate);
    calls!(entries: entry_count, settle: run_pending_tasks);
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
