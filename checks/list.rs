//! The invariants of a list, as assertions.

use super::List;
use crate::node::{EntryPtr, NEXT, PREV};

impl<K, V, const CHAIN: bool> List<K, V, CHAIN> {
    /// The entries from head to tail. The list must not change meanwhile.
    pub(crate) fn iter(&self) -> impl Iterator<Item = EntryPtr<K, V>> {
        std::iter::successors(self.head, |&entry| Self::next(entry))
    }

    /// Asserts list 2.
    pub(crate) fn check_invariants(&self) {
        let mut len = 0;
        let mut last = None;
        let mut at = self.head;
        while let Some(entry) = at {
            assert_eq!(
                Self::links(&entry).get(PREV),
                last,
                "prev does not mirror next"
            );
            len += 1;
            assert!(len <= self.len, "more entries than the length {}", self.len);
            last = Some(entry);
            at = Self::links(&entry).get(NEXT);
        }
        assert_eq!(self.tail, last, "the tail is not the last entry");
        assert_eq!(self.len, len, "length");
    }
}
