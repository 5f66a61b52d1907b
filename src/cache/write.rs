//! Inserting, and setting a deadline by hand.
//!
//! A write asks the policy first, with no lock held, then takes the shard's lock and confirms by
//! addresses that what it asked about still holds; else it starts over. So a callback may call the
//! cache, may panic, may take its time.

use super::core::Core;
use super::gate::{Check, Explicit, Gate, Written};
use super::refresh::{FromLoad, set_refresh};
use crate::listener::RemovalCause;
use crate::load::By;
use crate::maintenance::WriteOutcome;
use crate::map::{Probe, Revalidated};
use crate::node::{Making, NewNode, NodePtr, Times};
use crate::reclaim::Pin;
use crate::time::{self, NEVER};
use equivalent::Equivalent;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// Who says how long a new value lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given {
    /// The cache's policy.
    Policy,
    /// The caller.
    Life(Duration),
    /// A loader, as far as it knows.
    Loaded(FromLoad),
}

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The deadline stays exactly where it is.
    Keep,
    /// A life from the moment of the write.
    Life(Option<Duration>),
}

/// A question to the policy and its answer.
#[derive(Clone, Copy)]
struct Asked {
    answer: Answer,
    /// Whether it was about an entry that was there and alive, not about a new one.
    about: bool,
    /// The deadline of which the policy was told, if it answered with just that.
    told: Option<u64>,
}

impl Asked {
    /// A life that does not depend on what is there.
    fn life(life: Option<Duration>) -> Self {
        Self {
            answer: Answer::Life(life),
            about: false,
            told: None,
        }
    }

    /// The answer as it is taken when the policy is not to be asked again, whatever is there by
    /// then. `None` if it was not asked at all.
    fn for_good(self, now: impl FnOnce() -> u64) -> Option<Self> {
        match (self.answer, self.told) {
            (Answer::Life(life), _) => Some(Self::life(life)),
            (Answer::Keep, Some(deadline)) => Some(Self::life(time::time_left(now(), deadline))),
            (Answer::Keep, None) => None,
        }
    }
}

/// A write that has to be tried again: the key came or went since it was looked up, or the answer
/// is about what is no longer so.
struct Overtaken<K, V> {
    new: NewNode<K, V>,
    asked: Asked,
    pin: Pin,
}

/// What became of an attempt that made no write.
enum Failed<K, V> {
    Overtaken(Overtaken<K, V>),
    Refused(NewNode<K, V>),
}

/// A write that its [`Gate`] refused, with what it would have stored.
#[derive(Debug)]
pub(crate) struct Refused<V>(pub(crate) V);

/// How often a write or a read asks the policy, if each time its answer is overtaken: by a deadline
/// that is moved, which then stays where it was moved to, or by another write, as from within the
/// policy itself. Whoever does that all the time must not hold others up for ever.
pub(super) const ASKS: u32 = 16;

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + 'static,
    V: 'static,
    S: BuildHasher,
{
    pub(super) fn put(&self, key: K, value: V, given: Given) {
        let hash = self.hash(&key);
        let mut gate = Explicit::new(By::Blind);
        let stored = self.put_through(hash, key, value, given, &mut gate);
        drop(gate);
        if let Ok(outcome) = stored {
            self.maintenance.after_write(&self.shared, outcome);
        }
    }

    /// Stores a value if the gate lets it. The caller is to call `after_write` with the outcome.
    #[inline(always)]
    pub(crate) fn put_through(
        &self,
        hash: u64,
        key: K,
        value: V,
        given: Given,
        gate: &mut impl Gate<K, V>,
    ) -> Result<WriteOutcome, Refused<V>> {
        // The pin holds up loads that come after it, but not this.
        self.shared.map.prefetch(hash);
        let making = Making {
            hash,
            weight: self.weigh(&key, &value),
        };
        let new = NewNode::new(key, value, making);
        let pin = self.shared.pin();
        match self.try_put(new, given, None, 1, pin, gate) {
            Ok(outcome) => Ok(outcome),
            Err(failed) => self.put_again(failed, given, gate),
        }
    }

    /// The rest of a write whose first attempt was overtaken.
    // Apart from the first attempt, which is straight code: in a loop around it, what the attempts
    // share would go through the stack.
    #[cold]
    #[inline(never)]
    fn put_again(
        &self,
        failed: Failed<K, V>,
        given: Given,
        gate: &mut impl Gate<K, V>,
    ) -> Result<WriteOutcome, Refused<V>> {
        let mut failed = failed;
        let mut asks = 1;
        loop {
            let Overtaken { new, asked, pin } = match failed {
                Failed::Overtaken(overtaken) => overtaken,
                Failed::Refused(new) => return Err(Refused(new.into_value())),
            };
            gate.prepare(new.key());
            let last = if asks >= ASKS {
                asked.for_good(|| self.shared.clock.now())
            } else {
                None
            };
            asks += 1;
            match self.try_put(new, given, last, asks, pin, gate) {
                Ok(outcome) => return Ok(outcome),
                Err(again) => failed = again,
            }
        }
    }

    /// One attempt of a write, that number `asks`: with the answer that holds for good, if there is
    /// one, else the policy is asked.
    // The pin comes last, so that if the user's code panics it is let go before key and value are
    // dropped.
    #[inline(always)]
    fn try_put(
        &self,
        new: NewNode<K, V>,
        given: Given,
        last: Option<Asked>,
        asks: u32,
        pin: Pin,
        gate: &mut impl Gate<K, V>,
    ) -> Result<WriteOutcome, Failed<K, V>> {
        let (hash, weight) = (new.hash(), new.weight());
        let map = &self.shared.map;
        let probe = map.probe(hash, &pin, |node| new.key() == node.key());
        if !gate.look(probe.found) {
            drop(probe);
            drop(pin);
            return Err(Failed::Refused(new));
        }
        let asked = last.unwrap_or_else(|| self.ask(&new, &probe, given));
        let refresh = self.refresh.as_ref().and_then(|policy| {
            let life = self.life_of(asked.answer, probe.found);
            self.ask_refresh(
                &**policy,
                (new.key(), new.value()),
                probe.found,
                given,
                life,
            )
        });
        let mut shard = probe.lock();
        let Some(revalidated) = shard.revalidate(hash, &probe) else {
            drop((shard, probe));
            return Err(Failed::Overtaken(Overtaken { new, asked, pin }));
        };
        // Read under the lock: a life begins when the write happens, however long the wait was.
        let now = self.shared.clock.now();
        match gate.check(&mut shard, hash, probe.found, now) {
            Check::Pass => (),
            Check::Again => {
                drop((shard, probe));
                return Err(Failed::Overtaken(Overtaken { new, asked, pin }));
            }
            Check::Refuse => {
                drop((shard, probe));
                drop(pin);
                return Err(Failed::Refused(new));
            }
        }
        let mut outcome = WriteOutcome {
            shard: shard.number(),
            pending: 0,
            deadline: NEVER,
            now: Some(now),
            left: true,
        };
        let mut former = None;
        let mut kept_out = false;
        match revalidated {
            Revalidated::Vacant(vacancy) => {
                let times = self.times(asked.answer, None, now);
                outcome.deadline = times.deadline;
                self.shared.note_written(None);
                if self.shared.is_too_heavy(weight) {
                    self.shared.note_removed(|| weight, RemovalCause::Size);
                    shard.refuse(new, RemovalCause::Size);
                    kept_out = true;
                } else {
                    let node = shard.add(vacancy, new, times);
                    set_refresh(node, refresh, now);
                    outcome.left = false;
                }
            }
            Revalidated::Occupied(spot) => {
                let old = probe.found.expect("revalidated at the node that was found");
                let told = asked.told.filter(|_| asks < ASKS);
                let Some((cause, kept)) = self.supersede(old, &asked, told, now) else {
                    drop((shard, probe));
                    return Err(Failed::Overtaken(Overtaken { new, asked, pin }));
                };
                former = Some(cause);
                let times = self.times(asked.answer, kept, now);
                outcome.deadline = times.deadline;
                self.shared.note_written(Some((old, cause)));
                if self.shared.is_too_heavy(weight) {
                    self.shared.note_removed(|| weight, RemovalCause::Size);
                    shard.remove(spot, old, cause);
                    shard.refuse(new, RemovalCause::Size);
                    kept_out = true;
                } else {
                    let node = shard.replace(spot, old, new, times, cause);
                    set_refresh(node, refresh, now);
                }
            }
        }
        let written = Written {
            cause: former,
            kept: !kept_out,
            deadline: outcome.deadline,
            now,
        };
        gate.seal(&mut shard, written);
        outcome.pending = shard.pending();
        Ok(outcome)
    }

    /// Asks the policy about the value that comes in. No lock is held.
    // Always inlined, as what else the attempt consists of: the second attempt is a second place
    // that calls it.
    #[inline(always)]
    fn ask(&self, new: &NewNode<K, V>, probe: &Probe<'_, K, V>, given: Given) -> Asked {
        let policy = match (given, &self.lifetimes.policy) {
            (Given::Life(life), _) => {
                self.lifetimes.note_own();
                return Asked::life(Some(life));
            }
            (
                Given::Loaded(FromLoad {
                    life: Some(life), ..
                }),
                _,
            ) => {
                self.lifetimes.note_own();
                return Asked::life(life);
            }
            (Given::Policy | Given::Loaded(_), None) => return Asked::life(None),
            (Given::Policy | Given::Loaded(_), Some(policy)) => policy,
        };
        let clock = &self.shared.clock;
        if self.lifetimes.policy_plain && self.lifetimes.policy_updates {
            // The same answer whether an entry is there or not: that need not be found out here.
            let life = policy.expire_after_create(new.key(), new.value(), clock.base());
            return Asked::life(life);
        }
        let there = probe.found.and_then(|old| {
            let now = clock.now();
            // Final, so that the create callback is right whatever happens next.
            let deadline = old.deadline_if_alive(now)?;
            Some((now, deadline))
        });
        match there {
            Some(_) if !self.lifetimes.policy_updates => Asked {
                answer: Answer::Keep,
                about: true,
                told: None,
            },
            Some((now, deadline)) => {
                let left = time::time_left(now, deadline);
                let updated_at = self.told(|| now);
                let asked = policy.expire_after_update(new.key(), new.value(), updated_at, left);
                Asked {
                    answer: if asked == left {
                        Answer::Keep
                    } else {
                        Answer::Life(asked)
                    },
                    about: true,
                    told: (asked == left).then_some(deadline),
                }
            }
            None => Asked::life(policy.expire_after_create(
                new.key(),
                new.value(),
                self.told(|| clock.now()),
            )),
        }
    }

    /// Ends the life of an entry whose successor is about to come in: for which cause it leaves,
    /// and the own deadline that the successor keeps if the answer is to keep it.
    ///
    /// `None` if the policy has to be asked again: the entry fell due since, so the answer has to
    /// be about a new one; or its deadline was moved from where the policy was `told` that it is.
    // Always inlined: an answer of two, one of them optional, would go through the stack.
    #[inline(always)]
    fn supersede(
        &self,
        old: NodePtr<K, V>,
        asked: &Asked,
        told: Option<u64>,
        now: u64,
    ) -> Option<(RemovalCause, Option<u64>)> {
        let cause = self.judge(old, asked, now)?;
        if cause != RemovalCause::Replaced {
            return Some((cause, None));
        }
        // It may have ended even so: a reader whose clock is ahead has found it due.
        let kept = self.last_deadline(old, told, now)?;
        Some((cause, Some(kept)))
    }

    /// For which cause the old value leaves; `None` if the policy was asked about an entry that is
    /// due by now.
    fn judge(&self, old: NodePtr<K, V>, asked: &Asked, now: u64) -> Option<RemovalCause> {
        loop {
            let deadline = old.deadline();
            if deadline == NEVER {
                return Some(RemovalCause::Replaced);
            }
            if !time::is_due(now, deadline) {
                return Some(RemovalCause::Replaced);
            }
            if old.claim(deadline, now) {
                return (!asked.about).then_some(RemovalCause::Expired);
            }
        }
    }

    /// The own deadline that a replaced entry had at last. Where reads extend, they end here: a
    /// reader who comes too late starts over and meets the new value.
    ///
    /// `None` if it has ended, or is another one than the policy was `told` of: what the policy
    /// would have said of that, nobody knows.
    fn last_deadline(&self, old: NodePtr<K, V>, told: Option<u64>, now: u64) -> Option<u64> {
        let deadline = match (self.lifetimes.reads_extend, told) {
            (true, Some(told)) => old.freeze_from(told, now)?,
            (true, None) => old.freeze(now)?,
            (false, _) => old.deadline(),
        };
        if told.is_some_and(|told| told != deadline) {
            return None;
        }
        Some(if self.lifetimes.kept_apart {
            old.own_deadline()
        } else {
            deadline
        })
    }

    /// The times of a node that is about to come in.
    // Always inlined: arguments and answer would go through the stack.
    #[inline(always)]
    fn times(&self, answer: Answer, kept: Option<u64>, now: u64) -> Times {
        let own = match (answer, kept) {
            (Answer::Keep, Some(kept)) => kept,
            (Answer::Keep, None) => NEVER,
            (Answer::Life(life), _) => time::deadline_in(now, life),
        };
        // `NEVER` marks a time of writing that is not known; the one nanosecond that reads the same
        // goes by.
        let written = if now == NEVER { now + 1 } else { now };
        Times {
            written,
            deadline: self.lifetimes.limits.wanted(own, || written, now),
            own,
        }
    }

    /// Sets a deadline by hand; false if the key is absent or its entry is due.
    pub(super) fn set_life<Q>(&self, key: &Q, life: Option<Duration>) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        if life.is_some() {
            self.lifetimes.note_own();
        }
        let hash = self.hash(key);
        let pin = self.shared.pin();
        let map = &self.shared.map;
        loop {
            let Some(node) = map.find(hash, &pin, |node| key.equivalent(node.key())) else {
                return false;
            };
            let mut shard = map.lock(hash);
            if shard.find_node(hash, node).is_none() {
                continue;
            }
            let now = self.shared.clock.now();
            let judged = node.deadline();
            if time::is_due(now, judged) && node.claim(judged, now) {
                return false;
            }
            let own = time::deadline_in(now, life);
            let wanted = (self.lifetimes.limits).wanted(own, || node.written(), now);
            if !shard.move_deadline(node, judged, own, wanted) {
                continue;
            }
            let outcome = WriteOutcome {
                shard: shard.number(),
                pending: shard.pending(),
                deadline: wanted,
                now: Some(now),
                left: false,
            };
            drop(shard);
            drop(pin);
            self.maintenance.after_write(&self.shared, outcome);
            return true;
        }
    }
}
