//! Removes victims while the cache is over its bound.

use super::Pass;
use crate::listener::RemovalCause;
use crate::node::NodePtr;
use crate::time::NEVER;
use crate::wheel::Wheel;

/// How many nodes of the wheel are examined, in search of a due one, for each unit of the budget
/// that is left.
const EXAMINED_PER_EVICTION: usize = 8;

impl<K, V> Pass<'_, K, V> {
    /// Removes entries while the cache is over its bound: those that the wheel knows to be due
    /// before any live one.
    pub(super) fn evict(&mut self) {
        let now = if self.state.wheel.is_empty() {
            None
        } else {
            Some(self.read_clock())
        };
        let mut examined = self.budget.saturating_mul(EXAMINED_PER_EVICTION);
        while self.budget > 0 && self.state.is_over() {
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
            let taken = self.take_victim(victim);
            // If the victim has left the map, a writer removed it first. Unlink it here; the
            // writer's event, still in a batch, then finds nothing to do.
            if let Some(eviction) = &mut self.state.eviction {
                match taken {
                    Some((RemovalCause::Expired, _)) => eviction.expired(victim),
                    _ => eviction.removed(victim),
                }
                // The next victim is usually chosen already: prefetch what its removal will touch.
                if let Some(next) = eviction.prefetch_victim() {
                    self.shared.map.prefetch(next.hash());
                    Wheel::prefetch_around(next);
                }
            }
            if let Some((cause, deadline)) = taken {
                self.state.wheel.deschedule(victim);
                self.retire_dead(victim, cause);
                self.count_removal(victim, cause, deadline);
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
        shard.take(spot, victim);
        let cause = if expired {
            RemovalCause::Expired
        } else {
            RemovalCause::Size
        };
        Some((cause, deadline))
    }
}
