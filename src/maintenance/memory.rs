//! The memory of what was removed, from its removal until it is freed.
//!
//! # How it works
//!
//! An item is retired after it has left the map, the wheel and the size policy, and after the
//! listener was called for it. The pass *seals* what was retired: it begins a grace period, after
//! which no reader can hold a pointer to it. When the grace period is over, the pass begins a
//! *drain*: it empties every batch and all read rings once, since an event there may still name the
//! item. Then the item is *ready*, and the next thread that takes it frees it, outside of every
//! lock:
//!
//! - a run, after each of its passes;
//! - a writer, after each pass that it runs, about as many items as that pass has applied events;
//! - a writer that waits until fewer values are unfreed ([`MaintenanceView::await_reclaim`]).
//!
//! # When writers wait
//!
//! Two things grow when writers are faster than passes: *events* that wait in the shards' batches,
//! and *removed values* that are not freed yet, since they wait for a grace period, for a drain, or
//! for the thread that frees them. The [`Backlog`] counts both. In a bounded cache both have a
//! limit that follows the bound:
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
//! 2. `retired` counts the items that `Freeing` has reported, and `freed` those that threads have
//!    taken from there and freed. An item is reported before it is taken.
//!
//! The counts are relaxed, but where `run_pending_tasks` waits for destructors: a writer that reads
//! an old one waits a moment too early or too late.

use super::MaintenanceView;
use super::freeing::{MAX_GRACE_WAIT, Ready, is_freeing};
use super::pass::{Plan, RUN_BUDGET};
use super::runs::SHORTEST_NAP;
use crate::scheduler::inside_listener;
use crate::stripe::Padded;
use crate::sync::{AtomicUsize, Ordering, nap, yield_now};
use std::time::Instant;

/// See the module docs.
#[derive(Debug)]
pub(super) struct Backlog {
    /// For each shard, how many events its batch held when a writer last found the maintenance
    /// lock taken; 0 once a pass has taken the batch.
    buffered: Box<[Padded<AtomicUsize>]>,
    /// Events that the pass in progress has taken from batches.
    applying: AtomicUsize,
    retired: AtomicUsize,
    freed: AtomicUsize,
}

fn saturating(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Backlog {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            buffered: (0..shards).map(|_| Padded::default()).collect(),
            applying: AtomicUsize::new(0),
            retired: AtomicUsize::new(0),
            freed: AtomicUsize::new(0),
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

    /// Removed values that are not freed yet.
    pub(super) fn unfreed(&self) -> usize {
        // In this order, and read anew each time: the difference is not below zero.
        let freed = self.freed.load(Ordering::Acquire);
        self.retired.load(Ordering::Relaxed).saturating_sub(freed)
    }

    /// Whether this many items are freed. A caller that gets `true` sees what the destructors of as
    /// many items have done.
    ///
    /// Acquire, partner: the release in `note_freed`.
    pub(super) fn has_freed(&self, items: usize) -> bool {
        self.freed.load(Ordering::Acquire) >= items
    }

    pub(super) fn note_retired(&self, items: usize) {
        if items > 0 {
            self.retired.fetch_add(items, Ordering::Relaxed);
        }
    }

    pub(super) fn note_freed(&self, items: usize) {
        self.freed.fetch_add(items, Ordering::Release);
    }
}

/// How often a writer that waits for a grace period yields its processor before it takes naps.
const YIELDS_BEFORE_NAPS: usize = 64;

impl<K, V> MaintenanceView<'_, K, V> {
    /// Runs the destructors of what is ready, and gives its memory back. With no lock held.
    pub(super) fn free(&self, mut ready: Ready<K, V>) {
        if ready.is_empty() {
            return;
        }
        let items = ready.len();
        ready.free(&self.shared.map);
        self.maintenance.backlog.note_freed(items);
        // The emptied containers are not worth a wait.
        if let Some(mut state) = self.maintenance.state.try_lock() {
            state.freeing.reuse(ready);
        }
    }

    /// If more removed values are unfreed than the limit allows, a writer waits until there are
    /// fewer, and frees some of them itself.
    ///
    /// Does nothing inside a destructor or a listener, or if the thread is pinned: it would wait
    /// for itself. Not for a grace period for which a writer has waited in vain.
    pub(super) fn await_reclaim(&self) {
        let bound = self.shared.max_capacity();
        let most = bound.map_or(usize::MAX, Backlog::max_unfreed);
        let maintenance = self.maintenance;
        if maintenance.backlog.unfreed() <= most
            || is_freeing()
            || inside_listener()
            || self.shared.domain.is_pinned()
        {
            return;
        }
        let began = Instant::now();
        let mut yields = 0;
        while maintenance.backlog.unfreed() > most {
            if yields < YIELDS_BEFORE_NAPS {
                yields += 1;
                // Lets other threads run, among them one that was preempted while it held a pin.
                yield_now();
            } else {
                nap(SHORTEST_NAP);
            }
            let Some(mut state) = maintenance.state.try_lock() else {
                if began.elapsed() > MAX_GRACE_WAIT {
                    return;
                }
                continue;
            };
            if state.freeing.wait_expired {
                return;
            }
            maintenance
                .pass(self.shared, &mut state, Plan::AWAIT_RECLAIM)
                .run();
            let ready = state.freeing.take_ready(RUN_BUDGET);
            if ready.is_empty() && began.elapsed() > state.freeing.grace_wait {
                state.freeing.give_up();
                return;
            }
            drop(state);
            self.free(ready);
        }
    }
}
