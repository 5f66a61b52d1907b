//! The size policy, with nodes of its own.

use super::nodes::Nodes;
use crate::eviction::{Eviction, EvictionPolicy};
use crate::node::Columns;
use crate::time;

/// The choice of victims in a bounded cache, without the cache.
#[allow(missing_debug_implementations)]
pub struct Order {
    nodes: Nodes,
    policy: Eviction<u32, ()>,
}

impl Order {
    /// For up to `max` entries.
    pub fn new(policy: EvictionPolicy, max: u64, seed: u64) -> Self {
        let columns = Columns {
            queue: true,
            weight: true,
            own: false,
            refresh: false,
        };
        Self {
            nodes: Nodes::new(columns),
            policy: Eviction::with_policy(policy, max, seed),
        }
    }

    /// An entry came in; the number under which it is known.
    #[inline]
    pub fn admit(&mut self, hash: u64) -> u32 {
        let node = self.nodes.make(hash, time::NEVER);
        self.policy.admit(node);
        *node.key()
    }

    /// The entry of this number was read, if there is one.
    #[inline]
    pub fn accessed(&mut self, number: u32) {
        if let Some(node) = self.nodes.get(number) {
            self.policy.accessed(node);
        }
    }

    /// Takes out an entry if there are more than may be: its number and its hash.
    #[inline]
    pub fn evict(&mut self) -> Option<(u32, u64)> {
        let node = self.policy.victim()?;
        let victim = (*node.key(), node.hash());
        self.policy.removed(node);
        self.nodes.free(node);
        Some(victim)
    }
}
