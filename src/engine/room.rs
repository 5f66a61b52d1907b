//! The bound of a cache that has several parts.
//!
//! # How it works
//!
//! The bound holds for the sum of the parts' weights. Each part publishes its weight, at the end of
//! each pass and between victims, on a cache line of its own. A pass adds up what the others have
//! published, and evicts victims of its own part while the sum is over the bound. So a part that
//! takes in new entries pays for them itself, the parts keep their shares of the cache, and no
//! write is refused because of its part.
//!
//! Three rules keep the shares from going to extremes. A part of less than half of an equal share
//! evicts nothing, nor does one of a single entry. So no part stays empty because the others have
//! filled the cache. While the cache is far over its bound, as after a smaller one, a part evicts
//! down to an equal share only. Otherwise the part that is visited first would lose everything. If
//! the cache is still over its bound then, the heaviest part is *asked* to evict: the writer that
//! has found it runs a pass over that part. A run always asks the heaviest part.
//!
//! # Invariants
//!
//! 1. A part's published weight is that of its size policy at the end of its last pass, or less: a
//!    pass publishes while it evicts. What it has yet to evict for is no concern of other parts.
//! 2. While the sum is over the bound, the heaviest part weighs more than an equal share, and it
//!    evicts down to that if it is asked. So what is over the bound leaves as long as passes run,
//!    whatever the shares are.
//!
//! # Cost
//!
//! A pass reads a line of each other part. A cache of one part does nothing of this.

use super::pass::{Evict, Pass, Plan};
use super::{Engine, Part};
use crate::eviction::share_of;
use crate::sync::Ordering;
use crate::time::{self, NEVER};

/// A cache is far over its bound if it is so by more than this part of it.
const FAR: u64 = 32;

impl<K, V> Pass<'_, K, V> {
    /// Learns how much the part may weigh beside the others. For a cache of several parts, as are
    /// the next two.
    pub(super) fn look_around(&mut self) {
        let parts = &self.engine.parts;
        let (Some(max), Some(eviction)) = (self.engine.max_capacity(), &mut self.state.eviction)
        else {
            return;
        };
        let own = eviction.weight();
        let others = self.engine.others(&parts[self.state.part]);
        self.others = others.map(Part::weight).fold(0, u64::saturating_add);
        let all = own.saturating_add(self.others);
        let is_far_over = all.saturating_sub(max) > max / FAR;
        let equal_share = max / parts.len() as u64;
        let room_beside_others = max.saturating_sub(self.others);
        let least = if is_far_over {
            equal_share
        } else {
            equal_share / 2
        };
        let mut allowed = room_beside_others.max(least);
        // An entry that no bound allows is no reason to keep it.
        if eviction.len() <= 1 && own <= max {
            allowed = allowed.max(own);
        }
        // What the part may weigh once the cache is full.
        let share = if own == 0 {
            equal_share
        } else if all <= max || is_far_over {
            share_of(own, all, max)
        } else {
            allowed
        };
        if self.plan.evict == Evict::AsHeaviest {
            // The heaviest part weighs more than an equal share (room 2).
            allowed = room_beside_others.max(equal_share);
        }
        eviction.allow(allowed, share);
    }

    /// Whether the cache is over its bound, and this part does not weigh more than it may.
    pub(super) fn others_must_evict(&self) -> bool {
        match (self.engine.max_capacity(), &self.state.eviction) {
            (Some(max), Some(eviction)) => {
                let all = eviction.weight().saturating_add(self.others);
                all > max && eviction.excess() == 0
            }
            _ => false,
        }
    }

    /// Lets other threads know what the part weighs, and what it has retired.
    pub(super) fn publish(&mut self) {
        let part = &self.engine.parts[self.state.part];
        let retired = self.state.freeing.retired;
        part.retired.store(retired, Ordering::Relaxed);
        let next = self.state.wheel.next_visit().unwrap_or(NEVER);
        part.next_visit.store(next, Ordering::Relaxed);
        if let Some(eviction) = &self.state.eviction {
            part.weight.store(eviction.weight(), Ordering::Relaxed);
        }
    }
}

impl<K, V> Engine<K, V> {
    /// The other parts, beginning behind this one.
    pub(super) fn others(&self, own: &Part<K, V>) -> impl Iterator<Item = &Part<K, V>> {
        let at = self.parts.iter().position(|part| std::ptr::eq(part, own));
        let at = at.unwrap_or(0);
        self.parts[at + 1..].iter().chain(&self.parts[..at])
    }

    /// What all parts together weigh, as they have published it.
    fn weight_of_parts(&self) -> u64 {
        let weights = self.parts.iter().map(Part::weight);
        weights.fold(0, u64::saturating_add)
    }

    /// By how much the parts together are over the bound.
    pub(super) fn excess_of_parts(&self) -> u64 {
        match self.max_capacity() {
            Some(max) => self.weight_of_parts().saturating_sub(max),
            None => 0,
        }
    }

    /// The part that weighs most; of equal ones the first behind `own`.
    pub(super) fn heaviest<'a>(&'a self, own: &'a Part<K, V>) -> &'a Part<K, V> {
        let mut heaviest = own;
        let mut most = 0;
        for other in self.others(own).chain([own]) {
            let weight = other.weight();
            if weight > most {
                most = weight;
                heaviest = other;
            }
        }
        heaviest
    }

    /// When a wheel of the other parts has work next, as these have published it.
    pub(super) fn next_visit_of_others(&self, own: &Part<K, V>) -> Option<u64> {
        let mut next = None;
        for other in self.others(own) {
            let visit = other.next_visit.load(Ordering::Relaxed);
            if visit != NEVER {
                next = time::earliest(next, Some(visit));
            }
        }
        next
    }

    /// Another part, in whose wheel entries are due while the cache is full: they leave before a
    /// live one does. `now` is [`NEVER`] if the clock was not read.
    pub(super) fn due_part(&self, own: &Part<K, V>, now: u64) -> Option<&Part<K, V>> {
        let max = self.max_capacity()?;
        if self.weight_of_parts() < max - max / FAR {
            return None;
        }
        let mut now = now;
        self.others(own).find(|part| {
            let next = part.next_visit.load(Ordering::Relaxed);
            // A cache without deadlines reads no clock.
            if next == NEVER {
                return false;
            }
            if now == NEVER {
                now = self.clock.now();
            }
            time::is_due(now, next)
        })
    }

    /// The plan of a run for each part. If there are several, it evicts when all of them have been
    /// visited, so what is due leaves every part first.
    pub(super) fn plan_of_part(&self, plan: Plan) -> Plan {
        if self.parts.len() == 1 {
            return plan;
        }
        Plan {
            evict: Evict::Nothing,
            ..plan
        }
    }

    /// After passes over all parts: evicts from the heaviest ones what is over the bound, by at
    /// most so many passes. Returns whether that was enough. `debt` is how much a run has still to
    /// evict; the first call of a run finds it. Writers may bring as much as is evicted meanwhile,
    /// so a run ends once it has evicted what there was.
    pub(super) fn evict_from_heaviest(
        &self,
        plan: Plan,
        debt: &mut Option<u64>,
        most_passes: usize,
    ) -> bool {
        if self.parts.len() == 1 || plan.evict == Evict::Nothing {
            return true;
        }
        let evict = Plan {
            evict: Evict::AsHeaviest,
            ..plan
        };
        for _ in 0..most_passes {
            // Each time behind another one: under a tiny bound, equal parts take turns.
            let turn = self.asked.fetch_add(1, Ordering::Relaxed);
            let excess = self.excess_of_parts();
            if excess == 0 {
                return true;
            }
            let part = self.heaviest(self.part_of(turn));
            let left = *debt.get_or_insert(excess);
            let before = part.weight();
            self.run_pass(part, evict, None);
            let paid = before.saturating_sub(part.weight());
            *debt = Some(left.saturating_sub(paid));
            if paid == 0 || paid >= left {
                return true;
            }
        }
        false
    }
}
