//! The invariants of the map and its tables, as assertions; their numbers are those of
//! `map::table`.

use super::Map;
use super::ShardCell;
use super::table::END;

impl<K, V> Map<K, V> {
    /// Asserts the invariants of every table.
    pub(crate) fn check_invariants(&self) {
        for (number, cell) in self.shards.iter().enumerate() {
            cell.check_invariants(|hash| self.shard_of(hash) == number);
        }
    }
}

impl<K, V> ShardCell<K, V> {
    /// Asserts the invariants of the table, and that the shard `owns` the hashes of its nodes.
    fn check_invariants(&self, owns: impl Fn(u64) -> bool) {
        let locked = self.locked.lock();
        locked.slab.check_invariants();
        let number = self.number;
        self.table().check_invariants(&locked.state, self.entries());
        let mut nodes = Vec::new();
        let (mut at, mut weight) = (0, 0);
        while at < END {
            at = self.table().collect(at as u32, &mut nodes);
            for node in &nodes {
                weight += u64::from(node.weight());
                assert!(owns(node.hash()), "a node in a wrong shard");
            }
        }
        if self.columns.weight {
            assert_eq!(self.weight(), weight, "weight of shard {number}");
        }
    }
}
