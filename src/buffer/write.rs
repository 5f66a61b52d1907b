//! Write events and the batch that a shard gathers them in.
//!
//! A batch is a plain vector behind the shard's lock, which the writer holds anyway. So there is no
//! shared queue, and no order to restore. The pass swaps the batch for an empty one, so it holds
//! the lock for a few instructions. A write costs one push into a vector that keeps its capacity
//! from pass to pass.

use crate::listener::RemovalCause;
use crate::node::NodePtr;

/// A change of the map that the pass applies to wheel and size policy.
pub(crate) enum WriteEvent<K, V> {
    /// A node was inserted under a key that was absent.
    Added(NodePtr<K, V>),
    /// `new` replaced `old`, whose value left for `cause`.
    Replaced {
        old: NodePtr<K, V>,
        new: NodePtr<K, V>,
        cause: RemovalCause,
    },
    /// The node was removed from the map, or was never inserted.
    Removed(NodePtr<K, V>, RemovalCause),
    /// The wanted deadline moved, other than by a read that extends it.
    Rescheduled(NodePtr<K, V>),
}

impl<K, V> WriteEvent<K, V> {
    /// Prefetches the nodes that applying the event will touch.
    pub(crate) fn prefetch(&self) {
        match self {
            // The size policy needs the hash of a new node.
            Self::Added(node) => node.prefetch(),
            Self::Removed(node, _) | Self::Rescheduled(node) => node.prefetch_hot(),
            Self::Replaced { old, new, .. } => {
                old.prefetch_hot();
                new.prefetch_hot();
            }
        }
    }

    /// Prefetches the entry of the node that stays or leaves, and with `links` what the size policy
    /// stores for it. The node itself was prefetched before.
    #[inline]
    pub(crate) fn prefetch_entry(&self, links: bool) {
        let (Self::Added(node)
        | Self::Removed(node, _)
        | Self::Rescheduled(node)
        | Self::Replaced { new: node, .. }) = self;
        let entry = node.entry();
        entry.prefetch();
        if links {
            entry.prefetch_policy_links();
        }
    }
}

impl<K, V> std::fmt::Debug for WriteEvent<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Added(node) => write!(f, "Added({node:?})"),
            Self::Replaced { old, new, cause } => {
                write!(f, "Replaced({old:?} by {new:?}, {cause})")
            }
            Self::Removed(node, cause) => write!(f, "Removed({node:?}, {cause})"),
            Self::Rescheduled(node) => write!(f, "Rescheduled({node:?})"),
        }
    }
}

/// Events of one shard since the last drain, in order.
#[derive(Debug)]
pub(crate) struct Batch<K, V>(Vec<WriteEvent<K, V>>);

impl<K, V> Batch<K, V> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(crate) fn push(&mut self, event: WriteEvent<K, V>) {
        self.0.push(event);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the events in order and leaves the batch empty, with its capacity.
    pub(crate) fn drain(&mut self) -> std::vec::Drain<'_, WriteEvent<K, V>> {
        self.0.drain(..)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;
    use crate::node::{Columns, NewNode, NodeSpec, Slab, Times};

    #[test]
    fn events_come_out_in_order_and_leave_an_empty_batch() {
        let mut slab = Slab::new(Columns::default());
        let mut batch = Batch::new();
        for round in 0..3 {
            assert!(batch.is_empty());
            assert_eq!(batch.len(), 0);
            for number in 0..5 {
                let making = NodeSpec { hash: 0, weight: 1 };
                let node = slab.place(NewNode::new(number, (), making), Times::NONE);
                batch.push(WriteEvent::Added(node));
                assert!(!batch.is_empty(), "round {round}");
                assert_eq!(batch.len(), number + 1);
            }
            let numbers: Vec<usize> = batch
                .drain()
                .map(|event| match event {
                    WriteEvent::Added(node) => *node.key(),
                    other => panic!("{other:?} was not pushed"),
                })
                .collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4]);
        }
    }
}
