//! How a table grows and shrinks, a few buckets with each write, and how overflow chains go away.
//!
//! # How it works
//!
//! When an insert would make more than [`MAX_LOAD`] entries for each bucket, the writer allocates
//! an array of twice as many buckets. When a removal would leave fewer than a quarter of that, it
//! allocates one of half as many. From then on each insert or removal moves the entries of
//! [`UNITS_PER_WRITE`] units there (`array`), and a maintenance run moves the rest. Then the new
//! array is the only one of the table, and the old one is handed out to be freed.
//!
//! Readers may look at a unit while it moves: the writer stores the words of its entries in the new
//! array, then says that the unit has moved, then moves the version on (table 3). The old words
//! stay as they are (table 7).
//!
//! A removal that leaves more than [`FREE_WORDS_BESIDE_CHAIN`] words of a bucket free beside its
//! overflow chain brings entries of the chain back, and drops the chain when it is empty: store the
//! new words, move the version on, null the old words.
//!
//! # Invariants
//!
//! Those of `table`. All this is done by the writer (table 1). Homes and words change in the order
//! of table 3, unlinked memory is handed out to be freed later (table 4), values that are read
//! together belong together (table 5), and after every write table 6 holds for the homes that it
//! touched.
//!
//! # Cost
//!
//! A write moves at most [`UNITS_PER_WRITE`] units, so there is no long pause at any size. The
//! largest single step is freeing an array, once each time the table doubles or halves. A new array
//! is not initialised at once: its buckets are cleared unit by unit. To split a unit, the writer
//! reads the hashes of one bucket's entries from the side parts of their nodes; it prefetches those
//! of all units of a write before it reads the first. To join a unit, it reads no node.
//!
//! A move to `2n` buckets ends before the next can begin: it takes `n / UNITS_PER_WRITE` inserts,
//! and the next starts `5n` inserts after the move began.
//!
//! Origin: resizing a hash table a few buckets at a time, so that no operation pays for all of it:
//! P.-Å. Larson, "Dynamic hash tables", CACM 31(4), 1988; also known from Redis. Readers that take
//! no lock are this crate's addition.
#![allow(unsafe_code)]

use super::{Table, TablePart, TableState};
use crate::map::array::{Array, MAX_LOG};
use crate::map::bucket::{self, Bucket, LAST, WORDS, Word};
use crate::node::{self, Node};
use crate::sync::{AtomicPtr, Ordering};
use std::num::NonZero;
use std::ptr;

/// Entries for each bucket, on average, above which the table grows.
pub(super) const MAX_LOAD: u64 = 5;
/// Units that one write moves. Fewer in models, so that they can look into the middle of a move.
const UNITS_PER_WRITE: usize = if cfg!(wheelhouse_loom) { 1 } else { 4 };
/// How many words may be free in a bucket that has an overflow chain. One, so that a removal and an
/// insert in turns do not drop a chain and make it again.
pub(super) const FREE_WORDS_BESIDE_CHAIN: usize = 1;

impl<K, V> Table<K, V> {
    /// Before an insert: begins to grow if the table would be too full. Panics if the new array
    /// does not fit the tags; the table is then as it was (table 9).
    #[inline]
    pub(in crate::map) fn make_room(&self, state: &mut TableState<K, V>) {
        let array = self.array();
        if !array.is_resizing()
            && state.count >= u64::from(array.buckets()) * MAX_LOAD
            && array.log() < MAX_LOG
        {
            self.begin(array.log() + 1);
        }
    }

    /// Before a removal: begins to shrink if the table will be too empty; see
    /// [`make_room`](Self::make_room).
    #[inline]
    pub(super) fn give_up_room(&self, state: &mut TableState<K, V>) {
        let array = self.array();
        if !array.is_resizing()
            && (state.count - 1) * 4 < u64::from(array.buckets()) * MAX_LOAD
            && array.log() > state.least
        {
            self.begin(array.log() - 1);
        }
    }

    /// After an insert or a removal: moves what one write may.
    #[inline]
    pub(super) fn after_write(&self, state: &mut TableState<K, V>) {
        if self.array().is_resizing() {
            self.resize_step(state, UNITS_PER_WRITE);
        }
    }

    /// After a removal from `bucket`: brings entries of its overflow chain back if there is room.
    #[inline]
    pub(super) fn relieve(&self, state: &mut TableState<K, V>, bucket: &Bucket<K, V>) {
        if bucket::is_link(bucket.words[LAST].load(Ordering::Acquire))
            && Self::free_words(bucket) > FREE_WORDS_BESIDE_CHAIN
        {
            self.compact(state, bucket);
        }
    }

    /// How many units have yet to move. For the holder of the lock.
    pub(in crate::map) fn units_left(&self, _state: &mut TableState<K, V>) -> u64 {
        let array = self.array();
        if !array.is_resizing() {
            return 0;
        }
        let next = Array::from_raw(self.next.load(Ordering::Acquire));
        u64::from(array.units(next)) - self.moved.load(Ordering::Acquire)
    }

    /// Whether entries are moving from one array to another.
    #[inline]
    pub(in crate::map) fn is_resizing(&self) -> bool {
        self.array().is_resizing()
    }

    /// How many words of the bucket itself are free.
    pub(super) fn free_words(bucket: &Bucket<K, V>) -> usize {
        let free = |place: &&AtomicPtr<Node<K, V>>| place.load(Ordering::Acquire).is_null();
        bucket.words.iter().filter(free).count()
    }

    /// Allocates the array that entries will move to.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn begin(&self, log: u32) {
        let array = self.array();
        let next = Array::new(TablePart::reserve(1 << log), log);
        // Before `next` and `moved` change: a reader may still use them for an earlier move (table
        // 5).
        self.renew_version();
        // Release, partners: `either` and `array`.
        self.next.store(next.as_raw(), Ordering::Release);
        self.moved.store(0, Ordering::Release);
        self.array
            .store(array.resizing().as_raw(), Ordering::Release);
    }

    /// Moves up to so many units, if entries are resizing.
    #[cold]
    #[inline(never)]
    pub(in crate::map) fn resize_step(&self, state: &mut TableState<K, V>, units: usize) {
        let array = self.array();
        if !array.is_resizing() {
            return;
        }
        let next = Array::from_raw(self.next.load(Ordering::Acquire));
        let begun = self.moved.load(Ordering::Acquire);
        let all = u64::from(array.units(next));
        let end = all.min(begun + units as u64);
        let grows = next.log() > array.log();
        // Prefetch the buckets of the next call, and the hashes that this call will read: misses
        // one after the other would keep the lock for long.
        for unit in end..all.min(end + units as u64) {
            array.each_of_unit(next, unit, |at| node::prefetch(at.cast_const()));
        }
        if grows {
            for unit in begun..end {
                self.prefetch_nodes(array, next, unit);
            }
        }
        for unit in begun..end {
            self.move_unit(array, next, unit);
        }
        // Release, partner: `either`. A reader that sees a unit as moved finds its entries.
        self.moved.store(end, Ordering::Release);
        // Once for all units: each new version makes look-ups that find nothing start over.
        self.renew_version();
        for unit in begun..end {
            for from in self.unit(array, next, unit) {
                Self::retire_chain(state, from.words[LAST].load(Ordering::Acquire));
            }
        }
        if end == all {
            // Release, partner: `array`.
            self.array.store(next.as_raw(), Ordering::Release);
            Self::retire_array(state, array);
        }
    }

    /// The buckets of a unit in the first of two arrays, both of this table.
    fn unit(
        &self,
        array: Array<K, V>,
        other: Array<K, V>,
        unit: u64,
    ) -> impl Iterator<Item = &Bucket<K, V>> {
        let units = array.units(other) as usize;
        (unit..u64::from(array.buckets()))
            .step_by(units)
            .map(move |number| {
                // SAFETY: an array belongs to the table until all units have moved out of it, and
                // only the holder of the lock comes here.
                unsafe { Self::bucket(array, number) }
            })
    }

    /// Prefetches the nodes of a unit.
    fn prefetch_nodes(&self, array: Array<K, V>, next: Array<K, V>, unit: u64) {
        for from in self.unit(array, next, unit) {
            Self::scan(from, |_, word| {
                if bucket::is_node(word) {
                    Self::node(word).prefetch_side();
                }
                None::<()>
            });
        }
    }

    /// Stores the words of a unit in the next array.
    fn move_unit(&self, array: Array<K, V>, next: Array<K, V>, unit: u64) {
        let grows = next.log() > array.log();
        next.each_of_unit(array, unit, |at| {
            // SAFETY: table 8: no code uses the buckets of a unit before it moves, and a unit moves
            // once.
            unsafe { TablePart::clear(at) };
        });
        // The bucket that the last entry went to, so that a long chain is walked once.
        let mut homes = self.unit(next, array, unit);
        let lower = homes.next().expect("a unit is never empty");
        let mut tails = [lower, homes.next().unwrap_or(lower)];
        for from in self.unit(array, next, unit) {
            Self::scan(from, |_, word| {
                if bucket::is_node(word) {
                    let upper = grows && Self::node(word).hash() >> array.log() & 1 != 0;
                    let tail = &mut tails[usize::from(upper)];
                    *tail = Self::put(tail, word);
                }
                None::<()>
            });
        }
    }

    /// Moves entries from a bucket's overflow chain into free words of the bucket; drops an empty
    /// chain.
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
            self.renew_version();
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

    /// Hands out every bucket of a chain that was unlinked.
    pub(super) fn retire_chain(state: &mut TableState<K, V>, mut link: Word<K, V>) {
        while let Some(bucket) = Self::linked(link) {
            let at = bucket::linked(link);
            link = bucket.words[LAST].load(Ordering::Acquire);
            state.retired.push(TablePart {
                at,
                buckets: NonZero::<usize>::MIN,
            });
        }
    }

    /// Hands out an array that was unlinked.
    pub(super) fn retire_array(state: &mut TableState<K, V>, array: Array<K, V>) {
        state.retired.push(TablePart {
            at: array.at(),
            buckets: NonZero::new(array.buckets() as usize).expect("an array has a bucket"),
        });
    }

    /// Asserts that the arrays are as large as they may be, for the entries in them.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_arrays(&self, state: &TableState<K, V>) {
        let array = self.array();
        assert!(array.log() >= state.least);
        if array.is_resizing() {
            let next = Array::from_raw(self.next.load(Ordering::Acquire));
            let moved = self.moved.load(Ordering::Acquire);
            assert!(moved < u64::from(array.units(next)), "moved and not ended");
            assert_eq!(array.log().abs_diff(next.log()), 1);
            assert!(next.log() >= state.least);
        } else {
            assert!(
                state.count <= u64::from(array.buckets()) * MAX_LOAD,
                "too full"
            );
        }
    }
}
