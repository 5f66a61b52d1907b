//! When a run may end though there is more to do: once it has done all that there was when it began.
//!
//! Others may bring more for as long as it goes on, and `run_pending_tasks` must return all the same. What was there is done when each
//! shard was drained once, and after that as many passes have ended as the ripe nodes and the entries over the bound of that moment could
//! take.

use super::{Plan, RUN_BUDGET, State};
use crate::eviction::Eviction;
use crate::wheel::LEVELS;

/// What a pass has left to do, in units of its budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    /// Shards drained in turn since the cache was built.
    drained: u64,
    /// At most: nodes of the wheel that are ripe, and entries that may have to be evicted.
    ripe: usize,
    excess: usize,
}

/// When a run may end; see the module docs.
#[derive(Debug)]
pub(super) struct Goal {
    /// So many shards drained, each has been.
    drained: u64,
    /// From then on: passes that may still be needed for what was known.
    passes: Option<usize>,
}

impl Goal {
    /// For a run that begins when so many shards have been drained in turn.
    pub(super) fn new(drained: u64, shards: usize) -> Self {
        Self {
            drained: drained.wrapping_add(shards as u64),
            passes: None,
        }
    }

    /// Whether the run may end with this left to do.
    pub(super) fn is_reached(&mut self, rest: Rest) -> bool {
        if (rest.drained.wrapping_sub(self.drained) as i64) < 0 {
            return false;
        }
        // A ripe node may be filed again once a level.
        let units = rest.ripe * LEVELS + rest.excess;
        // Half a budget is the least that a pass does of each.
        let passes = self.passes.get_or_insert(units.div_ceil(RUN_BUDGET / 2));
        let reached = *passes == 0;
        *passes = passes.saturating_sub(1);
        reached
    }
}

impl<K, V> State<K, V> {
    /// No more entries than these have to be evicted.
    fn surplus(&self) -> usize {
        let known = self.eviction.as_ref().map_or(0, Eviction::len);
        // Each weighs something.
        usize::try_from(self.excess()).map_or(known, |excess| known.min(excess))
    }

    /// What a pass of this plan has left.
    pub(super) fn rest(&self, plan: Plan) -> Rest {
        Rest {
            drained: self.drained,
            ripe: if plan.expire {
                self.wheel.ripe_len()
            } else {
                0
            },
            excess: if plan.evict { self.surplus() } else { 0 },
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;
    use crate::{Cache, ManualTicker};
    use std::time::Duration;

    fn rest(drained: u64, ripe: usize, excess: usize) -> Rest {
        Rest {
            drained,
            ripe,
            excess,
        }
    }

    #[test]
    fn no_run_ends_before_each_shard_was_drained() {
        for begun in [0, 10, u64::MAX - 3, u64::MAX] {
            let mut goal = Goal::new(begun, 4);
            for more in 0..4 {
                assert!(!goal.is_reached(rest(begun.wrapping_add(more), 0, 0)));
            }
            assert!(goal.is_reached(rest(begun.wrapping_add(4), 0, 0)));
        }
    }

    #[test]
    fn what_was_ripe_or_over_the_bound_then_has_its_passes_and_what_comes_later_has_none() {
        let half = RUN_BUDGET / 2;
        let cases = [
            ((1, 0), 1),
            ((0, 1), 1),
            ((0, half), 1),
            ((0, half + 1), 2),
            ((half, 0), LEVELS),
            ((half, half), LEVELS + 1),
            ((1_000 * half, 0), 1_000 * LEVELS),
        ];
        for ((ripe, excess), passes) in cases {
            let mut goal = Goal::new(0, 1);
            assert!(!goal.is_reached(rest(0, 0, 0)));
            let mut taken = 0;
            while !goal.is_reached(rest(1 + taken, ripe + 7 * taken as usize, excess)) {
                taken += 1;
            }
            assert_eq!(taken as usize, passes, "{ripe} ripe, {excess} over");
        }
    }

    #[test]
    fn what_is_left_is_what_the_plan_would_do() {
        let clock = ManualTicker::new();
        let cache: Cache<u32, u32> = Cache::builder()
            .ticker(clock.clone())
            .max_capacity(1_000)
            .weigher(|_, &weight| weight)
            .build();
        (0..100).for_each(|key| cache.insert_with_ttl(key, 10, Duration::from_secs(1)));
        cache.run_pending_tasks();
        clock.advance(Duration::from_secs(10));
        let upkeep = &cache.core.upkeep;
        let left = |plan| {
            let mut state = upkeep.state.lock();
            let now = upkeep.clock.now();
            state.wheel.advance(now);
            let rest = state.rest(plan);
            (rest.ripe, rest.excess)
        };
        assert_eq!(left(Plan::RUN), (100, 0));
        assert!(upkeep.set_max_capacity(970));
        assert_eq!(left(Plan::RUN), (100, 30));
        assert!(upkeep.set_max_capacity(10));
        // No more than there are.
        assert_eq!(left(Plan::RUN), (100, 100));
        let neither = Plan {
            expire: false,
            evict: false,
            ..Plan::RUN
        };
        assert_eq!(left(neither), (0, 0));
    }
}
