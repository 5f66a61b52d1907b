//! A lock for short holds: locked by one exchange, unlocked by one store. DESIGN.md says why.
//!
//! # How it works
//!
//! No waiter is woken: a thread that finds the lock taken checks again. At first it checks after
//! short pauses, for long enough that an interrupt of the holder is mostly over by then. Later it
//! checks after naps of [`WAITER_NAP`], since the holder may have lost the processor, perhaps to
//! this very thread. It never yields.
//!
//! Use it only for short holds, and never run user code under it, except the ticker. The
//! maintenance lock is an ordinary mutex.
//!
//! # Invariants
//!
//! 1. `taken` is true from an exchange that found it false until the store of the thread that made
//!    that exchange: so there is one holder.
//!
//! # Cost
//!
//! One exchange and one store if the lock is free. Waiters have no order, and a wait has no bound.
//! But holds are short and mostly far apart, so each nap gives a thread a good chance.
//!
//! # Origin
//!
//! Test and test-and-set: L. Rudolph and Z. Segall, ISCA 1984.
#![allow(unsafe_code)]

use super::latch_parts::{AtomicBool, nap, pause};
use parking_lot::lock_api::{GuardNoSend, Mutex, MutexGuard, RawMutex};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A mutex for short holds.
pub(crate) type ShortMutex<T> = Mutex<Latch, T>;
pub(crate) type ShortMutexGuard<'a, T> = MutexGuard<'a, Latch, T>;

/// The number of pauses before a waiting thread checks a second time; it doubles before each later
/// check. It grows large, because two threads that alternate at every write move each cache line
/// back and forth, which slows both down.
const FIRST_PAUSES: u32 = 8;
/// How often the number of pauses doubles: so often that sixty threads that write one shard rarely
/// check. A thread that checks takes the line of the lock from its holder, which unlocks there.
const DOUBLINGS: u32 = 7;
/// The checks after pauses, before the first nap.
const CHECKS_BEFORE_NAPS: u32 = 40;
/// The length of a nap.
const WAITER_NAP: Duration = Duration::from_micros(50);

/// Whether a mutex is taken; see the module docs.
pub(crate) struct Latch {
    taken: AtomicBool,
}

impl Latch {
    /// Takes the lock once its holder has unlocked it.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut checks = 0;
        loop {
            if checks < CHECKS_BEFORE_NAPS {
                pause(FIRST_PAUSES << checks.min(DOUBLINGS));
            } else {
                nap(WAITER_NAP);
            }
            checks = checks.saturating_add(1);
            // A load first: an exchange would take the line from the holder each time.
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

#[cfg(all(test, not(wheelhouse_loom)))]
#[path = "latch/tests.rs"]
mod tests;
