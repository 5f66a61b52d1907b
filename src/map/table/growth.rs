//! A table's growth and shrinking, one bucket at a time, and its overflow chains' way back.
//!
//! # How it works
//!
//! As long as buckets that are yet to be split hold more than [`LOAD`] entries on average, each inserting writer splits one or two of
//! them; when all buckets hold fewer than a quarter of that, the removing writer merges two. Which bucket is next, and where it comes from
//! or goes back to, follows from their number alone (`extent`). A removal that leaves more than [`SPARE`] words of a bucket free beside
//! its overflow chain brings entries of the chain back, and drops the chain once it is empty.
//!
//! Each of these moves nodes under the eyes of readers, in the same three steps: their new words are stored, the extent's version moves on,
//! their old words are nulled (table 3). A merge leaves the words of a chain that it unlinks as they are (table 7).
//!
//! # Invariants
//!
//! Those of `table`: all this is the writer's (table 1), a node stands in two words while it moves and in one before and after (table 2),
//! memory that was unlinked is handed out to be freed later (table 4), buckets beyond the extent are null (table 5), and every
//! write ends with table 6 true for the buckets that it touched.
//!
//! # Cost
//!
//! At most [`STEPS`] buckets a write, so there is no long pause at any size: the largest single step is the allocation of a zeroed segment,
//! which comes once each time the table doubles. A split reads the hashes of one bucket's entries, from the nodes' cold parts, and asks for
//! all of them before it reads the first; a merge reads no node.
//!
//! Origin: W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980; in memory, with segments, as in P.-Å.
//! Larson, "Dynamic hash tables", CACM 31(4), 1988.
#![allow(unsafe_code)]

use super::{SEGMENTS, Table, TablePart, TableState};
use crate::map::bucket::{self, Bucket, LAST, WORDS, Word};
use crate::map::extent::{self, Extent};
use crate::node::Node;
use crate::sync::{AtomicPtr, Ordering};
use std::ptr;

/// Entries a bucket that make the table grow.
pub(super) const LOAD: u64 = 5;
/// Splits or merges that one write may do.
const STEPS: usize = 2;
/// How many words may be free in a bucket that has an overflow chain: one, so that an entry that goes and another that comes do not
/// take a chain away and make it again.
pub(super) const SPARE: usize = 1;

impl<K, V> Table<K, V> {
    /// After an insert: splits while the table is too full, as far as one write may.
    #[inline]
    pub(super) fn grow(&self, state: &mut TableState<K, V>) {
        for _ in 0..STEPS {
            let buckets = self.extent().count();
            // A round of splits that has begun goes on to its end: buckets of twice the load of their neighbours would overflow.
            let unsplit = u64::from(1u32 << buckets.ilog2());
            if state.count <= unsplit * LOAD || buckets > 1 << 30 {
                break;
            }
            self.split(state);
        }
    }

    /// After a removal from `bucket`: brings its overflow chain back if there is room, and merges while the table is too empty, as far as
    /// one write may.
    #[inline]
    pub(super) fn shrink(&self, state: &mut TableState<K, V>, bucket: &Bucket<K, V>) {
        if bucket::is_link(bucket.words[LAST].load(Ordering::Acquire))
            && Self::free_words(bucket) > SPARE
        {
            self.compact(state, bucket);
        }
        for _ in 0..STEPS {
            let buckets = self.extent().count();
            if buckets <= self.base || state.count * 4 >= u64::from(buckets) * LOAD {
                break;
            }
            self.merge(state);
        }
    }

    /// How many words of the bucket itself hold nothing.
    pub(super) fn free_words(bucket: &Bucket<K, V>) -> usize {
        let free = |place: &&AtomicPtr<Node<K, V>>| place.load(Ordering::Acquire).is_null();
        bucket.words.iter().filter(free).count()
    }

    /// Adds one bucket and moves its share of the entries there.
    fn split(&self, state: &mut TableState<K, V>) {
        let before = self.extent();
        let index = before.count();
        let (segment, offset) = extent::place(index, self.base);
        if offset == 0 && self.segments[segment].load(Ordering::Acquire).is_null() {
            let fresh = TablePart::allocate(extent::size(segment, self.base));
            // Release, partner: `bucket`.
            self.segments[segment].store(fresh, Ordering::Release);
        }
        let fresh = self.owned(index);
        let buddy = self.owned(Extent::buddy(index));
        let moves = |hash: u64| hash & (1 << index.ilog2()) != 0;
        Self::scan(buddy, |_, word| {
            if bucket::is_node(word) {
                // The hashes are read one by one below; ask for all of them at once.
                Self::node(word).prefetch();
            }
            None::<()>
        });
        Self::scan(buddy, |_, word| {
            if bucket::is_node(word) {
                let hash = Self::node(word).hash();
                if moves(hash) {
                    Self::put(fresh, word);
                }
            }
            None::<()>
        });
        self.set_extent(before.next(index + 1));
        Self::scan(buddy, |place, word| {
            if bucket::is_node(word) && moves(Self::node(word).hash()) {
                place.store(ptr::null_mut(), Ordering::Release);
            }
            None::<()>
        });
        self.compact(state, buddy);
    }

    /// Takes the last bucket away; its entries go back to where they came from.
    fn merge(&self, state: &mut TableState<K, V>) {
        let before = self.extent();
        let last = before.count() - 1;
        let (from, to) = (self.owned(last), self.owned(Extent::buddy(last)));
        Self::scan(from, |_, word| {
            if bucket::is_node(word) {
                Self::put(to, word);
            }
            None::<()>
        });
        self.set_extent(before.next(last));
        for place in &from.words {
            let word = place.load(Ordering::Acquire);
            place.store(ptr::null_mut(), Ordering::Release);
            if bucket::is_link(word) {
                Self::retire_chain(state, word);
            }
        }
        self.compact(state, to);
        self.retire_segment(state);
    }

    /// Hands out the largest segment once the table is well below it.
    fn retire_segment(&self, state: &mut TableState<K, V>) {
        let count = self.extent().count();
        let (in_use, _) = extent::place(count - 1, self.base);
        let above = in_use + 1;
        if above >= SEGMENTS || in_use < 4 {
            return;
        }
        // The next segment would be needed `room` splits from now: far enough not to flap.
        let room = extent::first(above) - count;
        if room < extent::first(in_use) / 4 {
            return;
        }
        let at = self.segments[above].load(Ordering::Acquire);
        if !at.is_null() {
            self.segments[above].store(ptr::null_mut(), Ordering::Release);
            state.retired.push(TablePart {
                at,
                buckets: extent::size(above, self.base),
            });
        }
    }

    /// Moves entries from a bucket's overflow chain into free words of the bucket; drops an empty chain.
    fn compact(&self, state: &mut TableState<K, V>, bucket: &Bucket<K, V>) {
        let link = bucket.words[LAST].load(Ordering::Acquire);
        let Some(chain) = Self::linked(link) else {
            return;
        };
        let mut free = bucket.words[..LAST]
            .iter()
            .filter(|place| place.load(Ordering::Acquire).is_null());
        let mut moved = [ptr::null::<AtomicPtr<Node<K, V>>>(); WORDS];
        let mut moves = 0;
        let mut left = false;
        Self::scan(chain, |place, word| {
            if bucket::is_node(word) {
                match free.next() {
                    Some(to) => {
                        to.store(word, Ordering::Release);
                        moved[moves] = place;
                        moves += 1;
                    }
                    None => left = true,
                }
            }
            None::<()>
        });
        if moves > 0 {
            let extent = self.extent();
            self.set_extent(extent.next(extent.count()));
            for &place in &moved[..moves] {
                // SAFETY: a word of the chain, which is alive while the writer has the lock.
                unsafe { &*place }.store(ptr::null_mut(), Ordering::Release);
            }
        }
        if !left {
            bucket.words[LAST].store(ptr::null_mut(), Ordering::Release);
            Self::retire_chain(state, link);
        }
    }

    /// Hands out every bucket of an unlinked chain.
    pub(super) fn retire_chain(state: &mut TableState<K, V>, mut link: Word<K, V>) {
        while let Some(bucket) = Self::linked(link) {
            let at = bucket::linked(link);
            link = bucket.words[LAST].load(Ordering::Acquire);
            state.retired.push(TablePart { at, buckets: 1 });
        }
    }
}
