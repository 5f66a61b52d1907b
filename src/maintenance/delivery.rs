//! When notifications are delivered, and which calls wait for it.
//!
//! | the mode | what a call removes is reported by | what expires or is evicted, by | calls that wait for it |
//! |---|---|---|---|
//! | [`Delivery::Background`] | a shared thread | a shared thread | none |
//! | [`Delivery::Caller`] | that call, before it returns | the call whose pass removes it, else a shared thread | each one that removes |
//! | [`Delivery::Executor`] | the program's task | the program's task | none |
//!
//! `run_pending_tasks` and the drop of the last handle wait in each mode. One thread delivers at a
//! time ([`notify`](crate::notify)).

use super::{Maintenance, MaintenanceView};
use crate::map::Garbage;
use crate::notify::{Awaited, EXTRA_DELIVERIES, Notification};
use crate::scheduler::{
    Delivery, EXECUTOR_PATIENCE, Role, inside_listener, report_idle_executor, role,
};
use crate::time;

/// How many notifications a thread delivers before other caches get their turn.
const CALLS_PER_TURN: u64 = 1024;

impl<K, V> Maintenance<K, V> {
    /// Whether a call that removes an entry returns after the listener has heard of it.
    #[inline]
    pub(super) fn tells_callers(&self) -> bool {
        matches!(self.delivery, Some(Delivery::Caller))
    }

    /// Takes delivered nodes back, to be freed.
    fn take_back(&self, told: &mut Vec<Notification<K, V>>) {
        let mut state = self.state.lock();
        for (node, _) in told.drain(..) {
            state.freeing.retire(Garbage::Node(node));
        }
    }
}

impl<K, V> MaintenanceView<'_, K, V> {
    /// Offers a delivery, if there is something to deliver, none is offered, and no thread
    /// delivers. False if no thread can be started for it.
    pub(super) fn offer_delivery(&self) -> bool {
        self.offer_delivery_to(self.maintenance.delivery.as_ref())
    }

    /// The same to the threads of this mode.
    fn offer_delivery_to(&self, mode: Option<&Delivery>) -> bool {
        let Maintenance {
            notifier, waking, ..
        } = self.maintenance;
        let Some(mode) = mode.filter(|_| notifier.offer()) else {
            return true;
        };
        let offered = mode.offer(&waking.waker.task);
        if !offered {
            notifier.end_offer();
        }
        offered
    }

    /// The work of the thread that takes an offered delivery. True if it has to be offered again.
    pub(crate) fn deliver(&self) -> bool {
        let maintenance = self.maintenance;
        let (notifier, waking) = (&maintenance.notifier, &maintenance.waking);
        let most = notifier.begin_offer() + CALLS_PER_TURN;
        let mut frees = false;
        notifier.deliver(most, &mut |told| {
            // A thread that waits for deliveries frees them itself.
            frees |= !notifier.has_waiters();
            maintenance.take_back(told);
        });
        notifier.end_offer();
        if frees && !waking.waker.task.is_closed() {
            waking.request_soon(&self.shared.clock);
        }
        notifier.offer()
    }

    /// The offered delivery will not take place: it is offered again with the next notification.
    pub(crate) fn drop_offer(&self) {
        self.maintenance.notifier.end_offer();
    }

    /// Delivers on the calling thread what waits now, or waits for the thread that does. Inside a
    /// listener it does not wait: if a thread delivers for this cache, perhaps this one further up
    /// its stack, that thread delivers the rest.
    pub(super) fn deliver_here(&self) {
        let maintenance = self.maintenance;
        let (notifier, inside) = (&maintenance.notifier, inside_listener());
        let posted = notifier.posted();
        // What the listener's own calls have posted is delivered as well, up to a bound: otherwise
        // other threads could keep this thread busy for ever.
        let most = if inside {
            u64::MAX
        } else {
            posted + EXTRA_DELIVERIES
        };
        let tell = || {
            notifier.deliver(most, &mut |told| maintenance.take_back(told));
            true
        };
        tell();
        if !inside && notifier.waiting() > 0 {
            notifier.await_delivered(posted, true, tell, None, || true);
            // Posted by other threads meanwhile: this call does not wait for them.
            self.offer_delivery();
        }
    }

    /// Between the passes of a run. True if other work is due before all was delivered.
    pub(super) fn deliver_from_run(&self) -> bool {
        let maintenance = self.maintenance;
        let waking = &maintenance.waking;
        // An alarm's task runs on a thread of the program.
        let is_program = !waking.waker.is_shared();
        match &maintenance.delivery {
            Some(Delivery::Caller) if is_program => self.deliver_here(),
            Some(Delivery::Background) if is_program && !inside_listener() => {
                let state = maintenance.state.lock();
                let (more, next) = (state.wheel.has_work(), state.wheel.next_visit());
                drop(state);
                if more {
                    // The run has yet to do that: it goes on while the others deliver.
                    _ = self.offer_delivery();
                    return false;
                }
                let is_due = || {
                    let now = self.shared.clock.now();
                    waking.is_due(now) || next.is_some_and(|next| time::is_due(now, next))
                };
                let mode = Some(&Delivery::Background);
                return self.await_delivery(mode, || !is_due()) == Awaited::Stopped;
            }
            _ => _ = self.offer_delivery(),
        }
        false
    }

    /// Waits until others, the threads of this mode, have delivered what waits now.
    fn await_delivery(
        &self,
        mode: Option<&Delivery>,
        keep_waiting: impl FnMut() -> bool,
    ) -> Awaited {
        let notifier = &self.maintenance.notifier;
        let is_executor = matches!(mode, Some(Delivery::Executor(_)));
        let patience = is_executor.then_some(EXECUTOR_PATIENCE);
        let most = notifier.posted() + EXTRA_DELIVERIES;
        let offer = || self.offer_delivery_to(mode);
        let awaited = notifier.await_delivered(most, false, offer, patience, keep_waiting);
        if awaited == Awaited::Refused && !is_executor {
            // No thread can be started.
            self.deliver_here();
            return Awaited::Delivered;
        }
        awaited
    }

    /// `run_pending_tasks`: when it returns, all that was posted before the call is delivered.
    /// False if the executor has not run its task.
    pub(super) fn deliver_pending(&self) -> bool {
        let mode = self.maintenance.delivery.as_ref();
        if self.maintenance.tells_callers() {
            self.deliver_here();
        } else if inside_listener() {
            self.offer_delivery();
        } else {
            let awaited = self.await_delivery(mode, || true);
            if awaited == Awaited::NotBegun {
                report_idle_executor();
            }
            return !matches!(awaited, Awaited::NotBegun | Awaited::Refused);
        }
        true
    }

    /// The end of the cache: applies what was written before, and waits until the listener has
    /// heard of all removals, from the thread that the mode names. A thread that ends another cache
    /// inside a listener tells it itself. False if the listener waits for this thread.
    pub(crate) fn tell_rest(&self) -> bool {
        let maintenance = self.maintenance;
        let await_by = |mode| self.await_delivery(mode, || true) == Awaited::Delivered;
        let mode = maintenance.delivery.as_ref();
        let is_executor = matches!(mode, Some(Delivery::Executor(_)));
        if !self.drain_last() || (is_executor && await_by(mode)) {
            return true;
        }
        if is_executor {
            // A thread of the cache does it in its place.
            maintenance.notifier.end_offer();
        }
        // A thread that calls listeners need not wait for another one.
        let is_here = maintenance.tells_callers() || role() == Role::Listener;
        if is_here || !await_by(Some(&Delivery::Background)) {
            self.deliver_here();
        }
        maintenance.notifier.waiting() == 0
    }
}
