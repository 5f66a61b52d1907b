//! The size of the window, against that of the protected queue.
//!
//! # How it works
//!
//! Each of two kinds of event votes on where the border between window and protected queue should
//! be. A miss on a key with a known ghost votes for the window: it would have been a hit if the
//! window had been larger by all that was evicted since. A hit on a protected entry votes for the
//! protected queue: it would have been a miss if the queue had been smaller by all that is older
//! than the entry. The size of that difference is the *depth* of the event. A hit that needs `n`
//! times as much room as another is worth an `n`th of it, so each vote is the inverse of its depth.
//! All hits nearer than a twentieth of the cache count the same. The border rests where the votes
//! balance. Deep hits vote, too. So the policy also finds a better size that is far from the
//! present one.
//!
//! The adaptation follows ARC, with two differences: hits on protected entries vote in the place of
//! ARC's second list of ghosts, and votes depend on distances.
//!
//! `raw_part` may go beyond the lower or the upper bound by up to a tenth of the cache. So if a
//! long trend has pushed the border to a bound, a short burst of opposite votes does not move it.
//! Without this slack, a loop a little longer than the cache, whose hits and misses alternate,
//! would make the cache behave as LRU.
//!
//! # Invariants
//!
//! 1. `LEAST_PART - SLACK <= raw_part <= 1 - LEAST_PART + SLACK`.
//! 2. `part` is `raw_part` cut to the bounds, and `window` is that part of `max`. Both are computed
//!    when one of them changes, since every insert and removal reads them several times.

/// The window keeps at least this part of the cache, and so does the protected queue.
pub(super) const LEAST_PART: f64 = 0.01;
pub(super) const SLACK: f64 = 0.1;

#[derive(Debug)]
pub(super) struct WindowSizer {
    pub(super) raw_part: f64,
    /// The part that the window has.
    pub(super) part: f64,
    pub(super) max: u64,
    pub(super) window: u64,
}

impl WindowSizer {
    pub(super) fn new(max: u64) -> Self {
        let mut sizer = Self {
            raw_part: LEAST_PART,
            part: LEAST_PART,
            max,
            window: 0,
        };
        sizer.set_max(max);
        sizer
    }

    pub(super) fn set_max(&mut self, max: u64) {
        self.max = max;
        self.window = self.weighed();
    }

    /// Counts a hit that only a larger window would have had. `by` is the vote, in parts of the
    /// cache.
    pub(super) fn widen(&mut self, by: f64) {
        self.set_raw_part((self.raw_part + by).min(1.0 - LEAST_PART + SLACK));
    }

    /// Counts a hit that a smaller protected queue would not have had.
    pub(super) fn narrow(&mut self, by: f64) {
        self.set_raw_part((self.raw_part - by).max(LEAST_PART - SLACK));
    }

    fn set_raw_part(&mut self, raw_part: f64) {
        self.raw_part = raw_part;
        let part = raw_part.clamp(LEAST_PART, 1.0 - LEAST_PART);
        if part != self.part {
            self.part = part;
            self.window = self.weighed();
        }
    }

    /// The part that the protected queue has.
    pub(super) fn protected(&self) -> f64 {
        1.0 - self.part
    }

    /// The weight that the protected queue may have: the rest beside the window.
    pub(super) fn for_protected(&self) -> u64 {
        self.max.saturating_sub(self.window)
    }

    /// The window's part of the maximum: at least 1, and so for the protected queue if there can be
    /// two entries.
    pub(super) fn weighed(&self) -> u64 {
        // Adding 0.5 and casting rounds to the nearest: `f64::round` would be a function call on
        // baseline x86-64.
        let most = self.max.saturating_sub(1).max(1);
        ((self.max as f64 * self.part + 0.5) as u64).clamp(1, most)
    }
}

#[cfg(test)]
mod tests;
