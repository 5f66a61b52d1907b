//! One shard's table: look-ups without a lock, writers one at a time, growth and shrinking one bucket at a time.
//!
//! # How it works
//!
//! Linear hashing (`extent`) over cache-line buckets (`bucket`). How a bucket is searched, without a lock and with it, is in
//! `search`.
//!
//! A removed node just leaves a null: nothing is shifted, there are no tombstones. An insert takes the first null of the bucket;
//! a full bucket turns its last word into a link to an overflow bucket, whose entries come back when words of the bucket are free. When
//! and how the table grows and shrinks, by a bucket or two with a write, is in `growth`.
//!
//! # Invariants
//!
//! 1. Only the holder of `&mut TableState`, which stands in the shard's lock, writes words, segments or the extent.
//! 2. A node stands in exactly one word outside of a split, merge or compaction; during one of these in at most two.
//! 3. Before a node's old word is nulled, its new word was stored (release) and then the extent's version moved on (release).
//!    A reader that misses the node in both places has read the null (acquire), so it sees the new version and retries.
//! 4. A segment or overflow bucket that was unlinked is handed out as [`TablePart`] and freed after a grace period only.
//! 5. Words of buckets at or beyond the extent's count are null.
//! 6. A bucket with an overflow chain has at most [`SPARE`](growth::SPARE) free words of its own. So a chain ends with
//!    the crowd that made it, though the table neither grows nor shrinks.
//! 7. Words that name nodes stay behind in one place, an overflow chain that a merge has unlinked. Whoever meets one there has come by the
//!    link, so its search began before the merge; and at the merge the node was in the table. So at a moment within the call, that of the
//!    merge or an earlier one, the hit was true, though the node may have been removed or replaced since: as true as any hit whose node is
//!    removed right after it was found. That node is not freed meanwhile, since it left the map when the reader was pinned already
//!    (node 1). A miss there is not believed, since the merge has moved the version on.
//!
//! # Cost
//!
//! A look-up touches one bucket line and one node. Memory: 64 bytes a bucket for `LOAD` entries down to half as many, whatever the size.
//! The lock of a shard is held for one bucket, or three when it splits.
#![allow(unsafe_code)]

mod growth;
mod search;

use super::bucket::{self, Bucket, LAST, WORDS, Word};
use super::extent::{self, Extent};
use crate::node::{self, Node, NodePtr};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
pub(super) use search::{Home, Place, Seen};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr;

const SEGMENTS: usize = 32;

/// A table; the part that readers use.
#[repr(align(128))]
pub(super) struct Table<K, V> {
    extent: AtomicU64,
    base: u32,
    segments: [AtomicPtr<Bucket<K, V>>; SEGMENTS],
}

/// The part of a table that only its writer uses; having it exclusively is the right to write (table 1).
pub(super) struct TableState<K, V> {
    count: u64,
    /// Unlinked memory that waits for its grace period.
    pub(super) retired: Vec<TablePart<K, V>>,
}

/// Memory that left a table.
pub(crate) struct TablePart<K, V> {
    at: *mut Bucket<K, V>,
    buckets: usize,
}

// SAFETY: a TablePart owns plain memory: the nodes that words point to are not its own.
unsafe impl<K, V> Send for TablePart<K, V> {}

impl<K, V> TablePart<K, V> {
    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// Table 4: no pin taken before the part was unlinked is still held.
    pub(crate) unsafe fn free(self) {
        // SAFETY: allocated by `allocate` with the same count; no reader is left (the caller).
        unsafe { dealloc(self.at.cast(), Self::layout(self.buckets)) }
    }

    fn layout(buckets: usize) -> Layout {
        Layout::array::<Bucket<K, V>>(buckets).expect("a segment fits the address space")
    }

    /// Fresh buckets, all words null.
    fn allocate(buckets: usize) -> *mut Bucket<K, V> {
        let layout = Self::layout(buckets);
        // SAFETY: not zero-sized. All-zero is a valid bucket: eight null pointers.
        let at = unsafe { alloc_zeroed(layout) }.cast::<Bucket<K, V>>();
        if at.is_null() {
            handle_alloc_error(layout)
        }
        // Or a link to an overflow bucket would be taken for a node.
        node::assert_taggable(at.addr(), layout.size());
        // SAFETY: as many words as the layout has room for, owned by this call.
        unsafe { crate::sync::null_pointers(at.cast::<AtomicPtr<Node<K, V>>>(), buckets * WORDS) };
        at
    }
}

impl<K, V> std::fmt::Debug for TablePart<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TablePart")
            .field("buckets", &self.buckets)
            .finish()
    }
}

impl<K, V> Table<K, V> {
    /// An empty table with room for `capacity` entries before it first splits.
    pub(super) fn new(capacity: usize) -> (Self, TableState<K, V>) {
        let base = (capacity as u64)
            .div_ceil(growth::LOAD)
            .next_power_of_two()
            .clamp(1, 1 << 28) as u32;
        let table = Self {
            extent: AtomicU64::new(Extent::new(base).0),
            base,
            segments: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        };
        let (segment, _) = extent::place(0, base);
        table.segments[segment].store(TablePart::allocate(base as usize), Ordering::Release);
        let state = TableState {
            count: 0,
            retired: Vec::new(),
        };
        (table, state)
    }

    /// Acquire, partner: the release stores in `set_extent`.
    #[inline]
    fn extent(&self) -> Extent {
        Extent(self.extent.load(Ordering::Acquire))
    }

    /// Release: what was stored into words before is seen by whoever sees this extent; partner: `extent`.
    fn set_extent(&self, extent: Extent) {
        self.extent.store(extent.0, Ordering::Release);
    }

    /// A bucket, unless its segment was unlinked since the caller read the extent.
    #[inline]
    fn bucket(&self, index: u32) -> Option<&Bucket<K, V>> {
        let (segment, offset) = extent::place(index, self.base);
        // Acquire, partner: the release store of the segment in `growth`. The mask changes nothing and spares a bounds check.
        let at = self.segments[segment % SEGMENTS].load(Ordering::Acquire);
        if at.is_null() {
            return None;
        }
        // SAFETY: a segment has as many buckets as `place` can name in it, and it is not freed while the caller is pinned or
        // has the lock (table 4).
        Some(unsafe { &*at.add(offset) })
    }

    /// Asks the processor for the bucket of a hash. A hint: it may be the wrong one by the time it is used.
    pub(super) fn prefetch(&self, hash: u64) {
        let (segment, offset) = extent::place(self.extent().index(hash), self.base);
        let at = self.segments[segment % SEGMENTS].load(Ordering::Acquire);
        crate::node::prefetch(at.wrapping_add(offset));
    }

    /// Visits the words of a bucket, then its overflow chain, until `f` answers.
    #[inline]
    fn scan<R>(
        mut bucket: &Bucket<K, V>,
        mut f: impl FnMut(Place<'_, K, V>, Word<K, V>) -> Option<R>,
    ) -> Option<R> {
        loop {
            let mut link = ptr::null_mut();
            for (at, place) in bucket.words.iter().enumerate() {
                // Acquire, partners: the release stores of words (a node's content; table 3).
                let word = place.load(Ordering::Acquire);
                if at == LAST {
                    link = word;
                }
                if let Some(answer) = f(place, word) {
                    return Some(answer);
                }
            }
            bucket = Self::linked(link)?;
        }
    }

    /// The overflow bucket that a word links to, if it does. For who is pinned or has the lock, and was when the word was read.
    #[inline]
    fn linked<'a>(word: Word<K, V>) -> Option<&'a Bucket<K, V>> {
        if !bucket::is_link(word) {
            return None;
        }
        // SAFETY: an overflow bucket is not freed while the caller is pinned or has the lock (table 4).
        Some(unsafe { &*bucket::linked(word) })
    }

    #[inline]
    fn node(word: Word<K, V>) -> NodePtr<K, V> {
        // SAFETY: words with a tag come from `as_raw`, and a node in the table is not freed; for one just removed the caller's
        // pin or lock keeps it (node 1).
        unsafe { NodePtr::from_raw(bucket::untagged(word)) }
    }

    /// Adds a node whose key is not in the table.
    // The hash is told: it stands in the node's cold part.
    pub(super) fn insert(
        &self,
        state: &mut TableState<K, V>,
        home: Home<'_, K, V>,
        node: NodePtr<K, V>,
        hash: u64,
    ) {
        debug_assert_eq!(hash, node.hash());
        Self::put(home.0, bucket::tagged(node.as_raw(), hash));
        state.count += 1;
        self.grow(state);
    }

    /// Puts `new` where `place` holds a node of the same hash.
    #[inline]
    pub(super) fn replace(&self, place: Place<'_, K, V>, new: NodePtr<K, V>, hash: u64) {
        debug_assert_eq!(hash, new.hash());
        // Release, partner: the acquire loads of words in `find` and `scan`.
        place.store(bucket::tagged(new.as_raw(), hash), Ordering::Release);
    }

    /// Takes the node at `place` out, whose hash belongs to this bucket.
    pub(super) fn remove(
        &self,
        state: &mut TableState<K, V>,
        home: Home<'_, K, V>,
        place: Place<'_, K, V>,
    ) {
        place.store(ptr::null_mut(), Ordering::Release);
        state.count -= 1;
        self.shrink(state, home.0);
    }

    /// A bucket below the extent, for the writer.
    fn owned(&self, index: u32) -> &Bucket<K, V> {
        self.bucket(index)
            .expect("a bucket below the extent has its segment")
    }

    /// Stores a word into the first free place of a bucket, making an overflow bucket if there is none.
    fn put(bucket: &Bucket<K, V>, word: Word<K, V>) {
        let free = Self::scan(bucket, |place, seen| {
            seen.is_null().then_some(ptr::from_ref(place))
        });
        if let Some(free) = free {
            // SAFETY: a word of `bucket` or of its chain, both alive while the writer has the lock.
            unsafe { &*free }.store(word, Ordering::Release);
            return;
        }
        // Every word is taken. The last one of the chain's last bucket becomes a link to a fresh bucket that already holds what
        // stood there, so a reader finds that node on either way.
        let mut last = bucket;
        while let Some(next) = Self::linked(last.words[LAST].load(Ordering::Acquire)) {
            last = next;
        }
        let fresh = TablePart::<K, V>::allocate(1);
        // SAFETY: just allocated, zeroed, not yet shared.
        let words = unsafe { &(*fresh).words };
        words[0].store(last.words[LAST].load(Ordering::Acquire), Ordering::Release);
        words[1].store(word, Ordering::Release);
        last.words[LAST].store(bucket::link(fresh), Ordering::Release);
    }

    pub(super) fn count(&self, state: &TableState<K, V>) -> u64 {
        state.count
    }

    /// Frees everything, nodes included. Drops of keys and values run; `free` says what to do with each node.
    ///
    /// For the last owner: nobody reads any more.
    pub(super) fn take_apart(
        &mut self,
        state: &mut TableState<K, V>,
        mut free: impl FnMut(NodePtr<K, V>),
    ) {
        if self.bucket(0).is_none() {
            // Taken apart before.
            return;
        }
        let count = self.extent().count();
        for index in 0..count {
            let bucket = self.owned(index);
            let mut link: Word<K, V> = ptr::null_mut();
            Self::scan(bucket, |_, word| {
                if bucket::is_node(word) {
                    free(Self::node(word));
                } else if bucket::is_link(word) && link.is_null() {
                    link = word;
                }
                None::<()>
            });
            Self::retire_chain(state, link);
        }
        for (number, segment) in self.segments.iter().enumerate() {
            let at = segment.load(Ordering::Acquire);
            if !at.is_null() {
                segment.store(ptr::null_mut(), Ordering::Release);
                state.retired.push(TablePart {
                    at,
                    buckets: extent::size(number, self.base),
                });
            }
        }
        state.count = 0;
        for part in state.retired.drain(..) {
            // SAFETY: `&mut self`: no reader is left (table 4).
            unsafe { part.free() };
        }
    }

    /// Asserts what the module docs promise, for the holder of the lock.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self, state: &TableState<K, V>) {
        let extent = self.extent();
        let mut nodes = 0;
        let mut seen = std::collections::HashSet::new();
        for index in 0..extent.count() {
            let bucket = self.owned(index);
            if bucket::is_link(bucket.words[LAST].load(Ordering::Acquire)) {
                let free = Self::free_words(bucket);
                assert!(
                    free <= growth::SPARE,
                    "{free} free words and a chain (table 6)"
                );
            }
            Self::scan(bucket, |_, word| {
                if bucket::is_node(word) {
                    let node = Self::node(word);
                    assert_eq!(extent.index(node.hash()), index, "a node in a wrong bucket");
                    assert_eq!(
                        bucket::tag_of(word),
                        bucket::tag(node.hash()),
                        "a wrong tag"
                    );
                    assert!(seen.insert(node.as_raw()), "a node in two words (table 2)");
                    assert_eq!(node.life(), crate::node::Life::Live);
                    nodes += 1;
                }
                None::<()>
            });
        }
        assert_eq!(nodes, state.count, "count");
        let (top, _) = extent::place(extent.count() - 1, self.base);
        for index in extent.count()..1u32 << top {
            let bucket = self.owned(index);
            let null = |word: &AtomicPtr<Node<K, V>>| word.load(Ordering::Acquire).is_null();
            assert!(
                bucket.words.iter().all(null),
                "a word beyond the extent (table 5)"
            );
        }
    }
}
