//! The queue of the removed items that wait to be freed, under the maintenance lock.
//!
//! An item is retired after it has left the map, the wheel and the size policy, and after the
//! listener was called for it. The pass *seals* what was retired: it begins a grace period, after
//! which no reader can hold a pointer to it. When the grace period is over, the pass begins a
//! *sweep*: it drains every batch and all read rings once, since an event there may still name the
//! item. Then the item is *ready*, and the next thread that takes it frees it, outside of every
//! lock.

use super::backlog::Backlog;
use crate::map::Garbage;
use crate::reclaim::{Domain, Retired};
use std::time::Duration;

/// A pass of a busy cache begins a grace period after this many retired nodes, or buckets of a
/// retired array.
const MIN_GRACE_SIZE: usize = 128;

/// How long a writer waits for a grace period at most.
pub(super) const MAX_GRACE_WAIT: Duration = Duration::from_millis(32);

/// The shortest such wait. After a grace period that lasted too long, writers wait half as long.
const MIN_GRACE_WAIT: Duration = Duration::from_millis(1);

/// How many times in a row the scheduler thread retries to free memory that a reader still holds.
/// After that it waits until the next write requests a run.
const MAX_RECLAIM_RETRIES: u32 = 8;

/// Removed nodes that wait to be freed, under the maintenance lock.
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
    /// Whether a writer has waited without success for the grace period in progress.
    pub(super) given_up: bool,
    /// How long a writer waits for a grace period.
    pub(super) patience: Duration,
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

    /// A writer has waited for the current grace period, which has not ended in time.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        self.patience = (self.patience / 2).max(MIN_GRACE_WAIT);
    }
}
