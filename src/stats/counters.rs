//! The live counters behind [`Stats`].
//!
//! # How it works
//!
//! Each thread counts on a stripe of its own, found by [`stripe::number`], with a plain load and
//! store, because an atomic addition would cost more than the rest of a hit's bookkeeping. Threads
//! beyond the last stripe share a few stripes and use atomic additions. The counts that only the
//! pass changes have one writer, the holder of the maintenance lock.
//!
//! # Invariants
//!
//! 1. A stripe below `shared_from` is written by one thread at a time: the only live one with its
//!    number. Numbers pass from thread to thread under a lock ([`stripe`]), so the next thread sees
//!    what the last one stored.
//! 2. Counts never fall.
//!
//! # Cost
//!
//! A count costs a thread-local load, a bounds check, a load and a store. A stripe takes 128 bytes,
//! with 2 stripes a core and 32 at least; the histogram of lateness takes 4 KiB.

use super::Stats;
use super::histogram::Histogram;
use super::loads::LoadStats;
use crate::listener::RemovalCause;
use crate::stripe::{self, Padded};
use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of removal causes: [`RemovalCause::index`] is below.
pub(super) const CAUSES: usize = 4;
/// Number of threads that have a stripe of their own on any machine.
const OWN_AT_LEAST: usize = 32;
/// Number of stripes that all other threads share; a power of two.
const SHARED: usize = 8;

/// One thread's counts; two cache lines.
#[derive(Default)]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
    insertions: AtomicU64,
    updates: AtomicU64,
    removals: [AtomicU64; CAUSES],
    weights: [AtomicU64; CAUSES],
}

/// What a cache counts while it records statistics.
pub(crate) struct Counters {
    stripes: Box<[Padded<Stripe>]>,
    shared_from: usize,
    passes: AtomicU64,
    pass_nanos: AtomicU64,
    lateness: Histogram,
    loads: LoadCounters,
}

/// The counts of loads. They are not striped: a load costs much more than the count.
#[derive(Default)]
struct LoadCounters {
    begun: AtomicU64,
    failed: AtomicU64,
    discarded: AtomicU64,
    waits: AtomicU64,
    nanos: AtomicU64,
    reloads: AtomicU64,
    failed_reloads: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let own = stripe::stripes(2).max(OWN_AT_LEAST);
        Self {
            stripes: (0..own + SHARED).map(|_| Padded::default()).collect(),
            shared_from: own,
            passes: AtomicU64::new(0),
            pass_nanos: AtomicU64::new(0),
            lateness: Histogram::new(),
            loads: LoadCounters::default(),
        }
    }

    /// A load began.
    pub(crate) fn load_began(&self) {
        self.loads.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// A load's code ran for this time.
    pub(crate) fn load_took(&self, nanos: u64) {
        self.loads.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// A load ended without a value.
    pub(crate) fn load_failed(&self) {
        self.loads.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// A load's value was not stored, since the load had been revoked or replaced.
    pub(crate) fn load_discarded(&self) {
        self.loads.discarded.fetch_add(1, Ordering::Relaxed);
    }

    /// A call waits for another call's load.
    pub(crate) fn load_waited(&self) {
        self.loads.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// A load over a present entry began.
    pub(crate) fn reload_began(&self) {
        self.loads.reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// A load over a present entry failed.
    #[allow(dead_code, reason = "for the cache that reloads")]
    pub(crate) fn reload_failed(&self) {
        self.loads.failed_reloads.fetch_add(1, Ordering::Relaxed);
    }

    // Called on the full path of a look-up, not on the fast path.
    #[inline]
    pub(crate) fn hit(&self) {
        self.add(1, |stripe| &stripe.hits);
    }

    #[inline(never)]
    pub(crate) fn miss(&self) {
        self.add(1, |stripe| &stripe.misses);
    }

    /// A value was inserted under an absent key.
    pub(crate) fn inserted(&self) {
        self.add(1, |stripe| &stripe.insertions);
    }

    /// A value replaced another.
    pub(crate) fn updated(&self) {
        self.add(1, |stripe| &stripe.updates);
    }

    /// A pair left the cache, by any thread.
    pub(crate) fn removed(&self, cause: RemovalCause, weight: u32) {
        self.add(1, |stripe| &stripe.removals[cause.index()]);
        self.add(u64::from(weight), |stripe| &stripe.weights[cause.index()]);
    }

    /// The pass removed an entry this long after its deadline. Called under the maintenance lock.
    pub(crate) fn late_by(&self, nanos: u64) {
        self.lateness.record(nanos);
    }

    /// A pass has ended. Called under the maintenance lock.
    pub(crate) fn passed(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        advance(&self.passes, 1);
        advance(&self.pass_nanos, nanos);
    }

    /// Relaxed throughout: counts order nothing.
    #[inline]
    fn add(&self, by: u64, of: impl FnOnce(&Stripe) -> &AtomicU64) {
        let number = stripe::number();
        if number < self.shared_from {
            advance(of(&self.stripes[number]), by);
        } else {
            let shared = self.shared_from + (number & (SHARED - 1));
            of(&self.stripes[shared]).fetch_add(by, Ordering::Relaxed);
        }
    }

    /// All counts at this moment; counts of calls in progress may or may not be included.
    pub(crate) fn snapshot(&self, listener_panics: u64) -> Stats {
        let sum = |of: fn(&Stripe) -> &AtomicU64| {
            let one = |stripe: &Padded<Stripe>| of(stripe).load(Ordering::Relaxed);
            self.stripes.iter().map(one).sum()
        };
        let by_cause = |of: fn(&Stripe) -> &[AtomicU64; CAUSES]| {
            let mut sums = [0_u64; CAUSES];
            for stripe in &self.stripes {
                for (sum, count) in sums.iter_mut().zip(of(stripe)) {
                    *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
                }
            }
            sums
        };
        Stats {
            hits: sum(|stripe| &stripe.hits),
            misses: sum(|stripe| &stripe.misses),
            insertions: sum(|stripe| &stripe.insertions),
            updates: sum(|stripe| &stripe.updates),
            removals: by_cause(|stripe| &stripe.removals),
            weights: by_cause(|stripe| &stripe.weights),
            listener_panics,
            maintenance_passes: self.passes.load(Ordering::Relaxed),
            maintenance_time: Duration::from_nanos(self.pass_nanos.load(Ordering::Relaxed)),
            lateness: self.lateness.counts(),
            loads: LoadStats {
                begun: self.loads.begun.load(Ordering::Relaxed),
                failed: self.loads.failed.load(Ordering::Relaxed),
                discarded: self.loads.discarded.load(Ordering::Relaxed),
                waits: self.loads.waits.load(Ordering::Relaxed),
                nanos: self.loads.nanos.load(Ordering::Relaxed),
                reloads: self.loads.reloads.load(Ordering::Relaxed),
                failed_reloads: self.loads.failed_reloads.load(Ordering::Relaxed),
            },
        }
    }
}

/// An addition by the only writer.
#[inline]
fn advance(count: &AtomicU64, by: u64) {
    count.store(
        count.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counters")
            .field("stripes", &self.stripes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn no_count_is_lost_with_more_threads_than_stripes() {
        let counters = Counters::new();
        let threads = counters.stripes.len() + 20;
        let all_here = Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    all_here.wait();
                    for _ in 0..1_000 {
                        counters.hit();
                        counters.removed(RemovalCause::Size, 3);
                    }
                });
            }
        });
        let stats = counters.snapshot(0);
        let all = threads as u64 * 1_000;
        assert_eq!((stats.hits(), stats.misses()), (all, 0));
        assert_eq!(stats.removals(RemovalCause::Size), all);
        assert_eq!(stats.removed_weight(RemovalCause::Size), 3 * all);
    }

    #[test]
    fn no_count_is_lost_while_numbers_pass_from_thread_to_thread() {
        /// Counts once more while its thread ends, after its number was returned.
        struct Last<'a>(&'a Counters);
        impl Drop for Last<'_> {
            fn drop(&mut self) {
                self.0.miss();
            }
        }
        thread_local! {
            static LAST: std::cell::RefCell<Option<Last<'static>>> = const { std::cell::RefCell::new(None) };
        }
        static COUNTERS: std::sync::LazyLock<Counters> = std::sync::LazyLock::new(Counters::new);
        let counters: &'static Counters = &COUNTERS;
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    for _ in 0..100 {
                        std::thread::spawn(move || {
                            // Made before the thread draws its number, so it is destroyed after the
                            // number is returned.
                            LAST.with(|last| *last.borrow_mut() = Some(Last(counters)));
                            for _ in 0..100 {
                                counters.miss();
                            }
                        })
                        .join()
                        .unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(counters.snapshot(0).misses(), 8 * 100 * 101);
    }
}
