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
