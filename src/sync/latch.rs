//! A lock for short holds: taken by one exchange, given back by one store.
//!
//! # Why
//!
//! Each write takes its shard's lock, for some hundred nanoseconds. A mutex that wakes its waiters
//! has to look for them when it is given back, by a second locked instruction; and such an
//! instruction waits until all stores before it are done, those to the fresh node and the bucket
//! included, which the processor's caches may have to fetch first. Without it a replacement takes 6
//! percent less, an insert at capacity or a cancelled timer 5 to 8. An exchange, too, leaves the
//! processor more room than a compare-exchange does.
//!
//! # How it works
//!
//! Nobody is woken: who finds it taken looks again. At first after some pauses, for some ten to
//! some hundred microseconds, as long as the processor makes a pause: an interrupt that has come to
//! the holder is mostly over by then. Then after naps of [`NAP`], since the holder may have lost
//! the processor, perhaps to this very thread. No sooner, and no `yield` at all, though it would
//! let the holder run: a thread that gives its processor away to one that has much work, as the
//! scheduler's at a mass expiry, gets it back when that one's time slice has ended, milliseconds
//! after the lock was given back.
//!
//! Not for holds that last, nor with user code inside but the ticker's: the maintenance lock is
//! another one.
//!
//! # Invariants
//!
//! 1. `taken` is true from an exchange that found it false until the store of who made that
//!    exchange: so there is one holder.
//!
//! # Cost
//!
//! About 5 ns when nobody else is there. There is no order among those who wait, and no bound on a
//! wait but that holds are short and mostly far between: who has come to naps has a chance with
//! each of them.
//!
//! # Origin
//!
//! Test and test-and-set: L. Rudolph and Z. Segall, ISCA 1984.
#![allow(unsafe_code)]

use parking_lot::lock_api::{GuardNoSend, Mutex, MutexGuard, RawMutex};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// A mutex for short holds.
pub(crate) type ShortMutex<T> = Mutex<Latch, T>;
pub(crate) type ShortMutexGuard<'a, T> = MutexGuard<'a, Latch, T>;

/// How many pauses of the processor a waiting thread makes before it looks again; twice as many
/// each time. Seldom, since two threads that take turns with every write bring each line that they
/// write to the other, and both are the slower for it.
const PAUSES: u32 = 8;
/// From this look on as many pauses as before it.
const LONGEST: u32 = 4;
/// How often it looks after pauses, before it sleeps.
const SPINS: u32 = 40;
/// How long it sleeps, each time.
const NAP: Duration = Duration::from_micros(50);

/// Whether a mutex is taken; see the module docs.
pub(crate) struct Latch {
    taken: AtomicBool,
}

impl Latch {
    /// Takes it when others have given it back.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut looks = 0;
        loop {
            if looks < SPINS {
                (0..PAUSES << looks.min(LONGEST)).for_each(|_| spin_loop());
            } else {
                sleep(NAP);
            }
            looks = looks.saturating_add(1);
            // A look first: an exchange would take the line from the holder each time.
            if !self.taken.load(Ordering::Relaxed) && self.try_lock() {
                return;
            }
        }
    }
}

// SAFETY: latch 1: there is one holder.
unsafe impl RawMutex for Latch {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "that is what lock_api asks for"
    )]
    const INIT: Self = Self {
        taken: AtomicBool::new(false),
    };

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire, partner: the release in `unlock`.
        !self.taken.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release, partner: the acquire of the next holder.
        self.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread::{self, yield_now};

    /// So many threads, each of which counts so often under the lock: in a plain number, which
    /// ThreadSanitizer watches.
    fn count(threads: u64, times: u64, hold: impl Fn(u64) + Send + Copy + 'static) {
        let counter = Arc::new(ShortMutex::new(0));
        let counting: Vec<_> = (0..threads)
            .map(|_| {
                let counter = Arc::clone(&counter);
                thread::spawn(move || {
                    for _ in 0..times {
                        let mut count = counter.lock();
                        *count += 1;
                        hold(*count);
                    }
                })
            })
            .collect();
        counting
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(*counter.lock(), threads * times);
    }

    #[test]
    fn holders_come_one_after_the_other() {
        count(4, 50_000, |_| ());
    }

    #[test]
    fn who_waits_for_a_holder_that_lost_the_processor_gets_its_turn() {
        // More threads than processors, and holders that let others run, or sleep for longer than
        // anybody looks.
        count(16, 200, |count| {
            if count % 100 == 0 {
                sleep(20 * NAP);
            } else {
                yield_now();
            }
        });
    }

    #[test]
    fn a_taken_one_is_refused_and_a_panic_gives_it_back() {
        let mutex = Arc::new(ShortMutex::new(()));
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(held);
        let theirs = Arc::clone(&mutex);
        let panicked = thread::spawn(move || {
            let _held = theirs.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panicked.join().is_err());
        assert!(mutex.try_lock().is_some());
    }
}
