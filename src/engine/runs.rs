//! Runs: passes in a row, by the scheduler thread, an alarm's task or `run_pending_tasks`.
//!
//! A run clears the requests first, then drains, then arranges the next run (waking 1).
//!
//! A call that brings the cache up to date makes passes in a row ([`Plan::CATCH_UP`]), but clears
//! and arranges nothing.
//!
//! # When a run ends
//!
//! `run_pending_tasks` must return even under constant writes: a run stops once it has done all the
//! work that existed when it began ([`Goal`]). When each shard has been drained, the remaining work
//! is known: each pending node of the wheel, each entry over the bound, and the moves that tables
//! have begun. Other threads may do parts of it. Nodes that have become pending since may take part
//! of the effort, so a run does up to twice as much. A turn of all shards moves [`RESIZE_UNITS`]
//! units of each table. Moves that the removals of the run have begun take no part of the effort.

use super::freeing::{FREED_PER_RUN_PASS, is_freeing};
use super::pass::{Drain, Evict, MAX_CHEAP_SWEEP, Plan, RESIZE_UNITS};
use super::waking::{COALESCE_DELAY, Run};
use super::{Engine, Part, State};
use crate::eviction::Eviction;
use crate::map::Map;
use crate::scheduler::inside_listener;
use crate::sync::{nap, unlock_fairly};
use crate::time;
use std::time::{Duration, Instant};

/// How often a run of an alarm's task begins again at most, for what has fallen due while it called
/// the listener.
const MOST_RESTARTS: usize = 16;

/// A run on a thread that serves several caches stops after this many passes, so that the other
/// caches get their turn.
const PASSES_PER_TURN: usize = 16;

/// Or after so many over each part, if these are more.
const LEAST_ROUNDS_PER_TURN: usize = 4;

/// How long `run_pending_tasks` waits for destructors that other threads run, at most.
const MAX_DESTRUCTOR_WAIT: Duration = Duration::from_secs(1);

/// How many times it waits: a destructor may remove values that have destructors, too.
const MAX_DESTRUCTOR_WAITS: usize = 3;

/// How many times a run tries to free all that was removed.
const MAX_RECLAIM_ROUNDS: usize = 8;

/// The first nap of a thread that waits for others, and the longest.
pub(super) const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(5);

impl<K, V> Engine<K, V> {
    /// One pass of a run, which may have a goal in this part. A thread that waits for the lock gets
    /// it next; the freeing is done after that. Returns what is left of the plan's work.
    pub(super) fn run_pass(&self, part: &Part<K, V>, plan: Plan, goal: Option<&mut Goal>) -> Left {
        let mut state = part.state.lock();
        let leaves_work = self.pass_leaves_work(&mut state, plan);
        let is_reached = match goal {
            Some(goal) => leaves_work && goal.is_reached(&state, &self.map, plan),
            None => false,
        };
        let left = if !leaves_work {
            Left::Nothing
        } else if is_reached {
            Left::Later
        } else {
            Left::OfRun
        };
        let ready = state.freeing.take_ready(FREED_PER_RUN_PASS);
        unlock_fairly(state);
        self.free(part, ready);
        left
    }

    /// The work that a run that begins now has to do in this part before it may end.
    fn goal(&self, part: &Part<K, V>) -> Goal {
        Goal::new(part.state.lock().drained, self.shards_of_part())
    }

    /// Passes over each part until its goal is reached.
    pub(super) fn run_all(&self, plan: Plan) {
        for part in &self.parts {
            let mut plan = self.plan_of_part(plan);
            let mut goal = self.goal(part);
            let mut left = self.run_pass(part, plan, Some(&mut goal));
            // That has marked what is due at this very moment; once is enough.
            plan.sweep_up_to = 0;
            while left == Left::OfRun {
                left = self.run_pass(part, plan, Some(&mut goal));
            }
        }
        self.evict_from_heaviest(plan, &mut None, usize::MAX);
    }

    /// Frees what can be freed: some rounds of grace periods and drains, and then at most so many
    /// passes over each part. Returns whether these were too few.
    fn run_reclaim(&self, most: usize) -> bool {
        if is_freeing() {
            return false;
        }
        let plan = Plan {
            expires: false,
            ..Plan::RUN
        };
        // One pass begins a grace period, and the next drains. What destructors insert and remove
        // takes two more passes, a pinned reader one more.
        for _ in 0..MAX_RECLAIM_ROUNDS {
            self.run_all(plan);
            let is_empty = |part: &Part<K, V>| part.state.lock().freeing.is_empty();
            if self.parts.iter().all(is_empty) {
                return false;
            }
        }
        let mut leaves_rest = false;
        for part in &self.parts {
            let wanted = (part.state.lock().freeing.ready()).div_ceil(FREED_PER_RUN_PASS);
            leaves_rest |= wanted > most;
            for _ in 0..wanted.min(most) {
                self.run_pass(part, plan, None);
            }
        }
        leaves_rest
    }

    /// How many passes over each part a run makes on a thread that serves other caches too.
    fn passes_per_turn(&self) -> usize {
        (PASSES_PER_TURN / self.parts.len()).max(LEAST_ROUNDS_PER_TURN)
    }

    /// Drains the buffers, so that the size policy knows all uses and entries; evicts, and if that
    /// removed anything, has the listener called as after a write. Runs destructors, so the caller
    /// holds no pin.
    pub(crate) fn catch_up(&self) {
        let posted = self.notifier.posted();
        self.run_all(Plan::CATCH_UP);
        if self.notifier.posted() != posted {
            self.tell();
        }
    }

    /// Has the listener called for what waits: here, or soon.
    fn tell(&self) {
        if self.tells_callers() {
            self.deliver_here();
        } else {
            self.offer_or_deliver();
        }
    }

    /// After a call that has removed many entries: drops those that no thread reads, if the
    /// listener has heard of them.
    pub(crate) fn free_removed(&self) {
        self.run_all(Plan::CATCH_UP);
        self.tell();
        _ = self.run_reclaim(usize::MAX);
        // The scheduler thread may have taken some of them out.
        self.await_freed(Instant::now() + MAX_DESTRUCTOR_WAIT);
    }

    /// `run_pending_tasks`: removes all that is due, delivers the notifications for it, and frees
    /// what no thread reads.
    pub(crate) fn run_pending(&self) {
        let mut until = None;
        for _ in 0..=MAX_DESTRUCTOR_WAITS {
            let run = self.waking.begin();
            self.run_all(Plan {
                sweep_up_to: usize::MAX,
                ..Plan::RUN
            });
            self.deliver_pending();
            _ = self.run_reclaim(usize::MAX);
            // Before the wait: otherwise no run would come for entries that become due during it.
            self.end_run(run);
            let until = until.get_or_insert_with(|| Instant::now() + MAX_DESTRUCTOR_WAIT);
            if !self.await_freed(*until) {
                return;
            }
            // Others have dropped values: what their destructors removed is the next turn's work.
        }
    }

    /// Waits until other threads have dropped the values that they have taken out to free, or have
    /// dropped as many that they took since. False if there was nothing to wait for, or it took too
    /// long: their destructors may wait for this very thread.
    fn await_freed(&self, until: Instant) -> bool {
        if is_freeing() || inside_listener() {
            return false;
        }
        let mut next = SHORTEST_NAP;
        for part in &self.parts {
            let taken = part.state.lock().freeing.taken;
            while part.freed() < taken {
                if Instant::now() >= until {
                    return false;
                }
                nap(next);
                next = (next * 2).min(LONGEST_NAP);
            }
        }
        next > SHORTEST_NAP
    }

    /// The run of the scheduler thread, or of an alarm's task: all that is due, or a part of it if
    /// other caches may wait for the thread. Returns how long it is until the next run.
    pub(crate) fn run_due(&self) -> Option<Duration> {
        let waking = &self.waking;
        let mut run = waking.begin().of_scheduler();
        let mut left = self.run_rounds();
        for _ in 0..MOST_RESTARTS {
            if left != Left::DueMeanwhile {
                break;
            }
            run = waking.begin().of_scheduler();
            left = self.run_rounds();
        }
        let mut is_done = left == Left::Nothing;
        if is_done && !waking.cache.is_closed() {
            let mut most = usize::MAX;
            if waking.scheduler.is_background() {
                most = self.passes_per_turn();
            }
            is_done = !self.run_reclaim(most);
        }
        if waking.cache.is_closed() {
            return None;
        }
        if is_done {
            return self.end_run(run);
        }
        // Another run does the rest at once, behind those of caches that have waited longer.
        let next = time::earliest(self.run_overdue(), self.next_visit());
        run.end(next, Some(Duration::ZERO), &self.clock)
    }

    /// Rounds until the work is done for which a run has begun: one pass over each part whose goal
    /// is not reached yet. A thread that serves other caches too stops after a few of them. Returns
    /// what is left.
    fn run_rounds(&self) -> Left {
        let mut of_run = Plan {
            sweep_up_to: MAX_CHEAP_SWEEP,
            ..Plan::RUN
        };
        // Of each part; `None` once a pass has reached it.
        let goals = self.parts.iter().map(|part| Some(self.goal(part)));
        let mut goals: Vec<Option<Goal>> = goals.collect();
        let mut has_later_work = false;
        let mut debt = None;
        let most = self.passes_per_turn();
        let mut rounds = 0;
        loop {
            let plan = self.plan_of_part(of_run);
            let mut is_finished = true;
            for (part, open) in self.parts.iter().zip(&mut goals) {
                let Some(goal) = open else {
                    continue;
                };
                let left = self.run_pass(part, plan, Some(goal));
                if left == Left::OfRun {
                    is_finished = false;
                } else {
                    has_later_work |= left == Left::Later;
                    *open = None;
                }
            }
            if is_finished {
                is_finished = self.evict_from_heaviest(of_run, &mut debt, self.parts.len());
            }
            of_run.sweep_up_to = 0;
            rounds += 1;
            if self.deliver_from_run() {
                return Left::DueMeanwhile;
            }
            if is_finished {
                return if has_later_work {
                    Left::Later
                } else {
                    Left::Nothing
                };
            }
            let is_turn_over = rounds >= most && self.waking.scheduler.is_background();
            if is_turn_over || self.waking.cache.is_closed() {
                return Left::OfRun;
            }
        }
    }

    /// Arranges the next run after one that has done all it found.
    fn end_run(&self, run: Run<'_>) -> Option<Duration> {
        // A write after the requests were cleared has made a new request, or its entry is already
        // in the wheel.
        let is_resizing = self.map.units_left() > 0;
        let mut next = self.run_overdue();
        let mut least_retries: Option<u32> = None;
        for part in &self.parts {
            let mut state = part.state.lock();
            next = time::earliest(next, state.wheel.next_visit());
            let keeps_too_much =
                (state.freeing).keeps_too_much(part.freed(), || self.map.len() == 0);
            state.freeing.count_run(is_resizing);
            if is_resizing || state.freeing.wants_retry() {
                let retries = state.freeing.retries;
                least_retries = Some(least_retries.map_or(retries, |least| least.min(retries)));
            }
            if keeps_too_much {
                self.release_emptied(state);
            }
        }
        let retry = least_retries.map(|retries| COALESCE_DELAY * (1 << retries));
        run.end(next, retry, &self.clock)
    }

    /// When the wheels have work next; `None` if nothing is scheduled.
    pub(super) fn next_visit(&self) -> Option<u64> {
        let mut next = None;
        for part in &self.parts {
            next = time::earliest(next, part.state.lock().wheel.next_visit());
        }
        next
    }

    /// Whether a wheel has pending entries, which passes have yet to take out.
    pub(super) fn has_pending(&self) -> bool {
        let has_work = |part: &Part<K, V>| part.state.lock().wheel.has_work();
        self.parts.iter().any(has_work)
    }

    /// When the wheel has work next: `None` if nothing is scheduled, zero if something is due, or
    /// waits for the listener. With `Delivery::Caller` it tells what it evicts.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        let posted = self.notifier.posted();
        self.run_all(Plan::CATCH_UP);
        if self.tells_callers() && self.notifier.posted() != posted {
            self.deliver_here();
        }
        if self.notifier.waiting() > 0 {
            return Some(Duration::ZERO);
        }
        let is_empty = |part: &Part<K, V>| part.state.lock().wheel.is_empty();
        if self.parts.iter().all(is_empty) {
            return None;
        }
        let now = self.clock.now();
        let mut next = None;
        for part in &self.parts {
            let mut state = part.state.lock();
            state.wheel.advance(now);
            next = time::earliest(next, state.wheel.next_visit());
        }
        time::time_left(now, next?).or(Some(Duration::ZERO))
    }
}

/// What a pass or a run has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// What has come since the run began: the run ends, and another one comes at once.
    Later,
    /// Some of the work for which the run began: it goes on, but not for long on a thread that
    /// serves other caches too.
    OfRun,
    /// What has fallen due while the listener was called: the run begins again, a few times.
    DueMeanwhile,
}

/// The condition under which a run may end; see the module docs.
#[derive(Debug)]
pub(super) struct Goal {
    shards: u64,
    /// When this many shards have been drained, each shard has been, and the moves that were known
    /// have ended.
    drained_target: u64,
    /// When `State::done` reaches this count, the work that was known when it was set is done.
    done_target: Option<u64>,
}

impl Goal {
    /// The goal of a run that begins after this many drains of shards.
    pub(super) fn new(drained: u64, shards: usize) -> Self {
        let shards = shards as u64;
        Self {
            shards,
            drained_target: drained + shards,
            done_target: None,
        }
    }

    /// Whether a run with this plan may end in this state.
    fn is_reached<K, V>(&mut self, state: &State<K, V>, map: &Map<K, V>, plan: Plan) -> bool {
        self.reached_at(state.drained, state.done, state.left(plan), || {
            if plan.drain == Drain::ByRun {
                map.units_left()
            } else {
                0
            }
        })
    }

    /// `drained` and `done` count the shards drained in turn and the units of work done since the
    /// cache was built; `left` is the work that is left. `units` is called at most once: it returns
    /// how many units the table with the most of them has yet to move.
    fn reached_at(
        &mut self,
        drained: u64,
        done: u64,
        left: usize,
        units: impl FnOnce() -> usize,
    ) -> bool {
        if drained < self.drained_target {
            return false;
        }
        let target = *self.done_target.get_or_insert_with(|| {
            let turns = units().div_ceil(RESIZE_UNITS) as u64;
            self.drained_target = drained + self.shards * turns;
            done + 2 * left as u64
        });
        // Writers may have done some of the work.
        (done >= target || left == 0) && drained >= self.drained_target
    }
}

impl<K, V> State<K, V> {
    /// The most work that the passes of this plan still have, in units of their budget: pending
    /// nodes of the wheel, and entries that may have to be evicted.
    fn left(&self, plan: Plan) -> usize {
        let mut left = 0;
        if plan.expires {
            left += self.wheel.pending_len();
        }
        if plan.evict != Evict::Nothing {
            let known = self.eviction.as_ref().map_or(0, Eviction::len);
            // Each entry to evict weighs at least 1.
            left += usize::try_from(self.excess()).map_or(known, |excess| known.min(excess));
        }
        left
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
