//! Where nodes live: slots in chunks, what look-ups read side by side and apart from the rest.
//!
//! # How it works
//!
//! ```text
//! chunk, aligned to its size                                                      columns, behind the region's last chunk
//! ┌────────┬───────┬───────┬─── … ───┬────────┬────────┬─── … ───┐               ┌─────────────┬────── … ┬───────┬─── … ┐
//! │ header │ hot 0 │ hot 1 │         │ cold 0 │ cold 1 │         │   × chunks    │ queue links │         │ marks │      │
//! └────────┴───────┴───────┴─── … ───┴────────┴────────┴─── … ───┘               └─────────────┴────── … ┴───────┴─── … ┘
//! ```
//!
//! A pointer to a node points to its hot part. Its chunk is found by clearing the low bits of the address, its number from the
//! rest, and with them the cold part: a few instructions and no memory access, so that both can be fetched at once. What only some
//! caches need stands in columns, to which the chunk's header points.
//!
//! Chunks are allocated in *regions* of one to sixteen, growing with the slab. A slab belongs to one shard and is used under that
//! shard's lock: a writer takes a slot while it holds the lock anyway, and slots come back many at a time. What comes back is mostly
//! wanted again at once: up to [`LOOSE`] slots stay in one chain for that, whichever regions they are of.
//!
//! # Invariants
//!
//! 1. A slot is *free* (in its region's chain, or beyond `fresh`), *loose* (in the slab's chain) or *taken*, and holds an initialised node
//!    exactly while it is taken.
//! 2. A region's `used` is the number of its slots that are not free; its memory is given back only when that is 0, or by the last owner.
//! 3. A region with a free slot is in `roomy`.
//! 4. A chunk's header is written before the first of its slots is handed out, and never again.
//!
//! # Cost
//!
//! Taking a slot, or giving one back: a few nanoseconds, no allocation but for a new region. For `u64 → u64` 64 bytes a node, 17 more
//! where a size policy needs its links; the header is 1 percent. A region goes back to the allocator when its last node has gone and
//! enough room is left.
//!
//! # Origin
//!
//! Slabs: J. Bonwick, "The Slab Allocator", USENIX 1994; hot and cold fields apart: Chilimbi, Davidson and Larus, PLDI 1999.
#![allow(unsafe_code)]

use super::{Cold, Links, NewNode, Node, NodePtr, Times};
use crate::sync::{AtomicU8, AtomicU64};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Chunks of the largest regions.
const REGION: usize = if SINGLE { 1 } else { 16 };
/// Sanitizers and fuzzers want an allocation for each node: or they would not see the use of one that was freed.
const SINGLE: bool = cfg!(any(fuzzing, wheelhouse_single));
/// The smallest chunk, in bytes, and the fewest nodes in one.
const CHUNK: usize = if SINGLE { 1 } else { 8192 };
const LEAST: usize = if SINGLE { 1 } else { 8 };
/// Slots that stay loose at most; and at most so great a part of those in use. And none do in a slab most of which stands empty: there each
/// might keep a region from going back.
const LOOSE: usize = if SINGLE { 0 } else { 128 };
const LOOSE_PART: usize = 8;
/// A node larger than this has a chunk for itself, or eight of them would have to be allocated for the first.
const LARGE: usize = 4096;

/// What the nodes of a slab have beside hot and cold parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Columns {
    /// Links and mark of the size policy.
    pub(crate) queue: bool,
    /// A deadline of the entry's own, apart from the wanted one.
    pub(crate) own: bool,
}

/// The beginning of a chunk.
struct Header<K, V> {
    region: u32,
    /// The chunk's part of each column; dangling if the slab has it not.
    queues: NonNull<Links<K, V>>,
    marks: NonNull<AtomicU8>,
    owns: Option<NonNull<AtomicU64>>,
}

/// The arithmetic of chunks, known when the crate is compiled for `K` and `V`.
struct Geometry<K, V>(PhantomData<(K, V)>);

impl<K, V> Geometry<K, V> {
    const HOT: usize = size_of::<Node<K, V>>();
    const COLD: usize = size_of::<Cold<K, V>>();
    /// Where the hot parts begin: behind the header, on a cache line.
    const FIRST: usize = {
        let align = if align_of::<Node<K, V>>() > 64 {
            align_of::<Node<K, V>>()
        } else {
            64
        };
        size_of::<Header<K, V>>().next_multiple_of(align)
    };
    const SIZE: usize = {
        let slots = if Self::HOT > LARGE { 1 } else { LEAST };
        let least = (Self::FIRST + slots * (Self::HOT + Self::COLD)).next_power_of_two();
        if least > CHUNK { least } else { CHUNK }
    };
    const SLOTS: usize = if SINGLE {
        1
    } else {
        (Self::SIZE - Self::FIRST) / (Self::HOT + Self::COLD)
    };
    /// Where the cold parts begin. A node is aligned to 8 at least, for its deadline, and a cold part to no more.
    const COLDS: usize = {
        assert!(align_of::<Cold<K, V>>() <= align_of::<Node<K, V>>());
        Self::FIRST + Self::SLOTS * Self::HOT
    };

    /// The chunk of a node and the node's number in it.
    #[inline]
    fn locate(node: NonNull<Node<K, V>>) -> (NonNull<Header<K, V>>, usize) {
        let offset = node.addr().get() & (Self::SIZE - 1);
        // SAFETY: a chunk is aligned to its size and the node stands `offset` bytes behind its beginning, in the same allocation.
        let chunk = unsafe { node.byte_sub(offset) };
        (chunk.cast(), (offset - Self::FIRST) / Self::HOT)
    }

    #[inline]
    fn cold(node: NonNull<Node<K, V>>) -> NonNull<Cold<K, V>> {
        let (chunk, number) = Self::locate(node);
        // SAFETY: within the chunk, which has a cold part for each of its numbers.
        unsafe { chunk.byte_add(Self::COLDS + number * Self::COLD).cast() }
    }

    /// The columns of one chunk: their layout, and where owns and marks begin in it.
    fn columns(columns: Columns) -> (Layout, usize, usize) {
        let (queues, owns) = (
            if columns.queue { Self::SLOTS } else { 0 },
            if columns.own { Self::SLOTS } else { 0 },
        );
        let fits = "the columns of a chunk fit the address space";
        let layout = Layout::array::<Links<K, V>>(queues).expect(fits);
        let (layout, own) = layout
            .extend(Layout::array::<AtomicU64>(owns).expect(fits))
            .expect(fits);
        let (layout, mark) = layout
            .extend(Layout::array::<AtomicU8>(queues).expect(fits))
            .expect(fits);
        (layout.pad_to_align(), own, mark)
    }

    /// A region of this many chunks, and the size of one chunk's columns.
    fn region(chunks: usize, columns: Columns) -> (Layout, usize) {
        let (of_one, _, _) = Self::columns(columns);
        let size = chunks * (Self::SIZE + of_one.size());
        let layout = Layout::from_size_align(size, Self::SIZE)
            .expect("a region of a few chunks fits the address space");
        (layout, of_one.size())
    }
}

/// The parts of a node beside its hot one, as [`NodePtr`] asks for them.
///
/// # Safety
///
/// `node` stands in a taken slot (node 1), or the caller owns its slot.
#[inline]
pub(super) unsafe fn cold<'a, K, V>(node: NonNull<Node<K, V>>) -> &'a Cold<K, V> {
    // SAFETY: slab 1: taken, so initialised.
    unsafe { Geometry::cold(node).as_ref() }
}

/// The size policy's links.
///
/// # Safety
///
/// As for [`cold`]; the slab has the column `queue`.
#[inline]
pub(super) unsafe fn queue<'a, K, V>(node: NonNull<Node<K, V>>) -> &'a Links<K, V> {
    let (chunk, number) = Geometry::locate(node);
    // SAFETY: slab 4: the header is there; the column has as many cells as the chunk has slots, initialised with the node.
    unsafe { chunk.as_ref().queues.add(number).as_ref() }
}

/// The size policy's mark.
///
/// # Safety
///
/// As for [`queue`].
#[inline]
pub(super) unsafe fn mark<'a, K, V>(node: NonNull<Node<K, V>>) -> &'a AtomicU8 {
    let (chunk, number) = Geometry::locate(node);
    // SAFETY: as in `queue`.
    unsafe { chunk.as_ref().marks.add(number).as_ref() }
}

/// The entry's own deadline, where the slab has the column.
///
/// # Safety
///
/// As for [`cold`].
#[inline]
pub(super) unsafe fn own<'a, K, V>(node: NonNull<Node<K, V>>) -> Option<&'a AtomicU64> {
    let (chunk, number) = Geometry::locate(node);
    // SAFETY: as in `queue`, if the column is there.
    unsafe { Some(chunk.as_ref().owns?.add(number).as_ref()) }
}

/// Asks the processor for both parts of a node.
#[inline]
pub(super) fn prefetch<K, V>(node: NonNull<Node<K, V>>) {
    super::prefetch(node.as_ptr());
    super::prefetch(Geometry::cold(node).as_ptr());
}

/// A free slot as its region keeps it, written over the hot part.
struct Free {
    next: *mut Free,
}

struct Region {
    at: NonNull<u8>,
    chunks: usize,
    /// Slots that have been handed out at least once: the first ones.
    fresh: usize,
    used: usize,
    free: *mut Free,
    /// Whether `roomy` names it, and whether `spares` does.
    listed: bool,
    spare: bool,
}

/// The nodes' memory of one shard.
pub(crate) struct Slab<K, V> {
    columns: Columns,
    regions: Vec<Option<Region>>,
    /// Regions with a free slot, the one to take from last; among them some that have none any more, or are gone.
    roomy: Vec<u32>,
    /// Numbers of regions that are gone and not in `roomy`.
    vacant: Vec<u32>,
    /// Regions that were empty when they were last looked at.
    spares: Vec<u32>,
    /// The chain of loose slots, and its length.
    loose: *mut Free,
    loosened: usize,
    slots: usize,
    /// Those that are not free.
    used: usize,
    _nodes: PhantomData<Node<K, V>>,
}

// SAFETY: a slab owns its memory. Nodes in it are reached through `NodePtr`, which has its own conditions; as a slab drops none, it may
// move between threads with any K and V.
unsafe impl<K, V> Send for Slab<K, V> {}

/// Emptied slots of one slab, on their way back.
pub(crate) struct Emptied<K, V> {
    first: *mut Free,
    /// The other end of the chain; dangling if that is empty.
    last: NonNull<Free>,
    len: usize,
    _slab: PhantomData<Node<K, V>>,
}

// SAFETY: it owns the slots of its chain, plain memory in which no node is left.
unsafe impl<K, V> Send for Emptied<K, V> {}

impl<K, V> Emptied<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: NonNull::dangling(),
            len: 0,
            _slab: PhantomData,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds the slot of a node whose content is gone.
    ///
    /// # Safety
    ///
    /// Node 1: nobody uses the pointer any more, and its content was destroyed. All slots of a chain are of the slab that will take
    /// it back.
    pub(crate) unsafe fn push(&mut self, node: NodePtr<K, V>) {
        let slot = node.0.cast::<Free>();
        // SAFETY: the slot is the caller's alone and has room and alignment for a pointer: a node has a deadline.
        unsafe { slot.write(Free { next: self.first }) };
        if self.first.is_null() {
            self.last = slot;
        }
        self.first = slot.as_ptr();
        self.len += 1;
    }
}

/// Regions that a slab has let go; their memory is given back when this is dropped. Apart from the slab, since the allocator may take
/// its time, and the slab is used under a lock.
#[must_use]
pub(crate) struct Vacated(Vec<(NonNull<u8>, Layout)>);

impl Drop for Vacated {
    fn drop(&mut self) {
        for (at, layout) in self.0.drain(..) {
            // SAFETY: allocated in `grow` with this layout, taken out of the slab when no slot of it was taken (slab 2), so freed
            // once and used no more.
            unsafe { dealloc(at.as_ptr(), layout) }
        }
    }
}

impl Region {
    /// Takes a free slot, if there is one.
    #[inline]
    fn take<K, V>(&mut self) -> Option<NonNull<Node<K, V>>> {
        if let Some(free) = NonNull::new(self.free) {
            // SAFETY: slab 1: a free slot in the chain holds the chain's link.
            self.free = unsafe { free.as_ref() }.next;
            self.used += 1;
            return Some(free.cast());
        }
        let slots = Geometry::<K, V>::SLOTS;
        if self.fresh == self.chunks * slots {
            return None;
        }
        let (chunk, number) = (self.fresh / slots, self.fresh % slots);
        self.fresh += 1;
        self.used += 1;
        let offset = chunk * Geometry::<K, V>::SIZE
            + Geometry::<K, V>::FIRST
            + number * Geometry::<K, V>::HOT;
        // SAFETY: within the region: `fresh` was below the number of its slots.
        Some(unsafe { self.at.add(offset).cast() })
    }
}

impl<K, V> Slab<K, V> {
    /// A slab without memory.
    pub(crate) const fn new(columns: Columns) -> Self {
        Self {
            columns,
            regions: Vec::new(),
            roomy: Vec::new(),
            vacant: Vec::new(),
            spares: Vec::new(),
            loose: ptr::null_mut(),
            loosened: 0,
            slots: 0,
            used: 0,
            _nodes: PhantomData,
        }
    }

    /// Makes a live node of what its writer has gathered.
    // Always inlined: handed over whole, both arguments would be copied once more.
    #[inline(always)]
    pub(crate) fn place(&mut self, new: NewNode<K, V>, times: Times) -> NodePtr<K, V> {
        let slot = self.take();
        // SAFETY: the slot is free and now ours, with all its columns.
        unsafe {
            let (chunk, number) = Geometry::locate(slot);
            let chunk = chunk.as_ref();
            Geometry::cold(slot).write(Cold::new(new.hash, times.written));
            if self.columns.queue {
                chunk.queues.add(number).write(Links::new());
                chunk.marks.add(number).write(AtomicU8::new(0));
            }
            if let Some(owns) = chunk.owns {
                owns.add(number).write(AtomicU64::new(times.own));
            }
            slot.write(Node::new(new, times.deadline));
        }
        NodePtr(slot)
    }

    #[inline]
    fn take(&mut self) -> NonNull<Node<K, V>> {
        if let Some(loose) = NonNull::new(self.loose) {
            // SAFETY: slab 1: a slot in the chain of the loose holds the chain's link.
            self.loose = unsafe { loose.as_ref() }.next;
            self.loosened -= 1;
            return loose.cast();
        }
        self.take_free()
    }

    /// The same from a region.
    #[inline(never)]
    fn take_free(&mut self) -> NonNull<Node<K, V>> {
        if let Some(&number) = self.roomy.last()
            && let Some(region) = &mut self.regions[number as usize]
            && let Some(slot) = region.take()
        {
            self.used += 1;
            return slot;
        }
        self.take_elsewhere()
    }

    /// The same when the region to take from last has none.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(&mut self) -> NonNull<Node<K, V>> {
        loop {
            if let Some(&number) = self.roomy.last() {
                if let Some(region) = &mut self.regions[number as usize] {
                    if let Some(slot) = region.take() {
                        self.used += 1;
                        return slot;
                    }
                    region.listed = false;
                } else {
                    self.vacant.push(number);
                }
                self.roomy.pop();
            } else {
                self.grow();
            }
        }
    }

    /// Allocates another region and writes the headers of its chunks.
    #[cold]
    fn grow(&mut self) {
        // An eighth of what is there, so that little stands empty.
        let chunks = (self.slots / Geometry::<K, V>::SLOTS / 8).clamp(1, REGION);
        let (layout, size) = Geometry::<K, V>::region(chunks, self.columns);
        let (_, own, mark) = Geometry::<K, V>::columns(self.columns);
        // SAFETY: not zero-sized: a chunk has a header.
        let Some(at) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        super::assert_taggable(at.addr().get(), layout.size());
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.regions.push(None);
            u32::try_from(self.regions.len() - 1).expect("fewer than 2^32 regions")
        });
        for chunk in 0..chunks {
            // SAFETY: chunks stand side by side at the region's beginning, their columns behind the last; the layout has room for all.
            unsafe {
                let columns = at.add(chunks * Geometry::<K, V>::SIZE + chunk * size);
                let header = at.add(chunk * Geometry::<K, V>::SIZE).cast();
                header.write(Header::<K, V> {
                    region: number,
                    queues: columns.cast(),
                    marks: columns.add(mark).cast(),
                    owns: self.columns.own.then(|| columns.add(own).cast()),
                });
            }
        }
        self.slots += chunks * Geometry::<K, V>::SLOTS;
        self.regions[number as usize] = Some(Region {
            at,
            chunks,
            fresh: 0,
            used: 0,
            free: ptr::null_mut(),
            listed: true,
            spare: false,
        });
        self.roomy.push(number);
    }

    /// Takes emptied slots back; all of them are this slab's, which `Emptied::push` has made its caller promise. What it gives out is to
    /// be dropped after the shard's lock was released.
    pub(crate) fn take_back(&mut self, emptied: Emptied<K, V>) -> Vacated {
        let mut vacated = Vacated(Vec::new());
        if emptied.is_empty() {
            return vacated;
        }
        let loosened = self.loosened + emptied.len;
        if self.is_dense() && loosened <= LOOSE && loosened * LOOSE_PART <= self.used {
            // SAFETY: the end of a chain of slots that are this slab's alone (`Emptied::push`).
            unsafe { emptied.last.write(Free { next: self.loose }) };
            self.loose = emptied.first;
            self.loosened = loosened;
        } else {
            // No more than came: the shard's lock is held.
            self.disperse(emptied.first, &mut vacated);
            if !self.is_dense() || self.loosened * LOOSE_PART > self.used {
                let loose = std::mem::replace(&mut self.loose, ptr::null_mut());
                self.loosened = 0;
                self.disperse(loose, &mut vacated);
            }
        }
        vacated
    }

    /// Whether no more slots are free than are not, or than a chunk has.
    fn is_dense(&self) -> bool {
        self.slots - self.used <= self.used.max(Geometry::<K, V>::SLOTS)
    }

    /// Gives a chain of slots back to their regions.
    fn disperse(&mut self, first: *mut Free, vacated: &mut Vacated) {
        let mut next = first;
        while let Some(slot) = NonNull::new(next) {
            // SAFETY: `Emptied::push` wrote the link, and had its caller promise that the slot is of this slab: its chunk has a header.
            let number = unsafe {
                next = slot.as_ref().next;
                Geometry::<K, V>::locate(slot.cast()).0.as_ref().region
            };
            let region = self.regions[number as usize]
                .as_mut()
                .expect("a region with a slot that is not free is there (slab 2)");
            // SAFETY: as above.
            unsafe { slot.write(Free { next: region.free }) };
            region.free = slot.as_ptr();
            region.used -= 1;
            self.used -= 1;
            if !region.listed {
                region.listed = true;
                self.roomy.push(number);
            }
            if region.used == 0 {
                self.release(number, vacated);
            }
        }
    }

    /// A region has become empty: gives empty regions back to the allocator as long as an eighth of what is in use would still find
    /// room.
    #[cold]
    fn release(&mut self, number: u32, vacated: &mut Vacated) {
        if let Some(region) = &mut self.regions[number as usize]
            && !region.spare
        {
            region.spare = true;
            self.spares.push(number);
        }
        while let Some(&number) = self.spares.last() {
            let place = &mut self.regions[number as usize];
            let Some(region) = place else {
                unreachable!("a spare region is there until it is taken from `spares`");
            };
            let slots = region.chunks * Geometry::<K, V>::SLOTS;
            if region.used > 0 {
                // Taken from again since.
                region.spare = false;
            } else if SINGLE || (self.slots - slots - self.used) * 8 >= self.used {
                self.slots -= slots;
                vacated
                    .0
                    .push((region.at, Self::layout(region, self.columns)));
                // `roomy` goes on naming it until `take` gets there.
                *place = None;
            } else {
                return;
            }
            self.spares.pop();
        }
    }

    fn layout(region: &Region, columns: Columns) -> Layout {
        Geometry::<K, V>::region(region.chunks, columns).0
    }

    /// How many slots a chain has. For the holder of the shard's lock.
    #[cfg(any(test, fuzzing))]
    fn count(mut chain: *const Free) -> usize {
        let mut count = 0;
        // SAFETY: slab 1: the chain's slots hold its links.
        while let Some(slot) = unsafe { chain.as_ref() } {
            chain = slot.next;
            count += 1;
        }
        count
    }

    /// Asserts slab 2 and 3.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn check_invariants(&self) {
        assert_eq!(Self::count(self.loose), self.loosened, "loose slots");
        assert!(self.loosened <= LOOSE && self.loosened * LOOSE_PART <= self.used);
        let (mut slots, mut used) = (0, 0);
        for (number, region) in self.regions.iter().enumerate() {
            let Some(region) = region else { continue };
            let fresh = region.chunks * Geometry::<K, V>::SLOTS - region.fresh;
            let free = fresh + Self::count(region.free);
            let all = region.chunks * Geometry::<K, V>::SLOTS;
            assert_eq!(region.used + free, all, "slots of region {number}");
            let named = self.roomy.iter().filter(|&&n| n as usize == number).count();
            assert_eq!(
                named,
                usize::from(region.listed),
                "region {number} in `roomy`"
            );
            assert!(
                free == 0 || region.listed,
                "region {number} has room (slab 3)"
            );
            slots += all;
            used += region.used;
        }
        assert_eq!((slots, used), (self.slots, self.used));
    }
}

impl<K, V> Drop for Slab<K, V> {
    fn drop(&mut self) {
        // The slab's owner is the last: whoever emptied the map has destroyed the nodes, or they need it not.
        let regions = self.regions.drain(..).flatten();
        let all = regions.map(|region| (region.at, Self::layout(&region, self.columns)));
        drop(Vacated(all.collect()));
    }
}

impl<K, V> std::fmt::Debug for Slab<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab")
            .field("slots", &self.slots)
            .field("used", &self.used)
            .finish()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
