//! quick_cache: no expiry at all.

use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle, EntryAction, EntryResult},
};

use crate::peer::{Card, Hasher, Key, Loads, LoadsByFuture, Peer, Plan, Problem, Role, Value};

/// `quick_cache::sync::Cache`.
pub struct QuickCache<K, V>(Inside<K, V>);

type Inside<K, V> = Cache<K, V, UnitWeighter, Hasher, DefaultLifecycle<K, V>>;

/// A quick_cache as both of its peers here use it.
pub(super) fn build<K: Key, V: Value, W: Value>(plan: &Plan<K, V>) -> Inside<K, W> {
    let capacity = plan.bound();
    Cache::with(
        plan.expected,
        capacity,
        UnitWeighter,
        Hasher::default(),
        DefaultLifecycle::default(),
    )
}

impl<K: Key, V: Value> Peer<K, V> for QuickCache<K, V> {
    const CARD: Card = Card {
        name: "quick_cache",
        role: Role::Cache,
    };

    fn build(plan: &Plan<K, V>) -> Result<Self, Problem> {
        plan.without_expiry()?;
        plan.without_listener("no expiry to listen to")?;
        Ok(Self(build(plan)))
    }

    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        self.0.get(key)
    }

    calls!(insert, remove, len);
}

impl Loads for QuickCache<u64, u64> {
    #[inline]
    fn get_with(&self, key: u64, load: impl FnOnce() -> u64) -> u64 {
        let loaded = self.0.get_or_insert_with(&key, || Ok::<u64, ()>(load()));
        loaded.unwrap_or_else(|()| unreachable!("no load fails"))
    }

    fn fails_with(&self, key: u64, load: impl FnOnce()) -> bool {
        let failing = || {
            load();
            Err(())
        };
        self.0.get_or_insert_with(&key, failing).is_err()
    }

    #[inline]
    fn add_one(&self, key: u64) {
        let add = |_: &u64, value: &mut u64| {
            *value += 1;
            EntryAction::Retain(())
        };
        if let EntryResult::Vacant(guard) = self.0.entry(&key, None, add) {
            // Fails only if another thread has inserted meanwhile, and no workload does.
            let _ = guard.insert(1);
        }
    }

    fn copy(&self) -> Vec<(u64, u64)> {
        self.0.iter().collect()
    }
}

impl LoadsByFuture for QuickCache<u64, u64> {
    async fn get_with_future(&self, key: u64, load: impl Future<Output = u64> + Send) -> u64 {
        let load = async { Ok::<u64, ()>(load.await) };
        let loaded = self.0.get_or_insert_async(&key, load).await;
        loaded.unwrap_or_else(|()| unreachable!("no load fails"))
    }
}
