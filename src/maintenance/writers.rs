//! The maintenance work of writers and readers, after their calls.
//!
//! After each write the writer checks, with a few loads, whether something is to be done: whether a
//! run has to be requested, and whether the writer has to *help*, which is to run a small pass. It
//! helps where its shard's batch has reached the soft limit, and where no thread wakes the cache.
//!
//! # Where no thread wakes the cache
//!
//! A removal leaves an event in a batch; the value is dropped some passes later. Without a
//! scheduler only calls run passes, and most calls leave nothing to do: hits, and removals of
//! absent keys. So a removal marks the cache as *untidy*. While it is marked, look-ups take their
//! full path, and each operation is counted. Each [`OPERATIONS_PER_PASS`]th one runs a small pass
//! and frees some of what was removed. When nothing is left, the mark is taken off. So a few
//! hundred operations of any kind are enough, and look-ups of a tidy cache pay nothing.
//!
//! # Where the scheduler thread is stuck
//!
//! A destructor or a ticker of another cache may hold up the scheduler thread. Writers, and readers
//! that meet an entry that is due, find that out from the moment for which a run is arranged
//! ([`Waking`]): if the thread is late by far, they help as if there were none.
//!
//! # When writers wait for a pass
//!
//! If writers are faster than passes, *events* wait in the shards' batches. The [`Backlog`] counts
//! them. A writer that has filled its batch to the soft limit runs a pass. If another thread holds
//! the maintenance lock, the writer continues, unless the events of all shards together have
//! reached a limit that follows the cache's bound ([`Backlog::max_buffered`]): then it yields its
//! processor until there is room again. The thread that holds the lock may have been preempted in
//! the middle of a pass; the yield lets it run. An unbounded cache limits the batch of each shard
//! only.
//!
//! Writers wait for memory, too ([`freeing`](super::freeing)).
//!
//! [`Waking`]: super::waking::Waking

use super::freeing::is_freeing;
use super::pass::{Plan, RUN_BUDGET};
use super::{Maintenance, MaintenanceView, State};
use crate::buffer::{Offer, ReadBuffer};
use crate::contain::contain;
use crate::map::Shard;
use crate::node::NodePtr;
use crate::reclaim::Pin;
use crate::shared::{Shared, UNTIDY};
use crate::stripe::Padded;
use crate::sync::{AtomicUsize, MutexGuard, Ordering, unlock_fairly, yield_now};
use crate::time::NEVER;

/// Budget of a pass run by a caller. The events of the caller's own shard are free; events of other
/// shards count.
pub(super) const CALLER_BUDGET: usize = 16;

/// The same in a bounded cache. With less, more removals would wait in batches, while their weight
/// still forces evictions.
pub(super) const BOUNDED_CALLER_BUDGET: usize = 32;

/// This many events in a shard's batch make the writer run a pass.
pub(super) const BATCH_SOFT_LIMIT: usize = 24;

/// The soft limits of all shards add up to at most 1/16 of the bound. Batches are mostly far from
/// full, so what waits in them is less than 2 percent of the bound.
pub(super) const SOFT_LIMITS_PER_BOUND: u64 = 16;

/// This many events in a shard's batch make the writer wait for a pass.
pub(super) const BATCH_HARD_LIMIT: usize = 1024;

/// How many events in a batch make its writer run a pass: fewer where the cache has few entries for
/// each shard, so that it stays near its bound.
pub(super) fn batch_soft_limit(max_capacity: Option<u64>, shards: usize) -> usize {
    let share = max_capacity.unwrap_or(u64::MAX) / (shards as u64 * SOFT_LIMITS_PER_BOUND);
    usize::try_from(share).map_or(BATCH_SOFT_LIMIT, |share| share.clamp(1, BATCH_SOFT_LIMIT))
}

/// How often a writer yields its processor to the thread that holds the maintenance lock before it
/// waits for the lock itself.
const YIELDS_BEFORE_LOCK: usize = 64;

/// Operations between two passes. Four passes drop what one call has removed, unless a reader or a
/// listener holds it.
const OPERATIONS_PER_PASS: u32 = 128;

/// A call frees this part of what can be freed, if that is much.
const PART_OF_READY: usize = 4;

/// Where no thread wakes the cache, this many undelivered notifications make a call that does
/// maintenance offer a delivery.
const UNDELIVERED: u64 = 1024;

/// The facts about a write that maintenance needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOutcome {
    /// Which shard was written to.
    pub(crate) shard: usize,
    /// How many events wait in that shard's batch.
    pub(crate) buffered: usize,
    /// The deadline that came in, or `NEVER`.
    pub(crate) deadline: u64,
    /// Cache time of the write, if it was read.
    pub(crate) now: Option<u64>,
    /// How many nodes left the map.
    // As wide as the others: a copy of the padding behind a `bool` takes four more instructions.
    pub(crate) left: usize,
    /// How many pins the thread that makes the change still holds: a read that moves a deadline has
    /// one. While it has, no destructors and no listeners run.
    pub(crate) pins: usize,
}

impl WriteOutcome {
    /// The outcome of a change of one entry: `deadline` came in at `now`, if the clock was read.
    #[inline]
    pub(crate) fn of_change<K, V>(
        shard: &Shard<'_, K, V>,
        deadline: u64,
        now: Option<u64>,
    ) -> Self {
        Self {
            shard: shard.number(),
            buffered: shard.buffered(),
            deadline,
            now,
            left: 0,
            pins: 0,
        }
    }

    /// The outcome of removals, the last one at `now` if the clock was read for it.
    #[inline]
    pub(crate) fn of_removal<K, V>(shard: &Shard<'_, K, V>, now: Option<u64>) -> Self {
        Self {
            left: 1,
            ..Self::of_change(shard, NEVER, now)
        }
    }
}

impl<K, V> Maintenance<K, V> {
    /// After each write: requests a run if need be, and helps where a limit is reached. The caller
    /// holds no lock, and no pin but what `outcome` says.
    // Always inlined: nearly all writes leave nothing to do, and the check is cheaper than a call
    // with these arguments.
    #[inline(always)]
    pub(crate) fn after_write(&self, shared: &Shared<K, V>, outcome: WriteOutcome) {
        let has_work = if self.waking.waker.is_none() {
            // A caller that holds a pin has removed nothing.
            if outcome.pins == 0 {
                self.count_write(shared, outcome.left > 0);
            }
            self.waking.is_due_at(outcome.now, &shared.clock)
        } else {
            self.leaves_work(&outcome) && self.waking.is_unrequested()
        };
        if self.needs_request_or_pass(&outcome)
            || has_work
            || outcome.buffered >= self.batch_soft_limit
            || self.must_tell(&outcome)
        {
            self.view(shared).follow_up(outcome);
        }
    }

    /// True if no run is arranged early enough for the written entry, or if the arranged run does
    /// not come.
    #[inline]
    fn needs_request_or_pass(&self, outcome: &WriteOutcome) -> bool {
        let Some(now) = outcome.now.filter(|_| outcome.deadline != NEVER) else {
            return false;
        };
        let late = |moment| self.waking.is_late_for(moment, now);
        // No entry is flushed before its deadline. If a run comes until then, as mostly, the time
        // of the flush need not be computed.
        late(outcome.deadline) && late(self.spans.flush_time(outcome.deadline, now))
            || self.waking.is_stuck(now)
    }

    /// Whether the write left something to notify, to free or to evict.
    #[inline]
    fn leaves_work(&self, outcome: &WriteOutcome) -> bool {
        outcome.left > 0 || self.is_bounded
    }

    /// Whether the write has removed an entry of which the listener has to hear before the call
    /// returns.
    #[inline]
    fn must_tell(&self, outcome: &WriteOutcome) -> bool {
        self.tells_callers() && outcome.left > 0
    }

    /// Offers a read. If the ring is full, drains all rings, unless another thread holds the
    /// maintenance lock, and offers once more.
    #[inline(never)]
    pub(super) fn offer_read(&self, reads: &ReadBuffer<K, V>, node: NodePtr<K, V>, pin: &Pin) {
        if reads.offer(node, pin) != Offer::Full {
            return;
        }
        if let Some(mut state) = self.state.try_lock() {
            state.take_reads(reads);
        }
        _ = reads.offer(node, pin);
    }

    /// A reader has found an entry that is due. If expiry is the work of callers, the reader
    /// expires a few entries.
    #[cold]
    pub(crate) fn after_expired_read(&self, shared: &Shared<K, V>, hash: u64, now: u64) {
        if self.waking.is_due_for_callers(Some(now), &shared.clock) {
            self.view(shared).help(WriteOutcome {
                shard: shared.map.shard_of(hash),
                deadline: NEVER,
                now: Some(now),
                ..WriteOutcome::default()
            });
        }
    }
}

impl<'a, K, V> MaintenanceView<'a, K, V> {
    /// The slow part of `after_write`: requests a run, or helps.
    #[cold]
    #[inline(never)]
    fn follow_up(&self, outcome: WriteOutcome) {
        let (maintenance, clock) = (self.maintenance, &self.shared.clock);
        let waking = &maintenance.waking;
        if let Some(now) = outcome.now.filter(|_| outcome.deadline != NEVER) {
            let flush = maintenance.spans.flush_time(outcome.deadline, now);
            // Since the write read the clock, the policy was asked, which may have taken long.
            let now = if waking.waker.is_none() {
                now
            } else {
                clock.now()
            };
            waking.request_by(flush, now);
        }
        if maintenance.leaves_work(&outcome) {
            waking.request_soon(clock);
        }
        if maintenance.must_tell(&outcome)
            || outcome.buffered >= maintenance.batch_soft_limit
            || waking.is_due_for_callers(outcome.now, clock)
        {
            self.help(outcome);
        }
    }

    /// A small pass by a writer, or by a reader that met an expired entry. Does nothing if another
    /// thread holds the maintenance lock and the batches have room, unless the listener must hear
    /// of what was removed.
    fn help(&self, outcome: WriteOutcome) {
        let maintenance = self.maintenance;
        let (waking, clock) = (&maintenance.waking, &self.shared.clock);
        let Some((mut state, waited)) = self.lock_to_help(&outcome) else {
            return;
        };
        let pinned = outcome.pins > 0;
        let alone = waking.waker.is_none();
        // Where the scheduler thread is stuck, a caller that may not offer a delivery leaves the
        // work to others.
        let is_due = (alone || !pinned) && waking.is_due_for_callers(outcome.now, clock);
        // Where writers wait, the thread that expires entries cannot keep up with them: each takes
        // part. With `Delivery::Caller`, a call that removes an entry also calls the listener. A
        // call that may not do that removes none.
        let removes = !(pinned && maintenance.tells_callers());
        let expire = removes && (waited || is_due);
        let begun = (alone || is_due).then(|| waking.begin());
        let plan = Plan {
            budget: outcome.buffered + maintenance.caller_budget,
            own: Some(outcome.shard),
            expire,
            evict: removes,
            run: false,
            ..Plan::RUN
        };
        let found = state.excess();
        let mut passed = self.pass(&mut state, plan);
        let debt = state.excess().saturating_sub(found);
        if removes && debt > 0 && state.is_far_over() {
            let evict = Plan {
                budget: RUN_BUDGET,
                drain: false,
                ..plan
            };
            (state, passed.more) = self.evict_excess(state, debt, evict, pinned);
        }
        if let Some(begun) = begun {
            let mut next = state.wheel.next_visit();
            if next.is_some() && state.excess() > 0 {
                // What is over the bound is due now: the next caller continues.
                next = Some(clock.now());
            }
            begun.end(next, passed.more, None, clock);
        }
        if pinned {
            return;
        }
        // As many as came in, plus a bounded part of the rest.
        let most = passed.applied + maintenance.caller_budget;
        let ready = state.freeing.take_ready(most);
        let retired = state.freeing.retired;
        drop(state);
        self.free(ready);
        self.await_reclaim(retired);
        let undelivered = if alone { UNDELIVERED } else { 0 };
        if maintenance.tells_callers() {
            self.deliver_here();
        } else if (alone || is_due) && maintenance.notifier.waiting() > undelivered {
            self.offer_delivery();
        }
    }

    /// The maintenance lock for a writer that should run a pass, and whether the writer had to wait
    /// for room. `None` if another thread holds the lock and there is room left for more events.
    fn lock_to_help(&self, outcome: &WriteOutcome) -> Option<(MutexGuard<'a, State<K, V>>, bool)> {
        let Maintenance { state, backlog, .. } = self.maintenance;
        if self.maintenance.must_tell(outcome) {
            return Some((state.lock(), false));
        }
        let (shard, buffered) = (outcome.shard, outcome.buffered);
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
        &self,
        mut state: MutexGuard<'a, State<K, V>>,
        mut debt: u64,
        plan: Plan,
        pinned: bool,
    ) -> (MutexGuard<'a, State<K, V>>, bool) {
        let most = if pinned { 0 } else { 2 * RUN_BUDGET };
        loop {
            let ready = state.freeing.take_ready(most);
            unlock_fairly(state);
            self.free(ready);
            state = self.maintenance.state.lock();
            let before = state.excess();
            let more = self.pass(&mut state, plan).more;
            let paid = before.saturating_sub(state.excess());
            debt = debt.saturating_sub(paid);
            if paid == 0 || debt == 0 || !state.is_far_over() {
                return (state, more);
            }
        }
    }
}

/// The events that wait: see the module docs, "When writers wait for a pass".
///
/// `applying` is changed by the holder of the maintenance lock only; while no pass runs, it is 0.
///
/// The counts are relaxed: a writer that reads an old one waits a moment too early or too late.
#[derive(Debug)]
pub(super) struct Backlog {
    /// For each shard, how many events its batch held when a writer last found the maintenance
    /// lock taken; 0 once a pass has taken the batch.
    buffered: Box<[Padded<AtomicUsize>]>,
    /// Events that the pass in progress has taken from batches.
    applying: AtomicUsize,
}

impl Backlog {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            buffered: (0..shards).map(|_| Padded::default()).collect(),
            applying: AtomicUsize::new(0),
        }
    }

    /// How many events may wait in a cache of this bound before its writers wait.
    pub(super) fn max_buffered(max_capacity: u64) -> usize {
        usize::try_from(max_capacity / 64).map_or(usize::MAX, |share| share.saturating_add(40))
    }

    /// A writer has found this many events in its shard's batch, and the maintenance lock taken.
    pub(super) fn note_buffered(&self, shard: usize, events: usize) {
        self.buffered[shard].store(events, Ordering::Relaxed);
    }

    /// How many events wait in the shard's batch, as far as is known.
    pub(super) fn buffered_in(&self, shard: usize) -> usize {
        self.buffered[shard].load(Ordering::Relaxed)
    }

    /// How many events wait in batches, or in the pass in progress, as far as is known.
    pub(super) fn buffered(&self) -> usize {
        let applying = self.applying.load(Ordering::Relaxed);
        let shards = 0..self.buffered.len();
        shards.map(|shard| self.buffered_in(shard)).sum::<usize>() + applying
    }

    /// The pass has taken the shard's batch; it has taken `applying` events in all.
    pub(super) fn note_taken(&self, shard: usize, applying: usize) {
        self.applying.store(applying, Ordering::Relaxed);
        if self.buffered_in(shard) > 0 {
            self.note_buffered(shard, 0);
        }
    }

    /// The pass has done what follows from the events it took.
    pub(super) fn note_applied(&self) {
        self.applying.store(0, Ordering::Relaxed);
    }
}

impl<K, V> Maintenance<K, V> {
    /// Counts an operation if the cache is untidy, and runs a pass if it is the turn of this one. A
    /// write that has removed something makes the cache untidy. The calling thread holds no lock
    /// and no pin for the operation.
    // Always inlined: without a scheduler each write counts, and the counter is all that it needs.
    #[inline(always)]
    pub(crate) fn count_write(&self, shared: &Shared<K, V>, removed: bool) {
        if !shared.has_detour(UNTIDY) {
            if !removed {
                return;
            }
            shared.set_detour(UNTIDY, true);
        }
        // Relaxed, and not exact: threads that count at the same time may count as one.
        let count = self.operations.load(Ordering::Relaxed).wrapping_add(1);
        self.operations.store(count, Ordering::Relaxed);
        if count % OPERATIONS_PER_PASS == 0 {
            self.view(shared).tidy();
        }
    }
}

impl<K, V> MaintenanceView<'_, K, V> {
    /// One small pass, and the freeing of what is ready. Not inside a destructor, nor if the thread
    /// is pinned: what it would free waits for it.
    #[cold]
    #[inline(never)]
    fn tidy(&self) {
        let (maintenance, shared) = (self.maintenance, self.shared);
        if is_freeing() || shared.domain.is_pinned() {
            return;
        }
        let Some(mut state) = maintenance.state.try_lock() else {
            return;
        };
        // Taken off before the batches are looked at: a writer pushes, then marks.
        shared.set_detour(UNTIDY, false);
        let plan = Plan {
            evict: false,
            ..Plan::CATCH_UP
        };
        // This call has nothing to do with what the pass looks at: not with a ticker that panics.
        let passed = contain(|| self.pass(&mut state, plan));
        let retired = &mut state.freeing;
        let most = (retired.ready() / PART_OF_READY).max(2 * RUN_BUDGET);
        let ready = retired.take_ready(most);
        let more = passed.is_none_or(|passed| passed.more);
        if more || !retired.is_empty() || maintenance.notifier.waiting() > 0 {
            shared.set_detour(UNTIDY, true);
        }
        drop(state);
        self.free(ready);
        if maintenance.tells_callers() {
            self.deliver_here();
        } else {
            self.offer_delivery();
        }
    }
}
