//! The loads of a shard's keys: what the map keeps for `load`, in the same holds of its locks.

use super::{Map, Shard, ShardCell};
use crate::load::state::Load;
use crate::load::table::Loads;
use crate::reclaim::Pin;
use crate::sync::{Ordering, fence};
use std::sync::Arc;

impl<K, V> Map<K, V> {
    /// The loads of one shard's keys for which calls may wait.
    pub(crate) fn loads_of(&self, shard: usize) -> Vec<Arc<Load<K, V>>> {
        if self.shards[shard].totals.loads.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let shard = self.lock_shard(shard);
        shard.locked.loads.awaited().cloned().collect()
    }
}

impl<K, V> ShardCell<K, V> {
    /// Whether a key of this shard may have a load. No lock. The caller holds a pin that it took
    /// for this call (map 3), and asks before it looks the key up: in the other order, a load could
    /// store its value after the look-up and end before this question.
    #[inline]
    pub(crate) fn may_load(&self, _pin: &Pin) -> bool {
        // Acquire, partner: the release in `change_loads`. A caller that finds no load,
        // because the load has ended, sees what that load has stored. If it finds none because the
        // load has yet to be registered, map 3 says what the load reads.
        self.totals.loads.load(Ordering::Acquire) != 0
    }
}

impl<K, V> Shard<'_, K, V> {
    /// Lists a load. Its leader's code may run when the lock was released (map 3).
    #[inline]
    pub(crate) fn list_load(&mut self, load: Arc<Load<K, V>>) {
        self.change_loads(|loads| loads.add(load));
        // SeqCst, partner: the fence of the pin of a call that asks `may_load`.
        fence(Ordering::SeqCst);
    }

    /// The loads of this shard's keys.
    #[inline]
    pub(crate) fn loads(&self) -> &Loads<K, V> {
        &self.locked.loads
    }

    /// Changes the loads of this shard's keys, and publishes their number for
    /// [`ShardCell::may_load`].
    #[inline]
    pub(crate) fn change_loads<R>(&mut self, change: impl FnOnce(&mut Loads<K, V>) -> R) -> R {
        let loads = &mut self.locked.loads;
        let done = change(loads);
        // Release, partner: the acquire in `may_load`.
        self.totals
            .loads
            .store(loads.len() as u64, Ordering::Release);
        done
    }
}
