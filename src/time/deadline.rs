//! The arithmetic of deadlines: points in cache time, compared across the wrap (time 1), made so
//! that they stay comparable (time 2).
//!
//! Cost: a few instructions for each function here; none locks, allocates or panics (time 3).

use std::time::Duration;

/// The deadline of an entry that never expires.
///
/// An arbitrary odd value, since a clock can show 0 and `u64::MAX`. No deadline that is made here
/// falls on it by chance: [`deadline_after`] steps over it.
pub(crate) const NEVER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The longest lifetime, 2^62 ns (146 years). A longer one is cut to it, see time 2.
pub(crate) const MAX_LIFETIME_NANOS: u64 = 1 << 62;

/// Whether an entry with this deadline is expired: at exactly its deadline it is.
#[inline]
pub(crate) fn is_due(now: u64, deadline: u64) -> bool {
    deadline != NEVER && has_come(now, deadline)
}

/// Whether a moment does not lie after `now`.
#[inline]
pub(crate) fn has_come(now: u64, moment: u64) -> bool {
    now.wrapping_sub(moment) as i64 >= 0
}

/// The time from `since` to `now`; zero if the clock ran backwards in between.
#[inline]
pub(crate) fn elapsed(now: u64, since: u64) -> u64 {
    let passed = now.wrapping_sub(since);
    if passed as i64 >= 0 { passed } else { 0 }
}

/// The deadline of a lifetime that starts at `now`; it is not [`NEVER`]. A lifetime above
/// [`MAX_LIFETIME_NANOS`] is cut to it.
#[inline]
pub(crate) fn deadline_after(now: u64, lifetime: Duration) -> u64 {
    let deadline = now.wrapping_add(saturating_nanos(lifetime).min(MAX_LIFETIME_NANOS));
    // A point that would fall on `NEVER` moves 1 ns earlier: a lifetime of zero is due at once.
    deadline - u64::from(deadline == NEVER)
}

/// The deadline of a lifetime that starts at `now`; `None` lasts for ever.
#[inline]
pub(crate) fn deadline_in(now: u64, lifetime: Option<Duration>) -> u64 {
    match lifetime {
        Some(lifetime) => deadline_after(now, lifetime),
        None => NEVER,
    }
}

/// The time of a write, which is not [`NEVER`]: that would say that it is not known.
#[inline]
pub(crate) fn of_write(now: u64) -> u64 {
    now + u64::from(now == NEVER)
}

/// The time left until the deadline: `None` if it is [`NEVER`], zero if it is due.
#[inline]
pub(crate) fn time_left(now: u64, deadline: u64) -> Option<Duration> {
    if deadline == NEVER {
        return None;
    }
    Some(Duration::from_nanos(elapsed(deadline, now)))
}

/// Whether deadline `a` comes strictly before deadline `b`, seen from `now`. [`NEVER`] comes last.
#[inline]
pub(crate) fn is_before(now: u64, a: u64, b: u64) -> bool {
    let from_now = |moment: u64| moment.wrapping_sub(now) as i64;
    a != NEVER && (b == NEVER || from_now(a) < from_now(b))
}

/// Whether an entry whose deadline moves from `from` to `to` may stay in its bucket of the wheel,
/// as one that a read extends: the deadline moves later, or stays.
#[inline]
pub(crate) fn keeps_bucket(from: u64, to: u64) -> bool {
    if from == NEVER || to == NEVER {
        from == to
    } else {
        has_come(to, from)
    }
}

/// The earlier of two deadlines, seen from `now`. [`NEVER`] comes last.
#[inline]
pub(crate) fn earlier(now: u64, a: u64, b: u64) -> u64 {
    if is_before(now, b, a) { b } else { a }
}

/// The earlier of two moments, either of which may be missing. They lie less than 2^63 ns from each
/// other.
pub(crate) fn earliest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(earlier(a, a, b)),
        _ => a.or(b),
    }
}

/// The duration in nanoseconds, at most `u64::MAX`.
#[inline]
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    // In 64 bits: `as_nanos` calculates in 128, which takes longer on each read that extends.
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests;
