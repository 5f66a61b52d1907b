//! The calls that wait for a load, and what they have been told.
//!
//! The waiters of each kind stand in a queue, ordered by their tickets. Tickets ascend, and a
//! waiter that has to look again keeps its own, so a place in the order is never lost. To join, to
//! leave and to hand the lead on take as long for many waiters as for few.
//!
//! # Turns
//!
//! Computes take turns, first in, first out. To wake a thread that sleeps takes longer than most
//! turns: on a hot key, each turn would be a hand-over to a sleeping thread. When that has happened
//! [`CONVOY`] times, a compute that comes just now may pass one that was told to lead, and has not
//! woken up yet. The first sleeper is passed [`MOST_PASSED`] times at most. One that was passed has
//! its turn when the run of the compute that has passed it ends: it stays *called*. A task is not
//! passed, nor is a call that wants a value.
//!
//! If a write revokes the load, one call that waits for a turn looks again: the next one does when
//! the turn of that call is over. So a write wakes one of them, however many wait.

use super::load::{Verdict, Want};
use crate::sync::cycle::Ticket;
use std::collections::BTreeMap;
use std::task::Waker;

/// How often the turn goes to a compute that sleeps before others may pass it.
const CONVOY: u32 = 16;
/// How often computes may pass one that sleeps.
const MOST_PASSED: u32 = 1024;

struct WaitingCall {
    /// Left by its last poll.
    waker: Option<Waker>,
    /// Whether its thread sleeps, or is about to.
    sleeps: bool,
}

/// A compute that slept when it was told to lead, and was passed.
struct Called {
    ticket: Ticket,
    /// The number of its thread, when that has woken up; 0 until then.
    thread: u64,
}

/// Waiters of one kind.
type Queue = BTreeMap<Ticket, WaitingCall>;

pub(super) struct Waiters<V> {
    /// A queue for each kind of call. Kinds are few.
    queues: BTreeMap<Want, Queue>,
    /// The verdicts that have yet to be fetched.
    told: BTreeMap<Ticket, Verdict<V>>,
    /// The next to lead, though other computes have passed it.
    called: Option<Called>,
    /// The last waiter that was told to lead while it slept, and how often it was passed.
    sleeper: Option<(Ticket, u32)>,
    /// How often the turn has gone to a compute that slept.
    sleepers: u32,
    /// Of a load that is no longer current.
    turn: NextTurn,
}

/// Which of the calls for a turn may look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextTurn {
    /// The next one.
    Free,
    /// This one was told to.
    Told(Ticket),
    /// The one that was told waits for a newer load, or leads it: the next one when that ends.
    Behind,
}

impl<V> Default for Waiters<V> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            told: BTreeMap::new(),
            called: None,
            sleeper: None,
            sleepers: 0,
            turn: NextTurn::Free,
        }
    }
}

impl<V> Waiters<V> {
    pub(super) fn add(&mut self, ticket: Ticket, want: Want) {
        self.end_call(ticket);
        // Its first poll leaves a waker: to clone one is user code.
        let waiter = WaitingCall {
            waker: None,
            sleeps: false,
        };
        self.queues.entry(want).or_default().insert(ticket, waiter);
    }

    /// Whether waiters of such a kind wait.
    pub(super) fn have(&self, is_kind: impl Fn(Want) -> bool) -> bool {
        if self.called.is_some() && is_kind(Want::OwnTurn) {
            return true;
        }
        (self.queues.iter()).any(|(want, queue)| is_kind(*want) && !queue.is_empty())
    }

    fn waiter(&mut self, ticket: Ticket) -> Option<&mut WaitingCall> {
        let mut queues = self.queues.values_mut();
        queues.find_map(|queue| queue.get_mut(&ticket))
    }

    /// The place for the waker of a waiter; `None` if it does not wait.
    pub(super) fn waker(&mut self, ticket: Ticket) -> Option<&mut Option<Waker>> {
        Some(&mut self.waiter(ticket)?.waker)
    }

    /// A waiter waits no longer. Returns its waker.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waker> {
        let mut queues = self.queues.values_mut();
        let waiter = queues.find_map(|queue| queue.remove(&ticket));
        waiter?.waker
    }

    pub(super) fn take_told(&mut self, ticket: Ticket) -> Option<Verdict<V>> {
        self.told.remove(&ticket)
    }

    pub(super) fn wait_now(&mut self, ticket: Ticket) {
        if let Some(queue) = self.queues.get_mut(&Want::OptionalForNow) {
            if let Some(waiter) = queue.remove(&ticket) {
                let queue = self.queues.entry(Want::Optional).or_default();
                queue.insert(ticket, waiter);
            }
        }
    }

    pub(super) fn take_wakers(&mut self, wakers: &mut Vec<Waker>) {
        for waiter in self.queues.values_mut().flat_map(BTreeMap::values_mut) {
            wakers.extend(waiter.waker.take());
        }
    }

    /// Gives the waiters of some kinds their verdict.
    pub(super) fn tell(
        &mut self,
        wakers: &mut Vec<Waker>,
        verdict: impl Fn(Want) -> Option<Verdict<V>>,
    ) {
        for (want, queue) in &mut self.queues {
            while let Some(first) = queue.first_entry() {
                let Some(verdict) = verdict(*want) else {
                    break;
                };
                let (ticket, waiter) = first.remove_entry();
                self.told.insert(ticket, verdict);
                wakers.extend(waiter.waker);
            }
        }
    }

    /// Tells one waiter; returns its waker.
    fn tell_one(&mut self, ticket: Ticket, verdict: Verdict<V>) -> Option<Waker> {
        let waker = self.remove(ticket);
        self.told.insert(ticket, verdict);
        waker
    }

    /// Tells the next waiter to lead: the one that is called, or the longest-waiting one. Returns
    /// its ticket, and the number of its thread if that is awake; else 0.
    pub(super) fn offer(&mut self, wakers: &mut Vec<Waker>) -> Option<(Ticket, u64)> {
        if let Some(called) = &self.called {
            return Some((called.ticket, called.thread));
        }
        let firsts = self.queues.iter().filter_map(|(want, queue)| {
            let (&ticket, waiter) = queue.first_key_value()?;
            Some((ticket, *want, waiter.sleeps))
        });
        let (first, want, sleeps) = firsts.min_by_key(|(ticket, ..)| *ticket)?;
        if want == Want::OwnTurn && sleeps {
            self.sleepers = self.sleepers.saturating_add(1);
            let passed = match self.sleeper {
                Some((sleeper, passed)) if sleeper == first => passed,
                _ => 0,
            };
            self.sleeper = Some((first, passed));
        }
        wakers.extend(self.tell_one(first, Verdict::Leads));
        Some((first, 0))
    }

    /// Whether a compute may pass this waiter, which was told to lead: it is a compute, slept, and
    /// has not heard yet that it leads.
    pub(super) fn may_be_passed(&self, to: Ticket) -> bool {
        let slept = match self.sleeper {
            Some((sleeper, passed)) => sleeper == to && passed < MOST_PASSED,
            None => false,
        };
        slept && self.sleepers >= CONVOY && self.told.contains_key(&to)
    }

    /// A compute passes this waiter, which is called from now on. False if it may not.
    pub(super) fn pass(&mut self, to: Ticket) -> bool {
        if !self.may_be_passed(to) {
            return false;
        }
        if let Some((_, passed)) = &mut self.sleeper {
            *passed += 1;
        }
        if self.called.is_none() {
            self.called = Some(Called {
                ticket: to,
                thread: 0,
            });
        }
        true
    }

    /// The thread with this number has heard that this waiter leads.
    pub(super) fn hears(&mut self, ticket: Ticket, thread: u64) {
        if let Some(called) = &mut self.called {
            if called.ticket == ticket {
                called.thread = thread;
            }
        }
    }

    /// A waiter that may be called leads, waits again, or waits no longer.
    pub(super) fn end_call(&mut self, ticket: Ticket) {
        if let Some(called) = &self.called {
            if called.ticket == ticket {
                self.called = None;
            }
        }
    }

    /// A waiter was told to lead, and the load is no longer current: it looks again.
    pub(super) fn call_off(&mut self, ticket: Ticket) -> Option<Waker> {
        self.tell_one(ticket, Verdict::Retry)
    }

    /// Tells the first waiter for a turn to look again, unless another one has been told, whose
    /// turn is not over.
    pub(super) fn tell_next_turn(&mut self) -> Option<Waker> {
        if self.turn != NextTurn::Free {
            return None;
        }
        let (&next, _) = self.queues.get(&Want::OwnTurn)?.first_key_value()?;
        self.turn = NextTurn::Told(next);
        self.tell_one(next, Verdict::Retry)
    }

    /// Whether this waiter was told to look again, as the first of those that take turns.
    pub(super) fn has_turn(&self, ticket: Ticket) -> bool {
        self.turn == NextTurn::Told(ticket)
    }

    /// Whether this waiter waits for a turn.
    pub(super) fn wants_turn(&self, ticket: Ticket) -> bool {
        match self.queues.get(&Want::OwnTurn) {
            Some(queue) => queue.contains_key(&ticket),
            None => false,
        }
    }

    /// The turn of the waiter that was told to look again comes with a newer load.
    pub(super) fn go_behind(&mut self) {
        self.turn = NextTurn::Behind;
    }

    pub(super) fn end_turn(&mut self) {
        self.turn = NextTurn::Free;
    }

    pub(super) fn falls_asleep(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiter(ticket) {
            waiter.sleeps = true;
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
