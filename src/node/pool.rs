//! Slots of one size: in chunks, handed out one by one, taken back many at a time.
//!
//! # How it works
//!
//! Chunks are aligned to their size, so that a slot's chunk is found by clearing the low bits of
//! its address; at its beginning stands the number of the *region* that it was allocated with, one
//! of one to sixteen chunks, growing with the pool. A region goes back to the allocator when its
//! last slot has come back and enough room is left.
//!
//! What comes back is mostly wanted again at once: some slots stay in one chain for that, whichever
//! regions they are of. It is a queue: where entries leave in the order in which they came, as
//! timers of one length do, slots are handed out in the order in which they stand in memory, again
//! and again, and the processor sees coming which one is next. Were the last to come back the first
//! to go, each round would shuffle them a little more: a removal would then wait for memory for two
//! thirds of its time.
//!
//! How many stay (`may_be_loose`): the hash deals entries out to the owners, so an owner of some
//! `n` entries has now more of them and now fewer, mostly by less than three times the root of `n`;
//! and some wait to be freed. What would be more goes back to the regions, where it loses its
//! order.
//!
//! # Invariants
//!
//! 1. A slot is *free* (in its region's chain, or not handed out yet), *loose* (in the pool's
//!    chain) or *taken*. The pool writes to free and loose slots alone.
//! 2. A region's `used` is the number of its slots that are not free; its memory is given back only
//!    when that is 0, or by the last owner.
//! 3. A region with a free slot is in `roomy`.
//! 4. A chunk's beginning is written before the first of its slots is handed out, and never again.
//!
//! # Cost
//!
//! Taking a slot, or giving one back: a few nanoseconds, no allocation but for a new region.
//!
//! # Origin
//!
//! J. Bonwick, "The Slab Allocator", USENIX 1994.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Sanitizers and fuzzers want an allocation for each slot: or they would not see the use of one
/// that was freed.
pub(super) const SINGLE: bool = cfg!(any(fuzzing, wheelhouse_single));
/// Chunks of the largest regions.
const REGION: usize = if SINGLE { 1 } else { 16 };
/// Square of how many slots stay loose at most, as a multiple of those that are not free: some six
/// times the root. And not more than half of those.
const LOOSE: u64 = if SINGLE { 0 } else { 32 };
/// Loose slots that go back to their regions at a time, under the owner's lock; or as many as came,
/// which is enough (`may_be_loose`).
const LOT: usize = 64;

/// How chunks are divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a chunk, and what it is aligned to: a power of two.
    pub(super) size: usize,
    /// Where the first slot begins, behind the region's number at least.
    pub(super) first: usize,
    /// From one slot to the next: room for a pointer at least.
    pub(super) stride: usize,
    /// Slots of a chunk.
    pub(super) slots: usize,
    /// Bytes that each chunk has behind its region's last chunk, a multiple of 8.
    pub(super) beside: usize,
}

impl Shape {
    fn region(&self, chunks: usize) -> Layout {
        Layout::from_size_align(chunks * (self.size + self.beside), self.size)
            .expect("a region of a few chunks fits the address space")
    }
}

/// What a free or loose slot holds, at whatever alignment: the next in its chain.
type Next = *mut u8;

/// Writes a slot's link.
///
/// # Safety
///
/// The slot is the caller's alone, and large enough (`Shape::stride`).
#[inline]
unsafe fn set_next(slot: NonNull<u8>, next: Next) {
    // SAFETY: the caller's promise.
    unsafe { slot.cast::<Next>().write_unaligned(next) }
}

/// Reads a slot's link.
///
/// # Safety
///
/// The slot is in a chain that is the caller's alone: it holds a link.
#[inline]
unsafe fn next(slot: NonNull<u8>) -> Next {
    // SAFETY: the caller's promise.
    unsafe { slot.cast::<Next>().read_unaligned() }
}

struct Region {
    at: NonNull<u8>,
    chunks: usize,
    /// The next slot that has never been handed out: its chunk, and its number there.
    fresh_chunk: usize,
    fresh: usize,
    used: usize,
    free: Next,
    /// Whether `roomy` names it, and whether `spares` does.
    listed: bool,
    spare: bool,
}

/// The slots of one kind and one owner; it is used under the owner's lock.
pub(super) struct Pool {
    shape: Shape,
    regions: Vec<Option<Region>>,
    /// Regions with a free slot, the one to take from last; among them some that have none any
    /// more, or are gone.
    roomy: Vec<u32>,
    /// Numbers of regions that are gone and not in `roomy`.
    vacant: Vec<u32>,
    /// Regions that were empty when they were last looked at.
    spares: Vec<u32>,
    /// The chain of loose slots, its end, which says nothing if there are none, and its length.
    loose: Next,
    loose_last: NonNull<u8>,
    pub(super) loosened: usize,
    pub(super) slots: usize,
    /// Those that are not free.
    pub(super) used: usize,
}

// SAFETY: a pool owns its memory, and reads and writes none but free and loose slots and the
// beginnings of chunks.
unsafe impl Send for Pool {}

/// Emptied slots of one pool, on their way back.
pub(super) struct Chain {
    first: Next,
    /// The other end; dangling if the chain is empty.
    last: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns the slots in it, plain memory.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: NonNull::dangling(),
            len: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a slot.
    ///
    /// # Safety
    ///
    /// It is taken, nobody uses it any more, and all slots of a chain are of the pool that will
    /// take it back.
    pub(super) unsafe fn push(&mut self, slot: NonNull<u8>) {
        // SAFETY: the slot is the caller's alone.
        unsafe { set_next(slot, self.first) };
        if self.first.is_null() {
            self.last = slot;
        }
        self.first = slot.as_ptr();
        self.len += 1;
    }
}

/// Regions that a pool has let go; their memory is given back when this is dropped. Apart from the
/// pool, since the allocator may take its time, and the pool is used under a lock.
#[must_use]
pub(crate) struct Vacated(Vec<(NonNull<u8>, Layout)>);

impl Vacated {
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }
}

impl Drop for Vacated {
    fn drop(&mut self) {
        for (at, layout) in self.0.drain(..) {
            // SAFETY: allocated in `grow` with this layout, taken out of the pool when no slot of
            // it was taken (pool 2), so freed once and used no more.
            unsafe { dealloc(at.as_ptr(), layout) }
        }
    }
}

impl Region {
    /// Takes a free slot, if there is one.
    #[inline]
    fn take(&mut self, shape: &Shape) -> Option<NonNull<u8>> {
        if let Some(free) = NonNull::new(self.free) {
            // SAFETY: pool 1: a free slot in the region's chain.
            self.free = unsafe { next(free) };
            self.used += 1;
            return Some(free);
        }
        if self.fresh_chunk == self.chunks {
            return None;
        }
        let offset = self.fresh_chunk * shape.size + shape.first + self.fresh * shape.stride;
        self.fresh += 1;
        if self.fresh == shape.slots {
            (self.fresh_chunk, self.fresh) = (self.fresh_chunk + 1, 0);
        }
        self.used += 1;
        // SAFETY: within the region: its chunk is one of the region's.
        Some(unsafe { self.at.add(offset) })
    }
}

impl Pool {
    /// A pool without memory.
    pub(super) const fn new(shape: Shape) -> Self {
        Self {
            shape,
            regions: Vec::new(),
            roomy: Vec::new(),
            vacant: Vec::new(),
            spares: Vec::new(),
            loose: ptr::null_mut(),
            loose_last: NonNull::dangling(),
            loosened: 0,
            slots: 0,
            used: 0,
        }
    }

    /// Takes a loose slot, if there is one.
    #[inline]
    pub(super) fn take_loose(&mut self) -> Option<NonNull<u8>> {
        let loose = NonNull::new(self.loose)?;
        // SAFETY: pool 1: a slot in the chain of the loose.
        self.loose = unsafe { next(loose) };
        self.loosened -= 1;
        Some(loose)
    }

    /// Takes a slot from a region. For each chunk of a new one, `open` is told its address and that
    /// of what it has beside it.
    pub(super) fn take_free(&mut self, open: impl Fn(NonNull<u8>, NonNull<u8>)) -> NonNull<u8> {
        if let Some(&number) = self.roomy.last()
            && let Some(region) = &mut self.regions[number as usize]
            && let Some(slot) = region.take(&self.shape)
        {
            self.used += 1;
            return slot;
        }
        self.take_elsewhere(open)
    }

    /// The same when the region to take from last has none.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(&mut self, open: impl Fn(NonNull<u8>, NonNull<u8>)) -> NonNull<u8> {
        loop {
            if let Some(&number) = self.roomy.last() {
                if let Some(region) = &mut self.regions[number as usize] {
                    if let Some(slot) = region.take(&self.shape) {
                        self.used += 1;
                        return slot;
                    }
                    region.listed = false;
                } else {
                    self.vacant.push(number);
                }
                self.roomy.pop();
            } else {
                self.grow(&open);
            }
        }
    }

    /// Allocates another region and opens its chunks.
    fn grow(&mut self, open: impl Fn(NonNull<u8>, NonNull<u8>)) {
        let Shape {
            size,
            slots,
            beside,
            ..
        } = self.shape;
        // An eighth of what is there, so that little stands empty.
        let chunks = (self.slots / slots / 8).clamp(1, REGION);
        let layout = self.shape.region(chunks);
        // SAFETY: not zero-sized: a chunk has a beginning.
        let Some(at) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        if !super::is_taggable(at.addr().get(), layout.size()) {
            // SAFETY: allocated above with this layout; nothing points to it.
            unsafe { dealloc(at.as_ptr(), layout) };
            super::refuse(at.addr().get(), layout.size());
        }
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.regions.push(None);
            u32::try_from(self.regions.len() - 1).expect("fewer than 2^32 regions")
        });
        for chunk in 0..chunks {
            // SAFETY: chunks stand side by side at the region's beginning, what they have beside
            // them behind the last; the layout has room for all.
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
            chunks,
            fresh_chunk: 0,
            fresh: 0,
            used: 0,
            free: ptr::null_mut(),
            listed: true,
            spare: false,
        });
        self.roomy.push(number);
    }

    /// Takes emptied slots back; all of them are this pool's, which `Chain::push` has made its
    /// caller promise. What is `vacated` is to be dropped after the owner's lock was released.
    pub(super) fn take_back(&mut self, emptied: &Chain, vacated: &mut Vacated) {
        if emptied.is_empty() {
            return;
        }
        let loosened = self.loosened + emptied.len;
        if self.is_dense() && self.may_be_loose(loosened) {
            if self.loose.is_null() {
                self.loose = emptied.first;
            } else {
                // SAFETY: pool 1: the end of the chain of the loose.
                unsafe { set_next(self.loose_last, emptied.first) };
            }
            self.loose_last = emptied.last;
            self.loosened = loosened;
        } else {
            let mut at = emptied.first;
            while let Some(slot) = NonNull::new(at) {
                // SAFETY: a slot of a chain that is the pool's alone by now (`Chain::push`): its
                // link is read before it gets another.
                unsafe {
                    at = next(slot);
                    self.disperse(slot, vacated);
                }
            }
            let mut lot = LOT.max(emptied.len);
            while !(self.is_dense() && self.may_be_loose(self.loosened))
                && lot > 0
                && let Some(slot) = self.take_loose()
            {
                // SAFETY: it was loose (pool 1), and is in no chain any more.
                unsafe { self.disperse(slot, vacated) };
                lot -= 1;
            }
        }
    }

    /// Whether no more than the bound are loose if so many are.
    ///
    /// With as many loose slots dispersed as others it holds on, if it held: with `l` loose of `u`,
    /// and `n < l` of each gone, 2(l - n) <= u - 2n follows from 2l <= u. And (l - n)^2 <= 32 (u -
    /// 2n) does from l^2 <= 32 u if l is 64 or more, since n(2l - n) >= 64 n; if it is less, from
    /// the first. Nor does one more loose slot that goes change it: 2(l - 1) <= u - 1, and (l -
    /// 1)^2 <= 32 (u - 1) in the same two ways.
    fn may_be_loose(&self, slots: usize) -> bool {
        let (loose, used) = (slots as u64, self.used as u64);
        loose * 2 <= used && loose * loose <= LOOSE * used
    }

    /// Whether no more slots are free than are not, or than a chunk has.
    fn is_dense(&self) -> bool {
        self.slots - self.used <= self.used.max(self.shape.slots)
    }

    /// Gives a slot that is not free back to its region.
    ///
    /// # Safety
    ///
    /// The slot is one of this pool's, and the caller's alone.
    #[inline(always)]
    unsafe fn disperse(&mut self, slot: NonNull<u8>, vacated: &mut Vacated) {
        let offset = slot.addr().get() & (self.shape.size - 1);
        // SAFETY: the caller's promise: the slot stands `offset` bytes behind its chunk's
        // beginning, which holds the region's number (pool 4).
        let number: u32 = unsafe { slot.sub(offset).cast().read() };
        let region = self.regions[number as usize]
            .as_mut()
            .expect("a region with a slot that is not free is there (pool 2)");
        // SAFETY: the caller's promise.
        unsafe { set_next(slot, region.free) };
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

    /// A region has become empty: gives empty regions back to the allocator as long as an eighth of
    /// what is in use would still find room.
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
            let slots = region.chunks * self.shape.slots;
            if region.used > 0 {
                // Taken from again since.
                region.spare = false;
            } else if SINGLE || (self.slots - slots - self.used) * 8 >= self.used {
                self.slots -= slots;
                vacated
                    .0
                    .push((region.at, self.shape.region(region.chunks)));
                // `roomy` goes on naming it until `take_elsewhere` gets there.
                *place = None;
            } else {
                return;
            }
            self.spares.pop();
        }
    }

    /// How many slots a chain has, and the last. For the holder of the owner's lock.
    #[cfg(any(test, fuzzing))]
    fn walk(mut at: Next) -> (usize, Option<NonNull<u8>>) {
        let (mut count, mut last) = (0, None);
        while let Some(slot) = NonNull::new(at) {
            // SAFETY: pool 1: the chain's slots hold its links.
            at = unsafe { next(slot) };
            (count, last) = (count + 1, Some(slot));
        }
        (count, last)
    }

    /// Asserts pool 2 and 3.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self) {
        let (loose, last) = Self::walk(self.loose);
        assert_eq!(loose, self.loosened, "loose slots");
        assert!(last.is_none_or(|last| last == self.loose_last));
        assert!(self.may_be_loose(self.loosened), "{self:?}");
        let mut named = vec![0; self.regions.len()];
        for &number in &self.roomy {
            named[number as usize] += 1;
        }
        let (mut slots, mut used) = (0, 0);
        for (number, region) in self.regions.iter().enumerate() {
            let Some(region) = region else { continue };
            let all = region.chunks * self.shape.slots;
            let handed_out = region.fresh_chunk * self.shape.slots + region.fresh;
            let free = all - handed_out + Self::walk(region.free).0;
            assert_eq!(region.used + free, all, "slots of region {number}");
            assert_eq!(
                named[number],
                usize::from(region.listed),
                "region {number} in `roomy`"
            );
            assert!(
                free == 0 || region.listed,
                "region {number} has room (pool 3)"
            );
            slots += all;
            used += region.used;
        }
        assert_eq!((slots, used), (self.slots, self.used));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The pool's owner is the last: nobody uses a slot any more.
        let regions = self.regions.drain(..).flatten();
        let all = regions.map(|region| (region.at, self.shape.region(region.chunks)));
        drop(Vacated(all.collect()));
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("slots", &self.slots)
            .field("used", &self.used)
            .finish()
    }
}
