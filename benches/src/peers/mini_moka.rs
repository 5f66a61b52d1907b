//! mini-moka's concurrent cache: no expiry per entry, so one lifetime for all.

use mini_moka::sync::{Cache, ConcurrentCacheExt};

use crate::peer::{Card, Expiring, Hasher, Key, Peer, Plan, Problem, Role, Value};

/// `mini_moka::sync::Cache`.
pub struct MiniMoka<K, V>(Cache<K, V, Hasher>);

impl<K: Key, V: Value> Peer<K, V> for MiniMoka<K, V> {
    const CARD: Card = Card {
        name: "mini-moka",
        role: Role::Cache,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_listener("no removal listener")?;
        let mut builder = Cache::builder();
        if let Some(capacity) = plan.capacity {
            builder = builder.max_capacity(capacity);
        }
        if plan.expiring != Expiring::Never {
            let Some(lifetime) = plan.uniform else {
                return Err(Problem::Unsupported("no expiry per entry"));
            };
            builder = match plan.expiring {
                Expiring::Access => builder.time_to_idle(lifetime),
                _ => builder.time_to_live(lifetime),
            };
        }
        Ok(Self(builder.build_with_hasher(Hasher::default())))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key)
    }

    calls!(insert, invalidate, entry_count);

    fn settle(&self) {
        self.0.sync();
    }
}
