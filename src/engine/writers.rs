//! The maintenance work of writers and readers, after their calls.
//!
//! After each write the writer checks, with a few loads, whether a run has to be requested
//! (`wants_run`), and whether it has to *help* (`wants_help`). A call that helps runs one pass over
//! the part of its shard, and a writer does more if there is more:
//!
//! | the call | helps if | the pass also expires | more work | it waits for the lock |
//! |---|---|---|---|---|
//! | a write | its batch has reached the soft limit; or a run is due for callers | if a run is due, or the batch is full | in place of the run that is due: passes over the other parts; more evictions, if the cache is over its bound | if the batch is full; at most 50 ms if the order of use is exact |
//! | a removal, or a write that may evict, where callers tell the listener | always | as a write | as a write; then it calls the listener | yes |
//! | where no thread wakes the cache, each [`VAIN_REMOVALS_PER_PASS`]th removal that finds nothing | always | as a write | as a write | as a write |
//! | a read that has found an entry due | a run is due for callers | yes | calls the listener, if it has removed an entry and callers do that; frees; where callers do not, offers a delivery | only behind the listener, to give back what was told |
//! | a read that has moved a deadline under its shard's lock | the batch has reached the soft limit | no | none: it holds a pin | no |
//!
//! A run is *due for callers* if its moment has come, and no thread wakes the cache; or if the
//! scheduler thread is late by far. A destructor or a ticker of any cache may hold it up. DESIGN.md
//! has a figure of the functions of a writer.
//!
//! # Where no thread wakes the cache
//!
//! The listener hears of a removal, and the value is dropped, some passes later, and only helping
//! calls, `run_pending_tasks`, and calls that bring the cache up to date run passes. Each sixteenth
//! pass of a writer begins a grace period for whatever was retired, however little. Hits free
//! nothing.
//!
//! # When writers wait
//!
//! If writers are faster than passes, events wait in the shards' batches, and removed values wait
//! to be freed. Both have a limit that follows from the bound ([`most_events`], [`most_unfreed`]).
//! There is one rule: a writer that finds its own batch, or the values, over the limit runs passes
//! until they are within it. It waits for the maintenance lock if it has to. For values that a
//! reader holds it waits 8 ms at most. It first yields its processor: the holder of the lock may
//! have been preempted in the middle of a pass.
//!
//! If reads move deadlines to earlier ones while a pass is held up, their events go beyond the
//! limit. It is one for each node at most, since one event tells of all moves until it is taken.

use super::delivery::CALLS_PER_TURN;
use super::freeing::FREED_PER_RUN_PASS;
use super::pass::{Drain, Evict, Passed, Plan, RUN_BUDGET};
use super::waking::Run;
use super::{Engine, Part, State};
use crate::map::Shard;
use crate::node::NodePtr;
use crate::reclaim::Pin;
use crate::sync::{MutexGuard, Ordering, unlock_fairly, yield_now};
use crate::time::{self, NEVER};
use std::time::Duration;

/// Budget of a pass run by a caller. The events of the caller's own shard are free; events of other
/// shards count.
pub(super) const CALLER_BUDGET: usize = 16;

/// Budget of such a pass in a bounded cache. With less, more removals would wait in batches, while
/// their weight still forces evictions.
pub(super) const BOUNDED_CALLER_BUDGET: usize = 32;

/// This many events in a shard's batch make the writer run a pass.
pub(super) const BATCH_SOFT_LIMIT: usize = 48;

/// The soft limits of all shards add up to at most 1/16 of the bound. Batches are mostly far from
/// full: what waits in them is about 3 percent of the bound.
pub(super) const SOFT_LIMITS_PER_BOUND: u64 = 16;

/// At most this many events of writers wait in a shard's batch, whatever the bound.
pub(super) const BATCH_HARD_LIMIT: usize = 1024;

/// How many entries a cache may hold over its bound, beside a quarter of the bound.
const MIN_EXCESS: u64 = 256;

/// How many removed values may be unfreed, beside a fifth of the bound.
const MIN_UNFREED: u64 = 640;

/// How many events in a batch make its writer run a pass: fewer where a shard has few entries.
pub(super) fn batch_soft_limit(max_capacity: Option<u64>, shards: usize) -> usize {
    let share = max_capacity.unwrap_or(u64::MAX) / (shards as u64 * SOFT_LIMITS_PER_BOUND);
    usize::try_from(share).map_or(BATCH_SOFT_LIMIT, |share| share.clamp(1, BATCH_SOFT_LIMIT))
}

/// How many events may wait in a shard's batch before its writers run passes.
///
/// A pass takes at most what all batches hold, and they may fill up again before it has evicted for
/// what it took. So twice as many events in all shards are a quarter of the bound, and
/// [`MIN_EXCESS`]: the ceiling that `max_capacity` documents, without a count of all events.
pub(super) fn most_events(max_capacity: Option<u64>, shards: usize) -> usize {
    let Some(max) = max_capacity else {
        return BATCH_HARD_LIMIT;
    };
    let events = (max / 4 + MIN_EXCESS) / (2 * shards as u64);
    usize::try_from(events)
        .unwrap_or(BATCH_HARD_LIMIT)
        .clamp(1, BATCH_HARD_LIMIT)
}

/// How many removed values may be unfreed before writers run passes. No limit without a bound.
pub(super) fn most_unfreed(max_capacity: Option<u64>) -> u64 {
    match max_capacity {
        Some(max) => max / 5 + MIN_UNFREED,
        None => u64::MAX,
    }
}

/// A writer that finds the heaviest part at work evicts from its own if the cache is over its bound
/// by more than this part of it.
const PATIENCE: u64 = 16;

/// How often a writer yields its processor before it waits for the maintenance lock.
const YIELDS_BEFORE_LOCK: usize = 64;

/// For an exact order of use, a writer waits so long for another thread's pass.
const MAX_WAIT_FOR_ORDER: Duration = Duration::from_millis(50);

/// Where no thread wakes the cache, so many removals that find nothing make one of them run a pass.
const VAIN_REMOVALS_PER_PASS: u32 = 32;

/// The facts about a write that maintenance needs: for `Engine::after_write`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct WriteOutcome {
    /// Which shard was written to.
    pub(crate) shard: usize,
    /// How many events wait in that shard's batch.
    pub(crate) buffered: usize,
    /// The deadline that came in, or `NEVER`.
    pub(crate) deadline: u64,
    /// Cache time of the write; [`NEVER`] if the clock was not read for it. Where a deadline came
    /// in, it was.
    pub(crate) now: u64,
    /// Not 0 if a node left the map or was refused.
    // As wide as the others: a copy of the padding behind a narrow one takes four instructions.
    pub(crate) removed: usize,
}

impl WriteOutcome {
    /// The outcome of a change of one entry: `deadline` came in at `now`.
    #[inline]
    pub(crate) fn of_change<K, V>(shard: &Shard<'_, K, V>, deadline: u64, now: u64) -> Self {
        Self {
            shard: shard.number(),
            buffered: shard.buffered(),
            deadline,
            now,
            removed: 0,
        }
    }

    /// The outcome of removals, the last one at `now`; [`NEVER`] if the clock was not read for it.
    #[inline]
    pub(crate) fn of_removal<K, V>(shard: &Shard<'_, K, V>, now: u64) -> Self {
        Self {
            removed: 1,
            ..Self::of_change(shard, NEVER, now)
        }
    }
}

impl<K, V> Engine<K, V> {
    /// After each write: requests a run if need be, and helps where a limit is reached. The caller
    /// holds neither a lock nor a pin.
    // Always inlined: nearly all writes leave nothing to do, and the check is cheaper than a call
    // with these arguments.
    #[inline(always)]
    pub(crate) fn after_write(&self, outcome: WriteOutcome) {
        if self.wants_run(&outcome) || self.wants_help(&outcome) {
            self.follow_up(outcome);
        }
    }

    /// Whether a run has to be requested: none is arranged early enough for the written entry, or
    /// for what else the write may have left.
    #[inline]
    fn wants_run(&self, outcome: &WriteOutcome) -> bool {
        let lacks_run = |moment| self.waking.lacks_run_by(outcome.now, moment);
        // First the cheap question: does a run come by the deadline itself? Only if none does, the
        // time of the flush counts, which is later.
        let entry_lacks_run = outcome.deadline != NEVER
            && lacks_run(outcome.deadline)
            && lacks_run(self.spans.flush_time(outcome.now, outcome.deadline));
        entry_lacks_run || (self.may_leave_work(outcome) && self.waking.is_unrequested())
    }

    /// Whether the call has to help.
    #[inline]
    fn wants_help(&self, outcome: &WriteOutcome) -> bool {
        outcome.buffered >= self.batch_soft_limit.load(Ordering::Relaxed)
            || self.must_tell(outcome)
            || self.waking.is_due_for_callers(outcome.now, &self.clock)
    }

    /// Whether the write may have left something to notify, to free or to evict.
    #[inline]
    fn may_leave_work(&self, outcome: &WriteOutcome) -> bool {
        outcome.removed > 0 || self.bound.is_some()
    }

    /// Whether the write has removed an entry of which the listener has to hear before the call
    /// returns.
    #[inline]
    fn must_tell(&self, outcome: &WriteOutcome) -> bool {
        self.tells_callers() && outcome.removed > 0
    }

    /// Offers a read. If the ring is full, drains the rings of its part, unless another thread
    /// holds the part's maintenance lock, and offers once more.
    #[inline(never)]
    pub(crate) fn offer_read(&self, node: NodePtr<K, V>, pin: &Pin) {
        let part = if self.parts.len() == 1 {
            0
        } else {
            self.number_of_part(node.shard())
        };
        if self.reads.offer(node, part, pin) {
            return;
        }
        if let Some(mut state) = self.parts[part].state.try_lock() {
            state.take_reads(&self.reads);
        }
        _ = self.reads.offer(node, part, pin);
    }

    /// A removal of a key with this hash has found no entry.
    #[cold]
    pub(crate) fn after_vain_removal(&self, hash: u64) {
        if !self.waking.scheduler.callers_maintain() {
            return;
        }
        // Relaxed: a count.
        let count = self.vain_removals.fetch_add(1, Ordering::Relaxed);
        if count % VAIN_REMOVALS_PER_PASS == 0 {
            self.help(WriteOutcome {
                shard: self.map.shard_of(hash),
                buffered: 0,
                deadline: NEVER,
                now: NEVER,
                removed: 0,
            });
        }
    }

    /// A reader has found an entry that is due at `now`, and holds no pin. If a run is due for
    /// callers, it helps: by one pass over the part of the entry. The other parts are left to the
    /// calls that follow.
    #[cold]
    pub(crate) fn after_expired_read(&self, hash: u64, now: u64) {
        if !self.waking.is_due_for_callers(now, &self.clock) {
            return;
        }
        let shard = self.map.shard_of(hash);
        let part = self.part_of(shard);
        let Some(mut state) = part.state.try_lock() else {
            return;
        };
        let run = self.waking.begin();
        let mut plan = self.plan_of_help(shard, 0);
        plan.expires = true;
        let passed = self.pass(&mut state, plan);
        self.end_helped_run(run, part, &state, !passed.drained || self.parts.len() > 1);
        if self.tells_callers() && passed.has_posted {
            drop(state);
            self.deliver_here();
            // What can be freed is left to others, rather than wait for a pass.
            let Some(locked) = part.state.try_lock() else {
                return;
            };
            state = locked;
        }
        self.free_some(part, state, passed.applied + self.caller_budget);
        if !self.tells_callers() {
            self.offer_or_deliver();
        }
    }

    /// A reader has moved a deadline under its shard's lock. It holds a pin: so it runs no
    /// destructor, calls no listener, and offers no delivery. A run or a later call does that.
    #[cold]
    pub(crate) fn after_move_by_read(&self, outcome: WriteOutcome) {
        if self.wants_run(&outcome) {
            self.request_runs(&outcome);
        }
        if outcome.buffered < self.batch_soft_limit.load(Ordering::Relaxed) {
            return;
        }
        let mut plan = self.plan_of_help(outcome.shard, outcome.buffered);
        if self.tells_callers() {
            // The call that evicts an entry also calls the listener.
            plan.evict = Evict::Nothing;
        }
        if let Some(mut state) = self.part_of(outcome.shard).state.try_lock() {
            self.pass(&mut state, plan);
        }
    }

    /// The slow part of `after_write`: requests a run, or helps.
    #[cold]
    #[inline(never)]
    fn follow_up(&self, outcome: WriteOutcome) {
        self.request_runs(&outcome);
        if self.wants_help(&outcome) {
            self.help(outcome);
        }
    }

    /// Requests the runs that a write needs, if none is arranged early enough.
    fn request_runs(&self, outcome: &WriteOutcome) {
        let clock = &self.clock;
        let waking = &self.waking;
        if outcome.deadline != NEVER {
            let flush = self.spans.flush_time(outcome.now, outcome.deadline);
            // Since the write read the clock, the policy was asked, which may have taken long.
            let now = if waking.scheduler.callers_maintain() {
                outcome.now
            } else {
                clock.now()
            };
            waking.request_by(now, flush);
        }
        if self.may_leave_work(outcome) {
            waking.request_soon(clock);
        }
    }
}

impl<K, V> Engine<K, V> {
    /// The plan of a call that helps behind so many events of its shard.
    fn plan_of_help(&self, shard: usize, buffered: usize) -> Plan {
        Plan {
            budget: buffered + self.caller_budget,
            drain: Drain::OwnLast(shard),
            expires: false,
            sweep_up_to: 0,
            evict: Evict::Excess,
        }
    }

    /// The work of a writer for maintenance. Does nothing if another thread holds the maintenance
    /// lock and the writer need not wait for it.
    fn help(&self, outcome: WriteOutcome) {
        let part = self.part_of(outcome.shard);
        let Some(state) = self.lock_to_help(part, &outcome) else {
            return;
        };
        let is_due = self.waking.is_due_for_callers(outcome.now, &self.clock);
        let mut plan = self.plan_of_help(outcome.shard, outcome.buffered);
        // Where batches are full, the thread that expires entries cannot keep up with writers: each
        // takes part.
        if is_due || outcome.buffered >= self.most_events() {
            plan.expires = true;
        }
        let (state, passed) = if is_due {
            self.help_by_run(part, state, plan)
        } else {
            self.help_by_pass(part, state, plan, outcome.now)
        };
        self.finish_help(part, state, passed.applied, is_due);
    }

    /// Helps by a pass over the writer's part, behind one over a part with due entries if the cache
    /// is full. `now` is [`NEVER`] if the clock was not read. Returns the lock.
    fn help_by_pass<'a>(
        &self,
        part: &'a Part<K, V>,
        mut state: MutexGuard<'a, State<K, V>>,
        plan: Plan,
        now: u64,
    ) -> (MutexGuard<'a, State<K, V>>, Passed) {
        if self.parts.len() > 1 {
            if let Some(due) = self.due_part(part, now) {
                drop(state);
                let of_due = Plan {
                    drain: Drain::Nothing,
                    expires: true,
                    evict: Evict::Nothing,
                    ..plan
                };
                self.help_part(due, of_due);
                state = part.state.lock();
            }
        }
        self.help_own_part(part, state, plan)
    }

    /// Helps in place of a run: by passes over all parts, the writer's last. Arranges the next run.
    /// Returns the lock of the writer's part, and what the pass over it has left.
    fn help_by_run<'a>(
        &self,
        part: &'a Part<K, V>,
        mut state: MutexGuard<'a, State<K, V>>,
        plan: Plan,
    ) -> (MutexGuard<'a, State<K, V>>, Passed) {
        let run = self.waking.begin();
        let mut leaves_rest = false;
        if self.parts.len() > 1 {
            // What is due leaves all parts before a live entry leaves this one.
            drop(state);
            leaves_rest = self.help_others(part, plan);
            state = part.state.lock();
        }
        let (state, passed) = self.help_own_part(part, state, plan);
        self.end_helped_run(run, part, &state, leaves_rest || !passed.drained);
        (state, passed)
    }

    /// Ends a run in whose place a caller has helped, which holds the lock of this part: arranges
    /// the next run. If it has left some parts or batches alone, the next caller continues.
    fn end_helped_run(
        &self,
        run: Run<'_>,
        part: &Part<K, V>,
        state: &State<K, V>,
        leaves_rest: bool,
    ) {
        let mut next = time::earliest(state.wheel.next_visit(), self.next_visit_of_others(part));
        if state.excess() > 0 {
            // What is over the bound is due now.
            next = Some(self.clock.now());
        }
        if leaves_rest {
            next = time::earliest(next, run.moment());
        }
        run.end(next, None, &self.clock);
    }

    /// A pass over the writer's own part. If the cache is over its bound nevertheless, evicts more.
    fn help_own_part<'a>(
        &self,
        part: &'a Part<K, V>,
        mut state: MutexGuard<'a, State<K, V>>,
        plan: Plan,
    ) -> (MutexGuard<'a, State<K, V>>, Passed) {
        let found = state.excess();
        let passed = self.pass(&mut state, plan);
        let debt = state.excess().saturating_sub(found);
        if debt > 0 && state.is_far_over(self.parts.len()) {
            let of_more = Plan {
                budget: RUN_BUDGET,
                drain: Drain::Nothing,
                ..plan
            };
            state = self.evict_excess(part, state, debt, of_more);
        }
        if passed.others_must_evict {
            drop(state);
            self.help_heaviest(part, plan);
            state = part.state.lock();
        }
        (state, passed)
    }

    /// After the passes of a writer, of which the one over its part has applied so many events:
    /// what is left to do without the lock.
    fn finish_help<'a>(
        &self,
        part: &'a Part<K, V>,
        mut state: MutexGuard<'a, State<K, V>>,
        applied: usize,
        stood_for_run: bool,
    ) {
        let tells = self.tells_callers();
        if tells {
            // First: until then, the listener has not heard of what is gone.
            drop(state);
            self.deliver_here();
            state = part.state.lock();
        }
        let keeps_values = !state.freeing.is_empty();
        let retired = state.freeing.retired;
        // As many as came in, plus a bounded part of the rest.
        self.free_some(part, state, applied + self.caller_budget);
        if tells && keeps_values {
            // The run that this write has requested may have come while the listener was called.
            self.waking.request_soon(&self.clock);
        }
        self.await_reclaim(part, retired);
        if tells || self.delivery.is_none() {
            return;
        }
        let waiting = self.notifier.waiting();
        let no_run_comes = stood_for_run || self.waking.scheduler.callers_maintain();
        if no_run_comes || waiting >= CALLS_PER_TURN {
            // If much waits by now, the thread that runs it is late.
            self.offer_or_deliver();
        } else if waiting > 0 {
            // A run that the writer has found arranged may be past its deliveries.
            self.waking.request_soon(&self.clock);
        }
    }

    /// A small pass over another part than that of the writer, unless another thread works on it.
    /// Returns whether there are batches that it has not looked at.
    fn help_part(&self, part: &Part<K, V>, plan: Plan) -> bool {
        let Some(mut state) = part.state.try_lock() else {
            return true;
        };
        let passed = self.pass(&mut state, plan);
        self.free_some(part, state, self.caller_budget);
        !passed.drained
    }

    /// Small passes over the other parts, by a help that stands for a run. They evict nothing.
    /// Returns whether there are batches that they have not looked at.
    fn help_others(&self, own: &Part<K, V>, plan: Plan) -> bool {
        let plan = Plan {
            drain: Drain::All,
            evict: Evict::Nothing,
            ..plan
        };
        let mut leaves_rest = false;
        for other in self.others(own) {
            leaves_rest |= self.help_part(other, plan);
        }
        leaves_rest
    }

    /// After a pass of a writer: if the cache is over its bound nevertheless, evicts from the part
    /// that is heaviest. If another thread works on that one, and the cache is far over, evicts
    /// from the writer's own.
    fn help_heaviest(&self, own: &Part<K, V>, plan: Plan) {
        let excess = self.excess_of_parts();
        if excess == 0 {
            return;
        }
        let heaviest = self.heaviest(own);
        let evict = Plan {
            drain: Drain::Nothing,
            evict: Evict::AsHeaviest,
            ..plan
        };
        let before = heaviest.weight();
        self.help_part(heaviest, evict);
        let max = self.max_capacity().unwrap_or(u64::MAX);
        if heaviest.weight() >= before && excess > max / PATIENCE {
            self.help_part(own, evict);
        }
    }

    /// The maintenance lock for a writer that should run a pass. `None` if another thread holds it
    /// and the writer need not wait; the module docs say when it does.
    fn lock_to_help<'a>(
        &self,
        part: &'a Part<K, V>,
        outcome: &WriteOutcome,
    ) -> Option<MutexGuard<'a, State<K, V>>> {
        let state = &part.state;
        // With `Delivery::Caller`, an insert into a full cache evicts and tells by itself.
        let evicts = self.tells_callers() && self.bound.is_some();
        if evicts || self.must_tell(outcome) {
            return Some(state.lock());
        }
        if let Some(state) = state.try_lock() {
            return Some(state);
        }
        let is_excessive = outcome.buffered >= self.most_events();
        let is_exact = self.order_is_exact();
        if !is_excessive && !is_exact {
            return None;
        }
        for _ in 0..YIELDS_BEFORE_LOCK {
            yield_now();
            if let Some(state) = state.try_lock() {
                return Some(state);
            }
        }
        if is_excessive {
            return Some(state.lock());
        }
        if self.waking.scheduler.callers_maintain() {
            return None;
        }
        // Not for ever: a ticker that writes is called by the holder of the lock.
        state.try_lock_for(MAX_WAIT_FOR_ORDER)
    }

    /// How many events may wait in a shard's batch.
    fn most_events(&self) -> usize {
        most_events(self.max_capacity(), self.map.shards())
    }

    /// Runs passes of this plan, until the excess that the writer has added is gone, the weight is
    /// no longer far over the bound, or a pass removes nothing. Returns the lock.
    ///
    /// A pass evicts as many victims as entries came in. If the victims weigh less, that is not
    /// enough: without this the weight would rise far above the bound.
    pub(super) fn evict_excess<'a>(
        &self,
        part: &'a Part<K, V>,
        mut state: MutexGuard<'a, State<K, V>>,
        mut debt: u64,
        plan: Plan,
    ) -> MutexGuard<'a, State<K, V>> {
        loop {
            let ready = state.freeing.take_ready(FREED_PER_RUN_PASS);
            unlock_fairly(state);
            self.free(part, ready);
            state = part.state.lock();
            let before = state.excess();
            self.pass(&mut state, plan);
            let paid = before.saturating_sub(state.excess());
            debt = debt.saturating_sub(paid);
            if paid == 0 || debt == 0 || !state.is_far_over(self.parts.len()) {
                return state;
            }
        }
    }
}
