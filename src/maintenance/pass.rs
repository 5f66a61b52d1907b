//! One pass, step by step; see the module docs of `maintenance`.

use super::{LIMIT, Maintenance, Plan, State, Sweep, WORTH_A_GRACE};
use crate::buffer::{Batch, WriteEvent};
use crate::eviction::Eviction;
use crate::listener::RemovalCause;
use crate::map::Garbage;
use crate::node::{self, Life, NodePtr};
use crate::notify::Notification;
use crate::shared::Shared;
use crate::time::{self, NEVER};
use crate::wheel::Wheel;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// How many events ahead the nodes are fetched.
const AHEAD: usize = 6;
/// How many due entries are removed together.
const GROUP: usize = 8;
/// How many units of a table that grows or shrinks are moved under one hold of its shard's lock, by
/// a run.
pub(super) const RESIZE_UNITS: usize = 16;
/// A bucket of up to this many nodes is swept on every run of the scheduler: removals are then
/// exact at no cost to speak of.
const CHEAP: usize = 256;
/// How often a cache that is over its bound looks for dead entries within a tick, if there are more
/// than `CHEAP` to look at.
pub(super) const SWEEPS_A_TICK: u64 = 16;
/// How often, while as many entries come as are there, every entry may tell of another read. Eight
/// times as often gave the same hit ratios on every trace, and took a twentieth more time.
pub(super) const RENEWALS: usize = 32;
/// The same where the order of use is what the size policy promises.
pub(super) const ORDERED_RENEWALS: usize = 256;
/// Nodes of the wheel that are worth a look, in search of a dead one, before a living one is
/// evicted.
const LOOKS: usize = 8;

impl<K, V> Maintenance<K, V> {
    /// Runs one pass; true if it stopped for its budget with work left.
    pub(super) fn pass(&self, shared: &Shared<K, V>, state: &mut State<K, V>, plan: Plan) -> bool {
        self.status.begin();
        // Real time: the cache's own must not be read where no entry has a deadline.
        let begun = shared.counters.as_ref().map(|_| Instant::now());
        let mut budget = plan.budget;
        if state.retired.turn(&shared.domain) {
            state.unswept = shared.map.shards();
            state.rings_swept = self.reads.is_none();
        }
        self.take_reads(state);
        state.applied = 0;
        state.admitted = 0;
        state.hand_set = false;
        state.resizing = false;
        let drained = plan.drain && self.drain(shared, state, plan, &mut budget);
        self.renew_reads(state, plan.own.is_none());
        if state.retired.is_sweeping() && state.unswept == 0 && state.rings_swept {
            state.retired.swept();
        }
        // However much was to be taken in, more leaves than came: or writers who bring as much as a
        // pass can take would keep the dead in the cache, and the bound would not hold.
        let least = state.applied + plan.budget / 2;
        // The dead make room before the living are asked to.
        let over = plan.evict && state.is_over();
        if (plan.expire || over) && !state.wheel.is_empty() {
            budget = budget.max(least);
            let given = budget;
            self.expire(shared, state, plan.sweep, over, &mut budget);
            state.done += (given - budget) as u64;
        }
        if over {
            // However many were due.
            budget = budget.max(least);
            let given = budget;
            self.evict(shared, state, &mut budget);
            state.done += (given - budget) as u64;
        }
        let enough = if plan.seal { 1 } else { WORTH_A_GRACE };
        if state.retired.seal(&shared.domain, enough) {
            state.waited = 0;
        }
        self.notifier.post(&mut state.gathered);
        self.status.end();
        if let (Some(counters), Some(begun)) = (&shared.counters, begun) {
            counters.passed(begun.elapsed());
        }
        if let Some(payload) = state.ticker_panic.take() {
            resume_unwind(payload);
        }
        !drained
            || state.resizing
            || (plan.expire && state.wheel.has_work())
            || (plan.evict && state.is_over())
    }

    /// Takes the read events.
    pub(super) fn take_reads(&self, state: &mut State<K, V>) {
        let (Some(reads), Some(eviction)) = (&self.reads, &mut state.eviction) else {
            return;
        };
        let complete = reads.drain(&mut state.taken, |nodes| eviction.accessed_all(nodes));
        state.rings_swept |= complete;
    }

    /// Lets entries tell of their next read once more, if enough has happened that it could matter
    /// who goes first: or at once in a `run`, so that what was read before it and what is read
    /// after it are told apart.
    fn renew_reads(&self, state: &mut State<K, V>, run: bool) {
        let (Some(reads), Some(eviction)) = (&self.reads, &state.eviction) else {
            return;
        };
        // Nobody has to go for a value in the place of one as heavy. But where the order of use is
        // the promise, that is a use as well.
        let (came, times) = if eviction.keeps_order() {
            (state.applied, ORDERED_RENEWALS)
        } else {
            (state.admitted, RENEWALS)
        };
        state.unstamped += came;
        if run || state.unstamped > eviction.len() / times {
            state.unstamped = 0;
            reads.renew();
        }
    }

    /// Applies the batches of shards, going on where the last pass stopped, and that of `own` at
    /// the end: what a caller has just brought in is then the newest of all, and goes last. True if
    /// it came round.
    fn drain(
        &self,
        shared: &Shared<K, V>,
        state: &mut State<K, V>,
        plan: Plan,
        budget: &mut usize,
    ) -> bool {
        let own = plan.own;
        // What writers have begun, runs bring to an end, so that a table that is just read from
        // then on does not stay in two arrays.
        let units = if plan.resize { RESIZE_UNITS } else { 0 };
        let of_others = own.map_or(*budget, |_| self.caller_budget.min(*budget));
        let mut left = of_others;
        let mut round = true;
        for _ in 0..shared.map.shards() {
            if left == 0 {
                round = false;
                break;
            }
            let shard = state.cursor;
            state.cursor = (shard + 1) % shared.map.shards();
            if own != Some(shard) {
                self.drain_shard(shared, state, shard, units, &mut left);
            }
            state.unswept = state.unswept.saturating_sub(1);
            state.drained = state.drained.wrapping_add(1);
        }
        *budget -= of_others - left;
        if let Some(own) = own {
            self.drain_shard(shared, state, own, units, budget);
        }
        round
    }

    /// Applies a shard's batch, and moves up to so many units of its table, if that grows or
    /// shrinks.
    fn drain_shard(
        &self,
        shared: &Shared<K, V>,
        state: &mut State<K, V>,
        shard: usize,
        units: usize,
        budget: &mut usize,
    ) {
        let mut batch = std::mem::replace(&mut state.batch, Batch::new());
        let mut locked = shared.map.lock_shard(shard);
        if units > 0 && locked.is_resizing() {
            locked.resize_step(units);
            state.resizing |= locked.is_resizing();
            *budget = budget.saturating_sub(units);
        }
        locked.swap_batch(&mut batch, &mut state.parts);
        drop(locked);
        for part in state.parts.drain(..) {
            state.retired.retire(Garbage::Part(part));
        }
        *budget = budget.saturating_sub(batch.len());
        state.applied += batch.len();
        let mut events = batch.drain();
        while let Some(event) = events.next() {
            let ahead = events.as_slice();
            if let Some(event) = ahead.get(AHEAD) {
                event.prefetch();
            }
            if let Some(event) = ahead.get(AHEAD * 2 / 3) {
                event.prefetch_entry(state.eviction.is_some());
            }
            if let Some(event) = ahead.get(AHEAD / 3) {
                state.prefetch(event);
            }
            self.apply(shared, state, event);
        }
        drop(events);
        state.batch = batch;
    }

    /// Lets wheel and size policy follow one change of the map.
    fn apply(&self, shared: &Shared<K, V>, state: &mut State<K, V>, event: WriteEvent<K, V>) {
        match event {
            WriteEvent::Added(node) => {
                // A node that has left again is told by a later event of this shard: it need not be
                // linked first.
                if node.life() == Life::Live {
                    self.set_hand(shared, state, node);
                    state.wheel.reschedule(node);
                    if let Some(eviction) = &mut state.eviction {
                        eviction.admit(node);
                        state.admitted += 1;
                    }
                }
            }
            WriteEvent::Replaced { old, new, cause } => {
                new.entry().set_node(new);
                if new.life() == Life::Live {
                    self.set_hand(shared, state, new);
                    state.wheel.reschedule(new);
                    if let (Some(eviction), Some(reads)) = (&mut state.eviction, &self.reads) {
                        let needs_room = eviction.replaced(new, reads.inherit_stamp(old, new));
                        state.admitted += usize::from(needs_room);
                    }
                } else if let Some(eviction) = &mut state.eviction {
                    // It has left again, as a later event of this shard says: if to a successor,
                    // that takes over what is held for it. So it does in the wheel, where the entry
                    // stays.
                    eviction.hold(new);
                }
                old.set_life(Life::Succeeded);
                self.notify_or_retire(state, old, cause);
            }
            WriteEvent::Removed(node, cause) => {
                state.unlink(node);
                self.retire_dead(state, node, cause);
            }
            WriteEvent::Rescheduled(node) => {
                if node.life() == Life::Live {
                    self.set_hand(shared, state, node);
                    state.wheel.reschedule(node);
                }
            }
        }
    }

    /// Brings the wheel's time up to date, once a pass, before it places a node: relative to an old
    /// time, it would be placed too coarsely. A cache without deadlines never gets here, so it
    /// reads no clock.
    #[inline]
    fn set_hand(&self, shared: &Shared<K, V>, state: &mut State<K, V>, node: NodePtr<K, V>) {
        if !state.hand_set && node.deadline() != NEVER {
            state.hand_set = true;
            let now = self.read_clock(shared, state);
            state.wheel.advance(now);
        }
    }

    /// The time for a pass (maintenance 5).
    fn read_clock(&self, shared: &Shared<K, V>, state: &mut State<K, V>) -> u64 {
        if state.ticker_panic.is_none() {
            match catch_unwind(AssertUnwindSafe(|| shared.clock.now())) {
                Ok(now) => return now,
                Err(payload) => state.ticker_panic = Some(payload),
            }
        }
        state.wheel.now()
    }

    /// Hands on a node that is unlinked everywhere: to the listener, then to be freed.
    #[inline(always)]
    fn retire_dead(&self, state: &mut State<K, V>, node: NodePtr<K, V>, cause: RemovalCause) {
        node.set_life(Life::Dead);
        self.notify_or_retire(state, node, cause);
    }

    /// Hands on a node that is Dead or Succeeded.
    #[inline(always)]
    fn notify_or_retire(&self, state: &mut State<K, V>, node: NodePtr<K, V>, cause: RemovalCause) {
        if self.notifier.has_listener() {
            state.gathered.push(Notification { node, cause });
        } else {
            state.retired.retire(Garbage::Node(node));
        }
    }

    /// Removes what is due. To find it before its tick has ended takes a sweep of the current
    /// bucket, which touches those that are not due as well: the plan may ask for it, and so does
    /// being `over` the bound, a few times a tick or if they are few.
    fn expire(
        &self,
        shared: &Shared<K, V>,
        state: &mut State<K, V>,
        sweep: Sweep,
        over: bool,
        budget: &mut usize,
    ) {
        let now = self.read_clock(shared, state);
        let pause = time::saturating_nanos(self.spans.resolution()) / SWEEPS_A_TICK;
        let wanted = match sweep {
            Sweep::No => false,
            Sweep::IfCheap => state.wheel.sweep_len(now) <= CHEAP,
            Sweep::Yes => true,
        };
        let cheap = || state.wheel.sweep_len(now) <= CHEAP;
        if wanted || (over && (now.wrapping_sub(state.swept_at) >= pause || cheap())) {
            state.swept_at = now;
            state.wheel.sweep(now);
        }
        // In groups, so that the cache misses of their map buckets are under way together.
        let mut group = [None; GROUP];
        loop {
            let mut len = 0;
            while len < GROUP
                && let Some(node) = state.wheel.next_due(now, budget)
            {
                shared.map.prefetch(node.hash());
                group[len] = Some(node);
                len += 1;
            }
            for node in group[..len].iter_mut().filter_map(Option::take) {
                self.expire_one(shared, state, node, now);
            }
            if len < GROUP {
                return;
            }
        }
    }

    /// Removes an entry that the wheel has handed out as due, unless it was extended or taken out
    /// meanwhile.
    pub(super) fn expire_one(
        &self,
        shared: &Shared<K, V>,
        state: &mut State<K, V>,
        node: NodePtr<K, V>,
        now: u64,
    ) {
        let hash = node.hash();
        let mut shard = shared.map.lock(hash);
        let Some(spot) = shard.find_node(hash, node) else {
            // A writer took it out; the event waits in a batch.
            return;
        };
        let deadline = node.deadline();
        // A reader may have extended it since the wheel looked; if not, the claim makes the
        // judgement final (node 4).
        if !time::is_due(now, deadline) || !node.claim(deadline, now) {
            drop(shard);
            state.wheel.reschedule(node);
            return;
        }
        shard.take(spot, node);
        drop(shard);
        if let Some(eviction) = &mut state.eviction {
            eviction.expired(node);
        }
        self.retire_dead(state, node, RemovalCause::Expired);
        self.note_taken(shared, state, node, RemovalCause::Expired, deadline);
    }

    /// Notes for the statistics that the pass took a node out, and how late if it was due since
    /// `deadline`, read before the claim.
    #[inline]
    fn note_taken(
        &self,
        shared: &Shared<K, V>,
        state: &mut State<K, V>,
        node: NodePtr<K, V>,
        cause: RemovalCause,
        deadline: u64,
    ) {
        shared.note_removed(|| node.weight(), cause);
        if let Some(counters) = &shared.counters
            && cause == RemovalCause::Expired
        {
            // Not the time at which the pass began: how long the pass takes is a part of it.
            let now = self.read_clock(shared, state);
            counters.late_by(node::overdue(now, deadline));
        }
    }

    /// Removes entries while the cache is over its bound: those that the wheel knows to be due
    /// before any that is alive.
    fn evict(&self, shared: &Shared<K, V>, state: &mut State<K, V>, budget: &mut usize) {
        let now = if state.wheel.is_empty() {
            None
        } else {
            Some(self.read_clock(shared, state))
        };
        let mut looks = budget.saturating_mul(LOOKS);
        while *budget > 0 && state.is_over() {
            *budget -= 1;
            if let Some(now) = now
                && state.wheel.has_work()
            {
                state.wheel.finest_first();
                if let Some(node) = state.wheel.next_due(now, &mut looks) {
                    self.expire_one(shared, state, node, now);
                    continue;
                }
            }
            let dying = now.and_then(|now| self.dying(state, now));
            let Some(eviction) = &mut state.eviction else {
                return;
            };
            let Some(victim) = dying.or_else(|| eviction.victim()) else {
                return;
            };
            let taken = self.evict_one(shared, state, victim);
            // If there is nothing to take, a writer was faster; its event, still in a batch, finds
            // the node unlinked here.
            if let Some(eviction) = &mut state.eviction {
                eviction.removed(victim);
                // Who goes next is mostly known by now, and the processor can be fetching what that
                // will touch.
                if let Some(next) = eviction.prefetch_victim() {
                    shared.map.prefetch(next.hash());
                    Wheel::prefetch_around(next);
                }
            }
            if let Some((cause, deadline)) = taken {
                state.wheel.deschedule(victim);
                self.retire_dead(state, victim, cause);
                self.note_taken(shared, state, victim, cause, deadline);
            }
        }
    }

    /// An entry that is as good as dead: due before the tick ends, and the smaller part of its life
    /// is left. Where reads extend, none is: the next read may.
    fn dying(&self, state: &State<K, V>, now: u64) -> Option<NodePtr<K, V>> {
        if self.reads_extend {
            return None;
        }
        let node = state.wheel.nearest()?;
        if !state.eviction.as_ref()?.may_give_up(node) {
            return None;
        }
        let deadline = node.deadline();
        let left = deadline.wrapping_sub(now);
        let short = time::saturating_nanos(self.spans.resolution());
        let mostly_lived = || {
            let written = node.written();
            written != NEVER && left < short && left <= now.wrapping_sub(written)
        };
        // Due, and not found yet: it goes as `Expired`.
        (deadline != NEVER && (time::is_due(now, deadline) || mostly_lived())).then_some(node)
    }

    /// Takes a victim out of the map and says for which cause it left, and its last deadline;
    /// `None` if it had left before.
    // By the present time, not that at which the pass began: a deadline may have been moved to
    // before it since.
    fn evict_one(
        &self,
        shared: &Shared<K, V>,
        state: &mut State<K, V>,
        victim: NodePtr<K, V>,
    ) -> Option<(RemovalCause, u64)> {
        let hash = victim.hash();
        let mut shard = shared.map.lock(hash);
        let spot = shard.find_node(hash, victim)?;
        let deadline = victim.deadline();
        let expired = deadline != NEVER
            && victim
                .deadline_if_alive(self.read_clock(shared, state))
                .is_none();
        shard.take(spot, victim);
        let cause = if expired {
            RemovalCause::Expired
        } else {
            RemovalCause::Size
        };
        Some((cause, deadline))
    }
}

impl<K, V> State<K, V> {
    /// Asks the processor for what applying an event will touch beside its nodes, which are there
    /// by now.
    #[inline]
    fn prefetch(&self, event: &WriteEvent<K, V>) {
        match *event {
            WriteEvent::Added(node) => {
                if let Some(eviction) = &self.eviction {
                    eviction.prefetch(node);
                }
            }
            WriteEvent::Removed(node, _) => {
                Wheel::prefetch_around(node);
                if self.eviction.is_some() {
                    Eviction::prefetch_around(node);
                }
            }
            WriteEvent::Rescheduled(node) => Wheel::prefetch_around(node),
            // Mostly the entry stays where it is.
            WriteEvent::Replaced { .. } => {}
        }
    }

    fn is_over(&self) -> bool {
        self.eviction.as_ref().is_some_and(Eviction::is_over)
    }

    /// By how much what was taken in is over the bound.
    pub(super) fn excess(&self) -> u64 {
        self.eviction.as_ref().map_or(0, Eviction::excess)
    }

    /// Whether it is over the bound by more than a full batch of the heaviest entries.
    pub(super) fn is_far_over(&self) -> bool {
        self.eviction.as_ref().is_some_and(|eviction| {
            eviction.excess() / LIMIT as u64 > u64::from(eviction.heaviest())
        })
    }

    fn unlink(&mut self, node: NodePtr<K, V>) {
        self.wheel.deschedule(node);
        if let Some(eviction) = &mut self.eviction {
            eviction.removed(node);
        }
    }
}
