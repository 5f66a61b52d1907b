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
//!
//! A [`WriteCondition`] decides whether a write may be made. An explicit write revokes the load of
//! its key. The commit of a load asks whether that load is still current.

use super::answer::TimedAnswer;
use super::core::Core;
use super::lifetimes::LifetimeSource;
use super::refresh::{NextRefresh, set_refresh};
use super::transact::{Change, Hold};
use crate::listener::RemovalCause;
use crate::load::state::RevokedBy;
use crate::maintenance::WriteOutcome;
use crate::map::Revalidated;
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
    let mut new = new_node(core, core.hash(&key), key, value);
    let explicit = Explicit(RevokedBy::Overwrite);
    if let Some(outcome) = put_through(core, &mut new, given, explicit) {
        core.maintenance.after_write(&core.shared, outcome);
    }
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
    let hash = new.hash();
    let write = Write {
        core,
        new,
        given: &given,
        condition,
    };
    core.shared.transact(hash, write).end()
}

/// The node of a write.
#[inline]
pub(crate) fn new_node<K, V, S>(
    core: &Core<K, V, S>,
    hash: u64,
    key: K,
    value: V,
) -> NewNode<K, V> {
    // Before the pin of the write, whose fence delays later memory loads.
    core.shared.map.prefetch(hash);
    let weight = core.weigh(&key, &value);
    NewNode::new(key, value, hash, weight)
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
    let Some(outcome) = core.shared.transact(core.hash(key), change).end() else {
        return false;
    };
    core.maintenance.after_write(&core.shared, outcome);
    true
}

/// The answer of a condition about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Pass,
    /// The entry is no longer what the condition has seen: the write starts over.
    Again,
    /// The write ends, and nothing is stored.
    Refuse,
}

/// The effect of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// For which cause the former value left, if there was one.
    pub(crate) cause: Option<RemovalCause>,
    /// False if the value was too heavy to be let in.
    pub(crate) kept: bool,
    pub(crate) deadline: u64,
    pub(crate) now: u64,
}

impl Written {
    /// Whether the value is in the cache.
    #[inline]
    pub(crate) fn is_stored(&self) -> bool {
        self.kept && !time::is_due(self.now, self.deadline)
    }
}

/// Whether a write may be made, and what else happens in the hold of the lock that makes it.
pub(crate) trait WriteCondition<K, V> {
    /// Whether it wants to know the load of the key.
    const KNOWS_LOADS: bool;

    /// Called with no lock held, with the node that the key has. False ends the write: nothing is
    /// stored.
    #[inline]
    fn look(&mut self, _found: Option<NodePtr<K, V>>) -> bool {
        true
    }

    /// Under the shard's lock, when the look-up was confirmed and nothing has changed yet. `now` is
    /// the time of the write.
    fn check(
        &mut self,
        found: Option<NodePtr<K, V>>,
        now: u64,
        hold: &mut Hold<'_, '_, K, V>,
    ) -> Check;

    /// In the same hold, when the write has been made.
    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, written: Written);
}

/// The condition of an explicit write, which revokes the load of its key.
pub(crate) struct Explicit(pub(crate) RevokedBy);

impl<K, V> WriteCondition<K, V> for Explicit {
    const KNOWS_LOADS: bool = true;

    #[inline]
    fn check(&mut self, _: Option<NodePtr<K, V>>, _: u64, _: &mut Hold<'_, '_, K, V>) -> Check {
        Check::Pass
    }

    #[inline]
    fn stored(&mut self, hold: &mut Hold<'_, '_, K, V>, _: Written) {
        hold.revoke(self.0);
    }
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
        place: Revalidated<'s, K, V>,
        hold: &mut Hold<'_, 's, K, V>,
    ) -> Result<Self::Done, u64> {
        let Some(node) = place.node() else {
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
