//! Who runs passes: writers, the scheduler, and whoever asks for all of it.
//!
//! Whoever runs clears the requests first, then drains, then arranges the next run (waking 1).

use super::goal::Goal;
use super::pass::RESIZE_UNITS;
use super::{
    LIMIT, Maintenance, PATIENCE, Plan, RUN_BUDGET, State, Sweep, UNDELIVERED, WriteOutcome, waking,
};
use crate::buffer::read::{Offer, ReadBuffer};
use crate::contain::contain;
use crate::map::Garbage;
use crate::node::NodePtr;
use crate::notify;
use crate::reclaim::{self, Pin, Ready, Retire};
use crate::scheduler::{Job, Task, Waker};
use crate::shared::Shared;
use crate::sync::{MutexGuard, nap, unlock_fairly};
use crate::time::{self, NEVER};
use std::cell::OnceCell;
use std::sync::Weak;
use std::time::{Duration, Instant};

/// How long a run delivers although something is due, in nanoseconds: a few hundred calls of a
/// quick listener.
pub(super) const SLICE: u64 = 100_000;

/// Passes of a run after which a thread that serves several caches looks whether another one is
/// due.
const TURN: usize = 16;

/// For how long `run_pending_tasks` waits for the destructors that others run, and for how long at
/// first, and at most, before it looks again.
const PATIENT: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(5);

/// How often it waits: what a destructor takes out has a destructor, too.
const WAITS: usize = 3;

/// Passes of a run that goes on for a table that grows or shrinks alone.
const MOVES: usize = 64;

/// How often beyond what waited a run looks for further notifications.
pub(super) const BEYOND: u64 = 64;

/// How much of the user's code a caller that helps may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum May {
    /// None: it holds a pin.
    Nothing,
    /// Destructors.
    Free,
    /// Destructors, and listeners where nobody else runs them.
    Deliver,
}

impl<K, V> Maintenance<K, V> {
    /// To be called once, when the cache has its address.
    pub(crate) fn enlist(&self, me: Weak<dyn Task>) {
        self.waking
            .waker()
            .enlist(Weak::clone(&me), Job::Maintenance);
        _ = self.me.set(me);
    }

    /// After each write: wakes whom it concerns, and helps where a bound is reached. Without any
    /// lock or pin held.
    #[inline(always)]
    pub(crate) fn after_write(&self, shared: &Shared<K, V>, outcome: WriteOutcome) {
        self.after_change(shared, outcome, May::Deliver);
    }

    /// After a read that moved a deadline and still holds its pin: as after a write, but
    /// destructors and listeners are left to others.
    pub(crate) fn after_read(&self, shared: &Shared<K, V>, outcome: WriteOutcome) {
        self.after_change(shared, outcome, May::Nothing);
    }

    // Always inlined: after nearly all writes nothing is to be done, and to find that out takes
    // less than to hand all this over.
    #[inline(always)]
    fn after_change(&self, shared: &Shared<K, V>, outcome: WriteOutcome, may: May) {
        let soon = self.leaves_work(&outcome) && self.waking.is_unrequested();
        if self.is_late_for(&outcome) || soon || self.needs_help(shared, &outcome) {
            self.schedule_followup(shared, outcome, may);
        }
    }

    /// What follows a write after which something is to be done.
    #[cold]
    #[inline(never)]
    fn schedule_followup(&self, shared: &Shared<K, V>, outcome: WriteOutcome, may: May) {
        if let Some((flush, now)) = self.flush_of(&outcome) {
            self.waking.request_by(flush, now);
        }
        if self.leaves_work(&outcome) {
            self.waking.request_soon(&shared.clock);
        }
        if self.needs_help(shared, &outcome) {
            self.help(shared, outcome.shard, outcome.pending, outcome.now, may);
        }
    }

    /// When the entry that was written is flushed if it stays, and the time of the write.
    #[inline(always)]
    fn flush_of(&self, outcome: &WriteOutcome) -> Option<(u64, u64)> {
        let now = outcome.now.filter(|_| outcome.deadline != NEVER)?;
        Some((self.spans.flush_time(outcome.deadline, now), now))
    }

    /// Whether no run is arranged that comes when the entry that was written is flushed, or before.
    #[inline(always)]
    fn is_late_for(&self, outcome: &WriteOutcome) -> bool {
        let Some(now) = outcome.now.filter(|_| outcome.deadline != NEVER) else {
            return false;
        };
        let late = |moment| self.waking.is_late_for(moment, now);
        // No entry is flushed before its deadline: if a run comes until then, as mostly, the rest
        // need not be worked out.
        late(outcome.deadline) && late(self.spans.flush_time(outcome.deadline, now))
    }

    /// Whether the write left something to tell, to free or to evict.
    #[inline(always)]
    fn leaves_work(&self, outcome: &WriteOutcome) -> bool {
        outcome.left || self.reads.is_some()
    }

    /// Whether the writer has to run a pass.
    #[inline(always)]
    fn needs_help(&self, shared: &Shared<K, V>, outcome: &WriteOutcome) -> bool {
        outcome.pending >= self.enough || self.is_due_for_callers(shared, outcome.now)
    }

    /// Whether expiry is due and nobody but a caller will see to it.
    #[inline]
    fn is_due_for_callers(&self, shared: &Shared<K, V>, now: Option<u64>) -> bool {
        self.waking.is_up_to_callers()
            && self.waking.is_armed()
            && self
                .waking
                .is_due(now.unwrap_or_else(|| shared.clock.now()))
    }

    /// A small pass by a caller, unless somebody else runs one and there is room left; without any
    /// pin held if it `may` run more than nothing.
    fn help(
        &self,
        shared: &Shared<K, V>,
        shard: usize,
        pending: usize,
        now: Option<u64>,
        may: May,
    ) {
        let mut state = if pending >= LIMIT {
            self.state.lock()
        } else if self.status.require()
            && let Some(state) = self.state.try_lock()
        {
            state
        } else {
            return;
        };
        let alone = self.waking.is_up_to_callers();
        // Writers who wait for each other bring more than those can take out whose work that is: so
        // each takes part.
        let expire = pending >= LIMIT || self.is_due_for_callers(shared, now);
        let was_armed = self.waking.is_armed();
        let _begun = alone.then(|| self.waking.begin());
        let plan = Plan {
            budget: pending + self.caller_budget,
            own: Some(shard),
            drain: true,
            expire,
            evict: true,
            resize: false,
            sweep: Sweep::No,
            seal: false,
        };
        let found = state.excess();
        let mut more = self.pass(shared, &mut state, plan);
        let debt = state.excess().saturating_sub(found);
        if debt > 0 && state.is_far_over() {
            (state, more) = self.repay(shared, state, debt, plan.repaying(), may);
        }
        if alone {
            let next = state.wheel.next_deadline();
            let timed = was_armed || next.is_some();
            let now = if timed { shared.clock.now() } else { 0 };
            // What the budget left over, batches included, is due now: the next caller goes on with
            // it.
            let next = if more && timed { Some(now) } else { next };
            let clock = || if timed { now } else { shared.clock.now() };
            self.waking.end(next, None, clock);
        }
        if may == May::Nothing {
            return;
        }
        // As many as came, and some of those that were left over: never a whole crowd in one call.
        let most = state.applied + self.caller_budget;
        let ready = state.retired.take_ready(most);
        drop(state);
        self.free(shared, ready);
        if may == May::Deliver
            && alone
            && self.notifier.waiting() > UNDELIVERED
            && !notify::inside_listener()
        {
            self.notifier
                .deliver(|| false, &mut |nodes| self.take_back(nodes));
        }
    }

    /// Passes of a caller until what it has added to the excess is gone, or the weight is no longer
    /// far over, or nothing more will go. With the lock again, and whether the last pass left work.
    ///
    /// For where as many victims as entries came in were not enough, since they weigh less: what a
    /// pass has added goes before its caller does, or the weight would run away from the bound.
    pub(super) fn repay<'a>(
        &'a self,
        shared: &Shared<K, V>,
        mut state: MutexGuard<'a, State<K, V>>,
        mut debt: u64,
        plan: Plan,
        may: May,
    ) -> (MutexGuard<'a, State<K, V>>, bool) {
        let most = if may >= May::Free { 2 * RUN_BUDGET } else { 0 };
        loop {
            let ready = state.retired.take_ready(most);
            unlock_fairly(state);
            self.free(shared, ready);
            state = self.state.lock();
            let before = state.excess();
            let more = self.pass(shared, &mut state, plan);
            let paid = before.saturating_sub(state.excess());
            debt = debt.saturating_sub(paid);
            if paid == 0 || debt == 0 || !state.is_far_over() {
                return (state, more);
            }
        }
    }

    /// Offers a read. If the ring is full, makes room unless somebody else is at it, and offers
    /// once more.
    #[inline(never)]
    pub(super) fn offer_read(&self, reads: &ReadBuffer<K, V>, node: NodePtr<K, V>, pin: &Pin) {
        if reads.offer(node, pin) != Offer::Full {
            return;
        }
        if let Some(mut state) = self.state.try_lock() {
            self.take_reads(&mut state);
        }
        _ = reads.offer(node, pin);
    }

    /// A reader found an entry that is due. Where nobody wakes, it does a small part of the expiry;
    /// listeners it leaves to writers.
    #[cold]
    pub(crate) fn met_expired(&self, shared: &Shared<K, V>, hash: u64, now: u64) {
        if self.is_due_for_callers(shared, Some(now)) {
            self.help(shared, shared.map.shard_of(hash), 0, Some(now), May::Free);
        }
    }

    /// Delivered nodes come back to be freed.
    fn take_back(&self, nodes: &mut Vec<NodePtr<K, V>>) {
        let mut state = self.state.lock();
        for node in nodes.drain(..) {
            state.retired.retire(Garbage::Node(node));
        }
    }

    /// One pass of a run, with the lock given up fairly and the freeing done after it. `None` if
    /// nothing is left to do, else what `judge` makes of what is.
    pub(super) fn run_pass<T>(
        &self,
        shared: &Shared<K, V>,
        plan: Plan,
        judge: impl FnOnce(&State<K, V>) -> T,
    ) -> Option<T> {
        let mut state = self.state.lock();
        let more = self.pass(shared, &mut state, plan);
        let judged = more.then(|| judge(&state));
        let ready = state.retired.take_ready(2 * RUN_BUDGET);
        unlock_fairly(state);
        self.free(shared, ready);
        judged
    }

    /// What a run that begins now has to get done.
    fn goal(&self, shared: &Shared<K, V>) -> Goal {
        Goal::new(self.state.lock().drained, shared.map.shards())
    }

    /// Passes until the goal is reached.
    fn run_all(&self, shared: &Shared<K, V>, mut plan: Plan) {
        let mut goal = self.goal(shared);
        while self.run_pass(shared, plan, |state| goal.is_reached(state, plan)) == Some(false) {
            // The first pass has marked what is due at this very moment; once is enough.
            plan.sweep = Sweep::No;
        }
    }

    /// Runs the destructors of what nobody can reach any more, and gives its memory back. With no
    /// lock held.
    pub(super) fn free(&self, shared: &Shared<K, V>, mut ready: Ready<Garbage<K, V>>) {
        if ready.is_empty() {
            return;
        }
        shared.map.take_back(ready.free(|| shared.map.returning()));
        // If somebody else is there, it is not worth waiting for.
        if let Some(mut state) = self.state.try_lock() {
            state.retired.reuse(ready);
        }
    }

    /// Frees what can be freed: some rounds of grace periods and sweeps.
    fn run_reclaim(&self, shared: &Shared<K, V>) {
        if reclaim::is_freeing() {
            return;
        }
        let plan = Plan {
            expire: false,
            ..Plan::RUN
        };
        // One pass begins a grace period; the next sees it over, if nobody stands in the way, and
        // sweeps. What the destructors of these values put in and out again takes two more, and a
        // reader that happens to be there may cost one.
        for _ in 0..8 {
            self.run_all(shared, plan);
            if self.state.lock().retired.is_empty() {
                return;
            }
        }
        let ready = self.state.lock().retired.ready();
        for _ in 0..ready.div_ceil(2 * RUN_BUDGET) {
            self.run_pass(shared, plan, |_| ());
        }
    }

    /// Brings tables that grow or shrink to the end of what they have begun by now.
    fn run_resize(&self, shared: &Shared<K, V>) {
        for _ in 0..shared.map.units_left().div_ceil(RESIZE_UNITS as u64) {
            self.run_all(shared, Plan::RUN);
            if !shared.map.is_resizing() {
                return;
            }
        }
    }

    /// `run_pending_tasks`: all that is due, all notifications for it, and the memory that nobody
    /// reads.
    pub(crate) fn finish(&self, shared: &Shared<K, V>) {
        let _begun = self.waking.begin();
        self.run_all(
            shared,
            Plan {
                sweep: Sweep::Yes,
                ..Plan::RUN
            },
        );
        if notify::inside_listener() {
            // Never waits: whoever delivers for this cache, perhaps this very thread further up,
            // goes on with it.
            self.notifier
                .deliver(|| true, &mut |nodes| self.take_back(nodes));
        } else {
            self.notifier
                .deliver_all(&mut |nodes| self.take_back(nodes));
            if self.notifier.waiting() > 0 {
                // What others have had to tell meanwhile is not for this call to wait for.
                self.waking.request_soon(&shared.clock);
            }
        }
        self.run_resize(shared);
        self.run_reclaim(shared);
        // Before the wait: else nobody would be woken for what is due meanwhile.
        self.rearm(shared);
        let until = Instant::now() + PATIENT;
        for _ in 0..WAITS {
            if !self.await_freed(until) {
                return;
            }
            // What those destructors put in and out again.
            self.run_reclaim(shared);
            self.rearm(shared);
        }
    }

    /// Waits until what others are freeing is freed: the values that a run of the scheduler has
    /// taken a moment ago are no longer in any list, and not dropped yet. False if there was
    /// nothing to wait for, or it was in vain.
    ///
    /// Not for ever, since their destructors may wait for this very thread.
    fn await_freed(&self, until: Instant) -> bool {
        if reclaim::is_freeing() || notify::inside_listener() {
            return false;
        }
        let away = self.state.lock().retired.away();
        let mut pause: Option<Duration> = None;
        while !away.is_over() {
            if Instant::now() >= until {
                return false;
            }
            let next = pause.map_or(NAP, |last| (last * 2).min(LONGEST_NAP));
            nap(next);
            pause = Some(next);
        }
        pause.is_some()
    }

    /// The scheduler's run: all that is due, or a good part of it if other caches may wait for the
    /// thread; says how long it is until the next.
    pub(crate) fn run_due(&self, shared: &Shared<K, V>) -> Option<Duration> {
        // The last beginning, held until the run has ended.
        let mut _begun = self.waking.begin();
        let mut goal = self.goal(shared);
        let mut plan = Plan {
            sweep: Sweep::IfCheap,
            ..Plan::RUN
        };
        for pass in 1.. {
            let reached = self.run_pass(shared, plan, |state| goal.is_reached(state, plan));
            plan.sweep = Sweep::No;
            let stopped = self.deliver_from_run(shared);
            if stopped {
                // What was requested for meanwhile is what the next pass does.
                _begun = self.waking.begin();
            }
            if reached.is_none() && !stopped {
                break;
            }
            // A thread that others need, too, is not this cache's for ever: an alarm's, or a
            // driver's of several caches.
            let enough = match reached {
                // Nothing but a table's move may be left, of which a pass does little.
                Some(true) => pass >= MOVES || !shared.map.is_resizing(),
                Some(false) => false,
                None => pass >= TURN,
            };
            if enough || (pass >= TURN && self.waking.waker().is_shared()) {
                // The others first; this cache goes on behind those that have waited for longer.
                let next = self.state.lock().wheel.next_deadline();
                let at_once = Some(Duration::ZERO);
                return self.waking.end(next, at_once, || shared.clock.now());
            }
        }
        self.run_reclaim(shared);
        self.rearm(shared)
    }

    /// Arranges the next run.
    fn rearm(&self, shared: &Shared<K, V>) -> Option<Duration> {
        let mut state = self.state.lock();
        // What came since the requests were cleared has requested anew, or is in the wheel by now.
        let next = state.wheel.next_deadline();
        let moves = shared.map.is_resizing();
        let waits = !state.retired.is_empty();
        state.waited = if waits && !moves {
            state.waited.saturating_add(1)
        } else {
            0
        };
        let retry = if moves {
            Some(waking::LINGER)
        } else {
            (waits && state.waited <= PATIENCE).then(|| waking::LINGER * (1 << state.waited))
        };
        drop(state);
        self.waking.end(next, retry, || shared.clock.now())
    }

    /// When the wheel has work next: `None` if nothing is scheduled, zero if something is due.
    pub(crate) fn next_in(&self, shared: &Shared<K, V>) -> Option<Duration> {
        let drain = Plan {
            expire: false,
            resize: false,
            seal: false,
            ..Plan::RUN
        };
        self.run_all(shared, drain);
        if self.notifier.waiting() > 0 {
            return Some(Duration::ZERO);
        }
        let mut state = self.state.lock();
        if state.wheel.is_empty() {
            return None;
        }
        let now = shared.clock.now();
        state.wheel.advance(now);
        let next = state.wheel.next_deadline()?;
        drop(state);
        time::time_left(now, next).or(Some(Duration::ZERO))
    }

    /// Delivers on this thread, or on the cache's courier if this thread serves other caches too.
    /// True if it stopped because something is due meanwhile.
    pub(super) fn deliver_from_run(&self, shared: &Shared<K, V>) -> bool {
        if !self.notifier.has_listener() || self.notifier.waiting() == 0 {
            return false;
        }
        if self.waking.waker().is_shared()
            && let Some(me) = self.me.get()
        {
            let courier = self.courier.get_or_init(|| {
                let courier = Waker::courier(shared.name.as_deref());
                courier.enlist(Weak::clone(me), Job::Delivery);
                courier
            });
            courier.wake(Duration::ZERO);
            if !courier.is_none() {
                return false;
            }
        }
        // A listener that takes its time must not make other entries late: neither those in the
        // wheel nor those requested for since. One that is quick hears of a crowd pass by pass,
        // while the nodes are still in the processor's cache.
        let next = self.state.lock().wheel.next_deadline().unwrap_or(NEVER);
        let began = OnceCell::new();
        // What others post meanwhile is heard along with it, up to a bound.
        let mut looks = self.notifier.waiting() / notify::CHUNK as u64 + BEYOND;
        let go_on = || {
            looks -= 1;
            if looks == 0 {
                return false;
            }
            if next == NEVER && !self.waking.is_armed() {
                return true;
            }
            let now = shared.clock.now();
            let since = now.wrapping_sub(*began.get_or_init(|| now));
            since < SLICE || !time::is_due(now, next) && !self.waking.is_due(now)
        };
        self.notifier
            .deliver(go_on, &mut |nodes| self.take_back(nodes))
    }

    /// The courier's work.
    pub(crate) fn deliver(&self, shared: &Shared<K, V>) {
        self.notifier
            .deliver(|| true, &mut |nodes| self.take_back(nodes));
        self.waking.request_soon(&shared.clock);
    }

    /// The last handle is gone: tells what was removed by then, and frees everything.
    pub(crate) fn close(&mut self, shared: &mut Shared<K, V>) {
        self.waking.waker().leave();
        if let Some(courier) = self.courier.get() {
            courier.leave();
        }
        // What is over the bound is alive, and what is alive now is dropped untold.
        let drain = Plan {
            expire: false,
            evict: false,
            resize: false,
            ..Plan::RUN
        };
        // A ticker that panics has been reported and must not keep the rest from being freed.
        while contain(|| self.run_pass(shared, drain, |_| ())).is_none_or(|left| left.is_some()) {}
        self.notifier
            .deliver(|| true, &mut |nodes| self.take_back(nodes));
        let state = self.state.get_mut();
        // Nodes without a destructor go with the slabs' memory.
        shared.map.take_apart(|node| {
            if Garbage::<K, V>::RUNS_USER_CODE {
                state.retired.retire(Garbage::Node(node));
            }
        });
        let all = state.retired.take_all();
        self.free(shared, all);
    }
}
