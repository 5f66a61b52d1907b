//! Inserting, and setting a deadline by hand.
//!
//! A write looks the key up and asks the policy, with no lock held. Then it takes the shard's lock
//! and confirms by addresses that what it asked about is still there; otherwise it starts over. So
//! a callback may call the cache, may panic, and may take long.
//!
//! One reading of the clock decides: the deadline counts from it. It is taken after the search,
//! which compares keys, and just before the policy is asked. The deadline may have passed by the
//! time the lock is taken: the value is then stored as one that is due at once. No look-up returns
//! it, since a look-up reads the clock after it has found the node (`lookup`).

use super::answer::TimedAnswer;
use super::condition::{Check, Explicit, WriteCondition, Written};
use super::core::Core;
use super::lifetimes::LifetimeSource;
use super::refresh::{NextRefresh, set_refresh};
use super::transact::{Change, Hold};
use crate::listener::RemovalCause;
use crate::load::state::RevokedBy;
use crate::maintenance::WriteOutcome;
use crate::map::{Revalidated, ShardCell};
use crate::node::{NewNode, NodePtr};
use crate::time::{self, NEVER};
use equivalent::Equivalent;
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
        if let Ok(outcome) = stored {
            core.maintenance.after_write(&core.shared, outcome);
        }
    });
}

/// Stores a new node if the condition lets it; else the node still has its key and value. The
/// caller is to call `after_write` with the outcome.
// By reference: the value may be large.
#[inline]
pub(crate) fn put_through<K, V, S>(
    core: &Core<K, V, S>,
    new: &mut NewNode<K, V>,
    given: LifetimeSource,
    condition: impl WriteCondition<K, V>,
) -> Result<WriteOutcome, NotStored>
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
    end: impl FnOnce(Result<WriteOutcome, NotStored>) -> R,
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

/// Sets a deadline by hand; false if the key is absent or its entry is due.
pub(crate) fn set_lifetime<K, V, S, Q>(
    core: &Core<K, V, S>,
    key: &Q,
    lifetime: Option<Duration>,
) -> bool
where
    K: 'static,
    V: 'static,
    S: BuildHasher,
    Q: Equivalent<K> + Hash + ?Sized,
{
    if lifetime.is_some() {
        core.lifetimes.note_own();
    }
    let change = SetDeadline {
        core,
        key,
        lifetime,
    };
    let hash = core.hash(key);
    let cell = core.shared.map.cell(hash);
    (core.shared).transact_in(cell, hash, change, |_, settled| {
        let Some(outcome) = settled.end() else {
            return false;
        };
        core.maintenance.after_write(&core.shared, outcome);
        true
    })
}

/// A write whose condition refused it.
#[derive(Debug)]
pub(crate) struct NotStored;

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
    type Done = Result<WriteOutcome, NotStored>;
    const KNOWS_LOADS: bool = C::KNOWS_LOADS;

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
            return Err(Err(NotStored));
        }
        let core = self.core;
        let (shared, lifetimes) = (&core.shared, &core.lifetimes);
        let now = (shared.clock).now_beside(found.map_or(NEVER, |old| old.deadline()));
        // `NEVER` would say that the time of the write is not known.
        let now = now + u64::from(now == NEVER);
        if let Some((asked, refresh)) = last
            && let Some(asked) = asked.final_answer(now)
        {
            return Ok((asked, refresh));
        }
        let (new, given) = (&*self.new, self.given);
        let asked = lifetimes.ask(new, found, given, &shared.clock, now);
        let refresh = core.refresh.as_ref().map(|policy| {
            let own = asked.own_or(|| found.map_or(NEVER, |old| old.own_deadline()));
            let entry = new.entry();
            lifetimes.ask_refresh(&**policy, entry, found, *given, (now, own), &shared.clock)
        });
        Ok((asked, refresh))
    }

    #[inline(always)]
    fn apply<'s>(
        &mut self,
        plan: Self::Plan,
        found: Option<NodePtr<K, V>>,
        place: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Self::Done, Self::Plan> {
        let (asked, refresh) = plan;
        let now = asked.now;
        match self.condition.check(found, now, hold) {
            Check::Pass => (),
            Check::Again => return Err(plan),
            Check::Refuse => return Ok(Err(NotStored)),
        }
        let core = self.core;
        let (shared, lifetimes) = (&core.shared, &core.lifetimes);
        let mut outcome = WriteOutcome {
            shard: hold.shard.number(),
            buffered: 0,
            deadline: NEVER,
            now: Some(now),
            left: 1,
        };
        let weight = self.new.weight();
        let mut former = None;
        let mut kept_out = false;
        match place {
            Revalidated::Vacant(vacancy) => {
                let times = asked.times(None, lifetimes);
                outcome.deadline = times.deadline;
                if shared.is_too_heavy(weight) {
                    hold.shard.refuse(self.new, RemovalCause::Size);
                    shared.note_removed(|| weight, RemovalCause::Size);
                    kept_out = true;
                } else {
                    let node = hold.shard.add(vacancy, self.new, times);
                    set_refresh(node, refresh);
                    outcome.left = 0;
                }
                shared.note_written(None);
            }
            Revalidated::Occupied(spot) => {
                let old = found.expect("revalidated at the node that was found");
                let too_heavy = shared.is_too_heavy(weight);
                if lifetimes.reads_extend || too_heavy {
                    // Memory may be refused by a panic: before the old value is touched.
                    hold.shard.reserve();
                }
                let Some((cause, kept)) = asked.supersede(old, lifetimes) else {
                    return Err(plan);
                };
                former = Some(cause);
                let times = asked.times(kept, lifetimes);
                outcome.deadline = times.deadline;
                if too_heavy {
                    hold.shard.remove(spot, old, cause);
                    hold.shard.refuse(self.new, RemovalCause::Size);
                    shared.note_removed(|| weight, RemovalCause::Size);
                    kept_out = true;
                } else {
                    let node = hold.shard.replace(spot, old, self.new, times, cause);
                    set_refresh(node, refresh);
                }
                shared.note_written(Some((old, cause)));
            }
        }
        let written = Written {
            cause: former,
            kept: !kept_out,
            deadline: outcome.deadline,
            now,
        };
        self.condition.stored(hold, written);
        outcome.buffered = hold.shard.buffered();
        Ok(Ok(outcome))
    }
}

/// A deadline set by hand, as a change.
struct SetDeadline<'d, K, V, S, Q: ?Sized> {
    core: &'d Core<K, V, S>,
    key: &'d Q,
    lifetime: Option<Duration>,
}

impl<K, V, S, Q> Change<K, V> for SetDeadline<'_, K, V, S, Q>
where
    Q: Equivalent<K> + ?Sized,
{
    /// The time from which the deadline counts.
    type Plan = u64;
    /// `None` if the key has no live entry.
    type Done = Option<WriteOutcome>;
    const KNOWS_LOADS: bool = false;

    #[inline]
    fn is_key(&self, other: &K) -> bool {
        self.key.equivalent(other)
    }

    #[inline]
    fn ask(&mut self, found: Option<NodePtr<K, V>>, _: Option<u64>) -> Result<u64, Self::Done> {
        found.map(|_| self.core.shared.clock.now()).ok_or(None)
    }

    #[inline]
    fn apply<'s>(
        &mut self,
        now: u64,
        found: Option<NodePtr<K, V>>,
        _: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Self::Done, u64> {
        let Some(node) = found else {
            return Ok(None);
        };
        let judged = node.deadline();
        if time::is_due(now, judged) && node.claim(judged, now) {
            return Ok(None);
        }
        let own = time::deadline_in(now, self.lifetime);
        let wanted = (self.core.lifetimes).wanted(own, || node.written(), now);
        if !hold.shard.move_deadline(node, judged, own, wanted) {
            return Err(now);
        }
        let outcome = WriteOutcome::of_change(&hold.shard, wanted, Some(now));
        Ok(Some(outcome))
    }
}
