//! The invariants of a slab and its pools, as assertions.

use super::{Columns, Slab};

impl<K, V> Slab<K, V> {
    /// A slab without memory, of the only shard.
    pub(crate) fn new(columns: Columns) -> Self {
        Self::of_shard(0, columns)
    }

    /// Asserts the invariants of both pools, and that there are at most as many entries as nodes.
    pub(crate) fn check_invariants(&self) {
        self.nodes.check_invariants(&self.recycled_nodes);
        self.entries.check_invariants(&self.recycled_entries);
        assert!(
            self.taken_entries() <= self.taken_nodes(),
            "more entries than nodes"
        );
    }

    /// The address behind what taking a recycled slot changes.
    #[cfg(test)]
    pub(crate) fn recycled_end(&self) -> usize {
        (&raw const self.recycled_entries).addr() + size_of_val(&self.recycled_entries)
    }

    /// How many slots of nodes are recycled.
    pub(super) fn recycled_nodes(&self) -> usize {
        self.nodes.recycled(&self.recycled_nodes)
    }

    /// How many slots of nodes are taken.
    pub(super) fn taken_nodes(&self) -> usize {
        self.nodes.used - self.recycled_nodes()
    }

    /// How many slots of entries are taken.
    pub(super) fn taken_entries(&self) -> usize {
        self.entries.used - self.entries.recycled(&self.recycled_entries)
    }
}
