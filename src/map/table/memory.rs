//! Memory of a table: arrays and overflow buckets, from their allocation until they are freed.
#![allow(unsafe_code)]

use super::bucket::{Bucket, WORDS};
use crate::node::{self, Node};
use crate::sync::AtomicPtr;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::num::NonZero;

/// Arrays of this many buckets or more are aligned by hand. For a large alignment the system's
/// allocator writes the zeros of zeroed memory itself, all at once; for its own alignment it mostly
/// knows that fresh memory is zero. So a large new table is made without writing to all of its
/// memory.
const HAND_ALIGNED_FROM: usize = 64;

/// Memory that left a table.
pub(crate) struct TablePart<K, V> {
    at: *mut Bucket<K, V>,
    buckets: NonZero<usize>,
}

// SAFETY: a TablePart owns plain memory. It does not own the nodes that its words point to.
unsafe impl<K, V> Send for TablePart<K, V> {}

impl<K, V> TablePart<K, V> {
    /// Memory of this many buckets that was unlinked.
    pub(super) fn new(at: *mut Bucket<K, V>, buckets: usize) -> Self {
        let buckets = NonZero::new(buckets).expect("a part has a bucket");
        Self { at, buckets }
    }

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
    pub(super) fn allocate(buckets: usize) -> *mut Bucket<K, V> {
        let at = Self::room(buckets, alloc_zeroed);
        // SAFETY: as many zeroed words as there is room for, owned by this call.
        unsafe { crate::sync::null_pointers(at.cast::<AtomicPtr<Node<K, V>>>(), buckets * WORDS) };
        at
    }

    /// Allocates buckets that the caller [clears](Self::clear) before it uses them: under a shard's
    /// lock there is no time to write to all of them.
    pub(super) fn reserve(buckets: usize) -> *mut Bucket<K, V> {
        Self::room(buckets, alloc)
    }

    /// Makes all words of a bucket null.
    ///
    /// # Safety
    ///
    /// `at` points to memory for a bucket that no other code uses yet.
    pub(super) unsafe fn clear(at: *mut Bucket<K, V>) {
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
            // A link at such an address would be taken for a node. A move that needs an overflow
            // bucket cannot stop half-way, so the address is treated as 'out of memory'.
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
