//! A bucket: eight words on one cache line, and the tagged words in it.
//!
//! # How it works
//!
//! A word is null, or a node's address with 15 bits of its hash and a set bit on top (the *tag*),
//! or, in the last word only, the address of an overflow bucket with the lowest bit set. A tag is
//! never zero and an overflow link has none, so one comparison of the upper sixteen bits tells a
//! candidate from everything else.
//!
//! Pure arithmetic on addresses; reading and writing words is `table`'s.

use crate::node::Node;
use crate::sync::AtomicPtr;

/// Words in a bucket.
pub(super) const WORDS: usize = 8;
/// The word that may hold an overflow link.
pub(super) const LAST: usize = WORDS - 1;

const TAG_SHIFT: u32 = 48;
const ADDRESS: usize = (1 << TAG_SHIFT) - 1;
const LINK: usize = 1;

/// Eight words; see the module docs.
#[repr(C, align(64))]
pub(super) struct Bucket<K, V> {
    pub(super) words: [AtomicPtr<Node<K, V>>; WORDS],
}

/// The raw content of a word.
pub(super) type Word<K, V> = *mut Node<K, V>;

/// The upper sixteen bits that a node with this hash carries in its word; never zero.
#[inline]
pub(super) fn tag(hash: u64) -> usize {
    ((hash >> TAG_SHIFT) | 0x8000) as usize
}

#[inline]
pub(super) fn tag_of<K, V>(word: Word<K, V>) -> usize {
    word.addr() >> TAG_SHIFT
}

/// Puts the tag on a node's address.
pub(super) fn tagged<K, V>(node: *mut Node<K, V>, hash: u64) -> Word<K, V> {
    node.map_addr(|a| a | tag(hash) << TAG_SHIFT)
}

/// The node of a word, if the word carries this tag.
// One subtraction for both questions: of a word without the tag, something is left above the
// address.
#[inline]
pub(super) fn node_tagged<K, V>(word: Word<K, V>, tag: usize) -> Option<*mut Node<K, V>> {
    let node = word.wrapping_byte_sub(tag << TAG_SHIFT);
    (tag_of(node) == 0).then_some(node)
}

/// The node's address without its tag.
#[inline]
pub(super) fn untagged<K, V>(word: Word<K, V>) -> *mut Node<K, V> {
    word.map_addr(|a| a & ADDRESS)
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

pub(super) fn link<K, V>(to: *mut Bucket<K, V>) -> Word<K, V> {
    to.cast::<Node<K, V>>().map_addr(|a| a | LINK)
}

#[inline]
pub(super) fn linked<K, V>(word: Word<K, V>) -> *mut Bucket<K, V> {
    word.map_addr(|a| a & !LINK).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_one_cache_line() {
        #[cfg(not(any(wheelhouse_loom, wheelhouse_shuttle)))]
        assert_eq!(size_of::<Bucket<u64, u64>>(), 64);
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
                tag(hash) ^ 0x4000,
                0xffff ^ (tag(hash) & 0x7fff),
            ] {
                assert_eq!(node_tagged(word, other), None);
            }
        }
    }

    #[test]
    fn a_link_is_no_node() {
        let bucket = std::ptr::without_provenance_mut::<Bucket<u8, u8>>(0x7fff_1234_5640);
        let word = link(bucket);
        assert!(is_link(word) && !is_node(word));
        assert_eq!(linked(word), bucket);
        for tag in [0x8000, 0x8001, 0xffff] {
            assert_eq!(node_tagged(word, tag), None);
            assert_eq!(node_tagged(std::ptr::null_mut::<Node<u8, u8>>(), tag), None);
        }
        assert!(!is_node(std::ptr::null_mut::<Node<u8, u8>>()));
    }
}
