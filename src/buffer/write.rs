//! Write events and the batch that a shard gathers them in.
//!
//! A batch is a plain vector behind the shard's lock, which the writer holds anyway. So there is no
//! order to restore. (One queue for all shards would be shared by all writers, and would lose the
//! order of their changes.) The pass swaps the batch for an empty one, so it holds the lock for a
//! few instructions. A write costs one push into a vector that keeps its capacity from pass to
//! pass.

use crate::listener::RemovalCause;
use crate::node::NodePtr;

/// A change of the map that the pass applies to wheel and size policy.
#[derive(Debug)]
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

/// Events of one shard since the last drain, in order.
pub(crate) type Batch<K, V> = Vec<WriteEvent<K, V>>;
