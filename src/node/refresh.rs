//! The moment from which a node is stale, how often its reload has failed, and the lifetime that
//! its last load gave it.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::{self, NEVER};
use std::time::Duration;

/// The moment of a node's refresh. While a reload is under way, it is the moment from which the
/// right to reload can be taken again.
pub(crate) struct RefreshMoment {
    at: AtomicU64,
    /// The lifetime that the node's last load gave it, in nanoseconds, or `NO_LIFETIME`.
    lifetime: AtomicU64,
    /// The failures in a row, and one bit while a reload is under way.
    notes: AtomicU32,
}

const NO_LIFETIME: u64 = u64::MAX;
const IS_RELOADING: u32 = 1 << 31;
const FAILURES: u32 = IS_RELOADING - 1;

impl RefreshMoment {
    /// A node that is never stale.
    pub(crate) fn new() -> Self {
        Self {
            at: AtomicU64::new(NEVER),
            lifetime: AtomicU64::new(NO_LIFETIME),
            notes: AtomicU32::new(0),
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

    fn notes(&self) -> u32 {
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
        self.notes() & FAILURES
    }

    /// The lifetime that its last load gave it.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        match self.lifetime.load(Ordering::Relaxed) {
            NO_LIFETIME => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// Sets the moment, with no failure behind it, and the lifetime that the load gave.
    pub(crate) fn set(&self, at: u64, lifetime: Option<Duration>) {
        let nanos = match lifetime {
            Some(lifetime) => u64::try_from(lifetime.as_nanos()).unwrap_or(NO_LIFETIME - 1),
            None => NO_LIFETIME,
        };
        self.lifetime.store(nanos, Ordering::Relaxed);
        self.notes.store(0, Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }

    /// A reload begins. Another call can take the right to reload again from `until` on.
    pub(crate) fn begin(&self, until: u64) {
        self.notes.fetch_or(IS_RELOADING, Ordering::Relaxed);
        self.at.store(until, Ordering::Relaxed);
    }

    /// A reload that began with `until` has failed: the node is stale again from `next` on. Does
    /// nothing if another reload has begun since.
    pub(crate) fn fail(&self, until: u64, next: u64) {
        let ended = (self.at).compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            _ = (self.notes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |notes| {
                let failures = notes & FAILURES;
                Some((failures + 1).min(FAILURES))
            });
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
