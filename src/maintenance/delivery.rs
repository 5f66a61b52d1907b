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
use crate::listener::inside_listener;
use crate::map::Garbage;
use crate::node::NodePtr;
use crate::notify::Awaited;
use crate::scheduler::{Delivery, EXECUTOR_PATIENCE, report_idle_executor};
use crate::time;

/// How many chunks of notifications a thread delivers before other caches get their turn.
const CHUNKS_PER_TURN: usize = 32;

/// Where no thread wakes the cache, this many undelivered notifications make a call that does
/// maintenance offer a delivery.
const UNDELIVERED: u64 = 1024;

impl<K, V> Maintenance<K, V> {
    /// Which thread calls the listener.
    pub(crate) fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    pub(crate) fn has_listener(&self) -> bool {
        self.notifier.has_listener()
    }

    /// Takes delivered nodes back, to be freed.
    fn take_back(&self, nodes: &mut Vec<NodePtr<K, V>>) {
        // The listener may have forked.
        self.process.check();
        let mut state = self.state.lock();
        for node in nodes.drain(..) {
            state.freeing.retire(Garbage::Node(node));
        }
        state.freeing.report(&self.backlog);
    }
}

impl<K, V> MaintenanceView<'_, K, V> {
    /// Delivers until nothing is left or `keep_going` returns false; true if that ended it.
    pub(crate) fn deliver_while(self, keep_going: impl FnMut() -> bool) -> bool {
        let maintenance = self.maintenance;
        (maintenance.notifier).deliver(keep_going, &mut |nodes| maintenance.take_back(nodes))
    }

    /// Delivers what waits now, or waits for the thread that does. Not inside a listener.
    fn deliver_all(self) {
        let maintenance = self.maintenance;
        (maintenance.notifier).deliver_all(&mut |nodes| maintenance.take_back(nodes));
        // Posted by other threads meanwhile: this call does not wait for them.
        self.offer_delivery();
    }

    /// Offers a delivery, if there is something to deliver and none is offered. False if no thread
    /// can be started for it.
    pub(super) fn offer_delivery(self) -> bool {
        let maintenance = self.maintenance;
        if !maintenance.notifier.offer() {
            return true;
        }
        let task = maintenance.waking.waker().task();
        let offered = task.is_some_and(|task| maintenance.delivery.offer(task));
        if !offered {
            maintenance.notifier.end_offer();
        }
        offered
    }

    /// The work of the thread that takes an offered delivery. True if it has to be offered again.
    pub(crate) fn deliver(self) -> bool {
        let maintenance = self.maintenance;
        let (notifier, waking) = (&maintenance.notifier, &maintenance.waking);
        notifier.begin_offer();
        let (mut left, mut frees) = (CHUNKS_PER_TURN, false);
        notifier.deliver(
            || {
                left -= 1;
                left > 0 && !waking.is_closing()
            },
            &mut |nodes| {
                // A thread that waits for deliveries frees them itself.
                frees |= !notifier.has_waiters();
                maintenance.take_back(nodes);
            },
        );
        notifier.end_offer();
        if waking.is_closing() {
            // That drop delivers the rest.
            return false;
        }
        if frees {
            waking.request_soon(&self.shared.clock);
        }
        notifier.offer_next()
    }

    /// The offered delivery will not take place: it is offered again with the next notification.
    pub(crate) fn drop_offer(self) {
        self.maintenance.notifier.end_offer();
    }

    /// After a pass by a caller that may run listeners.
    #[inline]
    pub(super) fn deliver_after_help(self) {
        let maintenance = self.maintenance;
        if !maintenance.has_listener() {
            return;
        }
        if maintenance.tells_callers {
            self.deliver_as_caller();
        } else if maintenance.waking.is_up_to_callers()
            && maintenance.notifier.waiting() > UNDELIVERED
        {
            self.offer_delivery();
        }
    }

    /// Delivers on the calling thread, which belongs to the program. Inside a listener it does not
    /// wait: if a thread delivers for this cache, perhaps this one further up its stack, that
    /// thread delivers the rest.
    pub(super) fn deliver_as_caller(self) {
        if inside_listener() {
            self.deliver_while(|| true);
        } else {
            self.deliver_all();
        }
    }

    /// Between the passes of a run. True if other work is due before all was delivered.
    pub(super) fn deliver_from_run(self) -> bool {
        let maintenance = self.maintenance;
        if !maintenance.has_listener() || maintenance.notifier.waiting() == 0 {
            return false;
        }
        // An alarm's task runs on a thread of the program.
        let is_program = !maintenance.waking.waker().is_shared();
        match &maintenance.delivery {
            Delivery::Caller if is_program => self.deliver_as_caller(),
            Delivery::Background if is_program && !inside_listener() => {
                let next = maintenance.state.lock().wheel.next_visit();
                let is_due = || {
                    let now = self.shared.clock.now();
                    maintenance.waking.is_due(now)
                        || next.is_some_and(|next| time::is_due(now, next))
                };
                return self.await_delivered(|| !maintenance.waking.is_closing() && !is_due())
                    == Awaited::Stopped;
            }
            _ => _ = self.offer_delivery(),
        }
        false
    }

    /// Waits until others have delivered what waits now.
    fn await_delivered(self, keep_waiting: impl FnMut() -> bool) -> Awaited {
        let is_executor = matches!(self.maintenance.delivery, Delivery::Executor(_));
        let patience = is_executor.then_some(EXECUTOR_PATIENCE);
        let notifier = &self.maintenance.notifier;
        let awaited = notifier.await_delivered(|| self.offer_delivery(), patience, keep_waiting);
        if awaited == Awaited::Refused && !is_executor {
            // No thread can be started.
            self.deliver_all();
        }
        awaited
    }

    /// `run_pending_tasks`: when it returns, all that was posted before the call is delivered.
    pub(super) fn deliver_pending(self) {
        if !self.maintenance.has_listener() {
            return;
        }
        if self.maintenance.tells_callers {
            self.deliver_as_caller();
        } else if inside_listener() {
            self.offer_delivery();
        } else if self.await_delivered(|| true) == Awaited::NotBegun {
            report_idle_executor();
        }
    }
}
