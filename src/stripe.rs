//! Which stripe a thread uses, and the padding that keeps stripes apart.
//!
//! A striped structure (read rings, counters) gives each thread a stripe of its own as long as
//! there are enough stripes. A thread draws its index once. Indexes of ended threads are used
//! again, lowest first, so a program that starts and ends many threads stays on the low stripes.
//!
//! # Cost
//!
//! A thread-local load. The first call of a thread takes a lock of the process.

use crate::atomic64::AtomicU64;
use crate::contain::AtEnd;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Whether threads are those of an explorer, all of which run on one thread of the system.
pub(crate) const IS_MODEL: bool = cfg!(any(wheelhouse_loom, wheelhouse_shuttle));

/// A value on its own cache lines: two, since adjacent-line prefetch fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The value of `INDEX` in a thread that has drawn no index yet.
const NOT_DRAWN: usize = usize::MAX;
/// The index of a thread that is ending and has returned its own; far above the others.
const RETURNED: usize = usize::MAX >> 1;

thread_local! {
    // A plain cell without a destructor: the fast path is one load.
    static INDEX: Cell<usize> = const { Cell::new(NOT_DRAWN) };
    /// Returns the index when the thread ends.
    static AT_END: AtEnd<(), fn(&mut ())> = const { AtEnd((), |()| give_back()) };
}

/// The indexes that ended threads have returned: the lowest is taken first. Always `std`'s lock:
/// models fix the index of a thread.
static FREE: Mutex<BinaryHeap<Reverse<usize>>> = Mutex::new(BinaryHeap::new());

/// Neither this index nor a higher one was ever taken. Relaxed: only uniqueness counts.
static UNTOUCHED: AtomicUsize = AtomicUsize::new(0);

fn free() -> MutexGuard<'static, BinaryHeap<Reverse<usize>>> {
    // Each change is a single step.
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take() -> usize {
    let lowest = free().pop();
    match lowest {
        Some(Reverse(index)) => index,
        None => UNTOUCHED.fetch_add(1, Ordering::Relaxed),
    }
}

/// The calling thread ends. If one of its destructors asks again, it gets [`RETURNED`].
fn give_back() {
    let index = INDEX.replace(RETURNED);
    // Not if the cell was gone before.
    if index < RETURNED {
        free().push(Reverse(index));
    }
}

/// The calling thread's index: small, dense, unique among live threads.
///
/// While a thread runs its thread-local destructors, its index is a large one that all ending
/// threads share.
#[inline]
pub(crate) fn index() -> usize {
    let index = INDEX.get();
    if index != NOT_DRAWN {
        return index;
    }
    draw()
}

#[cold]
fn draw() -> usize {
    let index = match AT_END.try_with(|_| ()) {
        Ok(()) => take(),
        Err(_) => RETURNED,
    };
    INDEX.set(index);
    index
}

/// The number of the calling thread, which no other thread has had before; 0 if the thread is
/// ending.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(0) });
    if IS_MODEL {
        return 0;
    }
    let number = NUMBER.try_with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    });
    number.unwrap_or(0)
}

/// How many cores the process may use. Asked once, when the first cache is built: a thread that is
/// bound to one core would hear of that one only.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| match std::thread::available_parallelism() {
        Ok(cores) => cores.get(),
        Err(_) => 4,
    })
}

/// How many stripes or shards suit this machine: a power of two, at least `per_core` for each core.
pub(crate) fn stripes(per_core: usize) -> usize {
    (cores() * per_core).next_power_of_two().min(1024)
}

#[cfg(test)]
mod tests;
