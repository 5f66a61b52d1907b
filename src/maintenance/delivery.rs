//! Which thread calls the listener, and for how long.
//!
//! | thread | delivers |
//! |--------|----------|
//! | the cache's notifier thread | all that waits, when a run of the scheduler thread has posted notifications |
//! | a thread that runs a [`MaintenanceTask`](crate::MaintenanceTask), between its passes | all that waits; where other work is due, a part of it |
//! | a caller of `run_pending_tasks` | all that was posted before |
//! | a writer, where no thread wakes the cache | some, when more than [`UNDELIVERED`] notifications wait |
//! | the thread that drops the last handle | the rest |
//!
//! One thread delivers at a time ([`notify`]). The other threads leave the work to it, or wait.

use super::root::{Maintenance, MaintenanceView};
use crate::listener::inside_listener;
use crate::map::Garbage;
use crate::node::NodePtr;
use crate::notify;
use crate::shared::Shared;
use crate::time::{self, NEVER};
use std::cell::OnceCell;

/// How long a run keeps delivering when other work is due, in nanoseconds: enough for a few hundred
/// calls of a fast listener.
pub(super) const DELIVERY_SLICE: u64 = 100_000;

/// A delivery reads the clock once for each chunk of notifications that waited at its start, and at
/// most this many times more.
pub(super) const EXTRA_CLOCK_READS: u64 = 64;

/// Undelivered notifications that make a writer deliver some, where no thread wakes the cache.
const UNDELIVERED: u64 = 1024;

impl<K, V> Maintenance<K, V> {
    /// The name of a thread that calls the listener; `None` without a listener.
    pub(crate) fn notifier_name(&self, shared: &Shared<K, V>) -> Option<String> {
        let name = shared.name.as_deref().unwrap_or("listener");
        (self.notifier.has_listener()).then(|| format!("wheelhouse-{name}"))
    }

    /// Takes delivered nodes back, to be freed.
    fn take_back(&self, nodes: &mut Vec<NodePtr<K, V>>) {
        let mut state = self.state.lock();
        for node in nodes.drain(..) {
            state.freeing.retire(Garbage::Node(node));
        }
        state.freeing.report(&self.backlog);
    }
}

impl<K, V> MaintenanceView<'_, K, V> {
    /// Delivers until nothing is left or `keep_going` returns false; true if that ended it.
    pub(super) fn deliver_while(self, keep_going: impl FnMut() -> bool) -> bool {
        let maintenance = self.maintenance;
        (maintenance.notifier).deliver(keep_going, &mut |nodes| maintenance.take_back(nodes))
    }

    /// The work of the notifier thread: delivers what waits.
    pub(crate) fn deliver(self) {
        let waking = &self.maintenance.waking;
        // If the last handle is being dropped, that drop delivers the rest.
        self.deliver_while(|| !waking.is_closing());
        if !waking.is_closing() {
            // What was delivered can be freed.
            waking.request_soon(&self.shared.clock);
        }
    }

    /// A writer's part where no thread wakes the cache: delivers some notifications if very many
    /// wait.
    pub(super) fn deliver_some(self) {
        if self.maintenance.notifier.waiting() > UNDELIVERED && !inside_listener() {
            self.deliver_while(|| false);
        }
    }

    /// Delivers between the passes of a run: on this thread, or on the notifier thread where this
    /// one serves other caches. True if it stopped because other work is due.
    pub(super) fn deliver_from_run(self) -> bool {
        let maintenance = self.maintenance;
        let notifier = &maintenance.notifier;
        if !notifier.has_listener() || notifier.waiting() == 0 {
            return false;
        }
        if self.wake_notifier_thread() {
            return false;
        }
        // A slow listener must not delay other entries: neither those in the wheel, nor those for
        // which a run was requested since. A fast listener is called after each pass, while the
        // nodes are still in the processor's cache.
        let next = maintenance.state.lock().wheel.next_visit();
        let next = next.unwrap_or(NEVER);
        let began = OnceCell::new();
        // What other threads post meanwhile is delivered as well, up to a bound.
        let mut clock_reads =
            notifier.waiting() / notify::CALLS_PER_CLOCK_READ as u64 + EXTRA_CLOCK_READS;
        let keep_going = || {
            clock_reads -= 1;
            if clock_reads == 0 || maintenance.waking.is_closing() {
                return false;
            }
            if next == NEVER && !maintenance.waking.is_armed() {
                return true;
            }
            let now = self.shared.clock.now();
            let since = now.wrapping_sub(*began.get_or_init(|| now));
            since < DELIVERY_SLICE || !time::is_due(now, next) && !maintenance.waking.is_due(now)
        };
        self.deliver_while(keep_going)
    }

    /// Wakes the notifier thread. False if this cache has none, or if it cannot be started.
    pub(super) fn wake_notifier_thread(self) -> bool {
        let maintenance = self.maintenance;
        let waker = maintenance.waking.waker();
        let (true, Some(task)) = (waker.is_shared(), waker.task()) else {
            return false;
        };
        let name = || maintenance.notifier_name(self.shared).unwrap_or_default();
        maintenance.notifier_thread.wake(task, name)
    }

    /// `run_pending_tasks`: delivers all that was posted before the call.
    pub(super) fn deliver_pending(self) {
        let maintenance = self.maintenance;
        let notifier = &maintenance.notifier;
        if inside_listener() {
            // Never waits. If a thread already delivers for this cache, perhaps this very thread
            // further up its stack, that thread delivers the rest.
            self.deliver_while(|| true);
            return;
        }
        notifier.deliver_all(&mut |nodes| maintenance.take_back(nodes));
        if notifier.waiting() > 0 {
            // Posted by other threads meanwhile: this call does not wait for them.
            maintenance.waking.request_soon(&self.shared.clock);
        }
    }
}
