//! Pointers to nodes, and the arithmetic by which they find the other parts: from a node to its
//! chunk, its side part and its cells in columns.
//!
//! See [`slab`](super::slab) for the layout.
#![allow(unsafe_code)]

use super::address::{TAG_SHIFT, prefetch, prefetch_to_write};
use super::entry::{self, EntryPtr};
use super::hot::{Node, Side};
use super::pool::{ONE_SLOT_CHUNKS, Shape};
use super::refresh::RefreshMoment;
use crate::contain::contain;
use crate::sync::{AtomicU64, Ordering};
use crate::time::{self, NEVER};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::time::Duration;

/// The smallest chunk, in bytes, and the fewest nodes in one.
const MIN_CHUNK: usize = if ONE_SLOT_CHUNKS { 1 } else { 2048 };
const MIN_SLOTS: usize = if ONE_SLOT_CHUNKS { 1 } else { 8 };
/// A node larger than this has a chunk of its own. Otherwise the first node would allocate room for
/// eight.
const OWN_CHUNK_FROM: usize = 4096;

/// The columns that the nodes of a slab have beside hot and side parts, and their entries beside
/// the timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Columns {
    /// Entries have policy links: links and weight for the size policy.
    pub(crate) queue: bool,
    /// Nodes have the entry's own deadline, apart from the wanted one.
    pub(crate) own: bool,
    /// Nodes have a weight; else each weighs 1.
    pub(crate) weight: bool,
    /// Nodes have a moment from which they are stale.
    pub(crate) refresh: bool,
}

/// The beginning of a chunk of nodes.
#[repr(C)]
pub(super) struct Header {
    /// Used by the pool (pool 4).
    region: u32,
    /// The shard that owns the slab.
    pub(super) shard: u32,
    /// The chunk's part of each column that the slab has.
    pub(super) owns: Option<NonNull<AtomicU64>>,
    pub(super) refreshes: Option<NonNull<RefreshMoment>>,
    pub(super) weights: Option<NonNull<u32>>,
}

/// The arithmetic of a chunk of nodes, computed when the crate is compiled for `K` and `V`.
impl<K, V> Node<K, V> {
    pub(super) const HOT: usize = size_of::<Node<K, V>>();
    pub(super) const SIDE: usize = size_of::<Side>();
    /// Where the hot parts begin: behind the header, so that none stands on two cache lines if
    /// their size allows that.
    const FIRST: usize = {
        let power = 1 << Self::HOT.trailing_zeros();
        let align = if power > 64 { 64 } else { power };
        let least = align_of::<Node<K, V>>();
        size_of::<Header>().next_multiple_of(if align > least { align } else { least })
    };
    const SIZE: usize = {
        let slots = if Self::HOT > OWN_CHUNK_FROM {
            1
        } else {
            MIN_SLOTS
        };
        let least = (Self::FIRST + slots * (Self::HOT + Self::SIDE)).next_power_of_two();
        if least > MIN_CHUNK { least } else { MIN_CHUNK }
    };
    pub(super) const SLOTS: usize = if ONE_SLOT_CHUNKS {
        1
    } else {
        (Self::SIZE - Self::FIRST) / (Self::HOT + Self::SIDE)
    };
    /// Where the side parts begin. A node is aligned to 8 at least, because of its deadline, and a
    /// side part to 8 at most.
    const SIDES: usize = {
        assert!(align_of::<Side>() <= align_of::<Node<K, V>>());
        Self::FIRST + Self::SLOTS * Self::HOT
    };

    /// The chunk of a node and the node's number in it.
    #[inline]
    pub(super) fn locate(node: NonNull<Node<K, V>>) -> (NonNull<Header>, usize) {
        let offset = node.addr().get() & (Self::SIZE - 1);
        // SAFETY: a chunk is aligned to its size and the node stands `offset` bytes behind its
        // beginning, in the same allocation.
        let chunk = unsafe { node.byte_sub(offset) };
        (chunk.cast(), (offset - Self::FIRST) / Self::HOT)
    }

    #[inline]
    pub(super) fn side(node: NonNull<Node<K, V>>) -> NonNull<Side> {
        let (chunk, number) = Self::locate(node);
        // SAFETY: within the chunk, which has a side part for each of its numbers.
        unsafe { chunk.byte_add(Self::SIDES + number * Self::SIDE).cast() }
    }

    /// The columns of one chunk: where the moments of refresh and the weights begin, and the size.
    pub(super) fn columns(columns: Columns) -> (usize, usize, usize) {
        let cells = |has: bool, size: usize| if has { Self::SLOTS * size } else { 0 };
        // The columns of larger cells come first, so each is aligned.
        let refresh = cells(columns.own, size_of::<AtomicU64>());
        let weight = refresh + cells(columns.refresh, size_of::<RefreshMoment>());
        let end = weight + cells(columns.weight, size_of::<u32>());
        // So that the columns of the next chunk are aligned, too.
        (
            refresh,
            weight,
            end.next_multiple_of(align_of::<AtomicU64>()),
        )
    }

    pub(super) fn shape(columns: Columns) -> Shape {
        Shape {
            size: Self::SIZE,
            first: Self::FIRST,
            stride: Self::HOT,
            slots: Self::SLOTS,
            beside: Self::columns(columns).2,
        }
    }
}

/// The shape of chunks of entries.
pub(super) fn entries(columns: Columns) -> Shape {
    let stride = entry::size(columns.queue);
    let first = size_of::<u64>().next_multiple_of(entry::ALIGN);
    // Half as much as for nodes, which are more numerous, so that a small cache takes little memory
    // for its entries.
    let size = (first + MIN_SLOTS * stride)
        .next_power_of_two()
        .max(MIN_CHUNK / 2);
    Shape {
        size,
        first,
        stride,
        slots: if ONE_SLOT_CHUNKS {
            1
        } else {
            (size - first) / stride
        },
        beside: 0,
    }
}

/// A pointer to a node or an entry that has not been freed (node 1, entry 1).
pub(crate) struct Ptr<T>(pub(super) NonNull<T>);

// SAFETY: it gives out `&T` only, which several threads may have (Sync); the last one to hold a
// pointer to a node drops its key and value (Send).
unsafe impl<T: Send + Sync> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Ptr<T> {}

impl<T> Clone for Ptr<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}

impl<T> std::ops::Deref for Ptr<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: node 1, entry 1: a pointer is used only before its node or entry is freed.
        unsafe { self.0.as_ref() }
    }
}

/// A pointer to a node that has not been freed (node 1).
pub(crate) type NodePtr<K, V> = Ptr<Node<K, V>>;

impl<K, V> NodePtr<K, V> {
    /// The address as the map stores it.
    #[inline]
    pub(crate) fn as_raw(self) -> *mut Node<K, V> {
        self.0.as_ptr()
    }

    /// Takes back what [`as_raw`](Self::as_raw) gave.
    ///
    /// # Safety
    ///
    /// `raw` comes from `as_raw` of a node that is not freed while the result is used (node 1).
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *mut Node<K, V>) -> Self {
        // SAFETY: `as_raw` never gives null.
        Self(unsafe { NonNull::new_unchecked(raw) })
    }

    /// This node with a note beside it, in one word.
    #[inline]
    pub(crate) fn with(self, note: u8) -> Noted<K, V> {
        let address = self.0.as_ptr().expose_provenance() as u64;
        Noted {
            word: address | u64::from(note) << TAG_SHIFT,
            node: PhantomData,
        }
    }

    /// Asks the processor to fetch what a look-up reads, and the way to the entry.
    #[inline]
    pub(crate) fn prefetch_hot(self) {
        prefetch(self.0.as_ptr());
    }

    /// Asks the processor to fetch the hash.
    #[inline]
    pub(crate) fn prefetch_side(self) {
        prefetch(Node::side(self.0).as_ptr());
    }

    /// Asks the processor to fetch what a look-up reads, to write to it.
    #[inline]
    pub(crate) fn prefetch_hot_to_write(self) {
        prefetch_to_write(self.0.as_ptr());
    }

    /// Asks the processor to fetch the node.
    #[inline]
    pub(crate) fn prefetch(self) {
        self.prefetch_hot();
        self.prefetch_side();
    }

    /// The shard of the map whose slab it is of.
    #[inline]
    pub(crate) fn shard(self) -> usize {
        let (chunk, _) = Node::locate(self.0);
        // SAFETY: slab 2: the header is written. The slot is taken (node 1), or the content was
        // dropped already, and the caller still owns the slot.
        unsafe { chunk.as_ref() }.shard as usize
    }

    /// The entry, by which the node is linked in the wheel and in the size policy.
    #[inline]
    pub(crate) fn entry(&self) -> EntryPtr<K, V> {
        // SAFETY: written when the node was; entry 1.
        unsafe { EntryPtr::from_parts((self.entry_low, self.entry_high)) }
    }

    #[inline]
    fn side(&self) -> &Side {
        // SAFETY: node 1: the node is not freed, so its slot is taken, and it is initialised (slab
        // 1).
        unsafe { Node::side(self.0).as_ref() }
    }

    /// The cell of the node in a column, if the slab has this column.
    #[inline]
    fn cell<T>(&self, column: impl FnOnce(&Header) -> Option<NonNull<T>>) -> Option<&T> {
        let (chunk, number) = Node::locate(self.0);
        // SAFETY: slab 2: the header is written; the column has as many cells as the chunk has
        // slots, and each is initialised with its node, which is not freed (node 1).
        unsafe { Some(column(chunk.as_ref())?.add(number).as_ref()) }
    }

    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.side().hash
    }

    /// Cache time of the write that made this node, or of the last reload that left it unchanged.
    ///
    /// Relaxed: a reload moves it under the shard's lock before it moves the deadline, with
    /// release.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.side().written.load(Ordering::Relaxed)
    }

    /// How long ago that was: nothing, if it was not noted or the clock has stepped back.
    #[inline]
    pub(crate) fn age(&self, now: u64) -> Duration {
        match self.written() {
            NEVER => Duration::ZERO,
            written => Duration::from_nanos(time::elapsed(now, written)),
        }
    }

    /// Notes that a reload has left the value unchanged. Under the shard's lock.
    pub(crate) fn set_written(&self, now: u64) {
        self.side().written.store(now, Ordering::Relaxed);
    }

    /// From when on the node is stale, where the cache refreshes.
    #[inline]
    pub(crate) fn refresh(&self) -> Option<&RefreshMoment> {
        self.cell(|header| header.refreshes)
    }

    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        match self.cell(|header| header.weights) {
            Some(weight) => *weight,
            None => 1,
        }
    }

    /// The deadline that the entry's own lifetime gives, without the cache-wide limits; the wanted
    /// deadline where the two are not kept apart.
    pub(crate) fn own_deadline(&self) -> u64 {
        match self.cell(|header| header.owns) {
            Some(own) => own.load(Ordering::Acquire),
            None => self.deadline(),
        }
    }

    /// Sets [`own_deadline`](Self::own_deadline) where it is kept apart.
    pub(crate) fn set_own_deadline(&self, deadline: u64) {
        if let Some(own) = self.cell(|header| header.owns) {
            own.store(deadline, Ordering::Release);
        }
    }

    /// Drops key and value. A panic of either destructor ends here.
    ///
    /// # Safety
    ///
    /// Node 1: from now on the pointer serves only to give the slot back.
    pub(crate) unsafe fn destroy(self) {
        let node = self.0.as_ptr();
        // SAFETY: the node is initialised and no other code uses it (the caller).
        contain(|| unsafe { (&raw mut (*node).key).drop_in_place() });
        // SAFETY: likewise. Its other fields and parts have nothing to drop.
        contain(|| unsafe { (&raw mut (*node).value).drop_in_place() });
    }
}

/// A pointer to a node, with a byte beside it in the bits that an address leaves free
/// (`node/address.rs`).
pub(crate) struct Noted<K, V> {
    word: u64,
    node: PhantomData<NodePtr<K, V>>,
}

impl<K, V> Clone for Noted<K, V> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Noted<K, V> {}

impl<K, V> Noted<K, V> {
    #[inline]
    pub(crate) fn note(self) -> u8 {
        (self.word >> TAG_SHIFT) as u8
    }

    #[inline]
    pub(crate) fn node(self) -> NodePtr<K, V> {
        let address = self.word & !(u64::from(u8::MAX) << TAG_SHIFT);
        let node = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: `with` has made the word from a pointer that is not null; node 1, as of that
        // pointer.
        unsafe { NodePtr::from_raw(node) }
    }
}
