//! How a call waits: a task by its waker, a thread by that of [`block`](crate::sync::block), for
//! which the poll notes the load for which it waits.
//!
//! # Overdue loads
//!
//! Whenever a call that waits wakes up, it checks whether the load is overdue. If it is, the call
//! begins anew, and its load replaces the overdue one. No other call ends an overdue load; its
//! waiters only have to wake in time. A thread wakes by itself. A task is woken by a run of the
//! scheduler, for which the call asks ([`Engine::watch_load`]).
//!
//! When the cache is gone, a refresh waits for one more `load_timeout`, by the thread's clock; a
//! task is not woken.

use super::Loadable;
use super::claim::Claimant;
use super::guard::ToCache;
use crate::contain::contain;
use crate::engine::Engine;
use crate::flight::{Load, Timeouts, Verdict, Want};
use crate::sync::block::{AwaitedLoad, wait_for};
use crate::time;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a thread waits at least, and at most, before it looks again whether a load is overdue:
/// the cache's ticker need not run as the thread's clock does.
const PATIENCE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// After how long a thread that waits for a turn looks again whether it waits for itself. If a
/// write revokes the load, its turn comes behind a newer one.
const TURN_PATIENCE: Duration = Duration::from_secs(1);

impl<K: Loadable + Eq, V: Loadable, C: ToCache<K, V>> Claimant<K, V, C> {
    /// The verdict about a call that waits, by polls. One that does not wait looks the key up.
    ///
    /// # Panics
    ///
    /// If the load's own leader polls the call.
    pub(crate) fn poll_verdict(&mut self, cx: &Context<'_>) -> Poll<Verdict<K, V>> {
        let Some(wait) = &mut self.waits else {
            return Poll::Ready(Verdict::Retry);
        };
        if let Some(told) = wait.load.poll(wait.ticket, cx) {
            return Poll::Ready(told);
        }
        let engine = self.cache.reach();
        let left;
        let mut name = None;
        if let Some(engine) = engine.as_deref() {
            left = engine.time_to_overdue(&wait.load, engine.load_clock());
            name = engine.name.as_ref();
        } else {
            left = wait.left_without_cache();
        }
        let load = &wait.load;
        if left == Some(Duration::ZERO) {
            return Poll::Ready(Verdict::Overdue);
        }
        if let (Some(engine), Some(_)) = (engine.as_deref(), left) {
            if !load.is_listed() {
                // The clock has stepped back.
                engine.watch_load(load);
            }
        }
        wait_for(cx, load.leader_thread(), || {
            let [least, most] = PATIENCE;
            let mut patience = left.map(|left| left.clamp(least, most));
            if self.want == Want::OwnTurn {
                patience = patience.or(Some(TURN_PATIENCE));
            }
            AwaitedLoad {
                load: Arc::<Load<K, V>>::clone(load),
                hash: load.hash,
                ticket: wait.ticket,
                patience,
                name: name.cloned(),
            }
        });
        Poll::Pending
    }
}

impl<K, V> Engine<K, V> {
    /// Cache time, where loads need it: for a time-out, reloads, or statistics.
    pub(super) fn load_clock(&self) -> u64 {
        if self.timeouts.is_some() || self.refresh.is_some() || self.counters.is_some() {
            self.clock.now()
        } else {
            0
        }
    }

    /// The cache's `load_timeout`.
    pub(super) fn load_timeout(&self) -> Option<Duration> {
        Some(self.timeouts.as_ref()?.most)
    }

    /// How long it is until a load is overdue: zero if it is, `None` if it never will be.
    pub(super) fn time_to_overdue(&self, load: &Load<K, V>, now: u64) -> Option<Duration> {
        let most = self.load_timeout()?;
        time::time_left(now, time::deadline_after(load.began(), most))
    }

    /// Lists a load for which calls wait by the moment at which it becomes overdue, and asks for a
    /// run then. If it is overdue, wakes the calls now. Called when a call has joined it, when its
    /// time has begun anew, and when its run has ended. A panic of the ticker or of the scheduler's
    /// alarm is caught.
    #[inline]
    pub(super) fn watch_load(&self, load: &Arc<Load<K, V>>) {
        if let Some(timeouts) = &self.timeouts {
            self.list_load(timeouts, load);
        }
    }

    #[cold]
    #[inline(never)]
    fn list_load(&self, timeouts: &Timeouts<K, V>, load: &Arc<Load<K, V>>) {
        if !load.has_waiters() {
            return timeouts.remove(load);
        }
        let is_listed = contain(|| {
            let now = self.clock.now();
            match self.time_to_overdue(load, now) {
                None | Some(Duration::ZERO) => false,
                Some(left) => {
                    let due = time::deadline_after(now, left);
                    timeouts.list(load, due);
                    self.waking.request_by(now, due);
                    true
                }
            }
        });
        if is_listed != Some(true) {
            load.wake_waiters();
        }
    }

    /// Wakes the waiters of overdue loads; says when the next load becomes overdue. For a run that
    /// has cleared the requests: a load that is listed after this has looked requests a run.
    pub(crate) fn run_overdue(&self) -> Option<u64> {
        let timeouts = self.timeouts.as_ref()?;
        let (overdue, next) = timeouts.take_overdue(self.clock.now());
        for load in overdue {
            load.wake_waiters();
        }
        next
    }
}
