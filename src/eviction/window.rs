//! How much of the cache the window gets, against the core.
//!
//! # How it works
//!
//! Both sides are asked what they would gain or lose if the border moved. A key that comes back
//! from its ghost would have been a hit in a window larger by what was evicted since, its *depth*:
//! it speaks for the window. A hit in the core would have been a miss if the core were smaller by
//! what is older than the node: that speaks for the core. A hit that would take `n` times as much
//! space as another is worth an `n`th of it, so each votes by the inverse of its depth; all hits
//! nearer than a twentieth of the cache count the same. The border rests where the votes balance,
//! and since far hits vote too, a gain that begins only beyond a gap is found.
//!
//! This is ARC's adaptation, with hits in reach in place of the ghosts of the other side, and with
//! distances.
//!
//! At the lower and upper bound the account runs on for a tenth of the cache: a short burst against
//! a long trend moves nothing. Without this a loop a little longer than the cache, whose hits and
//! misses come in turns, tips it into LRU.
//!
//! # Invariants
//!
//! 1. `BOUND - SLACK <= account <= 1 - BOUND + SLACK`.
//! 2. `part` is the account cut to the bounds, and `window` that part of `max`: worked out when one
//!    of them changes, since it is asked for several times whenever an entry comes or goes.

/// The window keeps at least this part of the cache, and so does the core.
const BOUND: f64 = 0.01;
const SLACK: f64 = 0.1;

#[derive(Debug)]
pub(super) struct WindowSizer {
    account: f64,
    /// The part that the window has.
    part: f64,
    max: u64,
    window: u64,
}

impl WindowSizer {
    pub(super) fn new(max: u64) -> Self {
        let mut share = Self {
            account: BOUND,
            part: BOUND,
            max,
            window: 0,
        };
        share.set_max(max);
        share
    }

    pub(super) fn set_max(&mut self, max: u64) {
        self.max = max;
        self.window = self.weighed();
    }

    /// A hit that a larger window would have had. `by`: the vote, in parts of the cache.
    pub(super) fn widen(&mut self, by: f64) {
        self.account_for((self.account + by).min(1.0 - BOUND + SLACK));
    }

    /// A hit that a smaller core would not have had.
    pub(super) fn narrow(&mut self, by: f64) {
        self.account_for((self.account - by).max(BOUND - SLACK));
    }

    fn account_for(&mut self, account: f64) {
        self.account = account;
        let part = account.clamp(BOUND, 1.0 - BOUND);
        if part != self.part {
            self.part = part;
            self.window = self.weighed();
        }
    }

    /// The part that the core has.
    pub(super) fn core(&self) -> f64 {
        1.0 - self.part
    }

    /// The weight that the core may have: what the window leaves.
    pub(super) fn for_core(&self) -> u64 {
        self.max.saturating_sub(self.window)
    }

    /// The window's part of the maximum, at least 1.
    fn weighed(&self) -> u64 {
        // Rounds by the cast: `round` is a call on processors of the baseline.
        ((self.max as f64 * self.part + 0.5) as u64).clamp(1, self.max.max(1))
    }

    /// Asserts share 1 and 2.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self) {
        assert!((BOUND - SLACK..=1.0 - BOUND + SLACK).contains(&self.account));
        assert_eq!(self.part, self.account.clamp(BOUND, 1.0 - BOUND));
        assert_eq!(self.window, self.weighed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_by_a_node_at_a_time_between_its_bounds() {
        let mut share = WindowSizer::new(1000);
        assert_eq!(share.window, 10);
        for _ in 0..40 {
            share.widen(0.001);
        }
        assert_eq!(share.window, 50);
        for _ in 0..2000 {
            share.widen(0.001);
            share.check_invariants();
        }
        assert_eq!(share.window, 990);
        for _ in 0..3000 {
            share.narrow(0.001);
            share.check_invariants();
        }
        assert_eq!(share.window, 10);
    }

    #[test]
    fn a_burst_against_a_long_trend_moves_nothing() {
        let mut share = WindowSizer::new(1000);
        for _ in 0..100 {
            for _ in 0..990 {
                share.narrow(0.001);
            }
            for _ in 0..21 {
                share.widen(0.001);
                assert_eq!(share.window, 10);
            }
        }
    }

    #[test]
    fn any_maximum_has_a_window() {
        for (max, window, core) in [(0, 1, 0), (1, 1, 0), (2, 1, 1), (99, 1, 98), (200, 2, 198)] {
            let share = WindowSizer::new(max);
            assert_eq!((share.window, share.for_core()), (window, core));
        }
        assert!(WindowSizer::new(u64::MAX).window > u64::MAX / 101);
    }

    #[test]
    fn another_maximum_keeps_the_part() {
        let mut share = WindowSizer::new(1000);
        share.widen(0.24);
        assert_eq!((share.window, share.for_core()), (250, 750));
        share.set_max(100);
        share.check_invariants();
        assert_eq!((share.window, share.for_core()), (25, 75));
    }
}
