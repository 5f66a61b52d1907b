//! The entry: what a key has in the wheel and in the size policy, whichever of its nodes is
//! current.
//!
//! # How it works
//!
//! A replacement brings a new node, since readers may still hold the former one. The entry stays
//! where it is: the new node takes it over, so the pass need not touch its neighbours, unless the
//! new deadline belongs in another bucket of the wheel or the size policy moves the entry because
//! it was used. Lists link entries; an entry knows its current node.
//!
//! ```text
//!  of every entry                                    where there is a size policy
//! ┌─────────────┬──────┬───────────┬──────────┐     ┌─────────────┬────────┬──────┬──────┐
//! │ timer links │ node │ bucket_id │ queue_id │     │ queue links │ weight │ mark │ uses │
//! └─────────────┴──────┴───────────┴──────────┘     └─────────────┴────────┴──────┴──────┘
//!   12 bytes      6      1           1                12            4        1      1, 2 to spare
//! ```
//!
//! Addresses are kept in two parts, without the bits that are always zero (`address`).
//!
//! # Invariants
//!
//! 1. An [`EntryPtr`] points to an initialised entry until its last node is given back. Earlier
//!    nodes of the entry may be freed after the last one. A thread that can still reach an earlier
//!    node holds a pin from before the last node left the map; or it found the node in a ring or
//!    batch, and these are drained before the last node is freed (maintenance 3). Garbage that is
//!    ready to be freed does not read its entry.
//! 2. Only the holder of the maintenance lock reads and writes an entry; but its writer makes it,
//!    under the shard's lock, before its first node is published.
//! 3. `node` is the last of the entry's nodes whose event was applied, or the first if none was. It
//!    is not retired while the entry is linked, or while an event waits by which another node
//!    follows it.
#![allow(unsafe_code)]

use super::address::{AtomicHigh, Parts, parts, prefetch, whole};
use super::pointer::{NodePtr, Ptr};
use crate::sync::{AtomicU8, AtomicU32, Ordering};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// `bucket_id` of an entry that is linked in no bucket.
pub(crate) const NO_BUCKET: u8 = u8::MAX;

/// Previous and next in an intrusive list; null at the ends and while not linked.
#[repr(C)]
pub(crate) struct Links {
    prev_low: AtomicU32,
    next_low: AtomicU32,
    prev_high: AtomicHigh,
    next_high: AtomicHigh,
}

impl Links {
    fn new() -> Self {
        Self {
            prev_low: AtomicU32::new(0),
            next_low: AtomicU32::new(0),
            prev_high: AtomicHigh::new(0),
            next_high: AtomicHigh::new(0),
        }
    }

    #[inline]
    pub(crate) fn prev<K, V>(&self) -> Option<EntryPtr<K, V>> {
        load(&self.prev_low, &self.prev_high)
    }

    #[inline]
    pub(crate) fn next<K, V>(&self) -> Option<EntryPtr<K, V>> {
        load(&self.next_low, &self.next_high)
    }

    #[inline]
    pub(crate) fn set_prev<K, V>(&self, to: Option<EntryPtr<K, V>>) {
        store(&self.prev_low, &self.prev_high, to);
    }

    #[inline]
    pub(crate) fn set_next<K, V>(&self, to: Option<EntryPtr<K, V>>) {
        store(&self.next_low, &self.next_high, to);
    }
}

/// Relaxed, as all accesses to an entry: only the holder of one lock makes them (entry 2).
#[inline]
fn load<K, V>(low: &AtomicU32, high: &AtomicHigh) -> Option<EntryPtr<K, V>> {
    let parts = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
    NonNull::new(whole(parts).cast()).map(Ptr)
}

#[inline]
fn store<K, V>(low: &AtomicU32, high: &AtomicHigh, to: Option<EntryPtr<K, V>>) {
    let (to_low, to_high) = to.map_or((0, 0), EntryPtr::parts);
    low.store(to_low, Ordering::Relaxed);
    high.store(to_high, Ordering::Relaxed);
}

/// See the module docs.
#[repr(C)]
struct Entry {
    timer: Links,
    node_low: AtomicU32,
    node_high: AtomicHigh,
    /// The number of the wheel bucket that it is linked in; the wheel gives the numbers their
    /// meaning.
    bucket_id: AtomicU8,
    /// Which queue of the size policy it is linked in; the policy gives the numbers their meaning,
    /// 0 is none.
    queue_id: AtomicU8,
}

/// The size policy's data of an entry, behind the entry itself.
#[repr(C)]
struct PolicyLinks {
    queue: Links,
    /// As the policy counts it.
    weight: AtomicU32,
    mark: AtomicU8,
    uses: AtomicU8,
}

/// Where the policy links begin.
const POLICY_LINKS: usize = size_of::<Entry>().next_multiple_of(align_of::<PolicyLinks>());

/// Bytes of an entry, with or without a size policy.
pub(super) const fn size(queue: bool) -> usize {
    let size = if queue {
        POLICY_LINKS + size_of::<PolicyLinks>()
    } else {
        size_of::<Entry>()
    };
    size.next_multiple_of(ALIGN)
}

/// The alignment of entries.
pub(super) const ALIGN: usize = align_of::<Entry>();
const _: () = assert!(align_of::<PolicyLinks>() <= ALIGN);

/// An entry of nodes with these keys and values.
#[repr(transparent)]
pub(crate) struct EntryOf<K, V>(Entry, PhantomData<(K, V)>);

/// A pointer to an entry (entry 1).
pub(crate) type EntryPtr<K, V> = Ptr<EntryOf<K, V>>;

impl<K, V> EntryPtr<K, V> {
    /// Makes an entry that is not linked, for its first node.
    ///
    /// # Safety
    ///
    /// `slot` is a slot for entries, the caller's alone, with room for the policy links if it
    /// shall have them (`queue`).
    #[inline]
    pub(super) unsafe fn make(slot: NonNull<u8>, node: NonNull<u8>, queue: bool) -> Self {
        let (low, high) = parts(node.as_ptr());
        let entry = slot.cast::<Entry>();
        // SAFETY: the caller's promise; slots for entries are `size` bytes apart and aligned to
        // `ALIGN`.
        unsafe {
            entry.write(Entry {
                timer: Links::new(),
                node_low: AtomicU32::new(low),
                node_high: AtomicHigh::new(high),
                bucket_id: AtomicU8::new(NO_BUCKET),
                queue_id: AtomicU8::new(0),
            });
            if queue {
                slot.add(POLICY_LINKS).cast().write(PolicyLinks {
                    queue: Links::new(),
                    weight: AtomicU32::new(0),
                    mark: AtomicU8::new(0),
                    uses: AtomicU8::new(0),
                });
            }
        }
        Self(entry.cast())
    }

    /// From what [`parts`](Self::parts) gave.
    ///
    /// # Safety
    ///
    /// The entry is there while the result is used (entry 1).
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
    fn entry(&self) -> &Entry {
        // SAFETY: entry 1.
        unsafe { &self.0.as_ref().0 }
    }

    #[inline]
    fn policy_links(&self) -> &PolicyLinks {
        // SAFETY: entry 1; only a size policy asks, and where there is one its entries have
        // policy links.
        unsafe { self.0.byte_add(POLICY_LINKS).cast().as_ref() }
    }

    /// Its address as a number: identifies it while the cache exists.
    pub(crate) fn address(self) -> usize {
        self.0.addr().get()
    }

    /// The current node.
    #[inline]
    pub(crate) fn node(self) -> NodePtr<K, V> {
        let entry = self.entry();
        let low = entry.node_low.load(Ordering::Relaxed);
        let high = entry.node_high.load(Ordering::Relaxed);
        // SAFETY: written by `make` or `set_node`, so not null. Entry 3: the caller has the entry
        // from a list, or from an event that waits or is being applied.
        unsafe { NodePtr::from_raw(whole((low, high)).cast()) }
    }

    /// Makes a node of this entry the current one.
    #[inline]
    pub(crate) fn set_node(self, node: NodePtr<K, V>) {
        debug_assert_eq!(node.entry(), self, "a node of another entry");
        let (low, high) = parts(node.as_raw().cast());
        let entry = self.entry();
        entry.node_low.store(low, Ordering::Relaxed);
        entry.node_high.store(high, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn bucket_id(self) -> u8 {
        self.entry().bucket_id.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_bucket_id(self, bucket_id: u8) {
        self.entry().bucket_id.store(bucket_id, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn queue_id(self) -> u8 {
        self.entry().queue_id.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_queue_id(self, queue_id: u8) {
        self.entry().queue_id.store(queue_id, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn timer(&self) -> &Links {
        &self.entry().timer
    }

    /// The size policy's links; this, weight, mark and uses are for caches that have one.
    #[inline]
    pub(crate) fn queue(&self) -> &Links {
        &self.policy_links().queue
    }

    /// The weight of the entry, as the size policy counts it.
    #[inline]
    pub(crate) fn weight(self) -> u32 {
        self.policy_links().weight.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_weight(self, weight: u32) {
        self.policy_links().weight.store(weight, Ordering::Relaxed);
    }

    /// A byte that belongs to the size policy.
    #[inline]
    pub(crate) fn mark(self) -> u8 {
        self.policy_links().mark.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_mark(self, mark: u8) {
        self.policy_links().mark.store(mark, Ordering::Relaxed);
    }

    /// How often the entry was used, as far as the size policy counts it.
    #[inline]
    pub(crate) fn uses(self) -> u8 {
        self.policy_links().uses.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_uses(self, uses: u8) {
        self.policy_links().uses.store(uses, Ordering::Relaxed);
    }

    /// Prefetches the entry.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch(self.0.as_ptr());
    }

    /// Prefetches the policy links, which may be on another line.
    #[inline]
    pub(crate) fn prefetch_policy_links(self) {
        prefetch(self.policy_links());
    }
}
