//! The cell of the cache: one key, one value, their deadline, and the links of the structures they hang in.
//!
//! # How it works
//!
//! Key, value, hash, weight and time of writing are fixed once a node is published; an update publishes a new node. Only
//! the *wanted deadline*, the *life* and the *seen* stamp change afterwards, and they are atomics. The links (wheel, size
//! policy) and their companions belong to the maintenance pass.
//!
//! ```text
//!  first line, the pass's side      then, what a look-up reads              extension, only when asked for
//! ┌─────────────┬──────┬─────────┬────────────────────┬──────────┬───┬────┐ ┌─────────────┬────────┬──────┬─────┐
//! │ timer links │ hash │ written │ weight life seen … │ deadline │ K │ V  │ │ queue links │ region │ mark │ own │
//! └─────────────┴──────┴─────────┴────────────────────┴──────────┴───┴────┘ └─────────────┴────────┴──────┴─────┘
//! ```
//!
//! For `u64 → u64` the node is 64 bytes. The extension exists where the cache is bounded (queue links) or where an idle
//! limit must be kept apart from the entry's own deadline (`own`).
//!
//! # Life
//!
//! | life    | in the map | linked in wheel or queues | next |
//! |---------|------------|---------------------------|------|
//! | Fresh   | no, its writer owns it | no | Live: published under the shard's lock; or freed by its writer |
//! | Live    | yes | once its event was drained | Removed: taken out under the shard's lock |
//! | Removed | no  | perhaps still | Dead: the pass has unlinked it everywhere |
//! | Dead    | no  | no  | freed after delivery, a grace period and a full drain |
//!
//! # Invariants
//!
//! 1. A [`NodePtr`] points to an initialised node until that node is freed, and a node is freed by [`NodePtr::free`] only,
//!    once, when: it is Dead or was never published; no pin taken before it left the map is still held; and every batch and
//!    every read ring was drained after that. `maintenance` keeps this order ("maintenance 3"); whoever drops the whole
//!    cache has it for itself.
//! 2. `links`, `place` and the extension's `region` and `mark` are read and written by the holder of the maintenance lock
//!    alone. They are relaxed atomics, which compile to plain loads and stores: a breach would scramble a list, never memory.
//! 3. Life only goes downwards in the table above.
//! 4. The wanted deadline of a node that was judged expired, or replaced while reads may extend, is *claimed*: moved 2^62 ns
//!    into the past by a compare-exchange. A reader's extension is a compare-exchange from the value it judged, so an
//!    entry's expiry and its extension exclude each other.
//!
//! # Who may touch what
//!
//! | field | written by | read by |
//! |-------|-----------|---------|
//! | key, value, hash, weight, written | its writer, before publishing | anyone with a pin, the pass |
//! | deadline | anyone with a pin | anyone with a pin |
//! | life | holder of the shard's lock; to Dead: the pass | anyone |
//! | seen | readers | readers |
//! | links, place, region, mark | the pass | the pass |
//! | own | anyone with a pin | anyone with a pin |
#![allow(unsafe_code)]

use crate::sync::{AtomicPtr, AtomicU8, AtomicU64, Ordering};
use crate::time;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// How far into the past a claim moves a deadline: half the range of lives, so it is due for every sane clock.
const CLAIM_SHIFT: u64 = time::MAX_LIFE_NANOS;

/// The states of a node; see the table in the module docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Life {
    Fresh = 0,
    Live = 1,
    Removed = 2,
    Dead = 3,
}

/// Previous and next in an intrusive list; null at the ends and while not linked.
pub(crate) struct Links<K, V> {
    pub(crate) prev: Link<K, V>,
    pub(crate) next: Link<K, V>,
}

/// One end of a link: an optional [`NodePtr`] that only the pass touches (node 2).
pub(crate) struct Link<K, V>(AtomicPtr<Node<K, V>>);

impl<K, V> Link<K, V> {
    fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<NodePtr<K, V>> {
        NonNull::new(self.0.load(Ordering::Relaxed)).map(NodePtr)
    }

    #[inline]
    pub(crate) fn set(&self, to: Option<NodePtr<K, V>>) {
        let raw = to.map_or(std::ptr::null_mut(), |node| node.0.as_ptr());
        self.0.store(raw, Ordering::Relaxed);
    }
}

impl<K, V> Links<K, V> {
    fn new() -> Self {
        Self {
            prev: Link::new(),
            next: Link::new(),
        }
    }
}

/// A node; see the module docs for the meaning and the owner of each field.
#[repr(C)]
pub(crate) struct Node<K, V> {
    timer: Links<K, V>,
    hash: u64,
    written: u64,
    weight: u32,
    life: AtomicU8,
    seen: AtomicU8,
    /// Number of the wheel bucket it hangs in; the wheel gives the numbers their meaning.
    place: AtomicU8,
    extended: bool,
    deadline: AtomicU64,
    key: K,
    value: V,
}

/// What only some caches need of a node; allocated behind it.
#[repr(C)]
struct Extension<K, V> {
    queue: Links<K, V>,
    region: AtomicU8,
    mark: AtomicU8,
    own: AtomicU64,
}

impl<K, V> Node<K, V> {
    fn layout(extended: bool) -> (Layout, usize) {
        let node = Layout::new::<Self>();
        if extended {
            node.extend(Layout::new::<Extension<K, V>>())
                .map(|(whole, offset)| (whole.pad_to_align(), offset))
                .expect("a node's layout fits the address space")
        } else {
            (node, 0)
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

    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    /// Cache time of the write that made this node.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The wanted deadline.
    ///
    /// Acquire: pairs with the release of [`extend`](Self::extend) and [`claim`](Self::claim); whoever sees a claim sees
    /// what happened before it.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Acquire)
    }

    /// Moves the wanted deadline from `judged` to `wanted`; false if somebody else moved or claimed it first.
    ///
    /// AcqRel: the expiring side's [`claim`](Self::claim) is its partner; exactly one of the two succeeds from `judged`.
    #[inline]
    pub(crate) fn extend(&self, judged: u64, wanted: u64) -> bool {
        self.deadline
            .compare_exchange(judged, wanted, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Makes the judgement "due since `judged`, as of `now`" final (node 4); false if the deadline was moved meanwhile.
    ///
    /// AcqRel, partner: [`extend`](Self::extend).
    pub(crate) fn claim(&self, judged: u64, now: u64) -> bool {
        if now.wrapping_sub(judged) >= CLAIM_SHIFT / 2 {
            // Claimed already. Once more would move it to where it looks alive.
            return true;
        }
        self.deadline
            .compare_exchange(judged, claimed(judged), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends all extensions and returns the last wanted deadline: for a node that is being replaced (node 4). `None` if it is due
    /// at `now`, or was claimed by somebody whose clock was ahead: then it has to be judged again.
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
                claimed(judged),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(judged),
                Err(moved) => judged = moved,
            }
        }
    }

    #[inline]
    pub(crate) fn life(&self) -> Life {
        // Acquire: whoever sees Removed sees the map without it (partner: `set_life` under the shard's lock).
        match self.life.load(Ordering::Acquire) {
            0 => Life::Fresh,
            1 => Life::Live,
            2 => Life::Removed,
            _ => Life::Dead,
        }
    }

    /// Takes the next step of the life table.
    ///
    /// Release, partner: [`life`](Self::life).
    pub(crate) fn set_life(&self, to: Life) {
        debug_assert!(
            self.life() < to,
            "a node's life went from {:?} to {to:?}",
            self.life()
        );
        self.life.store(to as u8, Ordering::Release);
    }

    /// The stamp of the read rings when a read of this node was last noted, 0 for never. Relaxed: a hint about recency, nothing
    /// rests on it.
    #[inline]
    pub(crate) fn seen(&self) -> u8 {
        self.seen.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_seen(&self, stamp: u8) {
        self.seen.store(stamp, Ordering::Relaxed);
    }

    pub(crate) fn place(&self) -> u8 {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: u8) {
        self.place.store(place, Ordering::Relaxed);
    }

    pub(crate) fn timer(&self) -> &Links<K, V> {
        &self.timer
    }
}

/// `place` of a node that hangs in no bucket.
pub(crate) const NO_PLACE: u8 = u8::MAX;

/// A deadline 2^62 ns before `judged`, never the reserved value.
fn claimed(judged: u64) -> u64 {
    if judged == time::NEVER {
        // A frozen node without a deadline: any other value ends its extensions, and nobody asks whether it is due.
        return time::NEVER.wrapping_add(1);
    }
    let past = judged.wrapping_sub(CLAIM_SHIFT);
    if past == time::NEVER { past - 1 } else { past }
}

/// How long a deadline, claimed or not, has passed as of `now`; 0 if it has not.
pub(crate) fn overdue(now: u64, deadline: u64) -> u64 {
    let since = now.wrapping_sub(deadline);
    if since as i64 <= 0 {
        0
    } else if since >= CLAIM_SHIFT / 2 {
        // Somebody's judgement, made final before (node 4). The clock may have stepped back since.
        since.saturating_sub(CLAIM_SHIFT)
    } else {
        since
    }
}

/// A node that its writer still has for itself: not yet published.
pub(crate) struct NewNode<K, V> {
    node: NodePtr<K, V>,
    _owns: PhantomData<Node<K, V>>,
}

/// What a writer knows when it makes a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making {
    pub(crate) hash: u64,
    pub(crate) weight: u32,
    pub(crate) extended: bool,
}

impl<K, V> NewNode<K, V> {
    pub(crate) fn new(key: K, value: V, making: Making) -> Self {
        let (layout, offset) = Node::<K, V>::layout(making.extended);
        // SAFETY: the layout is not zero-sized: a node has links.
        let raw = unsafe { alloc(layout) }.cast::<Node<K, V>>();
        let Some(raw) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        assert!(
            raw.as_ptr().addr() >> 48 == 0,
            "the allocator returned an address above 2^48, which this crate cannot tag"
        );
        // SAFETY: `raw` is a fresh allocation of `Node`'s layout, aligned, owned by this call.
        unsafe {
            raw.write(Node {
                timer: Links::new(),
                hash: making.hash,
                written: 0,
                weight: making.weight,
                life: AtomicU8::new(Life::Fresh as u8),
                seen: AtomicU8::new(0),
                place: AtomicU8::new(NO_PLACE),
                extended: making.extended,
                deadline: AtomicU64::new(time::NEVER),
                key,
                value,
            });
        }
        if making.extended {
            // SAFETY: `layout` has room for an aligned `Extension` at `offset`, and `raw` carries the provenance of the
            // whole allocation.
            unsafe {
                raw.byte_add(offset)
                    .cast::<Extension<K, V>>()
                    .write(Extension {
                        queue: Links::new(),
                        region: AtomicU8::new(0),
                        mark: AtomicU8::new(0),
                        own: AtomicU64::new(time::NEVER),
                    });
            }
        }
        Self {
            node: NodePtr(raw),
            _owns: PhantomData,
        }
    }

    /// Sets what is known only under the shard's lock.
    pub(crate) fn set_times(&mut self, written: u64, deadline: u64) {
        // SAFETY: `self` is the only pointer to the node (not yet published) and is borrowed exclusively.
        unsafe { (*self.node.0.as_ptr()).written = written };
        self.node.deadline.store(deadline, Ordering::Relaxed);
    }

    /// Gives the node over to the map; the caller stores the pointer under the shard's lock.
    ///
    /// Relaxed is enough for the life: the store into the map's slot releases the whole node.
    pub(crate) fn publish(self) -> NodePtr<K, V> {
        let node = self.node;
        std::mem::forget(self);
        node.life.store(Life::Live as u8, Ordering::Relaxed);
        node
    }
}

impl<K, V> std::ops::Deref for NewNode<K, V> {
    type Target = NodePtr<K, V>;

    fn deref(&self) -> &NodePtr<K, V> {
        &self.node
    }
}

impl<K, V> Drop for NewNode<K, V> {
    fn drop(&mut self) {
        // SAFETY: never published (`publish` forgets), so this is the only pointer (node 1).
        unsafe { self.node.free() }
    }
}

/// Asks the processor to fetch a line, where it can be asked.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing the program can observe and never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// A pointer to a node that has not been freed (node 1).
pub(crate) struct NodePtr<K, V>(NonNull<Node<K, V>>);

// SAFETY: a NodePtr gives out `&Node` only, whose plain fields are immutable once shared (K and V need Sync to be read from
// several threads) and whose other fields are atomics; the last one to hold it drops K and V on its thread (Send).
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
        // SAFETY: node 1: whoever has a NodePtr has it before the node is freed.
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

    /// Asks the processor to fetch the node's first line.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch(self.0.as_ptr());
    }

    fn extension(&self) -> &Extension<K, V> {
        assert!(self.extended, "this node was made without an extension");
        let (_, offset) = Node::<K, V>::layout(true);
        // SAFETY: a node with `extended` was allocated with an initialised extension at this offset, and `self.0` carries
        // the provenance of the whole allocation; the node is not freed (node 1).
        unsafe { self.0.byte_add(offset).cast::<Extension<K, V>>().as_ref() }
    }

    pub(crate) fn queue(&self) -> &Links<K, V> {
        &self.extension().queue
    }

    /// Which queue of the size policy the node hangs in; the policy gives the numbers their meaning, 0 is none.
    pub(crate) fn region(&self) -> u8 {
        self.extension().region.load(Ordering::Relaxed)
    }

    pub(crate) fn set_region(&self, region: u8) {
        self.extension().region.store(region, Ordering::Relaxed);
    }

    /// A byte of the size policy's own.
    pub(crate) fn mark(&self) -> u8 {
        self.extension().mark.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mark(&self, mark: u8) {
        self.extension().mark.store(mark, Ordering::Relaxed);
    }

    /// The deadline that the entry's own lifetime gives, without the cache-wide idle limit; the wanted deadline where the
    /// two are not kept apart.
    pub(crate) fn own_deadline(&self) -> u64 {
        if self.extended {
            self.extension().own.load(Ordering::Acquire)
        } else {
            self.deadline()
        }
    }

    /// Sets [`own_deadline`](Self::own_deadline) where it is kept apart.
    pub(crate) fn set_own_deadline(&self, deadline: u64) {
        if self.extended {
            self.extension().own.store(deadline, Ordering::Release);
        }
    }

    /// Drops key and value and gives the memory back. A panic in a destructor passes on, after the memory was given back.
    ///
    /// # Safety
    ///
    /// Node 1: no other copy of this pointer is used from now on.
    pub(crate) unsafe fn free(self) {
        struct Memory(*mut u8, Layout);
        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: allocated in `NewNode::new` with this very layout, freed once (node 1).
                unsafe { dealloc(self.0, self.1) }
            }
        }
        let memory = Memory(
            self.0.as_ptr().cast(),
            Node::<K, V>::layout(self.extended).0,
        );
        // SAFETY: the node is initialised and nobody else uses it (the caller). If a destructor panics, the compiler's drop
        // glue drops the remaining fields while unwinding, then `memory` is given back.
        unsafe { self.0.drop_in_place() };
        drop(memory);
    }
}
