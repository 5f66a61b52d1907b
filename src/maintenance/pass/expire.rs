//! Removes entries that are due.

use super::super::plan::Sweep;
use super::Pass;
use crate::listener::RemovalCause;
use crate::node::NodePtr;
use crate::time;

/// How many due entries are removed together, so that the cache misses of their map buckets
/// overlap.
const EXPIRE_GROUP: usize = 8;

/// A bucket of up to this many nodes is swept on every run of the scheduler thread.
const MAX_CHEAP_SWEEP: usize = 256;

/// How often within a tick a cache that is over its bound sweeps the current bucket, if that has
/// more than [`MAX_CHEAP_SWEEP`] nodes.
pub(in super::super) const SWEEPS_PER_TICK: u64 = 16;

impl<K, V> Pass<'_, K, V> {
    /// Removes what is due. An entry that falls due before the current tick ends is found only by a
    /// sweep of the current bucket, which also visits entries that are not due. The plan may ask
    /// for a sweep. A cache that is `over` its bound sweeps as well, a few times a tick or if the
    /// bucket is small.
    pub(super) fn expire(&mut self, over: bool) {
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
        shard.take(spot, node);
        drop(shard);
        if let Some(eviction) = &mut self.state.eviction {
            eviction.expired(node);
        }
        self.retire_dead(node, RemovalCause::Expired);
        self.count_removal(node, RemovalCause::Expired, deadline);
    }
}
