//! The entry: what a key has in the wheel and in the size policy, whichever of its nodes is
//! current.
//!
//! # How it works
//!
//! A replacement brings a new node, since readers may still hold the former one. The new node takes
//! the entry over, which stays where it is. So the pass touches its neighbours only if the new
//! deadline belongs in another bucket of the wheel, or if the size policy moves the entry because
//! it was used. Lists link entries; an entry knows its current node.
//!
//! ```text
//!  of every entry                                                   where there is a size policy
//! ┌──────┬─────────────┬───────────┬──────────┬──────┬──────┐     ┌─────────────┬────────┐
//! │ node │ timer links │ bucket_id │ queue_id │ mark │ uses │     │ queue links │ weight │
//! └──────┴─────────────┴───────────┴──────────┴──────┴──────┘     └─────────────┴────────┘
//!   8      12 bytes      1           1          1      1            12            4
//! ```
//!
//! The addresses in links are kept in two parts, without the bits that are always zero (`address`).
//!
//! # Invariants
//!
//! 1. An [`EntryPtr`] points to an initialised entry until its last node is given back. Earlier
//!    nodes of the entry may be freed after the last one. A thread that can still reach an earlier
//!    node holds a pin from before the last node left the map. Or it has found the node in a ring
//!    or batch, which is drained before the last node is freed (engine 3).
//! 2. Only the holder of the maintenance lock reads and writes an entry, but for two cases, both
//!    under the shard's lock. Its writer makes it, before its first node is published. A writer may
//!    look which node is named, and name the next (3).
//! 3. `node` is the last of the entry's nodes that the pass has heard of, or need not hear of. The
//!    pass names a node when it applies the event by which that replaced another. A writer names
//!    one itself only where the event need not tell of more than a use, and the entry names the
//!    node that it replaces. Then no event waits by which the pass names one. The node that is
//!    named is not retired while the entry is linked, or while an event waits by which another node
//!    follows it. Only the holder of the maintenance lock retires nodes. So what that thread has
//!    read here it may use until it drains a batch.
#![allow(unsafe_code)]

use super::address::{AtomicHigh, Parts, parts, prefetch_to_write, whole};
use super::hot::Node;
use super::pointer::{NodePtr, Ptr};
use crate::sync::{AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// `bucket_id` of an entry that is linked in no bucket.
pub(crate) const NO_BUCKET: u8 = u8::MAX;

/// In [`Links`]: the entry before.
pub(crate) const PREV: usize = 0;
/// In [`Links`]: the entry behind.
pub(crate) const NEXT: usize = 1;

/// [`PREV`] and [`NEXT`] in an intrusive list; null at the ends and while not linked.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Links {
    low: [AtomicU32; 2],
    high: [AtomicHigh; 2],
}

/// Relaxed, as all accesses to an entry but to its node: only the holder of one lock makes them
/// (entry 2).
impl Links {
    #[inline]
    pub(crate) fn get<K, V>(&self, at: usize) -> Option<EntryPtr<K, V>> {
        let low = self.low[at].load(Ordering::Relaxed);
        let high = self.high[at].load(Ordering::Relaxed);
        NonNull::new(whole((low, high)).cast()).map(Ptr)
    }

    #[inline]
    pub(crate) fn set<K, V>(&self, at: usize, to: Option<EntryPtr<K, V>>) {
        let (low, high) = match to {
            Some(entry) => entry.parts(),
            None => (0, 0),
        };
        self.low[at].store(low, Ordering::Relaxed);
        self.high[at].store(high, Ordering::Relaxed);
    }
}

/// A number in an entry.
#[derive(Default)]
pub(crate) struct Field<A>(A);

impl Field<AtomicU8> {
    #[inline]
    pub(crate) fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, to: u8) {
        self.0.store(to, Ordering::Relaxed);
    }
}

impl Field<AtomicU32> {
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, to: u32) {
        self.0.store(to, Ordering::Relaxed);
    }
}

/// An entry of nodes with these keys and values; see the module docs.
#[repr(C)]
pub(crate) struct EntryFields<K, V> {
    node: AtomicPtr<Node<K, V>>,
    pub(crate) timer: Links,
    /// The number of the wheel bucket that it is linked in; the wheel gives the numbers their
    /// meaning.
    pub(crate) bucket_id: Field<AtomicU8>,
    /// Which queue of the size policy it is linked in; the policy gives the numbers their meaning,
    /// 0 is none.
    pub(crate) queue_id: Field<AtomicU8>,
    /// It belongs to the size policy.
    pub(crate) mark: Field<AtomicU8>,
    /// How often the entry was used, as far as the size policy counts it.
    pub(crate) uses: Field<AtomicU8>,
    /// A pointer to an entry gives keys and values out.
    _content: PhantomData<(K, V)>,
}

/// The size policy's data of an entry, behind the entry itself.
#[derive(Default)]
#[repr(C)]
pub(crate) struct PolicyLinks {
    pub(crate) queue: Links,
    /// As the policy counts it.
    pub(crate) weight: Field<AtomicU32>,
}

/// Where the policy links begin, whatever the types of keys and values.
const POLICY_LINKS: usize =
    size_of::<EntryFields<(), ()>>().next_multiple_of(align_of::<PolicyLinks>());

/// Bytes of an entry, with or without a size policy.
pub(super) const fn size(queue: bool) -> usize {
    let size = if queue {
        POLICY_LINKS + size_of::<PolicyLinks>()
    } else {
        size_of::<EntryFields<(), ()>>()
    };
    size.next_multiple_of(ALIGN)
}

/// The alignment of entries.
pub(super) const ALIGN: usize = align_of::<EntryFields<(), ()>>();
const _: () = assert!(align_of::<PolicyLinks>() <= ALIGN);

/// A pointer to an entry (entry 1).
pub(crate) type EntryPtr<K, V> = Ptr<EntryFields<K, V>>;

impl<K, V> EntryPtr<K, V> {
    /// Makes an entry that is not linked, for its first node.
    ///
    /// # Safety
    ///
    /// `slot` is a slot for entries, the caller's alone, with room for the policy links if it
    /// shall have them (`queue`).
    #[inline]
    pub(super) unsafe fn make(slot: NonNull<u8>, node: NonNull<Node<K, V>>, queue: bool) -> Self {
        let entry = slot.cast::<EntryFields<K, V>>();
        // SAFETY: the caller's promise; slots for entries are `size` bytes apart and aligned to
        // `ALIGN`.
        unsafe {
            entry.write(EntryFields {
                node: AtomicPtr::new(node.as_ptr()),
                timer: Links::default(),
                bucket_id: Field(AtomicU8::new(NO_BUCKET)),
                queue_id: Field::default(),
                mark: Field::default(),
                uses: Field::default(),
                _content: PhantomData,
            });
            if queue {
                (slot.add(POLICY_LINKS).cast()).write(PolicyLinks::default());
            }
        }
        Ptr(entry)
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

    /// What the size policy keeps, in a cache that has one.
    #[inline]
    pub(crate) fn policy(&self) -> &PolicyLinks {
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
        // Acquire, partner: the release in `set_node`, so that the node is whole.
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: written by `make` or `set_node`, so not null. Entry 3: the caller has the
        // maintenance lock, and the entry from a list, or from an event that waits or is being
        // applied.
        unsafe { NodePtr::from_raw(node) }
    }

    /// Whether a node of this entry is the current one. For the holder of the shard's lock, too.
    ///
    /// Relaxed: it compares the address with that of a node that the caller has.
    #[inline]
    pub(crate) fn names(self, node: NodePtr<K, V>) -> bool {
        self.node.load(Ordering::Relaxed) == node.as_raw()
    }

    /// Makes a node of this entry the current one (entry 3).
    #[inline]
    pub(crate) fn set_node(self, node: NodePtr<K, V>) {
        debug_assert_eq!(node.entry(), self, "a node of another entry");
        // Release, partner: the acquire in `node`.
        self.node.store(node.as_raw(), Ordering::Release);
    }

    /// Prefetches the entry, to write to it, and on request what the size policy keeps, which may
    /// be on another line.
    #[inline]
    pub(crate) fn prefetch(self, policy: bool) {
        prefetch_to_write(self.0.as_ptr());
        if policy {
            prefetch_to_write(self.policy());
        }
    }
}
