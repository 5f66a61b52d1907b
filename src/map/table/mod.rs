//! The table of one shard: look-ups without a lock, one writer at a time, growth in small steps.
//!
//! # How it works
//!
//! | file | what it has |
//! |---|---|
//! | this one | [`Table`]: what readers see of a table, and their look-ups |
//! | `array` | the array of buckets, whose address, size and mark stand in one word |
//! | `bucket`, `tags` | eight words on one cache line, and the overflow chain behind them |
//! | `writer` | [`Writer`]: what the holder of the shard's lock changes |
//! | `resize` | [`Resize`]: how entries move to a larger or a smaller array |
//! | `memory` | [`TablePart`]: memory of arrays and overflow buckets |
//!
//! A look-up reads the version and the array's word, compares the tags of the eight words of one
//! bucket, and goes through the bucket's overflow chain if it has one. If it finds nothing, it
//! reads the version again. The same version means that no node was moved meanwhile, so the miss is
//! true; else the look-up starts over. A hit needs no second reading: a word of a home is nulled no
//! later than its node leaves, and a hit on a word that stayed behind is true as well (table 7).
//! The *home* of a hash is the bucket that its entries stand in. While the table resizes, there are
//! two arrays, and the home is in one of them. The look-up asks in which, and believes the answer
//! if the version is the same afterwards (table 5).
//!
//! [`Table::look`] examines one bucket, once. If that does not decide, the answer is *unclear*.
//! [`Table::find`] always decides.
//!
//! # Invariants
//!
//! 1. Only the holder of `&mut TableState`, which is in the shard's lock, writes words, arrays or
//!    the version.
//! 2. A node in the table stands in exactly one word of its hash's home. During a compaction it
//!    stands in at most two.
//! 3. A change of a hash's home, or of a node's word within it, has a fixed order: store the new
//!    words (release); store where the home is now, if that changes; move the version on (release);
//!    only then null an old word of the same home. So take a reader that reads the version, looks
//!    into the home and misses a node that stays in the table. When it reads the version again, it
//!    sees another one: what made it miss was stored after the version moved on.
//! 4. An array or overflow bucket that was unlinked is handed out as [`TablePart`], and freed only
//!    after a grace period.
//! 5. `next` and `moved` are stored before `array` says that the table is resizing, and not again
//!    before another version. So a reader that reads them between two readings of the same version
//!    has read values that belong together.
//! 6. A bucket with an overflow chain has at most
//!    [`FREE_WORDS_BESIDE_CHAIN`](writer::FREE_WORDS_BESIDE_CHAIN) free words of its own. So a
//!    chain goes when the entries that needed it have gone, though the table neither grows nor
//!    shrinks.
//! 7. Words that name nodes stay behind where entries have moved away: in a bucket of the former
//!    array, and in its overflow chain. A reader that meets such a word learned of that home before
//!    the entries moved, so its search began before that, and then the node was in the table. So at
//!    a moment within the call the hit was true, though the node may have been removed or replaced
//!    since: such a hit is like one that returned just before the removal. That node is not freed
//!    meanwhile, since the reader was pinned when it left the map (node 1). The reader does
//!    not believe a miss there, since the move has moved the version on.
//! 8. A bucket of the array that entries are moving to is uninitialised until its unit moves; the
//!    move clears it first. No reader looks into it as a home before `moved` says so (table 5).
//! 9. Memory for a growing or shrinking table is allocated before the write that needs it changes
//!    anything a reader can see. If the address does not fit the tags, the allocation panics there,
//!    and the table is as it was.
//!
//! # Cost
//!
//! A look-up touches one line of a bucket and one node. In a table that has grown, a bucket of 64
//! bytes serves [`MAX_LOAD`](resize::MAX_LOAD) entries on average, or down to half as many,
//! whatever the size; if entries have left, down to a quarter of that. The former array is freed a
//! grace period after the last entry has moved. A writer holds the shard's lock for one bucket, and
//! for a few more while the table resizes.
#![allow(unsafe_code)]

mod array;
mod bucket;
mod memory;
mod resize;
mod tags;
mod writer;

use crate::node::NodePtr;
use crate::reclaim::Pin;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use array::Array;
pub(super) use bucket::Place;
use bucket::{Bucket, LAST};
pub(crate) use memory::TablePart;
use resize::Resize;
use std::ptr;
pub(super) use writer::{Home, TableState, Writer};

/// A table, as readers see it.
#[repr(align(128))]
pub(super) struct Table<K, V> {
    /// The word of the array; see `array`.
    array: AtomicPtr<Bucket<K, V>>,
    /// Counts moves of entries.
    version: AtomicU64,
    /// While the word of the array says that the table is resizing: the array that entries move to,
    /// and how many units have moved; see `resize`.
    next: AtomicPtr<Bucket<K, V>>,
    moved: AtomicU64,
}

/// Where a look-up without a lock has looked, so that its writer need not compute that again under
/// the lock. Valid as long as the pin is held.
pub(super) struct Seen<'a, K, V> {
    version: u64,
    /// The bucket of the hash under that version.
    bucket: Option<&'a Bucket<K, V>>,
    /// The word of that bucket in which the node was found, if it was.
    place: Option<Place<'a, K, V>>,
}

impl<K, V> Seen<'_, K, V> {
    /// Of a writer that has not looked.
    pub(super) const NOTHING: Self = Self {
        version: 0,
        bucket: None,
        place: None,
    };
}

/// The result of one look at a bucket.
pub(crate) enum Look<T> {
    /// The node that was sought.
    Found(T),
    /// The key was not in the table at some moment of the call.
    Absent,
    /// One look does not decide.
    Unclear,
}

impl<K, V> Table<K, V> {
    /// An empty table with room for `capacity` entries before it first grows.
    pub(super) fn new(capacity: usize) -> (Self, TableState<K, V>) {
        let least = resize::least(capacity);
        let array = Array::new(TablePart::allocate(1 << least), least);
        let table = Self {
            array: AtomicPtr::new(array.as_raw()),
            version: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            moved: AtomicU64::new(0),
        };
        (table, TableState::new(least))
    }

    /// The table for its writer, by the state that is in the shard's lock.
    #[inline]
    pub(super) fn writer<'a, 's>(
        &'a self,
        state: &'s mut TableState<K, V>,
    ) -> Writer<'a, 's, K, V> {
        Writer::new(self, state)
    }

    /// Acquire, partner: the release store in `renew_version`.
    #[inline]
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Moves the version on. Only the holder of the lock calls it, so no other store comes between.
    ///
    /// Release, partner: `version`. A reader that sees this version sees the words and homes that
    /// were stored before it.
    fn renew_version(&self) {
        let version = self.version.load(Ordering::Acquire);
        self.version.store(version + 1, Ordering::Release);
    }

    /// Acquire, partner: the release stores in `resize`.
    #[inline]
    fn array(&self) -> Array<K, V> {
        Array::from_raw(self.array.load(Ordering::Acquire))
    }

    /// Whether entries are moving from one array to another.
    #[inline]
    pub(super) fn is_resizing(&self) -> bool {
        self.array().is_resizing()
    }

    /// Prefetches the bucket of a hash. A hint: the bucket may be another one by the time of its
    /// use.
    pub(super) fn prefetch(&self, hash: u64) {
        crate::node::prefetch(self.array().address(hash));
    }

    /// One look at the bucket of a hash. It may call `matches` for a node of another key.
    ///
    /// No lock, no write.
    // Always inlined, as `find` is; rare cases are left to other functions. A hit takes a few dozen
    // instructions, and a call would cost as many again to save registers. The two functions repeat
    // a few lines: a part shared by both would return through the stack.
    #[inline(always)]
    pub(super) fn look(
        &self,
        hash: u64,
        _pin: &Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Look<NodePtr<K, V>> {
        let version = self.version();
        let array = self.array();
        if array.is_resizing() {
            return Look::Unclear;
        }
        // SAFETY: the pin was there before the array's word was read.
        let bucket = unsafe { array.bucket(hash) };
        let tag = bucket::tag(hash);
        let Some(at) = tags::carrying(bucket, tag).next() else {
            return if self.proves_absence(bucket, version) {
                Look::Absent
            } else {
                Look::Unclear
            };
        };
        match bucket::node_at(&bucket.words[at], tag) {
            Some(node) if matches(node) => Look::Found(node),
            _ => Look::Unclear,
        }
    }

    /// The node with this hash's tag that `matches` accepts. May call `matches` for nodes of other
    /// keys.
    ///
    /// No lock, no write. `matches` is user code; nothing of the table depends on what it does.
    #[inline(always)]
    pub(super) fn find<'a>(
        &'a self,
        hash: u64,
        pin: &'a Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> (Option<NodePtr<K, V>>, Seen<'a, K, V>) {
        let version = self.version();
        let mut seen = Seen {
            version,
            bucket: None,
            place: None,
        };
        let mut array = self.array();
        if array.is_resizing() {
            match self.array_while_resizing(array, hash, version) {
                Some(home) => array = home,
                None => return (self.find_on(hash, pin, matches), seen),
            }
        }
        // SAFETY: the pin was there before the array's word was read.
        let bucket = unsafe { array.bucket(hash) };
        seen.bucket = Some(bucket);
        let tag = bucket::tag(hash);
        let Some(at) = tags::carrying(bucket, tag).next() else {
            if self.proves_absence(bucket, version) {
                return (None, seen);
            }
            return (self.find_on(hash, pin, matches), seen);
        };
        let place = &bucket.words[at];
        match bucket::node_at(place, tag) {
            Some(node) if matches(node) => {
                seen.place = Some(place);
                (Some(node), seen)
            }
            _ => (self.find_on(hash, pin, matches), seen),
        }
    }

    /// Repeats the whole search, overflow chain included, until no node was moved during it.
    #[cold]
    #[inline(never)]
    fn find_on(
        &self,
        hash: u64,
        _pin: &Pin,
        mut matches: impl FnMut(NodePtr<K, V>) -> bool,
    ) -> Option<NodePtr<K, V>> {
        let mut version = self.version();
        loop {
            if let Some(array) = self.array_under(hash, version) {
                // SAFETY: the pin was there before the array's word was read.
                let bucket = unsafe { array.bucket(hash) };
                if let Some((_, node)) = bucket.search(bucket::tag(hash), &mut matches) {
                    return Some(node);
                }
            }
            let again = self.version();
            if again == version {
                return None;
            }
            version = again;
        }
    }

    /// Whether a bucket in which no word carries the tag proves that the key is absent, under the
    /// version that was read before.
    #[inline(always)]
    fn proves_absence(&self, bucket: &Bucket<K, V>, version: u64) -> bool {
        // Words first, then the link, as in `search`.
        !bucket::is_link(bucket.words[LAST].load(Ordering::Acquire)) && self.version() == version
    }

    /// The array that has a hash's home under this version; `None` if that is no longer the
    /// version.
    fn array_under(&self, hash: u64, version: u64) -> Option<Array<K, V>> {
        let array = self.array();
        if array.is_resizing() {
            self.array_while_resizing(array, hash, version)
        } else {
            Some(array)
        }
    }

    /// The same while entries move out of `array`.
    #[cold]
    #[inline(never)]
    fn array_while_resizing(
        &self,
        array: Array<K, V>,
        hash: u64,
        version: u64,
    ) -> Option<Array<K, V>> {
        let home = Resize::of(self, array).map_or(array, |resize| resize.home(hash));
        (self.version() == version).then_some(home)
    }

    /// Gives the nodes of the bucket that holds `position`, from that position on, and returns the
    /// position behind the bucket.
    ///
    /// Used with a pin or with the lock. `out` is cleared first.
    pub(super) fn collect(&self, position: u32, out: &mut Vec<NodePtr<K, V>>) -> u64 {
        let mut version = self.version();
        loop {
            out.clear();
            let hash = u64::from(position.reverse_bits());
            let mut next = 0;
            if let Some(array) = self.array_under(hash, version) {
                next = array.visit(position).1;
                // SAFETY: the pin, or the lock, was there before the array's word was read.
                let bucket = unsafe { array.bucket(hash) };
                bucket.each(|_, word| {
                    let node = bucket::node(word);
                    let at = array::position(node.hash());
                    // A compaction under way may show a node twice, and a word that stayed behind
                    // may name a node whose home is elsewhere now.
                    if at >= position && u64::from(at) < next && !out.contains(&node) {
                        out.push(node);
                    }
                });
            }
            let again = self.version();
            if again == version {
                return next;
            }
            version = again;
        }
    }

    /// Frees the memory of the table, and gives each node to `free`.
    ///
    /// For the last owner: no reader is left.
    pub(super) fn take_apart(
        &mut self,
        state: &mut TableState<K, V>,
        free: impl FnMut(NodePtr<K, V>),
    ) {
        self.writer(state).unlink_all(free);
        for part in state.retired.drain(..) {
            // SAFETY: `&mut self`: no reader is left (table 4).
            unsafe { part.free() };
        }
    }
}
