//! The invariants of one table, as assertions; their numbers are those of the parent module.

use super::group;
use super::look::Table;
use super::memory::{MAX_LOAD, TableState};
use super::resize::Resize;
use super::writer::FREE_WORDS_BESIDE_CHAIN;
use std::ptr;

impl<K, V> Table<K, V> {
    /// Asserts what the module docs of `table` promise, of a table with `count` entries.
    pub(in crate::map) fn check_invariants(&self, state: &TableState<K, V>, count: u64) {
        let mut nodes = 0;
        let mut seen = std::collections::HashSet::new();
        for (array, group) in self.homes(state) {
            if group::is_link(group.last()) {
                let free = group.free_words().count();
                assert!(
                    free <= FREE_WORDS_BESIDE_CHAIN,
                    "{free} free words and a chain (table 6)"
                );
            }
            group.each(|_, word| {
                let node = group::node::<K, V>(word);
                let home = array.address(node.hash()).cast_const();
                assert!(ptr::eq(home, group), "a node in a wrong group");
                assert_eq!(group::tag_of(word), group::tag(node.hash()), "a wrong tag");
                assert!(seen.insert(node.as_raw()), "a node in two words (table 2)");
                assert_eq!(node.state(), crate::node::NodeState::InMap);
                nodes += 1;
            });
        }
        assert_eq!(nodes, count, "count");
        self.check_size(state, count);
    }

    /// Asserts that the sizes of the arrays fit the number of entries.
    fn check_size(&self, state: &TableState<K, V>, count: u64) {
        let array = self.array();
        assert!(array.log() >= state.least);
        if let Some(resize) = Resize::of(self, array) {
            assert!(resize.moved() < resize.units(), "moved and not ended");
            assert_eq!(array.log().abs_diff(resize.to.log()), 1);
            assert!(resize.to.log() >= state.least);
        } else {
            let most = u64::from(array.groups()) * MAX_LOAD;
            assert!(count <= most, "too full");
        }
    }
}
