//! The state of one load: which thread leads, which calls wait, how it ended. The module docs of
//! `load` have the table of its states.
//!
//! The waiters of each kind stand in a queue, ordered by their tickets. Tickets ascend, and a
//! waiter that has to look again keeps its own, so a place in the order is never lost. To join, to
//! leave and to hand the lead on take as long for many waiters as for few.

use crate::compute::Entry;
use crate::contain::contain;
use crate::stripe::thread_number;
use crate::sync::block::{During, Work, doing};
use crate::sync::cycle::{Ticket, WaitTarget};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::time::NEVER;
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

/// Which outcomes of another call's run a waiter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// A value.
    Value,
    /// A value, or that there is none.
    Optional,
    /// The same, for a call that has other work to do first: it never leads, but looks the key up
    /// again.
    LookUpAgain,
    /// A value, or an error of this type.
    Fallible(TypeId),
    /// A value, or that there is none, or an error of this type. It never leads either: the future
    /// of a refresh may not be polled for long.
    Any(TypeId),
    /// None: the waiter wants to run its own code.
    OwnTurn,
}

impl Want {
    fn accepts<V>(self, outcome: &Outcome<V>) -> bool {
        match (self, outcome) {
            (Self::OwnTurn, _) | (_, Outcome::Nothing) => false,
            (_, Outcome::Value(..)) => true,
            (Self::Optional | Self::LookUpAgain | Self::Any(_), Outcome::Absent) => true,
            (Self::Fallible(kind) | Self::Any(kind), Outcome::Error(error)) => {
                (**error).type_id() == kind
            }
            _ => false,
        }
    }
}

/// The outcome of a run, as its waiters see it. They share the value, and what the leader's entry
/// said about it.
pub(crate) type Outcome<V> = OutcomeOf<Arc<Entry<(), V>>>;

/// Generic, so that it is `Clone` whatever the value.
#[derive(Clone, Debug)]
pub(crate) enum OutcomeOf<T> {
    /// With the deadline of the entry: the time that it has left counts from when a call takes it.
    Value(T, u64),
    /// The closure said that there is no value.
    Absent,
    /// The closure's error.
    Error(Arc<dyn Any + Send + Sync>),
    /// Nothing that a waiter could use: a panic, a dropped future, a compute without a value.
    Nothing,
}

/// The answer to a waiter.
#[derive(Debug)]
pub(crate) enum Verdict<V> {
    /// The run has ended with this.
    Ended(Outcome<V>),
    /// It leads from now on.
    Leads,
    /// The load is no longer current: look the key up again.
    Retry,
}

/// The first write that revoked a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevokedBy {
    /// A write that does not depend on what was there: `insert`, `invalidate`.
    Overwrite,
    /// A write that has seen what was there: `remove`, a conditional write, `retain`.
    Conditional,
    /// A newer load, since this one was overdue.
    NewerLoad,
}

/// Wakes waiters. No lock may be held: a waker is user code. A panic of one does not keep the
/// others asleep.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    let _waking = During::begin(Work::Wakes);
    for waker in wakers {
        contain(|| waker.wake());
    }
}

/// One load of a key, with the calls that wait for it.
pub(crate) struct Load<K, V> {
    pub(super) hash: u64,
    key: K,
    /// The thread that runs the leader's code just now, or 0. Beside the lock, so that an async
    /// leader notes each poll cheaply. Relaxed: a thread compares it with its own number, which it
    /// has stored itself; the cycle's lock orders the rest.
    leader: AtomicU64,
    /// Changes from true to false, once, under the shard's lock. Relaxed: a holder of that lock
    /// reads it exactly; for all others it is a hint, and only `false` is final.
    current: AtomicBool,
    /// Whether a call has ever joined. Changes from false to true, once. Relaxed: a call joins in a
    /// hold of the shard's lock, or on behalf of the leader before that hands its run on; the
    /// leader reads it in a hold of that lock.
    joined: AtomicBool,
    /// Cache time at which the run began, or at which the lead was offered. Relaxed: the leader
    /// and its waiters have synchronized by the lock of the shard, or of the state.
    began: AtomicU64,
    /// For a reload: the entry's moment of refresh while it is under way; else `NEVER`. Relaxed:
    /// the leader alone uses it.
    reload_until: AtomicU64,
    state: Mutex<State<V>>,
}

struct State<V> {
    phase: Phase,
    revoked: Option<RevokedBy>,
    /// The calls that wait, in their order: a queue for each kind of call. Kinds are few. Mostly no
    /// call ever waits; neither map is made before it is needed.
    queues: Option<BTreeMap<Want, Queue>>,
    /// The verdicts that have yet to be fetched.
    told: Option<BTreeMap<Ticket, Verdict<V>>>,
}

/// The state of a load, as in the table of the module docs of `load`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A guard is out.
    Led,
    /// This waiter has been told to lead, and has yet to claim the key again.
    Offered(Ticket),
    /// No run is at work, and none will be: the load is no longer current.
    Ended,
}

/// Waiters of one kind, each with the waker that its last poll has left.
type Queue = BTreeMap<Ticket, Option<Waker>>;

impl<V> State<V> {
    fn queue_of(&mut self, want: Want) -> &mut Queue {
        self.queues.get_or_insert_default().entry(want).or_default()
    }

    fn queues(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.queues.iter_mut().flat_map(BTreeMap::values_mut)
    }

    fn waiter(&mut self, ticket: Ticket) -> Option<&mut Option<Waker>> {
        self.queues().find_map(|queue| queue.get_mut(&ticket))
    }

    fn take_waiter(&mut self, ticket: Ticket) -> Option<Option<Waker>> {
        self.queues().find_map(|queue| queue.remove(&ticket))
    }

    fn take_told(&mut self, ticket: Ticket) -> Option<Verdict<V>> {
        self.told.as_mut()?.remove(&ticket)
    }

    /// The longest-waiting waiter.
    fn first(&mut self) -> Option<Ticket> {
        let firsts = self.queues().filter_map(|queue| queue.first_key_value());
        firsts.map(|(&ticket, _)| ticket).min()
    }

    fn has(&self, kind: impl Fn(Want) -> bool) -> bool {
        (self.queues.iter().flatten()).any(|(want, queue)| kind(*want) && !queue.is_empty())
    }

    /// Gives the waiters of some kinds their verdict; returns their wakers.
    fn tell(&mut self, verdict: impl Fn(Want) -> Option<Verdict<V>>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (want, queue) in self.queues.iter_mut().flatten() {
            while let Some(told) = queue.first_entry() {
                let Some(verdict) = verdict(*want) else {
                    break;
                };
                let (ticket, waker) = told.remove_entry();
                wakers.extend(waker);
                self.told.get_or_insert_default().insert(ticket, verdict);
            }
        }
        wakers
    }
}

impl<K, V> Load<K, V> {
    /// A load whose leader is the calling code, on the thread with the number `leader` if that is
    /// not 0; `began` is cache time.
    #[inline]
    pub(crate) fn new(hash: u64, key: K, leader: u64, began: u64) -> Self {
        Self {
            hash,
            key,
            leader: AtomicU64::new(leader),
            current: AtomicBool::new(true),
            joined: AtomicBool::new(false),
            began: AtomicU64::new(began),
            reload_until: AtomicU64::new(NEVER),
            state: Mutex::new(State {
                phase: Phase::Led,
                revoked: None,
                queues: None,
                told: None,
            }),
        }
    }

    #[inline]
    fn state(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock()
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// Whether the leader's own code is polling the task that asks: such a task must not wait. If a
    /// waker polls the task, the answer is false, since the leader continues.
    pub(crate) fn is_led_by_caller(&self) -> bool {
        let (me, leader) = (thread_number(), self.leader.load(Ordering::Relaxed));
        me != 0 && leader == me && doing() != Work::Wakes
    }

    /// Notes which thread runs the leader's code from now on.
    pub(crate) fn set_leader(&self, thread: u64) {
        self.leader.store(thread, Ordering::Relaxed);
    }

    /// Whether it is current. Exact for the holder of the shard's lock; for other threads, `true`
    /// may be outdated.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.current.load(Ordering::Relaxed)
    }

    /// For the holder of the shard's lock.
    fn mark_outdated(&self) {
        self.current.store(false, Ordering::Relaxed);
    }

    /// Which write revoked it first.
    pub(crate) fn revoked(&self) -> Option<RevokedBy> {
        self.state().revoked
    }

    /// Cache time at which the run began.
    pub(crate) fn began(&self) -> u64 {
        self.began.load(Ordering::Relaxed)
    }

    /// The entry's moment of refresh while this reload is under way; `None` if the key had no entry
    /// when the run began.
    pub(crate) fn reload_until(&self) -> Option<u64> {
        Some(self.reload_until.load(Ordering::Relaxed)).filter(|&until| until != NEVER)
    }

    /// Notes that this is a reload; `NEVER`: that it is none.
    pub(crate) fn set_reload(&self, until: u64) {
        self.reload_until.store(until, Ordering::Relaxed);
    }

    /// A run begins.
    pub(crate) fn set_began(&self, now: u64) {
        self.began.store(now, Ordering::Relaxed);
    }

    /// Whether no leader is at work, and none but the waiter with this ticket was told to lead.
    /// Under the shard's lock, of a current load: so it stays, until that call changes it.
    pub(crate) fn is_free_for(&self, ticket: Option<Ticket>) -> bool {
        match self.state().phase {
            Phase::Led => false,
            Phase::Offered(to) => Some(to) == ticket,
            Phase::Ended => false,
        }
    }

    /// A run of a load that [is free](Self::is_free_for) begins at `now`.
    pub(crate) fn take_lead(&self, now: u64) {
        self.state().phase = Phase::Led;
        self.set_began(now);
    }

    /// Whether a waiter would share a value.
    pub(crate) fn has_sharers(&self) -> bool {
        self.state().has(|want| want != Want::OwnTurn)
    }

    /// Adds a waiter. Under the shard's lock, while the load is current; or on behalf of the
    /// leader, before it hands its run to the code that will end it.
    pub(crate) fn join(&self, ticket: Ticket, want: Want) {
        self.joined.store(true, Ordering::Relaxed);
        // Its first poll leaves a waker: to clone one is user code.
        self.state().queue_of(want).insert(ticket, None);
    }

    /// The waiter's call has finished its other work: from now on it waits like any other.
    pub(crate) fn wait_now(&self, ticket: Ticket) {
        let mut state = self.state();
        if let Some(waker) = state.queue_of(Want::LookUpAgain).remove(&ticket) {
            state.queue_of(Want::Optional).insert(ticket, waker);
        }
    }

    /// The verdict for a waiter, which then no longer waits; `None` as long as it has to wait, for
    /// which `waker` is kept. A waiter that is told to lead is the leader, on the calling thread,
    /// from now on, and [takes the lead](Self::take_lead) when it claims the key again.
    pub(crate) fn poll(&self, ticket: Ticket, waker: &Waker) -> Option<Verdict<V>> {
        // Cloned with no lock held, as a waker is dropped: both are user code.
        let mut fresh = Some(waker.clone());
        loop {
            let mut state = self.state();
            if let Some(verdict) = state.take_told(ticket) {
                if let Verdict::Leads = verdict {
                    self.set_leader(thread_number());
                }
                return Some(verdict);
            }
            let former = state.waiter(ticket)?.replace(fresh.take()?);
            drop(state);
            // A destructor may take long, and wait by the same waker: so look once more.
            drop(former?);
        }
    }

    /// A waiter gives up. True if it had been told to lead: then the caller has to end that run.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        let mut state = self.state();
        let waiter = state.take_waiter(ticket);
        let told = state.take_told(ticket);
        let leads = state.phase == Phase::Offered(ticket);
        if leads {
            state.phase = Phase::Led;
        }
        drop(state);
        drop((waiter, told));
        leads
    }

    /// The load is no longer current. Under the shard's lock;
    /// [`release_waiters`](Self::release_waiters) follows when the lock was released. True if calls
    /// may still wait for the run that is at work.
    pub(crate) fn revoke(&self, by: RevokedBy) -> bool {
        let mut state = self.state();
        self.mark_outdated();
        state.revoked.get_or_insert(by);
        by != RevokedBy::NewerLoad && state.phase == Phase::Led
    }

    /// Tells waiters of a revoked load to look again: those that wait for a turn, and all if no
    /// leader is at work or the load is overdue. With no lock held.
    pub(crate) fn release_waiters(&self) {
        let mut state = self.state();
        let mut all = state.revoked == Some(RevokedBy::NewerLoad);
        if let Phase::Offered(ticket) = state.phase {
            (state.told.get_or_insert_default()).insert(ticket, Verdict::Retry);
            state.phase = Phase::Ended;
            all = true;
        }
        let retry = |want| (all || want == Want::OwnTurn).then_some(Verdict::Retry);
        let wakers = state.tell(retry);
        drop(state);
        wake_all(wakers);
    }

    /// Wakes all that wait, so that they look whether the load is overdue. With no lock held.
    pub(crate) fn wake_waiters(&self) {
        let mut state = self.state();
        let waiters = state.queues().flat_map(BTreeMap::values_mut);
        let wakers: Vec<Waker> = waiters.filter_map(Option::take).collect();
        drop(state);
        wake_all(wakers);
    }

    /// Whether any call waits.
    pub(crate) fn has_waiters(&self) -> bool {
        self.state().has(|_| true)
    }

    /// The run has made its write. Under the shard's lock, in the hold that made it. Unless calls
    /// wait for their turn, the load is no longer current. True if calls wait: then the run has to
    /// be [ended](Self::end).
    #[inline]
    pub(crate) fn seal(&self) -> bool {
        if !self.joined.load(Ordering::Relaxed) {
            self.mark_outdated();
            return false;
        }
        let state = self.state();
        if !state.has(|want| want == Want::OwnTurn) {
            self.mark_outdated();
        }
        state.has(|_| true)
    }

    /// The leader's run has ended: publishes its outcome and finds the next leader. If there is
    /// none, the load is no longer current. Under the shard's lock, unless it was not current
    /// before. Returns the wakers to call, with no lock held.
    pub(crate) fn end(&self, outcome: &Outcome<V>, now: u64) -> Vec<Waker> {
        let mut state = self.state();
        let current = self.is_current();
        state.phase = Phase::Ended;
        self.leader.store(0, Ordering::Relaxed);
        let verdict = |want: Want| {
            if want.accepts(outcome) {
                Some(Verdict::Ended(outcome.clone()))
            } else {
                let leads = !matches!(want, Want::LookUpAgain | Want::Any(_));
                (!current || !leads).then_some(Verdict::Retry)
            }
        };
        let mut wakers = state.tell(verdict);
        if let Some(next) = state.first() {
            if let Some(waker) = state.take_waiter(next) {
                state.phase = Phase::Offered(next);
                self.set_began(now);
                (state.told.get_or_insert_default()).insert(next, Verdict::Leads);
                wakers.extend(waker);
            }
        }
        if state.phase == Phase::Ended {
            self.mark_outdated();
        }
        drop(state);
        wakers
    }
}

impl<K: Send + Sync, V: Send + Sync> WaitTarget for Load<K, V> {
    fn awaited_thread(&self, ticket: Ticket) -> Option<u64> {
        let mut state = self.state();
        let waits = state.waiter(ticket).is_some();
        // Under the lock, as in `end`: it may hand the lead to this very waiter.
        let leader = self.leader.load(Ordering::Relaxed);
        drop(state);
        (waits && leader != 0).then_some(leader)
    }

    fn is_among_next(&self, ticket: Ticket, count: usize) -> bool {
        let mut state = self.state();
        let ahead = (state.queues()).flat_map(|queue| queue.range(..ticket).take(count));
        ahead.take(count).count() < count
    }
}
