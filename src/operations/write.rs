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
use super::lifetimes::{LifetimeSource, MAX_ASKS};
use super::refresh::set_refresh;
use crate::listener::RemovalCause;
use crate::load::RevokedBy;
use crate::maintenance::WriteOutcome;
use crate::map::{Revalidated, ShardCell};
use crate::node::NewNode;
use crate::reclaim::Pin;
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// One of the attempts of a write.
#[derive(Clone, Copy)]
struct Attempt {
    /// The first is 1.
    number: u32,
    /// The answer to use. If there is none, the policy is asked.
    last: Option<TimedAnswer>,
}

impl Attempt {
    const FIRST: Self = Self {
        number: 1,
        last: None,
    };
}

/// A write that has to be tried again: the key was inserted, replaced or removed since it was
/// looked up, or the answer no longer fits what is there.
struct RetryWrite<K, V> {
    new: NewNode<K, V>,
    asked: TimedAnswer,
    pin: Pin,
}

/// The reason why an attempt made no write.
enum Failed<K, V> {
    Retry(RetryWrite<K, V>),
    Refused(NewNode<K, V>),
}

/// A write that its [`WriteCondition`] refused, with what it would have stored.
#[derive(Debug)]
pub(crate) struct Refused<V>(pub(crate) V);

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + 'static,
    V: 'static,
    S: BuildHasher,
{
    /// Stores a value, for a time given by the caller or by the policy.
    // A `LifetimeSource` is larger, and would come through memory.
    pub(crate) fn put(&self, key: K, value: V, lifetime: Option<Duration>) {
        let insertion = Insertion {
            core: self,
            given: lifetime.map_or(LifetimeSource::Policy, LifetimeSource::Ttl),
        };
        let mut condition = Explicit::new(RevokedBy::Overwrite);
        match insertion.attempt_first(self.hash(&key), key, value, &mut condition) {
            Ok(outcome) => {
                drop(condition);
                self.maintenance.after_write(&self.shared, outcome);
            }
            Err(failed) => insertion.end_late(failed, condition),
        }
    }

    /// Stores a value if the condition lets it. The caller is to call `after_write` with the
    /// outcome.
    #[inline]
    pub(crate) fn put_through(
        &self,
        hash: u64,
        key: K,
        value: V,
        given: LifetimeSource,
        condition: &mut impl WriteCondition<K, V>,
    ) -> Result<WriteOutcome, Refused<V>> {
        let insertion = Insertion { core: self, given };
        match insertion.attempt_first(hash, key, value, condition) {
            Ok(outcome) => Ok(outcome),
            Err(failed) => insertion.attempt_again(failed, condition),
        }
    }

    /// Sets a deadline by hand; false if the key is absent or its entry is due.
    pub(crate) fn set_lifetime<Q>(&self, key: &Q, lifetime: Option<Duration>) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        if lifetime.is_some() {
            self.lifetimes.note_own();
        }
        let hash = self.hash(key);
        let pin = self.shared.pin();
        match self.try_set_lifetime(hash, key, lifetime, &pin) {
            Ok(set) => self.end_set_lifetime(set, pin),
            Err(DeadlineChanged) => self.set_lifetime_late(hash, key, lifetime, pin),
        }
    }

    /// The rest of [`set_lifetime`](Self::set_lifetime) after a first attempt that failed.
    #[cold]
    #[inline(never)]
    fn set_lifetime_late<Q>(&self, hash: u64, key: &Q, lifetime: Option<Duration>, pin: Pin) -> bool
    where
        Q: Equivalent<K> + ?Sized,
    {
        loop {
            if let Ok(set) = self.try_set_lifetime(hash, key, lifetime, &pin) {
                return self.end_set_lifetime(set, pin);
            }
        }
    }

    #[inline(always)]
    fn end_set_lifetime(&self, set: Option<WriteOutcome>, pin: Pin) -> bool {
        drop(pin);
        let Some(outcome) = set else {
            return false;
        };
        self.maintenance.after_write(&self.shared, outcome);
        true
    }

    /// One attempt of [`set_lifetime`](Self::set_lifetime); `None` if the key is absent.
    #[inline(always)]
    fn try_set_lifetime<Q>(
        &self,
        hash: u64,
        key: &Q,
        lifetime: Option<Duration>,
        pin: &Pin,
    ) -> Result<Option<WriteOutcome>, DeadlineChanged>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let shared = &self.shared;
        let probe = (shared.map).probe(hash, pin, |node| key.equivalent(node.key()));
        let Some(node) = probe.found else {
            return Ok(None);
        };
        let mut shard = probe.lock();
        if shard.revalidate(hash, &probe).is_none() {
            return Err(DeadlineChanged);
        }
        let now = shared.clock.now();
        let judged = node.deadline();
        if time::is_due(now, judged) && node.claim(judged, now) {
            return Ok(None);
        }
        let own = time::deadline_in(now, lifetime);
        let wanted = (self.lifetimes).wanted(own, || node.written(), now);
        if !shard.move_deadline(node, judged, own, wanted) {
            return Err(DeadlineChanged);
        }
        Ok(Some(WriteOutcome::of_change(&shard, wanted, Some(now))))
    }
}

/// The entry or its deadline has changed since it was looked up.
struct DeadlineChanged;

/// A write: what its attempts have in common.
struct Insertion<'a, K, V, S> {
    core: &'a Core<K, V, S>,
    given: LifetimeSource,
}

impl<K, V, S> Insertion<'_, K, V, S>
where
    K: Hash + Eq + 'static,
    V: 'static,
    S: BuildHasher,
{
    /// The rest of an explicit write whose first attempt failed.
    // It calls `after_write` itself, so that the outcome of the first attempt stays in registers.
    #[cold]
    #[inline(never)]
    fn end_late(self, failed: Failed<K, V>, mut condition: Explicit<K, V>) {
        let (shared, maintenance) = (&self.core.shared, &self.core.maintenance);
        let stored = self.attempt_again(failed, &mut condition);
        drop(condition);
        if let Ok(outcome) = stored {
            maintenance.after_write(shared, outcome);
        }
    }

    /// The first attempt of a write.
    #[inline(always)]
    fn attempt_first(
        &self,
        hash: u64,
        key: K,
        value: V,
        condition: &mut impl WriteCondition<K, V>,
    ) -> Result<WriteOutcome, Failed<K, V>> {
        // The prefetch comes before the pin, whose fence delays later memory loads.
        let core = self.core;
        let cell = core.shared.map.cell(hash);
        cell.prefetch(hash);
        let weight = core.weigh(&key, &value);
        let new = NewNode::new(key, value, hash, weight);
        let pin = core.shared.pin();
        self.attempt(cell, new, Attempt::FIRST, pin, condition)
    }

    /// The rest of a write whose first attempt was overtaken.
    // Separate from the first attempt: a loop around that attempt would keep in memory what the
    // attempts share.
    #[cold]
    #[inline(never)]
    fn attempt_again(
        self,
        failed: Failed<K, V>,
        condition: &mut impl WriteCondition<K, V>,
    ) -> Result<WriteOutcome, Refused<V>> {
        let mut failed = failed;
        let mut attempt = Attempt::FIRST;
        loop {
            let RetryWrite { new, asked, pin } = match failed {
                Failed::Retry(retry) => retry,
                Failed::Refused(new) => return Err(Refused(new.into_value())),
            };
            condition.prepare(new.key());
            if attempt.number >= MAX_ASKS {
                attempt.last = asked.final_answer(|| self.core.shared.clock.now());
            }
            attempt.number += 1;
            let cell = self.core.shared.map.cell(new.hash());
            match self.attempt(cell, new, attempt, pin, condition) {
                Ok(outcome) => return Ok(outcome),
                Err(again) => failed = again,
            }
        }
    }

    /// One attempt of a write.
    // The pin comes after `new`, so that it is dropped first if the user's code panics, before key
    // and value.
    #[inline(always)]
    fn attempt(
        &self,
        cell: &ShardCell<K, V>,
        new: NewNode<K, V>,
        attempt: Attempt,
        pin: Pin,
        condition: &mut impl WriteCondition<K, V>,
    ) -> Result<WriteOutcome, Failed<K, V>> {
        let &Self { core, given } = self;
        let (shared, lifetimes) = (&core.shared, &core.lifetimes);
        let (hash, weight) = (new.hash(), new.weight());
        let probe = if condition.knows_absent() {
            cell.probe_absent(&pin)
        } else {
            cell.probe(hash, &pin, |node| new.key() == node.key())
        };
        if !condition.look(probe.found) {
            drop(probe);
            drop(pin);
            return Err(Failed::Refused(new));
        }
        let asked = attempt.last.unwrap_or_else(|| {
            let now = shared.clock.now();
            // `NEVER` would say that the time of the write is not known.
            let now = now + u64::from(now == NEVER);
            lifetimes.ask(&new, probe.found, given, &shared.clock, now)
        });
        let refresh = core.refresh.as_ref().and_then(|policy| {
            let own = asked.own_or(|| probe.found.map_or(NEVER, |old| old.own_deadline()));
            let entry = (new.key(), new.value());
            lifetimes.ask_refresh(
                &**policy,
                entry,
                probe.found,
                given,
                (asked.now, own),
                &shared.clock,
            )
        });
        let mut shard = probe.lock();
        let Some(revalidated) = shard.revalidate(hash, &probe) else {
            drop((shard, probe));
            return Err(Failed::Retry(RetryWrite { new, asked, pin }));
        };
        let now = asked.now;
        match condition.check(&mut shard, hash, probe.found, now) {
            Check::Pass => (),
            Check::Again => {
                drop((shard, probe));
                return Err(Failed::Retry(RetryWrite { new, asked, pin }));
            }
            Check::Refuse => {
                drop((shard, probe));
                drop(pin);
                return Err(Failed::Refused(new));
            }
        }
        let mut outcome = WriteOutcome {
            shard: shard.number(),
            buffered: 0,
            deadline: NEVER,
            now: Some(now),
            left: 1,
        };
        let mut former = None;
        let mut kept_out = false;
        match revalidated {
            Revalidated::Vacant(vacancy) => {
                let times = asked.times(None, lifetimes);
                outcome.deadline = times.deadline;
                shared.note_written(None);
                if shared.is_too_heavy(weight) {
                    shared.note_removed(|| weight, RemovalCause::Size);
                    shard.refuse(new, RemovalCause::Size);
                    kept_out = true;
                } else {
                    let node = shard.add(vacancy, new, times);
                    set_refresh(node, refresh);
                    outcome.left = 0;
                }
            }
            Revalidated::Occupied(spot) => {
                let old = probe.found.expect("revalidated at the node that was found");
                let Some((cause, kept)) =
                    asked.supersede(old, lifetimes, attempt.number < MAX_ASKS)
                else {
                    drop((shard, probe));
                    return Err(Failed::Retry(RetryWrite { new, asked, pin }));
                };
                former = Some(cause);
                let times = asked.times(kept, lifetimes);
                outcome.deadline = times.deadline;
                shared.note_written(Some((old, cause)));
                if shared.is_too_heavy(weight) {
                    shared.note_removed(|| weight, RemovalCause::Size);
                    shard.remove(spot, old, cause);
                    shard.refuse(new, RemovalCause::Size);
                    kept_out = true;
                } else {
                    let node = shard.replace(spot, old, new, times, cause);
                    set_refresh(node, refresh);
                }
            }
        }
        let written = Written {
            cause: former,
            kept: !kept_out,
            deadline: outcome.deadline,
            now,
        };
        condition.seal(&mut shard, written);
        outcome.buffered = shard.buffered();
        Ok(outcome)
    }
}
