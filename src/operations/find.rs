//! The live entry of a key: what one look at the map and one reading of the clock tell.

use crate::node::{NodePtr, NodeState};
use crate::reclaim::Pin;
use crate::shared::Shared;
use crate::time::{self, NEVER};
use equivalent::Equivalent;

/// An entry that a look-up found. It is live, except where a function returns it as an error.
#[derive(Debug)]
pub(crate) struct Hit<K, V> {
    pub(crate) node: NodePtr<K, V>,
    /// The deadline by which it was judged.
    pub(crate) deadline: u64,
    /// The moment at which it was judged, see [`Clock::now_to_judge`]; 0 where none was needed.
    ///
    /// [`Clock::now_to_judge`]: crate::time::Clock::now_to_judge
    pub(crate) now: u64,
}

impl<K, V> Hit<K, V> {
    /// The node as a hit; as an error, if it is due.
    #[inline]
    pub(super) fn of(node: NodePtr<K, V>, deadline: u64, now: u64) -> Result<Self, Self> {
        let hit = Self {
            node,
            deadline,
            now,
        };
        if time::is_due(now, deadline) {
            Err(hit)
        } else {
            Ok(hit)
        }
    }
}

impl<K, V> Shared<K, V> {
    /// The live entry of a key. If there is none, the time at which its entry was found due;
    /// `None` if the key is absent.
    ///
    /// `due` is an entry of the key that the caller has found due. `exactly` is for a read that
    /// needs the exact time.
    #[inline]
    pub(super) fn find<Q>(
        &self,
        hash: u64,
        key: &Q,
        due: Option<Hit<K, V>>,
        pin: &Pin,
        exactly: bool,
    ) -> Result<Hit<K, V>, Option<u64>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let mut met = due;
        loop {
            if let Some(due) = &met
                && self.is_dead(due, pin)
            {
                return Err(Some(due.now));
            }
            let found = (self.map).find(hash, pin, |node| key.equivalent(node.key()));
            match self.judge(found.ok_or(None)?, exactly) {
                Ok(hit) => return Ok(hit),
                Err(due) => met = Some(due),
            }
        }
    }

    /// The live entry of a key.
    pub(crate) fn find_live<Q>(&self, hash: u64, key: &Q, pin: &Pin) -> Option<Hit<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.find(hash, key, None, pin, false).ok()
    }

    /// The live entry of a node that was in the map a moment ago, or what its key has instead.
    pub(crate) fn find_again(&self, node: NodePtr<K, V>, pin: &Pin) -> Option<Hit<K, V>>
    where
        K: Eq,
    {
        // In this order: first the deadline says that the node is live, then its state says that it
        // is still in the map.
        match self.judge(node, false) {
            Ok(hit) if node.state() == NodeState::Live => Some(hit),
            _ => self.find_live(node.hash(), node.key(), pin),
        }
    }

    /// The node as a hit; as an error, if it is due.
    ///
    /// The clock is read after the deadline: so the entry was live at some moment of the call, and
    /// a read with an old reading does not overwrite a later extension by another thread. An entry
    /// without a deadline needs a reading only if the read may give it one.
    #[inline]
    pub(super) fn judge(&self, node: NodePtr<K, V>, exactly: bool) -> Result<Hit<K, V>, Hit<K, V>> {
        let deadline = node.deadline();
        let now = if deadline == NEVER && !self.reads_extend {
            0
        } else if exactly {
            self.clock.now_beside(deadline)
        } else {
            self.clock.now_to_judge(deadline)
        };
        Hit::of(node, deadline, now)
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
            && (deadline == NEVER || !time::is_due(self.clock.now_to_judge(deadline), deadline))
    }
}
