//! The moment from which a node is stale, how often its reload has failed, and the lifetime that
//! its last load gave it.

use crate::sync::{AtomicU64, Ordering};
use crate::time::{self, NEVER};
use std::time::Duration;

/// The moment of a node's refresh. While a reload is under way, it is the moment from which the
/// right to reload can be taken again.
pub(crate) struct RefreshMoment {
    at: AtomicU64,
    /// What a reload starts from, packed since each entry has it: 16 bits for the failures in a
    /// row, one bit while a reload is under way, and 47 bits for the lifetime in microseconds (0:
    /// none), which are up to 4 years.
    notes: AtomicU64,
}

/// What came of a reload that leaves its node as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    Failed,
    /// It did not run.
    Not,
}

const FAILURES: u64 = (1 << 16) - 1;
const IS_RELOADING: u64 = 1 << 16;
const LIFETIME_FROM: u32 = 17;
const LONGEST_LIFETIME: u64 = u64::MAX >> LIFETIME_FROM;

impl RefreshMoment {
    /// A node that is never stale.
    pub(crate) fn new() -> Self {
        Self {
            at: AtomicU64::new(NEVER),
            notes: AtomicU64::new(0),
        }
    }

    /// The moment, in cache time.
    ///
    /// Relaxed, as the rest: no other memory is read because of it. The right to reload is given
    /// under the shard's lock.
    #[inline]
    pub(crate) fn at(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    fn notes(&self) -> u64 {
        self.notes.load(Ordering::Relaxed)
    }

    /// The moment to keep in a snapshot. A reload that is under way ends with the process, so its
    /// node counts as stale now.
    pub(crate) fn at_without_reload(&self, now: u64) -> u64 {
        if self.is_reloading() { now } else { self.at() }
    }

    /// Whether a reload is under way.
    pub(crate) fn is_reloading(&self) -> bool {
        self.notes() & IS_RELOADING != 0
    }

    /// Whether the node is stale at `now`.
    #[inline]
    pub(crate) fn is_stale(&self, now: u64) -> bool {
        time::is_due(now, self.at())
    }

    /// How often its reload has failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        (self.notes() & FAILURES) as u32
    }

    /// The lifetime that its last load gave it, to the microsecond.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        let micros = self.notes() >> LIFETIME_FROM;
        if micros == 0 {
            return None;
        }
        Some(Duration::from_micros(micros))
    }

    /// Sets the moment, with no failure behind it, and the lifetime that the load gave.
    pub(crate) fn set(&self, at: u64, lifetime: Option<Duration>) {
        let micros = match lifetime {
            Some(lifetime) => lifetime.as_nanos().div_ceil(1_000),
            None => 0,
        };
        let micros = micros.min(LONGEST_LIFETIME.into()) as u64;
        self.notes.store(micros << LIFETIME_FROM, Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }

    /// A reload begins. Another call can take the right to reload again from `until` on.
    pub(crate) fn begin(&self, until: u64) {
        self.notes.fetch_or(IS_RELOADING, Ordering::Relaxed);
        self.at.store(until, Ordering::Relaxed);
    }

    /// A reload that began with `until` has failed, or will not run: the node is stale again from
    /// `next` on. Does nothing if another reload has begun since.
    pub(crate) fn end(&self, until: u64, next: u64, tried: Tried) {
        let ended = (self.at).compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_err() {
            return;
        }
        _ = (self.notes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |notes| {
            let failures = (notes & FAILURES) + u64::from(tried == Tried::Failed);
            Some(notes & !(FAILURES | IS_RELOADING) | failures.min(FAILURES))
        });
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn failures_and_lifetime_share_a_word() {
        let (moment, minute) = (RefreshMoment::new(), Duration::from_secs(60));
        assert_eq!((moment.failures(), moment.lifetime()), (0, None));
        moment.set(10, Some(minute));
        for failures in 1..70_000_u32 {
            moment.begin(20);
            assert_eq!(moment.at_without_reload(5), 5);
            moment.end(19, 30, Tried::Failed);
            assert_eq!(moment.at(), 20, "another reload has begun");
            moment.end(20, 30, Tried::Failed);
            let counted = failures.min(u32::from(u16::MAX));
            assert_eq!(moment.failures(), counted);
            assert_eq!(
                (moment.at_without_reload(5), moment.lifetime()),
                (30, Some(minute))
            );
        }
        for (given, kept) in [
            (Duration::from_nanos(1), Duration::from_micros(1)),
            (Duration::MAX, Duration::from_micros(LONGEST_LIFETIME)),
        ] {
            moment.set(10, Some(given));
            assert_eq!((moment.failures(), moment.lifetime()), (0, Some(kept)));
        }
        moment.set(10, None);
        assert_eq!(moment.lifetime(), None);
    }
}
