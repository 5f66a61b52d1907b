//! A group: eight words on one cache line, and the tagged words in it.
//!
//! # How it works
//!
//! A word is null, or the address of a node with a *tag*, or, in the last word only, the address of
//! an overflow group with the lowest bit set. A tag is a set bit and bits of the hash below it, as
//! many as an address leaves free ([`TAG_BITS`]). So a tag is never zero, and an overflow link has
//! none: one comparison of the tag's bits tells a possible match from everything else.
//!
//! The functions are pure arithmetic on addresses.
#![allow(unsafe_code)]

use crate::node::{Node, NodePtr, TAG_BITS, TAG_SHIFT};
use crate::sync::{AtomicPtr, Ordering};

/// Words in a group.
pub(super) const WORDS: usize = 8;
/// The word that may hold an overflow link.
pub(super) const LAST: usize = WORDS - 1;

/// The bits of a tag, at the right end of a number.
const TAG_MASK: usize = (1 << TAG_BITS) - 1;
/// The highest bit of a tag: set in the tag of every node.
const MARK: usize = 1 << (TAG_BITS - 1);
const LINK: usize = 1;

/// Eight words; see the module docs.
#[repr(C, align(64))]
pub(super) struct Group<K, V> {
    pub(super) words: [AtomicPtr<Node<K, V>>; WORDS],
}

/// The raw content of a word.
pub(super) type Word<K, V> = *mut Node<K, V>;

/// A word that a search has found. Valid as long as the caller is pinned or has the lock.
pub(in crate::map) type Place<'a, K, V> = &'a AtomicPtr<Node<K, V>>;

/// The node of a place, if its word carries `tag`.
#[inline]
pub(super) fn node_at<K, V>(place: Place<'_, K, V>, tag: usize) -> Option<NodePtr<K, V>> {
    // Acquire, partners: the release stores of words (a node's content; table 3).
    node_tagged(place.load(Ordering::Acquire), tag).map(as_node)
}

/// The node of a word that holds one.
#[inline]
pub(super) fn node<K, V>(word: Word<K, V>) -> NodePtr<K, V> {
    as_node(untagged(word))
}

#[inline]
fn as_node<K, V>(node: *mut Node<K, V>) -> NodePtr<K, V> {
    // SAFETY: words with a tag come from `as_raw`, and a node in the table is not freed; for one
    // just removed the caller's pin or lock keeps it (node 1).
    unsafe { NodePtr::from_raw(node) }
}

/// The tag that a node with this hash carries in its word; never zero.
#[inline]
pub(super) fn tag(hash: u64) -> usize {
    (hash >> TAG_SHIFT) as usize & TAG_MASK | MARK
}

#[inline]
pub(super) fn tag_of<K, V>(word: Word<K, V>) -> usize {
    word.addr() >> TAG_SHIFT & TAG_MASK
}

/// Puts the tag on a node's address.
pub(super) fn tagged<K, V>(node: *mut Node<K, V>, hash: u64) -> Word<K, V> {
    node.map_addr(|a| a | tag(hash) << TAG_SHIFT)
}

/// The node of a word, if the word carries this tag.
// One subtraction answers both questions: if the word has another tag, bits of the difference are
// left above the address.
#[inline]
fn node_tagged<K, V>(word: Word<K, V>, tag: usize) -> Option<*mut Node<K, V>> {
    let node = word.wrapping_byte_sub(tag << TAG_SHIFT);
    (tag_of(node) == 0).then_some(node)
}

/// The node's address without its tag.
#[inline]
fn untagged<K, V>(word: Word<K, V>) -> *mut Node<K, V> {
    word.map_addr(|a| a & !(TAG_MASK << TAG_SHIFT))
}

#[inline]
pub(super) fn is_link<K, V>(word: Word<K, V>) -> bool {
    word.addr() & LINK != 0
}

/// Whether the word holds a node.
#[inline]
pub(super) fn is_node<K, V>(word: Word<K, V>) -> bool {
    tag_of(word) != 0
}

pub(super) fn link<K, V>(to: *mut Group<K, V>) -> Word<K, V> {
    to.cast::<Node<K, V>>().map_addr(|a| a | LINK)
}

#[inline]
pub(super) fn linked<K, V>(word: Word<K, V>) -> *mut Group<K, V> {
    word.map_addr(|a| a & !LINK).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_one_cache_line() {
        #[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
        assert_eq!(size_of::<Group<u64, u64>>(), 64);
    }

    #[test]
    fn a_tag_is_never_zero_and_survives_the_round_trip() {
        let node = std::ptr::without_provenance_mut::<Node<u8, u8>>(0x7fff_1234_5678);
        for hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let word = tagged(node, hash);
            assert_eq!(tag_of(word), tag(hash));
            assert!(is_node(word) && !is_link(word));
            assert_eq!(untagged(word), node);
            assert_eq!(node_tagged(word, tag(hash)), Some(node));
            for other in [
                tag(hash) ^ 1,
                tag(hash) ^ MARK >> 1,
                TAG_MASK ^ tag(hash) | MARK,
            ] {
                assert_eq!(node_tagged(word, other), None);
            }
        }
    }

    #[test]
    fn a_link_is_no_node() {
        let group = std::ptr::without_provenance_mut::<Group<u8, u8>>(0x7fff_1234_5640);
        let word = link(group);
        assert!(is_link(word) && !is_node(word));
        assert_eq!(linked(word), group);
        for tag in [MARK, MARK | 1, TAG_MASK] {
            assert_eq!(node_tagged(word, tag), None);
            assert_eq!(node_tagged(std::ptr::null_mut::<Node<u8, u8>>(), tag), None);
        }
        assert!(!is_node(std::ptr::null_mut::<Node<u8, u8>>()));
    }
}
