//! How a table grows and shrinks, a few groups with each write.
//!
//! # How it works
//!
//! | state | the mark in the array's word | `next` and `moved` | the home of a hash is in |
//! |---|---|---|---|
//! | *settled* | not set | not read | the array |
//! | *resizing* | set | the array that entries move to; the units that have moved | `next` if the unit of the hash has moved, else the array |
//!
//! | from | to | when | what the writer does |
//! |---|---|---|---|
//! | settled | resizing | an insert would make more than [`MAX_LOAD`](super::memory::MAX_LOAD) entries for each group, or a removal would leave fewer than a quarter of that | [`Table::begin`]: allocates an array of twice or half as many groups |
//! | resizing | resizing | each insert or removal, and each pass of a run | [`Resize::step`]: moves the entries of some units |
//! | resizing | settled | the step that moves the last unit | the new array is the only one of the table; the old one is handed out to be freed |
//!
//! A *unit* moves in one piece from one array to the other. It is one group of the smaller array,
//! and the groups of the larger array to which the same hashes belong.
//!
//! Readers may look at a unit while it moves (table 3); the old words stay as they are (table 7).
//!
//! # Invariants
//!
//! Those of `table`. All this is done by the writer (table 1); readers ask [`Resize::home`] only.
//! Homes change in the order of table 3, unlinked memory is handed out to be freed later (table 4),
//! and values that are read together belong together (table 5).
//!
//! # Cost
//!
//! A write moves at most `UNITS_PER_WRITE` (`writer`) units, so there is no
//! long pause at any size. The largest single step is freeing an array, once each time the table
//! doubles or halves. A new array is not initialised at once: its groups are cleared unit by unit.
//! To split a unit, the writer reads the hashes of one group's entries from the side parts of their
//! nodes. It prefetches those of all units of a write before it reads the first. To join a unit, it
//! reads no node.
//!
//! Origin: resizing a hash table a few groups at a time, so that no operation pays for all of it:
//! P.-Å. Larson, "Dynamic hash tables", CACM 31(4), 1988; also known from Redis.
#![allow(unsafe_code)]

use super::group::{self, Group};
use super::look::{Array, Table};
use super::memory::{TableMemory, TableState};
use crate::node;
use crate::sync::Ordering;

/// A resize in progress.
pub(super) struct Resize<'a, K, V> {
    table: &'a Table<K, V>,
    from: Array<K, V>,
    /// The array that entries move to.
    pub(super) to: Array<K, V>,
}

impl<'a, K, V> Resize<'a, K, V> {
    /// The resize that moves entries out of the table's array, if there is one.
    ///
    /// Exact for the holder of the lock. A reader may rely on it, and on the [`home`](Self::home)
    /// that it names, if the version is the same before and after (table 5).
    #[inline]
    pub(super) fn of(table: &'a Table<K, V>, from: Array<K, V>) -> Option<Self> {
        if !from.is_resizing() {
            return None;
        }
        // Acquire, partner: the release store in `begin`.
        let to = Array(table.next.load(Ordering::Acquire));
        Some(Self { table, from, to })
    }

    /// Which of the two arrays has a hash's home.
    pub(super) fn home(&self, hash: u64) -> Array<K, V> {
        let moved = self.moved();
        let unit = u64::from(self.from.index(hash).min(self.to.index(hash)));
        if unit < moved { self.to } else { self.from }
    }

    /// How many units have moved. Acquire, partners: the release stores in `begin` and `step`. A
    /// reader that sees a unit as moved sees its entries in the new array.
    pub(super) fn moved(&self) -> u64 {
        self.table.moved.load(Ordering::Acquire)
    }

    /// How many units there are.
    pub(super) fn units(&self) -> u64 {
        u64::from(self.from.groups().min(self.to.groups()))
    }

    fn grows(&self) -> bool {
        self.to.log() > self.from.log()
    }

    /// The numbers of the groups that a unit has in one of the two arrays.
    fn numbers(&self, array: Array<K, V>, unit: u64) -> impl Iterator<Item = u64> {
        let log = self.from.log().min(self.to.log());
        (0..1 << (array.log() - log)).map(move |nth: u64| unit + (nth << log))
    }

    /// The groups that a unit has in one of the two arrays. For the holder of the lock.
    fn groups(&self, array: Array<K, V>, unit: u64) -> impl Iterator<Item = &'a Group<K, V>> {
        self.numbers(array, unit).map(move |number| {
            // SAFETY: both arrays belong to the table until all units have moved, and only the
            // holder of the lock comes here.
            unsafe { array.group(number) }
        })
    }

    /// Moves up to this number of units, and ends with the last one.
    #[inline(never)]
    pub(super) fn step(&self, state: &mut TableState<K, V>, units: u64) {
        let begun = self.moved();
        let all = self.units();
        let end = all.min(begun.saturating_add(units));
        // Prefetch the groups of the next call, and the hashes that this call will read: misses
        // one after the other would keep the lock for long.
        for unit in end..all.min(end.saturating_add(units)) {
            for number in self.numbers(self.from, unit) {
                node::prefetch(self.from.address(number).cast_const());
            }
        }
        if self.grows() {
            for from in (begun..end).flat_map(|unit| self.groups(self.from, unit)) {
                from.each(|_, word| group::node::<K, V>(word).prefetch_side());
            }
        }
        for unit in begun..end {
            self.move_unit(unit);
        }
        // Release, partner: `moved`.
        self.table.moved.store(end, Ordering::Release);
        // Once for all units: each new version makes look-ups that find nothing start over.
        self.table.renew_version();
        for from in (begun..end).flat_map(|unit| self.groups(self.from, unit)) {
            state.retire_chain(from.last());
        }
        if end == all {
            // Release, partner: `Table::array`.
            self.table.array.store(self.to.0, Ordering::Release);
            state.retire_array(self.from);
        }
    }

    /// Stores the words of a unit in the next array.
    fn move_unit(&self, unit: u64) {
        for number in self.numbers(self.to, unit) {
            // SAFETY: table 8: no code uses the groups of a unit before it moves, and a unit moves
            // once.
            unsafe { TableMemory::clear(self.to.address(number)) };
        }
        // A tail is the group that the last entry went to, so that a long chain is walked once.
        let mut homes = self.groups(self.to, unit);
        let lower = homes.next().expect("a unit is never empty");
        let mut tails = [lower, homes.next().unwrap_or(lower)];
        // The bit of a hash that chooses between two homes.
        let bit = if self.grows() {
            1 << self.from.log()
        } else {
            0
        };
        for from in self.groups(self.from, unit) {
            from.each(|_, word| {
                let tail = &mut tails[usize::from(group::node::<K, V>(word).hash() & bit != 0)];
                *tail = tail.put(word);
            });
        }
    }
}

#[cfg(test)]
mod tests;
