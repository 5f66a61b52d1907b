//! The seat of an entry: where it hangs in wheel and size policy, whichever of its nodes is there.
//!
//! # How it works
//!
//! A value that replaces another comes in by a node of its own, since readers may still hold the former one. But the entry stays where it is:
//! the new node takes over the seat, and nobody has to touch its neighbours there, unless the new deadline belongs in another bucket of the wheel
//! or the size policy moves what was used. Lists link seats; a seat knows the node that sits in it.
//!
//! ```text
//!  of every entry                                       where there is a size policy
//! ┌─────────────┬───────────────┬───────┬────────┐     ┌─────────────┬────────┬──────┐
//! │ timer links │ node          │ place │ region │     │ queue links │ weight │ mark │
//! └─────────────┴───────────────┴───────┴────────┘     └─────────────┴────────┴──────┘
//!   12 bytes      6               1       1              12            4        1 and 3 to spare
//! ```
//!
//! Addresses take six bytes each, since none has more than 48 bits (`assert_taggable`).
//!
//! # Invariants
//!
//! 1. A [`SeatPtr`] points to an initialised seat until the last node that sat in it is given back. Earlier ones may be given back later; but
//!    whoever can still reach one of these has a pin from before the last one left the map, or has met it in a ring or a batch that is drained
//!    before the last one may be freed (maintenance 3). What is ready to be freed reads its seat no more.
//! 2. A seat is read and written by the holder of the maintenance lock alone, but that its writer makes it, under the shard's lock, before
//!    its first node is published.
//! 3. `node` is the last of the seat's nodes whose event was applied, or the first if none was. It is not retired while the seat is linked, or while
//!    an event waits by which another node follows it.
#![allow(unsafe_code)]

use super::{NO_PLACE, Node, NodePtr};
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// An address in two parts.
type Parts = (u32, u16);

#[inline]
pub(super) fn parts(at: *mut u8) -> Parts {
    let at = at.expose_provenance();
    (at as u32, (at >> 32) as u16)
}

#[inline]
pub(super) fn whole((low, high): Parts) -> *mut u8 {
    ptr::with_exposed_provenance_mut(low as usize | usize::from(high) << 32)
}

/// Previous and next in an intrusive list; null at the ends and while not linked.
#[repr(C)]
pub(crate) struct Links<K, V> {
    prev_low: AtomicU32,
    next_low: AtomicU32,
    prev_high: AtomicU16,
    next_high: AtomicU16,
    _seats: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Links<K, V> {
    fn new() -> Self {
        Self {
            prev_low: AtomicU32::new(0),
            next_low: AtomicU32::new(0),
            prev_high: AtomicU16::new(0),
            next_high: AtomicU16::new(0),
            _seats: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn prev(&self) -> Option<SeatPtr<K, V>> {
        load(&self.prev_low, &self.prev_high)
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<SeatPtr<K, V>> {
        load(&self.next_low, &self.next_high)
    }

    #[inline]
    pub(crate) fn set_prev(&self, to: Option<SeatPtr<K, V>>) {
        store(&self.prev_low, &self.prev_high, to);
    }

    #[inline]
    pub(crate) fn set_next(&self, to: Option<SeatPtr<K, V>>) {
        store(&self.next_low, &self.next_high, to);
    }
}

/// Relaxed, as all of a seat: one lock's holder alone (seat 2).
#[inline]
fn load<K, V>(low: &AtomicU32, high: &AtomicU16) -> Option<SeatPtr<K, V>> {
    let parts = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
    NonNull::new(whole(parts).cast()).map(SeatPtr)
}

#[inline]
fn store<K, V>(low: &AtomicU32, high: &AtomicU16, to: Option<SeatPtr<K, V>>) {
    let (to_low, to_high) = to.map_or((0, 0), SeatPtr::parts);
    low.store(to_low, Ordering::Relaxed);
    high.store(to_high, Ordering::Relaxed);
}

/// See the module docs.
#[repr(C)]
pub(crate) struct Seat<K, V> {
    timer: Links<K, V>,
    node_low: AtomicU32,
    node_high: AtomicU16,
    /// Number of the wheel bucket it hangs in; the wheel gives the numbers their meaning.
    place: AtomicU8,
    /// Which queue of the size policy it hangs in; the policy gives the numbers their meaning, 0 is none.
    region: AtomicU8,
}

/// What the size policy has of an entry, behind its seat.
#[repr(C)]
struct Standing<K, V> {
    queue: Links<K, V>,
    /// As the policy counts it.
    weight: AtomicU32,
    mark: AtomicU8,
}

/// Where the standing begins.
const STANDING: usize = size_of::<Seat<(), ()>>().next_multiple_of(align_of::<Standing<(), ()>>());

/// Bytes of a seat, with or without a size policy.
pub(super) const fn size(queue: bool) -> usize {
    let size = if queue {
        STANDING + size_of::<Standing<(), ()>>()
    } else {
        size_of::<Seat<(), ()>>()
    };
    size.next_multiple_of(ALIGN)
}

/// What seats are aligned to.
pub(super) const ALIGN: usize = if align_of::<Seat<(), ()>>() > align_of::<Standing<(), ()>>() {
    align_of::<Seat<(), ()>>()
} else {
    align_of::<Standing<(), ()>>()
};

/// A pointer to a seat (seat 1).
pub(crate) struct SeatPtr<K, V>(NonNull<Seat<K, V>>);

// SAFETY: a seat is atomics, which any thread may read and write; what it leads to is a `NodePtr`, with the same conditions.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for SeatPtr<K, V> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for SeatPtr<K, V> {}

impl<K, V> Clone for SeatPtr<K, V> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for SeatPtr<K, V> {}

impl<K, V> PartialEq for SeatPtr<K, V> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K, V> Eq for SeatPtr<K, V> {}

impl<K, V> fmt::Debug for SeatPtr<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat@{:p}", self.0)
    }
}

impl<K, V> SeatPtr<K, V> {
    /// What is true of the layout for `()` is true for all: the types' parameters are nobody's field.
    const SAME: () = assert!(
        size_of::<Seat<K, V>>() == size_of::<Seat<(), ()>>()
            && size_of::<Standing<K, V>>() == size_of::<Standing<(), ()>>()
            && align_of::<Seat<K, V>>() <= ALIGN
            && align_of::<Standing<K, V>>() <= ALIGN
    );

    /// Makes a seat for a node that hangs nowhere.
    ///
    /// # Safety
    ///
    /// `slot` is a slot for seats, the caller's alone, with room for a standing if it shall have one (`queue`).
    #[inline]
    pub(super) unsafe fn make(slot: NonNull<u8>, node: NonNull<Node<K, V>>, queue: bool) -> Self {
        const { Self::SAME };
        let (low, high) = parts(node.as_ptr().cast());
        let seat = slot.cast::<Seat<K, V>>();
        // SAFETY: the caller's promise; slots for seats are `size` bytes apart and aligned to `ALIGN`.
        unsafe {
            seat.write(Seat {
                timer: Links::new(),
                node_low: AtomicU32::new(low),
                node_high: AtomicU16::new(high),
                place: AtomicU8::new(NO_PLACE),
                region: AtomicU8::new(0),
            });
            if queue {
                slot.add(STANDING).cast().write(Standing::<K, V> {
                    queue: Links::new(),
                    weight: AtomicU32::new(0),
                    mark: AtomicU8::new(0),
                });
            }
        }
        Self(seat)
    }

    /// From what [`parts`](Self::parts) gave.
    ///
    /// # Safety
    ///
    /// The seat is there while the result is used (seat 1).
    #[inline]
    pub(super) unsafe fn from_parts(parts: Parts) -> Self {
        // SAFETY: the parts of a pointer that is not null.
        Self(unsafe { NonNull::new_unchecked(whole(parts).cast()) })
    }

    #[inline]
    pub(super) fn parts(self) -> Parts {
        parts(self.0.as_ptr().cast())
    }

    /// The slot it was made in.
    pub(super) fn slot(self) -> NonNull<u8> {
        self.0.cast()
    }

    #[inline]
    fn seat(&self) -> &Seat<K, V> {
        // SAFETY: seat 1.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn standing(&self) -> &Standing<K, V> {
        // SAFETY: seat 1; only a size policy asks, and where there is one its seats have a standing.
        unsafe { self.0.byte_add(STANDING).cast().as_ref() }
    }

    /// The node that sits here.
    #[inline]
    pub(crate) fn node(self) -> NodePtr<K, V> {
        let seat = self.seat();
        let parts = (
            seat.node_low.load(Ordering::Relaxed),
            seat.node_high.load(Ordering::Relaxed),
        );
        // SAFETY: written by `make` or `set_node`, so not null; seat 3: whoever asks has the seat from a list, or from an event that waits or is
        // being applied.
        unsafe { NodePtr::from_raw(whole(parts).cast()) }
    }

    /// Lets a node of this seat sit here.
    #[inline]
    pub(crate) fn set_node(self, node: NodePtr<K, V>) {
        debug_assert_eq!(node.seat(), self, "a node of another seat");
        let (low, high) = parts(node.as_raw().cast());
        let seat = self.seat();
        seat.node_low.store(low, Ordering::Relaxed);
        seat.node_high.store(high, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn place(self) -> u8 {
        self.seat().place.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_place(self, place: u8) {
        self.seat().place.store(place, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn region(self) -> u8 {
        self.seat().region.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_region(self, region: u8) {
        self.seat().region.store(region, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn timer(&self) -> &Links<K, V> {
        &self.seat().timer
    }

    /// The size policy's links; this, weight and mark are for caches that have one.
    #[inline]
    pub(crate) fn queue(&self) -> &Links<K, V> {
        &self.standing().queue
    }

    /// What the entry weighs, as the size policy counts it.
    #[inline]
    pub(crate) fn weight(self) -> u32 {
        self.standing().weight.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_weight(self, weight: u32) {
        self.standing().weight.store(weight, Ordering::Relaxed);
    }

    /// A byte of the size policy's own.
    #[inline]
    pub(crate) fn mark(self) -> u8 {
        self.standing().mark.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_mark(self, mark: u8) {
        self.standing().mark.store(mark, Ordering::Relaxed);
    }

    /// Asks the processor to fetch the seat.
    #[inline]
    pub(crate) fn prefetch(self) {
        super::prefetch(self.0.as_ptr());
    }

    /// Asks the processor to fetch the standing, which may be on another line.
    #[inline]
    pub(crate) fn prefetch_standing(self) {
        super::prefetch(self.standing());
    }
}
