//! The loads of a shard's keys: what the map keeps for `load`, in the same holds of its locks.

use super::{Map, Shard, ShardCell};
use crate::load::{Bare, By, Load, Loads, Mark, Sealed};
use crate::sync::Ordering;
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
    /// Whether a key of this shard may have a load. No lock.
    #[inline]
    pub(crate) fn may_load(&self) -> bool {
        // Acquire, partner: the release in `note_loads`. A caller that misses a load since it has
        // ended sees what that load has stored.
        self.totals.loads.load(Ordering::Acquire) != 0
    }
}

impl<K, V> Shard<'_, K, V> {
    /// Whether any key of this shard has a load.
    #[inline]
    pub(crate) fn has_loads(&self) -> bool {
        !self.locked.loads.is_empty()
    }

    /// Whether neither an entry nor a load of this shard has this full hash.
    #[inline]
    pub(crate) fn is_free(&mut self, hash: u64) -> bool {
        let writer = self.writer();
        let home = writer.home(hash);
        let found = writer.locate(&home, hash, |node| node.hash() == hash);
        found.is_none() && !self.locked.loads.has(hash)
    }

    /// The list, to look for the load of a call's key.
    // The list alone, so that the shard itself stays in registers.
    #[inline]
    pub(crate) fn loads(&mut self) -> &mut Loads<K, V> {
        &mut self.locked.loads
    }

    /// Lists a load that begins.
    pub(crate) fn list_load(&mut self, load: Arc<Load<K, V>>) {
        self.locked.loads.add(load);
        self.note_loads();
    }

    /// Lists a load that begins bare.
    pub(crate) fn list_bare_load(&mut self, hash: u64, bare: Bare<K>) -> Mark {
        let mark = self.locked.loads.add_bare(hash, bare);
        self.note_loads();
        mark
    }

    /// Whether a load is still bare: then it is current.
    pub(crate) fn is_bare_load(&self, mark: Mark) -> bool {
        self.locked.loads.is_bare(mark)
    }

    /// Takes a bare load out of the list. Its key is to be dropped with no lock held.
    pub(crate) fn unlist_bare_load(&mut self, mark: Mark) -> Option<K> {
        let key = self.locked.loads.remove_bare(mark);
        self.note_loads();
        key
    }

    /// The load that began bare under a mark, for its leader; `None` if it has ended.
    #[cold]
    pub(crate) fn complete_load(&mut self, mark: Mark) -> Option<Arc<Load<K, V>>> {
        self.locked.loads.complete(mark)
    }

    /// A leader has made its own write: the load leaves the list unless it continues.
    pub(crate) fn seal_load(&mut self, load: &Arc<Load<K, V>>) -> Sealed {
        let sealed = load.seal();
        if sealed != Sealed::GoesOn {
            self.unlist_load(load);
        }
        sealed
    }

    /// Takes a load out of the list that is no longer current.
    pub(crate) fn unlist_load(&mut self, load: &Arc<Load<K, V>>) {
        self.locked.loads.remove(load);
        self.note_loads();
    }

    /// Revokes a listed load.
    #[cold]
    pub(crate) fn revoke_load(&mut self, load: &Arc<Load<K, V>>, by: By) {
        self.locked.loads.revoke(load, by);
        self.note_loads();
    }

    /// The run of a load that was revoked has ended.
    #[cold]
    pub(crate) fn forget_revoked_load(&mut self, load: &Arc<Load<K, V>>) {
        self.locked.loads.forget_revoked(load);
        self.note_loads();
    }

    /// Revokes all loads of this shard's keys.
    #[cold]
    pub(crate) fn revoke_loads(&mut self, by: By) -> Vec<Arc<Load<K, V>>> {
        let revoked = self.locked.loads.revoke_all(by);
        self.note_loads();
        revoked
    }

    fn note_loads(&self) {
        let loads = self.locked.loads.len() as u64;
        self.totals.loads.store(loads, Ordering::Release);
    }
}
