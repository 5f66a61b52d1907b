//! A pool of slots of one size: allocated in chunks, taken one by one, returned many at a time.
//!
//! # How it works
//!
//! Chunks are aligned to their size, so clearing the low bits of a slot's address gives its chunk.
//! A chunk begins with the number of the *region* that it was allocated with. A region has one to
//! 64 chunks, more as the pool grows. It is returned to the allocator when its last slot was
//! returned and the pool has enough other room.
//!
//! Returned slots are usually needed again soon, so some of them are only noted, whichever regions
//! they are from: the *recycled* slots. To return one and to take it again touches no slot. They
//! are a queue, in two arrays: slots are taken from one and returned to the other, which takes its
//! place when it is empty. If both are, some free slots are taken from a region.
//!
//! `has_few_recycled` limits the number of recycled slots. The number of a shard's entries varies
//! by about three times its square root, and some slots wait to be freed. So about six times the
//! root is enough; those beyond it return to their regions.
//!
//! # Invariants
//!
//! 1. A slot is *free* (in the chain of its region, or never taken yet), *recycled* (in one of the
//!    pool's two arrays) or *taken*. The pool writes only to free slots.
//! 2. `used` of a region is the number of its slots that are not free. Its memory is returned to
//!    the allocator only when that is 0, or by the last owner.
//! 3. A region is in `partial` exactly if it has a free slot.
//! 4. The beginning of a chunk is written before its first slot is taken, and never again.
//! 5. What [`Recycled`] has are the last slots of the array `taking`, which is not changed until
//!    none is left.
//!
//! # Origin
//!
//! J. Bonwick, "The Slab Allocator", USENIX 1994.
#![allow(unsafe_code)]

use super::address;
use std::alloc::{Layout, dealloc};
use std::ptr::{self, NonNull};

/// For sanitizers and fuzzers each slot is an allocation of its own: otherwise they would not see
/// the use of a freed slot.
pub(super) const ONE_SLOT_CHUNKS: bool = cfg!(any(fuzzing, wheelhouse_single));
/// Number of chunks of the largest regions.
const MAX_CHUNKS: usize = if ONE_SLOT_CHUNKS { 1 } else { 64 };
/// The number of recycled slots, squared, is at most this multiple of the number of slots that are
/// not free.
const RECYCLED_SQUARED: u64 = if ONE_SLOT_CHUNKS { 0 } else { 32 };
/// At most this many recycled slots return to their regions at a time, under the owner's lock. Or
/// it is twice as many as were just returned to the pool, if that is more: this is enough
/// (`has_few_recycled`).
const RETURNED_AT_A_TIME: usize = 64;

/// At most so many free slots are taken from a region at a time, and at most this part of the slots
/// in use. That keeps the bound of `has_few_recycled`.
const TAKEN_AT_A_TIME: usize = 16;
const FREE_PART: usize = 8;

/// The division of chunks into slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a chunk, and its alignment: a power of two.
    pub(super) size: usize,
    /// Where the first slot begins: behind the region's number at least.
    pub(super) first: usize,
    /// The distance from one slot to the next: room for a pointer at least.
    pub(super) stride: usize,
    /// Number of slots of a chunk.
    pub(super) slots: usize,
    /// Bytes of columns for each chunk, behind the region's last chunk; a multiple of 8.
    pub(super) beside: usize,
}

/// The content of a free slot, at any alignment: the next slot of its chain.
type Next = *mut u8;

/// Writes a slot's link.
///
/// # Safety
///
/// The caller owns the slot, which is large enough (`Shape::stride`).
#[inline]
unsafe fn set_next(slot: NonNull<u8>, next: Next) {
    // SAFETY: the caller's promise.
    unsafe { slot.cast::<Next>().write_unaligned(next) }
}

/// Reads a slot's link.
///
/// # Safety
///
/// The slot is in a chain that the caller owns: it holds a link.
#[inline]
unsafe fn next(slot: NonNull<u8>) -> Next {
    // SAFETY: the caller's promise.
    unsafe { slot.cast::<Next>().read_unaligned() }
}

/// Memory of one or more chunks, which is freed when this is dropped: after the owner's lock was
/// released, since the allocator may be slow.
pub(crate) struct Region {
    at: NonNull<u8>,
    layout: Layout,
    chunks: usize,
    /// The next slot that was never taken: its chunk, and its number there.
    fresh_chunk: usize,
    fresh: usize,
    used: usize,
    /// The first of the slots that have come back; each has the address of the next.
    free: Next,
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `grow` with this layout; no slot of it is taken, or its pool is
        // dropped, whose owner is dropped last (pool 2).
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

/// The slots of one kind and one owner, used under the owner's lock.
pub(super) struct Pool {
    shape: Shape,
    regions: Vec<Option<Region>>,
    /// Regions with a free slot; slots are taken from the last.
    partial: Vec<u32>,
    /// Numbers of regions that were freed.
    vacant: Vec<u32>,
    /// The recycled slots that are taken first are the last ones of these (pool 5).
    taking: Vec<NonNull<u8>>,
    /// The recycled slots that have come back since.
    returned: Vec<NonNull<u8>>,
    pub(super) slots: usize,
    /// The number of slots that are not free.
    pub(super) used: usize,
}

// SAFETY: a pool owns its memory, and accesses only free and recycled slots and the beginnings of
// chunks.
unsafe impl Send for Pool {}

/// The recycled slots of a pool that are taken first: all that taking one of them changes. Apart
/// from the pool, and no larger than need be, since it stands on one cache line with the lock of
/// the owner.
#[repr(C, packed(4))]
pub(super) struct Recycled {
    /// Where the next one is noted.
    next: *const NonNull<u8>,
    left: u32,
}

// SAFETY: it owns the slots, plain memory, and stays with the pool.
unsafe impl Send for Recycled {}

impl Recycled {
    pub(super) const fn new() -> Self {
        Self {
            next: ptr::null(),
            left: 0,
        }
    }

    /// Takes the first slot out.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: pool 5.
        let slot = unsafe { *self.next };
        self.next = self.next.wrapping_add(1);
        Some(slot)
    }

    /// Takes back the slot that was taken last: it is still noted.
    pub(super) fn undo(&mut self) {
        self.next = self.next.wrapping_sub(1);
        self.left += 1;
    }
}

impl Region {
    fn has_free(&self) -> bool {
        !self.free.is_null() || self.fresh_chunk < self.chunks
    }

    /// Takes a slot back.
    ///
    /// # Safety
    ///
    /// The slot is one of this region's, and the caller owns it, and gives it up.
    unsafe fn push_free(&mut self, slot: NonNull<u8>) {
        // SAFETY: the caller owns the slot.
        unsafe { set_next(slot, self.free) };
        self.free = slot.as_ptr();
    }

    /// Takes out the slot that has come back last.
    #[inline]
    fn pop_free(&mut self) -> Option<NonNull<u8>> {
        let slot = NonNull::new(self.free)?;
        // SAFETY: a free slot of this region, which holds a link.
        self.free = unsafe { next(slot) };
        Some(slot)
    }

    /// Takes at most this many free slots, and at least one, of which there is one.
    fn take(&mut self, shape: &Shape, most: usize, out: &mut Vec<NonNull<u8>>) {
        let before = out.len();
        while out.len() - before < most {
            let Some(free) = self.pop_free() else {
                break;
            };
            out.push(free);
        }
        if out.len() == before {
            debug_assert!(self.fresh_chunk < self.chunks);
            // Those that were never taken, of one chunk.
            let count = most.min(shape.slots - self.fresh);
            let offset = self.fresh_chunk * shape.size + shape.first + self.fresh * shape.stride;
            // SAFETY: within the region: its chunk is one of the region's (the caller).
            let first = unsafe { self.at.add(offset) };
            // SAFETY: within the chunk, which has as many slots behind the first one.
            let slots = (0..count).map(|slot| unsafe { first.add(slot * shape.stride) });
            out.extend(slots);
            self.fresh += count;
            if self.fresh == shape.slots {
                (self.fresh_chunk, self.fresh) = (self.fresh_chunk + 1, 0);
            }
        }
        self.used += out.len() - before;
    }
}

impl Pool {
    /// A pool without memory.
    pub(super) const fn new(shape: Shape) -> Self {
        Self {
            shape,
            regions: Vec::new(),
            partial: Vec::new(),
            vacant: Vec::new(),
            taking: Vec::new(),
            returned: Vec::new(),
            slots: 0,
            used: 0,
        }
    }

    /// Takes a slot. If that allocates a new region, `open` is called for each of its chunks, with
    /// the address of the chunk and the address of its columns.
    #[inline]
    pub(super) fn take(
        &mut self,
        recycled: &mut Recycled,
        open: impl Fn(NonNull<u8>, NonNull<u8>),
    ) -> NonNull<u8> {
        match recycled.pop() {
            Some(slot) => slot,
            None => self.take_more(recycled, open),
        }
    }

    /// Takes a slot where `recycled` has none left.
    #[cold]
    #[inline(never)]
    fn take_more(
        &mut self,
        recycled: &mut Recycled,
        open: impl Fn(NonNull<u8>, NonNull<u8>),
    ) -> NonNull<u8> {
        if self.returned.is_empty() {
            self.take_free(&open);
        }
        let slot = self.take_returned(recycled);
        slot.expect("one was taken from a region")
    }

    /// Takes a slot that came back, where `recycled` has none left.
    #[inline]
    fn take_returned(&mut self, recycled: &mut Recycled) -> Option<NonNull<u8>> {
        debug_assert!({ recycled.left } == 0);
        if self.returned.is_empty() {
            return None;
        }
        self.taking.clear();
        std::mem::swap(&mut self.taking, &mut self.returned);
        recycled.next = self.taking.as_ptr();
        let len = self.taking.len();
        recycled.left = u32::try_from(len).expect("fewer than 2^32 slots are recycled");
        recycled.pop()
    }

    /// How many slots are recycled.
    pub(super) fn recycled(&self, recycled: &Recycled) -> usize {
        recycled.left as usize + self.returned.len()
    }

    /// Takes some slots that are free, from the regions, as if they had come back.
    fn take_free(&mut self, open: &dyn Fn(NonNull<u8>, NonNull<u8>)) {
        let number = match self.partial.last() {
            Some(&number) => number,
            None => self.grow(open),
        };
        let region = self.regions[number as usize].as_mut();
        let region = region.expect("a listed region exists");
        let most = if ONE_SLOT_CHUNKS {
            1
        } else {
            (self.used / FREE_PART).clamp(1, TAKEN_AT_A_TIME)
        };
        region.take(&self.shape, most, &mut self.returned);
        self.used += self.returned.len();
        if !region.has_free() {
            self.partial.pop();
        }
    }

    /// Makes room for a slot: then the next [`take`](Self::take) needs no new region.
    pub(super) fn reserve(&mut self, recycled: &Recycled, open: impl Fn(NonNull<u8>, NonNull<u8>)) {
        // In this order: mostly the line of the owner's lock answers, which the caller has.
        if recycled.left == 0 && self.returned.is_empty() && self.slots == self.used {
            self.grow(&open);
        }
    }

    /// Allocates another region and opens its chunks. Returns its number.
    // One function for all kinds of slots: it is large.
    #[cold]
    fn grow(&mut self, open: &dyn Fn(NonNull<u8>, NonNull<u8>)) -> u32 {
        let Shape {
            size,
            slots,
            beside,
            ..
        } = self.shape;
        // An eighth of the present size, so that little memory is empty.
        let chunks = (self.slots / slots / 8).clamp(1, MAX_CHUNKS);
        let layout = Layout::from_size_align(chunks * (size + beside), size)
            .expect("a region of a few chunks fits the address space");
        let at = address::allocate(layout, false).unwrap_or_else(|refused| refused.fail());
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.regions.push(None);
            u32::try_from(self.regions.len() - 1).expect("fewer than 2^32 regions")
        });
        for chunk in 0..chunks {
            // SAFETY: chunks lie side by side at the region's beginning, their columns behind the
            // last; the layout has room for all.
            unsafe {
                let beside = at.add(chunks * size + chunk * beside);
                let chunk = at.add(chunk * size);
                chunk.cast().write(number);
                open(chunk, beside);
            }
        }
        self.slots += chunks * slots;
        self.regions[number as usize] = Some(Region {
            at,
            layout,
            chunks,
            fresh_chunk: 0,
            fresh: 0,
            used: 0,
            free: ptr::null_mut(),
        });
        self.partial.push(number);
        number
    }

    /// Takes emptied slots back, in the order in which they are to be taken again. Drop `vacated`
    /// after the owner's lock was released.
    ///
    /// # Safety
    ///
    /// The slots are taken ones of this pool, and no code uses them any more.
    pub(super) unsafe fn take_back(
        &mut self,
        recycled: &mut Recycled,
        emptied: impl ExactSizeIterator<Item = NonNull<u8>>,
        vacated: &mut Vec<Region>,
    ) {
        let mut left = RETURNED_AT_A_TIME.max(2 * emptied.len());
        if self.returned.capacity() - self.returned.len() < emptied.len() {
            self.make_room(emptied.len());
        }
        self.returned.extend(emptied);
        while !(self.is_dense() && self.has_few_recycled(recycled)) && left > 0 {
            let Some(slot) = recycled.pop().or_else(|| self.take_returned(recycled)) else {
                break;
            };
            // SAFETY: it was recycled (pool 1), and is in no array any more.
            unsafe { self.return_to_regions(slot, vacated) };
            left -= 1;
        }
    }

    /// Makes room for so many slots that come back: as much as the recycled slots need at most, so
    /// that this seldom happens. It allocates under the owner's lock.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, emptied: usize) {
        let most = (RECYCLED_SQUARED * self.used as u64).isqrt() as usize;
        self.returned.reserve(emptied + most.min(self.used / 2));
    }

    /// Whether the recycled slots are within the bound. If it held, it holds again after `n` slots
    /// have come and `2n` were returned to their regions (the proof: `checks/pool.rs`).
    fn has_few_recycled(&self, recycled: &Recycled) -> bool {
        let recycled = self.recycled(recycled) as u64;
        let used = self.used as u64;
        recycled * 2 <= used && recycled * recycled <= RECYCLED_SQUARED * used
    }

    /// Whether the number of free slots is at most the number of the others, or at most a chunk.
    fn is_dense(&self) -> bool {
        self.slots - self.used <= self.used.max(self.shape.slots)
    }

    /// Returns a slot that is not free to its region.
    ///
    /// # Safety
    ///
    /// The slot is one of this pool's, and the caller owns it.
    #[inline]
    unsafe fn return_to_regions(&mut self, slot: NonNull<u8>, vacated: &mut Vec<Region>) {
        let offset = slot.addr().get() & (self.shape.size - 1);
        // SAFETY: the caller's promise: the slot stands `offset` bytes behind its chunk's
        // beginning, which holds the region's number (pool 4).
        let number: u32 = unsafe { slot.sub(offset).cast().read() };
        let region = self.regions[number as usize].as_mut();
        let region = region.expect("a region with a slot in use exists");
        if !region.has_free() {
            self.partial.push(number);
        }
        // SAFETY: the caller's promise.
        unsafe { region.push_free(slot) };
        region.used -= 1;
        self.used -= 1;
        if region.used == 0 {
            self.release(vacated);
        }
    }

    /// A region has become empty: returns empty regions to the allocator as long as the free slots
    /// that stay are at least an eighth of the slots in use.
    #[cold]
    fn release(&mut self, vacated: &mut Vec<Region>) {
        self.partial.retain(|&number| {
            let place = &mut self.regions[number as usize];
            let slots = match place {
                Some(region) if region.used == 0 => region.chunks * self.shape.slots,
                _ => return true,
            };
            if !ONE_SLOT_CHUNKS && (self.slots - slots - self.used) * 8 < self.used {
                return true;
            }
            self.slots -= slots;
            self.vacant.push(number);
            vacated.extend(place.take());
            false
        });
    }
}

// The invariants of this module: `checks/pool.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../checks/pool.rs"]
mod check;
