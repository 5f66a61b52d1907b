//! What stands between a write and the map: explicit writes revoke the load of their key, the
//! commit of a load asks whether that load is still current.

use crate::listener::RemovalCause;
use crate::load::{By, Known, Load};
use crate::map::Shard;
use crate::node::NodePtr;
use std::sync::Arc;

/// Whether a write may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Pass,
    /// Not yet: the write starts over, after [`Gate::prepare`].
    Again,
    /// The write is given up.
    Refuse,
}

/// What a write did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// For which cause the former value left, if there was one.
    pub(crate) cause: Option<RemovalCause>,
    /// False if the value was too heavy to be let in.
    pub(crate) kept: bool,
    pub(crate) deadline: u64,
    pub(crate) now: u64,
}

/// A write's view of what else goes on with its key.
pub(crate) trait Gate<K, V> {
    /// Before each attempt, with no lock held: the node that the key has. False gives the write up.
    #[inline]
    fn look(&mut self, _found: Option<NodePtr<K, V>>) -> bool {
        true
    }

    /// Under the shard's lock, when the look-up was confirmed and nothing has changed yet. `now` is
    /// the time of the write.
    fn check(
        &mut self,
        shard: &mut Shard<'_, K, V>,
        hash: u64,
        found: Option<NodePtr<K, V>>,
        now: u64,
    ) -> Check;

    /// In the same hold, when the write has been made.
    fn seal(&mut self, shard: &mut Shard<'_, K, V>, written: Written);

    /// With no lock held, before another attempt.
    fn prepare(&mut self, key: &K);
}

/// The gate of an explicit write.
pub(crate) struct Explicit<K, V> {
    by: By,
    /// The loads of the hash. Behind a box, since nearly all writes meet none.
    known: Option<Box<Known<K, V>>>,
    revoked: Option<Arc<Load<K, V>>>,
}

impl<K, V> Explicit<K, V> {
    #[inline]
    pub(crate) fn new(by: By) -> Self {
        Self {
            by,
            known: None,
            revoked: None,
        }
    }

    /// Whether all loads of the hash were compared. Under the shard's lock.
    #[inline]
    pub(crate) fn knows_loads(&mut self, shard: &Shard<'_, K, V>, hash: u64) -> bool {
        !shard.has_loads() || self.sort_out(shard, hash)
    }

    #[cold]
    #[inline(never)]
    fn sort_out(&mut self, shard: &Shard<'_, K, V>, hash: u64) -> bool {
        let known = self.known.get_or_insert_with(|| Box::new(Known::new()));
        shard.sort_out_loads(hash, known)
    }

    /// Compares the keys of loads that were met. With no lock held.
    pub(crate) fn compare(&mut self, same: impl Fn(&K) -> bool) {
        if let Some(known) = &mut self.known {
            known.compare(same);
        }
    }

    /// Revokes the load of the key, in the hold that makes the write.
    #[inline]
    pub(crate) fn revoke(&mut self, shard: &mut Shard<'_, K, V>) {
        if self.known.is_some() {
            self.revoke_known(shard);
        }
    }

    #[cold]
    #[inline(never)]
    fn revoke_known(&mut self, shard: &mut Shard<'_, K, V>) {
        // Whatever an earlier attempt knew, the last one looked only if there are loads.
        if !shard.has_loads() {
            return;
        }
        if let Some(load) = self.known.as_ref().and_then(|known| known.mine()) {
            shard.revoke_load(load, self.by);
            self.revoked = Some(Arc::clone(load));
        }
    }

    /// Ends a write: wakes calls that wait for their turn, if it revoked a load. No lock and no pin
    /// may be held.
    // Nearly all writes have met no load: then there is nothing to drop, and no call.
    #[inline(always)]
    pub(crate) fn finish(self) {
        if self.known.is_some() {
            drop(self);
        } else {
            std::mem::forget(self);
        }
    }

    /// Whether a load was revoked: then the gate is to be dropped with no pin held.
    pub(crate) fn has_revoked(&self) -> bool {
        self.revoked.is_some()
    }
}

impl<K, V> Drop for Explicit<K, V> {
    /// Wakes calls that wait for their turn. No lock and no pin may be held.
    #[inline]
    fn drop(&mut self) {
        if let Some(load) = self.revoked.take() {
            load.scatter();
        }
    }
}

impl<K: Eq, V> Gate<K, V> for Explicit<K, V> {
    #[inline]
    fn check(
        &mut self,
        shard: &mut Shard<'_, K, V>,
        hash: u64,
        _: Option<NodePtr<K, V>>,
        _: u64,
    ) -> Check {
        if self.knows_loads(shard, hash) {
            Check::Pass
        } else {
            Check::Again
        }
    }

    #[inline]
    fn seal(&mut self, shard: &mut Shard<'_, K, V>, _: Written) {
        self.revoke(shard);
    }

    fn prepare(&mut self, key: &K) {
        self.compare(|other| other == key);
    }
}
