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
    static GUARD: IndexGuard = IndexGuard(THREADS.take());
}

/// The indexes of threads.
static THREADS: Indexes = Indexes::new();

/// Small indexes, each of which has one owner at a time. The lowest free one is taken first.
///
/// Always `std`'s lock: models fix the index of a thread.
pub(crate) struct Indexes {
    returned: Mutex<BinaryHeap<Reverse<usize>>>,
    /// Neither this one nor a higher one was ever taken. Relaxed: only uniqueness counts.
    untouched: AtomicUsize,
}

impl Indexes {
    pub(crate) const fn new() -> Self {
        Self {
            returned: Mutex::new(BinaryHeap::new()),
            untouched: AtomicUsize::new(0),
        }
    }

    pub(crate) fn take(&self) -> usize {
        let lowest = self.returned().pop();
        match lowest {
            Some(Reverse(index)) => index,
            None => self.untouched.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) fn give_back(&self, index: usize) {
        self.returned().push(Reverse(index));
    }

    fn returned(&self) -> MutexGuard<'_, BinaryHeap<Reverse<usize>>> {
        // Each change is a single step.
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's index, returned when the thread ends.
struct IndexGuard(usize);

impl Drop for IndexGuard {
    fn drop(&mut self) {
        // This happens before another thread can draw the index. A thread whose cell is gone draws
        // again and gets `RETURNED`.
        _ = INDEX.try_with(|index| index.set(RETURNED));
        THREADS.give_back(self.0);
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
    let index = GUARD.try_with(|guard| guard.0).unwrap_or(RETURNED);
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
