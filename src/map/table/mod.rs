//! The table of one shard: look-ups without a lock, one writer at a time, growth in small steps.
//!
//! # How it works
//!
//! A look-up finds the array of cache-line buckets by one load and a mask (`array`). `search` says
//! how it searches a bucket, without the lock and with it.
//!
//! A removal leaves a null word: nothing is shifted, and there are no tombstones. An insert takes
//! the first null word of the bucket. A full bucket turns its last word into a link to an overflow
//! bucket, whose entries come back when words of the bucket are free. When the table is too full or
//! too empty, its entries move to another array, a few buckets with each write (`resize`). The
//! *home* of a hash is the bucket that its entries stand in: while the table resizes, in one array
//! or in the other.
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
//!    [`FREE_WORDS_BESIDE_CHAIN`](resize::FREE_WORDS_BESIDE_CHAIN) free words of its own. So a
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
//! A look-up touches one line of a bucket and one node. A table that has grown takes 64 bytes of
//! buckets for [`MAX_LOAD`](resize::MAX_LOAD) entries down to half as many, whatever its size, and
//! down to a quarter where entries have left; and the former array until a grace period after the
//! last entry has moved. A writer holds the shard's lock for one bucket, and for a few more while
//! the table resizes.
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

/// A table: the part that readers use.
#[repr(align(128))]
pub(super) struct Table<K, V> {
    /// The word of the array; see `array`.
    array: AtomicPtr<Bucket<K, V>>,
    /// Counts moves of entries.
    version: AtomicU64,
    /// While the word of the array says that the table is resizing: the array that entries move to,
    /// and how many units have moved.
    next: AtomicPtr<Bucket<K, V>>,
    moved: AtomicU64,
}

/// The part of a table that only its writer uses. Its exclusive borrow is the right to write (table
/// 1).
pub(super) struct TableState<K, V> {
    count: u64,
    /// The logarithm of the smallest array that the table may have.
    least: u32,
    /// Unlinked memory that waits for its grace period.
    pub(super) retired: Vec<TablePart<K, V>>,
}

/// Arrays of this many buckets or more are aligned by hand. For a large alignment the system's
/// allocator writes the zeros of zeroed memory itself, all at once; for its own alignment it mostly
/// knows that fresh memory is zero. So a table that begins large is made at once.
const HAND_ALIGNED_FROM: usize = 64;

/// Memory that left a table.
pub(crate) struct TablePart<K, V> {
    at: *mut Bucket<K, V>,
    buckets: NonZero<usize>,
}

// SAFETY: a TablePart owns plain memory. It does not own the nodes that its words point to.
unsafe impl<K, V> Send for TablePart<K, V> {}

impl<K, V> TablePart<K, V> {
    pub(in crate::map) fn buckets(&self) -> usize {
        self.buckets.get()
    }

    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// Table 4: no pin taken before the part was unlinked is still held.
    pub(crate) unsafe fn free(self) {
        let buckets = self.buckets();
        let layout = Self::layout(buckets);
        // SAFETY: `room` allocated it with the same count, so the same layout; if the layout has
        // room in front, `room` wrote the address there. No reader is left (the caller).
        unsafe {
            let at = if buckets < HAND_ALIGNED_FROM {
                self.at.cast()
            } else {
                self.at.cast::<*mut u8>().sub(1).read()
            };
            dealloc(at, layout);
        }
    }

    /// The layout of this many buckets, with room to align them by hand.
    fn layout(buckets: usize) -> Layout {
        let fits = "an array fits the address space";
        let layout = Layout::array::<Bucket<K, V>>(buckets).expect(fits);
        if buckets < HAND_ALIGNED_FROM {
            return layout;
        }
        Layout::from_size_align(layout.size() + layout.align(), align_of::<*mut u8>()).expect(fits)
    }

    /// Allocates buckets whose words are all null.
    fn allocate(buckets: usize) -> *mut Bucket<K, V> {
        let at = Self::room(buckets, alloc_zeroed);
        // SAFETY: as many zeroed words as there is room for, owned by this call.
        unsafe { crate::sync::null_pointers(at.cast::<AtomicPtr<Node<K, V>>>(), buckets * WORDS) };
        at
    }

    /// Allocates buckets that the caller [clears](Self::clear) before it uses them: under a shard's
    /// lock there is no time to write to all of them.
    fn reserve(buckets: usize) -> *mut Bucket<K, V> {
        Self::room(buckets, alloc)
    }

    /// Makes all words of a bucket null.
    ///
    /// # Safety
    ///
    /// `at` points to memory for a bucket that no other code uses yet.
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
        if buckets == 1 {
            // An overflow bucket may be needed in the middle of a move, which cannot stop there: a
            // link at such an address would be taken for a node, so it is as good as no memory.
            if !node::fits(whole.addr(), layout.size()) {
                handle_alloc_error(layout)
            }
        } else if !node::is_taggable(whole.addr(), layout.size()) {
            // SAFETY: allocated above with this layout; nothing points to it.
            unsafe { dealloc(whole, layout) };
            node::refuse(whole.addr(), layout.size());
        }
        if buckets < HAND_ALIGNED_FROM {
            whole.cast()
        } else {
            // The first boundary of a bucket behind the room for an address.
            let align = align_of::<Bucket<K, V>>();
            let first = whole.wrapping_add(size_of::<*mut u8>());
            let at = first.wrapping_add(first.align_offset(align));
            // SAFETY: the allocation has `align` bytes more than the buckets take, and at most that
            // many lie in front of `at`. It is aligned for an address, so the word right before
            // `at` is, too.
            unsafe { at.cast::<*mut u8>().sub(1).write(whole) };
            at.cast::<Bucket<K, V>>()
        }
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
            .div_ceil(resize::MAX_LOAD)
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

    /// While the table resizes: which array has a hash's home, `array` or the one that entries move
    /// to. The answer is right for the holder of the lock; another caller may believe it if the
    /// version is the same before and after (table 5).
    fn either(&self, array: Array<K, V>, hash: u64) -> Array<K, V> {
        // Acquire, partners: the release stores in `resize`. A reader that sees a unit as moved
        // sees its entries in the new array.
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
    /// The caller is pinned or has the lock, and was so when it read the array's word (table 4).
    #[inline]
    unsafe fn bucket<'a>(array: Array<K, V>, hash: u64) -> &'a Bucket<K, V> {
        // SAFETY: an array has as many buckets as its word says, and it is not freed while the
        // caller is pinned or has the lock.
        unsafe { &*array.bucket(hash) }
    }

    /// Prefetches the bucket of a hash. A hint: the bucket may be another one by the time of its
    /// use.
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

    /// The overflow bucket that a word links to, if the word is a link. The caller is pinned or has
    /// the lock, and was so when it read the word.
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

    /// Stores a word into the first free word of a bucket or its overflow chain, and makes an
    /// overflow bucket if there is none. Returns the bucket of the chain that it stands in now.
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
        // Every word is taken. The last word of the chain's last bucket becomes a link to a new
        // bucket that already holds the node that stood there. So a reader finds that node before
        // and after.
        let fresh = TablePart::<K, V>::allocate(1);
        // SAFETY: just allocated and zeroed, and not yet shared. From then on it is a part of the
        // chain, which lives as long as the bucket.
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

    /// Frees the memory of the table, and gives each node to `free`.
    ///
    /// For the last owner: no reader is left.
    pub(super) fn take_apart(
        &mut self,
        state: &mut TableState<K, V>,
        mut free: impl FnMut(NodePtr<K, V>),
    ) {
        let array = self.array();
        if array.at().is_null() {
            // It was taken apart before.
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
                    free <= resize::FREE_WORDS_BESIDE_CHAIN,
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
