//! The termination condition of `run_pending_tasks`, which must return even under constant writes:
//! a run stops once it has done all the work that existed when it began.
//!
//! When each shard has been drained, the remaining work is known: take out each pending node of the
//! wheel once, and evict each entry over the bound once. Other threads may do parts of it. Nodes
//! that have become pending since may take part of the effort, so a run does up to twice as much.

use super::plan::Plan;
use super::state::State;
use crate::eviction::Eviction;

/// The condition under which a run may end; see the module docs.
#[derive(Debug)]
pub(super) struct Goal {
    /// When this many shards have been drained, each shard has been.
    drained_target: u64,
    /// When `State::done` reaches this count, the work that was known when it was set is done.
    done_target: Option<u64>,
}

impl Goal {
    /// The goal of a run that begins after this many drains of shards.
    pub(super) fn new(drained: u64, shards: usize) -> Self {
        Self {
            drained_target: drained + shards as u64,
            done_target: None,
        }
    }

    /// Whether a run with this plan may end in this state.
    pub(super) fn is_reached<K, V>(&mut self, state: &State<K, V>, plan: Plan) -> bool {
        self.reached_at(state.drained, state.done, || state.left(plan))
    }

    /// `drained` and `done` count the shards drained in turn and the units of work done since the
    /// cache was built. `left` is called at most once.
    fn reached_at(&mut self, drained: u64, done: u64, left: impl FnOnce() -> usize) -> bool {
        if drained < self.drained_target {
            return false;
        }
        done >= *self
            .done_target
            .get_or_insert_with(|| done + 2 * left() as u64)
    }
}

impl<K, V> State<K, V> {
    /// The most work that the passes of this plan still have to do, in units of their budget:
    /// pending nodes of the wheel, and entries that may have to be evicted.
    fn left(&self, plan: Plan) -> usize {
        let pending = if plan.expire {
            self.wheel.pending_len()
        } else {
            0
        };
        pending + if plan.evict { self.surplus() } else { 0 }
    }

    /// At most this many entries have to be evicted.
    fn surplus(&self) -> usize {
        let known = self.eviction.as_ref().map_or(0, Eviction::len);
        // Each entry to evict weighs at least 1.
        usize::try_from(self.excess()).map_or(known, |excess| known.min(excess))
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;
    use crate::{Cache, ManualTicker};
    use std::time::Duration;

    #[test]
    fn no_run_ends_before_each_shard_was_drained() {
        let mut goal = Goal::new(10, 4);
        for drained in 10..14 {
            assert!(!goal.reached_at(drained, 1_000, || unreachable!("asked too early")));
        }
        assert!(goal.reached_at(14, 0, || 0));
    }

    #[test]
    fn a_run_does_the_work_that_existed_at_its_start_and_no_later_work() {
        for (left, work) in [(1, 2), (100, 200)] {
            let mut goal = Goal::new(0, 1);
            assert!(!goal.reached_at(0, 5, || left));
            assert!(!goal.reached_at(1, 7, || left));
            assert!(!goal.reached_at(1, 7 + work - 1, || 9_000));
            assert!(goal.reached_at(1, 7 + work, || 9_000));
        }
    }

    #[test]
    fn the_work_left_is_what_the_plan_would_do() {
        let clock = ManualTicker::new();
        let cache: Cache<u32, u32> = Cache::builder()
            .ticker(clock.clone())
            .max_capacity(1_000)
            .weigher(|_, &weight| weight)
            .build();
        (0..100).for_each(|key| cache.insert_with_ttl(key, 10, Duration::from_secs(1)));
        cache.run_pending_tasks();
        clock.advance(Duration::from_secs(10));
        let (shared, maintenance) = (&cache.core.shared, &cache.core.maintenance);
        let left = |plan| {
            let mut state = maintenance.state.lock();
            let now = shared.clock.now();
            state.wheel.advance(now);
            state.left(plan)
        };
        assert_eq!(left(Plan::RUN), 100);
        assert!(maintenance.set_max_capacity(shared, 970));
        assert_eq!(left(Plan::RUN), 130);
        assert!(maintenance.set_max_capacity(shared, 10));
        // At most as many as there are.
        assert_eq!(left(Plan::RUN), 200);
        let neither = Plan {
            expire: false,
            evict: false,
            ..Plan::RUN
        };
        assert_eq!(left(neither), 0);
    }
}
