//! A node: one key, one value, their deadline, and the address of their entry.
//!
//! # How it works
//!
//! An *entry* is what a key has in the cache; it survives replacement. A *node* is one value of it.
//! Key, value, hash, weight and entry of a node are fixed once it is published; a replacement
//! publishes a new node for the same entry. The other fields may change afterwards and are atomic:
//! mainly the *wanted deadline*, the *state* and the *seen* stamp. The data of the wheel and the
//! size policy stand in the [`entry`].
//!
//! ```text
//!  hot: a look-up reads it                 side             columns: if needed  entry: of the pass
//! ┌──────────┬──────────────────┬───┬───┐  ┌──────┬─────────┐  ┌─────┐ ┌────────┐    ┌───────┬──────┬───────────┬───
//! │ deadline │ entry state seen │ K │ V │  │ hash │ written │  │ own │ │ weight │    │ timer │ node │ bucket_id │ …
//! └──────────┴──────────────────┴───┴───┘  └──────┴─────────┘  └─────┘ └────────┘    └───────┴──────┴───────────┴───
//! ```
//!
//! Hot parts stand side by side ([`slab`]), so a look-up fetches nothing that it does not read, and
//! nothing that the pass writes. DESIGN.md has a table of the sizes. There is a weight where there
//! is a weigher, `own` where the entry's own deadline must be kept apart from a cache-wide limit,
//! and a moment of refresh where the cache reloads.
//!
//! # States
//!
//! | state     | in the map | is the entry's node | next |
//! |-----------|------------|---------------------|------|
//! | (draft)   | no, a [`NewNode`] on its writer's stack | no | Live: published under the shard's lock; or dropped by its writer |
//! | Live      | yes | once its event was drained | Removed: taken out under the shard's lock |
//! | Removed   | no  | perhaps, until its own event is drained | Dead or Succeeded, when that is |
//! | Dead      | no  | yes; the pass has unlinked the entry everywhere | freed, with its entry, after delivery, a grace period and a full drain |
//! | Succeeded | no  | no, a later node is | freed, without its entry, after the same |
//!
//! # Invariants
//!
//! 1. A [`NodePtr`] points to an initialised node until that node is freed: by
//!    [`NodePtr::destroy`], then [`Emptied::push`], once. It is freed when it is Dead or Succeeded,
//!    no pin taken before it left the map is still held, and every batch and every read ring was
//!    drained after that. `maintenance` keeps this order ("maintenance 3"); an owner that drops the
//!    whole cache has the node for itself.
//! 2. A node that succeeds another is published in its place under the shard's lock. So the nodes
//!    of an entry follow one another in the order of their events.
//! 3. The state of a node only goes downwards in the table above.
//! 4. If a node was judged to be expired, its wanted deadline is *claimed*; if it was replaced
//!    while reads may extend, the deadline is *frozen*. Both move it 2^61 ns into the past by a
//!    compare-exchange, to an even value or an odd one. A reader extends by a compare-exchange from
//!    the value that it judged. So the expiry of an entry and its extension exclude each other.
//!
//! # Who may touch what
//!
//! | field | written by | read by |
//! |-------|-----------|---------|
//! | key, value, hash, weight, written, entry | its writer, before publishing | any thread with a pin, the pass |
//! | deadline | any thread with a pin | any thread with a pin |
//! | state | the holder of the shard's lock; to Dead or Succeeded: the pass | any thread |
//! | seen | readers | readers |
//! | own, refresh | any thread with a pin | any thread with a pin |
//! | written, after that | the holder of the shard's lock | any thread with a pin |
//! | what is in the entry | the pass | the pass |
#![allow(unsafe_code)]

mod address;
mod entry;
mod pool;
mod refresh;
mod slab;

use crate::sync::{AtomicU8, AtomicU64, Ordering};
use crate::time;
use address::High;
#[cfg(test)]
pub(crate) use address::tests::REFUSES;
pub(crate) use address::{TAG_BITS, TAG_SHIFT, fits, is_taggable, refuse};
pub(crate) use entry::{EntryPtr, Links};
pub(crate) use refresh::{Refresh, is_stale};
pub(crate) use slab::{Columns, Emptied, Slab};
use std::fmt;
use std::ptr::NonNull;

/// How far into the past a claim moves a deadline: 73 years. It stays due for clocks that go back
/// by as much, and for those that go on by 219 years from the deadline.
const CLAIM_SHIFT: u64 = time::MAX_LIFETIME_NANOS / 2;

/// The states of a node; see the table in the module docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum NodeState {
    Live = 1,
    Removed = 2,
    Dead = 3,
    Succeeded = 4,
}

impl NodeState {
    #[inline]
    fn of(state: &AtomicU8) -> Self {
        // Acquire: a thread that sees Removed sees the map without it (partner: `set_state` under
        // the shard's lock).
        match state.load(Ordering::Acquire) {
            1 => Self::Live,
            2 => Self::Removed,
            3 => Self::Dead,
            _ => Self::Succeeded,
        }
    }
}

/// A node's hot part; see the module docs for the meaning and the owner of each field.
pub(crate) struct Node<K, V> {
    deadline: AtomicU64,
    /// The address of its entry, in two parts.
    entry_low: u32,
    entry_high: High,
    state: AtomicU8,
    seen: AtomicU8,
    key: K,
    value: V,
}

/// A node's side part.
struct Side {
    hash: u64,
    written: AtomicU64,
}

impl<K, V> Node<K, V> {
    #[inline]
    fn new(new: NewNode<K, V>, deadline: u64, entry: EntryPtr<K, V>) -> Self {
        let (entry_low, entry_high) = entry.parts();
        Self {
            deadline: AtomicU64::new(deadline),
            entry_low,
            entry_high,
            state: AtomicU8::new(NodeState::Live as u8),
            seen: AtomicU8::new(0),
            key: new.key,
            value: new.value,
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    #[inline]
    pub(crate) fn value(&self) -> &V {
        &self.value
    }

    /// The wanted deadline.
    ///
    /// Acquire, partners: the releases of [`extend`](Self::extend) and [`claim`](Self::claim). A
    /// thread that sees a claim sees what happened before it.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Acquire)
    }

    /// Moves the wanted deadline from `judged` to `wanted`; false if another thread moved or
    /// claimed it first.
    ///
    /// AcqRel, partner: [`claim`](Self::claim) by the thread that expires the entry; exactly one of
    /// the two succeeds from `judged`.
    #[inline]
    pub(crate) fn extend(&self, judged: u64, wanted: u64) -> bool {
        self.deadline
            .compare_exchange(judged, wanted, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Makes the judgement "due since `judged`, as of `now`" final (node 4); false if the deadline
    /// was moved meanwhile.
    ///
    /// AcqRel, partner: [`extend`](Self::extend).
    pub(crate) fn claim(&self, judged: u64, now: u64) -> bool {
        if has_ended(judged, now) {
            return true;
        }
        self.deadline
            .compare_exchange(
                judged,
                claimed(judged, now),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }

    /// The wanted deadline of an entry that is alive at `now`; of one that is due `None`, which is
    /// final (node 4).
    ///
    /// If the claim comes too late, it judges again: the first may have been another claim, and
    /// then the entry is expired in either case.
    #[inline]
    pub(crate) fn deadline_if_alive(&self, now: u64) -> Option<u64> {
        let judged = self.deadline();
        if time::is_due(now, judged) {
            self.claim_or_judge_again(judged, now)
        } else {
            Some(judged)
        }
    }

    #[cold]
    #[inline(never)]
    fn claim_or_judge_again(&self, due: u64, now: u64) -> Option<u64> {
        let mut judged = due;
        while !self.claim(judged, now) {
            judged = self.deadline();
            if !time::is_due(now, judged) {
                return Some(judged);
            }
        }
        None
    }

    /// Ends all extensions and returns the last wanted deadline: for a node that is being replaced
    /// (node 4). `None` if it is due at `now`, or was claimed by a thread whose clock was ahead:
    /// then the caller has to judge again.
    ///
    /// AcqRel, partners: [`extend`](Self::extend), [`claim`](Self::claim).
    pub(crate) fn freeze(&self, now: u64) -> Option<u64> {
        let mut judged = self.deadline();
        loop {
            if time::is_due(now, judged) {
                return None;
            }
            match self.deadline.compare_exchange(
                judged,
                frozen(now),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(judged),
                Err(moved) => judged = moved,
            }
        }
    }

    /// [`freeze`](Self::freeze), if the wanted deadline is still the one that was `judged`.
    pub(crate) fn freeze_from(&self, judged: u64, now: u64) -> Option<u64> {
        if time::is_due(now, judged) {
            return None;
        }
        self.deadline
            .compare_exchange(judged, frozen(now), Ordering::AcqRel, Ordering::Acquire)
            .ok()
    }

    /// Whether the deadline was frozen, as seen at `now`, because the node is being replaced.
    pub(crate) fn is_frozen(&self, now: u64) -> bool {
        let deadline = self.deadline();
        deadline & FROZEN != 0 && has_ended(deadline, now)
    }

    /// The wanted deadline, or `judged` if that was the last one seen before it was claimed or
    /// frozen.
    #[inline]
    pub(crate) fn present_deadline(&self, judged: u64, now: u64) -> u64 {
        let deadline = self.deadline();
        if deadline == judged || deadline == time::NEVER || !has_ended(deadline, now) {
            deadline
        } else {
            judged
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> NodeState {
        NodeState::of(&self.state)
    }

    /// Takes the next step in the table of states.
    ///
    /// Release, partner: [`state`](Self::state).
    pub(crate) fn set_state(&self, to: NodeState) {
        debug_assert!(
            to == NodeState::Removed && self.state() == NodeState::Live
                || to > NodeState::Removed && self.state() == NodeState::Removed,
            "a node's state went from {:?} to {to:?}",
            self.state()
        );
        self.state.store(to as u8, Ordering::Release);
    }

    /// The stamp of the read rings when a read of this node was last recorded, 0 for never.
    /// Relaxed: it is a hint about recency.
    #[inline]
    pub(crate) fn seen(&self) -> u8 {
        self.seen.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_seen(&self, stamp: u8) {
        self.seen.store(stamp, Ordering::Relaxed);
    }
}

/// `bucket_id` of an entry that is linked in no bucket.
pub(crate) const NO_BUCKET: u8 = u8::MAX;

/// The bit in which a frozen deadline differs from a claimed one.
const FROZEN: u64 = 1;

/// What a claim at `now` makes of a deadline that is due: 2^61 ns earlier, so that the time since
/// can still be told.
fn claimed(judged: u64, now: u64) -> u64 {
    let from = if now.wrapping_sub(judged) < CLAIM_SHIFT / 2 {
        judged
    } else {
        // Overdue by 36 years and more: that much earlier once again might look alive.
        now
    };
    // Never the reserved value, which is odd.
    from.wrapping_sub(CLAIM_SHIFT) & !FROZEN
}

/// What a writer that replaces a live node at `now` makes of its deadline, whatever that was.
fn frozen(now: u64) -> u64 {
    let past = now.wrapping_sub(CLAIM_SHIFT) | FROZEN;
    if past == time::NEVER { past - 2 } else { past }
}

/// Whether a deadline was claimed or frozen, as seen at `now`.
///
/// Both lie 2^61 ns in the past when they are made. Allowed for: clocks that are up to 9 years
/// behind then, and 18 years that go by until a thread looks; one that looks later claims anew. A
/// deadline that was not claimed is taken for a claimed one only if the clock has leapt by 64 to
/// 91 years past it between two looks.
#[inline]
fn has_ended(deadline: u64, now: u64) -> bool {
    const FROM: u64 = CLAIM_SHIFT - CLAIM_SHIFT / 8;
    const TO: u64 = CLAIM_SHIFT + CLAIM_SHIFT / 4;
    (FROM..TO).contains(&now.wrapping_sub(deadline))
}

/// How long a deadline, claimed or not, has passed as of `now`; 0 if it has not.
pub(crate) fn overdue(now: u64, deadline: u64) -> u64 {
    let since = now.wrapping_sub(deadline);
    if since as i64 <= 0 {
        0
    } else if since >= CLAIM_SHIFT / 2 {
        // Another thread's judgement, made final before (node 4). The clock may have stepped back
        // since.
        since.saturating_sub(CLAIM_SHIFT)
    } else {
        since
    }
}

/// A node before it is published: only its writer has it, on its stack.
pub(crate) struct NewNode<K, V> {
    key: K,
    value: V,
    hash: u64,
    weight: u32,
}

/// What is known of a node only when it is added, under the shard's lock.
// Apart from the rest, which was written a while before: copied together, in wider words, the copy
// would wait for these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Cache time of the write; [`time::NEVER`] if not known.
    pub(crate) written: u64,
    /// The wanted deadline.
    pub(crate) deadline: u64,
    /// The entry's own deadline, where the cache keeps it apart.
    pub(crate) own: u64,
}

impl Times {
    /// Those of a node that was never added.
    pub(crate) const NONE: Self = Self {
        written: time::NEVER,
        deadline: time::NEVER,
        own: time::NEVER,
    };
}

/// The deadline of a node that is about to be published at `now`. If it has passed by then, it is
/// claimed: no thread takes the node for alive, however old its reading of the clock is (node 4).
pub(crate) fn deadline_published_at(deadline: u64, now: u64) -> u64 {
    if time::is_due(now, deadline) {
        claimed(deadline, now)
    } else {
        deadline
    }
}

/// What a writer knows when it makes a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeSpec {
    pub(crate) hash: u64,
    pub(crate) weight: u32,
}

impl<K, V> NewNode<K, V> {
    #[inline]
    pub(crate) fn new(key: K, value: V, making: NodeSpec) -> Self {
        Self {
            key,
            value,
            hash: making.hash,
            weight: making.weight,
        }
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    #[inline]
    pub(crate) fn value(&self) -> &V {
        &self.value
    }

    /// The value of a node that is not let in; the key is dropped.
    pub(crate) fn into_value(self) -> V {
        self.value
    }

    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }
}

/// Prefetches a cache line, where the target can.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing the program can observe and never faults, whatever the
    // address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// A pointer to a node that has not been freed (node 1).
pub(crate) struct NodePtr<K, V>(NonNull<Node<K, V>>);

// SAFETY: a NodePtr gives out `&Node` only, whose plain fields are immutable once shared (K and V
// need Sync to be read from several threads) and whose other fields are atomics; the last one to
// hold it drops K and V on its thread (Send).
unsafe impl<K: Send + Sync, V: Send + Sync> Send for NodePtr<K, V> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for NodePtr<K, V> {}

impl<K, V> Clone for NodePtr<K, V> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for NodePtr<K, V> {}

impl<K, V> PartialEq for NodePtr<K, V> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K, V> Eq for NodePtr<K, V> {}

impl<K, V> fmt::Debug for NodePtr<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node@{:p}", self.0)
    }
}

impl<K, V> std::ops::Deref for NodePtr<K, V> {
    type Target = Node<K, V>;

    #[inline]
    fn deref(&self) -> &Node<K, V> {
        // SAFETY: node 1: a NodePtr is used only before the node is freed.
        unsafe { self.0.as_ref() }
    }
}

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

    /// Asks the processor to fetch what a look-up reads, and the way to the entry.
    #[inline]
    pub(crate) fn prefetch_hot(self) {
        prefetch(self.0.as_ptr());
    }

    /// Asks the processor to fetch the hash.
    #[inline]
    pub(crate) fn prefetch_side(self) {
        slab::prefetch_side(self.0);
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
        // SAFETY: node 1; or, when the content is gone, its slot is the caller's yet.
        unsafe { slab::shard(self.0) }
    }

    /// The entry, by which the node is linked in the wheel and in the size policy.
    #[inline]
    pub(crate) fn entry(&self) -> EntryPtr<K, V> {
        // SAFETY: written when the node was; entry 1.
        unsafe { EntryPtr::from_parts((self.entry_low, self.entry_high)) }
    }

    #[inline]
    fn side(&self) -> &Side {
        // SAFETY: node 1: the node is not freed, so its slot is taken.
        unsafe { slab::side(self.0) }
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

    /// Notes that a reload has left the value unchanged. Under the shard's lock.
    pub(crate) fn set_written(&self, now: u64) {
        self.side().written.store(now, Ordering::Relaxed);
    }

    /// From when on the node is stale, where the cache refreshes.
    #[inline]
    pub(crate) fn refresh(&self) -> Option<&Refresh> {
        // SAFETY: node 1.
        unsafe { slab::refresh(self.0) }
    }

    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        // SAFETY: node 1.
        unsafe { slab::weight(self.0) }.unwrap_or(1)
    }

    /// The deadline that the entry's own lifetime gives, without the cache-wide idle limit; the
    /// wanted deadline where the two are not kept apart.
    pub(crate) fn own_deadline(&self) -> u64 {
        // SAFETY: node 1.
        unsafe { slab::own(self.0) }
            .map_or_else(|| self.deadline(), |own| own.load(Ordering::Acquire))
    }

    /// Sets [`own_deadline`](Self::own_deadline) where it is kept apart.
    pub(crate) fn set_own_deadline(&self, deadline: u64) {
        // SAFETY: node 1.
        if let Some(own) = unsafe { slab::own(self.0) } {
            own.store(deadline, Ordering::Release);
        }
    }

    /// Drops key and value. A panic in a destructor passes on when the rest has been dropped too.
    ///
    /// # Safety
    ///
    /// Node 1: from now on the pointer serves only to give the slot back.
    pub(crate) unsafe fn destroy(self) {
        // SAFETY: the node is initialised and no other code uses it (the caller). If a destructor
        // panics, the compiler's drop glue drops the remaining fields while unwinding. The other
        // parts have nothing to drop.
        unsafe { self.0.drop_in_place() };
    }
}
