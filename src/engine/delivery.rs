//! When notifications are delivered, and which calls wait for it.
//!
//! | the mode | what a call removes is reported by | what expires or is evicted, by | calls that wait for it |
//! |---|---|---|---|
//! | [`Delivery::Background`] | a shared thread | a shared thread | none |
//! | [`Delivery::Caller`] | that call, before it returns | the call whose pass removes it, else a shared thread | each one that removes |
//!
//! `run_pending_tasks` and the drop of the last handle wait in both modes. One thread delivers at a
//! time ([`notify`](crate::notify)).

use super::Engine;
use crate::listener::Delivery;
use crate::map::Garbage;
use crate::notify::{Awaited, EXTRA_DELIVERIES, Notification};
use crate::scheduler::{self, inside_listener};
use crate::time;

/// How many notifications a thread delivers before other caches get their turn.
const CALLS_PER_TURN: u64 = 1024;

impl<K, V> Engine<K, V> {
    /// Whether a call that removes an entry returns after the listener has heard of it.
    #[inline]
    pub(crate) fn tells_callers(&self) -> bool {
        matches!(self.delivery, Some(Delivery::Caller))
    }

    /// Takes delivered nodes back, to be freed.
    fn take_back(&self, told: &mut Vec<Notification<K, V>>) {
        let mut state = self.part.state.lock();
        for (node, _) in told.drain(..) {
            state.freeing.retire(Garbage::Node(node));
        }
    }
}

impl<K, V> Engine<K, V> {
    /// Offers a delivery, if there is something to deliver, none is offered, and no thread
    /// delivers. False if no thread can be started for it.
    pub(super) fn offer_delivery(&self) -> bool {
        let notifier = &self.notifier;
        if !notifier.offer() {
            return true;
        }
        let is_taken = scheduler::deliver_soon(&self.waking.waker.task);
        if !is_taken {
            notifier.end_offer();
        }
        is_taken
    }

    /// The work of the thread that takes an offered delivery. True if it has to be offered again.
    pub(crate) fn deliver(&self) -> bool {
        let (notifier, waking) = (&self.notifier, &self.waking);
        let most = notifier.delivered() + CALLS_PER_TURN;
        let mut frees = false;
        notifier.deliver(most, &mut |told| {
            // A thread that waits for deliveries frees them itself.
            frees |= !notifier.has_waiters();
            self.take_back(told);
        });
        notifier.end_offer();
        if frees && !waking.waker.task.is_closed() {
            waking.request_soon(&self.clock);
        }
        notifier.offer()
    }

    /// Delivers on the calling thread what waits now, or waits for the thread that does. Inside a
    /// listener it does not wait: if a thread delivers for this cache, perhaps this one further up
    /// its stack, that thread delivers the rest.
    pub(super) fn deliver_here(&self) {
        let (notifier, inside) = (&self.notifier, inside_listener());
        let posted = notifier.posted();
        // What the listener's own calls have posted is delivered as well, up to a bound: otherwise
        // other threads could keep this thread busy for ever.
        let most = if inside {
            u64::MAX
        } else {
            posted + EXTRA_DELIVERIES
        };
        let tell = || {
            notifier.deliver(most, &mut |told| self.take_back(told));
            true
        };
        tell();
        if !inside && notifier.waiting() > 0 {
            notifier.await_delivered(posted, true, tell, || true);
            // Posted by other threads meanwhile: this call does not wait for them.
            self.offer_delivery();
        }
    }

    /// Between the passes of a run. True if other work is due before all was delivered.
    pub(super) fn deliver_from_run(&self) -> bool {
        let waking = &self.waking;
        // An alarm's task runs on a thread of the program.
        let is_program = !waking.waker.is_shared();
        match &self.delivery {
            Some(Delivery::Caller) if is_program => self.deliver_here(),
            Some(Delivery::Background) if is_program && !inside_listener() => {
                let state = self.part.state.lock();
                let (more, next) = (state.wheel.has_work(), state.wheel.next_visit());
                drop(state);
                if more {
                    // The run has yet to do that: it goes on while the others deliver.
                    _ = self.offer_delivery();
                    return false;
                }
                let is_due = || {
                    let now = self.clock.now();
                    waking.is_due(now) || next.is_some_and(|next| time::is_due(now, next))
                };
                return self.await_delivery(|| !is_due()) == Awaited::Stopped;
            }
            _ => _ = self.offer_delivery(),
        }
        false
    }

    /// Waits until the shared threads have delivered what waits now. If no thread can be started,
    /// delivers it itself.
    fn await_delivery(&self, keep_waiting: impl FnMut() -> bool) -> Awaited {
        let notifier = &self.notifier;
        let most = notifier.posted() + EXTRA_DELIVERIES;
        let offer = || self.offer_delivery();
        let awaited = notifier.await_delivered(most, false, offer, keep_waiting);
        if awaited == Awaited::Refused {
            self.deliver_here();
            return Awaited::Delivered;
        }
        awaited
    }

    /// `run_pending_tasks`: when it returns, all that was posted before the call is delivered.
    pub(super) fn deliver_pending(&self) {
        if self.tells_callers() {
            self.deliver_here();
        } else if inside_listener() {
            self.offer_delivery();
        } else {
            self.await_delivery(|| true);
        }
    }

    /// The end of the cache: applies what was written before, and waits until the listener has
    /// heard of all removals, from the thread that the mode names. A thread of the crew tells it
    /// itself. False if the listener waits for this thread.
    pub(crate) fn tell_rest(&self) -> bool {
        if !self.drain_last() {
            return true;
        }
        if self.tells_callers() || scheduler::is_crew_thread() {
            self.deliver_here();
        } else {
            self.await_delivery(|| true);
        }
        self.notifier.waiting() == 0
    }
}
