//! A table's growth and shrinking, a few buckets with each write, and its overflow chains' way
//! back.
//!
//! # How it works
//!
//! When an insert finds more than [`LOAD`] entries a bucket, an array of twice as many buckets is
//! allocated; when a removal leaves fewer than a quarter of that, one of half as many. From then on
//! each insert or removal moves the entries of [`STEPS`] units there (`array`), and a run of the
//! pass those that are left, until the new array is the table's only one and the old one is handed
//! out to be freed.
//!
//! A unit moves under the eyes of readers: its entries' words are stored in the new array, then the
//! unit is said to have moved, then the version moves on (table 3). The old words stay as they are
//! (table 7).
//!
//! A removal that leaves more than [`SPARE`] words of a bucket free beside its overflow chain
//! brings entries of the chain back, and drops the chain once it is empty: new words stored,
//! version on, old words nulled.
//!
//! # Invariants
//!
//! Those of `table`: all this is the writer's (table 1), homes and words change in the order of
//! table 3, memory that was unlinked is handed out to be freed later (table 4), what belongs
//! together is read together (table 5), and every write ends with table 6 true for the homes that
//! it touched.
//!
//! # Cost
//!
//! At most [`STEPS`] units a write, so there is no long pause at any size: the largest single step
//! is the freeing of an array, once each time the table doubles or halves. A new one is room and no
//! more: its buckets are cleared unit by unit. A unit that is split reads the hashes of one
//! bucket's entries, from the nodes' side parts, and asks for those of all units of a write before
//! it reads the first; a unit that comes together reads no node.
//!
//! An array of `2n` buckets is complete `n / STEPS` inserts after it was allocated and too full
//! `5n` inserts after that, so one move has always ended before the next begins.
//!
//! Origin: resizing a hash table a few buckets at a time, so that no operation pays for all of it,
//! is as old as P.-Å. Larson, "Dynamic hash tables", CACM 31(4), 1988, and known from Redis;
//! readers who take no lock are this crate's addition.
#![allow(unsafe_code)]

use super::{Table, TablePart, TableState};
use crate::map::array::{Array, MOST};
use crate::map::bucket::{self, Bucket, LAST, WORDS, Word};
use crate::node::{self, Node};
use crate::sync::{AtomicPtr, Ordering};
use std::num::NonZero;
use std::ptr;

/// Entries a bucket that make the table grow.
pub(super) const LOAD: u64 = 5;
/// Lots that one write moves: fewer in models, so that they can look into the midst of it.
const STEPS: usize = if cfg!(wheelhouse_loom) { 1 } else { 4 };
/// How many words may be free in a bucket that has an overflow chain: one, so that an entry that
/// goes and another that comes do not take a chain away and make it again.
pub(super) const SPARE: usize = 1;

impl<K, V> Table<K, V> {
    /// Before an insert: begins to grow if the table will be too full. Here an array may be refused
    /// that does not fit the tags, while the table is as it was (table 9).
    #[inline]
    pub(in crate::map) fn make_room(&self, state: &mut TableState<K, V>) {
        let array = self.array();
        if !array.is_resizing()
            && state.count >= u64::from(array.buckets()) * LOAD
            && array.log() < MOST
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
            && (state.count - 1) * 4 < u64::from(array.buckets()) * LOAD
            && array.log() > state.least
        {
            self.begin(array.log() - 1);
        }
    }

    /// After an insert or a removal: moves what one write may.
    #[inline]
    pub(super) fn after_write(&self, state: &mut TableState<K, V>) {
        if self.array().is_resizing() {
            self.resize_step(state, STEPS);
        }
    }

    /// After a removal from `bucket`: brings entries of its overflow chain back if there is room.
    #[inline]
    pub(super) fn relieve(&self, state: &mut TableState<K, V>, bucket: &Bucket<K, V>) {
        if bucket::is_link(bucket.words[LAST].load(Ordering::Acquire))
            && Self::free_words(bucket) > SPARE
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

    /// Whether entries are resizing from array to array.
    #[inline]
    pub(in crate::map) fn is_resizing(&self) -> bool {
        self.array().is_resizing()
    }

    /// How many words of the bucket itself hold nothing.
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
        // Before `next` and `moved`, of which a reader may still believe that they belong to an
        // earlier move (table 5).
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
        // What memory is asked for one thing at a time keeps the lock for as long: so for the next
        // call's buckets now, and for the hashes that this one will look at.
        for unit in end..all.min(end + units as u64) {
            array.each_of_lot(next, unit, |at| node::prefetch(at.cast_const()));
        }
        if grows {
            for unit in begun..end {
                self.prefetch_nodes(array, next, unit);
            }
        }
        for unit in begun..end {
            self.move_lot(array, next, unit);
        }
        // Release, partner: `either`: whoever is told that a unit has moved finds its entries.
        self.moved.store(end, Ordering::Release);
        // Once for all of them: each time, look-ups under way that find nothing start over.
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
                // SAFETY: an array is the table's until all units have moved out of it, for the
                // holder of the lock, who alone comes here.
                unsafe { Self::bucket(array, number) }
            })
    }

    /// Asks the processor for the nodes of a unit.
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
    fn move_lot(&self, array: Array<K, V>, next: Array<K, V>, unit: u64) {
        let grows = next.log() > array.log();
        next.each_of_lot(array, unit, |at| {
            // SAFETY: table 8: nobody uses the buckets of a unit that has not moved, and this is
            // its one move.
            unsafe { TablePart::clear(at) };
        });
        // Where the last entry went, so that of a long chain each is met once.
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

    /// Hands out every bucket of an unlinked chain.
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
            assert!(state.count <= u64::from(array.buckets()) * LOAD, "too full");
        }
    }
}
