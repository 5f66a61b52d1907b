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
use crate::notify::{Awaited, Notification};
use crate::scheduler::{
    Delivery, EXECUTOR_PATIENCE, Role, inside_listener, report_idle_executor, role,
};
use crate::time;

/// How many chunks of notifications a thread delivers before other caches get their turn.
const CHUNKS_PER_TURN: usize = 32;

impl<K, V> Maintenance<K, V> {
    /// Takes delivered nodes back, to be freed.
    fn take_back(&self, told: &[Notification<K, V>]) {
        // The listener may have forked.
        self.process.check();
        let mut state = self.state.lock();
        for Notification { node, .. } in told {
            state.freeing.retire(Garbage::Node(*node));
        }
        state.freeing.report(&self.backlog);
    }
}

impl<'a, K, V> MaintenanceView<'a, K, V> {
    /// Which thread calls the listener.
    fn mode(&self) -> &'a Delivery {
        &self.maintenance.delivery
    }

    /// Delivers what waits now, or waits for the thread that does. Not inside a listener.
    fn deliver_all(&self) {
        let maintenance = self.maintenance;
        (maintenance.notifier).deliver_all(&mut |told| maintenance.take_back(told));
        // Posted by other threads meanwhile: this call does not wait for them.
        self.offer_delivery();
    }

    /// Offers a delivery, if there is something to deliver and none is offered. False if no thread
    /// can be started for it.
    pub(super) fn offer_delivery(&self) -> bool {
        self.offer_delivery_to(self.mode())
    }

    /// The same to the threads of this mode.
    fn offer_delivery_to(&self, mode: &Delivery) -> bool {
        let maintenance = self.maintenance;
        if !maintenance.notifier.offer() {
            return true;
        }
        let offered = mode.offer(&maintenance.waking.waker.task);
        if !offered {
            maintenance.notifier.end_offer();
        }
        offered
    }

    /// The work of the thread that takes an offered delivery. True if it has to be offered again.
    pub(crate) fn deliver(&self) -> bool {
        let maintenance = self.maintenance;
        let (notifier, waking) = (&maintenance.notifier, &maintenance.waking);
        notifier.begin_offer();
        let (mut left, mut frees) = (CHUNKS_PER_TURN, false);
        notifier.deliver(
            || {
                left -= 1;
                left > 0
            },
            &mut |told| {
                // A thread that waits for deliveries frees them itself.
                frees |= !notifier.has_waiters();
                maintenance.take_back(told);
            },
        );
        notifier.end_offer();
        if frees && !waking.waker.task.is_closed() {
            waking.request_soon(&self.shared.clock);
        }
        notifier.offer_next()
    }

    /// The offered delivery will not take place: it is offered again with the next notification.
    pub(crate) fn drop_offer(&self) {
        self.maintenance.notifier.end_offer();
    }

    /// Delivers on the calling thread, which belongs to the program. Inside a listener it does not
    /// wait: if a thread delivers for this cache, perhaps this one further up its stack, that
    /// thread delivers the rest.
    pub(super) fn deliver_as_caller(&self) {
        let maintenance = self.maintenance;
        if inside_listener() {
            (maintenance.notifier).deliver(|| true, &mut |told| maintenance.take_back(told));
        } else {
            self.deliver_all();
        }
    }

    /// Between the passes of a run. True if other work is due before all was delivered.
    pub(super) fn deliver_from_run(&self) -> bool {
        let maintenance = self.maintenance;
        if maintenance.notifier.waiting() == 0 {
            return false;
        }
        // An alarm's task runs on a thread of the program.
        let is_program = !maintenance.waking.waker.is_shared();
        match self.mode() {
            Delivery::Caller if is_program => self.deliver_as_caller(),
            Delivery::Background if is_program && !inside_listener() => {
                let next = maintenance.state.lock().wheel.next_visit();
                let is_due = || {
                    let now = self.shared.clock.now();
                    maintenance.waking.is_due(now)
                        || next.is_some_and(|next| time::is_due(now, next))
                };
                let keep_waiting = || !maintenance.waking.waker.task.is_closed() && !is_due();
                return self.await_delivered(self.mode(), keep_waiting) == Awaited::Stopped;
            }
            _ => _ = self.offer_delivery(),
        }
        false
    }

    /// Waits until others, the threads of this mode, have delivered what waits now.
    fn await_delivered(&self, mode: &Delivery, keep_waiting: impl FnMut() -> bool) -> Awaited {
        let is_executor = matches!(mode, Delivery::Executor(_));
        let patience = is_executor.then_some(EXECUTOR_PATIENCE);
        let offer = || self.offer_delivery_to(mode);
        let awaited = (self.maintenance.notifier).await_delivered(offer, patience, keep_waiting);
        if awaited == Awaited::Refused && !is_executor {
            // No thread can be started.
            self.deliver_all();
        }
        awaited
    }

    /// `run_pending_tasks`: when it returns, all that was posted before the call is delivered.
    pub(super) fn deliver_pending(&self) {
        if self.maintenance.tells_callers {
            self.deliver_as_caller();
        } else if inside_listener() {
            self.offer_delivery();
        } else if self.await_delivered(self.mode(), || true) == Awaited::NotBegun {
            report_idle_executor();
        }
    }

    /// The drop of the last handle: applies what was written before, and waits until the listener
    /// has heard of all removals, from the thread that the mode names. A listener thread that ends
    /// another cache inside a listener tells it itself.
    pub(crate) fn tell_rest(&self) {
        let maintenance = self.maintenance;
        if !self.drain_last() {
            return;
        }
        if inside_listener() {
            return self.deliver_as_caller();
        }
        let await_by = |mode| self.await_delivered(mode, || true) == Awaited::Delivered;
        if matches!(self.mode(), Delivery::Executor(_)) {
            if await_by(self.mode()) {
                return;
            }
            // A thread of the cache does it in its place.
            maintenance.notifier.end_offer();
        }
        // A thread that calls listeners need not wait for another one.
        if maintenance.tells_callers || role() == Role::Listener || !await_by(&Delivery::Background)
        {
            self.deliver_all();
        }
    }
}
