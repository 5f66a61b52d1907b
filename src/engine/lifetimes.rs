//! How long entries live: the policy of the cache and the cache-wide limits, of which the earliest
//! deadline holds.
//!
//! A write asks the policy with no lock held, and confirms under the shard's lock that the answer
//! still fits: [`TimedAnswer::supersede`].

use crate::expiry::{Asks, ErasedExpiry, Updates};
use crate::listener::RemovalCause;
use crate::node::{NodePtr, Times};
use crate::sync::{AtomicBool, AtomicU8, Ordering};
use crate::time::{self, Clock, NEVER};
use std::time::{Duration, Instant};

/// Whether the own deadline of an entry must be kept apart from the wanted one.
pub(super) fn needs_own_column(
    time_to_live: Option<Duration>,
    time_to_idle: Option<Duration>,
    has_policy: bool,
) -> bool {
    time_to_idle.is_some() || (time_to_live.is_some() && has_policy)
}

/// Where the lifetime of a new value comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LifetimeSource {
    /// From the policy of the cache.
    Policy,
    /// From the policy of the cache, for a value that is made from the present one. If there is
    /// neither a policy nor a time to live, the present deadline stays.
    Update,
    /// From the caller.
    Ttl(Duration),
    /// From the caller, as the instant at which it ends.
    Until(Instant),
    /// From a loader, if the loader has said it.
    Loaded(FromLoad),
}

impl LifetimeSource {
    /// The deadline of a value that comes in at `now`, if it does not come from the policy.
    #[inline]
    fn deadline(&self, clock: &Clock, now: u64) -> Option<u64> {
        match *self {
            Self::Ttl(lifetime) => Some(time::deadline_after(now, lifetime)),
            Self::Until(end) => Some(clock.deadline_at(now, end)),
            Self::Loaded(FromLoad { lifetime, .. }) => {
                lifetime.map(|lifetime| time::deadline_in(now, lifetime))
            }
            Self::Policy | Self::Update => None,
        }
    }
}

/// The lifetime and the time until the refresh that a loader gave its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromLoad {
    /// Its lifetime, if the loader knows it; `Some(None)` for ever.
    pub(crate) lifetime: Option<Option<Duration>>,
    /// When it is to be reloaded, if the loader knows that.
    pub(crate) refresh: Option<Duration>,
    /// Whether it was a reload.
    pub(crate) reload: bool,
    /// How long the loader took.
    pub(crate) took: Duration,
}

/// How often one call asks the policy at most, beside one attempt that expects the key to be
/// absent. It asks again if the deadline was moved or the key was written meanwhile, perhaps by the
/// policy itself. After so many times a write takes the last answer (`final_answer`), and a read
/// leaves the deadline where it is.
pub(crate) const MAX_ASKS: u32 = 16;

/// No read asks the policy.
pub(crate) const NO_READ: u8 = 0;
/// Each read does.
const EVERY_READ: u8 = 1;
/// The first read does, and tells whether later reads have to.
pub(crate) const FIRST_READ: u8 = 2;

/// The policy and the limits of a cache, and what follows from them, worked out once.
pub(crate) struct Lifetimes<K, V> {
    pub(crate) policy: Option<Box<dyn ErasedExpiry<K, V>>>,
    /// The limits of the cache.
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) time_to_idle: Option<Duration>,
    /// The operations about which the policy is asked; none without a policy.
    pub(crate) policy_asks: Asks,
    /// There is a cache-wide limit on lifetimes.
    limited: bool,
    /// Whether a read may move the deadline, according to the settings.
    pub(crate) reads_extend: bool,
    /// Whether reads ask the policy: `NO_READ`, [`EVERY_READ`] or [`FIRST_READ`].
    ///
    /// Relaxed: a policy that need not be asked would not move a deadline if it was.
    pub(crate) asks_reads: AtomicU8,
    /// The idle limit less its grain; 0 without one. A read without a ticker that asks no policy
    /// leaves the deadline where it is if more time than this is left.
    pub(crate) idle_room: u64,
    /// The entry's own deadline must be kept apart from the wanted one.
    pub(crate) has_own_column: bool,
    /// An entry may have an own deadline. If not, no read looks for one: it would touch memory that
    /// it has no other use for.
    has_own_deadlines: AtomicBool,
}

/// The idle limit less its grain.
fn idle_room(idle: Duration) -> u64 {
    let nanos = time::deadline_after(0, idle);
    let grain = if idle < time::COARSE_FROM {
        time::EXACT_GRAIN.min(nanos / 8)
    } else {
        time::GRAIN
    };
    nanos - grain
}

impl<K, V> Lifetimes<K, V> {
    pub(crate) fn new(
        policy: Option<Box<dyn ErasedExpiry<K, V>>>,
        time_to_live: Option<Duration>,
        time_to_idle: Option<Duration>,
    ) -> Self {
        let policy_asks = policy
            .as_ref()
            .map_or(Asks::ONLY_NEW, |policy| policy.asks());
        Self {
            policy_asks,
            limited: time_to_live.is_some() || time_to_idle.is_some(),
            reads_extend: policy_asks.reads || time_to_idle.is_some(),
            has_own_column: needs_own_column(time_to_live, time_to_idle, policy.is_some()),
            asks_reads: AtomicU8::new(if policy_asks.reads {
                FIRST_READ
            } else {
                NO_READ
            }),
            idle_room: time_to_idle.map_or(0, idle_room),
            has_own_deadlines: AtomicBool::new(policy.is_some()),
            policy,
            time_to_live,
            time_to_idle,
        }
    }

    /// Whether a read may ask the policy.
    #[inline]
    pub(crate) fn reads_ask(&self) -> bool {
        self.asks_reads.load(Ordering::Relaxed) != NO_READ
    }

    /// Whether a read at `now` that asks no policy finds the entry live, and leaves the deadline:
    /// the idle limit would move it by less than its grain.
    #[inline]
    pub(crate) fn keeps_deadline(&self, now: u64, deadline: u64) -> bool {
        !time::is_due(now.wrapping_add(self.idle_room), deadline)
    }

    /// Whether a read needs the exact time: the policy is told it, or the lifetime that counts from
    /// it is short.
    pub(super) fn reads_exactly(&self) -> bool {
        let told = self.policy_asks.times && self.reads_ask();
        let idle = self.time_to_idle;
        told || idle.is_some_and(|idle| idle < time::COARSE_FROM)
    }

    /// Notes whether the policy inherits its method for reads.
    pub(super) fn note_first_read(&self, inherits: bool) {
        let asks = if inherits { NO_READ } else { EVERY_READ };
        self.asks_reads.store(asks, Ordering::Relaxed);
    }

    /// The wanted deadline of an entry whose own deadline is `own`, written at `written` and used
    /// at `now`.
    // `written` stands in the node's side part: read only if it matters.
    #[inline]
    pub(crate) fn wanted(&self, own: u64, written: impl FnOnce() -> u64, now: u64) -> u64 {
        if !self.limited {
            return own;
        }
        let hard = self.within_time_to_live(own, written, now);
        match self.time_to_idle {
            Some(idle) => time::earlier(now, hard, time::deadline_after(now, idle)),
            None => hard,
        }
    }

    /// The earlier one of an own deadline and what the time to live gives.
    fn within_time_to_live(&self, own: u64, written: impl FnOnce() -> u64, now: u64) -> u64 {
        match self.time_to_live.map(|live| (live, written())) {
            Some((live, written)) if written != NEVER => {
                time::earlier(now, own, time::deadline_after(written, live))
            }
            _ => own,
        }
    }

    /// The own and the wanted deadline of a node with `deadline`, after an answer given at `now`;
    /// `None` leaves the own deadline.
    #[inline]
    pub(crate) fn moved(
        &self,
        node: NodePtr<K, V>,
        deadline: u64,
        answer: Option<u64>,
        now: u64,
    ) -> (u64, u64) {
        let own = match answer {
            Some(own) => own,
            None if self.has_own_column => self.own_deadline(node),
            None => deadline,
        };
        (own, self.wanted(own, || node.written(), now))
    }

    /// The deadline of a node without the idle limit, `wanted` being the one with it.
    pub(crate) fn deadline_without_idle(&self, node: NodePtr<K, V>, wanted: u64, now: u64) -> u64 {
        if self.time_to_idle.is_none() {
            return wanted;
        }
        self.within_time_to_live(self.own_deadline(node), || node.written(), now)
    }

    /// Notes that a caller gives an entry an own deadline. Called before any reader can meet that
    /// deadline.
    ///
    /// Relaxed, as in [`own_deadline`](Self::own_deadline): the node is published, or its wanted
    /// deadline moved, after this store and with release. A reader that loads the node or the
    /// deadline with acquire sees this store.
    pub(crate) fn note_own(&self) {
        if !self.has_own_deadlines.load(Ordering::Relaxed) {
            self.has_own_deadlines.store(true, Ordering::Relaxed);
        }
    }

    /// The own deadline of a node in a cache that keeps it apart. Read the wanted one before this
    /// call.
    #[inline]
    pub(crate) fn own_deadline(&self, node: NodePtr<K, V>) -> u64 {
        if self.has_own_deadlines.load(Ordering::Relaxed) {
            node.own_deadline()
        } else {
            NEVER
        }
    }
}

/// A reading of the clock, and the deadline that was decided on at that moment.
#[derive(Clone, Copy)]
pub(crate) struct TimedAnswer {
    /// The time that the policy received, and at which the value counts as written.
    pub(crate) now: u64,
    answer: Answer,
}

/// How an entry that is about to be replaced ends.
pub(crate) struct Superseded {
    /// The cause for which its value leaves.
    pub(crate) cause: RemovalCause,
    /// The own deadline that the new value gets if the policy keeps the deadline.
    pub(crate) kept: Option<u64>,
    /// Its wanted deadline: the last one, or the claimed one.
    pub(crate) deadline: u64,
}

/// A decision about the own deadline of a value that comes in.
///
/// | answer | fits an entry that is new by now | fits one that lives | as the last answer |
/// |---|---|---|---|
/// | `Fixed` | yes | yes | as it is |
/// | `Moved` | no: the policy is asked again | yes | `Fixed` |
/// | `KeepsSeen` | no | if its deadline is the one that was seen | `KeepsAny`, of a live entry |
/// | `KeepsAny` | no | yes | as it is, of a live entry |
#[derive(Clone, Copy)]
enum Answer {
    /// This deadline, whatever the key has by then: from a call, or given for a new entry.
    Fixed(u64),
    /// This deadline, given for a live entry.
    Moved(u64),
    /// The deadline of the live entry stays, which is this one: the policy has seen it.
    KeepsSeen(u64),
    /// The deadline of the live entry stays, whatever it is.
    KeepsAny,
}

impl TimedAnswer {
    /// About an entry that is new, whatever the answer.
    pub(crate) fn of_new(now: u64) -> Self {
        let answer = Answer::Fixed(NEVER);
        Self { now, answer }
    }

    /// The last answer, about what the key has at `now`. `None` if the deadline of a live entry was
    /// to stay, and the entry has ended: the policy has yet to be asked about a new one.
    pub(crate) fn final_answer<K, V>(self, found: Option<NodePtr<K, V>>, now: u64) -> Option<Self> {
        let answer = match self.answer {
            Answer::Fixed(own) | Answer::Moved(own) => Answer::Fixed(own),
            Answer::KeepsSeen(_) | Answer::KeepsAny => {
                if found?.claim_if_due(now) {
                    return None;
                }
                Answer::KeepsAny
            }
        };
        Some(Self { now, answer })
    }

    /// Decides how the entry that is about to be replaced ends.
    ///
    /// `None` if the policy must be asked again. Either the entry has become due since, so the
    /// write now creates an entry. Or the deadline is no longer the one that the policy saw.
    // Always inlined, so that the answer stays in registers.
    #[inline(always)]
    pub(crate) fn supersede<K, V>(
        &self,
        old: NodePtr<K, V>,
        lifetimes: &Lifetimes<K, V>,
    ) -> Option<Superseded> {
        if old.claim_if_due(self.now) {
            // `None`: another thread has claimed the deadline after the policy was asked about the
            // entry as a live one.
            let fits_new = matches!(self.answer, Answer::Fixed(_));
            if !fits_new {
                return None;
            }
            return Some(Superseded {
                cause: RemovalCause::Expired,
                kept: None,
                deadline: old.deadline(),
            });
        }
        let seen = match self.answer {
            Answer::KeepsSeen(seen) => Some(seen),
            _ => None,
        };
        // Where reads extend, extensions end here: a reader that comes too late starts over and
        // finds the new value. The entry may have ended all the same: a reader whose clock is ahead
        // has found it due.
        let last = if lifetimes.reads_extend {
            old.freeze(seen, self.now)?
        } else {
            old.deadline()
        };
        if seen.is_some_and(|seen| seen != last) {
            return None;
        }
        let kept = if lifetimes.has_own_column {
            old.own_deadline()
        } else {
            last
        };
        Some(Superseded {
            cause: RemovalCause::Replaced,
            kept: Some(kept),
            deadline: last,
        })
    }

    /// The own deadline of the new value: the answer's, or `kept`.
    #[inline]
    pub(crate) fn own_or(&self, kept: impl FnOnce() -> u64) -> u64 {
        match self.answer {
            Answer::Fixed(own) | Answer::Moved(own) => own,
            Answer::KeepsSeen(_) | Answer::KeepsAny => kept(),
        }
    }

    /// The times of a node that is about to come in.
    #[inline]
    pub(crate) fn times<K, V>(&self, kept: Option<u64>, lifetimes: &Lifetimes<K, V>) -> Times {
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
    pub(crate) fn ask<'e>(
        &self,
        entry: impl Fn() -> (&'e K, &'e V),
        found: Option<NodePtr<K, V>>,
        given: &LifetimeSource,
        clock: &Clock,
        now: u64,
    ) -> TimedAnswer {
        // Mostly the policy: one comparison says so.
        let fixed = if matches!(given, LifetimeSource::Policy) {
            None
        } else {
            given.deadline(clock, now)
        };
        if let Some(deadline) = fixed {
            self.note_own();
            let answer = Answer::Fixed(deadline);
            return TimedAnswer { now, answer };
        }
        let answer = match (given, &self.policy) {
            (LifetimeSource::Update, None)
                if self.time_to_live.is_none()
                    && found.is_some_and(|old| !old.claim_if_due(now)) =>
            {
                Answer::KeepsAny
            }
            (_, None) => Answer::Fixed(NEVER),
            (_, Some(policy)) => {
                let updates = self.policy_asks.updates;
                let mut live = None;
                if let (Some(old), Updates::Leave | Updates::Asked) = (found, updates) {
                    // If the entry is due, this claims it, so that the answer for a new entry stays
                    // valid.
                    live = old.live_or_claim(now);
                }
                match live {
                    None => Answer::Fixed(policy.deadline_of_new(entry(), clock, now)),
                    Some(_) if updates == Updates::Leave => Answer::KeepsAny,
                    // The policy is told the wanted deadline. If it keeps that, the own one stays.
                    Some(deadline) => {
                        match policy.deadline_of_update(entry(), clock, now, deadline) {
                            None => Answer::KeepsSeen(deadline),
                            Some(own) => Answer::Moved(own),
                        }
                    }
                }
            }
        };
        TimedAnswer { now, answer }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
