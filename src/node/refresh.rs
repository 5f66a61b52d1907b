//! The moment from which a node is stale, and how often its reload has failed.

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::time::{self, NEVER};

/// The moment of a node's refresh. While a reload is under way, it is the moment from which the
/// right to reload can be taken again.
pub(crate) struct RefreshMoment {
    at: AtomicU64,
    failures: AtomicU32,
    /// Whether a reload is under way.
    is_reloading: AtomicBool,
}

impl RefreshMoment {
    /// A node that is never stale.
    pub(crate) fn new() -> Self {
        Self {
            at: AtomicU64::new(NEVER),
            failures: AtomicU32::new(0),
            is_reloading: AtomicBool::new(false),
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

    /// The moment to keep in a snapshot. A reload that is under way ends with the process, so its
    /// node counts as stale now.
    pub(crate) fn at_without_reload(&self, now: u64) -> u64 {
        if self.is_reloading.load(Ordering::Relaxed) {
            now
        } else {
            self.at()
        }
    }

    /// Whether the node is stale at `now`.
    #[inline]
    pub(crate) fn is_stale(&self, now: u64) -> bool {
        is_stale(self.at(), now)
    }

    /// How often its reload has failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Sets the moment, with no failure behind it.
    pub(crate) fn set(&self, at: u64) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_reloading.store(false, Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }

    /// A reload begins. Its right can be taken again from `until` on.
    pub(crate) fn begin(&self, until: u64) {
        self.is_reloading.store(true, Ordering::Relaxed);
        self.at.store(until, Ordering::Relaxed);
    }

    /// A reload that began with `until` has failed: the next try is at `next`. Does nothing if
    /// another reload has begun since.
    pub(crate) fn fail(&self, until: u64, next: u64) {
        let at = &self.at;
        let ended = at.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        if ended.is_ok() {
            let failures = self.failures().saturating_add(1);
            self.failures.store(failures, Ordering::Relaxed);
            self.is_reloading.store(false, Ordering::Relaxed);
        }
    }
}

/// Whether a node with this moment of refresh is stale at `now`.
#[inline]
pub(crate) fn is_stale(at: u64, now: u64) -> bool {
    at != NEVER && time::is_due(now, at)
}
