//! Garbage: nodes and memory that left the map and wait to be freed.
//!
//! Nodes are destroyed outside of every lock, since their destructors are user code. Their slots
//! then go back to the slabs of their shards, many under one hold of a shard's lock.
#![allow(unsafe_code)]

use super::table::TablePart;
use crate::node::{Emptied, NodePtr};
use crate::reclaim::Retire;

/// Something that left the map. It takes two words, since each replacement makes one.
pub(crate) enum Garbage<K, V> {
    Node(NodePtr<K, V>),
    Part(TablePart<K, V>),
}

const _: () = assert!(size_of::<Garbage<u64, u64>>() == 2 * size_of::<usize>());

/// Slots of destroyed nodes on their way back, by shard.
pub(crate) struct ReturningSlots<K, V>(Box<[Emptied<K, V>]>);

impl<K, V> ReturningSlots<K, V> {
    /// For a map of this many shards.
    pub(super) fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| Emptied::new()).collect())
    }

    /// Takes the emptied slots out, shard by shard.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Emptied<K, V>> {
        let take = |emptied| std::mem::replace(emptied, Emptied::new());
        self.0.iter_mut().map(take)
    }
}

impl<K, V> Retire for Garbage<K, V> {
    const RUNS_USER_CODE: bool = std::mem::needs_drop::<K>() || std::mem::needs_drop::<V>();

    type Memory = ReturningSlots<K, V>;

    fn size(&self) -> usize {
        match self {
            Self::Node(_) => 1,
            Self::Part(part) => part.groups(),
        }
    }

    fn prefetch(&self) {
        if let Self::Node(node) = self {
            // The side part, too: a writer mostly takes the slot soon, and fills that part first.
            node.prefetch();
        }
    }

    unsafe fn destroy(&mut self) {
        if let Self::Node(node) = self {
            // SAFETY: the caller's promise is that of `NodePtr::destroy` (node 1).
            unsafe { node.destroy() }
        }
    }

    unsafe fn give_back(self, memory: &mut ReturningSlots<K, V>) {
        match self {
            Self::Node(node) => {
                // SAFETY: node 1 by the caller's promise; all of a chain are of one shard's slab.
                unsafe { memory.0[node.shard()].push(node) }
            }
            // SAFETY: the caller's promise is that of `TablePart::free` (table 4).
            Self::Part(part) => unsafe { part.free() },
        }
    }
}
