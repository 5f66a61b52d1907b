//! Decides whether a write may be made. An explicit write revokes the load of its key. The commit
//! of a load asks whether that load is still current.

use crate::listener::RemovalCause;
use crate::load::{Load, Loads, RevokedBy, SameHashLoads};
use crate::map::Shard;
use crate::node::NodePtr;
use crate::time;
use std::sync::Arc;

/// The answer of a condition about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Pass,
    /// Not yet: the write starts over, after [`WriteCondition::prepare`].
    Again,
    /// The write is given up.
    Refuse,
}

/// The effect of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// For which cause the former value left, if there was one.
    pub(crate) cause: Option<RemovalCause>,
    /// False if the value was too heavy to be let in.
    pub(crate) kept: bool,
    pub(crate) deadline: u64,
    pub(crate) now: u64,
}

impl Written {
    /// Whether the value is in the cache.
    #[inline]
    pub(crate) fn is_stored(&self) -> bool {
        self.kept && !time::is_due(self.now, self.deadline)
    }
}

/// A write's view of what else happens to its key.
pub(crate) trait WriteCondition<K, V> {
    /// Whether the key is known to be absent, so that the attempt need not look it up.
    #[inline]
    fn knows_absent(&self) -> bool {
        false
    }

    /// Called before each attempt, with no lock held, with the node that the key has. False gives
    /// the write up.
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

/// The condition of an explicit write. Dropping it wakes the calls that wait for a revoked load: no
/// lock and no pin may be held.
pub(crate) struct Explicit<K, V> {
    by: RevokedBy,
    /// Nearly all writes find no load. Functions that run if one is found take this by value, so
    /// that it stands in a register.
    found_loads: Option<Box<FoundLoads<K, V>>>,
}

/// The loads that an explicit write has found.
struct FoundLoads<K, V> {
    same_hash: SameHashLoads<K, V>,
    revoked: Option<Arc<Load<K, V>>>,
}

impl<K, V> Explicit<K, V> {
    #[inline]
    pub(crate) fn new(by: RevokedBy) -> Self {
        Self {
            by,
            found_loads: None,
        }
    }

    /// Whether all loads of the hash were compared. Under the shard's lock.
    #[inline]
    pub(crate) fn knows_loads(&mut self, shard: &mut Shard<'_, K, V>, hash: u64) -> bool {
        if shard.loads().is_empty() {
            return true;
        }
        let (found_loads, all) = FoundLoads::classify(self.found_loads.take(), shard.loads(), hash);
        self.found_loads = Some(found_loads);
        all
    }

    /// Compares the keys of loads that were found. With no lock held.
    pub(crate) fn compare(&mut self, same: impl Fn(&K) -> bool) {
        if let Some(found_loads) = &mut self.found_loads {
            found_loads.same_hash.compare(same);
        }
    }

    /// Revokes the load of the key, in the hold that makes the write.
    #[inline]
    pub(crate) fn revoke(&mut self, shard: &mut Shard<'_, K, V>) {
        if let Some(found_loads) = &mut self.found_loads {
            found_loads.revoke(shard, self.by);
        }
    }

    /// Whether a load was revoked. If so, drop the condition only when no pin is held.
    pub(crate) fn has_revoked(&self) -> bool {
        self.found_loads
            .as_ref()
            .is_some_and(|found_loads| found_loads.revoked.is_some())
    }
}

impl<K, V> FoundLoads<K, V> {
    /// See [`Explicit::knows_loads`].
    #[cold]
    #[inline(never)]
    fn classify(
        found_loads: Option<Box<Self>>,
        loads: &Loads<K, V>,
        hash: u64,
    ) -> (Box<Self>, bool) {
        let mut found_loads = found_loads.unwrap_or_else(|| {
            Box::new(Self {
                same_hash: SameHashLoads::new(),
                revoked: None,
            })
        });
        let all = loads.classify(hash, &mut found_loads.same_hash);
        (found_loads, all)
    }

    #[cold]
    #[inline(never)]
    fn revoke(&mut self, shard: &mut Shard<'_, K, V>, by: RevokedBy) {
        // The last attempt compared loads only if the shard has some.
        if shard.loads().is_empty() {
            return;
        }
        if let Some(load) = self.same_hash.mine() {
            shard.loads_mut().revoke(load, by);
            self.revoked = Some(Arc::clone(load));
        }
    }
}

impl<K, V> Drop for FoundLoads<K, V> {
    #[cold]
    fn drop(&mut self) {
        if let Some(load) = self.revoked.take() {
            load.release_waiters();
        }
    }
}

impl<K: Eq, V> WriteCondition<K, V> for Explicit<K, V> {
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
