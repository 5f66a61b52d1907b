//! One load: which thread leads, which calls wait, how it ended.

use super::waiters::Waiters;
use crate::compute::Keyless;
use crate::contain::{LetGo, let_go};
use crate::stripe::thread_number;
use crate::sync::block::{CallWaker, wake_all};
use crate::sync::cycle::{Ticket, WaitTarget};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::time::NEVER;
use std::any::{Any, TypeId};
use std::sync::Arc;
use std::task::Context;

/// Which outcomes of another call's run a waiter accepts. If it accepts none, and the load is
/// current, it leads in its turn, or looks the key up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A value: `get_with`, `lease`.
    Value,
    /// A value, or that there is none: `optionally_get_with`, `get_all_with`.
    Optional,
    /// A value, or that there is none: `get_all_with` while it has other keys to load or to wait
    /// for. Looks again.
    OptionalForNow,
    /// A value, or an error of this type: `try_get_with`.
    Fallible(TypeId),
    /// A value, or that there is none, or an error of this type: a refresh, or a call for an async
    /// loader, for its own load. It may not be polled for long: so it looks again, or is moved to
    /// a newer load.
    Settled(TypeId),
    /// None: a compute wants to run its own code.
    OwnTurn,
}

impl Want {
    fn accepts<V>(self, outcome: &Outcome<V>) -> bool {
        match (self, outcome) {
            (Self::OwnTurn, _) | (_, Outcome::Nothing) => false,
            (_, Outcome::Value(..)) => true,
            (Self::Optional | Self::OptionalForNow | Self::Settled(_), Outcome::Absent) => true,
            (Self::Fallible(kind) | Self::Settled(kind), Outcome::Error(error)) => {
                (**error).type_id() == kind
            }
            _ => false,
        }
    }

    /// Whether a waiter that does not accept an outcome leads in its turn.
    fn may_lead(self) -> bool {
        !matches!(self, Self::OptionalForNow | Self::Settled(_))
    }
}

/// The outcome of a run, as its waiters see it.
#[derive(Debug)]
pub(crate) enum Outcome<V> {
    /// The value, which the waiters share, with what the leader's entry said about it. And the
    /// deadline of the entry: the time left counts from when a call takes it.
    Value(Arc<Keyless<V>>, u64),
    /// The closure said that there is no value.
    Absent,
    /// The closure's error.
    Error(Arc<dyn Any + Send + Sync>),
    /// Nothing that a waiter could use: a panic, a dropped future, a compute without a value.
    Nothing,
}

// Not derived: that would ask for values that are `Clone`.
impl<V> Clone for Outcome<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Value(shared, deadline) => Self::Value(Arc::clone(shared), *deadline),
            Self::Absent => Self::Absent,
            Self::Error(error) => Self::Error(Arc::clone(error)),
            Self::Nothing => Self::Nothing,
        }
    }
}

/// The answer to a waiter.
pub(crate) enum Verdict<K, V> {
    /// The run has ended with this.
    Ended(Outcome<V>),
    /// It is offered the lead: it claims the key again, and leads unless another call was faster.
    Offered,
    /// The load is no longer current: look the key up again.
    Retry,
    /// The load was overdue, and this newer one has taken its place: the call has joined that.
    ReplacedBy(Arc<Load<K, V>>),
    /// The load is overdue: look the key up again, and replace the load.
    Overdue,
}

/// What has revoked a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevokedBy {
    /// A write that does not depend on what was there: `insert`, `invalidate`.
    Overwrite,
    /// A write that has seen what was there: `remove`, a conditional write, `retain`.
    Conditional,
    /// A newer load, since this one was overdue.
    NewerLoad,
}

/// One load of a key, with the calls that wait for it.
pub(crate) struct Load<K, V> {
    pub(crate) hash: u64,
    key: LetGo<K>,
    /// The thread that runs the leader's code just now, or 0. Beside the lock, so that an async
    /// leader notes each poll cheaply. Relaxed: a thread compares it with its own number, which it
    /// has stored itself; the cycle's lock orders the rest.
    leader_thread: AtomicU64,
    /// Changes from true to false, once, under the shard's lock, or when the cache is gone.
    /// Relaxed: a holder of that lock reads it exactly; for all others it is a hint, and only
    /// `false` is final.
    current: AtomicBool,
    /// Whether a call has ever joined. Changes from false to true, once. Relaxed: a call joins in a
    /// hold of the shard's lock, or on behalf of the leader before that hands its run on. The
    /// leader reads it in a hold of that lock.
    joined: AtomicBool,
    /// Cache time at which the run began, or at which the lead was offered. Relaxed: the leader
    /// and its waiters have synchronized by the lock of the shard, or of the state.
    began: AtomicU64,
    /// For a reload: the entry's moment of refresh while it is under way; else `NEVER`. Relaxed:
    /// the leader alone uses it.
    reload_until: AtomicU64,
    /// When it becomes overdue, if it is listed with that moment; else `NEVER`. Relaxed: behind the
    /// lock of [`Timeouts`](super::Timeouts).
    pub(super) listed: AtomicU64,
    state: Mutex<LoadState<K, V>>,
}

pub(super) struct LoadState<K, V> {
    phase: Phase,
    revoked: Option<RevokedBy>,
    /// `None` until a call waits: mostly none ever does.
    waiters: Option<Box<Waiters<K, V>>>,
}

/// The state of a load, as in the table of the module docs of `flight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A guard is out.
    Led,
    /// This waiter has been offered the lead, and has yet to claim the key again.
    Offered(Ticket),
    /// No run is at work, and none will be: the load is no longer current.
    Ended,
}

impl<K, V> LoadState<K, V> {
    pub(super) fn waiters(&mut self) -> &mut Waiters<K, V> {
        self.waiters.get_or_insert_default()
    }

    /// Whether the load has ended, or was revoked.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Ended || self.revoked.is_some()
    }
}

impl<K, V> Load<K, V> {
    /// A load whose leader is the calling code, on the thread with the number `leader` if that is
    /// not 0; `began` is cache time.
    #[inline]
    pub(crate) fn new(hash: u64, key: K, leader: u64, began: u64) -> Self {
        Self {
            hash,
            key: LetGo::new(key),
            leader_thread: AtomicU64::new(leader),
            current: AtomicBool::new(true),
            joined: AtomicBool::new(false),
            began: AtomicU64::new(began),
            reload_until: AtomicU64::new(NEVER),
            listed: AtomicU64::new(NEVER),
            state: Mutex::new(LoadState {
                phase: Phase::Led,
                revoked: None,
                waiters: None,
            }),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> MutexGuard<'_, LoadState<K, V>> {
        self.state.lock()
    }

    pub(crate) fn key(&self) -> &K {
        self.key.get()
    }

    /// The thread that runs the leader's code just now, or is awake and about to; or 0.
    pub(crate) fn leader_thread(&self) -> u64 {
        self.leader_thread.load(Ordering::Relaxed)
    }

    /// Notes which thread runs the leader's code from now on.
    pub(crate) fn set_leader_thread(&self, thread: u64) {
        self.leader_thread.store(thread, Ordering::Relaxed);
    }

    /// Whether it is current. Without the shard's lock, `true` may be outdated.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.current.load(Ordering::Relaxed)
    }

    /// For the holder of the shard's lock.
    fn mark_outdated(&self) {
        self.current.store(false, Ordering::Relaxed);
    }

    /// What revoked it first.
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
        match self.reload_until.load(Ordering::Relaxed) {
            NEVER => None,
            until => Some(until),
        }
    }

    /// Whether this is a reload.
    pub(crate) fn is_reload(&self) -> bool {
        self.reload_until().is_some()
    }

    /// Notes that this is a reload; `NEVER`: that it is none.
    pub(crate) fn set_reload(&self, until: u64) {
        self.reload_until.store(until, Ordering::Relaxed);
    }

    /// A run begins.
    pub(crate) fn set_began(&self, now: u64) {
        self.began.store(now, Ordering::Relaxed);
    }

    /// Whether a call with this ticket may lead from now on. No leader is at work, and no other
    /// waiter was offered the lead; or the call takes turns, and may pass the waiter to which it
    /// was offered, which sleeps. Under the shard's lock, of a current load.
    /// [`take_lead`](Self::take_lead) follows in the same hold.
    pub(crate) fn is_free_for(&self, ticket: Option<Ticket>, want: Want) -> bool {
        let mut state = self.state();
        match state.phase {
            Phase::Led | Phase::Ended => false,
            Phase::Offered(to) if Some(to) == ticket => true,
            Phase::Offered(to) => want == Want::OwnTurn && state.waiters().turns.may_be_passed(to),
        }
    }

    /// A run of the call with this ticket, for which the load is [free](Self::is_free_for), begins
    /// at `now`. False if the load is free no more: its waiter has heard that it leads.
    pub(crate) fn take_lead(&self, ticket: Option<Ticket>, now: u64) -> bool {
        let mut state = self.state();
        if let Phase::Offered(to) = state.phase {
            if Some(to) != ticket && !state.waiters().turns.pass(to) {
                return false;
            }
        }
        if let Some(ticket) = ticket {
            state.waiters().turns.end_call(ticket);
        }
        state.phase = Phase::Led;
        self.set_began(now);
        true
    }

    /// A waiter that has heard that it leads has other work first, which may load the key: it is
    /// called no more. True if the lead is offered to it: then the load is to be revoked in the
    /// same hold of the shard's lock.
    pub(crate) fn step_aside(&self, ticket: Ticket) -> bool {
        let mut state = self.state();
        state.waiters().turns.end_call(ticket);
        state.phase == Phase::Offered(ticket)
    }

    /// Whether a waiter would share a value.
    pub(crate) fn has_sharers(&self) -> bool {
        match &self.state().waiters {
            Some(waiters) => waiters.have(|want| want != Want::OwnTurn),
            None => false,
        }
    }

    /// Adds a waiter. Under the shard's lock, while the load is current; or on behalf of the
    /// leader, before it hands its run to the code that will end it.
    pub(crate) fn join(&self, ticket: Ticket, want: Want) {
        self.note_joined();
        self.state().waiters().add(ticket, want);
    }

    /// From now on, the end of a run looks for calls that wait.
    pub(super) fn note_joined(&self) {
        self.joined.store(true, Ordering::Relaxed);
    }

    /// The waiter's call has finished its other work: from now on it waits like any other.
    pub(crate) fn wait_now(&self, ticket: Ticket) {
        self.state().waiters().wait_now(ticket);
    }

    /// The verdict for a waiter, which then no longer waits; `None` as long as it has to wait, for
    /// which its waker is kept. A waiter that hears of its offer counts as the leader, on the
    /// calling thread, from now on; it [takes the lead](Self::take_lead) when it claims the key
    /// again. If another call has passed it meanwhile, it is the next leader.
    pub(crate) fn poll(&self, ticket: Ticket, cx: &Context<'_>) -> Option<Verdict<K, V>> {
        let mut fresh = Some(CallWaker::of(cx));
        loop {
            let mut state = self.state();
            let waiters = state.waiters();
            if let Some(verdict) = waiters.take_told(ticket) {
                if let Verdict::Offered = verdict {
                    waiters.turns.hears(ticket, thread_number());
                    if state.phase == Phase::Offered(ticket) {
                        self.set_leader_thread(thread_number());
                    }
                }
                return Some(verdict);
            }
            let former = waiters.waker(ticket)?.replace(fresh.take()?);
            drop(state);
            // With no lock held: a destructor may take long, and wait by the same waker. So look
            // once more.
            drop(former?);
        }
    }

    /// A waiter gives up. True if it had been offered the lead: then the caller has to end that
    /// run.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        let mut state = self.state();
        let leads = state.phase == Phase::Offered(ticket);
        if leads {
            state.phase = Phase::Led;
        }
        let waiters = state.waiters();
        waiters.turns.end_call(ticket);
        let waker = waiters.remove(ticket);
        let told = waiters.take_told(ticket);
        let next = waiters.next_turn_after(ticket);
        drop(state);
        drop(waker);
        if let Some(Verdict::ReplacedBy(newer)) = &told {
            // It offers no lead to such a call.
            newer.leave(ticket);
        }
        let_go(told);
        wake_all(next);
        leads
    }

    /// The load is no longer current. Under the shard's lock;
    /// [`release_waiters`](Self::release_waiters) follows when the lock was released.
    pub(crate) fn revoke(&self, by: RevokedBy) {
        self.mark_outdated();
        self.state().revoked.get_or_insert(by);
    }

    /// The load is overdue, and this newer one, which has yet to run, takes its place. Under the
    /// shard's lock; [`revoke`](Self::revoke) follows.
    pub(crate) fn replace_by(&self, newer: &Arc<Self>) {
        if let Some(waiters) = &mut self.state().waiters {
            waiters.replaced_by = Some(Arc::clone(newer));
        }
    }

    /// Tells waiters of a revoked load to look again: the first that waits for a turn; and all
    /// others, if no leader is at work or the load is overdue. With no lock held.
    pub(crate) fn release_waiters(&self) -> AfterRun<K, V> {
        let mut state = self.state();
        let mut all = state.revoked == Some(RevokedBy::NewerLoad);
        let phase = state.phase;
        let mut wakers = Vec::new();
        let (mut next, mut before) = (None, None);
        if let Phase::Offered(ticket) = phase {
            state.phase = Phase::Ended;
            // The call may have heard of it, and does not lead after all.
            self.set_leader_thread(0);
            all = true;
            wakers.extend(state.waiters().call_off(ticket));
        }
        if let Some(waiters) = &mut state.waiters {
            before = waiters.turns.take_before();
            let newer = waiters.replaced_by.take();
            if all {
                waiters.tell(&mut wakers, |ticket, want| match (want, &newer) {
                    (Want::OwnTurn, _) => None,
                    // It may be polled late: when that has ended, too.
                    (Want::Settled(_), Some(newer)) => {
                        newer.join(ticket, want);
                        Some(Verdict::ReplacedBy(Arc::clone(newer)))
                    }
                    _ => Some(Verdict::Retry),
                });
            }
            next = waiters.tell_next_turn();
        }
        drop(state);
        AfterRun {
            wakers,
            next,
            before,
        }
    }

    /// Wakes all that wait, so that they look whether the load is overdue. With no lock held.
    pub(crate) fn wake_waiters(&self) {
        let mut wakers = Vec::new();
        if let Some(waiters) = &mut self.state().waiters {
            waiters.take_wakers(&mut wakers);
        }
        wake_all(wakers);
    }

    /// Whether a run wakes the calls that wait once this is overdue.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed) != NEVER
    }

    /// Whether any call waits.
    pub(crate) fn has_waiters(&self) -> bool {
        match &self.state().waiters {
            Some(waiters) => waiters.have(|_| true),
            None => false,
        }
    }

    /// The run has made its write. Under the shard's lock, in the hold that made it. Unless calls
    /// wait for their turn, the load is no longer current. True if calls wait: then the run has to
    /// be [ended](Self::publish_end).
    #[inline]
    pub(crate) fn seal(&self) -> bool {
        if !self.joined.load(Ordering::Relaxed) {
            self.mark_outdated();
            return false;
        }
        let mut state = self.state();
        let waiters = state.waiters();
        if !waiters.have(|want| want == Want::OwnTurn) {
            self.mark_outdated();
        }
        waiters.have(|_| true) || waiters.turns.has_before()
    }

    /// The leader's run has ended: publishes its outcome and finds the next leader. If there is
    /// none, the load is no longer current. Under the shard's lock, unless it was not current
    /// before or the cache is gone. What it returns is to be [released](AfterRun::release) with no
    /// lock held.
    pub(crate) fn publish_end(&self, outcome: &Outcome<V>, now: u64) -> AfterRun<K, V> {
        let current = self.is_current();
        let mut state = self.state();
        state.phase = Phase::Ended;
        self.leader_thread.store(0, Ordering::Relaxed);
        let mut wakers = Vec::new();
        let (mut next, mut before) = (None, None);
        if let Some(waiters) = &mut state.waiters {
            before = waiters.turns.take_before();
            waiters.tell(&mut wakers, |_, want| {
                if want.accepts(outcome) {
                    Some(Verdict::Ended(outcome.clone()))
                } else if want == Want::OwnTurn || (current && want.may_lead()) {
                    None
                } else {
                    Some(Verdict::Retry)
                }
            });
            if !current {
                next = waiters.tell_next_turn();
            } else if let Some((ticket, thread, waker)) = waiters.offer() {
                next = waker;
                state.phase = Phase::Offered(ticket);
                self.set_leader_thread(thread);
                self.set_began(now);
            }
        }
        if state.phase == Phase::Ended {
            self.mark_outdated();
        }
        drop(state);
        AfterRun {
            wakers,
            next,
            before,
        }
    }
}

/// What follows the end of a run, or the revocation of a load.
#[must_use]
pub(crate) struct AfterRun<K, V> {
    wakers: Vec<CallWaker>,
    /// That of the call whose turn comes next: often the only one.
    next: Option<CallWaker>,
    /// The load whose computes waited [behind](super::turns) this one.
    before: Option<Arc<Load<K, V>>>,
}

impl<K, V> AfterRun<K, V> {
    /// Wakes the waiters. With no lock held.
    pub(crate) fn release(self) {
        wake_all(self.wakers());
    }

    /// Their wakers, for a caller that wakes the waiters of several loads. With no lock held.
    pub(super) fn wakers(self) -> impl Iterator<Item = CallWaker> {
        let behind = self.before.and_then(|before| before.end_turn());
        self.wakers.into_iter().chain(self.next).chain(behind)
    }
}

impl<K: Send + Sync, V: Send + Sync> WaitTarget for Load<K, V> {
    fn awaited_thread(&self, ticket: Ticket) -> Option<u64> {
        let mut state = self.state();
        let waiters = state.waiters();
        waiters.waker(ticket)?;
        // Under the lock, as in `publish_end`: it may hand the lead to this very waiter.
        let leader = if waiters.wants_turn(ticket) && !self.is_current() {
            waiters.turns.newer()?.leader_thread()
        } else {
            self.leader_thread()
        };
        drop(state);
        match leader {
            0 => None,
            thread => Some(thread),
        }
    }

    fn falls_asleep(&self, ticket: Ticket) {
        self.state().waiters().falls_asleep(ticket);
    }
}
