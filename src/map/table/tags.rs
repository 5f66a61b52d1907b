//! Finds the words of a group that carry a tag, by comparing all eight at once.
//!
//! # Why
//!
//! If a look-up compared the words one by one, the branch predictor could not foresee at which word
//! it stops. It would guess wrong about every second time, and the processor would lose all work
//! that it has begun since, even of the next look-up. One comparison of all eight words has no
//! branch that depends on where the tag stands.
//!
//! # How
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

use super::group::{self, Group, LAST};
use crate::node::TAG_BITS;
use crate::sync::Ordering;

/// Positions of words, found by [`words_with_tag`]; two bits a word.
pub(super) struct Marks(u32);

impl Iterator for Marks {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        // The mask changes nothing and spares a bounds check.
        let at = (self.0.trailing_zeros() / 2) as usize & LAST;
        self.0 &= !(0b11 << (2 * at));
        Some(at)
    }
}

/// Whether a tool must see each load: loom, shuttle, a fuzzer, AddressSanitizer.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LOADS_ARE_SEEN: bool = cfg!(any(
    fuzzing,
    wheelhouse_loom,
    wheelhouse_shuttle,
    wheelhouse_single
));

/// The words of a group that carry `tag`, or did a moment ago.
///
/// Acquire, partners: the release stores of words (table 3).
#[inline]
pub(super) fn words_with_tag<K, V>(group: &Group<K, V>, tag: usize) -> Marks {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if TAG_BITS == 16 {
        if !LOADS_ARE_SEEN {
            // SAFETY: a group is 64 bytes, aligned to as many.
            return unsafe { all_at_once(group.words.as_ptr().cast(), tag) };
        }
        let words = group.words.each_ref();
        let copy = Words(words.map(|word| word.load(Ordering::Acquire).addr() as u64));
        // SAFETY: so is a copy of its words.
        return unsafe { all_at_once(copy.0.as_ptr(), tag) };
    }
    one_by_one(group, tag)
}

/// A copy of a group's words.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[repr(align(64))]
struct Words([u64; LAST + 1]);

/// # Safety
///
/// `words` points to 64 bytes that may be read, aligned to 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn all_at_once(words: *const u64, tag: usize) -> Marks {
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
    Marks(marks)
}

fn one_by_one<K, V>(group: &Group<K, V>, tag: usize) -> Marks {
    let mut marks = 0;
    for (at, place) in group.words.iter().enumerate() {
        let carries = group::tag_of(place.load(Ordering::Acquire)) == tag;
        marks |= u32::from(carries) << (2 * at);
    }
    Marks(marks)
}

#[cfg(all(test, not(any(wheelhouse_loom, wheelhouse_shuttle))))]
mod tests {
    use super::super::group::WORDS;
    use super::*;
    use crate::node::Node;
    use crate::sync::AtomicPtr;
    use proptest::prelude::*;
    use std::ptr::without_provenance_mut;

    fn group(words: [u64; WORDS]) -> Group<u8, u8> {
        Group {
            words: words
                .map(|word| AtomicPtr::new(without_provenance_mut::<Node<u8, u8>>(word as usize))),
        }
    }

    proptest! {
        #[test]
        fn every_word_with_the_tag_is_found_and_no_other(
            tags in prop::array::uniform8(prop_oneof![
                Just(0u16), Just(0x8000), Just(0x8001), Just(0xffff), Just(0x7fff), any::<u16>()
            ]),
            lower in prop::array::uniform8(any::<u64>()),
            sought in prop_oneof![Just(0x8000u16), Just(0x8001), Just(0xffff), 0x8000u16..],
        ) {
            let words = std::array::from_fn(|i| u64::from(tags[i]) << 48 | lower[i] >> 16);
            let group = group(words);
            let cut = |tag: u16| usize::from(tag) & ((1 << TAG_BITS) - 1);
            let expected: Vec<usize> = (0..WORDS).filter(|&i| cut(tags[i]) == cut(sought)).collect();
            let found: Vec<usize> = words_with_tag(&group, cut(sought)).collect();
            prop_assert_eq!(&found, &expected);
            let plain: Vec<usize> = one_by_one(&group, cut(sought)).collect();
            prop_assert_eq!(plain, expected);
        }
    }
}
