//! Makes room: entries that are due leave the map, then victims while the cache is over its bound.

use super::{Pass, Sweep};
use crate::eviction::Eviction;
use crate::listener::RemovalCause;
use crate::node::NodePtr;
use crate::time::{self, NEVER};
use crate::wheel::Wheel;

/// How many due entries are removed together, so that the cache misses of their map buckets
/// overlap.
const EXPIRE_GROUP: usize = 8;

/// A bucket of up to this many nodes is swept on every run of the scheduler thread.
const MAX_CHEAP_SWEEP: usize = 256;

/// How often within a tick a cache that is over its bound sweeps the current bucket, if that has
/// more than [`MAX_CHEAP_SWEEP`] nodes.
pub(in super::super) const SWEEPS_PER_TICK: u64 = 16;

/// How many nodes of the wheel are examined, in search of a due one, for each unit of the budget
/// that is left.
const EXAMINED_PER_EVICTION: usize = 8;

impl<K, V> Pass<'_, K, V> {
    /// Removes due entries and victims, always more than the pass has added. Otherwise fast writers
    /// could use up the whole budget of each pass: expired entries would stay, and the cache would
    /// exceed its bound.
    pub(super) fn make_room(&mut self) {
        let least = self.applied + self.plan.budget / 2;
        // Remove expired entries before live ones.
        let over = self.plan.evict && self.state.excess() > 0;
        if (self.plan.expire || over) && !self.state.wheel.is_empty() {
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

    /// Removes what is due. An entry that falls due before the current tick ends is found only by a
    /// sweep of the current bucket, which also visits entries that are not due. The plan may ask
    /// for a sweep. A cache that is `over` its bound sweeps as well, a few times a tick or if the
    /// bucket is small.
    fn expire(&mut self, over: bool) {
        let now = self.read_clock();
        let resolution = self.maintenance.spans.resolution();
        let pause = time::saturating_nanos(resolution) / SWEEPS_PER_TICK;
        let state = &mut *self.state;
        let cheap = || state.wheel.sweep_len(now) <= MAX_CHEAP_SWEEP;
        let wanted = match self.plan.sweep {
            Sweep::No => false,
            Sweep::IfCheap => cheap(),
            Sweep::Yes => true,
        };
        if wanted || (over && (now.wrapping_sub(state.swept_at) >= pause || cheap())) {
            state.swept_at = now;
            state.wheel.sweep(now);
        }
        let mut group = [None; EXPIRE_GROUP];
        loop {
            let mut len = 0;
            while len < EXPIRE_GROUP
                && let Some(node) = self.state.wheel.next_due(now, &mut self.budget)
            {
                self.shared.map.prefetch(node.hash());
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
    pub(in super::super) fn expire_one(&mut self, node: NodePtr<K, V>, now: u64) {
        let hash = node.hash();
        let mut shard = self.shared.map.lock(hash);
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
        shard.take(spot);
        drop(shard);
        self.unlink_taken(node, RemovalCause::Expired, deadline);
    }

    /// Takes a node that this pass has taken out of the map out of everything else.
    fn unlink_taken(&mut self, node: NodePtr<K, V>, cause: RemovalCause, deadline: u64) {
        if let Some(eviction) = &mut self.state.eviction {
            match cause {
                RemovalCause::Expired => eviction.expired(node),
                _ => eviction.removed(node),
            }
        }
        self.state.wheel.deschedule(node);
        self.retire_dead(node, cause);
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
        while self.budget > 0 && self.state.excess() > 0 {
            self.budget -= 1;
            if let Some(now) = now
                && self.state.wheel.has_work()
            {
                self.state.wheel.finest_first();
                if let Some(node) = self.state.wheel.next_due(now, &mut examined) {
                    self.expire_one(node, now);
                    continue;
                }
            }
            let eviction = self.state.eviction.as_mut();
            let Some(victim) = eviction.and_then(|eviction| eviction.victim()) else {
                return;
            };
            // If the victim has left the map, a writer removed it first. Unlink it here; the
            // writer's event, still in a batch, then finds nothing to do.
            match self.take_victim(victim) {
                Some((cause, deadline)) => self.unlink_taken(victim, cause, deadline),
                None => self.state.unlink(victim),
            }
            // The next victim is usually chosen already: prefetch what its removal will touch.
            let eviction = self.state.eviction.as_ref();
            if let Some(next) = eviction.and_then(Eviction::prefetch_victim) {
                self.shared.map.prefetch(next.hash());
                Wheel::prefetch_around(next);
            }
        }
    }

    /// Takes a victim out of the map; the cause, and its last deadline. `None` if it had left
    /// before.
    // Reads the clock again: since the pass began, a deadline may have been moved into the past.
    fn take_victim(&mut self, victim: NodePtr<K, V>) -> Option<(RemovalCause, u64)> {
        let hash = victim.hash();
        let mut shard = self.shared.map.lock(hash);
        let spot = shard.find_node(hash, victim)?;
        let deadline = victim.deadline();
        let expired = deadline != NEVER && victim.deadline_if_live(self.read_clock()).is_none();
        shard.take(spot);
        let cause = if expired {
            RemovalCause::Expired
        } else {
            RemovalCause::Size
        };
        Some((cause, deadline))
    }
}
