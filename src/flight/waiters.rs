//! The calls that wait for a load, and what they have been told.
//!
//! The waiters of each kind stand in a queue, ordered by their tickets. A waiter that has to look
//! again keeps its ticket, and so its place in the order.

use super::load::{Load, Verdict, Want};
use super::turns::Turns;
use crate::hash::NumberMap;
use crate::sync::block::CallWaker;
use crate::sync::cycle::Ticket;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The wakers of the calls that wait: `None` before the first poll.
type Queue = BTreeMap<Ticket, Option<CallWaker>>;

pub(super) struct Waiters<K, V> {
    /// A queue for each kind of call that has waited.
    queues: Vec<(Want, Queue)>,
    /// The verdicts that have yet to be fetched.
    told: NumberMap<Ticket, Verdict<K, V>>,
    pub(super) turns: Turns<K, V>,
    /// The newer load that takes the place of this one, until the waiters are told.
    pub(super) replaced_by: Option<Arc<Load<K, V>>>,
}

impl<K, V> Default for Waiters<K, V> {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            told: NumberMap::default(),
            turns: Turns::default(),
            replaced_by: None,
        }
    }
}

impl<K, V> Waiters<K, V> {
    fn queue(&mut self, want: Want) -> Option<&mut Queue> {
        let mut queues = self.queues.iter_mut();
        let (_, queue) = queues.find(|(kind, _)| *kind == want)?;
        Some(queue)
    }

    fn insert(&mut self, ticket: Ticket, want: Want, waker: Option<CallWaker>) {
        if let Some(queue) = self.queue(want) {
            queue.insert(ticket, waker);
        } else {
            let mut queue = Queue::new();
            queue.insert(ticket, waker);
            self.queues.push((want, queue));
        }
    }

    pub(super) fn add(&mut self, ticket: Ticket, want: Want) {
        self.turns.end_call(ticket);
        match self.waker(ticket) {
            // It waits again. Its waker stays: locks are held, and to drop one is user code.
            Some(Some(waker)) => waker.sleeps = false,
            Some(None) => {}
            // Its first poll leaves a waker: to clone one is user code.
            None => self.insert(ticket, want, None),
        }
    }

    /// Whether waiters of such a kind wait.
    pub(super) fn have(&self, is_kind: impl Fn(Want) -> bool) -> bool {
        if self.turns.called().is_some() && is_kind(Want::OwnTurn) {
            return true;
        }
        (self.queues.iter()).any(|(want, queue)| is_kind(*want) && !queue.is_empty())
    }

    /// The place for the waker of a waiter; `None` if it does not wait.
    pub(super) fn waker(&mut self, ticket: Ticket) -> Option<&mut Option<CallWaker>> {
        let mut queues = self.queues.iter_mut();
        queues.find_map(|(_, queue)| queue.get_mut(&ticket))
    }

    /// A waiter waits no longer. Returns its waker.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<CallWaker> {
        let mut queues = self.queues.iter_mut();
        queues.find_map(|(_, queue)| queue.remove(&ticket))?
    }

    pub(super) fn take_told(&mut self, ticket: Ticket) -> Option<Verdict<K, V>> {
        self.told.remove(&ticket)
    }

    pub(super) fn wait_now(&mut self, ticket: Ticket) {
        if let Some(queue) = self.queue(Want::OptionalForNow) {
            if let Some(waker) = queue.remove(&ticket) {
                self.insert(ticket, Want::Optional, waker);
            }
        }
    }

    pub(super) fn take_wakers(&mut self, wakers: &mut Vec<CallWaker>) {
        for (_, queue) in &mut self.queues {
            for waker in queue.values_mut() {
                wakers.extend(waker.take());
            }
        }
    }

    /// Gives the waiters of some kinds their verdict.
    pub(super) fn tell(
        &mut self,
        wakers: &mut Vec<CallWaker>,
        verdict: impl Fn(Ticket, Want) -> Option<Verdict<K, V>>,
    ) {
        for (want, queue) in &mut self.queues {
            while let Some(first) = queue.first_entry() {
                let ticket = *first.key();
                let Some(verdict) = verdict(ticket, *want) else {
                    break;
                };
                let waker = first.remove();
                self.told.insert(ticket, verdict);
                wakers.extend(waker);
            }
        }
    }

    /// Tells one waiter; returns its waker.
    fn tell_one(&mut self, ticket: Ticket, verdict: Verdict<K, V>) -> Option<CallWaker> {
        let waker = self.remove(ticket);
        self.told.insert(ticket, verdict);
        waker
    }

    /// Tells the next waiter to lead: the one that is called, or the longest-waiting one. Returns
    /// its ticket; the number of its thread if that is awake, else 0; and its waker.
    pub(super) fn offer(&mut self) -> Option<(Ticket, u64, Option<CallWaker>)> {
        if let Some((called, thread)) = self.turns.called() {
            return Some((called, thread, None));
        }
        let firsts = self.queues.iter().filter_map(|(want, queue)| {
            let (&ticket, waker) = queue.first_key_value()?;
            let sleeps = matches!(waker, Some(waker) if waker.sleeps);
            Some((ticket, *want, sleeps))
        });
        let (first, want, sleeps) = firsts.min_by_key(|(ticket, ..)| *ticket)?;
        if want == Want::OwnTurn && sleeps {
            self.turns.offer_to_sleeper(first);
        }
        Some((first, 0, self.tell_one(first, Verdict::Offered)))
    }

    /// A waiter was offered the lead, and the load is no longer current: it looks again.
    pub(super) fn call_off(&mut self, ticket: Ticket) -> Option<CallWaker> {
        self.tell_one(ticket, Verdict::Retry)
    }

    /// Tells the first compute to look again, unless another one has been told, whose turn is not
    /// over.
    pub(super) fn tell_next_turn(&mut self) -> Option<CallWaker> {
        if !self.turns.is_free() {
            return None;
        }
        let (&next, _) = self.queue(Want::OwnTurn)?.first_key_value()?;
        self.turns.look(next);
        self.tell_one(next, Verdict::Retry)
    }

    /// This waiter waits no longer. If it was the compute that looked again, the next one does.
    pub(super) fn next_turn_after(&mut self, ticket: Ticket) -> Option<CallWaker> {
        if !self.turns.has_turn(ticket) {
            return None;
        }
        _ = self.turns.end_turn();
        self.tell_next_turn()
    }

    /// Whether this waiter waits for a turn.
    pub(super) fn wants_turn(&self, ticket: Ticket) -> bool {
        let mut queues = self.queues.iter();
        queues.any(|(want, queue)| *want == Want::OwnTurn && queue.contains_key(&ticket))
    }

    pub(super) fn falls_asleep(&mut self, ticket: Ticket) {
        if let Some(Some(waker)) = self.waker(ticket) {
            waker.sleeps = true;
        }
    }
}
