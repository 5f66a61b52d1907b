//! Memory of a table: how large its array is, and arrays and overflow groups from their allocation
//! until they are freed.
#![allow(unsafe_code)]

use super::group::{self, Group, WORDS, Word};
use super::look::Array;
use crate::node::{self, Refused};
use crate::sync::AtomicU64;
use std::alloc::{Layout, dealloc};
use std::num::NonZero;

/// Entries for each group, on average, above which the table grows.
pub(super) const MAX_LOAD: u64 = 5;

/// An array of so many groups, or more, is aligned here, not by the allocator. glibc maps such a
/// request without alignment as zeroed pages, which exist once they are written to. If it aligns
/// memory, it has to fill that with zeroes.
const ALIGNED_HERE: usize = 2048;

/// The alignment of groups.
const ALIGN: usize = align_of::<Group<(), ()>>();

/// The most groups of an array that an empty table has.
const MOST_GROUPS: u64 = 1 << 28;

/// The most entries for which an empty table has room: that of one shard.
pub(crate) const MOST_PER_SHARD: u64 = MAX_LOAD * MOST_GROUPS;

/// Bytes of the table for each entry, as an average over all sizes of a table that has grown. With
/// `MAX_LOAD` entries, a group needs the fewest bytes for each, with half as many the most: twice
/// that. The average of a quantity that falls so, over the number of entries, is `2 ln 2` times the
/// least. Overflow groups take 0.3 bytes more.
pub(in crate::map) const BYTES_PER_ENTRY: f64 =
    (8 * WORDS) as f64 / MAX_LOAD as f64 * 2.0 * std::f64::consts::LN_2 + 0.3;

/// The part of a table that only its writer uses. Its exclusive borrow is the right to write (table
/// 1).
pub(in crate::map) struct TableState<K, V> {
    /// The logarithm of the smallest array that the table may have.
    pub(super) least: u32,
    /// Unlinked memory that waits for its grace period.
    pub(in crate::map) retired: Vec<TableMemory<K, V>>,
}

impl<K, V> TableState<K, V> {
    /// Of an empty table with room for `capacity` entries before it first grows.
    pub(super) fn new(capacity: usize) -> Self {
        let groups = (capacity as u64).div_ceil(MAX_LOAD).next_power_of_two();
        Self {
            least: groups.clamp(1, MOST_GROUPS).ilog2(),
            retired: Vec::new(),
        }
    }

    /// Hands out an array that was unlinked.
    pub(super) fn retire_array(&mut self, array: Array<K, V>) {
        let groups = array.groups() as usize;
        self.retired.push(TableMemory::new(array.at(), groups));
    }

    /// Hands out every group of a chain that was unlinked. `link` is the word that linked the
    /// chain; any other word means that there was no chain.
    pub(super) fn retire_chain(&mut self, mut link: Word) {
        while let Some(group) = Group::<K, V>::linked(link) {
            self.retired
                .push(TableMemory::new(group::linked::<K, V>(link), 1));
            link = group.last();
        }
    }
}

/// Memory that left a table.
pub(crate) struct TableMemory<K, V> {
    at: *mut Group<K, V>,
    groups: NonZero<usize>,
}

// SAFETY: a TableMemory owns plain memory. It does not own the nodes that its words point to.
unsafe impl<K, V> Send for TableMemory<K, V> {}

impl<K, V> TableMemory<K, V> {
    /// Memory of this many groups that was unlinked.
    pub(super) fn new(at: *mut Group<K, V>, groups: usize) -> Self {
        let groups = NonZero::new(groups).expect("memory of a table has a group");
        Self { at, groups }
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.get()
    }

    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// Table 4: no pin taken before the memory was unlinked is still held.
    pub(crate) unsafe fn free(self) {
        let groups = self.groups();
        let mut begin = self.at.cast::<u8>();
        if groups >= ALIGNED_HERE {
            // SAFETY: `place` has written it there.
            begin = unsafe { begin.cast::<*mut u8>().sub(1).read() };
        }
        // SAFETY: `place` allocated it with the same count, so the same layout. No reader is left
        // (the caller).
        unsafe { dealloc(begin, Self::layout(groups)) }
    }

    fn layout(groups: usize) -> Layout {
        let aligned = Layout::array::<Group<K, V>>(groups);
        let layout = match aligned {
            Ok(aligned) if groups >= ALIGNED_HERE => {
                let size = aligned.size().saturating_add(ALIGN);
                Layout::from_size_align(size, align_of::<*mut u8>())
            }
            other => other,
        };
        layout.expect("an array fits the address space")
    }

    /// Memory for groups: zeroed, or uninitialised.
    fn place(groups: usize, zeroed: bool) -> Result<*mut Group<K, V>, Refused> {
        let begin = node::allocate(Self::layout(groups), zeroed)?.as_ptr();
        if groups < ALIGNED_HERE {
            return Ok(begin.cast());
        }
        let gap = ALIGN - begin.addr() % ALIGN;
        // SAFETY: there are `ALIGN` bytes more than the groups take. `gap` of them stand in front:
        // as many as an address takes, or a multiple of that, since the memory is aligned for one.
        unsafe {
            let at = begin.add(gap);
            // For `free`.
            at.cast::<*mut u8>().sub(1).write(begin);
            Ok(at.cast())
        }
    }

    /// Allocates groups whose words hold nothing.
    pub(super) fn allocate(groups: usize) -> Result<*mut Group<K, V>, Refused> {
        let at = Self::place(groups, true)?;
        // SAFETY: as many zeroed words as there is room for, owned by this call.
        unsafe { crate::sync::zero_words(at.cast(), groups * WORDS) };
        Ok(at)
    }

    /// Allocates groups that the caller [clears](Self::clear) before it uses them: under a shard's
    /// lock there is no time to write to all of them.
    pub(super) fn reserve(groups: usize) -> Result<*mut Group<K, V>, Refused> {
        Self::place(groups, false)
    }

    /// Makes all words of a group hold nothing.
    ///
    /// # Safety
    ///
    /// `at` points to memory for a group that no other code uses yet.
    pub(super) unsafe fn clear(at: *mut Group<K, V>) {
        // SAFETY: the caller's promise. All-zero is a valid group: eight words that hold nothing.
        unsafe {
            at.write_bytes(0, 1);
            crate::sync::zero_words(at.cast::<AtomicU64>(), WORDS);
        }
    }
}

#[cfg(all(test, not(any(wheelhouse_loom, wheelhouse_shuttle))))]
mod tests;
