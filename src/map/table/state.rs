//! The fields of a table: the words that readers see, and the part of its writer.

use super::array::Array;
use super::group::{self, Group, Word};
use super::memory::TablePart;
use crate::node;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr;

/// Entries for each group, on average, above which the table grows.
pub(super) const MAX_LOAD: u64 = 5;

/// Bytes of the table for each entry, as an average over all sizes of a table that has grown. With
/// `MAX_LOAD` entries, a group needs the fewest bytes for each, with half as many the most: twice
/// that. The average of a quantity that falls so, over the number of entries, is `2 ln 2` times the
/// least. Overflow groups take 0.3 bytes more.
pub(in crate::map) const BYTES_PER_ENTRY: f64 =
    (8 * group::WORDS) as f64 / MAX_LOAD as f64 * 2.0 * std::f64::consts::LN_2 + 0.3;

/// A table, as readers see it.
#[repr(align(128))]
pub(in crate::map) struct Table<K, V> {
    /// The word of the array; see `array`.
    pub(super) array: AtomicPtr<Group<K, V>>,
    /// Counts moves of entries.
    pub(super) version: AtomicU64,
    /// While the word of the array says that the table is resizing: the array that entries move to,
    /// and how many units have moved; see `resize`.
    pub(super) next: AtomicPtr<Group<K, V>>,
    pub(super) moved: AtomicU64,
}

/// The part of a table that only its writer uses. Its exclusive borrow is the right to write (table
/// 1).
pub(in crate::map) struct TableState<K, V> {
    pub(super) count: u64,
    /// The logarithm of the smallest array that the table may have.
    pub(super) least: u32,
    /// Unlinked memory that waits for its grace period.
    pub(in crate::map) retired: Vec<TablePart<K, V>>,
}

impl<K, V> TableState<K, V> {
    fn new(least: u32) -> Self {
        Self {
            count: 0,
            least,
            retired: Vec::new(),
        }
    }

    /// Hands out an array that was unlinked.
    pub(super) fn retire_array(&mut self, array: Array<K, V>) {
        let groups = array.groups() as usize;
        self.retired.push(TablePart::new(array.at(), groups));
    }

    /// Hands out every group of a chain that was unlinked. `link` is the word that linked the
    /// chain; any other word means that there was no chain.
    pub(super) fn retire_chain(&mut self, mut link: Word<K, V>) {
        while let Some(group) = Group::linked(link) {
            self.retired.push(TablePart::new(group::linked(link), 1));
            link = group.last();
        }
    }
}

impl<K, V> Table<K, V> {
    /// An empty table with room for `capacity` entries before it first grows.
    pub(in crate::map) fn new(capacity: usize) -> (Self, TableState<K, V>) {
        let least = least(capacity);
        let array = Array::new(TablePart::allocate(1 << least), least);
        let table = Self {
            array: AtomicPtr::new(array.as_raw()),
            version: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            moved: AtomicU64::new(0),
        };
        (table, TableState::new(least))
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
        Array::from_raw(self.array.load(Ordering::Acquire))
    }

    /// Whether entries are moving from one array to another.
    #[inline]
    pub(in crate::map) fn is_resizing(&self) -> bool {
        self.array().is_resizing()
    }

    /// Prefetches the group of a hash. A hint: the group may be another one by the time of its
    /// use.
    pub(in crate::map) fn prefetch(&self, hash: u64) {
        node::prefetch(self.array().address(hash));
    }
}

/// The logarithm of the smallest array that has room for `capacity` entries.
fn least(capacity: usize) -> u32 {
    (capacity as u64)
        .div_ceil(MAX_LOAD)
        .next_power_of_two()
        .clamp(1, 1 << 28)
        .ilog2()
}
