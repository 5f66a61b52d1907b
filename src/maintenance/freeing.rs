//! The removed items that wait to be freed: their queue, which is under the maintenance lock, and
//! the freeing itself.
//!
//! An item is retired after it has left the map, the wheel and the size policy, and after the
//! listener was called for it. The pass *seals* what was retired: it begins a grace period, after
//! which no reader can hold a pointer to it. When the grace period is over, the pass begins a
//! *sweep*: it drains every batch and all read rings once, since an event there may still name the
//! item. Then the item is *ready*, and the next thread that takes it frees it, outside of every
//! lock.
//!
//! Which thread frees:
//!
//! - a run, after each of its passes;
//! - a writer, after each pass that it runs, about as many items as that pass has applied events;
//! - a writer that has waited until there was less to free ([`Runs::await_reclaim`]).

use super::RUN_BUDGET;
use super::backlog::Backlog;
use super::plan::Plan;
use super::runs::{Runs, SHORTEST_NAP};
use crate::listener::inside_listener;
use crate::map::Garbage;
use crate::reclaim::{self, Domain, Ready, Retired};
use crate::sync::{nap, yield_now};
use std::time::{Duration, Instant};

/// A pass of a busy cache begins a grace period after this many retired nodes, or buckets of a
/// retired array.
const MIN_GRACE_SIZE: usize = 128;

/// How long a writer waits for a grace period at most.
const MAX_GRACE_WAIT: Duration = Duration::from_millis(32);

/// The shortest such wait. After a grace period that lasted too long, writers wait half as long.
const MIN_GRACE_WAIT: Duration = Duration::from_millis(1);

/// How often a writer that waits for a grace period yields its processor before it takes naps.
const YIELDS_BEFORE_NAPS: usize = 64;

/// How often in a row the scheduler thread comes back for memory that cannot be freed yet, since a
/// reader holds a pin or is in the middle of an offer. Then the next write has to bring it back.
const MAX_RECLAIM_RETRIES: u32 = 8;

/// What was removed, under the maintenance lock.
pub(super) struct Freeing<K, V> {
    pub(super) retired: Retired<Garbage<K, V>>,
    /// Items retired since the backlog was told.
    uncounted: usize,
    /// Shards to be drained until the sweep is complete.
    pub(super) unswept: usize,
    /// Whether the read rings were drained completely since the sweep began.
    pub(super) rings_swept: bool,
    /// Runs in a row that left memory unfreed since the last grace period began.
    retries: u32,
    /// Whether a writer has waited in vain for the grace period in progress.
    given_up: bool,
    /// How long a writer waits for a grace period.
    patience: Duration,
}

impl<K, V> Freeing<K, V> {
    pub(super) fn new() -> Self {
        Self {
            retired: Retired::new(),
            uncounted: 0,
            unswept: 0,
            rings_swept: true,
            retries: 0,
            given_up: false,
            patience: MAX_GRACE_WAIT,
        }
    }

    /// Takes an item that was unlinked from every shared place.
    #[inline]
    pub(super) fn retire(&mut self, item: Garbage<K, V>) {
        self.uncounted += 1;
        self.retired.retire(item);
    }

    /// Tells the backlog of what was retired.
    pub(super) fn count(&mut self, backlog: &Backlog) {
        backlog.note_retired(std::mem::take(&mut self.uncounted));
    }

    /// Begins a sweep if the grace period is over.
    pub(super) fn start_sweep(&mut self, domain: &Domain, shards: usize, has_rings: bool) {
        if self.retired.start_sweep(domain) {
            self.unswept = shards;
            self.rings_swept = !has_rings;
            if !self.given_up {
                self.patience = (self.patience * 2).min(MAX_GRACE_WAIT);
            }
        }
    }

    /// The batch of the next shard in turn was drained.
    pub(super) fn note_drained(&mut self) {
        self.unswept = self.unswept.saturating_sub(1);
    }

    /// Ends the sweep if it is complete.
    pub(super) fn end_sweep(&mut self) {
        if self.retired.is_sweeping() && self.unswept == 0 && self.rings_swept {
            self.retired.swept();
        }
    }

    /// Begins a grace period for what was retired, if there is enough of it or the plan says so.
    pub(super) fn seal(&mut self, domain: &Domain, however_little: bool, backlog: &Backlog) {
        let least = if however_little { 1 } else { MIN_GRACE_SIZE };
        if self.retired.seal(domain, least) {
            self.retries = 0;
            self.given_up = false;
        }
        self.count(backlog);
    }

    /// After a run: how many runs in a row have left memory unfreed; `None` if nothing is left, the
    /// cache has an earlier reason for a run, or enough runs came for this one.
    pub(super) fn retry(&mut self, is_resizing: bool) -> Option<u32> {
        let left = !self.retired.is_empty() && !is_resizing;
        self.retries = if left {
            self.retries.saturating_add(1)
        } else {
            0
        };
        (left && self.retries <= MAX_RECLAIM_RETRIES).then_some(self.retries)
    }

    /// The writers' wait for the grace period in progress was in vain.
    fn give_up(&mut self) {
        self.given_up = true;
        self.patience = (self.patience / 2).max(MIN_GRACE_WAIT);
    }
}

impl<K, V> Runs<'_, K, V> {
    /// Runs the destructors of what is ready, and gives its memory back. With no lock held.
    pub(super) fn free(self, mut ready: Ready<Garbage<K, V>>) {
        if ready.is_empty() {
            return;
        }
        let items = ready.len();
        let shared = self.shared;
        shared.map.take_back(ready.free(|| shared.map.returning()));
        self.maintenance.backlog.note_freed(items);
        // The emptied containers are not worth a wait.
        if let Some(mut state) = self.maintenance.state.try_lock() {
            state.freeing.retired.reuse(ready);
        }
    }

    /// A writer that finds more removed values unfreed than may be waits until there are fewer, and
    /// frees its part of them.
    ///
    /// Not inside a destructor or a listener, and not if the thread is pinned: it would wait for
    /// itself. Not for a grace period for which a writer has waited in vain.
    #[inline]
    pub(super) fn await_reclaim(self) {
        let bound = self.shared.max_capacity();
        let most = bound.map_or(usize::MAX, Backlog::max_unfreed);
        if self.maintenance.backlog.unfreed() > most
            && !reclaim::is_freeing()
            && !inside_listener()
            && !self.shared.domain.is_pinned()
        {
            self.await_unfreed(most);
        }
    }

    #[cold]
    fn await_unfreed(self, most: usize) {
        let maintenance = self.maintenance;
        let began = Instant::now();
        let mut yields = 0;
        while maintenance.backlog.unfreed() > most {
            if yields < YIELDS_BEFORE_NAPS {
                yields += 1;
                // To a thread that was preempted while it held a pin, among others.
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
            if state.freeing.given_up {
                return;
            }
            maintenance.pass(self.shared, &mut state, Plan::AWAIT_RECLAIM);
            let ready = state.freeing.retired.take_ready(RUN_BUDGET);
            if ready.is_empty() && began.elapsed() > state.freeing.patience {
                state.freeing.give_up();
                return;
            }
            drop(state);
            self.free(ready);
        }
    }
}
