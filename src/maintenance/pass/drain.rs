//! Drains the read rings and the batches.

use super::{Pass, RESIZE_UNITS};
use crate::buffer::WriteEvent;
use crate::eviction::Eviction;
use crate::node::NodeState;
use crate::wheel::Wheel;

/// How many events ahead the nodes are prefetched.
const PREFETCH_DISTANCE: usize = 6;

/// How many reads each entry may report per turnover. A turnover is as many inserts as the cache
/// holds entries. Eight times as often gave the same hit ratios on every trace.
pub(in super::super) const RENEWALS_PER_TURNOVER: usize = 32;

/// The same where the size policy promises the order of use.
pub(in super::super) const ORDERED_RENEWALS_PER_TURNOVER: usize = 256;

impl<K, V> Pass<'_, K, V> {
    /// Lets each entry report another read, once enough entries have come in since the last time
    /// for the eviction order to matter. A run always does so, to separate reads before it from
    /// reads after it.
    pub(super) fn renew_reads(&mut self) {
        let (Some(reads), Some(eviction)) = (&self.shared.reads, &self.state.eviction) else {
            return;
        };
        // A replacement of equal weight never forces an eviction. But a policy that keeps the exact
        // order of use has to hear of it.
        let (came, times) = if eviction.keeps_order() {
            (self.applied, ORDERED_RENEWALS_PER_TURNOVER)
        } else {
            (self.admitted, RENEWALS_PER_TURNOVER)
        };
        self.state.admitted_since_stamp += came;
        if self.plan.run || self.state.admitted_since_stamp > eviction.len() / times {
            self.state.admitted_since_stamp = 0;
            reads.renew();
        }
    }

    /// Applies the batches of all shards, starting where the last pass stopped. The shard of the
    /// writer that runs the pass comes last, so that its new entry is the newest and is evicted
    /// last. True if no shard was left out.
    pub(super) fn drain(&mut self) -> bool {
        let own = self.plan.own;
        let shards = self.shared.map.shards();
        let of_others = own.map_or(self.budget, |_| {
            self.maintenance.caller_budget.min(self.budget)
        });
        let kept = self.budget - of_others;
        self.budget = of_others;
        let mut round = true;
        for _ in 0..shards {
            if self.budget == 0 {
                round = false;
                break;
            }
            let shard = self.state.cursor;
            self.state.cursor = (shard + 1) % shards;
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

    /// Applies a shard's batch. If the plan says so, also moves units of the shard's table: a run
    /// ends what writers have begun, so that a table that is only read from then on does not stay
    /// in two arrays.
    fn drain_shard(&mut self, shard: usize) {
        let mut batch = std::mem::take(&mut self.state.batch);
        let mut locked = self.shared.map.lock_shard(shard);
        if self.plan.run && locked.is_resizing() {
            locked.resize_step(RESIZE_UNITS);
            self.resizing |= locked.is_resizing();
            self.budget = self.budget.saturating_sub(RESIZE_UNITS);
        }
        locked.swap_batch(&mut batch, &mut self.state.parts);
        drop(locked);
        for part in self.state.parts.drain(..) {
            self.state.freeing.retire_part(part);
        }
        self.budget = self.budget.saturating_sub(batch.len());
        self.applied += batch.len();
        self.maintenance.backlog.note_taken(shard, self.applied);
        let mut events = batch.drain(..);
        while let Some(event) = events.next() {
            let ahead = events.as_slice();
            if let Some(event) = ahead.get(PREFETCH_DISTANCE) {
                event.prefetch();
            }
            if let Some(event) = ahead.get(PREFETCH_DISTANCE * 2 / 3) {
                event.prefetch_entry(self.state.eviction.is_some());
            }
            if let Some(event) = ahead.get(PREFETCH_DISTANCE / 3) {
                self.prefetch(event);
            }
            self.apply(event);
        }
        drop(events);
        self.state.batch = batch;
    }

    /// Applies one change of the map to the wheel and to the size policy.
    fn apply(&mut self, event: WriteEvent<K, V>) {
        match event {
            WriteEvent::Added(node) => {
                // If the node has left again, a later event of this shard says so: it need not be
                // linked first.
                if node.state() == NodeState::Live {
                    self.advance_wheel(node);
                    self.state.wheel.reschedule(node);
                    if let Some(eviction) = &mut self.state.eviction {
                        eviction.admit(node);
                        self.admitted += 1;
                    }
                }
            }
            WriteEvent::Replaced { old, new, cause } => {
                new.entry().set_node(new);
                if new.state() == NodeState::Live {
                    self.advance_wheel(new);
                    self.state.wheel.reschedule(new);
                    if let (Some(eviction), Some(reads)) =
                        (&mut self.state.eviction, &self.shared.reads)
                    {
                        let needs_room = eviction.replaced(new, reads.inherit_stamp(old, new));
                        self.admitted += usize::from(needs_room);
                    }
                } else if let Some(eviction) = &mut self.state.eviction {
                    // The new node has left again, as a later event of this shard says. If another
                    // node replaced it, that node takes over the position in the queue, which is
                    // kept here, and the bucket in the wheel, in which the entry stays.
                    eviction.keep_position(new);
                }
                old.set_state(NodeState::Succeeded);
                self.notify_or_retire(old, cause);
            }
            WriteEvent::Removed(node, cause) => {
                self.state.unlink(node);
                self.retire_dead(node, cause);
            }
            WriteEvent::Rescheduled(node) => {
                if node.state() == NodeState::Live {
                    self.advance_wheel(node);
                    self.state.wheel.reschedule(node);
                }
            }
        }
    }

    /// Prefetches what applying an event will touch beside its nodes, which were prefetched before.
    #[inline]
    fn prefetch(&self, event: &WriteEvent<K, V>) {
        match *event {
            WriteEvent::Added(node) => {
                if let Some(eviction) = &self.state.eviction {
                    eviction.prefetch(node);
                }
            }
            WriteEvent::Removed(node, _) => {
                Wheel::prefetch_around(node);
                if self.state.eviction.is_some() {
                    Eviction::prefetch_around(node);
                }
            }
            WriteEvent::Rescheduled(node) => Wheel::prefetch_around(node),
            // Mostly the entry stays where it is.
            WriteEvent::Replaced { .. } => {}
        }
    }
}
