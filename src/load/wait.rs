//! How a call waits: a task by its waker, a thread by polling the same future with a waker of its
//! own ([`block`](crate::sync::block)), for which the poll notes the load for which it waits.
//!
//! # Overdue loads
//!
//! Whenever a call that waits wakes up, it checks whether the load is overdue. If it is, the call
//! begins anew, and its load replaces the overdue one. No other call ends an overdue load; its
//! waiters only have to wake in time. A thread wakes by itself. Tasks, and threads whose cache has
//! a ticker of its own, do not. So a call that begins to wait asks the scheduler for a run at that
//! moment, and so does a run of a load that begins while calls wait ([`Engine::watch_load`]). That
//! run wakes the waiters of overdue loads, and asks for the next moment of the others.

use super::claim::Claimant;
use super::guard::Home;
use super::state::{Load, Verdict};
use super::{CacheKey, CacheValue};
use crate::contain::{about, contain};
use crate::engine::Engine;
use crate::sync::IS_MODEL;
use crate::sync::block::{Awaited, Work, doing, note};
use crate::sync::cycle::fault;
use crate::sync::place;
use crate::time;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a thread waits at least, and at most, before it looks again whether a load is overdue:
/// the cache's ticker need not run as the thread's clock does.
const PATIENCE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

impl<K: CacheKey, V: CacheValue, H: Home<K, V>> Claimant<K, V, H> {
    /// The verdict about a call that waits, by polls. `None` if it does not wait, or the load is
    /// overdue.
    ///
    /// # Panics
    ///
    /// If the load's own leader polls the call.
    pub(crate) fn poll_verdict(&mut self, cx: &Context<'_>) -> Poll<Option<Verdict<V>>> {
        let Some((load, ticket)) = &self.waits else {
            return Poll::Ready(None);
        };
        if let Some(told) = load.poll(*ticket, cx.waker()) {
            return Poll::Ready(Some(told));
        }
        let engine = self.home.visit();
        let engine = engine.as_deref();
        let left = engine.and_then(|engine| engine.time_to_overdue(load, engine.load_clock()));
        if left == Some(Duration::ZERO) {
            return Poll::Ready(None);
        }
        let name = engine.and_then(|engine| engine.name.as_ref());
        place::give_up();
        if !IS_MODEL && doing() == Work::Waits(cx.waker().data()) {
            let [least, most] = PATIENCE;
            let awaited = Box::new(Awaited {
                load: Arc::<Load<K, V>>::clone(load),
                hash: load.hash,
                ticket: *ticket,
                patience: left.map(|left| left.clamp(least, most)),
                name: name.cloned(),
            });
            drop(note(Some(awaited)));
        } else if load.is_led_by_caller() {
            panic!("{}", about(name.map(|name| &**name), &fault(0, load.hash)));
        }
        Poll::Pending
    }
}

impl<K, V> Engine<K, V> {
    /// Cache time, where loads need it: for a time-out, reloads, or statistics.
    pub(super) fn load_clock(&self) -> u64 {
        let timed = self.lifetimes.limits.load_timeout.is_some();
        if timed || self.refresh.is_some() || self.counters.is_some() {
            self.clock.now()
        } else {
            0
        }
    }

    /// How long it is until a load is overdue: zero if it is, `None` if it never will be.
    pub(super) fn time_to_overdue(&self, load: &Load<K, V>, now: u64) -> Option<Duration> {
        let most = self.lifetimes.limits.load_timeout?;
        time::time_left(now, time::deadline_after(load.began(), most))
    }

    /// Makes the waiters of a load, if it has any, wake when it becomes overdue: asks for a run at
    /// that moment and says how long it is until then, or wakes them now. Called when a call has
    /// joined it, or its time has begun anew. A run of the scheduler takes the moment armed before
    /// it looks at the waiters, under the lock of the load's state. So it sees them, or this sees
    /// that no run is arranged. A panic of the ticker or of the scheduler's alarm is caught.
    pub(super) fn watch_load(&self, load: &Load<K, V>) -> Option<Duration> {
        (self.lifetimes.limits.load_timeout).filter(|_| load.has_waiters())?;
        let left = contain(|| {
            let now = self.clock.now();
            let left = (self.time_to_overdue(load, now)).filter(|left| !left.is_zero())?;
            let deadline = time::deadline_after(now, left);
            self.waking.request_by(deadline, now);
            Some(left)
        })?;
        if left.is_none() {
            load.wake_waiters();
        }
        left
    }

    /// Wakes the waiters of overdue loads; says how long it is until the next load becomes overdue,
    /// and asks for a run at that moment. Called after each run, which has cleared what was armed.
    pub(crate) fn run_overdue(&self) -> Option<Duration> {
        self.lifetimes.limits.load_timeout?;
        let shards = 0..self.map.shards();
        let loads = shards.flat_map(|shard| self.map.loads_of(shard));
        loads.filter_map(|load| self.watch_load(&load)).min()
    }
}
