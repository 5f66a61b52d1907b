//! Time: the clock of a cache, which is the program's monotonic clock or a source that the program
//! supplies.
//!
//! *Cache time* is a `u64` count of nanoseconds that starts at 0 when the cache is built and wraps
//! past `u64::MAX`. On the default clock it is the time of `Instant::now()`, counted from the
//! *base*, the instant at which the cache was built. A [`Ticker`] supplies readings of any origin;
//! [`Clock`] subtracts the reading that it took at construction. So no other module knows about
//! origins. A *deadline* is a point in cache time, or [`NEVER`].
//!
//! A policy is told the base plus the reading. So on the default clock it is told an instant of
//! `Instant::now()`, or one up to 33 µs earlier ([`counter`]). The documentation of the public
//! items promises 50 µs.
//!
//! Invariants, which other modules cite as "time 1" and so on:
//!
//! 1. A point `t` lies in the past of `now` when `now.wrapping_sub(t) as i64 >= 0`. Plain `<` on
//!    cache time is a bug: it breaks at the wrap and when a clock runs backwards past its origin.
//! 2. A deadline made here is [`NEVER`], or lies at most [`MAX_LIFETIME_NANOS`] ahead of the `now`
//!    it was made from. Half of the signed range therefore stays free, so the clock may run
//!    backwards by as much before a comparison means the wrong thing.
//! 3. No function that compares times takes a lock, allocates or panics. No function that reads or
//!    converts them allocates or waits for a lock; only a [`Ticker`] of the program's can panic.
//! 4. On the default clock, a reading by [`Clock::now`] is not before one that was taken earlier,
//!    by any thread. A reading by [`Clock::now_beside`] is not before an earlier one of its thread.
//!
//! | file | content |
//! |------|---------|
//! | [`ticker`] | sources of time that a program supplies |
//! | `quanta` | the clocks of the crate quanta as such sources, with the feature of that name |
//! | [`deadline`] | the arithmetic of deadlines |
//! | [`coarse`] | the coarse clock that a look-up asks first |
//! | [`counter`] | the program's monotonic clock by the processor's counter |

mod coarse;
mod counter;
mod deadline;
#[cfg(feature = "quanta")]
mod quanta;
mod ticker;

/// What the anchor is made of. A model compiles the anchor with other parts
/// (`models/loom/anchor.rs`). Of the standard library also under loom: the other models run on
/// tickers.
mod anchor_parts {
    pub(super) use super::saturating_nanos;
    pub(super) use crate::atomic64::{AtomicI64, AtomicU64};
    pub(super) use std::sync::atomic::AtomicBool;
}

use coarse::{Coarse, MACHINE};
use counter::PROCESS;
use std::time::{Duration, Instant, SystemTime};

#[cfg(feature = "quanta")]
pub use self::quanta::QuantaRecent;
pub(crate) use deadline::{
    MAX_LIFETIME_NANOS, NEVER, deadline_after, deadline_in, earlier, earliest, elapsed, has_come,
    is_before, is_due, keeps_bucket, of_write, saturating_nanos, time_left,
};
pub use ticker::{ManualTicker, Ticker, ticker_fn};

/// The shortest lifetime that may count from up to [`SLACK`](coarse::SLACK) after the read.
pub(crate) const COARSE_FROM: Duration = Duration::from_secs(10);

/// A read that counts from a coarse reading leaves a deadline that it would move by less than this.
/// The deadline then counts from the coarse reading plus half of the slack, or later. That is not
/// before the read, as long as the clock lags by no more (coarse 2).
pub(crate) const GRAIN: u64 = coarse::SLACK / 2;

/// With a trusted coarse clock, a read leaves a deadline that a shorter idle limit would move by
/// less than this, and than an eighth of the limit. So many threads that read one key rarely write
/// to it. With the lag of the reading, that is within the 50 µs of the docs.
pub(crate) const EXACT_GRAIN: u64 = 1 << 12;

/// How far apart two readings may lie that belong to the same moment: 1 ms.
const ONE_MOMENT: Duration = Duration::from_millis(1);
/// How often readings are tried again that lie further apart.
const MOMENT_TRIES: u32 = 64;

/// Reads the clock `inner` between two readings of `outer`, and returns the three in their order.
/// Tries again if those of `outer` lie apart: the thread, or the whole process, was suspended
/// between them. What is derived from two such readings would be wrong for good by as long as the
/// suspension was. After [`MOMENT_TRIES`] they may lie apart by more than [`ONE_MOMENT`].
pub(crate) fn at_one_moment<O: Copy, I>(
    mut outer: impl FnMut() -> O,
    mut inner: impl FnMut() -> I,
    passed: impl Fn(O, O) -> Duration,
) -> (O, I, O) {
    let mut tries = 0;
    loop {
        let readings = (outer(), inner(), outer());
        tries += 1;
        if passed(readings.0, readings.2) <= ONE_MOMENT || tries == MOMENT_TRIES {
            return readings;
        }
    }
}

/// The time that passed between two instants.
pub(crate) fn instants_apart(from: Instant, to: Instant) -> Duration {
    to.saturating_duration_since(from)
}

/// The clock of one cache: readings in cache time.
///
/// | reading | for | against the true time |
/// |---|---|---|
/// | [`now`](Self::now) | passes, and all without a deadline at hand | up to 33 µs behind, never ahead |
/// | [`now_beside`](Self::now_beside) | a write, and a read whose policy is told the time | as `now`; but it may be taken before the loads in front of it |
/// | [`upper_bound`](Self::upper_bound) | the fast path of a read | never behind; up to 100 ms ahead |
/// | [`now_to_judge`](Self::now_to_judge) | whether an entry is due | as `upper_bound` if by that it is live; else as `now` |
/// | [`exactly`](Self::exactly) | a lifetime that counts from a moment of `now_to_judge` | as `now` |
/// | [`now_and_system_time`](Self::now_and_system_time) | a snapshot | as `now` |
// The fields have this order because a hit reads the first one, which then stands beside the other
// memory that a hit reads.
#[repr(C)]
pub(crate) struct Clock {
    /// The coarse clock; on a ticker, or where it cannot be used, one that no look-up asks.
    coarse: Coarse,
    /// The program's ticker. `None` for the monotonic clock, which costs no indirect call.
    ticker: Option<Box<dyn Ticker>>,
    /// What the ticker, or the monotonic clock, showed at cache time 0.
    origin: u64,
    /// The instant at cache time 0.
    base: Instant,
}

impl Clock {
    /// The default clock: the program's monotonic clock.
    pub(crate) fn process() -> Self {
        #[cfg(test)]
        if let Some(clocks) = tests::current() {
            return clocks.clock();
        }
        let start = PROCESS.start();
        let (base, coarse) = Coarse::start(&MACHINE);
        Self {
            coarse,
            ticker: None,
            origin: saturating_nanos(base - start),
            base,
        }
    }

    /// A clock that shows what the ticker shows.
    pub(crate) fn custom(ticker: Box<dyn Ticker>) -> Self {
        let (base, origin, _) = at_one_moment(Instant::now, || ticker.nanos(), instants_apart);
        Self {
            coarse: Coarse::unused(),
            ticker: Some(ticker),
            origin,
            base,
        }
    }

    /// The instant at cache time 0.
    #[inline]
    pub(crate) fn base(&self) -> Instant {
        self.base
    }

    /// Now, in cache time.
    // Out of line: it has many callers.
    #[inline(never)]
    pub(crate) fn now(&self) -> u64 {
        self.read(true)
    }

    /// Now, and the moment by the system's clock. The cache time is read first: where a suspension
    /// in between cannot be told from time that passes, the system's clock is late and never early.
    pub(crate) fn now_and_system_time(&self) -> (u64, SystemTime) {
        let (now, system_time, _) = at_one_moment(
            || self.now(),
            SystemTime::now,
            |from, to| Duration::from_nanos(elapsed(to, from)),
        );
        (now, system_time)
    }

    /// Now, for a call that has found an entry with this deadline, or none ([`NEVER`]). Cheaper
    /// than [`now`](Self::now) if the deadline is not near.
    ///
    /// The reading may be out of order with the load of the deadline. So it decides only about a
    /// deadline that is later by far more than a processor runs ahead.
    #[inline(never)]
    pub(crate) fn now_beside(&self, deadline: u64) -> u64 {
        /// 1 ms.
        const NEAR: u64 = 1 << 20;
        let now = self.read(false);
        let is_near = self.ticker.is_none() && is_due(now.wrapping_add(NEAR), deadline);
        if is_near { self.now() } else { now }
    }

    #[inline]
    fn read(&self, after_loads: bool) -> u64 {
        if let Some(ticker) = &self.ticker {
            let now = ticker.nanos().wrapping_sub(self.origin);
            // The clocks of a test are a ticker and a coarse one.
            #[cfg(test)]
            self.coarse.check(now);
            return now;
        }
        let now = PROCESS.now(after_loads).wrapping_sub(self.origin);
        self.coarse.check(now);
        now
    }

    /// A moment by which to judge a deadline. If the deadline is not due at this moment, the entry
    /// is live for certain, and the moment may lie up to [`SLACK`](coarse::SLACK) after now. Else
    /// the moment is now.
    #[inline]
    pub(crate) fn now_to_judge(&self, deadline: u64) -> u64 {
        match self.upper_bound() {
            Some(bound) if !is_due(bound, deadline) => bound,
            _ => self.now(),
        }
    }

    /// Whether a moment has passed: by the coarse clock, which is never ahead, unless the moment is
    /// near. `bound` is an [upper bound](Self::upper_bound) that was just read; without a coarse
    /// clock, it is exact.
    #[inline(never)]
    pub(crate) fn has_passed(&self, moment: u64, bound: Option<u64>) -> bool {
        /// Readings of `now` are behind by less, and are to agree.
        const BEHIND: u64 = 50_000;
        let Some(bound) = bound.or_else(|| self.upper_bound()) else {
            return is_due(self.now(), moment);
        };
        if !is_due(bound, moment) {
            return false;
        }
        !self.coarse.is_used()
            || is_due(bound.wrapping_sub(coarse::SLACK + BEHIND), moment)
            || is_due(self.now(), moment)
    }

    /// The pre-check: a moment that is not before now.
    #[inline]
    pub(crate) fn upper_bound(&self) -> Option<u64> {
        self.coarse.upper_bound()
    }

    /// Whether [`upper_bound`](Self::upper_bound) answers.
    #[inline]
    pub(crate) fn is_coarse(&self) -> bool {
        self.coarse.is_trusted()
    }

    /// A moment that an entry was [judged](Self::now_to_judge) at, as an exact reading. Now, if it
    /// may be after now.
    #[inline]
    pub(crate) fn exactly(&self, judged_at: u64) -> u64 {
        if self.coarse.is_used() {
            self.now()
        } else {
            judged_at
        }
    }

    /// The deadline at this instant, as a policy is told instants. If it has come at `now`, the
    /// deadline is `now`.
    pub(crate) fn deadline_at(&self, now: u64, end: Instant) -> u64 {
        deadline_after(now, end.saturating_duration_since(self.instant(now)))
    }

    /// The time left from now until a deadline: `None` if it never comes, zero if it is due.
    pub(crate) fn time_until(&self, deadline: u64) -> Option<Duration> {
        if deadline == NEVER {
            return None;
        }
        time_left(self.now(), deadline)
    }

    /// A point of cache time as a policy is told it. If the platform cannot represent it, it is the
    /// base.
    #[inline]
    pub(crate) fn instant(&self, now: u64) -> Instant {
        // Signed, since a ticker that ran backwards shows a time before its origin.
        let distance = Duration::from_nanos((now as i64).unsigned_abs());
        let instant = if now as i64 >= 0 {
            self.base.checked_add(distance)
        } else {
            self.base.checked_sub(distance)
        };
        instant.unwrap_or(self.base)
    }
}

#[cfg(test)]
pub(crate) mod tests;
