//! The conversion between cache time and the program's time, for one operation on a cache.
//!
//! Cache time is what the clock of the cache counts. The program's time is what `Instant::now()`
//! shows. The two run at slightly different rates on the default clock, and are the same on a
//! custom ticker.
//!
//! A [`View`] belongs to one reading of the clock. It knows the instant that a policy is told for
//! this reading, and the rate at which durations near it are converted.

use super::{MAX_LIFETIME_NANOS, NEVER, deadline, is_past};
use std::time::{Duration, Instant};

/// A rate close to 1, as its distance from 1 in units of 2^-64. Zero is exactly 1, so a custom
/// ticker is converted without rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate(i64);

/// One consistent snapshot of the conversion. See [`Clock::view`](super::Clock::view).
///
/// Its methods take points in cache time that lie within 2^62 ns of the reading it belongs to.
/// None of them locks, allocates or panics (time 3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The instant from which `told` counts.
    pub(super) base: Instant,
    /// The reading that this view belongs to.
    pub(super) now: u64,
    /// The program's time at that reading, in nanoseconds since `base`.
    pub(super) told: i64,
    /// The program's nanoseconds in a nanosecond of cache time.
    pub(super) rate: Rate,
    /// The inverse of `rate`.
    pub(super) pace: Rate,
}

impl Rate {
    pub(crate) const ONE: Self = Self(0);

    /// 1 and 2^-`power`, which is at most a quarter.
    pub(crate) const fn fraction(power: u32) -> Self {
        assert!(power >= 2, "no rate is as far from 1");
        Self(1 << (64 - power))
    }

    /// What was measured over these spans, of which `counter` is not 0; cut to what is
    /// [extreme](Self::is_extreme).
    pub(super) fn measured(program: u64, counter: u64) -> Self {
        let counter = i128::from(counter);
        // Cut to a little over an eighth first, so that it can be shifted.
        let cut = counter / 8 + 1;
        let gained = (i128::from(program) - counter).clamp(-cut, cut);
        let most = i128::from(Self::EXTREME);
        Self(((gained << 64) / counter).clamp(-most, most) as i64)
    }

    /// An eighth: far more than any pair of sound clocks differs by.
    const EXTREME: i64 = 1 << 61;

    /// Whether this is no rate of sound clocks.
    pub(super) fn is_extreme(self) -> bool {
        self.0.abs() >= Self::EXTREME
    }

    /// Whether the two differ by more than `bound` does from 1.
    pub(super) fn differs_from(self, other: Self, bound: Self) -> bool {
        self.0.abs_diff(other.0) > bound.0.unsigned_abs()
    }

    /// The inverse, rounded down: there and back again is no longer than before.
    pub(crate) fn inverse(self) -> Self {
        let distance = i128::from(self.0);
        // 1 / (1 + distance) - 1, of which the numerator fits.
        Self((-distance << 64).div_euclid((1 << 64) + distance) as i64)
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0 as u64
    }

    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Self {
        Self(bits as i64)
    }

    /// `nanos` at this rate, rounded down.
    #[inline]
    pub(crate) fn of(self, nanos: i64) -> i64 {
        nanos.saturating_add(self.gained_in(nanos))
    }

    /// By how much `nanos` at this rate are more than `nanos`, rounded down.
    #[inline]
    fn gained_in(self, nanos: i64) -> i64 {
        // The product fits: a rate is at most an eighth away from 1.
        ((i128::from(nanos) * i128::from(self.0)) >> 64) as i64
    }
}

impl View {
    /// The view of a custom ticker, whose time is the program's.
    #[inline]
    pub(super) fn identity(base: Instant, now: u64) -> Self {
        Self {
            base,
            now,
            // Signed, since a clock that ran backwards shows a time before its origin.
            told: now as i64,
            rate: Rate::ONE,
            pace: Rate::ONE,
        }
    }

    /// A point of cache time as the policy is told it. Differences between two instants of one view
    /// are the time between the two points.
    ///
    /// An instant that the platform cannot represent is replaced by the one at which the clock was
    /// made.
    #[inline]
    pub(crate) fn instant(&self, at: u64) -> Instant {
        let distance = at.wrapping_sub(self.now) as i64;
        let nanos = self.told.saturating_add(self.rate.of(distance));
        let from_base = Duration::from_nanos(nanos.unsigned_abs());
        let instant = if nanos >= 0 {
            self.base.checked_add(from_base)
        } else {
            self.base.checked_sub(from_base)
        };
        instant.unwrap_or(self.base)
    }

    /// The deadline of a lifetime that starts at `now`; `None` lasts for ever.
    #[inline]
    pub(crate) fn deadline_in(&self, now: u64, lifetime: Option<Duration>) -> u64 {
        match lifetime {
            Some(lifetime) => self.deadline_after(now, lifetime),
            None => NEVER,
        }
    }

    /// The deadline of a lifetime that starts at `now`; it is not [`NEVER`]. A lifetime above
    /// [`MAX_LIFETIME_NANOS`] is cut to it.
    #[inline]
    pub(crate) fn deadline_after(&self, now: u64, lifetime: Duration) -> u64 {
        let lifetime = deadline::saturating_nanos(lifetime).min(MAX_LIFETIME_NANOS);
        // No overflow: a pace is at most an eighth away from 1, and this lifetime at most 2^62.
        let lifetime = (lifetime as i64 + self.pace.gained_in(lifetime as i64)) as u64;
        let lifetime = lifetime.min(MAX_LIFETIME_NANOS);
        deadline::deadline_at(now, lifetime)
    }

    /// What is left until the deadline: `None` if it never comes, zero if it is due, and at least
    /// 1 ns otherwise.
    #[inline]
    pub(crate) fn time_left(&self, now: u64, deadline: u64) -> Option<Duration> {
        if deadline == NEVER {
            None
        } else if is_past(now, deadline) {
            Some(Duration::ZERO)
        } else {
            // Rounded up: a thread that sleeps for this long finds the entry due.
            let left = self.rate.of(now.wrapping_sub(deadline) as i64);
            Some(Duration::from_nanos(left.unsigned_abs()))
        }
    }

    /// A distance in cache time as a duration, rounded down.
    #[inline]
    pub(crate) fn span(&self, nanos: u64) -> Duration {
        let shift = (i128::from(nanos) * i128::from(self.rate.0)) >> 64;
        Duration::from_nanos(nanos.saturating_add_signed(shift as i64))
    }
}
