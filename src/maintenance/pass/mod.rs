//! One pass, step by step.
//!
//! | file | step |
//! |------|------|
//! | [`drain`] | the read rings and the batches are applied to the wheel and to the size policy |
//! | [`make_room`] | entries that are due leave the map, then victims while it is over its bound |
//!
//! The order of the steps, and what holds between them, is in the module docs of `maintenance`.

pub(super) mod drain;
pub(super) mod make_room;

use super::{Maintenance, State};
use crate::listener::RemovalCause;
use crate::map::Garbage;
use crate::node::{self, NodePtr, NodeState};
use crate::notify::Notification;
use crate::shared::Shared;
use crate::time::NEVER;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// How many units of a table that grows or shrinks a run moves under one hold of its shard's lock.
pub(super) const RESIZE_UNITS: usize = 16;

/// Budget of a pass of a run. It bounds how long a writer waits for the maintenance lock.
pub(super) const RUN_BUDGET: usize = 256;

/// Whether a pass searches the wheel's current bucket, whose tick has not ended, for entries that
/// are due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sweep {
    No,
    IfCheap,
    Yes,
}

/// The kinds of work of one pass, and the amount of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) budget: usize,
    /// The shard of the writer that runs the pass; `None` for a run.
    pub(super) own: Option<usize>,
    /// Whether batches are drained.
    pub(super) drain: bool,
    /// Whether due entries are removed.
    pub(super) expire: bool,
    /// Whether victims are removed.
    pub(super) evict: bool,
    /// Whether this is a pass of a run: it also moves units of tables that grow or shrink, and lets
    /// each entry report its next read again, whatever has happened since it reported the last.
    pub(super) run: bool,
    pub(super) sweep: Sweep,
    /// Whether a grace period begins for however few items.
    pub(super) seal: bool,
}

impl Plan {
    /// A pass of a run.
    pub(super) const RUN: Self = Self {
        budget: RUN_BUDGET,
        own: None,
        drain: true,
        expire: true,
        evict: true,
        run: true,
        sweep: Sweep::No,
        seal: true,
    };

    /// A pass that frees memory.
    pub(super) const RECLAIM: Self = Self {
        expire: false,
        ..Self::RUN
    };

    /// A pass of a writer that waits until memory is freed.
    pub(super) const AWAIT_RECLAIM: Self = Self {
        run: false,
        ..Self::RECLAIM
    };

    /// A pass after this one that drains nothing more.
    pub(super) fn without_drain(self) -> Self {
        Self {
            budget: RUN_BUDGET,
            drain: false,
            ..self
        }
    }
}

/// A pass in progress. It holds the maintenance lock through the borrow of the state.
pub(super) struct Pass<'a, K, V> {
    maintenance: &'a Maintenance<K, V>,
    shared: &'a Shared<K, V>,
    state: &'a mut State<K, V>,
    plan: Plan,
    /// The rest of the plan's budget.
    budget: usize,
    /// Events applied: as many evictions may be due.
    applied: usize,
    /// Entries that came in, or were found heavier than before: others may have to leave for them.
    admitted: usize,
    /// Whether the wheel's time was brought up to date.
    wheel_is_current: bool,
    /// Whether a table was left between two arrays.
    resizing: bool,
    /// The payload of a panic of the ticker.
    ticker_panic: Option<Box<dyn Any + Send>>,
}

/// The work that a pass has left undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// Whether the pass stopped for its budget with work left.
    pub(super) more: bool,
    /// How many events it has applied.
    pub(super) applied: usize,
}

impl<K, V> Maintenance<K, V> {
    /// A pass that is about to begin.
    pub(super) fn pass<'a>(
        &'a self,
        shared: &'a Shared<K, V>,
        state: &'a mut State<K, V>,
        plan: Plan,
    ) -> Pass<'a, K, V> {
        Pass {
            maintenance: self,
            shared,
            state,
            plan,
            budget: plan.budget,
            applied: 0,
            admitted: 0,
            wheel_is_current: false,
            resizing: false,
            ticker_panic: None,
        }
    }
}

impl<K, V> Pass<'_, K, V> {
    pub(super) fn run(mut self) -> Passed {
        let (maintenance, shared) = (self.maintenance, self.shared);
        // Real time: the cache's own must not be read where no entry has a deadline.
        let begun = shared.counters.as_ref().map(|_| Instant::now());
        let shards = shared.map.shards();
        let has_rings = shared.reads.is_some();
        self.state
            .freeing
            .start_drain(&shared.domain, shards, has_rings);
        self.state.take_reads(shared.reads.as_ref());
        let drained = self.plan.drain && self.drain();
        self.renew_reads();
        self.state.freeing.end_drain();
        self.make_room();
        (self.state.freeing).seal(&shared.domain, self.plan.seal, &maintenance.backlog);
        let gathered = &mut self.state.gathered;
        maintenance.notifier.post(gathered);
        maintenance.backlog.note_applied();
        if let (Some(counters), Some(begun)) = (&shared.counters, begun) {
            counters.passed(begun.elapsed());
        }
        if let Some(payload) = self.ticker_panic.take() {
            resume_unwind(payload);
        }
        Passed {
            more: !drained
                || self.resizing
                || (self.plan.expire && self.state.wheel.has_work())
                || (self.plan.evict && self.state.excess() > 0),
            applied: self.applied,
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

    /// The time for a pass (maintenance 5).
    fn read_clock(&mut self) -> u64 {
        if self.ticker_panic.is_none() {
            match catch_unwind(AssertUnwindSafe(|| self.shared.clock.now())) {
                Ok(now) => return now,
                Err(payload) => self.ticker_panic = Some(payload),
            }
        }
        self.state.wheel.now()
    }

    /// Retires a node that is unlinked everywhere.
    #[inline]
    fn retire_dead(&mut self, node: NodePtr<K, V>, cause: RemovalCause) {
        node.set_state(NodeState::Dead);
        self.notify_or_retire(node, cause);
    }

    /// Posts a node that is Dead or Succeeded to the listener, which is to hear of it before it is
    /// freed; without a listener, retires it.
    #[inline]
    fn notify_or_retire(&mut self, node: NodePtr<K, V>, cause: RemovalCause) {
        if self.maintenance.notifier.has_listener() {
            (self.state.gathered).push(Notification { node, cause });
        } else {
            self.state.freeing.retire(Garbage::Node(node));
        }
    }

    /// Counts a removal by the pass. For an expired node it also counts how long after `deadline`
    /// the removal came; `deadline` was read before the claim.
    #[inline]
    fn count_removal(&mut self, node: NodePtr<K, V>, cause: RemovalCause, deadline: u64) {
        self.shared.note_removed(|| node.weight(), cause);
        if let Some(counters) = &self.shared.counters
            && cause == RemovalCause::Expired
        {
            // Not the time at which the pass began: how long the pass takes is a part of it.
            let now = self.read_clock();
            counters.late_by(node::overdue(now, deadline));
        }
    }
}
