//! Inserting.
//!
//! A write looks the key up and asks the policy, with no lock held. Then it takes the shard's lock
//! and confirms by addresses that what it asked about is still there; otherwise it starts over. So
//! a callback may call the cache, may panic, and may take long.
//!
//! One reading of the clock decides: the deadline counts from it. It is taken after the search,
//! which compares keys, and just before the policy is asked. The deadline may have passed by the
//! time the lock is taken: the value is then stored as one that is due at once. No look-up returns
//! it, since a look-up reads the clock after it has found the node (`lookup`).

use super::condition::{Check, Explicit, WriteCondition, Written};
use super::core::Core;
use super::lifetimes::{LifetimeSource, TimedAnswer};
use super::refresh::{NextRefresh, set_refresh};
use super::transact::{Change, Hold};
use crate::listener::RemovalCause;
use crate::load::state::RevokedBy;
use crate::maintenance::WriteOutcome;
use crate::map::{Revalidated, ShardCell};
use crate::node::{NewNode, NodePtr};
use crate::time::NEVER;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// Stores a value, for a time given by the caller or by the policy.
// A `LifetimeSource` is larger, and would come through memory.
pub(crate) fn put<K, V, S>(core: &Core<K, V, S>, key: K, value: V, lifetime: Option<Duration>)
where
    K: Hash + Eq + 'static,
    V: 'static,
    S: BuildHasher,
{
    let given = lifetime.map_or(LifetimeSource::Policy, LifetimeSource::Ttl);
    let explicit = Explicit(RevokedBy::Overwrite);
    let hash = core.hash(&key);
    let cell = cell_to_write(core, hash);
    let mut new = new_node(core, hash, key, value);
    write(core, cell, &mut new, given, explicit, |stored| {
        if let Some(outcome) = stored {
            core.maintenance.after_write(&core.shared, outcome);
        }
    });
}

/// Stores a new node; `None` if the condition refuses it, and then the node still has its key and
/// value. The caller is to call `after_write` with the outcome.
// By reference: the value may be large.
#[inline]
pub(crate) fn put_through<K, V, S>(
    core: &Core<K, V, S>,
    new: &mut NewNode<K, V>,
    given: LifetimeSource,
    condition: impl WriteCondition<K, V>,
) -> Option<WriteOutcome>
where
    K: Eq + 'static,
    V: 'static,
{
    let cell = cell_to_write(core, new.hash());
    write(core, cell, new, given, condition, |stored| stored)
}

#[inline]
fn cell_to_write<K, V, S>(core: &Core<K, V, S>, hash: u64) -> &ShardCell<K, V> {
    // The prefetch comes before the pin, whose fence delays later memory loads.
    let cell = core.shared.map.cell(hash);
    cell.prefetch(hash);
    cell
}

/// The node of a write.
#[inline]
pub(crate) fn new_node<K, V, S>(
    core: &Core<K, V, S>,
    hash: u64,
    key: K,
    value: V,
) -> NewNode<K, V> {
    let weight = core.weigh(&key, &value);
    NewNode::new(key, value, hash, weight)
}

/// The transaction of a write. The caller keeps what a condition refuses.
#[inline(always)]
fn write<K, V, S, C, R>(
    core: &Core<K, V, S>,
    cell: &ShardCell<K, V>,
    new: &mut NewNode<K, V>,
    given: LifetimeSource,
    condition: C,
    end: impl FnOnce(Option<WriteOutcome>) -> R,
) -> R
where
    K: Eq + 'static,
    V: 'static,
    C: WriteCondition<K, V>,
{
    let hash = new.hash();
    let given = &given;
    let write = Write {
        core,
        new,
        given,
        condition,
    };
    (core.shared).transact_in(cell, hash, write, |_, settled| end(settled.end()))
}

/// A write, as a change.
struct Write<'w, K, V, S, C> {
    core: &'w Core<K, V, S>,
    new: &'w mut NewNode<K, V>,
    // A reference: copies of the source would be long.
    given: &'w LifetimeSource,
    condition: C,
}

impl<K, V, S, C> Change<K, V> for Write<'_, K, V, S, C>
where
    K: Eq + 'static,
    V: 'static,
    C: WriteCondition<K, V>,
{
    /// The answers of the two policies.
    type Plan = (TimedAnswer, Option<NextRefresh>);
    /// `None` if the condition has refused.
    type Done = Option<WriteOutcome>;
    const KNOWS_LOADS: bool = C::KNOWS_LOADS;

    #[inline]
    fn expects_absent(&mut self) -> bool {
        self.condition.expects_absent()
    }

    #[inline]
    fn is_key(&self, other: &K) -> bool {
        self.new.key() == other
    }

    #[inline]
    fn ask(
        &mut self,
        found: Option<NodePtr<K, V>>,
        last: Option<Self::Plan>,
    ) -> Result<Self::Plan, Self::Done> {
        if !self.condition.look(found) {
            return Err(None);
        }
        let core = self.core;
        let now = (core.shared.clock).now_beside(found.map_or(NEVER, |old| old.deadline()));
        // `NEVER` would say that the time of the write is not known.
        let now = now + u64::from(now == NEVER);
        if let Some((asked, refresh)) = last
            && let Some(asked) = asked.final_answer(now)
        {
            return Ok((asked, refresh));
        }
        let new = &*self.new;
        Ok(core.ask_policies(|| new.entry(), found, self.given, now))
    }

    #[inline(always)]
    fn apply<'s>(
        &mut self,
        plan: Self::Plan,
        place: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Self::Done, Self::Plan> {
        let (asked, refresh) = plan;
        let now = asked.now;
        match self.condition.check(place.node(), now, hold) {
            Check::Pass => (),
            Check::Again => return Err(plan),
            Check::Refuse => return Ok(None),
        }
        let core = self.core;
        let (shared, lifetimes) = (&core.shared, &core.lifetimes);
        let weight = self.new.weight();
        let too_heavy = shared.is_too_heavy(weight);
        let mut former = None;
        let mut kept = None;
        if let Some(old) = place.node() {
            if lifetimes.reads_extend || too_heavy {
                // Memory may be refused by a panic: before the old value is touched.
                hold.shard.reserve();
            }
            let Some((cause, own)) = asked.supersede(old, lifetimes) else {
                return Err(plan);
            };
            former = Some((old, cause));
            kept = own;
        }
        let times = asked.times(kept, lifetimes);
        let cause = former.map(|(_, cause)| cause);
        match (place, cause) {
            (place, _) if too_heavy => {
                if let (Revalidated::Occupied(spot), Some(cause)) = (place, cause) {
                    hold.shard.remove(spot, cause);
                }
                hold.shard.refuse(self.new, RemovalCause::Size);
                shared.note_removed(|| weight, RemovalCause::Size);
            }
            (Revalidated::Occupied(spot), Some(cause)) => {
                set_refresh(hold.shard.replace(spot, self.new, times, cause), refresh);
            }
            (Revalidated::Vacant(home), _) => {
                set_refresh(hold.shard.add(home, self.new, times), refresh);
            }
            (Revalidated::Occupied(_), None) => unreachable!("superseded above"),
        }
        shared.note_written(former);
        let written = Written {
            cause,
            kept: !too_heavy,
            deadline: times.deadline,
            now,
        };
        self.condition.stored(hold, written);
        Ok(Some(WriteOutcome {
            left: usize::from(too_heavy || cause.is_some()),
            ..WriteOutcome::of_change(&hold.shard, times.deadline, Some(now))
        }))
    }
}
