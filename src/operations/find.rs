//! The live entry of a key: what one look at the map and one reading of the clock tell.

use crate::map::Look;
use crate::node::{NodePtr, NodeState};
use crate::reclaim::Pin;
use crate::shared::Shared;
use crate::time::{self, NEVER};
use equivalent::Equivalent;

/// An entry that a look-up found. It is live, except where `find` returns it as an error.
#[derive(Debug)]
pub(crate) struct Hit<K, V> {
    pub(crate) node: NodePtr<K, V>,
    /// The deadline by which it was judged.
    pub(crate) deadline: u64,
    /// The reading of the clock at which it was judged; 0 where none was needed.
    pub(crate) now: u64,
}

impl<K, V> Hit<K, V> {
    /// The node as a hit; as an error, if it is due by this deadline. `read` gives the time, if it
    /// is needed: an entry without a deadline needs it only if the read may give it one.
    #[inline(always)]
    pub(super) fn judge(
        node: NodePtr<K, V>,
        deadline: u64,
        may_extend: bool,
        read: impl FnOnce() -> u64,
    ) -> Result<Self, Self> {
        let hit = |now| Self {
            node,
            deadline,
            now,
        };
        if deadline == NEVER {
            return Ok(hit(if may_extend { read() } else { 0 }));
        }
        let now = read();
        if time::is_due(now, deadline) {
            Err(hit(now))
        } else {
            Ok(hit(now))
        }
    }
}

/// A look-up that found no live entry. `due`: the time, if it found an entry that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub(super) due: Option<u64>,
}

/// The result of one look at the key's group.
pub(super) enum Glance<K, V> {
    Hit(Hit<K, V>),
    /// The key is absent.
    Absent,
    /// The key's entry, which has a deadline.
    Timed(NodePtr<K, V>),
    /// One look does not decide.
    Retry,
}

impl<K, V> Shared<K, V> {
    /// One look at the key's group. A hit of a cache whose reads are not
    /// [fast](Self::has_detour) only says that the entry is live.
    #[inline(always)]
    pub(super) fn glance<Q>(&self, hash: u64, key: &Q, pin: &Pin) -> Glance<K, V>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let map = &self.map;
        let node = match map.look(hash, pin, |node| key.equivalent(node.key())) {
            Look::Found(node) => node,
            Look::Absent => return Glance::Absent,
            Look::Retry => return Glance::Retry,
        };
        let deadline = node.deadline();
        if deadline == NEVER {
            Glance::Hit(Hit {
                node,
                deadline,
                now: 0,
            })
        } else {
            Glance::Timed(node)
        }
    }

    /// The live entry of a key. If there is none: `Err(None)` if the key is absent, `Err(Some)`
    /// with the due entry, for [`claim_due`](Self::claim_due).
    // Inlined into each caller. Rare cases continue in tail calls, so the result stays in
    // registers.
    #[inline(always)]
    pub(super) fn find<Q>(
        &self,
        hash: u64,
        key: &Q,
        pin: &Pin,
    ) -> Result<Hit<K, V>, Option<Hit<K, V>>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let map = &self.map;
        let Some(node) = map.find(hash, pin, |node| key.equivalent(node.key())) else {
            return Err(None);
        };
        self.judge(node).map_err(Some)
    }

    /// The second half of [`find`](Self::find): a miss, unless the due entry was replaced
    /// meanwhile.
    #[cold]
    #[inline(never)]
    pub(super) fn claim_due<Q>(
        &self,
        hash: u64,
        key: &Q,
        due: Option<Hit<K, V>>,
        pin: &Pin,
    ) -> Result<Hit<K, V>, Miss>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let mut met = due;
        while let Some(due) = met {
            if self.is_dead(&due, pin) {
                return Err(Miss { due: Some(due.now) });
            }
            match self.find(hash, key, pin) {
                Ok(hit) => return Ok(hit),
                Err(again) => met = again,
            }
        }
        Err(Miss { due: None })
    }

    /// The live entry of a key.
    pub(crate) fn find_live<Q>(&self, hash: u64, key: &Q, pin: &Pin) -> Result<Hit<K, V>, Miss>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.find(hash, key, pin)
            .or_else(|due| self.claim_due(hash, key, due, pin))
    }

    /// The live entry of a node that was in the map a moment ago, or what its key has instead.
    pub(crate) fn find_again(&self, node: NodePtr<K, V>, pin: &Pin) -> Option<Hit<K, V>>
    where
        K: Eq,
    {
        // In this order: first the deadline says that the node is live, then its state says that it
        // is still in the map.
        match self.judge(node) {
            Ok(hit) if node.state() == NodeState::Live => Some(hit),
            _ => self.find_live(node.hash(), node.key(), pin).ok(),
        }
    }

    /// The node as a hit; as an error, if it is due.
    ///
    /// The clock is read after the deadline: so the entry was live at some moment of the call, and
    /// a read with an old reading does not overwrite a later extension by another thread.
    #[inline(always)]
    pub(super) fn judge(&self, node: NodePtr<K, V>) -> Result<Hit<K, V>, Hit<K, V>> {
        Hit::judge(node, node.deadline(), self.reads_extend, || {
            self.clock.now()
        })
    }

    /// Whether an entry that was judged due is still the key's current entry, so that the key is
    /// absent. If it was replaced, or a reader with an earlier clock extended it, the look-up has
    /// to start over.
    fn is_dead(&self, due: &Hit<K, V>, pin: &Pin) -> bool {
        let &Hit {
            node,
            deadline,
            now,
        } = due;
        // This is final: either the claim succeeds, and no extension can follow, or an extension
        // came first, and the claim fails.
        if !node.claim(deadline, now) {
            return false;
        }
        let map = &self.map;
        if !self.reads_extend {
            return map.holds(node, pin);
        }
        // The deadline is claimed, by this thread or another. So no writer replaces the node and no
        // reader extends it: the key is absent. If the deadline is frozen instead, a writer is
        // replacing the node: the look-up has to start over until the new node is in place.
        !node.is_frozen(now)
            || (node.state() == NodeState::Live && {
                let hash = node.hash();
                map.lock(hash).find_node(hash, node).is_some()
            })
    }

    /// Whether the node is in the map and not due, just now.
    pub(crate) fn is_live(&self, node: NodePtr<K, V>) -> bool {
        let deadline = node.deadline();
        node.state() == NodeState::Live
            && (deadline == NEVER || !time::is_due(self.clock.now(), deadline))
    }
}
