//! The maintenance work of writers and readers, after their calls.
//!
//! After each write the writer checks, with a few loads, whether something is to be done: whether a
//! run has to be requested, and whether the writer has to *help*, which is to run a small pass. It
//! helps where its shard's batch has reached the soft limit, and where no thread wakes the cache.

use super::backlog::Backlog;
use super::limits::{BATCH_HARD_LIMIT, RUN_BUDGET};
use super::outcome::WriteOutcome;
use super::plan::Plan;
use super::root::{Maintenance, MaintenanceView};
use super::state::State;
use crate::buffer::read::{Offer, ReadBuffer};
use crate::node::NodePtr;
use crate::reclaim::Pin;
use crate::shared::Shared;
use crate::sync::{MutexGuard, unlock_fairly, yield_now};
use crate::time::NEVER;

/// How often a writer yields its processor to the thread that holds the maintenance lock before it
/// waits for the lock itself.
const YIELDS_BEFORE_LOCK: usize = 64;

/// How much of the user's code a caller that helps may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UserCode {
    /// None: the caller holds a pin.
    None,
    /// Destructors.
    Destructors,
    /// Destructors, and listeners where no other thread runs them.
    Listeners,
}

impl<K, V> Maintenance<K, V> {
    /// After each write: requests a run if need be, and helps where a limit is reached. The caller
    /// holds no lock and no pin.
    #[inline(always)]
    pub(crate) fn after_write(&self, shared: &Shared<K, V>, outcome: WriteOutcome) {
        self.after_change(shared, outcome, UserCode::Listeners);
    }

    /// After a read that moved a deadline and still holds its pin: as after a write, but without
    /// destructors and listeners.
    pub(crate) fn after_read(&self, shared: &Shared<K, V>, outcome: WriteOutcome) {
        self.after_change(shared, outcome, UserCode::None);
    }

    // Always inlined: nearly all writes leave nothing to do, and the check is cheaper than a call
    // with these arguments.
    #[inline(always)]
    fn after_change(&self, shared: &Shared<K, V>, outcome: WriteOutcome, allowed: UserCode) {
        let has_work = if self.waking.is_up_to_callers() {
            // What holds a pin removes nothing.
            if allowed >= UserCode::Destructors {
                self.count_write(shared, outcome.left > 0);
            }
            self.waking.is_due_for_callers(outcome.now, &shared.clock)
        } else {
            self.leaves_work(&outcome) && self.waking.is_unrequested()
        };
        if self.needs_request_or_check(&outcome)
            || has_work
            || outcome.buffered >= self.batch_soft_limit
            || self.must_tell(&outcome, allowed)
        {
            self.view(shared).schedule_followup(outcome, allowed);
        }
    }

    /// True if no run is arranged early enough for the written entry, or if it is time to check
    /// that the arranged run will come.
    #[inline]
    fn needs_request_or_check(&self, outcome: &WriteOutcome) -> bool {
        let Some(now) = outcome.now.filter(|_| outcome.deadline != NEVER) else {
            return false;
        };
        let late = |moment| self.waking.is_late_for(moment, now);
        // No entry is flushed before its deadline. If a run comes until then, as mostly, the time
        // of the flush need not be computed.
        late(outcome.deadline) && late(self.spans.flush_time(outcome.deadline, now))
            || self.waking.needs_check(now)
    }

    /// Whether the write left something to notify, to free or to evict.
    #[inline]
    fn leaves_work(&self, outcome: &WriteOutcome) -> bool {
        outcome.left > 0 || self.is_bounded
    }

    /// Whether the write has removed an entry of which the listener has to hear before the call
    /// returns.
    #[inline]
    fn must_tell(&self, outcome: &WriteOutcome, allowed: UserCode) -> bool {
        self.tells_callers && outcome.left > 0 && allowed == UserCode::Listeners
    }

    /// Offers a read. If the ring is full, drains all rings, unless another thread holds the
    /// maintenance lock, and offers once more.
    #[inline(never)]
    pub(super) fn offer_read(&self, reads: &ReadBuffer<K, V>, node: NodePtr<K, V>, pin: &Pin) {
        if reads.offer(node, pin) != Offer::Full {
            return;
        }
        if let Some(mut state) = self.state.try_lock() {
            state.take_reads(Some(reads));
        }
        _ = reads.offer(node, pin);
    }

    /// A reader has found an entry that is due. If no thread wakes the cache, the reader expires a
    /// few entries.
    #[cold]
    pub(crate) fn after_expired_read(&self, shared: &Shared<K, V>, hash: u64, now: u64) {
        let view = self.view(shared);
        if self.waking.is_up_to_callers()
            && self.waking.is_due_for_callers(Some(now), &shared.clock)
        {
            view.help(
                shared.map.shard_of(hash),
                0,
                Some(now),
                if self.tells_callers {
                    UserCode::Listeners
                } else {
                    UserCode::Destructors
                },
                false,
            );
        } else {
            view.check_threads(now, UserCode::Destructors);
        }
    }
}

impl<'a, K, V> MaintenanceView<'a, K, V> {
    /// The slow part of `after_write`: requests a run, or helps.
    #[cold]
    #[inline(never)]
    fn schedule_followup(self, outcome: WriteOutcome, allowed: UserCode) {
        let (maintenance, clock) = (self.maintenance, &self.shared.clock);
        if let Some(now) = outcome.now {
            self.check_threads(now, allowed);
            if outcome.deadline != NEVER {
                let flush = maintenance.spans.flush_time(outcome.deadline, now);
                // Since the write read the clock, the policy was asked, which may have taken long.
                let now = if maintenance.waking.is_up_to_callers() {
                    now
                } else {
                    clock.now()
                };
                maintenance.waking.request_by(flush, now);
            }
        }
        if maintenance.leaves_work(&outcome) {
            maintenance.waking.request_soon(clock);
        }
        let must_tell = maintenance.must_tell(&outcome, allowed);
        if must_tell || self.needs_help(&outcome) {
            let (shard, buffered) = (outcome.shard, outcome.buffered);
            self.help(shard, buffered, outcome.now, allowed, must_tell);
        }
    }

    /// Whether the writer has to run a pass.
    fn needs_help(self, outcome: &WriteOutcome) -> bool {
        let waking = &self.maintenance.waking;
        outcome.buffered >= self.maintenance.batch_soft_limit
            || waking.is_up_to_callers()
                && waking.is_due_for_callers(outcome.now, &self.shared.clock)
    }

    /// A small pass by a writer, or by a reader that met an expired entry. Does nothing if another
    /// thread holds the maintenance lock and the batches have room, unless the listener `must` hear
    /// of what was removed. The caller may hold a pin only if `allowed` is `UserCode::None`.
    fn help(self, shard: usize, buffered: usize, now: Option<u64>, allowed: UserCode, must: bool) {
        let maintenance = self.maintenance;
        let (waking, clock) = (&maintenance.waking, &self.shared.clock);
        let locked = if must {
            Some((maintenance.state.lock(), false))
        } else {
            self.lock_to_help(shard, buffered)
        };
        let Some((mut state, waited)) = locked else {
            return;
        };
        if now.is_none() {
            waking.check_now_and_then();
        }
        let alone = waking.is_up_to_callers();
        // Where writers wait, the thread that expires entries cannot keep up with them: each takes
        // part.
        // A caller that removes an entry tells the listener, if callers do that; this one may not.
        let removes = allowed >= UserCode::Listeners || !maintenance.tells_callers;
        let expire = removes && (waited || alone && waking.is_due_for_callers(now, clock));
        let was_armed = waking.is_armed();
        let _begun = alone.then(|| waking.begin());
        let plan = Plan {
            evict: removes,
            ..Plan::help(shard, buffered + maintenance.caller_budget, expire)
        };
        let found = state.excess();
        let mut passed = maintenance.pass(self.shared, &mut state, plan).run();
        let debt = state.excess().saturating_sub(found);
        if removes && debt > 0 && state.is_far_over() {
            (state, passed.more) = self.evict_excess(state, debt, plan.without_drain(), allowed);
        }
        if alone {
            let next = state.wheel.next_visit();
            let now = (was_armed || next.is_some()).then(|| clock.now());
            // If work is left when the budget is spent, it is due now: the next caller continues.
            let next = now.filter(|_| passed.more).or(next);
            waking.end(next, None, clock, now);
        }
        if allowed == UserCode::None {
            return;
        }
        // As many as came in, plus a bounded part of the rest.
        let most = passed.applied + maintenance.caller_budget;
        let ready = state.freeing.retired.take_ready(most);
        drop(state);
        self.free(ready);
        self.await_reclaim();
        if allowed == UserCode::Listeners {
            self.deliver_after_help();
        }
    }

    /// The maintenance lock for a writer that should run a pass, and whether the writer had to wait
    /// for it. `None` if another thread holds the lock and there is room left for more events.
    fn lock_to_help(
        self,
        shard: usize,
        buffered: usize,
    ) -> Option<(MutexGuard<'a, State<K, V>>, bool)> {
        let Maintenance { state, backlog, .. } = self.maintenance;
        let full = buffered >= BATCH_HARD_LIMIT;
        if let Some(state) = state.try_lock() {
            return Some((state, full));
        }
        if buffered < self.maintenance.batch_soft_limit {
            return None;
        }
        backlog.note_buffered(shard, buffered);
        let bound = self.shared.max_capacity();
        let most = bound.map_or(usize::MAX, Backlog::max_buffered);
        for _ in 0..YIELDS_BEFORE_LOCK {
            if backlog.buffered_in(shard) < BATCH_HARD_LIMIT && backlog.buffered() <= most {
                return None;
            }
            yield_now();
            if let Some(state) = state.try_lock() {
                return Some((state, true));
            }
        }
        Some((state.lock(), true))
    }

    /// Runs passes until the excess that the caller has added is gone, the weight is no longer far
    /// over the bound, or a pass removes nothing. Returns the lock, and whether the last pass left
    /// work.
    ///
    /// A pass evicts as many victims as entries came in. If the victims weigh less, that is not
    /// enough: without this the weight would rise far above the bound.
    pub(super) fn evict_excess(
        self,
        mut state: MutexGuard<'a, State<K, V>>,
        mut debt: u64,
        plan: Plan,
        allowed: UserCode,
    ) -> (MutexGuard<'a, State<K, V>>, bool) {
        let maintenance = self.maintenance;
        let most = if allowed >= UserCode::Destructors {
            2 * RUN_BUDGET
        } else {
            0
        };
        loop {
            let ready = state.freeing.retired.take_ready(most);
            unlock_fairly(state);
            self.free(ready);
            state = maintenance.state.lock();
            let before = state.excess();
            let more = maintenance.pass(self.shared, &mut state, plan).run().more;
            let paid = before.saturating_sub(state.excess());
            debt = debt.saturating_sub(paid);
            if paid == 0 || debt == 0 || !state.is_far_over() {
                return (state, more);
            }
        }
    }
}
