//! The queue of the removed items that wait to be freed, under the maintenance lock.
//!
//! An item is retired after it has left the map, the wheel and the size policy, and after the
//! listener was called for it. The pass *seals* what was retired: it begins a grace period, after
//! which no reader can hold a pointer to it. When the grace period is over, the pass begins a
//! *drain*: it empties every batch and all read rings once, since an event there may still name the
//! item. Then the item is *ready*, and the next thread that takes it frees it, outside of every
//! lock.

use super::backlog::Backlog;
use crate::map::Garbage;
use crate::reclaim::{Domain, Retired};
use std::time::Duration;

/// A pass of a busy cache begins a grace period after this many retired nodes, or groups of a
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
    /// How many shards this drain has still to empty.
    pub(super) undrained: usize,
    /// Whether the read rings were drained completely since the drain began.
    pub(super) rings_drained: bool,
    /// Runs in a row that left memory unfreed since the last grace period began.
    retries: u32,
    /// Whether a writer has waited without success for the grace period in progress.
    pub(super) wait_expired: bool,
    /// How long a writer waits for a grace period.
    pub(super) grace_wait: Duration,
}

impl<K, V> Freeing<K, V> {
    pub(super) fn new() -> Self {
        Self {
            retired: Retired::new(),
            uncounted: 0,
            undrained: 0,
            rings_drained: true,
            retries: 0,
            wait_expired: false,
            grace_wait: MAX_GRACE_WAIT,
        }
    }

    /// Takes an item that was unlinked from every shared place.
    #[inline]
    pub(super) fn retire(&mut self, item: Garbage<K, V>) {
        self.uncounted += 1;
        self.retired.retire(item);
    }

    /// Tells the backlog of what was retired.
    pub(super) fn report(&mut self, backlog: &Backlog) {
        backlog.note_retired(std::mem::take(&mut self.uncounted));
    }

    /// Begins a drain if the grace period is over.
    pub(super) fn start_drain(&mut self, domain: &Domain, shards: usize, has_rings: bool) {
        if self.retired.start_drain(domain) {
            self.undrained = shards;
            self.rings_drained = !has_rings;
            if !self.wait_expired {
                self.grace_wait = (self.grace_wait * 2).min(MAX_GRACE_WAIT);
            }
        }
    }

    /// The batch of the next shard in turn was drained.
    pub(super) fn note_drained(&mut self) {
        self.undrained = self.undrained.saturating_sub(1);
    }

    /// Ends the drain if it is complete.
    pub(super) fn end_drain(&mut self) {
        if self.retired.is_draining() && self.undrained == 0 && self.rings_drained {
            self.retired.drained();
        }
    }

    /// Begins a grace period for what was retired, if there is enough of it or the plan says so.
    pub(super) fn seal(&mut self, domain: &Domain, force: bool, backlog: &Backlog) {
        let least = if force { 1 } else { MIN_GRACE_SIZE };
        if self.retired.seal(domain, least) {
            self.retries = 0;
            self.wait_expired = false;
        }
        self.report(backlog);
    }

    /// After a run: how many runs in a row have left memory unfreed; `None` if nothing is left, if
    /// a table is resizing (a run then comes earlier), or if enough runs were made for this reason.
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
        self.wait_expired = true;
        self.grace_wait = (self.grace_wait / 2).max(MIN_GRACE_WAIT);
    }
}
