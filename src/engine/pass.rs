//! One pass, step by step: drain, expire, evict.
//!
//! The order of the steps, and what holds between them, is in the module docs of `engine`.

use super::{Engine, State};
use crate::eviction::Eviction;
use crate::list::{List, QUEUE, TIMER};
use crate::listener::RemovalCause;
use crate::map::{EventKind, WriteEvent};
use crate::node::{self, NodePtr, NodeState};
use crate::stats::Count;
use crate::sync::Ordering;
use crate::time::{self, NEVER};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// Where no thread wakes the cache, each so-many-th pass of a writer begins a grace period for
/// however little was retired.
const WRITER_PASSES_PER_SEAL: u32 = 16;

/// How many units of a table that grows or shrinks a run moves under one hold of its shard's lock.
pub(super) const RESIZE_UNITS: usize = 16;

/// Budget of a pass of a run. It bounds how long a writer waits for the maintenance lock.
pub(super) const RUN_BUDGET: usize = 256;

/// How many events ahead the nodes are prefetched.
const PREFETCH_DISTANCE: usize = 6;

/// How many due entries are removed together, so that the cache misses of their groups in the map
/// overlap.
const EXPIRE_GROUP: usize = 8;

/// A bucket of up to this many nodes is swept on every run of the scheduler thread.
pub(super) const MAX_CHEAP_SWEEP: usize = 256;

/// How often within a tick a cache that is over its bound sweeps the current bucket, if that has
/// more than [`MAX_CHEAP_SWEEP`] nodes.
pub(super) const SWEEPS_PER_TICK: u64 = 16;

/// How many nodes of the wheel are examined, in search of a due one, for each unit of the budget
/// that is left.
const EXAMINED_PER_EVICTION: usize = 8;

/// After so many victims a pass looks again at what the other parts of the cache weigh.
const VICTIMS_PER_LOOK: usize = 32;

/// Which batches a pass drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    /// None: the pass only makes room.
    Nothing,
    /// Those of all shards alike. Such a pass begins a grace period for however little was retired.
    All,
    /// Those of all shards alike, for a run. Such a pass also moves units of tables that grow or
    /// shrink, and lets each entry report its next read again, whatever has happened since it
    /// reported the last.
    ByRun,
    /// Those of all shards, and at last that of the caller's shard, however little budget is left.
    OwnLast(usize),
}

/// Which victims a pass removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evict {
    Nothing,
    /// While the part weighs more than it may beside the others.
    Excess,
    /// While it weighs more than an equal share, although other parts should make room first: the
    /// part was asked to, since it is the heaviest.
    AsHeaviest,
}

/// The work of one pass, and the amount of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) budget: usize,
    pub(super) drain: Drain,
    /// Whether it removes due entries whose tick has ended. One that evicts does so first, in any
    /// case.
    pub(super) expires: bool,
    /// If so, it also removes due entries of the current tick, which a sweep of their bucket finds,
    /// if the bucket has at most so many nodes.
    pub(super) sweep_up_to: usize,
    pub(super) evict: Evict,
}

impl Plan {
    pub(super) const RUN: Self = Self {
        budget: RUN_BUDGET,
        drain: Drain::ByRun,
        expires: true,
        sweep_up_to: 0,
        evict: Evict::Excess,
    };

    /// Of a call that brings the cache up to date.
    pub(super) const CATCH_UP: Self = Self {
        drain: Drain::All,
        expires: false,
        ..Self::RUN
    };
}

/// A pass in progress. It holds the maintenance lock through the borrow of the state.
pub(super) struct Pass<'a, K, V> {
    pub(super) engine: &'a Engine<K, V>,
    pub(super) state: &'a mut State<K, V>,
    pub(super) plan: Plan,
    /// The rest of the plan's budget.
    budget: usize,
    /// Events applied: as many evictions may be due.
    applied: usize,
    /// Entries that came in, or were found heavier than before: others may have to leave for them.
    admitted: usize,
    /// What the other parts weigh, as far as this pass knows.
    pub(super) others: u64,
    /// Whether the wheel's time was brought up to date.
    wheel_is_current: bool,
    /// Whether a table was left between two arrays.
    resizing: bool,
    /// The payload of a panic of the ticker.
    ticker_panic: Option<Box<dyn Any + Send>>,
}

/// What a pass has done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// Whether it has drained all that it was to drain, and moved all that it was to move.
    pub(super) drained: bool,
    /// How many events it has applied.
    pub(super) applied: usize,
    /// Whether the cache is over its bound, but not because of this part.
    pub(super) others_must_evict: bool,
    /// Whether it has posted notifications.
    pub(super) has_posted: bool,
}

impl<K, V> Engine<K, V> {
    /// Runs a pass.
    pub(super) fn pass(&self, state: &mut State<K, V>, plan: Plan) -> Passed {
        Pass::new(self, state, plan).run()
    }

    /// Runs a pass. Returns whether it has left work that its plan names: its budget was spent.
    pub(super) fn pass_leaves_work(&self, state: &mut State<K, V>, plan: Plan) -> bool {
        let passed = self.pass(state, plan);
        !passed.drained
            || (plan.expires && state.wheel.has_work())
            || (plan.evict != Evict::Nothing && state.excess() > 0)
    }
}

impl<'a, K, V> Pass<'a, K, V> {
    pub(super) fn new(engine: &'a Engine<K, V>, state: &'a mut State<K, V>, plan: Plan) -> Self {
        Self {
            engine,
            state,
            plan,
            budget: plan.budget,
            applied: 0,
            admitted: 0,
            others: 0,
            wheel_is_current: false,
            resizing: false,
            ticker_panic: None,
        }
    }
}

impl<K, V> Pass<'_, K, V> {
    fn run(mut self) -> Passed {
        let engine = self.engine;
        // Real time: the cache's own must not be read where no entry has a deadline.
        let begun = engine.counters.as_ref().map(|_| Instant::now());
        let shards = engine.shards_of_part();
        let has_rings = self.state.eviction.is_some();
        self.state
            .freeing
            .start_drain(&engine.domain, shards, has_rings);
        self.state.take_reads(&engine.reads);
        let drained = self.drain();
        self.renew_reads();
        self.state.freeing.end_drain();
        let has_others = engine.parts.len() > 1;
        if has_others {
            self.look_around();
        }
        self.make_room();
        if has_others {
            self.publish();
        }
        let seals_little = self.seals_little();
        self.state.freeing.seal(&engine.domain, seals_little);
        if engine.is_small_by_entries() {
            if let Some(eviction) = &self.state.eviction {
                engine.fit_to_size(eviction.len());
            }
        }
        let gathered = &mut self.state.gathered;
        let has_posted = !gathered.is_empty();
        engine.notifier.post(gathered);
        if let (Some(counters), Some(begun)) = (&engine.counters, begun) {
            counters.add(Count::Passes, 1);
            counters.add(Count::PassNanos, time::saturating_nanos(begun.elapsed()));
        }
        if let Some(payload) = self.ticker_panic.take() {
            resume_unwind(payload);
        }
        Passed {
            drained: drained && !self.resizing,
            applied: self.applied,
            others_must_evict: has_others && self.others_must_evict(),
            has_posted,
        }
    }

    /// Brings the wheel's time up to date, once a pass, before the wheel links a node: with an old
    /// time it would choose too coarse a bucket. A cache without deadlines never gets here, so it
    /// reads no clock.
    #[inline]
    fn advance_wheel(&mut self, node: NodePtr<K, V>) {
        if !self.wheel_is_current && node.deadline() != NEVER {
            self.wheel_is_current = true;
            let now = self.read_clock();
            self.state.wheel.advance(now);
        }
    }

    /// Whether this pass begins a grace period however little was retired: one that drains all
    /// shards alike leaves nothing behind. Where no run comes, some passes of writers do so, too.
    fn seals_little(&mut self) -> bool {
        let passes = &mut self.state.passes_of_writers;
        if matches!(self.plan.drain, Drain::All | Drain::ByRun) {
            *passes = 0;
            return true;
        }
        *passes = passes.wrapping_add(1);
        let is_turn = *passes % WRITER_PASSES_PER_SEAL == 0;
        is_turn && self.engine.waking.scheduler.callers_maintain()
    }

    /// The time for a pass (engine 5). Each step reads it anew: the steps before it may have taken
    /// long, and what has fallen due meanwhile leaves before a live entry.
    fn read_clock(&mut self) -> u64 {
        if self.ticker_panic.is_none() {
            match catch_unwind(AssertUnwindSafe(|| self.engine.clock.now())) {
                Ok(now) => return now,
                Err(payload) => self.ticker_panic = Some(payload),
            }
        }
        self.state.wheel.now()
    }

    /// Ends a node of this shard that is unlinked everywhere: the listener is to hear of it, or it
    /// is retired. Always inlined, as what it calls.
    #[inline(always)]
    fn end_removed(&mut self, shard: usize, node: NodePtr<K, V>, cause: RemovalCause) {
        node.set_state(NodeState::Dead);
        if self.engine.delivery.is_some() {
            self.state.gathered.push((node, cause));
        } else {
            self.state.freeing.retire_with_entry(shard, node);
        }
    }

    /// Ends a node of this shard to whose entry another one has succeeded.
    #[inline]
    fn end_succeeded(&mut self, shard: usize, node: NodePtr<K, V>, cause: RemovalCause) {
        node.set_state(NodeState::Succeeded);
        if self.engine.delivery.is_some() {
            self.state.gathered.push((node, cause));
        } else {
            self.state.freeing.retire_succeeded(shard, node);
        }
    }

    /// Counts a removal by the pass. For an expired node it also counts how long after `deadline`
    /// the removal came; `deadline` was read before the claim.
    #[inline]
    fn count_removal(&mut self, node: NodePtr<K, V>, cause: RemovalCause, deadline: u64) {
        self.engine.count_removal(|| node.weight(), cause);
        if let Some(counters) = &self.engine.counters {
            if cause == RemovalCause::Expired {
                // Not the time at which the pass began: how long the pass takes is a part of it.
                let now = self.read_clock();
                counters.late_by(node::lateness(now, deadline));
            }
        }
    }
}

/// The drain: the read rings and the batches are applied to the wheel and to the size policy.
impl<K, V> Pass<'_, K, V> {
    /// Lets each entry report another read, once enough entries have come in since the last time
    /// for the eviction order to matter. A run always does so, to separate reads before it from
    /// reads after it.
    fn renew_reads(&mut self) {
        let Some(eviction) = &self.state.eviction else {
            return;
        };
        // A replacement of equal weight never forces an eviction.
        let renewals = &mut self.state.renewals;
        let are_due = renewals.are_due_by_entries(self.admitted, eviction.len());
        if self.plan.drain == Drain::ByRun {
            renewals.admitted = 0;
            self.engine.reads.renew();
            self.state.stamp = self.engine.reads.stamp();
        } else if are_due {
            renewals.admitted = 0;
            self.state.renew(&self.engine.reads);
        }
    }

    /// Applies the batches of the part's shards, starting where the last pass stopped. The shard of
    /// the writer that runs the pass comes last, so that its new entry is the newest and is evicted
    /// last. True if no shard was left out that was to be drained.
    fn drain(&mut self) -> bool {
        let own = match self.plan.drain {
            Drain::Nothing => return true,
            Drain::All | Drain::ByRun => None,
            Drain::OwnLast(shard) => Some(shard),
        };
        let parts = self.engine.parts.len();
        let shards = self.engine.map.shards();
        let mut kept = 0;
        if own.is_some() {
            kept = self.budget.saturating_sub(self.engine.caller_budget);
            self.budget -= kept;
        }
        let mut round = true;
        for _ in 0..self.engine.shards_of_part() {
            if self.budget == 0 {
                round = false;
                break;
            }
            let shard = self.state.cursor;
            self.state.cursor = (shard + parts) % shards;
            if own != Some(shard) {
                self.drain_shard(shard);
            }
            let freeing = &mut self.state.freeing;
            freeing.undrained = freeing.undrained.saturating_sub(1);
            self.state.drained = self.state.drained.wrapping_add(1);
        }
        self.budget += kept;
        if let Some(own) = own {
            self.drain_shard(own);
        }
        round
    }

    /// Applies a shard's batch. If the plan says so, also moves units of the shard's table. For a
    /// run ends what writers have begun: a table that is only read from then on does not stay in
    /// two arrays.
    fn drain_shard(&mut self, shard: usize) {
        // Room for the shard's next batch: twice the limit, so that it seldom grows under the lock.
        let soft_limit = self.engine.batch_soft_limit.load(Ordering::Relaxed);
        self.state.batch.reserve(2 * soft_limit);
        let mut locked = self.engine.map.lock_shard(shard);
        if self.plan.drain == Drain::ByRun && locked.is_resizing() {
            self.resizing |= locked.resize_step(RESIZE_UNITS);
            self.budget = self.budget.saturating_sub(RESIZE_UNITS);
        }
        if self.state.freeing.wants_spare() {
            locked.give_emptied(&mut self.state.freeing.spare_chunks);
        }
        if !locked.has_work() {
            return;
        }
        locked.swap_batch(&mut self.state.batch, &mut self.state.of_tables);
        drop(locked);
        if self.engine.order_is_exact() {
            // The reads before these writes come first.
            self.state.take_reads(&self.engine.reads);
        }
        for memory in self.state.of_tables.drain(..) {
            self.state.freeing.retire_table(shard, memory);
        }
        let mut batch = std::mem::take(&mut self.state.batch);
        self.budget = self.budget.saturating_sub(batch.len());
        self.applied += batch.len();
        // Each of the two is compared as a constant: that saves instructions for each event.
        let is_all = |kind| batch.iter().all(|event| event.kind() == kind);
        match batch.first().map(WriteEvent::kind) {
            Some(EventKind::Unheard) if is_all(EventKind::Unheard) => batch.clear(),
            Some(EventKind::Succeeded) if is_all(EventKind::Succeeded) => {
                self.state.freeing.retire_all(shard, &batch);
                batch.clear();
            }
            _ => {}
        }
        let is_bounded = self.state.eviction.is_some();
        let mut events = batch.drain(..);
        while let Some(event) = events.next() {
            let ahead = events.as_slice();
            if let Some(event) = ahead.get(PREFETCH_DISTANCE) {
                event.prefetch(is_bounded);
            }
            if let Some(event) = ahead.get(PREFETCH_DISTANCE * 2 / 3) {
                if let Some(entry) = event.entry() {
                    entry.prefetch(is_bounded);
                }
            }
            if let Some(event) = ahead.get(PREFETCH_DISTANCE / 3) {
                self.prefetch(event);
            }
            self.apply(shard, &event);
        }
        drop(events);
        self.state.batch = batch;
    }

    /// Applies one change of a shard to the wheel and to the size policy.
    #[inline]
    fn apply(&mut self, shard: usize, event: &WriteEvent<K, V>) {
        let node = event.node();
        match event.kind() {
            EventKind::Added => {
                if let Some(node) = self.reschedule(node) {
                    if let Some(eviction) = &mut self.state.eviction {
                        eviction.admit(node);
                        self.admitted += 1;
                    }
                }
            }
            EventKind::Replacing => self.apply_replacement(node),
            EventKind::Replaced => {
                self.end_succeeded(shard, node, event.cause());
            }
            EventKind::Unheard => {}
            EventKind::Succeeded => self.state.freeing.retire_succeeded(shard, node),
            EventKind::Used => {
                if let Some(eviction) = &mut self.state.eviction {
                    eviction.accessed(node.entry().node());
                }
                self.state.freeing.retire_succeeded(shard, node);
            }
            EventKind::Removed => {
                self.state.unlink(node);
                self.end_removed(shard, node, event.cause());
            }
            EventKind::Rescheduled => {
                node.hear_of_moves();
                self.reschedule(node);
            }
        }
    }

    /// Applies a replacement of which the pass hears all: what it says of the new node.
    fn apply_replacement(&mut self, new: NodePtr<K, V>) {
        new.entry().set_node(new);
        if let Some(new) = self.reschedule(new) {
            if let Some(eviction) = &mut self.state.eviction {
                let is_use = self.engine.reads.record_write(new);
                let needs_room = eviction.replaced(new, is_use);
                self.admitted += usize::from(needs_room);
            }
        }
        // Else the new node has left again, as a later event of this shard says. If another node
        // replaced it, that node takes over the position in the queue and the bucket in the wheel,
        // in which the entry stays until then.
    }

    /// Links the entry of a node where its deadline belongs in the wheel. Returns the node that the
    /// entry has by now: a writer may have named another in it. `None` if the entry has left again;
    /// a later event of this shard says so, and it need not be linked first.
    // Always inlined: a call for each event would take as long again.
    #[inline(always)]
    fn reschedule(&mut self, node: NodePtr<K, V>) -> Option<NodePtr<K, V>> {
        let node = node.entry().node();
        match node.state() {
            // Another node takes its place just now, and leaves the entry where this one puts it.
            NodeState::InMap | NodeState::Succeeded => {
                self.advance_wheel(node);
                self.state.wheel.reschedule(node);
                Some(node)
            }
            NodeState::Removed | NodeState::Dead => None,
        }
    }

    /// Prefetches what applying an event will touch beside its node, which was prefetched before.
    #[inline]
    fn prefetch(&self, event: &WriteEvent<K, V>) {
        match event.kind() {
            EventKind::Added => {
                if let Some(eviction) = &self.state.eviction {
                    eviction.prefetch(event.node());
                }
            }
            EventKind::Rescheduled | EventKind::Removed => {
                let entry = event.node().entry();
                List::<K, V, TIMER>::prefetch_around(entry);
                if self.state.eviction.is_some() {
                    List::<K, V, QUEUE>::prefetch_around(entry);
                }
            }
            // Mostly the entry stays where it is.
            _ => {}
        }
    }
}

/// Room: entries that are due leave the map, then victims while the cache is over its bound.
impl<K, V> Pass<'_, K, V> {
    /// Removes due entries and victims, always more than the pass has added. Otherwise fast writers
    /// could use up the whole budget of each pass: expired entries would stay, and the cache would
    /// exceed its bound.
    fn make_room(&mut self) {
        let least = self.applied + self.plan.budget / 2;
        // Remove expired entries before live ones.
        let over = self.plan.evict != Evict::Nothing && self.state.excess() > 0;
        if (self.plan.expires || over) && !self.state.wheel.is_empty() {
            self.count_done(least, |pass| pass.expire(over));
        }
        if over {
            // Evict with this budget too, however many due entries were removed.
            self.count_done(least, Self::evict);
        }
    }

    /// Runs a step with at least this budget, and counts what it has done.
    fn count_done(&mut self, least: usize, step: impl FnOnce(&mut Self)) {
        self.budget = self.budget.max(least);
        let given = self.budget;
        step(self);
        self.state.done += (given - self.budget) as u64;
    }

    /// How many nodes the wheel's current bucket may have to be swept now. The plan may ask for a
    /// sweep. A cache that is `over` its bound sweeps as well, a few times a tick or if the bucket
    /// is small.
    fn most_to_sweep(&self, over: bool, now: u64) -> usize {
        let asked = self.plan.sweep_up_to;
        if !over {
            return asked;
        }
        let tick = time::saturating_nanos(self.engine.spans.resolution());
        if now.wrapping_sub(self.state.swept_at) < tick / SWEEPS_PER_TICK {
            asked.max(MAX_CHEAP_SWEEP)
        } else {
            usize::MAX
        }
    }

    /// Removes what is due. An entry that falls due before the current tick ends is found only by a
    /// sweep of the current bucket, which also visits entries that are not due.
    fn expire(&mut self, over: bool) {
        let now = self.read_clock();
        let most = self.most_to_sweep(over, now);
        if most > 0 && self.state.wheel.sweep_len(now) <= most {
            self.state.swept_at = now;
            self.state.wheel.sweep(now);
        }
        let mut group = [None; EXPIRE_GROUP];
        loop {
            let mut len = 0;
            while len < EXPIRE_GROUP {
                let Some(node) = self.state.wheel.next_due(now, &mut self.budget) else {
                    break;
                };
                let hash = node.hash();
                self.engine.map.cell(hash).prefetch_to_write(hash);
                group[len] = Some(node);
                len += 1;
            }
            for node in group[..len].iter_mut().filter_map(Option::take) {
                self.expire_one(node, now);
            }
            if len < EXPIRE_GROUP {
                return;
            }
        }
    }

    /// Removes an entry that the wheel has taken out as due, unless it was extended or removed
    /// meanwhile.
    pub(super) fn expire_one(&mut self, node: NodePtr<K, V>, now: u64) {
        let hash = node.hash();
        let mut shard = self.engine.map.lock(hash);
        // Until now a writer could name another node in the entry, which has the same hash.
        let node = node.entry().node();
        let Some(spot) = shard.find_node(hash, node) else {
            // A writer took it out; the event waits in a batch.
            return;
        };
        let deadline = node.deadline();
        // A reader may have extended it since the wheel looked. If not, the claim makes the
        // judgement final (node 4).
        if !time::is_due(now, deadline) || !node.claim(deadline, now) {
            drop(shard);
            self.state.wheel.reschedule(node);
            return;
        }
        shard.remove_without_event(spot);
        drop(shard);
        self.unlink_taken(node, RemovalCause::Expired, deadline);
    }

    /// Takes a node that this pass has taken out of the map out of everything else.
    fn unlink_taken(&mut self, node: NodePtr<K, V>, cause: RemovalCause, deadline: u64) {
        if let Some(eviction) = &mut self.state.eviction {
            match cause {
                RemovalCause::Expired => eviction.expired(node),
                _ => eviction.evicted(node),
            }
        }
        // A victim is still linked; what was due is not.
        self.state.wheel.deschedule(node);
        self.end_removed(node.shard(), node, cause);
        self.count_removal(node, cause, deadline);
    }

    /// Removes entries while the cache is over its bound: those that the wheel knows to be due
    /// before any live one.
    fn evict(&mut self) {
        let now = if self.state.wheel.is_empty() {
            None
        } else {
            Some(self.read_clock())
        };
        let mut examined = self.budget.saturating_mul(EXAMINED_PER_EVICTION);
        let mut until_look = VICTIMS_PER_LOOK;
        while self.budget > 0 && self.state.excess() > 0 {
            self.budget -= 1;
            if until_look == 0 {
                until_look = VICTIMS_PER_LOOK;
                if self.engine.parts.len() > 1 {
                    self.publish();
                    self.look_around();
                }
            }
            until_look -= 1;
            if let Some(now) = now {
                if self.state.wheel.has_work() {
                    self.state.wheel.finest_first();
                    if let Some(node) = self.state.wheel.next_due(now, &mut examined) {
                        self.expire_one(node, now);
                        continue;
                    }
                }
            }
            let eviction = self.state.eviction.as_ref();
            let Some(victim) = eviction.and_then(|eviction| eviction.victim()) else {
                return;
            };
            // If the victim has left the map, a writer removed it first. Unlink it here; the
            // writer's event, still in a batch, then finds nothing to do.
            match self.take_victim(victim) {
                Some((taken, cause, deadline)) => self.unlink_taken(taken, cause, deadline),
                None => self.state.unlink(victim),
            }
            // The next victim is usually chosen already: prefetch what its removal will touch.
            let eviction = self.state.eviction.as_ref();
            if let Some(next) = eviction.and_then(Eviction::prefetch_victim) {
                let hash = next.hash();
                self.engine.map.cell(hash).prefetch_to_write(hash);
                if now.is_some() {
                    List::<K, V, TIMER>::prefetch_around(next.entry());
                }
            }
        }
    }

    /// Takes a victim out of the map; the node that it has by now, the cause, and its last
    /// deadline. `None` if it had left before.
    // Reads the clock again: since the pass began, a deadline may have been moved into the past.
    fn take_victim(&mut self, victim: NodePtr<K, V>) -> Option<(NodePtr<K, V>, RemovalCause, u64)> {
        let hash = victim.hash();
        let mut shard = self.engine.map.lock(hash);
        // As in `expire_one`.
        let victim = victim.entry().node();
        let spot = shard.find_node(hash, victim)?;
        let deadline = victim.deadline();
        let expired = deadline != NEVER && victim.claim_if_due(self.read_clock());
        shard.remove_without_event(spot);
        let cause = if expired {
            RemovalCause::Expired
        } else {
            RemovalCause::Size
        };
        Some((victim, cause, deadline))
    }
}
