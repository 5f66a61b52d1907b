//! A global allocator that can count: bytes asked for, bytes the C library really set aside, and
//! calls.
//!
//! It counts only in the child processes that measure memory. Elsewhere every call pays one relaxed
//! load of a flag that never changes, the same for each peer.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

static COUNTING: AtomicBool = AtomicBool::new(false);
/// As the fields of [`Tally`].
static COUNTS: [AtomicI64; 4] = [const { AtomicI64::new(0) }; 4];

/// The system allocator, counted when asked.
pub struct Counting;

/// What is allocated at one moment.
pub struct Tally {
    /// Bytes that callers asked for and have not given back.
    pub requested: i64,
    /// The same with what the C library rounds up to.
    pub usable: i64,
    /// Allocations alive.
    pub live: i64,
    /// Allocations ever made.
    pub calls: i64,
}

/// Counts from now on, for the rest of the process.
pub fn start_counting() {
    COUNTING.store(true, Relaxed);
}

/// What is allocated now, less what was before counting began.
pub fn tally() -> Tally {
    Tally {
        requested: COUNTS[0].load(Relaxed),
        usable: COUNTS[1].load(Relaxed),
        live: COUNTS[2].load(Relaxed),
        calls: COUNTS[3].load(Relaxed),
    }
}

fn count(changes: [i64; 4]) {
    for (count, change) in COUNTS.iter().zip(changes) {
        count.fetch_add(change, Relaxed);
    }
}

/// Gives free pages back to the system, so that a resident size shows what is held and not what the
/// C library keeps for later.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// # Safety
/// `block` came from the system allocator and has not been given back.
unsafe fn usable(block: *mut u8) -> i64 {
    #[cfg(target_os = "linux")]
    // SAFETY: promised by the caller.
    unsafe {
        libc::malloc_usable_size(block.cast()) as i64
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = block;
        0
    }
}

/// Counts a new block and returns it.
///
/// # Safety
/// As for [`usable`], or null.
unsafe fn count_in(block: *mut u8, layout: Layout) -> *mut u8 {
    if COUNTING.load(Relaxed) && !block.is_null() {
        // SAFETY: promised by the caller, null excluded above.
        count([layout.size() as i64, unsafe { usable(block) }, 1, 1]);
    }
    block
}

// SAFETY: every block comes from and goes back to `System` with the caller's own layout; counting
// touches no block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on; the block is fresh from `System`.
        unsafe { count_in(System.alloc(layout), layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on; the block is fresh from `System`.
        unsafe { count_in(System.alloc_zeroed(layout), layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on; counted before it is gone.
        unsafe {
            if COUNTING.load(Relaxed) {
                count([-(layout.size() as i64), -usable(block), -1, 0]);
            }
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let counting = COUNTING.load(Relaxed);
        // SAFETY: passed on; the old size is read before the block may move, and a failed call
        // leaves the old block alive.
        unsafe {
            let before = if counting { usable(block) } else { 0 };
            let moved = System.realloc(block, layout, size);
            if counting && !moved.is_null() {
                let more = size as i64 - layout.size() as i64;
                count([more, usable(moved) - before, 0, 1]);
            }
            moved
        }
    }
}
