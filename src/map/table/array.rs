//! The array of a table: its address, its size, and whether entries are leaving it, in one word.
//!
//! # How it works
//!
//! An array has a power of two of groups, and the lowest bits of a hash number its group. Groups
//! are cache lines, so six low bits of the array's address are free. Five of them hold the
//! logarithm of its size; the sixth says that the table is *resizing*: its entries are moving to
//! another array. So a look-up learns all that it must know about the table by one load, and
//! reaches its group a few instructions later.
//!
//! Everything here is pure arithmetic on addresses, except for [`Array::group`].
#![allow(unsafe_code)]

use super::group::Group;

/// The largest array has two to the power of this many groups.
pub(super) const MAX_LOG: u32 = 30;

/// The position after the last one of a visit; see [`Array::visit`].
pub(crate) const END: u64 = 1 << 32;

const LOG_MASK: usize = 31;
const RESIZING: usize = 32;

/// An array of groups by its word; see the module docs.
pub(super) struct Array<K, V>(pub(super) *mut Group<K, V>);

impl<K, V> Clone for Array<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Array<K, V> {}

impl<K, V> PartialEq for Array<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.at() == other.at()
    }
}

impl<K, V> Array<K, V> {
    /// The array of `1 << log` groups at this address, in a table that is not resizing.
    pub(super) fn new(at: *mut Group<K, V>, log: u32) -> Self {
        debug_assert!(log <= MAX_LOG && at.addr() & (LOG_MASK | RESIZING) == 0);
        Self(at.map_addr(|at| at | log as usize))
    }

    /// This array, in a table whose entries are leaving it.
    pub(super) fn resizing(self) -> Self {
        Self(self.0.map_addr(|word| word | RESIZING))
    }

    #[inline]
    pub(super) fn is_resizing(self) -> bool {
        self.0.addr() & RESIZING != 0
    }

    /// Its address, without the other bits of the word.
    #[inline]
    pub(super) fn at(self) -> *mut Group<K, V> {
        self.0.map_addr(|word| word & !(LOG_MASK | RESIZING))
    }

    pub(super) fn log(self) -> u32 {
        (self.0.addr() & LOG_MASK) as u32
    }

    /// How many groups it has.
    pub(super) fn groups(self) -> u32 {
        1 << self.log()
    }

    /// The number of the group that a hash belongs to.
    #[inline]
    pub(super) fn index(self, hash: u64) -> u32 {
        // A shift uses five bits only, those of the logarithm. `wrapping_shl` says so, which saves
        // an instruction.
        let groups = 1u32.wrapping_shl(self.0.addr() as u32);
        hash as u32 & (groups - 1)
    }

    /// The group that a hash belongs to.
    ///
    /// # Safety
    ///
    /// The caller is pinned or has the lock, and has been since before it read the array's word
    /// (table 4).
    #[inline]
    pub(super) unsafe fn group<'a>(self, hash: u64) -> &'a Group<K, V> {
        // SAFETY: an array has as many groups as its word says, and it is not freed while the
        // caller is pinned or has the lock.
        unsafe { &*self.address(hash) }
    }

    /// The address of the group that a hash belongs to.
    #[inline]
    pub(super) fn address(self, hash: u64) -> *mut Group<K, V> {
        self.at().wrapping_add(self.index(hash) as usize)
    }

    /// The group that holds a position of a visit, by its number, and the first position behind
    /// that group.
    pub(super) fn visit(self, position: u32) -> (u32, u64) {
        let index = self.index(u64::from(position.reverse_bits()));
        let width = END >> self.log();
        let start = u64::from(position) & !(width - 1);
        (index, start + width)
    }
}

/// Where a hash stands in the order in which a table is visited.
///
/// Entries move from array to array. But in the order of the reversed low bits, the entries of a
/// group are neighbours whatever the size of the array. So a visit that continues from a position
/// meets each entry that stays in the table once, though the table grows or shrinks meanwhile.
#[inline]
pub(super) fn position(hash: u64) -> u32 {
    (hash as u32).reverse_bits()
}

#[cfg(test)]
mod tests;
