//! Where no thread wakes the cache: calls drop what was removed.
//!
//! A removal leaves an event in a batch; the value is dropped some passes later. Without a
//! scheduler only calls run passes, and most calls leave nothing to do: hits, and removals of
//! absent keys. So a removal marks the cache as *untidy*. While it is marked, look-ups take their
//! full path, and each operation is counted. Each [`OPERATIONS_PER_PASS`]th one runs a small pass
//! and frees some of what was removed. When nothing is left, the mark is taken off. So a few
//! hundred operations of any kind are enough, and look-ups of a tidy cache pay nothing.

use super::limits::RUN_BUDGET;
use super::plan::Plan;
use super::root::{Maintenance, MaintenanceView};
use crate::reclaim;
use crate::shared::Shared;
use crate::sync::Ordering;

/// Operations between two passes. Four passes drop what one call has removed, unless a reader or a
/// listener holds it.
const OPERATIONS_PER_PASS: u32 = 128;

/// A call frees this part of what can be freed, if that is much.
const PART_OF_READY: usize = 4;

/// Marks the cache as untidy, unless its pass has found that nothing is left.
struct Mark<'a, K, V> {
    shared: &'a Shared<K, V>,
    untidy: bool,
}

impl<K, V> Drop for Mark<'_, K, V> {
    fn drop(&mut self) {
        if self.untidy {
            self.shared.set_untidy(true);
        }
    }
}

impl<K, V> Maintenance<K, V> {
    /// Counts an operation if the cache is untidy, and runs a pass if it is the turn of this one.
    /// The calling thread holds no lock and no pin for the operation.
    #[inline(always)]
    pub(crate) fn count_operation(&self, shared: &Shared<K, V>) {
        self.count_write(shared, false);
    }

    /// The same after a write, which makes the cache untidy if it has removed something.
    // Always inlined: without a scheduler each write counts, and the counter is all that it needs.
    #[inline(always)]
    pub(super) fn count_write(&self, shared: &Shared<K, V>, removed: bool) {
        if !shared.is_untidy() {
            if !removed {
                return;
            }
            shared.set_untidy(true);
        }
        // Relaxed, and not exact: threads that count at the same time may count as one.
        let count = self.operations.load(Ordering::Relaxed).wrapping_add(1);
        self.operations.store(count, Ordering::Relaxed);
        if count.is_multiple_of(OPERATIONS_PER_PASS) {
            self.view(shared).tidy();
        }
    }
}

impl<K, V> MaintenanceView<'_, K, V> {
    /// One small pass, and the freeing of what is ready. Not inside a destructor, nor if the thread
    /// is pinned: what it would free waits for it.
    #[cold]
    #[inline(never)]
    fn tidy(self) {
        let (maintenance, shared) = (self.maintenance, self.shared);
        if reclaim::is_freeing() || shared.domain.is_pinned() {
            return;
        }
        let Some(mut state) = maintenance.state.try_lock() else {
            return;
        };
        // Taken off before the batches are looked at: a writer pushes, then marks.
        shared.set_untidy(false);
        let mut mark = Mark {
            shared,
            untidy: true,
        };
        let plan = Plan {
            evict: false,
            ..Plan::AWAIT_RECLAIM
        };
        let passed = maintenance.pass(shared, &mut state, plan).run();
        let retired = &mut state.freeing.retired;
        let most = (retired.ready() / PART_OF_READY).max(2 * RUN_BUDGET);
        let ready = retired.take_ready(most);
        mark.untidy = passed.more || !retired.is_empty() || maintenance.notifier.waiting() > 0;
        drop(state);
        drop(mark);
        self.free(ready);
        if maintenance.tells_callers {
            self.deliver_as_caller();
        } else if maintenance.has_listener() {
            self.offer_delivery();
        }
    }
}
