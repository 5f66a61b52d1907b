//! How much work waits for maintenance, and the limits for it.
//!
//! # How it works
//!
//! Two things grow when writers are faster than passes: *events* that wait in the shards' batches,
//! and *removed values* that are not freed yet, since they wait for a grace period, for a drain, or
//! for the thread that frees them. Both are counted here. In a bounded cache both have a limit that
//! follows the bound:
//!
//! - Passes take events from the batches. A writer that has filled its batch to the soft limit runs
//!   a pass. If another thread holds the maintenance lock, the writer continues, unless the events
//!   of all shards together have reached [`Backlog::max_buffered`]: then it yields its processor
//!   until there is room again. The thread that holds the lock may have been preempted in the
//!   middle of a pass; the yield lets it run.
//! - Grace periods end when each pinned thread has let go of its pin. A writer that has run a pass
//!   and finds more than [`Backlog::max_unfreed`] values unfreed yields in the same way, and frees
//!   what has become free. A pin may be held for long, as that of an `EntryRef` is. So the writer
//!   waits for a limited time. If the grace period has not ended by then, no writer waits for that
//!   grace period again.
//!
//! An unbounded cache limits the batch of each shard, and nothing else.
//!
//! # Invariants
//!
//! 1. `applying` is changed by the holder of the maintenance lock only. While no pass runs, it is
//!    0.
//! 2. `unfreed` counts the items in `Freeing::retired` that were reported to it, and the items that
//!    threads have taken from there and have not freed yet.
//!
//! All counts are relaxed: a writer that reads an old one waits a moment too early or too late.

use crate::stripe::Padded;
use crate::sync::{AtomicUsize, Ordering};

/// See the module docs.
#[derive(Debug)]
pub(super) struct Backlog {
    /// For each shard, how many events its batch held when a writer last found the maintenance
    /// lock taken; 0 once a pass has taken the batch.
    buffered: Box<[Padded<AtomicUsize>]>,
    /// Events that the pass in progress has taken from batches.
    applying: AtomicUsize,
    /// Removed values that are not freed yet.
    unfreed: AtomicUsize,
}

fn saturating(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Backlog {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            buffered: (0..shards).map(|_| Padded::default()).collect(),
            applying: AtomicUsize::new(0),
            unfreed: AtomicUsize::new(0),
        }
    }

    /// How many events may wait in a cache of this bound before its writers wait.
    pub(super) fn max_buffered(max_capacity: u64) -> usize {
        saturating(max_capacity / 64).saturating_add(40)
    }

    /// How many removed values may be unfreed in a cache of this bound before its writers wait.
    pub(super) fn max_unfreed(max_capacity: u64) -> usize {
        saturating(max_capacity / 5).saturating_add(640)
    }

    /// A writer has found this many events in its shard's batch, and the maintenance lock taken.
    pub(super) fn note_buffered(&self, shard: usize, events: usize) {
        self.buffered[shard].store(events, Ordering::Relaxed);
    }

    /// How many events wait in the shard's batch, as far as is known.
    pub(super) fn buffered_in(&self, shard: usize) -> usize {
        self.buffered[shard].load(Ordering::Relaxed)
    }

    /// How many events wait in batches, or in the pass in progress, as far as is known.
    pub(super) fn buffered(&self) -> usize {
        let applying = self.applying.load(Ordering::Relaxed);
        let shards = 0..self.buffered.len();
        shards.map(|shard| self.buffered_in(shard)).sum::<usize>() + applying
    }

    /// The pass has taken the shard's batch; it has taken `applying` events in all.
    pub(super) fn note_taken(&self, shard: usize, applying: usize) {
        self.applying.store(applying, Ordering::Relaxed);
        if self.buffered_in(shard) > 0 {
            self.note_buffered(shard, 0);
        }
    }

    /// The pass has done what follows from the events it took.
    pub(super) fn note_applied(&self) {
        self.applying.store(0, Ordering::Relaxed);
    }

    pub(super) fn unfreed(&self) -> usize {
        self.unfreed.load(Ordering::Relaxed)
    }

    pub(super) fn note_retired(&self, items: usize) {
        if items > 0 {
            self.unfreed.fetch_add(items, Ordering::Relaxed);
        }
    }

    pub(super) fn note_freed(&self, items: usize) {
        let before = self.unfreed.fetch_sub(items, Ordering::Relaxed);
        debug_assert!(before >= items, "freed what was not counted as retired");
    }
}
