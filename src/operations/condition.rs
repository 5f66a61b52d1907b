//! Decides whether a write may be made. An explicit write revokes the load of its key. A
//! conditional one replaces a certain value only. The commit of a load asks whether that load is
//! still current.

use super::transact::Hold;
use crate::listener::RemovalCause;
use crate::load::state::RevokedBy;
use crate::node::NodePtr;
use crate::time;

/// The answer of a condition about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Pass,
    /// The entry is no longer what the condition has seen: the write starts over.
    Again,
    /// The write ends, and nothing is stored.
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

/// Whether a write may be made, and what else happens in the hold of the lock that makes it.
pub(crate) trait WriteCondition<K, V> {
    /// Whether it wants to know the load of the key.
    const KNOWS_LOADS: bool;

    /// Whether the key is most likely absent; see `Change::expects_absent`.
    #[inline]
    fn expects_absent(&mut self) -> bool {
        false
    }

    /// Called with no lock held, with the node that the key has. False ends the write: nothing is
    /// stored.
    #[inline]
    fn look(&mut self, _found: Option<NodePtr<K, V>>) -> bool {
        true
    }

    /// Under the shard's lock, when the look-up was confirmed and nothing has changed yet. `now` is
    /// the time of the write.
    fn check(
        &mut self,
        found: Option<NodePtr<K, V>>,
        now: u64,
        hold: &mut Hold<'_, '_, K, V>,
    ) -> Check;

    /// In the same hold, when the write has been made.
    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, written: Written);
}

/// The condition of an explicit write, which revokes the load of its key.
pub(crate) struct Explicit(pub(crate) RevokedBy);

impl<K, V> WriteCondition<K, V> for Explicit {
    const KNOWS_LOADS: bool = true;

    #[inline]
    fn check(&mut self, _: Option<NodePtr<K, V>>, _: u64, _: &mut Hold<'_, '_, K, V>) -> Check {
        Check::Pass
    }

    #[inline]
    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, _: Written) {
        hold.revoke(self.0);
    }
}

/// The condition of a write that replaces one certain value.
pub(crate) struct OnlyOver<K, V, M, L> {
    explicit: Explicit,
    /// Whether the value is to be replaced; asked with no lock held.
    matches: M,
    /// Whether a node is in the map and not due.
    lives: L,
    matched: Option<NodePtr<K, V>>,
}

impl<K, V, M, L> OnlyOver<K, V, M, L> {
    pub(crate) fn new(matches: M, lives: L) -> Self {
        Self {
            explicit: Explicit(RevokedBy::Conditional),
            matches,
            lives,
            matched: None,
        }
    }
}

impl<K, V, M, L> WriteCondition<K, V> for OnlyOver<K, V, M, L>
where
    K: Eq,
    M: Fn(&V) -> bool,
    L: Fn(NodePtr<K, V>) -> bool,
{
    const KNOWS_LOADS: bool = true;

    fn look(&mut self, found: Option<NodePtr<K, V>>) -> bool {
        self.matched = found.filter(|&node| (self.lives)(node) && (self.matches)(node.value()));
        self.matched.is_some()
    }

    fn check(
        &mut self,
        found: Option<NodePtr<K, V>>,
        now: u64,
        _: &mut Hold<'_, '_, K, V>,
    ) -> Check {
        // By the time of the write itself: the new value must not replace one that is due at that
        // time.
        let lives = |node: NodePtr<K, V>| !time::is_due(now, node.deadline());
        if found == self.matched && found.is_some_and(lives) {
            Check::Pass
        } else {
            Check::Again
        }
    }

    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, written: Written) {
        self.explicit.stored(hold, written);
    }
}
