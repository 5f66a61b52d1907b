//! The live counters behind [`Stats`](super::Stats).
//!
//! # How it works
//!
//! Each thread counts on a stripe of its own, found by [`stripe::index`], with a plain load and
//! store. An atomic addition would cost more than the rest of a hit's bookkeeping. Threads beyond
//! the last stripe share a few stripes and use atomic additions. What is seldom counted has one
//! place for all threads.
//!
//! # Invariants
//!
//! 1. A stripe below `shared_from` is written by one thread at a time: the only live one with its
//!    index. Indexes pass from thread to thread under a lock ([`stripe`]), so the next thread sees
//!    what the last one stored.
//! 2. Counts never fall.
//!
//! Passes over several parts count lateness at once, by atomic additions.
//!
//! # Cost
//!
//! A count costs a thread-local load, a bounds check, a load and a store. A stripe takes 128 bytes,
//! with 2 stripes a core and 32 at least; the histogram of lateness takes 4 KiB.

use super::histogram::{BUCKETS, bucket_of};
use crate::listener::RemovalCause;
use crate::stripe::{self, Padded};
use crate::sync::{AtomicU64, Ordering, add_alone};

/// Number of removal causes: each [`RemovalCause`], as a number, is below.
const CAUSES: usize = RemovalCause::ALL.len();
/// Number of threads that have a stripe of their own on any machine.
const OWN_AT_LEAST: usize = 32;
/// Number of stripes that all other threads share; a power of two.
const SHARED: usize = 8;

/// The events that are counted: each names the index of its count in [`Counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Hits,
    Misses,
    /// A value was stored under an absent key.
    Insertions,
    /// A value replaced another.
    Updates,
    /// The first of the removals, one for each cause.
    Removals,
    /// The first of the weights that were removed, one for each cause.
    Weights = Count::Removals as isize + CAUSES as isize,
    /// The first count that is not striped: what follows is seldom counted.
    Passes = Count::Weights as isize + CAUSES as isize,
    PassNanos,
    Loads,
    /// A load ended without a value.
    FailedLoads,
    /// A load's value was not stored, since the load had been revoked or replaced.
    DiscardedLoads,
    /// A call waits for another call's load.
    LoadWaits,
    LoadNanos,
    /// A load over a present entry.
    Reloads,
    FailedReloads,
    /// A call got an error that was remembered.
    RememberedFailures,
    /// Counted by the notifier.
    ListenerPanics,
}

const STRIPED: usize = Count::Passes as usize;
const COUNTS: usize = Count::ListenerPanics as usize + 1;

pub(super) type Counts = [u64; COUNTS];

/// One thread's counts; two cache lines.
type Stripe = Padded<[AtomicU64; STRIPED]>;

/// The counts of a cache that records statistics.
pub(crate) struct Counters {
    stripes: Box<[Stripe]>,
    shared_from: usize,
    /// From [`Count::Passes`] on. A load or a pass costs much more than an atomic addition.
    others: [AtomicU64; COUNTS - STRIPED],
    /// How late entries were removed, as a histogram.
    lateness: Box<[AtomicU64]>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let own = stripe::stripes(2).max(OWN_AT_LEAST);
        Self {
            stripes: (0..own + SHARED).map(|_| Padded::default()).collect(),
            shared_from: own,
            others: Default::default(),
            lateness: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds to a count. Out of line: the callers' usual path is the one that counts nothing.
    #[inline(never)]
    pub(crate) fn add(&self, what: Count, by: u64) {
        let what = what as usize;
        if what < STRIPED {
            self.add_striped(what, by);
        } else {
            self.others[what - STRIPED].fetch_add(by, Ordering::Relaxed);
        }
    }

    /// A pair left the cache, by any thread.
    pub(crate) fn removed(&self, cause: RemovalCause, weight: u32) {
        self.add_striped(Count::Removals as usize + cause as usize, 1);
        self.add_striped(Count::Weights as usize + cause as usize, weight.into());
    }

    /// A pass removed an entry this long after its deadline. Other passes may count meanwhile.
    pub(crate) fn late_by(&self, nanos: u64) {
        self.lateness[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// Relaxed throughout: counts order nothing.
    #[inline]
    fn add_striped(&self, what: usize, by: u64) {
        let index = stripe::index();
        if index < self.shared_from {
            add_alone(&self.stripes[index][what], by);
        } else {
            let shared = self.shared_from + (index & (SHARED - 1));
            self.stripes[shared][what].fetch_add(by, Ordering::Relaxed);
        }
    }

    /// All counts at this moment; counts of calls in progress may or may not be included.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = [0_u64; COUNTS];
        for stripe in &self.stripes {
            for (sum, count) in counts.iter_mut().zip(&**stripe) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        for (sum, count) in counts[STRIPED..].iter_mut().zip(&self.others) {
            *sum = count.load(Ordering::Relaxed);
        }
        counts
    }

    /// How late entries were removed, as counts of a histogram.
    pub(super) fn lateness(&self) -> Vec<u64> {
        let buckets = self.lateness.iter();
        buckets.map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
