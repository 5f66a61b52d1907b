//! A bucket: eight words on one cache line, and the tagged words in it.
//!
//! # How it works
//!
//! A word is null, or the address of a node with a *tag*, or, in the last word only, the address of
//! an overflow bucket with the lowest bit set. A tag is a set bit and bits of the hash below it, as
//! many as an address leaves free ([`TAG_BITS`]). So a tag is never zero, and an overflow link has
//! none: one comparison of the tag's bits tells a possible match from everything else.
//!
//! The functions are pure arithmetic on addresses. The methods of [`Bucket`] read words, with the
//! lock or without, and store a new one with it ([`Bucket::put`]).
#![allow(unsafe_code)]

use super::memory::TablePart;
use super::tags;
use crate::node::{Node, NodePtr, TAG_BITS, TAG_SHIFT};
use crate::sync::{AtomicPtr, Ordering};

/// Words in a bucket.
pub(super) const WORDS: usize = 8;
/// The word that may hold an overflow link.
pub(super) const LAST: usize = WORDS - 1;

/// The bits of a tag, at the right end of a number.
const TAG: usize = (1 << TAG_BITS) - 1;
/// The highest bit of a tag: set in the tag of every node.
const MARK: usize = 1 << (TAG_BITS - 1);
const LINK: usize = 1;

/// Eight words; see the module docs.
#[repr(C, align(64))]
pub(super) struct Bucket<K, V> {
    pub(super) words: [AtomicPtr<Node<K, V>>; WORDS],
}

/// The raw content of a word.
pub(super) type Word<K, V> = *mut Node<K, V>;

/// A word that a search has found. Valid as long as the caller is pinned or has the lock.
pub(in crate::map) type Place<'a, K, V> = &'a AtomicPtr<Node<K, V>>;

impl<K, V> Bucket<K, V> {
    /// The word of the bucket, or of its overflow chain, that carries `tag` and whose node
    /// `matches` accepts; and that node.
    ///
    /// Words first, then the link: a writer that empties a chain moves its nodes before it unlinks
    /// the chain (table 3).
    #[inline]
    pub(super) fn search(
        &self,
        tag: usize,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<(Place<'_, K, V>, NodePtr<K, V>)> {
        let mut bucket = self;
        loop {
            for at in tags::carrying(bucket, tag) {
                let place = &bucket.words[at];
                if let Some(node) = node_at(place, tag)
                    && matches(node)
                {
                    return Some((place, node));
                }
            }
            bucket = bucket.overflow()?;
        }
    }

    /// Visits the words that hold nodes, of the bucket and then of its overflow chain.
    #[inline]
    pub(super) fn each<'a>(&'a self, mut visit: impl FnMut(Place<'a, K, V>, Word<K, V>)) {
        let mut bucket = self;
        loop {
            let mut word = std::ptr::null_mut();
            for place in &bucket.words {
                // Acquire, partners: the release stores of words (a node's content; table 3).
                word = place.load(Ordering::Acquire);
                if is_node(word) {
                    visit(place, word);
                }
            }
            // The last word: a link, if there is one.
            let Some(next) = Self::linked(word) else {
                return;
            };
            bucket = next;
        }
    }

    /// The last word: a link, if the bucket has an overflow chain.
    #[inline]
    pub(super) fn last(&self) -> Word<K, V> {
        // Acquire, partner: the release store in `put`, so that the chain is seen whole.
        self.words[LAST].load(Ordering::Acquire)
    }

    /// The first bucket of the overflow chain.
    #[inline]
    fn overflow(&self) -> Option<&Self> {
        Self::linked(self.last())
    }

    /// The overflow bucket that a word of the caller's bucket links to, if the word is a link.
    #[inline]
    pub(super) fn linked<'a>(word: Word<K, V>) -> Option<&'a Self> {
        // SAFETY: the caller is pinned or has the lock, and was so when it read the word: an
        // overflow bucket is not freed meanwhile (table 4).
        is_link(word).then(|| unsafe { &*linked(word) })
    }

    /// The words of the bucket itself that are free.
    pub(super) fn free_words(&self) -> impl Iterator<Item = Place<'_, K, V>> {
        let free = |place: &Place<'_, K, V>| place.load(Ordering::Acquire).is_null();
        self.words.iter().filter(free)
    }

    /// Stores a word into the first free word of the bucket or its overflow chain, and makes an
    /// overflow bucket if there is none. Returns the bucket of the chain that it stands in now. For
    /// the holder of the lock.
    pub(super) fn put(&self, word: Word<K, V>) -> &Self {
        let mut bucket = self;
        loop {
            if let Some(free) = bucket.free_words().next() {
                // Release, partners: the acquire loads of words in this file.
                free.store(word, Ordering::Release);
                return bucket;
            }
            match bucket.overflow() {
                Some(next) => bucket = next,
                None => break,
            }
        }
        // Every word is taken. The last word of the chain's last bucket becomes a link to a new
        // bucket that already holds the node that stood there. So a reader finds that node before
        // and after.
        let fresh = TablePart::<K, V>::allocate(1);
        // SAFETY: just allocated and zeroed, and not yet shared. From then on it is a part of the
        // chain, which lives as long as the bucket.
        let overflow: &Self = unsafe { &*fresh };
        overflow.words[0].store(bucket.last(), Ordering::Release);
        overflow.words[1].store(word, Ordering::Release);
        bucket.words[LAST].store(link(fresh), Ordering::Release);
        overflow
    }
}

/// The node of a place, if its word carries `tag`.
#[inline(always)]
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
    (hash >> TAG_SHIFT) as usize & TAG | MARK
}

#[inline]
pub(super) fn tag_of<K, V>(word: Word<K, V>) -> usize {
    word.addr() >> TAG_SHIFT & TAG
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
    word.map_addr(|a| a & !(TAG << TAG_SHIFT))
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

fn link<K, V>(to: *mut Bucket<K, V>) -> Word<K, V> {
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
            for other in [tag(hash) ^ 1, tag(hash) ^ MARK >> 1, TAG ^ tag(hash) | MARK] {
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
        for tag in [MARK, MARK | 1, TAG] {
            assert_eq!(node_tagged(word, tag), None);
            assert_eq!(node_tagged(std::ptr::null_mut::<Node<u8, u8>>(), tag), None);
        }
        assert!(!is_node(std::ptr::null_mut::<Node<u8, u8>>()));
    }
}
