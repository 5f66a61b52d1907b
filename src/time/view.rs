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

/// A rate close to 1, in units of 2^-63. A custom ticker has a rate of exactly 1, which converts
/// without rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(u64);

/// One consistent snapshot of the conversion. See [`Clock::view`](super::Clock::view).
///
/// Its methods take points in cache time that lie within 2^62 ns of the reading it belongs to.
/// None of them locks, allocates or panics (time 3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The instant from which `policy_nanos` counts.
    pub(super) base: Instant,
    /// The program's time at the reading that this view belongs to, in nanoseconds since `base`.
    pub(super) policy_nanos: i64,
    /// The program's nanoseconds in a nanosecond of cache time.
    pub(super) rate: Rate,
    /// The inverse of `rate`.
    pub(super) pace: Rate,
}

impl Rate {
    pub(crate) const ONE: Self = Self(1 << 63);

    /// 1 + 2^-`power`.
    pub(crate) const fn fraction(power: u32) -> Self {
        Self(Self::ONE.0 + (Self::ONE.0 >> power))
    }

    /// The rate of these measured spans; `counter` is not 0. A rate beyond the limits is cut to an
    /// [extreme](Self::is_extreme) one.
    pub(super) fn measured(program: u64, counter: u64) -> Self {
        let rate = (u128::from(program) << 63) / u128::from(counter);
        let (least, most) = (Self::ONE.0 - Self::EXTREME, Self::ONE.0 + Self::EXTREME);
        Self(rate.clamp(u128::from(least), u128::from(most)) as u64)
    }

    /// An eighth: far more than any pair of sound clocks differs by.
    const EXTREME: u64 = Self::ONE.0 >> 3;

    /// Whether this is no rate of sound clocks.
    pub(super) fn is_extreme(self) -> bool {
        self.0.abs_diff(Self::ONE.0) >= Self::EXTREME
    }

    /// Whether the two differ by more than `bound` does from 1.
    pub(super) fn differs_from(self, other: Self, bound: Self) -> bool {
        self.0.abs_diff(other.0) > bound.0.abs_diff(Self::ONE.0)
    }

    /// The inverse, rounded down: there and back again is no longer than before.
    pub(crate) fn inverse(self) -> Self {
        Self(((1 << 126) / u128::from(self.0)) as u64)
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// `nanos`, which are below 2^63, at this rate, rounded down.
    #[inline]
    pub(crate) fn of(self, nanos: u64) -> u64 {
        (self.doubled(nanos) >> 64) as u64
    }

    /// The same, rounded up.
    #[inline]
    fn of_up(self, nanos: u64) -> u64 {
        let product = self.doubled(nanos);
        (product >> 64) as u64 + u64::from(product as u64 != 0)
    }

    /// The same of a span that may be negative.
    #[inline]
    pub(super) fn of_signed(self, nanos: i64) -> i64 {
        if nanos >= 0 {
            self.of(nanos as u64) as i64
        } else {
            (self.of_up(nanos.unsigned_abs()) as i64).wrapping_neg()
        }
    }

    /// The product in units of 2^-64, so that its upper half is whole nanoseconds: a multiplication
    /// leaves the two halves in registers of their own.
    #[inline]
    fn doubled(self, nanos: u64) -> u128 {
        u128::from(nanos << 1) * u128::from(self.0)
    }
}

impl View {
    /// The view of a custom ticker, whose time is the program's.
    #[inline]
    pub(super) fn identity(base: Instant, now: u64) -> Self {
        Self {
            base,
            // Signed, since a clock that ran backwards shows a time before its origin.
            policy_nanos: now as i64,
            rate: Rate::ONE,
            pace: Rate::ONE,
        }
    }

    /// The instant that a policy is told for the reading that this view belongs to. If the platform
    /// cannot represent it, it is the one at which the clock was made.
    #[inline]
    pub(crate) fn policy_instant(&self) -> Instant {
        let distance = Duration::from_nanos(self.policy_nanos.unsigned_abs());
        let instant = if self.policy_nanos >= 0 {
            self.base.checked_add(distance)
        } else {
            self.base.checked_sub(distance)
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
        // Nearly all lifetimes are shorter than this. Then no product here exceeds its type or the
        // maximum.
        const ORDINARY_SECONDS: u64 = 1 << 31;
        let lifetime = if lifetime.as_secs() < ORDINARY_SECONDS {
            self.pace.of(deadline::saturating_nanos(lifetime))
        } else {
            let most = deadline::saturating_nanos(lifetime).min(MAX_LIFETIME_NANOS);
            self.pace.of(most).min(MAX_LIFETIME_NANOS)
        };
        deadline::deadline_at(now, lifetime)
    }

    /// The time left until the deadline: `None` if it never comes, zero if it is due, and at least
    /// 1 ns otherwise.
    #[inline]
    pub(crate) fn time_left(&self, now: u64, deadline: u64) -> Option<Duration> {
        if deadline == NEVER {
            None
        } else if is_past(now, deadline) {
            Some(Duration::ZERO)
        } else {
            // Rounded up: a thread that sleeps for this long finds the entry due.
            Some(Duration::from_nanos(
                self.rate.of_up(deadline.wrapping_sub(now)),
            ))
        }
    }

    /// A distance in cache time as a duration, rounded down.
    #[inline]
    pub(crate) fn span(&self, nanos: u64) -> Duration {
        Duration::from_nanos(self.rate.of(nanos))
    }
}
