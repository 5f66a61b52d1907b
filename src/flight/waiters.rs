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
//! [`CONVOY`] times, a compute whose thread is awake may pass those that sleep: one that spins, or
//! one that comes just now. The first sleeper is passed [`MOST_PASSED`] times at most. A task is
//! not passed, nor is a call that wants a value.
//!
//! If a write revokes the load, one call that waits for a turn looks again: the next one does when
//! the turn of that call is over. So a write wakes one of them, however many wait.

use super::load::{Verdict, Want};
use crate::sync::cycle::Ticket;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// How often the turn goes to a compute that sleeps before others may pass it.
const CONVOY: u32 = 16;
/// How often computes may pass one that sleeps.
const MOST_PASSED: u32 = 32;

/// How a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// As a task, or as a thread that is about to look.
    Unknown,
    /// As a thread that spins.
    Spinning,
    /// As a thread that sleeps, or is about to.
    Asleep,
}

struct Waiter {
    /// Left by its last poll.
    waker: Option<Waker>,
    waits: Waits,
}

/// Waiters of one kind.
type Queue = BTreeMap<Ticket, Waiter>;

pub(super) struct Waiters<V> {
    /// A queue for each kind of call. Kinds are few.
    queues: BTreeMap<Want, Queue>,
    /// The verdicts that have yet to be fetched.
    told: BTreeMap<Ticket, Verdict<V>>,
    /// The waiters that spin, in any queue.
    spinning: BTreeSet<Ticket>,
    /// The waiter that was told to lead while it slept, until it has its turn; and how often it was
    /// passed.
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
            spinning: BTreeSet::new(),
            sleeper: None,
            sleepers: 0,
            turn: NextTurn::Free,
        }
    }
}

impl<V> Waiters<V> {
    pub(super) fn add(&mut self, ticket: Ticket, want: Want) {
        // Its first poll leaves a waker: to clone one is user code.
        let waiter = Waiter {
            waker: None,
            waits: Waits::Unknown,
        };
        self.queues.entry(want).or_default().insert(ticket, waiter);
    }

    /// Whether waiters of such a kind wait.
    pub(super) fn have(&self, is_kind: impl Fn(Want) -> bool) -> bool {
        (self.queues.iter()).any(|(want, queue)| is_kind(*want) && !queue.is_empty())
    }

    fn waiter(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let mut queues = self.queues.values_mut();
        queues.find_map(|queue| queue.get_mut(&ticket))
    }

    /// The place for the waker of a waiter; `None` if it does not wait.
    pub(super) fn waker(&mut self, ticket: Ticket) -> Option<&mut Option<Waker>> {
        Some(&mut self.waiter(ticket)?.waker)
    }

    /// A waiter waits no longer. Returns its waker.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waker> {
        self.spinning.remove(&ticket);
        let mut queues = self.queues.values_mut();
        let waiter = queues.find_map(|queue| queue.remove(&ticket));
        waiter?.waker
    }

    pub(super) fn take_told(&mut self, ticket: Ticket) -> Option<Verdict<V>> {
        self.told.remove(&ticket)
    }

    pub(super) fn wait_now(&mut self, ticket: Ticket) {
        if let Some(queue) = self.queues.get_mut(&Want::LookUpAgain) {
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
                self.spinning.remove(&ticket);
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

    /// Tells the next waiter to lead: the longest-waiting one, unless that is a compute whose
    /// thread sleeps, and another spins.
    pub(super) fn offer(&mut self, wakers: &mut Vec<Waker>) -> Option<Ticket> {
        let firsts = self.queues.iter().filter_map(|(want, queue)| {
            let (&ticket, waiter) = queue.first_key_value()?;
            Some((ticket, *want, waiter.waits))
        });
        let (first, want, waits) = firsts.min_by_key(|(ticket, ..)| *ticket)?;
        let mut next = first;
        if want == Want::OwnTurn && waits == Waits::Asleep {
            let passed = match self.sleeper {
                Some((sleeper, passed)) if sleeper == first => passed,
                _ => 0,
            };
            self.sleeper = Some((first, passed));
            if self.is_convoy() && passed < MOST_PASSED {
                if let Some(awake) = self.spinning_compute() {
                    self.sleeper = Some((first, passed + 1));
                    next = awake;
                }
            }
            if next == first {
                self.sleepers = self.sleepers.saturating_add(1);
            }
        }
        wakers.extend(self.tell_one(next, Verdict::Leads));
        Some(next)
    }

    fn is_convoy(&self) -> bool {
        self.sleepers >= CONVOY
    }

    /// A compute that spins.
    fn spinning_compute(&self) -> Option<Ticket> {
        let computes = self.queues.get(&Want::OwnTurn)?;
        let mut spinning = self.spinning.iter();
        spinning
            .find(|ticket| computes.contains_key(ticket))
            .copied()
    }

    /// Whether a compute may pass this waiter, which was told to lead: it is a compute, slept, and
    /// has not heard yet that it leads.
    pub(super) fn may_be_passed(&self, to: Ticket) -> bool {
        let slept = match self.sleeper {
            Some((sleeper, passed)) => sleeper == to && passed < MOST_PASSED,
            None => false,
        };
        slept && self.is_convoy() && self.told.contains_key(&to)
    }

    /// A compute passes this waiter, which waits again. False if it may not.
    pub(super) fn pass(&mut self, to: Ticket) -> bool {
        if !self.may_be_passed(to) {
            return false;
        }
        if let Some((_, passed)) = &mut self.sleeper {
            *passed += 1;
        }
        self.told.remove(&to);
        self.add(to, Want::OwnTurn);
        // It was woken, and looks soon.
        self.set_state(to, Waits::Asleep);
        true
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

    /// The thread of a waiter begins to spin, unless as many do already.
    pub(super) fn set_spinning(&mut self, ticket: Ticket, most: usize) -> bool {
        if self.spinning.len() >= most || self.waiter(ticket).is_none() {
            return false;
        }
        self.set_state(ticket, Waits::Spinning);
        true
    }

    pub(super) fn set_state(&mut self, ticket: Ticket, waits: Waits) {
        let Some(waiter) = self.waiter(ticket) else {
            return;
        };
        waiter.waits = waits;
        if waits == Waits::Spinning {
            self.spinning.insert(ticket);
        } else {
            self.spinning.remove(&ticket);
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::*;

    /// As after many turns that went to sleeping threads.
    fn in_a_convoy() -> Waiters<u8> {
        Waiters {
            sleepers: CONVOY,
            ..Waiters::default()
        }
    }

    /// Two computes sleep, and one spins at each turn.
    #[test]
    fn a_compute_that_sleeps_is_passed_a_bounded_number_of_times() {
        let mut waiters = in_a_convoy();
        let sleepers = [Ticket::draw(), Ticket::draw()];
        for ticket in sleepers {
            waiters.add(ticket, Want::OwnTurn);
            waiters.set_state(ticket, Waits::Asleep);
        }
        let mut passed = 0;
        loop {
            let awake = Ticket::draw();
            waiters.add(awake, Want::OwnTurn);
            assert!(waiters.set_spinning(awake, 1));
            assert!(!waiters.set_spinning(sleepers[1], 1), "one spins already");
            let next = waiters.offer(&mut Vec::new()).expect("three wait");
            _ = waiters.take_told(next);
            if next == sleepers[0] {
                break;
            }
            assert_eq!(next, awake);
            passed += 1;
        }
        assert_eq!(passed, MOST_PASSED);
    }

    /// As long as turns do not go from sleeper to sleeper, they come in their order.
    #[test]
    fn a_compute_that_sleeps_is_not_passed_at_first() {
        let mut waiters = Waiters::<u8>::default();
        let tickets: Vec<Ticket> = (0..CONVOY).map(|_| Ticket::draw()).collect();
        for &ticket in &tickets {
            waiters.add(ticket, Want::OwnTurn);
            waiters.set_state(ticket, Waits::Asleep);
        }
        let awake = Ticket::draw();
        waiters.add(awake, Want::OwnTurn);
        assert!(waiters.set_spinning(awake, 1));
        for &ticket in &tickets {
            assert_eq!(waiters.offer(&mut Vec::new()), Some(ticket));
            _ = waiters.take_told(ticket);
        }
    }

    /// One that was told to lead may be passed by a newcomer, until it has heard of it.
    #[test]
    fn a_compute_that_was_woken_may_be_passed_until_it_looks() {
        let mut waiters = in_a_convoy();
        let sleeper = Ticket::draw();
        waiters.add(sleeper, Want::OwnTurn);
        assert!(!waiters.may_be_passed(sleeper), "it was not told yet");
        waiters.set_state(sleeper, Waits::Asleep);
        for _ in 0..MOST_PASSED {
            assert_eq!(waiters.offer(&mut Vec::new()), Some(sleeper));
            assert!(waiters.pass(sleeper));
        }
        assert_eq!(waiters.offer(&mut Vec::new()), Some(sleeper));
        assert!(!waiters.pass(sleeper), "it was passed often enough");
        // A task, or a call that wants a value, is not passed at all.
        for want in [Want::OwnTurn, Want::Value] {
            let mut waiters = in_a_convoy();
            let first = Ticket::draw();
            waiters.add(first, want);
            if want == Want::Value {
                waiters.set_state(first, Waits::Asleep);
            }
            assert_eq!(waiters.offer(&mut Vec::new()), Some(first));
            assert!(!waiters.may_be_passed(first));
        }
    }
}
