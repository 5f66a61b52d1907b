//! Which stripe a thread uses, and the padding that keeps stripes apart.
//!
//! A striped structure (read rings, counters) gives each thread a place of its own as long as there
//! are enough places. A thread's number is drawn once, from a counter; numbers of ended threads are
//! used again, lowest first, so that a program which starts and ends threads all day stays on the
//! low stripes.
//!
//! Cost: a thread-local load; the first call of a thread takes a process-wide lock.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Two cache lines: adjacent-line prefetch makes neighbours share more than one.
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

const UNKNOWN: usize = usize::MAX;
/// The number of every thread in its last moments, when its own is given back; far above those of
/// the living.
const LAPSED: usize = usize::MAX >> 1;

thread_local! {
    // Plain cell without a destructor: the fast path is one load.
    static NUMBER: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: Lease = Lease::take();
}

/// Numbers handed back by ended threads, and the next never used one. Always `std`'s lock: models
/// fix the number.
static FREE: std::sync::Mutex<(BinaryHeap<Reverse<usize>>, usize)> =
    std::sync::Mutex::new((BinaryHeap::new(), 0));

/// A thread's number, given back when the thread ends.
struct Lease(usize);

impl Lease {
    fn take() -> Self {
        let mut free = FREE.lock().unwrap_or_else(|e| e.into_inner());
        let number = match free.0.pop() {
            Some(Reverse(number)) => number,
            None => {
                free.1 += 1;
                free.1 - 1
            }
        };
        Self(number)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Before another thread can have the number. A thread without the cell draws again, and in
        // vain.
        _ = NUMBER.try_with(|number| number.set(LAPSED));
        let mut free = FREE.lock().unwrap_or_else(|e| e.into_inner());
        free.0.push(Reverse(self.0));
    }
}

/// The calling thread's number: small, dense, unique among live threads.
///
/// During a thread's last moments (thread-local destructors) it is a large one, shared with other
/// threads that are about to end.
#[inline]
pub(crate) fn number() -> usize {
    let number = NUMBER.get();
    if number != UNKNOWN {
        return number;
    }
    draw()
}

#[cold]
fn draw() -> usize {
    let number = LEASE.try_with(|lease| lease.0).unwrap_or(LAPSED);
    NUMBER.set(number);
    number
}

/// How many stripes or shards suit this machine: a power of two, at least `per_core` for each core.
pub(crate) fn stripes(per_core: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(4, usize::from);
    (cores * per_core).next_power_of_two().min(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ended_threads_are_used_again() {
        let mine = number();
        assert_eq!(mine, number());
        // There are no more numbers than threads were alive at once, so one after another they meet
        // a known one soon, whatever else the process does.
        let mut drawn = std::collections::HashSet::new();
        let mut threads = (0..10_000).map(|_| std::thread::spawn(number).join().unwrap());
        assert!(
            threads.any(|number| !drawn.insert(number)),
            "10,000 threads one after another drew a number each"
        );
    }

    #[test]
    fn live_threads_have_different_numbers() {
        let barrier = std::sync::Barrier::new(8);
        let mut numbers: Vec<usize> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    s.spawn(|| {
                        let n = number();
                        barrier.wait();
                        n
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8);
    }

    #[test]
    fn stripes_is_a_power_of_two() {
        for per_core in 1..10 {
            assert!(stripes(per_core).is_power_of_two());
        }
    }
}
