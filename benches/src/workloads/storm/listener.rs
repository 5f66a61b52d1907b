//! What the removal listener keeps.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{clock, tail};

/// What the listener heard.
#[derive(Default)]
pub(super) struct Heard {
    late: tail::Shared,
    most: AtomicU64,
    count: AtomicU64,
    keys: AtomicU64,
}

impl Heard {
    /// Notes that an entry has expired that was due at `deadline`.
    pub(super) fn expired(&self, key: u64, deadline: u64) {
        let late = clock::nanos().saturating_sub(deadline);
        self.late.record(late);
        self.count.fetch_add(1, Relaxed);
        self.keys.fetch_add(key, Relaxed);
        if late > self.most.load(Relaxed) {
            self.most.fetch_max(late, Relaxed);
        }
    }

    /// Notifications so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Sum of the keys notified, wrapping: right only if each came once.
    pub(super) fn sum(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    /// Milliseconds between deadline and notification: half, 99 % and all of them were no later.
    pub(super) fn lateness(&self) -> Option<(f64, f64, f64)> {
        let at = |quantile| Some(self.late.quantile(quantile)? as f64 / 1e6);
        Some((at(0.5)?, at(0.99)?, self.most.load(Relaxed) as f64 / 1e6))
    }
}
