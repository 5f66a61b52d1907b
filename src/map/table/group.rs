//! A group: eight words on one cache line, and how to find the words that carry a tag, in it and in
//! its overflow chain.
//!
//! # How it works
//!
//! A word is zero, or the address of a node with a *tag*, or, in the last word only, the address of
//! an overflow group with the lowest bit set. A tag is a set bit and bits of the hash below it, as
//! many as an address leaves free ([`TAG_BITS`]). So a tag is never zero, and an overflow link has
//! none: one comparison of the tag's bits tells a possible match from everything else.
//!
//! A word is a number of 64 bits on every target. Where pointers have 32 bits, the bits between an
//! address and its tag are zero. So there is one form of the table, and each test runs it.
//!
//! # How a tag is sought
//!
//! By one comparison of all eight words, which has no branch that depends on where the tag stands.
//!
//! Every x86-64 processor has SSE2: the upper 16 bits of each word are packed into one register and
//! compared there. The compiler's intrinsics would read the words as plain memory while a writer
//! may change them. So this is assembly. Its loads are atomic for each word, and acquire, as all
//! loads on this processor do. Models, fuzzers and AddressSanitizer do not see into assembly: for
//! them, eight ordinary loads copy the words, and the same assembly compares the copy.
//! (ThreadSanitizer does not look into it either; it sees the second load, of the word that is
//! used.) Other targets, Miri, and the layout of `node::address` for tagged top bytes compare word
//! by word.
//!
//! Either way the answer is a hint: the caller loads a word again and compares its tag again before
//! it uses the word.
//!
//! # Origin
//!
//! Comparing a group of tags at once: the "Swiss tables" of Abseil (M. Kulukundis, CppCon 2017).
#![allow(unsafe_code)]

use crate::node::{Node, NodePtr, TAG_BITS, TAG_SHIFT};
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
use crate::stripe::Padded;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::iter;
use std::marker::PhantomData;
use std::ptr;

/// Words in a group.
pub(super) const WORDS: usize = 8;
/// The word that may hold an overflow link.
pub(super) const LAST: usize = WORDS - 1;

/// The bits of a tag, at the right end of a number.
const TAG_MASK: Word = (1 << TAG_BITS) - 1;
/// The highest bit of a tag: set in the tag of every node.
const MARK: Word = 1 << (TAG_BITS - 1);
const LINK: Word = 1;

/// Eight words; see the module docs.
#[repr(C, align(64))]
pub(crate) struct Group<K, V> {
    pub(super) words: [AtomicU64; WORDS],
    nodes: PhantomData<AtomicPtr<Node<K, V>>>,
}

/// The content of a word.
pub(super) type Word = u64;

/// The word that holds nothing.
pub(super) const EMPTY: Word = 0;

/// A word that a search has found. Valid as long as the caller is pinned or has the lock.
pub(in crate::map) type Place<'a> = &'a AtomicU64;

/// Whether the word of a place carries `tag`, and names a node that `matches` accepts; that node.
// Not an `Option` of the node before it matches: that would compare the address with null, too.
#[inline]
pub(super) fn node_at<K, V>(
    place: Place<'_>,
    tag: Word,
    matches: impl FnOnce(NodePtr<K, V>) -> bool,
) -> Option<NodePtr<K, V>> {
    // Acquire, partners: the release stores of words (a node's content; table 3).
    let node = as_node(node_tagged(place.load(Ordering::Acquire), tag)?);
    if matches(node) { Some(node) } else { None }
}

/// The node of a word that holds one.
#[inline]
pub(super) fn node<K, V>(word: Word) -> NodePtr<K, V> {
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
pub(super) fn tag(hash: u64) -> Word {
    hash >> TAG_SHIFT & TAG_MASK | MARK
}

#[inline]
pub(super) fn tag_of(word: Word) -> Word {
    word >> TAG_SHIFT & TAG_MASK
}

/// Puts the tag on a node's address.
pub(super) fn tagged<K, V>(node: *mut Node<K, V>, hash: u64) -> Word {
    node.expose_provenance() as Word | tag(hash) << TAG_SHIFT
}

/// The node of a word, if the word carries this tag.
// One subtraction answers both questions: if the word has another tag, bits of the difference are
// left above the address.
#[inline]
fn node_tagged<K, V>(word: Word, tag: Word) -> Option<*mut Node<K, V>> {
    let address = word.wrapping_sub(tag << TAG_SHIFT);
    if tag_of(address) == 0 {
        Some(pointer(address))
    } else {
        None
    }
}

/// The node's address without its tag.
#[inline]
fn untagged<K, V>(word: Word) -> *mut Node<K, V> {
    pointer(word & !(TAG_MASK << TAG_SHIFT))
}

/// The pointer that was made part of a word.
#[inline]
fn pointer<T>(address: Word) -> *mut T {
    ptr::with_exposed_provenance_mut(address as usize)
}

#[inline]
pub(super) fn is_link(word: Word) -> bool {
    word & LINK != 0
}

/// Whether the word holds a node.
#[inline]
pub(super) fn is_node(word: Word) -> bool {
    tag_of(word) != 0
}

pub(super) fn link<K, V>(to: *mut Group<K, V>) -> Word {
    to.expose_provenance() as Word | LINK
}

#[inline]
pub(super) fn linked<K, V>(word: Word) -> *mut Group<K, V> {
    pointer(word & !LINK)
}

impl<K, V> Group<K, V> {
    /// The word of the group, or of its overflow chain, that carries this hash's tag and whose node
    /// `matches` accepts; and that node.
    ///
    /// Words first, then the link: a writer that empties a chain moves its nodes before it unlinks
    /// the chain (table 3).
    #[inline]
    pub(in crate::map) fn search(
        &self,
        hash: u64,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<(Place<'_>, NodePtr<K, V>)> {
        let tag = tag(hash);
        let mut here = self;
        loop {
            for at in words_with_tag(here, tag) {
                let place = &here.words[at];
                if let Some(node) = node_at(place, tag, &mut matches) {
                    return Some((place, node));
                }
            }
            here = here.overflow()?;
        }
    }

    /// Visits the words that hold nodes, of the group and then of its overflow chain.
    #[inline]
    pub(super) fn each<'a>(&'a self, mut visit: impl FnMut(Place<'a>, Word)) {
        let mut here = self;
        loop {
            let mut word = EMPTY;
            for place in &here.words {
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
            here = next;
        }
    }

    /// The last word: a link, if the group has an overflow chain.
    #[inline]
    pub(super) fn last(&self) -> Word {
        // Acquire, partner: the release store in `put`, so that the chain is seen whole.
        self.words[LAST].load(Ordering::Acquire)
    }

    /// The first group of the overflow chain.
    #[inline]
    pub(super) fn overflow(&self) -> Option<&Self> {
        Self::linked(self.last())
    }

    /// The overflow group that a word of the caller's group links to, if the word is a link.
    #[inline]
    pub(super) fn linked<'a>(word: Word) -> Option<&'a Self> {
        if !is_link(word) {
            return None;
        }
        // SAFETY: the caller is pinned or has the lock, and has been since before it read the word:
        // an overflow group is not freed meanwhile (table 4).
        Some(unsafe { &*linked(word) })
    }

    /// The words of the group itself that are free.
    pub(super) fn free_words(&self) -> impl Iterator<Item = Place<'_>> {
        let free = |place: &Place<'_>| place.load(Ordering::Acquire) == EMPTY;
        self.words.iter().filter(free)
    }
}

/// Whether a tool must see each load: loom, shuttle, a fuzzer, AddressSanitizer.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
const LOADS_ARE_SEEN: bool = cfg!(any(
    fuzzing,
    wheelhouse_loom,
    wheelhouse_shuttle,
    wheelhouse_single
));

/// The positions of the words of a group that carry `tag`, or did a moment ago.
#[inline]
pub(super) fn words_with_tag<K, V>(group: &Group<K, V>, tag: Word) -> impl Iterator<Item = usize> {
    positions(marks(group, tag))
}

/// The positions of words whose two bits are set.
#[inline]
fn positions(mut marks: u32) -> impl Iterator<Item = usize> {
    iter::from_fn(move || {
        if marks == 0 {
            return None;
        }
        // The mask changes nothing and spares a bounds check.
        let at = (marks.trailing_zeros() / 2) as usize & LAST;
        marks &= !(0b11 << (2 * at));
        Some(at)
    })
}

/// Two bits for each word of a group: both are set if it carries `tag`.
///
/// Acquire, partners: the release stores of words (table 3).
#[inline]
fn marks<K, V>(group: &Group<K, V>, tag: Word) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
    if TAG_BITS == 16 {
        if !LOADS_ARE_SEEN {
            // SAFETY: a group is 64 bytes, aligned to as many.
            return unsafe { all_at_once(group.words.as_ptr().cast(), tag) };
        }
        let words = group.words.each_ref();
        let copy = Padded(words.map(|word| word.load(Ordering::Acquire)));
        // SAFETY: so is a copy of its words.
        return unsafe { all_at_once(copy.0.as_ptr(), tag) };
    }
    one_by_one(group, tag)
}

/// # Safety
///
/// `words` points to 64 bytes that may be read, aligned to 16.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
#[inline]
unsafe fn all_at_once(words: *const Word, tag: Word) -> u32 {
    let marks: u32;
    // SAFETY: reads the 64 bytes that the caller promises, and writes registers only. Each word of
    // a group is an atomic, read here by a load that the processor makes atomic for aligned words
    // of 8 bytes. The options `pure` and `readonly`, which promise that memory does not change, are
    // not given, so the compiler moves no memory access across.
    unsafe {
        std::arch::asm!(
            // The upper halves of the words: the odd ones of 16 doublewords, in order.
            "movdqa {upper}, xmmword ptr [{words}]",
            "shufps {upper}, xmmword ptr [{words} + 16], 0xdd",
            "movdqa {more}, xmmword ptr [{words} + 32]",
            "shufps {more}, xmmword ptr [{words} + 48], 0xdd",
            // Their upper halves again, the tags. As signed numbers they fit, so packing keeps
            // them.
            "psrad {upper}, 16",
            "psrad {more}, 16",
            "packssdw {upper}, {more}",
            "movd {more}, {tag:e}",
            "pshuflw {more}, {more}, 0",
            "punpcklqdq {more}, {more}",
            "pcmpeqw {upper}, {more}",
            "pmovmskb {marks:e}, {upper}",
            words = in(reg) words,
            tag = in(reg) tag,
            marks = lateout(reg) marks,
            upper = out(xmm_reg) _,
            more = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    marks
}

fn one_by_one<K, V>(group: &Group<K, V>, tag: Word) -> u32 {
    let mut marks = 0;
    for (at, place) in group.words.iter().enumerate() {
        let carries = tag_of(place.load(Ordering::Acquire)) == tag;
        if carries {
            marks |= 0b11 << (2 * at);
        }
    }
    marks
}

#[cfg(test)]
mod tests;
