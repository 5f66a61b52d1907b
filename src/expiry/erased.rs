//! An expiry policy of any type, as a cache keeps it: asked in cache time, answering with a
//! deadline.
//!
//! A cache keeps its policy as `Box<dyn ErasedExpiry<K, V>>`, which is implemented once for every
//! type that implements [`Expiry`]. So the compiler sees the user's method and the conversion of
//! times around it as one function, and drops what the method does not use. An answer is a deadline
//! in cache time, or none if the policy leaves the entry's.
//!
//! # Which policies inherit `expire_after_read`
//!
//! A cache need not ask them about reads. The trait's default `expire_after_read` leaves a note
//! ([`note_provided`](crate::identity::note_provided)). If that names, after a call, the policy
//! that answers reads (a wrapper of this crate asks the policy that it wraps), no read moves a
//! deadline.

use super::Expiry;
use crate::node::NodePtr;
use crate::time::{self, COARSE_FROM, Clock, NEVER};
use std::time::{Duration, Instant};

/// Gives deadlines to entries.
///
/// `now` is the reading of the clock at which the policy is asked, in cache time. Its instant is
/// what the policy is told, and its answer counts from there.
pub(crate) trait ErasedExpiry<K, V>: Send + Sync {
    /// The operations about which the policy has to be asked.
    fn asks(&self) -> Asks;

    /// The deadline of a new entry.
    fn deadline_of_new(&self, entry: (&K, &V), clock: &Clock, now: u64) -> u64;

    /// The new deadline of an entry that has `deadline` and is given a new value; `None` if that
    /// deadline stays.
    fn deadline_of_update(
        &self,
        entry: (&K, &V),
        clock: &Clock,
        now: u64,
        deadline: u64,
    ) -> Option<u64>;

    /// The new deadline of an entry that has `deadline` and is read; `None` if that deadline stays.
    fn deadline_of_read(
        &self,
        node: NodePtr<K, V>,
        clock: &Clock,
        now: u64,
        deadline: u64,
    ) -> Option<u64>;

    /// Whether the policy, which this thread has just asked about a read, uses the trait's default
    /// method for reads. That keeps the deadline, so the policy need not be asked again.
    fn inherits_reads(&self) -> bool;
}

/// What an update does to the deadline of a live entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(unreachable_pub)]
pub enum Updates {
    /// It leaves the deadline. The policy is not asked.
    Leave,
    /// It gives the deadline of a new entry, whatever time is left.
    AsNew,
    /// The policy is asked, and told the time that is left.
    Asked,
}

/// Which calls and arguments a policy needs: all of them, for a policy of the user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// `pub`, but not reachable from outside the crate. So a user's policy cannot override the method of
// `Expiry` that returns it.
#[allow(unreachable_pub)]
pub struct Asks {
    /// Whether a read can move the deadline.
    pub(crate) reads: bool,
    pub(crate) updates: Updates,
    /// Whether the policy looks at the instants and at the time left that it is told.
    pub(crate) times: bool,
}

impl Asks {
    /// Everything: for a policy of which the crate knows nothing.
    pub(crate) const ALL: Self = Self {
        reads: true,
        updates: Updates::Asked,
        times: true,
    };

    /// Only new entries, whatever the time.
    pub(crate) const ONLY_NEW: Self = Self {
        reads: false,
        updates: Updates::Leave,
        times: false,
    };
}

/// The instant that a policy is told, and the time left; any instant, if the policy does not use
/// times. For a concrete policy type the condition is a compile-time constant, so the compiler
/// drops the branch that is not taken.
#[inline]
fn told<K, V>(
    policy: &impl Expiry<K, V>,
    clock: &Clock,
    now: u64,
    deadline: u64,
) -> (Instant, Option<Duration>) {
    if policy.__asks().times {
        (clock.instant(now), time::time_left(now, deadline))
    } else {
        (clock.base(), None)
    }
}

/// The deadline that a policy has answered for an entry with `deadline`; `None` if that stays.
#[inline]
fn moved(deadline: u64, now: u64, answer: Option<Duration>) -> Option<u64> {
    let wanted = time::deadline_in(now, answer);
    if wanted == deadline {
        None
    } else {
        Some(wanted)
    }
}

impl<K, V, P: Expiry<K, V>> ErasedExpiry<K, V> for P {
    fn asks(&self) -> Asks {
        self.__asks()
    }

    fn deadline_of_new(&self, (key, value): (&K, &V), clock: &Clock, now: u64) -> u64 {
        let (told, _) = told(self, clock, now, NEVER);
        time::deadline_in(now, self.expire_after_create(key, value, told))
    }

    fn deadline_of_update(
        &self,
        (key, value): (&K, &V),
        clock: &Clock,
        now: u64,
        deadline: u64,
    ) -> Option<u64> {
        let (told, left) = told(self, clock, now, deadline);
        let answer = self.expire_after_update(key, value, told, left);
        if self.__asks().times && answer == left {
            // Before it is made a number: if the clock has stepped back, the time left may be above
            // the longest lifetime.
            None
        } else {
            moved(deadline, now, answer)
        }
    }

    fn deadline_of_read(
        &self,
        node: NodePtr<K, V>,
        clock: &Clock,
        now: u64,
        deadline: u64,
    ) -> Option<u64> {
        let key = node.key();
        let value = node.value();
        let (told, left) = told(self, clock, now, deadline);
        if self.__asks().times {
            // The distance is converted, not the two points: if half the clock's range lay between
            // them, converting each would change their distance.
            let written = told.checked_sub(node.age(now)).unwrap_or(told);
            let answer = self.expire_after_read(key, value, told, left, written);
            // Before it is made a number, as `deadline_of_update` says.
            return if answer == left {
                None
            } else {
                moved(deadline, now, answer)
            };
        }
        let answer = self.expire_after_read(key, value, told, left, told);
        let now = match answer {
            Some(lifetime) if lifetime < COARSE_FROM => clock.exactly(now),
            _ => now,
        };
        // The entry may have become due since it was judged. Then it is too late to extend it.
        if time::is_due(now, deadline) {
            None
        } else {
            moved(deadline, now, answer)
        }
    }

    fn inherits_reads(&self) -> bool {
        self.__inherits_reads()
    }
}
