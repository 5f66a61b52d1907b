//! A table as readers see it, down to the word of its array, and the look-ups, which take no lock.
//!
//! # The word of an array
//!
//! An array has a power of two of groups, and the lowest bits of a hash number its group. Groups
//! are cache lines, so six low bits of the array's address are free. Five of them hold the
//! logarithm of its size; the sixth says that the table is *resizing*: its entries are moving to
//! another array. So one load tells a look-up all that it must know about the table.
//!
//! All this is pure arithmetic on addresses, except for [`Array::group`].
#![allow(unsafe_code)]

use super::group::{self, Group, Place};
use super::memory::{TableMemory, TableState};
use super::resize::Resize;
use crate::node::{NodePtr, Refused};
use crate::reclaim::Pin;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr;

/// The largest array has two to the power of this many groups.
pub(super) const MAX_LOG: u32 = 30;

/// The position after the last one of a visit; see [`Array::visit`].
pub(crate) const END: u64 = 1 << 32;

const LOG_MASK: usize = 31;
const RESIZING: usize = 32;

/// A table, as readers see it.
pub(in crate::map) struct Table<K, V> {
    /// The word of the array; see the module docs.
    pub(super) array: AtomicPtr<Group<K, V>>,
    /// Counts moves of entries.
    version: AtomicU64,
    /// While the word of the array says that the table is resizing: the array that entries move to,
    /// and how many units have moved; see `resize`.
    pub(super) next: AtomicPtr<Group<K, V>>,
    pub(super) moved: AtomicU64,
}

/// Where a look-up without the lock has found a node, so that the writer need not search again
/// under the lock. Valid as long as the pin is held.
pub(in crate::map) struct Seen<'a> {
    pub(super) version: u64,
    /// A word of the group that was the home under that version.
    pub(super) place: Option<Place<'a>>,
}

/// The result of one look at a group.
pub(crate) enum Look<T> {
    /// The node that was sought.
    Found(T),
    /// The key was not in the table at some moment of the call.
    Absent,
    /// One look does not decide.
    Retry,
}

impl<K, V> Table<K, V> {
    /// An empty table with room for `capacity` entries before it first grows.
    pub(in crate::map) fn new(capacity: usize) -> Result<(Self, TableState<K, V>), Refused> {
        let state = TableState::new(capacity);
        let array = Array::new(TableMemory::allocate(1 << state.least)?, state.least);
        let table = Self {
            array: AtomicPtr::new(array.0),
            version: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            moved: AtomicU64::new(0),
        };
        Ok((table, state))
    }

    /// Acquire, partner: the release store in `renew_version`.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Moves the version on. Only the holder of the lock calls it, so no other store comes between.
    ///
    /// Release, partner: `version`. A reader that sees this version sees the words and homes that
    /// were stored before it.
    pub(super) fn renew_version(&self) {
        let version = self.version.load(Ordering::Acquire);
        self.version.store(version + 1, Ordering::Release);
    }

    /// Acquire, partner: the release stores in `resize`.
    #[inline]
    pub(super) fn array(&self) -> Array<K, V> {
        Array(self.array.load(Ordering::Acquire))
    }

    /// Which array has a hash's home, if this is the word of the table's array; as exact as
    /// [`Resize::of`].
    #[inline]
    pub(super) fn home_array(&self, array: Array<K, V>, hash: u64) -> Array<K, V> {
        match Resize::of(self, array) {
            Some(resize) => resize.home(hash),
            None => array,
        }
    }

    /// How many units have yet to move. Exact while no writer moves any.
    pub(in crate::map) fn units_left(&self) -> u64 {
        match Resize::of(self, self.array()) {
            Some(resize) => resize.units().saturating_sub(resize.moved()),
            None => 0,
        }
    }

    /// Where the group of a hash stands, for a prefetch. A hint: by the time of its use, the group
    /// may be another one.
    pub(in crate::map) fn address(&self, hash: u64) -> *const Group<K, V> {
        self.array().address(hash).cast_const()
    }

    /// One look at the group of a hash, and what a writer may use of it; a look-up drops that part
    /// of the answer. It may call `matches` for a node of another key.
    ///
    /// No lock, no write.
    // Always inlined, as `find` is; rare cases are left to other functions. A hit takes a few dozen
    // instructions, and a call would cost as many again to save registers.
    #[inline(always)]
    pub(in crate::map) fn look<'a>(
        &'a self,
        hash: u64,
        _pin: &'a Pin,
        matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> (Look<NodePtr<K, V>>, Seen<'a>) {
        let mut seen = Seen {
            version: self.version(),
            place: None,
        };
        let array = self.array();
        if array.is_resizing() {
            return (Look::Retry, seen);
        }
        // SAFETY: the pin was there before the array's word was read.
        let group = unsafe { array.group(hash) };
        let tag = group::tag(hash);
        let Some(at) = group::words_with_tag(group, tag).next() else {
            // Words first, then the link, as in `search`.
            let is_whole = !group::is_link(group.last());
            return if is_whole && self.version() == seen.version {
                (Look::Absent, seen)
            } else {
                (Look::Retry, seen)
            };
        };
        let place = &group.words[at];
        match group::node_at(place, tag, matches) {
            Some(node) => {
                seen.place = Some(place);
                (Look::Found(node), seen)
            }
            None => (Look::Retry, seen),
        }
    }

    /// The node with this hash's tag that `matches` accepts. May call `matches` for nodes of other
    /// keys.
    ///
    /// No lock, no write. `matches` is user code; nothing of the table depends on what it does.
    #[inline(always)]
    pub(in crate::map) fn find<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> (Option<NodePtr<K, V>>, Seen<'a>) {
        let (looked, seen) = self.look(hash, pin, &mut matches);
        match looked {
            Look::Found(node) => (Some(node), seen),
            Look::Absent => (None, seen),
            Look::Retry => (self.find_settled(hash, matches), seen),
        }
    }

    /// The rest of [`find`](Self::find): the whole search, overflow chain included, until no node
    /// was moved during it.
    // By value: what `matches` knows stays in registers until then.
    #[cold]
    #[inline(never)]
    fn find_settled(
        &self,
        hash: u64,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<NodePtr<K, V>> {
        self.until_settled(hash, |_, group| {
            let (_, node) = group.search(hash, &mut matches)?;
            Some(node)
        })
    }

    /// Looks at the home of a hash, which is a group of this array, until an answer is found, or no
    /// node was moved meanwhile. Used with a pin or with the lock.
    fn until_settled<R>(
        &self,
        hash: u64,
        mut look: impl FnMut(Array<K, V>, &Group<K, V>) -> Option<R>,
    ) -> Option<R> {
        let mut version = self.version();
        loop {
            let array = self.array();
            let home = self.home_array(array, hash);
            // What says where the home is belongs together if the version has not changed (table
            // 5).
            if !array.is_resizing() || self.version() == version {
                // SAFETY: the pin, or the lock, was there before the array's word was read.
                let answer = look(home, unsafe { home.group(hash) });
                if answer.is_some() {
                    return answer;
                }
            }
            let again = self.version();
            if again == version {
                return None;
            }
            version = again;
        }
    }

    /// Gives the nodes of the group that holds `position`, from that position on, and returns the
    /// position behind the group.
    ///
    /// Used with a pin or with the lock. `out` is cleared first.
    pub(in crate::map) fn collect(&self, position: u32, out: &mut Vec<NodePtr<K, V>>) -> u64 {
        let mut next = 0;
        self.until_settled(u64::from(position.reverse_bits()), |array, group| {
            out.clear();
            next = array.visit(position).1;
            // All at once: one after the other, each would wait for the memory.
            group.each(|_, word| group::node::<K, V>(word).prefetch());
            group.each(|_, word| {
                let node = group::node::<K, V>(word);
                let at = position_of(node.hash());
                // A compaction under way may show a node twice, and a word that stayed behind may
                // name a node whose home is elsewhere now.
                if at >= position && u64::from(at) < next && !out.contains(&node) {
                    out.push(node);
                }
            });
            None::<()>
        });
        next
    }
}

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
pub(super) fn position_of(hash: u64) -> u32 {
    (hash as u32).reverse_bits()
}

#[cfg(test)]
mod tests;
