//! Inserting: a write as a change ([`mod@super::transact`]).
//!
//! One reading of the clock decides: the deadline counts from it. It is taken after the search,
//! which compares keys, and just before the policy is asked. The deadline may have passed by the
//! time the lock is taken: the value is then stored as one that is due at once.
//!
//! The policies say how long the value lives, and when it becomes stale ([`Engine::ask_policies`]).

use super::transact::{Change, Decision, FoundLoads, Tried};
use crate::engine::{
    Engine, FromLoad, LifetimeSource, Lifetimes, Superseded, TimedAnswer, WriteOutcome,
};
use crate::flight::{Load, RevokedBy};
use crate::listener::RemovalCause;
use crate::map::{Confirmed, News, Occupied, Shard};
use crate::node::{NewNode, NodePtr, RefreshMoment, Times};
use crate::refresh::Refresh;
use crate::time::{self, NEVER};
use std::sync::Arc;
use std::time::Duration;

/// When a write may be made, and what it has with it. The hold of the lock that makes it also
/// revokes the load of the key, but for [`Current`](Self::Current).
pub(crate) enum Condition<'c, K, V> {
    /// In any case: an explicit write.
    Always,
    /// If the key has a live value that this accepts. Asked with no lock held.
    Over(&'c dyn Fn(&V) -> bool),
    /// If the key has no live entry, and the value is not heavier than the whole bound: an entry of
    /// a snapshot comes back.
    Absent {
        /// Its times.
        times: &'c Times,
        /// The moment from which it is stale; `NEVER` for none.
        stale_at: u64,
    },
    /// If this load is current: the write is its end, and seals it.
    Current {
        load: &'c Arc<Load<K, V>>,
        /// Whether the key was absent when the run began.
        was_absent: bool,
    },
}

/// A write that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// For `after_write`.
    pub(crate) outcome: WriteOutcome,
    /// For which cause the former value left, if there was one.
    pub(crate) cause: Option<RemovalCause>,
    /// False if the value was too heavy to be let in.
    let_in: bool,
    /// Whether calls wait for the load that was sealed.
    pub(crate) awaited: bool,
}

impl Written {
    /// Whether the value is in the cache.
    #[inline]
    pub(crate) fn is_stored(&self) -> bool {
        self.let_in && !time::is_due(self.outcome.now, self.outcome.deadline)
    }
}

impl<K: Eq + 'static, V: 'static> Engine<K, V> {
    /// Stores a value under a key with this hash, for a time given by the caller or by the policy.
    // A `LifetimeSource` is larger, and would come through memory. By `write`, a replacement would
    // take thirty instructions more.
    pub(crate) fn put(&self, hash: u64, key: K, value: V, lifetime: Option<Duration>) {
        let given = match lifetime {
            Some(ttl) => LifetimeSource::Ttl(ttl),
            None => LifetimeSource::Policy,
        };
        let mut new = self.new_node(hash, key, value);
        let write = Write {
            engine: self,
            given: &given,
            new: &mut new,
            condition: Condition::Always,
        };
        let (stored, held) = self.transact(hash, write);
        drop(held);
        if let Some(written) = stored {
            self.after_write(written.outcome);
        }
    }

    /// Stores a new node; the caller is to call `after_write` with the outcome. `None` if the
    /// condition refuses the node, which then still has its key and value.
    // By reference: the value may be large.
    #[inline]
    pub(crate) fn write(
        &self,
        new: &mut NewNode<K, V>,
        given: LifetimeSource,
        condition: Condition<'_, K, V>,
    ) -> Option<Written> {
        let hash = new.hash;
        let write = Write {
            engine: self,
            new,
            given: &given,
            condition,
        };
        self.transact(hash, write).0
    }
}

impl<K, V> Engine<K, V> {
    /// The node of a write.
    #[inline]
    pub(crate) fn new_node(&self, hash: u64, key: K, value: V) -> NewNode<K, V> {
        let weight = self.weigh(&key, &value);
        NewNode::new(key, value, hash, weight)
    }
}

/// A write, as a change.
struct Write<'w, K, V> {
    engine: &'w Engine<K, V>,
    new: &'w mut NewNode<K, V>,
    // A reference: copies of the source would be long.
    given: &'w LifetimeSource,
    condition: Condition<'w, K, V>,
}

impl<K: Eq + 'static, V: 'static> Change<K, V> for Write<'_, K, V> {
    type Key = K;
    /// The answers of the two policies.
    type Answers = (TimedAnswer, Option<NextRefresh>);
    /// `None` if the condition has refused.
    type Done = Option<Written>;

    #[inline]
    fn knows_loads(&self) -> bool {
        !matches!(self.condition, Condition::Current { .. })
    }

    #[inline]
    fn expects_absent(&self) -> bool {
        matches!(&self.condition, Condition::Current { load, was_absent: true, .. } if load.is_current())
    }

    #[inline]
    fn is_apart(&self) -> bool {
        matches!(self.condition, Condition::Current { .. })
    }

    #[inline]
    fn key(&self) -> &K {
        self.new.key()
    }

    #[inline(always)]
    fn ask(
        &mut self,
        found: Option<NodePtr<K, V>>,
        last: Option<Self::Answers>,
    ) -> Decision<Self::Answers, Self::Done> {
        let engine = self.engine;
        match &self.condition {
            Condition::Always => {}
            Condition::Current { load, .. } => {
                if !load.is_current() {
                    return Decision::End(None);
                }
            }
            Condition::Over(accepts) => {
                let Some(node) = found else {
                    return Decision::End(None);
                };
                let accepted = engine.is_live(node) && accepts(node.value());
                // If it has left, the next attempt asks about what the key has instead.
                if !accepted && !engine.has_left(node) {
                    return Decision::End(None);
                }
            }
            Condition::Absent { stale_at, .. } => {
                let now = time::of_write(engine.clock.now());
                let is_live = match found {
                    Some(node) => !node.claim_if_due(now),
                    None => false,
                };
                if is_live {
                    return Decision::End(None);
                }
                let refresh = NextRefresh {
                    at: *stale_at,
                    lifetime: None,
                };
                return Decision::Apply((TimedAnswer::of_new(now), Some(refresh)));
            }
        }
        let now = (engine.clock).now_beside(found.map_or(NEVER, |old| old.deadline()));
        let now = time::of_write(now);
        if let Some((answer, refresh)) = last {
            if let Some(answer) = answer.final_answer(found, now) {
                return Decision::Apply((answer, refresh));
            }
        }
        let new = &*self.new;
        Decision::Apply(engine.ask_policies(|| new.pair(), found, self.given, now))
    }

    #[inline(always)]
    fn apply<'s>(
        &mut self,
        answers: Self::Answers,
        place: Confirmed<'s, K, V>,
        shard: &mut Shard<'s, K, V>,
        loads: &mut FoundLoads<K, V>,
    ) -> Tried<Self::Answers, Self::Done> {
        let (answer, refresh) = answers;
        let now = answer.now;
        match &self.condition {
            // By the time of the write itself: no value that is due at that time is replaced.
            Condition::Over(_) => match place.node() {
                Some(old) if !time::is_due(now, old.deadline()) => {}
                _ => return Tried::Again(answers),
            },
            Condition::Current { load, .. } if !load.is_current() => return Tried::Done(None),
            _ => {}
        }
        // Read once: the change itself stands in memory.
        let engine = self.engine;
        let lifetimes = &engine.lifetimes;
        let weight = self.new.weight;
        if engine.is_too_heavy(weight) {
            return self.refuse(answers, place, shard, loads);
        }
        let (former, times, node) = match place {
            Confirmed::Occupied(spot) => {
                let old = spot.node;
                if engine.delivery.is_none() {
                    // The new node is named in it (`put_over`).
                    old.entry().prefetch(false);
                }
                if lifetimes.reads_extend {
                    // Memory may be refused by a panic: before the old value is touched.
                    shard.reserve();
                }
                let Some(ended) = answer.supersede(old, lifetimes) else {
                    return Tried::Again(answers);
                };
                let times = self.condition.times(&answer, ended.kept, lifetimes);
                let node = engine.put_over(spot, self.new, &ended, times, weight, shard);
                (Some((old, ended.cause)), times, node)
            }
            Confirmed::Vacant(home) => {
                let times = self.condition.times(&answer, None, lifetimes);
                (None, times, shard.add(home, self.new, times))
            }
        };
        set_refresh(node, refresh);
        engine.count_write(former);
        let cause = former.map(|(_, cause)| cause);
        let awaited = self.condition.settle_load(shard, loads);
        Tried::Done(Some(Written {
            outcome: WriteOutcome {
                removed: usize::from(cause.is_some()),
                ..WriteOutcome::of_change(shard, times.deadline, now)
            },
            cause,
            let_in: true,
            awaited,
        }))
    }
}

// The steps of the change, under the shard's lock. Always inlined: what they return stays in
// registers.

impl<K: Eq + 'static, V: 'static> Write<'_, K, V> {
    /// [`apply`](Change::apply), of a value that is too heavy: it leaves at once, with the value
    /// that it would replace.
    #[inline(always)]
    fn refuse<'s>(
        &mut self,
        answers: <Self as Change<K, V>>::Answers,
        place: Confirmed<'s, K, V>,
        shard: &mut Shard<'s, K, V>,
        loads: &mut FoundLoads<K, V>,
    ) -> Tried<<Self as Change<K, V>>::Answers, Option<Written>> {
        if let Condition::Absent { .. } = self.condition {
            return Tried::Done(None);
        }
        let engine = self.engine;
        let mut former = None;
        if let Confirmed::Occupied(spot) = place {
            // Memory may be refused by a panic: before the old value is touched.
            shard.reserve();
            let old = spot.node;
            let Some(ended) = answers.0.supersede(old, &engine.lifetimes) else {
                return Tried::Again(answers);
            };
            shard.remove(spot, ended.cause);
            former = Some((old, ended.cause));
        }
        let weight = self.new.weight;
        shard.refuse(self.new, RemovalCause::Size);
        engine.count_removal(|| weight, RemovalCause::Size);
        engine.count_write(former);
        let awaited = self.condition.settle_load(shard, loads);
        Tried::Done(Some(Written {
            outcome: WriteOutcome::of_removal(shard, answers.0.now),
            cause: former.map(|(_, cause)| cause),
            let_in: false,
            awaited,
        }))
    }
}

impl<K, V> Engine<K, V> {
    /// Puts a node in the place of the one that has so ended, with the news of it for the pass.
    #[inline(always)]
    fn put_over<'s>(
        &self,
        spot: Occupied<'s, K, V>,
        new: &mut NewNode<K, V>,
        ended: &Superseded,
        times: Times,
        weight: u32,
        shard: &mut Shard<'s, K, V>,
    ) -> NodePtr<K, V> {
        let old = spot.node;
        let news = if self.delivery.is_some()
            || !time::keeps_bucket(ended.deadline, times.deadline)
            || !shard.is_known(old, weight)
        {
            News::All(ended.cause)
        } else if self.reads.should_record(old) {
            News::Use
        } else {
            News::Nothing
        };
        let node = shard.replace(spot, new, times, news);
        if news == News::Use {
            self.reads.mark(node);
        }
        node
    }
}

impl<K, V> Condition<'_, K, V> {
    /// The times of the new node; `kept` is its own deadline if the policy keeps that.
    #[inline(always)]
    fn times(&self, answer: &TimedAnswer, kept: Option<u64>, lifetimes: &Lifetimes<K, V>) -> Times {
        match self {
            Self::Absent { times, .. } => **times,
            _ => answer.times(kept, lifetimes),
        }
    }

    /// Seals the load whose end the write is, or revokes the load of the key. Returns whether calls
    /// wait for the load that was sealed.
    #[inline(always)]
    fn settle_load(&self, shard: &mut Shard<'_, K, V>, loads: &mut FoundLoads<K, V>) -> bool {
        match self {
            Self::Always | Self::Absent { .. } => loads.revoke(shard, RevokedBy::Overwrite),
            Self::Over(_) => loads.revoke(shard, RevokedBy::Conditional),
            Self::Current { load, .. } => {
                return shard.change_loads(|loads| loads.seal(load));
            }
        }
        false
    }
}

/// When a new value becomes stale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextRefresh {
    /// The moment from which it is stale; `NEVER` for none.
    pub(crate) at: u64,
    /// The lifetime that its loader gave it, or that it keeps.
    pub(crate) lifetime: Option<Duration>,
}

/// Sets the refresh of a node that has just come in. Under the shard's lock.
#[inline]
pub(crate) fn set_refresh<K, V>(node: NodePtr<K, V>, next: Option<NextRefresh>) {
    if let Some(NextRefresh { at, lifetime }) = next {
        if let Some(refresh) = node.refresh() {
            refresh.set(at, lifetime);
        }
    }
}

impl<K: 'static, V: 'static> Engine<K, V> {
    /// Asks the policies about the value of an entry that is written at `now`: how long it lives,
    /// and when it becomes stale. User code: no lock is held.
    #[inline(always)]
    pub(super) fn ask_policies<'e>(
        &self,
        entry: impl Fn() -> (&'e K, &'e V),
        found: Option<NodePtr<K, V>>,
        given: &LifetimeSource,
        now: u64,
    ) -> (TimedAnswer, Option<NextRefresh>) {
        let answer = (self.lifetimes).ask(&entry, found, given, &self.clock, now);
        let refresh = self.refresh.as_ref().map(|policy| {
            let own = answer.own_or(|| found.map_or(NEVER, |old| old.own_deadline()));
            self.ask_refresh(&**policy, entry(), found, *given, (now, own))
        });
        (answer, refresh)
    }

    /// Asks the policies about a live entry whose value a reload has left unchanged: they answer as
    /// about an update.
    pub(crate) fn ask_of_unchanged(
        &self,
        node: NodePtr<K, V>,
        from: FromLoad,
        now: u64,
    ) -> (TimedAnswer, Option<NextRefresh>) {
        let entry = || (node.key(), node.value());
        let given = LifetimeSource::Loaded(from);
        self.ask_policies(entry, Some(node), &given, now)
    }

    /// Asks the refresh policy when a value becomes stale. The value comes in at `now` with the own
    /// deadline `own`. User code: no lock is held.
    #[cold]
    #[inline(never)]
    fn ask_refresh(
        &self,
        policy: &dyn Refresh<K, V>,
        (key, value): (&K, &V),
        found: Option<NodePtr<K, V>>,
        given: LifetimeSource,
        (now, own): (u64, u64),
    ) -> NextRefresh {
        let load = match given {
            LifetimeSource::Loaded(load) => Some(load),
            _ => None,
        };
        let ask = || {
            let deadline = self.lifetimes.wanted(own, || now, now);
            let lifetime = time::time_left(now, deadline);
            if let Some(answer) = policy.by_times((lifetime, load.map(|load| load.took))) {
                return answer;
            }
            let at = self.clock.instant(now);
            let lives = |node: NodePtr<K, V>| !time::is_due(now, node.deadline());
            match load {
                Some(load) if load.reload => policy.refresh_after_reload(key, value, at, lifetime),
                _ if found.is_some_and(lives) => {
                    policy.refresh_after_update(key, value, at, lifetime)
                }
                _ => policy.refresh_after_create(key, value, at, lifetime),
            }
        };
        let after = load.and_then(|load| load.refresh).or_else(ask);
        let lifetime = match (given, found) {
            (LifetimeSource::Loaded(load), _) => load.lifetime.flatten(),
            // The value keeps its deadline, and so the lifetime from which that deadline came.
            (LifetimeSource::Update, Some(node))
                if self.lifetimes.time_to_live.is_none() && !time::is_due(now, node.deadline()) =>
            {
                self.lifetimes.lifetime_of_unchanged(node)
            }
            _ => None,
        };
        NextRefresh {
            at: time::deadline_in(now, after),
            lifetime,
        }
    }
}

impl<K, V> Lifetimes<K, V> {
    /// The lifetime that a reload gives a node's value again if it leaves it unchanged: that of its
    /// last load, or of the write that gave it one. `None` if a policy or a limit decides.
    pub(crate) fn lifetime_of_unchanged(&self, node: NodePtr<K, V>) -> Option<Duration> {
        if self.policy.is_some() {
            return None;
        }
        let given = node.refresh().and_then(RefreshMoment::lifetime);
        let (own, written) = (node.own_deadline(), node.written());
        let lasts = self.time_to_live.is_none() && own != NEVER && written != NEVER;
        given.or_else(|| lasts.then(|| time::time_left(written, own))?)
    }
}
