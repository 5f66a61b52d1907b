//! The arithmetic of a chunk: from a node to its chunk, its side part and its cells in columns.
//!
//! See [`slab`](super::slab) for the layout.
#![allow(unsafe_code)]

use super::address::prefetch;
use super::entry;
use super::hot::{Node, Side};
use super::pool::{ONE_SLOT_CHUNKS, Shape};
use super::refresh::RefreshMoment;
use crate::sync::AtomicU64;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

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
    /// Entries have policy links: links, weight and stamp of the size policy.
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
pub(super) struct Geometry<K, V>(PhantomData<(K, V)>);

impl<K, V> Geometry<K, V> {
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

    /// The columns of one chunk: their layout, and where the moments of refresh and the weights
    /// begin in it.
    pub(super) fn columns(columns: Columns) -> (Layout, usize, usize) {
        let cells = |has: bool| if has { Self::SLOTS } else { 0 };
        let fits = "the columns of a chunk fit the address space";
        let owns = Layout::array::<AtomicU64>(cells(columns.own)).expect(fits);
        let refreshes = Layout::array::<RefreshMoment>(cells(columns.refresh)).expect(fits);
        let weights = Layout::array::<u32>(cells(columns.weight)).expect(fits);
        let (layout, refresh) = owns.extend(refreshes).expect(fits);
        let (layout, weight) = layout.extend(weights).expect(fits);
        // So that the columns of the next chunk are aligned, too.
        let layout = layout.align_to(align_of::<AtomicU64>()).expect(fits);
        (layout.pad_to_align(), refresh, weight)
    }

    pub(super) fn shape(columns: Columns) -> Shape {
        Shape {
            size: Self::SIZE,
            first: Self::FIRST,
            stride: Self::HOT,
            slots: Self::SLOTS,
            beside: Self::columns(columns).0.size(),
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

/// The parts of a node beside its hot one, by the address of its [`NodePtr`](super::NodePtr).
///
/// # Safety
///
/// `node` is in a taken slot (node 1), or the caller owns its slot.
#[inline]
pub(super) unsafe fn side<'a, K, V>(node: NonNull<Node<K, V>>) -> &'a Side {
    // SAFETY: slab 1: the slot is taken, so the node is initialised.
    unsafe { Geometry::side(node).as_ref() }
}

/// The cell of a node in a column, if the slab has this column.
///
/// # Safety
///
/// As for [`side`].
#[inline]
pub(super) unsafe fn cell<'a, K, V, T>(
    node: NonNull<Node<K, V>>,
    column: impl FnOnce(&Header) -> Option<NonNull<T>>,
) -> Option<&'a T> {
    let (chunk, number) = Geometry::locate(node);
    // SAFETY: slab 2: the header is written; the column has as many cells as the chunk has slots,
    // and each is initialised with its node.
    unsafe { Some(column(chunk.as_ref())?.add(number).as_ref()) }
}

/// The shard whose slab holds the node.
///
/// # Safety
///
/// As for [`side`].
#[inline]
pub(super) unsafe fn shard<K, V>(node: NonNull<Node<K, V>>) -> usize {
    let (chunk, _) = Geometry::locate(node);
    // SAFETY: slab 2: the header is written.
    unsafe { chunk.as_ref() }.shard as usize
}

/// Prefetches the side part of a node.
#[inline]
pub(super) fn prefetch_side<K, V>(node: NonNull<Node<K, V>>) {
    prefetch(Geometry::side(node).as_ptr());
}
