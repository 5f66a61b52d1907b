//! The reads that callers leave for the maintenance pass. Unlike write events, some may be lost.
//!
//! # How it works
//!
//! A reader offers the node that it has hit to the ring of its stripe. `tail` counts the slots
//! taken, `head` the slots drained. A reader takes a slot by a compare-exchange on `tail` and fills
//! it by a store. If another reader takes the slot first, the event is lost; if the ring is full,
//! mostly also (`offer_read`); read events only inform the size policy. Each part of the cache has
//! rings of its own. The drainer holds the maintenance lock of the part. It walks from `head` and
//! stops at a slot that is taken but not filled yet.
//!
//! # Invariants
//!
//! 1. `head <= tail <= head + LEN`. A slot is filled by the reader that moved `tail` past it, and
//!    emptied by the drainer before `head` moves past it.
//! 2. A reader offers under a pin and holds the pin until the slot is filled. So after a grace
//!    period that began when a node left the map, no reader offers the node any more. The first
//!    *complete* drain after that takes its last event out. `engine` frees nodes only after that
//!    drain (node 1).
//!
//! # Cost
//!
//! An offer is one uncontended compare-exchange. Which reads are offered depends on the cache
//! ([`ReadBuffer::record_each`]):
//!
//! - In a large adaptive cache a node is offered at most once for each *stamp* ([`Renewals`]). So a
//!   cache that only serves hits soon offers no events.
//! - In a small cache, and under `Lru`, each read is offered, unless the ring holds a read of the
//!   same node as its last event. So the size policy hears of all reads of one thread in their
//!   order. Reads of one hot entry write nothing.
//!
//! # Origin
//!
//! The loss rule follows Caffeine's bounded read buffer.

use crate::node::{Node, NodePtr, prefetch_to_write};
use crate::reclaim::Pin;
use crate::stripe::Padded;
use crate::sync::{AtomicPtr, AtomicU8, AtomicUsize, IS_MODEL, Ordering};
use std::ptr;

/// The stamp under which each read is recorded: no node ever has it.
const EACH_READ: u8 = u8::MAX;

/// The stamp of new rings, where not each read is recorded.
pub(crate) const FIRST_STAMP: u8 = 1;

/// Events a ring holds.
pub(crate) const LEN: usize = if IS_MODEL { 2 } else { 32 };

/// One stripe's ring of pointers. It does not depend on the type that they point to.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: [AtomicPtr<T>; LEN],
}

impl<T> Ring<T> {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            slots: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Puts an item into the next slot. False if the ring is full, or another reader of the stripe
    /// takes the slot first.
    pub(crate) fn offer(&self, item: *mut T) -> bool {
        // Acquire, partner: the drainer's release of `head`: a slot at or beyond it has been
        // emptied.
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(head) >= LEN {
            return false;
        }
        // Relaxed: taking a slot publishes nothing; filling it does.
        let next = tail.wrapping_add(1);
        let (taken, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        if (self.tail.compare_exchange(tail, next, taken, failed)).is_err() {
            return false;
        }
        // Release, partner: the drainer's acquire of the slot.
        self.slots[tail % LEN].store(item, Ordering::Release);
        true
    }

    /// Whether it has no room, so that a pass should drain it. Relaxed: a hint.
    fn is_full(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        self.tail.load(Ordering::Relaxed).wrapping_sub(head) >= LEN
    }

    /// Whether the last event of the ring is a read of this item. If so, another one would change
    /// nothing.
    ///
    /// Relaxed: the calling thread filled that slot itself, as long as no other thread uses the
    /// stripe.
    fn ends_with(&self, item: *mut T) -> bool {
        // Mostly an offer follows, which writes both.
        prefetch_to_write(&raw const self.tail);
        let last = self.tail.load(Ordering::Relaxed).wrapping_sub(1);
        let slot = &self.slots[last % LEN];
        prefetch_to_write(&raw const *slot);
        slot.load(Ordering::Relaxed) == item
    }

    /// Takes out the filled slots, oldest first; true if every event offered before the call was
    /// taken.
    ///
    /// One drainer at a time: the holder of the maintenance lock.
    pub(crate) fn drain(&self, mut take: impl FnMut(*mut T)) -> bool {
        let mut head = self.head.load(Ordering::Relaxed);
        // Acquire keeps the walk after this load; what is offered later belongs to the next drain.
        let tail = self.tail.load(Ordering::Acquire);
        while head != tail {
            let slot = &self.slots[head % LEN];
            let item = slot.load(Ordering::Acquire);
            if item.is_null() {
                return false;
            }
            slot.store(ptr::null_mut(), Ordering::Relaxed);
            head = head.wrapping_add(1);
            // Release, partner: `offer`'s acquire of `head`.
            self.head.store(head, Ordering::Release);
            take(item);
        }
        true
    }
}

/// A ring of the nodes that were read.
type Stripe<K, V> = Padded<Ring<Node<K, V>>>;

/// The rings of a cache.
pub(crate) struct ReadBuffer<K, V> {
    /// Those of a part stand as far from each other as there are parts.
    stripes: Box<[Stripe<K, V>]>,
    /// The value that a node's `seen` is set to when a read of it is offered, or [`EACH_READ`].
    /// Without rings it is 0, as `seen` is at first: then no read is offered.
    stamp: AtomicU8,
    /// How many parts the cache has: a power of two, and at most 128.
    parts: u8,
}

impl<K, V> ReadBuffer<K, V> {
    /// Makes no rings: no read is recorded.
    pub(crate) fn none() -> Self {
        Self {
            stripes: Box::default(),
            stamp: AtomicU8::new(0),
            parts: 1,
        }
    }

    /// Makes `stripes` rings for the parts of a cache, of both a power of two. The first read of a
    /// node under each stamp is recorded.
    pub(crate) fn new(stripes: usize, parts: u8) -> Self {
        debug_assert!(stripes.is_power_of_two() && parts.is_power_of_two());
        Self {
            stripes: (0..stripes).map(|_| Padded(Ring::new())).collect(),
            stamp: AtomicU8::new(FIRST_STAMP),
            parts,
        }
    }

    /// Which reads are recorded from now on. With `each`: all, but for one of the entry that the
    /// ring's last event names already. Else the first read of a node under each stamp.
    ///
    /// Call it with the maintenance lock held, or before the rings are shared.
    pub(crate) fn record_each(&self, each: bool) {
        if each == self.records_each() {
            return;
        }
        let stamp = if each { EACH_READ } else { FIRST_STAMP };
        self.stamp.store(stamp, Ordering::Relaxed);
    }

    /// Whether each read is recorded. Relaxed: it changes under a maintenance lock.
    #[inline]
    pub(crate) fn records_each(&self) -> bool {
        self.stamp.load(Ordering::Relaxed) == EACH_READ
    }

    /// Whether a read of `node` is to be offered. Relaxed: an event too many or too few only
    /// changes what the size policy knows.
    #[inline]
    pub(crate) fn should_record(&self, node: NodePtr<K, V>) -> bool {
        node.seen() != self.stamp.load(Ordering::Relaxed)
    }

    /// A node has replaced another, whose stamp it has, which counts as a use. True if that use is
    /// to be recorded. Where one use for each stamp is, the next read of the node need not be
    /// recorded.
    pub(crate) fn record_write(&self, node: NodePtr<K, V>) -> bool {
        let is_use = self.should_record(node);
        self.mark(node);
        is_use
    }

    /// Notes in a node that a use of it was recorded.
    #[inline]
    pub(crate) fn mark(&self, node: NodePtr<K, V>) {
        let stamp = self.stamp.load(Ordering::Relaxed);
        if stamp != EACH_READ {
            node.set_seen(stamp);
        }
    }

    /// The stamp of now.
    pub(crate) fn stamp(&self) -> u8 {
        self.stamp.load(Ordering::Relaxed)
    }

    /// From now on every node's next read is recorded. The exception is a node last read exactly
    /// 254 renewals ago: its read is recorded after the next renewal.
    ///
    /// Call it with a maintenance lock held.
    pub(crate) fn renew(&self) {
        let stamp = self.stamp.load(Ordering::Relaxed);
        if stamp == EACH_READ {
            return;
        }
        let next = if stamp + 1 == EACH_READ { 1 } else { stamp + 1 };
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        // If it fails, the holder of another part's lock has renewed the stamp.
        _ = self.stamp.compare_exchange(stamp, next, order, failed);
    }

    /// Offers the event that `node`, which belongs to this part, was read. False if there is no
    /// room for it, so that a pass should drain the rings. The caller holds the pin until this
    /// returns, when the event is in its slot (buffer 2).
    #[inline]
    pub(crate) fn offer(&self, node: NodePtr<K, V>, part: usize, _pin: &Pin) -> bool {
        // Indices of ending threads are large.
        let ring = crate::stripe::index().wrapping_mul(self.parts.into());
        let ring = &self.stripes[ring.wrapping_add(part) & (self.stripes.len() - 1)];
        if ring.ends_with(node.as_raw()) || ring.offer(node.as_raw()) {
            self.mark(node);
            return true;
        }
        !ring.is_full()
    }

    /// Takes out all events of a part, those of a ring together and in order; true if the drain was
    /// complete (buffer 2). `taken` is a buffer that the caller keeps from call to call.
    pub(crate) fn drain(
        &self,
        part: usize,
        taken: &mut Vec<NodePtr<K, V>>,
        mut take: impl FnMut(&[NodePtr<K, V>]),
    ) -> bool {
        let mut complete = true;
        let mut at = part;
        while let Some(ring) = self.stripes.get(at) {
            at += usize::from(self.parts);
            taken.clear();
            complete &= ring.drain(|raw| {
                #[allow(unsafe_code)]
                // SAFETY: `raw` comes from `offer`, so from `as_raw`. By buffer 2 its node is not
                // freed before the first complete drain after it left the map, and this drain is
                // not later than that one.
                let node = unsafe { NodePtr::from_raw(raw) };
                // Prefetches all nodes of the ring while the first ones are processed.
                node.prefetch();
                taken.push(node);
            });
            if !taken.is_empty() {
                take(taken);
            }
        }
        taken.clear();
        complete
    }
}

/// When each entry may report a read again, where not each read is recorded.
///
/// Entries that come in push others out, so the order of use matters: the stamp is renewed
/// [`PER_TURNOVER`](Self::PER_TURNOVER) times while as many entries come in as the cache holds. In
/// between, the reads that were recorded renew it, each time after twice as many. So an entry that
/// is read more than others is known to be. A cache that only serves hits soon records none: in the
/// end more reads would be needed than there are entries.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    /// Entries admitted since entries renewed the stamp.
    pub(crate) admitted: usize,
    /// Reads recorded since the stamp was renewed.
    pub(crate) reads: usize,
    /// How often reads have renewed it since entries did.
    by_reads: u32,
}

impl Renewals {
    /// How many reads each entry may report per turnover. A turnover is as many inserts as the
    /// cache holds entries. Eight times as often gave the same hit ratios on every trace.
    pub(crate) const PER_TURNOVER: usize = 32;

    /// After this part of as many reads as there are entries, reads renew the stamp first.
    const READS_PER_TURNOVER: usize = 256;

    /// Whether the reads that were recorded renew the stamp now.
    pub(crate) fn are_due_by_reads(&mut self, entries: usize) -> bool {
        let wanted = (entries / Self::READS_PER_TURNOVER).max(1);
        let are_due = self.reads > wanted.saturating_mul(1 << self.by_reads.min(16));
        if are_due {
            self.reads = 0;
            self.by_reads += 1;
        }
        are_due
    }

    /// Whether the entries that came in renew the stamp now.
    pub(crate) fn are_due_by_entries(&mut self, admitted: usize, entries: usize) -> bool {
        self.admitted += admitted;
        let are_due = self.admitted > entries / Self::PER_TURNOVER;
        if are_due {
            *self = Self::default();
        }
        are_due
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
