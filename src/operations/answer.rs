//! The answer about the lifetime of a value that a write stores.
//!
//! The write asks with no lock held, and confirms under the shard's lock that the answer still
//! fits: [`TimedAnswer::supersede`].

use super::lifetimes::{FromLoad, LifetimeSource, Lifetimes};
use crate::listener::RemovalCause;
use crate::node::{NewNode, NodePtr, Times};
use crate::time::{self, Clock, NEVER};

/// A reading of the clock, and the deadline that was decided on at that moment.
#[derive(Clone, Copy)]
pub(super) struct TimedAnswer {
    /// The time that the policy received, and at which the value counts as written.
    pub(super) now: u64,
    answer: Answer,
}

/// A decision about the own deadline of a value that comes in.
#[derive(Clone, Copy)]
enum Answer {
    /// This deadline, given for a new entry, or to be used whatever the key has.
    New(u64),
    /// This deadline, given for a live entry.
    Moved(u64),
    /// The deadline of the live entry stays. Holds the deadline that the policy has seen, if it was
    /// asked.
    Kept(Option<u64>),
}

impl TimedAnswer {
    /// The answer to use if the policy is not asked again, whatever the key has by then. `None` if
    /// the policy was not asked at all.
    pub(super) fn final_answer(self, now: u64) -> Option<Self> {
        match self.answer {
            Answer::New(own) | Answer::Moved(own) | Answer::Kept(Some(own)) => Some(Self {
                now,
                answer: Answer::New(own),
            }),
            Answer::Kept(None) => None,
        }
    }

    /// Decides how the entry that is about to be replaced ends. Returns the cause of its removal,
    /// and the own deadline that the new value gets if the policy keeps the deadline.
    ///
    /// `None` if the policy must be asked again. Either the entry has become due since, so the
    /// write now creates an entry. Or the deadline is no longer the one that the policy saw.
    // Always inlined, so that the answer stays in registers.
    #[inline(always)]
    pub(super) fn supersede<K, V>(
        &self,
        old: NodePtr<K, V>,
        lifetimes: &Lifetimes<K, V>,
    ) -> Option<(RemovalCause, Option<u64>)> {
        if old.deadline_if_live(self.now).is_none() {
            // `None`: another thread has claimed the deadline after the policy was asked about the
            // entry as a live one.
            let about_new = matches!(self.answer, Answer::New(_));
            return about_new.then_some((RemovalCause::Expired, None));
        }
        let seen_deadline = match self.answer {
            Answer::Kept(seen_deadline) => seen_deadline,
            _ => None,
        };
        // It may have ended all the same: a reader whose clock is ahead has found it due.
        let kept = self.last_deadline(old, seen_deadline, lifetimes)?;
        Some((RemovalCause::Replaced, Some(kept)))
    }

    /// The last own deadline of an entry that is being replaced. Where reads extend, extensions end
    /// here: a reader that comes too late starts over and finds the new value.
    ///
    /// `None` if it has ended, or is not the one that the policy has seen: the policy might
    /// answer differently about it.
    fn last_deadline<K, V>(
        &self,
        old: NodePtr<K, V>,
        seen_deadline: Option<u64>,
        lifetimes: &Lifetimes<K, V>,
    ) -> Option<u64> {
        let deadline = match (lifetimes.reads_extend, seen_deadline) {
            (true, Some(seen_deadline)) => old.freeze_from(seen_deadline, self.now)?,
            (true, None) => old.freeze(self.now)?,
            (false, _) => old.deadline(),
        };
        if seen_deadline.is_some_and(|seen_deadline| seen_deadline != deadline) {
            return None;
        }
        Some(if lifetimes.kept_apart {
            old.own_deadline()
        } else {
            deadline
        })
    }

    /// The own deadline of the new value: the answer's, or `kept`.
    #[inline]
    pub(super) fn own_or(&self, kept: impl FnOnce() -> u64) -> u64 {
        match self.answer {
            Answer::New(own) | Answer::Moved(own) => own,
            Answer::Kept(_) => kept(),
        }
    }

    /// The times of a node that is about to come in.
    #[inline]
    pub(super) fn times<K, V>(&self, kept: Option<u64>, lifetimes: &Lifetimes<K, V>) -> Times {
        let now = self.now;
        let own = self.own_or(|| kept.unwrap_or(NEVER));
        Times {
            written: now,
            deadline: lifetimes.wanted(own, || now, now),
            own,
        }
    }
}

impl<K: 'static, V: 'static> Lifetimes<K, V> {
    /// Asks the policy about the value that comes in at `now`. No lock is held.
    // Always inlined, as the rest of an attempt: the second attempt is a second caller.
    #[inline(always)]
    pub(super) fn ask(
        &self,
        new: &NewNode<K, V>,
        found: Option<NodePtr<K, V>>,
        given: &LifetimeSource,
        clock: &Clock,
        now: u64,
    ) -> TimedAnswer {
        let fixed = match *given {
            LifetimeSource::Ttl(lifetime) => Some(Some(lifetime)),
            LifetimeSource::Loaded(FromLoad { lifetime, .. }) => lifetime,
            LifetimeSource::Policy | LifetimeSource::Update => None,
        };
        if let Some(lifetime) = fixed {
            self.note_own();
            let answer = Answer::New(time::deadline_in(now, lifetime));
            return TimedAnswer { now, answer };
        }
        let answer = match (given, &self.policy) {
            (LifetimeSource::Update, None)
                if self.limits.time_to_live.is_none()
                    && found.is_some_and(|old| old.deadline_if_live(now).is_some()) =>
            {
                Answer::Kept(None)
            }
            (_, None) => Answer::New(NEVER),
            (_, Some(policy)) if self.updates_as_new => {
                let (key, value) = new.entry();
                Answer::New(policy.deadline_of_new(key, value, clock, now))
            }
            (_, Some(policy)) => {
                // If the entry is due, this claims it, so that the answer for a new entry stays
                // valid.
                let there = found.and_then(|old| old.deadline_if_live(now));
                let (key, value) = new.entry();
                match there {
                    None => Answer::New(policy.deadline_of_new(key, value, clock, now)),
                    Some(_) if !self.policy_asks.updates => Answer::Kept(None),
                    Some(deadline) => {
                        match policy.deadline_after_update(key, value, clock, now, deadline) {
                            own if own == deadline => Answer::Kept(Some(deadline)),
                            own => Answer::Moved(own),
                        }
                    }
                }
            }
        };
        TimedAnswer { now, answer }
    }
}
