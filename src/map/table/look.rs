//! The look-ups in a table, which take no lock.
#![allow(unsafe_code)]

use super::array::{self, Array};
use super::group::{self, Group, LAST, Place};
use super::resize::Resize;
use super::state::Table;
use super::tags;
use crate::node::NodePtr;
use crate::reclaim::Pin;
use crate::sync::Ordering;

/// What a writer's look-up without the lock has found, so that the writer need not search again
/// under the lock. Valid as long as the pin is held.
pub(in crate::map) struct Seen<'a, K, V> {
    pub(super) version: u64,
    /// The group of the hash under that version.
    pub(super) group: Option<&'a Group<K, V>>,
    /// The word of that group in which the node was found, if it was.
    pub(super) place: Option<Place<'a, K, V>>,
}

/// The result of one look at a group.
pub(crate) enum Look<T> {
    /// The node that was sought.
    Found(T),
    /// The key was not in the table at some moment of the call.
    Absent,
    /// One look does not decide.
    Retry,
}

impl<K, V> Table<K, V> {
    /// One look at the group of a hash. It may call `matches` for a node of another key.
    ///
    /// No lock, no write.
    // Always inlined, as `find` is; rare cases are left to other functions. A hit takes a few dozen
    // instructions, and a call would cost as many again to save registers. `look` and `find` repeat
    // a few lines: a shared function would return its result through the stack.
    #[inline(always)]
    pub(in crate::map) fn look(
        &self,
        hash: u64,
        _pin: &Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Look<NodePtr<K, V>> {
        let version = self.version();
        let array = self.array();
        if array.is_resizing() {
            return Look::Retry;
        }
        // SAFETY: the pin was there before the array's word was read.
        let group = unsafe { array.group(hash) };
        let tag = group::tag(hash);
        let Some(at) = tags::words_with_tag(group, tag).next() else {
            return if self.proves_absence(group, version) {
                Look::Absent
            } else {
                Look::Retry
            };
        };
        match group::node_at(&group.words[at], tag) {
            Some(node) if matches(node) => Look::Found(node),
            _ => Look::Retry,
        }
    }

    /// The node with this hash's tag that `matches` accepts. May call `matches` for nodes of other
    /// keys.
    ///
    /// No lock, no write. `matches` is user code; nothing of the table depends on what it does.
    #[inline(always)]
    pub(in crate::map) fn find<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> (Option<NodePtr<K, V>>, Seen<'a, K, V>) {
        let version = self.version();
        let mut seen = Seen {
            version,
            group: None,
            place: None,
        };
        let mut array = self.array();
        if array.is_resizing() {
            match self.array_while_resizing(array, hash, version) {
                Some(home) => array = home,
                None => return (self.find_on(hash, pin, matches), seen),
            }
        }
        // SAFETY: the pin was there before the array's word was read.
        let group = unsafe { array.group(hash) };
        seen.group = Some(group);
        let tag = group::tag(hash);
        let Some(at) = tags::words_with_tag(group, tag).next() else {
            if self.proves_absence(group, version) {
                return (None, seen);
            }
            return (self.find_on(hash, pin, matches), seen);
        };
        let place = &group.words[at];
        match group::node_at(place, tag) {
            Some(node) if matches(node) => {
                seen.place = Some(place);
                (Some(node), seen)
            }
            _ => (self.find_on(hash, pin, matches), seen),
        }
    }

    /// Repeats the whole search, overflow chain included, until no node was moved during it.
    #[cold]
    #[inline(never)]
    fn find_on(
        &self,
        hash: u64,
        _pin: &Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<NodePtr<K, V>> {
        let mut version = self.version();
        loop {
            if let Some(array) = self.array_under(hash, version) {
                // SAFETY: the pin was there before the array's word was read.
                let group = unsafe { array.group(hash) };
                if let Some((_, node)) = group.search(group::tag(hash), &mut matches) {
                    return Some(node);
                }
            }
            let again = self.version();
            if again == version {
                return None;
            }
            version = again;
        }
    }

    /// Whether a group in which no word carries the tag proves that the key is absent, under the
    /// version that was read before.
    #[inline]
    fn proves_absence(&self, group: &Group<K, V>, version: u64) -> bool {
        // Words first, then the link, as in `search`.
        !group::is_link(group.words[LAST].load(Ordering::Acquire)) && self.version() == version
    }

    /// The array that has a hash's home under this version; `None` if that is no longer the
    /// version.
    fn array_under(&self, hash: u64, version: u64) -> Option<Array<K, V>> {
        let array = self.array();
        if array.is_resizing() {
            self.array_while_resizing(array, hash, version)
        } else {
            Some(array)
        }
    }

    /// The same while entries move out of `array`.
    #[cold]
    #[inline(never)]
    fn array_while_resizing(
        &self,
        array: Array<K, V>,
        hash: u64,
        version: u64,
    ) -> Option<Array<K, V>> {
        let home = Resize::of(self, array).map_or(array, |resize| resize.home(hash));
        (self.version() == version).then_some(home)
    }

    /// Gives the nodes of the group that holds `position`, from that position on, and returns the
    /// position behind the group.
    ///
    /// Used with a pin or with the lock. `out` is cleared first.
    pub(in crate::map) fn collect(&self, position: u32, out: &mut Vec<NodePtr<K, V>>) -> u64 {
        let mut version = self.version();
        loop {
            out.clear();
            let hash = u64::from(position.reverse_bits());
            let mut next = 0;
            if let Some(array) = self.array_under(hash, version) {
                next = array.visit(position).1;
                // SAFETY: the pin, or the lock, was there before the array's word was read.
                let group = unsafe { array.group(hash) };
                group.each(|_, word| {
                    let node = group::node(word);
                    let at = array::position(node.hash());
                    // A compaction under way may show a node twice, and a word that stayed behind
                    // may name a node whose home is elsewhere now.
                    if at >= position && u64::from(at) < next && !out.contains(&node) {
                        out.push(node);
                    }
                });
            }
            let again = self.version();
            if again == version {
                return next;
            }
            version = again;
        }
    }
}
