//! One shard's table: look-ups without a lock, writers one at a time, growth and shrinking a few
//! buckets at a time.
//!
//! # How it works
//!
//! An array of cache-line buckets (`bucket`), found by one load and a mask (`array`). How a bucket
//! is searched, without a lock and with it, is in `search`.
//!
//! A removed node just leaves a null: nothing is shifted, there are no tombstones. An insert takes
//! the first null of the bucket; a full bucket turns its last word into a link to an overflow
//! bucket, whose entries come back when words of the bucket are free. When the table is too full or
//! too empty, its entries move to another array, a few buckets with each write (`resize`). A hash's
//! *home* is the bucket that its entries stand in: while they move, in the one array or in the
//! other.
//!
//! # Invariants
//!
//! 1. Only the holder of `&mut TableState`, which stands in the shard's lock, writes words, arrays
//!    or the version.
//! 2. A node in the table stands in exactly one word of its hash's home, outside of a compaction;
//!    during one in at most two.
//! 3. Before a hash's home changes, or a node's word within it, its nodes' new words were stored
//!    (release); then where the home is, or nothing; then the version moves on (release); and only
//!    then is an old word of the same home nulled. So whoever reads the version, then looks into
//!    the home as it is told, misses a node that stays there, and reads the version again, sees
//!    that it has moved on: what made it miss was stored behind that.
//! 4. An array or overflow bucket that was unlinked is handed out as [`TablePart`] and freed after
//!    a grace period only.
//! 5. `next` and `moved` are stored before `array` says that entries are resizing, and not again
//!    before another version, so whoever reads them between two readings of the same version has
//!    read what belongs together.
//! 6. A bucket with an overflow chain has at most [`SPARE`](resize::SPARE) free words of its own.
//!    So a chain ends with the crowd that made it, though the table neither grows nor shrinks.
//! 7. Words that name nodes stay behind in what entries have moved from: a bucket of the former
//!    array, its overflow chain. Whoever meets one there was told of that home before they moved,
//!    so its search began before that; and then the node was in the table. So at a moment within
//!    the call, that of the move or an earlier one, the hit was true, though the node may have been
//!    removed or replaced since: as true as any hit whose node is removed right after it was found.
//!    That node is not freed meanwhile, since it left the map when the reader was pinned already
//!    (node 1). A miss there is not believed, since the move has moved the version on.
//! 8. A bucket of the array that entries are resizing to is room and no more until its unit moves,
//!    which clears it first. Nobody is told of it as a home before `moved` says so (table 5), nor
//!    looks into it.
//! 9. Memory for a growing or shrinking table is allocated before the write that needs it changes
//!    anything a reader can see. An address that does not fit the tags is refused there, by a panic
//!    that leaves the table as it was.
//!
//! # Cost
//!
//! A look-up touches one bucket line and one node. Memory: 64 bytes a bucket for `LOAD` entries
//! down to half as many in a table that has grown, whatever the size, down to a quarter where
//! entries have left; and the former array until a grace period after the last have moved. The lock
//! of a shard is held for one bucket, and for some more while entries move.
#![allow(unsafe_code)]

mod resize;
mod search;

use super::array::Array;
use super::bucket::{self, Bucket, LAST, WORDS, Word};
use crate::node::{self, Node, NodePtr};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
pub(crate) use search::Look;
pub(super) use search::{Home, Place, Seen};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::num::NonZero;
use std::ptr;

/// A table; the part that readers use.
#[repr(align(128))]
pub(super) struct Table<K, V> {
    /// The word of the array; see `array`.
    array: AtomicPtr<Bucket<K, V>>,
    /// Moves on whenever entries have moved.
    version: AtomicU64,
    /// Where entries are resizing to, while the array's word says that they do; and how many units
    /// have.
    next: AtomicPtr<Bucket<K, V>>,
    moved: AtomicU64,
}

/// The part of a table that only its writer uses; having it exclusively is the right to write
/// (table 1).
pub(super) struct TableState<K, V> {
    count: u64,
    /// The logarithm of the smallest array that the table may have.
    least: u32,
    /// Unlinked memory that waits for its grace period.
    pub(super) retired: Vec<TablePart<K, V>>,
}

/// So many buckets or more are aligned by hand. Of zeroed memory with a greater alignment than its
/// own the system's allocator writes the zeros, all of them at once; of other memory it mostly
/// knows that they are there, so a table that begins large begins soon.
const LAZY: usize = 64;

/// Memory that left a table.
pub(crate) struct TablePart<K, V> {
    at: *mut Bucket<K, V>,
    buckets: NonZero<usize>,
}

// SAFETY: a TablePart owns plain memory: the nodes that words point to are not its own.
unsafe impl<K, V> Send for TablePart<K, V> {}

impl<K, V> TablePart<K, V> {
    pub(in crate::map) fn buckets(&self) -> usize {
        self.buckets.get()
    }

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// Table 4: no pin taken before the part was unlinked is still held.
    pub(crate) unsafe fn free(self) {
        let buckets = self.buckets();
        let layout = Self::layout(buckets);
        // SAFETY: allocated by `room` with the same count, so the same layout, and if that has room
        // in front, the address stands there. No reader is left (the caller).
        unsafe {
            let at = if buckets < LAZY {
                self.at.cast()
            } else {
                self.at.cast::<*mut u8>().sub(1).read()
            };
            dealloc(at, layout);
        }
    }

    /// Room for so many buckets, and for an array's alignment by hand.
    fn layout(buckets: usize) -> Layout {
        let fits = "an array fits the address space";
        let layout = Layout::array::<Bucket<K, V>>(buckets).expect(fits);
        if buckets < LAZY {
            return layout;
        }
        Layout::from_size_align(layout.size() + layout.align(), align_of::<*mut u8>()).expect(fits)
    }

    /// Fresh buckets, all words null.
    fn allocate(buckets: usize) -> *mut Bucket<K, V> {
        let at = Self::room(buckets, alloc_zeroed);
        // SAFETY: as many zeroed words as there is room for, owned by this call.
        unsafe { crate::sync::null_pointers(at.cast::<AtomicPtr<Node<K, V>>>(), buckets * WORDS) };
        at
    }

    /// Room for so many buckets, each to be [cleared](Self::clear) before it is used: under a
    /// shard's lock, where there is no time to write to all of them.
    fn reserve(buckets: usize) -> *mut Bucket<K, V> {
        Self::room(buckets, alloc)
    }

    /// Makes all words of a bucket null.
    ///
    /// # Safety
    ///
    /// `at` names room for a bucket that nobody else uses yet.
    unsafe fn clear(at: *mut Bucket<K, V>) {
        // SAFETY: the caller's promise. All-zero is a valid bucket: eight null pointers.
        unsafe {
            at.write_bytes(0, 1);
            crate::sync::null_pointers(at.cast::<AtomicPtr<Node<K, V>>>(), WORDS);
        }
    }

    fn room(buckets: usize, alloc: unsafe fn(Layout) -> *mut u8) -> *mut Bucket<K, V> {
        let layout = Self::layout(buckets);
        // SAFETY: not zero-sized.
        let whole = unsafe { alloc(layout) };
        if whole.is_null() {
            handle_alloc_error(layout)
        }
        if !node::is_taggable(whole.addr(), layout.size()) {
            // An overflow bucket may be needed in the middle of a move, which cannot stop there: a
            // link at such an address would be taken for a node, so it is as good as no memory.
            if buckets == 1 {
                handle_alloc_error(layout)
            }
            // SAFETY: allocated above with this layout; nothing points to it.
            unsafe { dealloc(whole, layout) };
            node::refuse(whole.addr(), layout.size());
        }
        let at = if buckets < LAZY {
            whole.cast()
        } else {
            // The next bucket's boundary behind the room for an address.
            let align = align_of::<Bucket<K, V>>();
            let first = whole.wrapping_add(size_of::<*mut u8>());
            let at = first.wrapping_add(first.align_offset(align));
            // SAFETY: there are `align` bytes more than the buckets take, and no more than those
            // lie in front of `at`: the allocation is aligned for an address, as is the place of
            // one right before `at`.
            unsafe { at.cast::<*mut u8>().sub(1).write(whole) };
            at.cast::<Bucket<K, V>>()
        };
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
    /// An empty table with room for `capacity` entries before it first grows.
    pub(super) fn new(capacity: usize) -> (Self, TableState<K, V>) {
        let least = (capacity as u64)
            .div_ceil(resize::LOAD)
            .next_power_of_two()
            .clamp(1, 1 << 28)
            .ilog2();
        let table = Self {
            array: AtomicPtr::new(Self::allocate(least).as_raw()),
            version: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            moved: AtomicU64::new(0),
        };
        let state = TableState {
            count: 0,
            least,
            retired: Vec::new(),
        };
        (table, state)
    }

    /// An array of empty buckets.
    fn allocate(log: u32) -> Array<K, V> {
        Array::new(TablePart::allocate(1 << log), log)
    }

    /// Acquire, partner: the release store in `renew_version`.
    #[inline]
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Moves the version on: for the holder of the lock, so that no other store comes between.
    /// Release: what was stored before, words and homes, is seen by whoever sees this version;
    /// partner: `version`.
    fn renew_version(&self) {
        let version = self.version.load(Ordering::Acquire);
        self.version.store(version + 1, Ordering::Release);
    }

    /// Acquire, partner: the release stores in `resize`.
    #[inline]
    fn array(&self) -> Array<K, V> {
        Array::from_raw(self.array.load(Ordering::Acquire))
    }

    /// Which of two arrays, `array` whose entries are resizing and the one they are resizing to,
    /// has a hash's home. For the holder of the lock, or to be believed if the version is the same
    /// before and after (table 5).
    fn either(&self, array: Array<K, V>, hash: u64) -> Array<K, V> {
        // Acquire, partners: the release stores in `resize`; who sees a unit as moved sees its
        // entries where they are now.
        let next = Array::from_raw(self.next.load(Ordering::Acquire));
        let moved = self.moved.load(Ordering::Acquire);
        let unit = u64::from(array.index(hash).min(next.index(hash)));
        if unit < moved { next } else { array }
    }

    /// The array that has a hash's home. For the holder of the lock.
    #[inline]
    fn home_array(&self, hash: u64) -> Array<K, V> {
        let array = self.array();
        if array.is_resizing() {
            self.either(array, hash)
        } else {
            array
        }
    }

    /// The bucket of an array that a hash belongs to.
    ///
    /// # Safety
    ///
    /// The caller is pinned or has the lock, and was when it was told of the array (table 4).
    #[inline]
    unsafe fn bucket<'a>(array: Array<K, V>, hash: u64) -> &'a Bucket<K, V> {
        // SAFETY: an array has as many buckets as its word says, and it is not freed while the
        // caller is pinned or has the lock.
        unsafe { &*array.bucket(hash) }
    }

    /// Asks the processor for the bucket of a hash. A hint: it may be the wrong one by the time it
    /// is used.
    pub(super) fn prefetch(&self, hash: u64) {
        crate::node::prefetch(self.array().bucket(hash));
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

    /// The overflow bucket that a word links to, if it does. For who is pinned or has the lock, and
    /// was when the word was read.
    #[inline]
    fn linked<'a>(word: Word<K, V>) -> Option<&'a Bucket<K, V>> {
        if !bucket::is_link(word) {
            return None;
        }
        // SAFETY: an overflow bucket is not freed while the caller is pinned or has the lock (table
        // 4).
        Some(unsafe { &*bucket::linked(word) })
    }

    #[inline]
    fn node(word: Word<K, V>) -> NodePtr<K, V> {
        Self::node_at(bucket::untagged(word))
    }

    /// The node at the address that a word with a tag holds.
    #[inline]
    fn node_at(node: *mut Node<K, V>) -> NodePtr<K, V> {
        // SAFETY: words with a tag come from `as_raw`, and a node in the table is not freed; for
        // one just removed the caller's pin or lock keeps it (node 1).
        unsafe { NodePtr::from_raw(node) }
    }

    /// Adds a node whose key is not in the table. [`make_room`](Self::make_room) was called before.
    // The hash is an argument, since it stands in the node's side part.
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
        self.after_write(state);
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
        self.give_up_room(state);
        place.store(ptr::null_mut(), Ordering::Release);
        state.count -= 1;
        self.relieve(state, home.0);
        self.after_write(state);
    }

    /// The bucket of a hash, for the writer.
    fn owned<'a>(&'a self, _state: &mut TableState<K, V>, hash: u64) -> &'a Bucket<K, V> {
        // SAFETY: table 1: `state` is the lock's, and only its holder unlinks arrays.
        unsafe { Self::bucket(self.home_array(hash), hash) }
    }

    /// All homes, for the writer.
    fn homes<'a>(
        &'a self,
        _state: &mut TableState<K, V>,
    ) -> impl Iterator<Item = (Array<K, V>, &'a Bucket<K, V>)> {
        let array = self.array();
        let next = Array::from_raw(self.next.load(Ordering::Acquire));
        let arrays = [Some(array), array.is_resizing().then_some(next)];
        arrays.into_iter().flatten().flat_map(move |array| {
            let is_home = move |&index: &u32| self.home_array(u64::from(index)) == array;
            // SAFETY: as in `owned`.
            let bucket = move |index| (array, unsafe { Self::bucket(array, u64::from(index)) });
            (0..array.buckets()).filter(is_home).map(bucket)
        })
    }

    /// Stores a word into the first free place of a bucket or its overflow chain, making an
    /// overflow bucket if there is none. Where it stands now: the bucket, or one of its chain.
    fn put<'a>(mut bucket: &'a Bucket<K, V>, word: Word<K, V>) -> &'a Bucket<K, V> {
        loop {
            let free = |place: &&AtomicPtr<Node<K, V>>| place.load(Ordering::Acquire).is_null();
            if let Some(free) = bucket.words.iter().find(free) {
                free.store(word, Ordering::Release);
                return bucket;
            }
            match Self::linked(bucket.words[LAST].load(Ordering::Acquire)) {
                Some(next) => bucket = next,
                None => break,
            }
        }
        // Every word is taken. The last one of the chain's last bucket becomes a link to a fresh
        // bucket that already holds what stood there, so a reader finds that node on either way.
        let fresh = TablePart::<K, V>::allocate(1);
        // SAFETY: just allocated, zeroed, not yet shared; from then on a part of the chain, which
        // lives as long as the bucket.
        let overflow: &'a Bucket<K, V> = unsafe { &*fresh };
        let words = &overflow.words;
        words[0].store(
            bucket.words[LAST].load(Ordering::Acquire),
            Ordering::Release,
        );
        words[1].store(word, Ordering::Release);
        bucket.words[LAST].store(bucket::link(fresh), Ordering::Release);
        overflow
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn count(&self, state: &TableState<K, V>) -> u64 {
        state.count
    }

    /// Frees everything, nodes included. Drops of keys and values run; `free` says what to do with
    /// each node.
    ///
    /// For the last owner: nobody reads any more.
    pub(super) fn take_apart(
        &mut self,
        state: &mut TableState<K, V>,
        mut free: impl FnMut(NodePtr<K, V>),
    ) {
        let array = self.array();
        if array.at().is_null() {
            // Taken apart before.
            return;
        }
        let mut chains = Vec::new();
        for (_, bucket) in self.homes(state) {
            let mut link: Word<K, V> = ptr::null_mut();
            Self::scan(bucket, |_, word| {
                if bucket::is_node(word) {
                    free(Self::node(word));
                } else if bucket::is_link(word) && link.is_null() {
                    link = word;
                }
                None::<()>
            });
            if !link.is_null() {
                chains.push(link);
            }
        }
        for link in chains {
            Self::retire_chain(state, link);
        }
        if array.is_resizing() {
            let next = Array::from_raw(self.next.load(Ordering::Acquire));
            Self::retire_array(state, next);
        }
        Self::retire_array(state, array);
        self.array.store(ptr::null_mut(), Ordering::Release);
        state.count = 0;
        for part in state.retired.drain(..) {
            // SAFETY: `&mut self`: no reader is left (table 4).
            unsafe { part.free() };
        }
    }

    /// Asserts what the module docs promise, for the holder of the lock.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self, state: &mut TableState<K, V>) {
        let mut nodes = 0;
        let mut seen = std::collections::HashSet::new();
        for (array, bucket) in self.homes(state) {
            if bucket::is_link(bucket.words[LAST].load(Ordering::Acquire)) {
                let free = Self::free_words(bucket);
                assert!(
                    free <= resize::SPARE,
                    "{free} free words and a chain (table 6)"
                );
            }
            Self::scan(bucket, |_, word| {
                if bucket::is_node(word) {
                    let node = Self::node(word);
                    let home = array.bucket(node.hash()).cast_const();
                    assert!(ptr::eq(home, bucket), "a node in a wrong bucket");
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
        self.check_arrays(state);
    }
}
