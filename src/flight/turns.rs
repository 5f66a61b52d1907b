//! Turns: calls that want to run their own code, whatever another call's code has made. These are
//! the computes.
//!
//! # The rule
//!
//! When a run ends, the call that has waited longest is offered the lead, of the computes and of
//! those that do not accept its outcome ([`waiters`](super::waiters)).
//!
//! Three things are added for computes, since to wake a thread takes longer than most turns:
//!
//! 1. *To spin before joining.* A thread that finds another thread at work on its key first spins
//!    ([`Load::spin`]), for [`MOST_SPIN`] at most. It does so only while fewer threads spin than
//!    there are other cores.
//! 2. *To pass a sleeper.* On a hot key, each turn would be handed over to a thread that sleeps.
//!    When that has happened [`CONVOY`] times, a compute that comes just now may run before the one
//!    that was offered the lead, until that has woken up. The first sleeper is passed
//!    [`MOST_PASSED`] times at most. One that was passed is *called*: it is the next to lead when
//!    the run of the compute that has passed it ends. A task is not passed, nor is a call that
//!    wants a value.
//! 3. *To wake one at a time after a write.* A write revokes the load, so those that wait for their
//!    turn have to look the key up again. One of them is told to, however many wait. Its turn is
//!    over when it waits no longer, or when the newer load is over for which it waits, or which it
//!    leads. The others wait *behind* that load, and it keeps theirs as the load *before* it. Then
//!    the next of them is told to look again.

use super::load::Load;
use crate::stripe::{cores, thread_number};
use crate::sync::Ordering;
use crate::sync::block::{CallWaker, wake_all};
use crate::sync::cycle::Ticket;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// How long a thread that comes for its turn spins at most: about as long as a sleeping thread
/// takes to run again, on an idle core.
pub(crate) const MOST_SPIN: Duration = Duration::from_micros(50);

/// The pauses between two looks of a thread that spins.
const PAUSES: u32 = 16;

/// How many threads spin. The standard library's atomic: threads of models do not spin.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

/// How often the turn goes to a compute that sleeps before others may pass it.
const CONVOY: u32 = 16;

/// How often computes may pass one that sleeps.
const MOST_PASSED: u32 = 1024;

/// What is to be known of the turns at one load, beside the queue.
pub(super) struct Turns<K, V> {
    /// The last compute that slept when it was offered the lead (2).
    sleeper: Option<Sleeper>,
    /// How often a compute slept when it was offered the lead (2).
    slept: u32,
    /// Which compute may look again; for a load that is no longer current (3).
    looks: Looks<K, V>,
    /// A load whose computes wait behind this one (3).
    before: Option<Arc<Load<K, V>>>,
}

/// A compute that slept when it was offered the lead.
struct Sleeper {
    ticket: Ticket,
    /// How often others have passed it.
    passed: u32,
    /// Whether it was passed, and has neither led nor waited again since: it is the next to lead.
    is_called: bool,
    /// The number of its thread, when that has heard that it leads.
    awake: Option<u64>,
}

/// Which of the computes that wait for a load may look the key up again.
enum Looks<K, V> {
    /// The next one.
    Next,
    /// This one was told to, and its turn is not over.
    Told(Ticket),
    /// None before this newer load has ended, or is revoked. Not weak: to drop it may drop a key,
    /// and this is read under locks.
    Behind(Arc<Load<K, V>>),
}

impl<K, V> Default for Turns<K, V> {
    fn default() -> Self {
        Self {
            sleeper: None,
            slept: 0,
            looks: Looks::Next,
            before: None,
        }
    }
}

/// To pass a sleeper.
impl<K, V> Turns<K, V> {
    /// A compute that sleeps is offered the lead.
    pub(super) fn offer_to_sleeper(&mut self, ticket: Ticket) {
        self.slept = self.slept.saturating_add(1);
        let passed = match &self.sleeper {
            Some(sleeper) if sleeper.ticket == ticket => sleeper.passed,
            _ => 0,
        };
        self.sleeper = Some(Sleeper {
            ticket,
            passed,
            is_called: false,
            awake: None,
        });
    }

    fn sleeper(&mut self, ticket: Ticket) -> Option<&mut Sleeper> {
        match &mut self.sleeper {
            Some(sleeper) if sleeper.ticket == ticket => Some(sleeper),
            _ => None,
        }
    }

    /// The compute that is the next to lead, since it was passed; and the number of its thread if
    /// that is awake, else 0.
    pub(super) fn called(&self) -> Option<(Ticket, u64)> {
        match &self.sleeper {
            Some(called) if called.is_called => Some((called.ticket, called.awake.unwrap_or(0))),
            _ => None,
        }
    }

    /// Whether a compute may pass this waiter, which was offered the lead: it is a compute that
    /// slept, and has not heard yet that it leads.
    pub(super) fn may_be_passed(&mut self, to: Ticket) -> bool {
        let is_convoy = self.slept >= CONVOY;
        match self.sleeper(to) {
            Some(sleeper) => is_convoy && sleeper.passed < MOST_PASSED && sleeper.awake.is_none(),
            None => false,
        }
    }

    /// A compute passes this waiter, which is called from now on. False if it may not.
    pub(super) fn pass(&mut self, to: Ticket) -> bool {
        if !self.may_be_passed(to) {
            return false;
        }
        if let Some(sleeper) = self.sleeper(to) {
            sleeper.passed += 1;
            sleeper.is_called = true;
        }
        true
    }

    /// The thread with this number has heard that this waiter leads.
    pub(super) fn hears(&mut self, ticket: Ticket, thread: u64) {
        if let Some(sleeper) = self.sleeper(ticket) {
            sleeper.awake = Some(thread);
        }
    }

    /// A waiter leads, waits again, or waits no longer: if it was called, it is called no more.
    pub(super) fn end_call(&mut self, ticket: Ticket) {
        if let Some(sleeper) = self.sleeper(ticket) {
            sleeper.is_called = false;
        }
    }
}

/// To wake one at a time after a write.
impl<K, V> Turns<K, V> {
    /// Whether the next compute may look again.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.looks, Looks::Next)
    }

    /// This compute looks again.
    pub(super) fn look(&mut self, ticket: Ticket) {
        self.looks = Looks::Told(ticket);
    }

    /// Whether this compute was told to look again, and its turn is not over.
    pub(super) fn has_turn(&self, ticket: Ticket) -> bool {
        matches!(self.looks, Looks::Told(told) if told == ticket)
    }

    /// The turn of the compute that looked again is over. Returns the newer load with which it came
    /// to its end; it is to be dropped with no lock held.
    pub(super) fn end_turn(&mut self) -> Option<Arc<Load<K, V>>> {
        match mem::replace(&mut self.looks, Looks::Next) {
            Looks::Behind(newer) => Some(newer),
            Looks::Next | Looks::Told(_) => None,
        }
    }

    /// The newer load behind which the computes wait.
    pub(super) fn newer(&self) -> Option<&Arc<Load<K, V>>> {
        match &self.looks {
            Looks::Behind(newer) => Some(newer),
            Looks::Next | Looks::Told(_) => None,
        }
    }

    /// Whether the computes of another load wait behind this one.
    pub(super) fn has_before(&self) -> bool {
        self.before.is_some()
    }

    /// The load whose computes wait behind this one, which is over: their
    /// [next turn](Load::end_turn) comes.
    pub(super) fn take_before(&mut self) -> Option<Arc<Load<K, V>>> {
        self.before.take()
    }
}

impl<K, V> Load<K, V> {
    /// Spins while the load is current, and led by another thread. False if it still is at `until`,
    /// or if as many threads spin as there are other cores.
    pub(crate) fn spin(&self, until: Instant) -> bool {
        let mut is_over = false;
        // Relaxed: a bound, and nothing else.
        if SPINNING.fetch_add(1, Ordering::Relaxed) < cores() - 1 {
            while !is_over && Instant::now() < until {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
                is_over = !self.is_current() || !self.is_led_elsewhere();
            }
        }
        SPINNING.fetch_sub(1, Ordering::Relaxed);
        is_over
    }

    /// Whether another thread runs the leader's code, or is awake and about to.
    pub(crate) fn is_led_elsewhere(&self) -> bool {
        let leader = self.leader_thread();
        leader != 0 && leader != thread_number()
    }

    /// The compute with this ticket was told to look again, and leads a newer load, or waits for
    /// it. The others of this load wait until that has ended, or is revoked.
    pub(crate) fn wait_behind(self: &Arc<Self>, ticket: Ticket, newer: &Arc<Self>) {
        let mut state = self.state();
        let turns = &mut state.waiters().turns;
        if !turns.has_turn(ticket) {
            return;
        }
        turns.looks = Looks::Behind(Arc::clone(newer));
        drop(state);
        let mut next = Some(Arc::clone(self));
        // Its end has to look for those that wait behind it.
        newer.note_joined();
        let mut state = newer.state();
        // Its end, or its revocation, has looked already if it is over.
        if !state.is_over() {
            next = mem::replace(&mut state.waiters().turns.before, next);
        }
        drop(state);
        if let Some(next) = next {
            wake_all(next.end_turn());
        }
    }

    /// The turn for which the computes of this load wait is over: the next one looks again. Returns
    /// its waker. With no lock held.
    #[must_use]
    pub(super) fn end_turn(&self) -> Option<CallWaker> {
        let mut state = self.state();
        let waiters = state.waiters();
        let newer = waiters.turns.end_turn();
        let waker = waiters.tell_next_turn();
        drop(state);
        drop(newer);
        waker
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
