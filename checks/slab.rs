//! The invariants of a slab and its pools, as assertions.

use super::super::pool::Pool;
use super::{Columns, Slab};

impl<K, V> Slab<K, V> {
    /// A slab without memory, of the only shard.
    pub(crate) fn new(columns: Columns) -> Self {
        Self::of_shard(0, columns)
    }

    /// Asserts the invariants of both pools, and that there are at most as many entries as nodes.
    pub(crate) fn check_invariants(&self) {
        self.nodes.check_invariants();
        self.entries.check_invariants();
        let taken = |pool: &Pool| pool.used - pool.recycled.len;
        assert!(
            taken(&self.entries) <= taken(&self.nodes),
            "more entries than nodes"
        );
    }
}
