//! What writers and readers do for maintenance after their calls.
//!
//! After each write the writer checks, with a few loads, whether something is to be done: whether a
//! run has to be requested, and whether the writer has to *help*, which is to run a small pass. It
//! helps where its shard's batch has reached the soft limit, and where no thread wakes the cache.

use super::backlog::Backlog;
use super::plan::Plan;
use super::state::State;
use super::{BATCH_HARD_LIMIT, Maintenance, RUN_BUDGET, WriteOutcome};
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
pub(super) enum May {
    /// None: the caller holds a pin.
    Nothing,
    /// Destructors.
    Free,
    /// Destructors, and listeners where no other thread runs them.
    Deliver,
}

impl<K, V> Maintenance<K, V> {
    /// After each write: requests a run if need be, and helps where a limit is reached. The caller
    /// holds no lock and no pin.
    #[inline(always)]
    pub(crate) fn after_write(&self, shared: &Shared<K, V>, outcome: WriteOutcome) {
        self.after_change(shared, outcome, May::Deliver);
    }

    /// After a read that moved a deadline and still holds its pin: as after a write, but without
    /// destructors and listeners.
    pub(crate) fn after_read(&self, shared: &Shared<K, V>, outcome: WriteOutcome) {
        self.after_change(shared, outcome, May::Nothing);
    }

    // Always inlined: after nearly all writes nothing is to be done, and to find that out takes
    // less than to pass all this to a function.
    #[inline(always)]
    fn after_change(&self, shared: &Shared<K, V>, outcome: WriteOutcome, may: May) {
        let has_work = if self.waking.is_up_to_callers() {
            self.waking.is_due_for_callers(outcome.now, &shared.clock)
        } else {
            self.leaves_work(&outcome) && self.waking.is_unrequested()
        };
        if self.is_late_for(&outcome) || has_work || outcome.pending >= self.batch_soft_limit {
            self.schedule_followup(shared, outcome, may);
        }
    }

    /// What follows a write after which something is to be done.
    #[cold]
    #[inline(never)]
    fn schedule_followup(&self, shared: &Shared<K, V>, outcome: WriteOutcome, may: May) {
        if let Some(now) = outcome.now {
            self.check_threads(shared, now, may);
        }
        if let Some((flush, now)) = outcome.flush(&self.spans) {
            // The policy was asked since the write read the clock, and may have taken its time.
            let now = if self.waking.is_up_to_callers() {
                now
            } else {
                shared.clock.now()
            };
            self.waking.request_by(flush, now, &shared.clock);
        }
        if self.leaves_work(&outcome) {
            self.waking.request_soon(&shared.clock);
        }
        if self.needs_help(shared, &outcome) {
            self.help(shared, outcome.shard, outcome.pending, outcome.now, may);
        }
    }

    /// Whether no run is arranged that comes when the entry that was written is flushed, or before;
    /// or it is time to check that such a run will come.
    #[inline(always)]
    fn is_late_for(&self, outcome: &WriteOutcome) -> bool {
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
    #[inline(always)]
    fn leaves_work(&self, outcome: &WriteOutcome) -> bool {
        outcome.left > 0 || self.is_bounded
    }

    /// Whether the writer has to run a pass.
    fn needs_help(&self, shared: &Shared<K, V>, outcome: &WriteOutcome) -> bool {
        outcome.pending >= self.batch_soft_limit
            || self.waking.is_up_to_callers()
                && self.waking.is_due_for_callers(outcome.now, &shared.clock)
    }

    /// A small pass by a writer, or by a reader that met an expired entry. Not if another thread
    /// holds the maintenance lock and there is room left. Without a pin if it `may` run more than
    /// nothing.
    fn help(
        &self,
        shared: &Shared<K, V>,
        shard: usize,
        pending: usize,
        now: Option<u64>,
        may: May,
    ) {
        let Some((mut state, waited)) = self.lock_to_help(shared, shard, pending) else {
            return;
        };
        if now.is_none() {
            self.waking.check_now_and_then();
        }
        let alone = self.waking.is_up_to_callers();
        // Where writers wait, the thread that expires entries cannot keep up with them: each takes
        // part.
        let expire = waited || alone && self.waking.is_due_for_callers(now, &shared.clock);
        let was_armed = self.waking.is_armed();
        let _begun = alone.then(|| self.waking.begin());
        let plan = Plan::help(shard, pending + self.caller_budget, expire);
        let found = state.excess();
        let mut passed = self.pass(shared, &mut state, plan);
        let debt = state.excess().saturating_sub(found);
        if debt > 0 && state.is_far_over() {
            (state, passed.more) = self.repay(shared, state, debt, plan.repaying(), may);
        }
        if alone {
            let next = state.wheel.next_deadline();
            let timed = was_armed || next.is_some();
            let now = if timed { shared.clock.now() } else { 0 };
            // What the budget left over, batches included, is due now: the next caller goes on with
            // it.
            let next = if passed.more && timed {
                Some(now)
            } else {
                next
            };
            let clock = || if timed { now } else { shared.clock.now() };
            self.waking.end(next, None, &shared.clock, clock);
        }
        if may == May::Nothing {
            return;
        }
        // As many as came in, plus a bounded part of the rest.
        let most = passed.applied + self.caller_budget;
        let ready = state.freeing.retired.take_ready(most);
        drop(state);
        self.free(shared, ready);
        self.await_reclaim(shared);
        if may == May::Deliver && alone {
            self.deliver_some();
        }
    }

    /// The maintenance lock for a writer that should run a pass, and whether the writer had to wait
    /// for it. `None` if another thread holds the lock and there is room left for more events.
    fn lock_to_help(
        &self,
        shared: &Shared<K, V>,
        shard: usize,
        pending: usize,
    ) -> Option<(MutexGuard<'_, State<K, V>>, bool)> {
        let full = pending >= BATCH_HARD_LIMIT;
        if (self.status.require() || full)
            && let Some(state) = self.state.try_lock()
        {
            return Some((state, full));
        }
        if pending < self.batch_soft_limit {
            return None;
        }
        self.backlog.note_pending(shard, pending);
        let most = shared
            .max_capacity()
            .map_or(usize::MAX, Backlog::max_pending);
        for _ in 0..YIELDS_BEFORE_LOCK {
            if self.backlog.pending_in(shard) < BATCH_HARD_LIMIT && self.backlog.pending() <= most {
                return None;
            }
            yield_now();
            if let Some(state) = self.state.try_lock() {
                return Some((state, true));
            }
        }
        Some((self.state.lock(), true))
    }

    /// Runs passes until the excess that the caller has added is gone, the weight is no longer far
    /// over the bound, or a pass removes nothing. Returns the lock, and whether the last pass left
    /// work.
    ///
    /// A pass evicts as many victims as entries came in. If the victims weigh less, that is not
    /// enough: without this the weight would run away from the bound.
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
            let ready = state.freeing.retired.take_ready(most);
            unlock_fairly(state);
            self.free(shared, ready);
            state = self.state.lock();
            let before = state.excess();
            let more = self.pass(shared, &mut state, plan).more;
            let paid = before.saturating_sub(state.excess());
            debt = debt.saturating_sub(paid);
            if paid == 0 || debt == 0 || !state.is_far_over() {
                return (state, more);
            }
        }
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

    /// A reader has found an entry that is due. Where no thread wakes the cache, the reader does a
    /// small part of the expiry; listeners it leaves to writers.
    #[cold]
    pub(crate) fn met_expired(&self, shared: &Shared<K, V>, hash: u64, now: u64) {
        if self.waking.is_up_to_callers()
            && self.waking.is_due_for_callers(Some(now), &shared.clock)
        {
            self.help(shared, shared.map.shard_of(hash), 0, Some(now), May::Free);
        } else {
            self.check_threads(shared, now, May::Free);
        }
    }
}
