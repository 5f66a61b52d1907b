//! The view of a cache for the calls that load, and loads that last for too long.
//!
//! [`LoadView`] is a borrowed view of the cache. Its methods stand here and in `load/`.
//!
//! # Overdue loads
//!
//! Whenever a call that waits wakes up, it checks whether the load is overdue. If it is, the call
//! begins anew, and its load replaces the overdue one. No other call ends an overdue load; its
//! waiters only have to wake in time. A thread wakes by itself. Tasks, and threads whose cache has
//! a ticker of its own, do not. For these the cache asks the scheduler for a run at that moment,
//! and the run wakes them.

use super::core::Core;
use crate::contain::contain;
use crate::load::state::Load;
use crate::time;
use std::time::Duration;

/// A cache, as the calls that load see it.
pub(crate) struct LoadView<'a, K, V, S> {
    pub(crate) core: &'a Core<K, V, S>,
}

impl<K, V, S> Clone for LoadView<'_, K, V, S> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, S> Copy for LoadView<'_, K, V, S> {}

impl<K, V, S> LoadView<'_, K, V, S> {
    /// Cache time, where loads need it: for a time-out, or for statistics.
    pub(crate) fn clock(self) -> u64 {
        let timed = self.core.lifetimes.limits.load_timeout.is_some();
        if timed || self.core.shared.counters.is_some() {
            self.core.shared.clock.now()
        } else {
            0
        }
    }

    /// When a load becomes overdue, in cache time.
    fn overdue_at(self, load: &Load<K, V>) -> Option<u64> {
        let most = self.core.lifetimes.limits.load_timeout?;
        let began = load.began();
        Some(time::deadline_after(began, most))
    }

    /// How long it is until a load is overdue: zero if it is, `None` if it never will be.
    pub(crate) fn time_left(self, load: &Load<K, V>, now: u64) -> Option<Duration> {
        time::time_left(now, self.overdue_at(load)?)
    }

    /// Whether a load has lasted for longer than the time-out.
    pub(crate) fn is_overdue(self, load: &Load<K, V>, now: u64) -> bool {
        self.time_left(load, now) == Some(Duration::ZERO)
    }

    /// Makes the waiters of a load wake when it becomes overdue.
    fn watch(self, load: &Load<K, V>, now: u64) {
        if let Some(deadline) = self.overdue_at(load) {
            self.core.maintenance.request_run_by(deadline, now);
        }
    }

    /// The same, but a panic of the scheduler's alarm is caught.
    pub(crate) fn watch_quietly(self, load: &Load<K, V>, now: u64) {
        contain(|| self.watch(load, now));
    }

    /// Wakes the waiters of overdue loads; says how long it is until the next load becomes overdue.
    /// Called by the scheduler.
    pub(crate) fn run_overdue(self) -> Option<Duration> {
        self.core.lifetimes.limits.load_timeout?;
        let now = self.core.shared.clock.now();
        let mut next: Option<Duration> = None;
        for shard in 0..self.core.shared.map.shards() {
            for load in self.core.shared.map.loads_of(shard) {
                if self.is_overdue(&load, now) {
                    load.wake_waiters();
                } else if load.has_waiters() {
                    self.watch(&load, now);
                    next = next.into_iter().chain(self.time_left(&load, now)).min();
                }
            }
        }
        next
    }
}
