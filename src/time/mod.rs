//! Time: the clock of a cache, which reads the machine's counter or a source that the program
//! supplies.
//!
//! *Cache time* is a `u64` count of nanoseconds that starts at 0 when the cache is built and wraps
//! past `u64::MAX`. A [`Ticker`] supplies readings of any origin. [`Clock`] subtracts the reading
//! that it took at construction, so no other module knows about origins. A *deadline* is a point in
//! cache time, or [`NEVER`].
//!
//! *The program's time* is what `Instant::now()` shows. A *policy instant* is the point of the
//! program's time that a policy is told for a reading of the clock. On the default clock, cache
//! time is the counter at its nominal rate, and a [`View`] converts between the two times. So a
//! look-up, which compares two points of cache time, needs no conversion. On a ticker, cache time
//! is the program's time.
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
//! 4. Policy instants never go back in one thread, as long as the counter does not. `segment` holds
//!    the proof.
//! 5. Policy instants agree with the program's time, and durations are converted at its rate,
//!    within the bounds that `discipline` states.
//!
//! | file | content |
//! |------|---------|
//! | [`ticker`] | sources of time that a program supplies |
//! | [`deadline`] | the arithmetic of deadlines |
//! | [`counter`] | the default clock |
//! | [`view`] | the conversion between cache time and the program's time |
//! | [`segment`] | the current conversion, published to all threads |
//! | [`discipline`] | how it is kept in step with `Instant::now()` |

mod counter;
mod deadline;
mod discipline;
pub(crate) mod segment;
mod ticker;
pub(crate) mod view;

use counter::{Counter, Direct};
use discipline::Discipline;
use std::time::{Duration, Instant};

pub(crate) use deadline::{
    MAX_LIFETIME_NANOS, NEVER, earlier, elapsed, is_before, is_due, is_past, saturating_nanos,
};
pub use ticker::{ManualTicker, Ticker};
pub(crate) use view::View;

/// The clock of one cache: readings in cache time.
// The fields have this order because a hit reads the first one, which then stands beside the other
// memory that a hit reads.
#[repr(C)]
pub(crate) struct Clock {
    /// The counter where it can be read directly.
    direct: Direct,
    source: Source,
    /// The instant from which policy instants are counted: for a ticker that of construction.
    base: Instant,
    /// Counts the calls of [`now_in_line`](Self::now_in_line).
    #[cfg(any(fuzzing, wheelhouse_shuttle))]
    asked: std::sync::atomic::AtomicUsize,
}

/// An early reading of the clock, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// One register: 0 stands for none. So a reading of 0 is taken again.
pub(crate) struct Ahead(u64);

impl Ahead {
    pub(crate) const NONE: Self = Self(0);

    /// The reading, or one that is taken now.
    #[inline(always)]
    pub(crate) fn or_read(self, clock: &Clock) -> u64 {
        if self == Self::NONE {
            clock.now()
        } else {
            self.0
        }
    }

    /// The same for a caller that has tried [`Clock::read_ahead`]: another try would be no use.
    #[inline(always)]
    pub(crate) fn or_call(self, clock: &Clock) -> u64 {
        if self == Self::NONE {
            clock.now_indirectly()
        } else {
            self.0
        }
    }

    /// As [`or_read`](Self::or_read), if that takes no call.
    #[inline(always)]
    pub(crate) fn or_read_in_line(self, clock: &Clock) -> Option<u64> {
        if self == Self::NONE {
            clock.now_in_line()
        } else {
            Some(self.0)
        }
    }
}

/// An enum rather than `Box<dyn Ticker>` for both, so that the default costs no indirect call.
enum Source {
    Counter {
        counter: Counter,
        discipline: &'static Discipline,
        /// The reading of the discipline's counter at cache time 0.
        origin: u64,
    },
    /// A ticker, and what it showed at construction.
    Custom(Box<dyn Ticker>, u64),
}

impl Clock {
    /// The default clock: the processor's time stamp counter where it runs at a constant rate, else
    /// the monotonic clock of the operating system.
    ///
    /// The first call in a process measures the rate of the counter against the system's clock,
    /// which keeps the thread busy ([`Ticker`] says how long). Later calls, from any cache, use the
    /// rate as measured.
    pub(crate) fn tsc() -> Self {
        let (counter, discipline, origin) = Counter::start();
        Self {
            direct: counter.direct(),
            base: discipline.base(),
            source: Source::Counter {
                counter,
                discipline,
                origin,
            },
            #[cfg(any(fuzzing, wheelhouse_shuttle))]
            asked: Default::default(),
        }
    }

    /// A clock that shows what the ticker shows.
    pub(crate) fn custom(ticker: Box<dyn Ticker>) -> Self {
        let origin = ticker.nanos();
        Self {
            direct: Direct::NONE,
            source: Source::Custom(ticker, origin),
            base: Instant::now(),
            #[cfg(any(fuzzing, wheelhouse_shuttle))]
            asked: Default::default(),
        }
    }

    /// Now, in cache time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // One branch instead of two: which source it is, and whether it can be read directly.
        self.direct.now().unwrap_or_else(|| self.now_indirectly())
    }

    /// [`now`](Self::now), if that takes no call.
    #[inline]
    pub(crate) fn now_in_line(&self) -> Option<u64> {
        let direct = self.direct.now();
        // Fuzzers and models set the time by a call. Every other call answers `None`, so that they
        // take both paths of a look-up.
        #[cfg(any(fuzzing, wheelhouse_shuttle))]
        let direct = direct.or_else(|| {
            let asked = self
                .asked
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (asked % 2 == 1).then(|| self.now_indirectly())
        });
        direct
    }

    /// Whether a reading takes no call.
    pub(crate) fn is_direct(&self) -> bool {
        // Fuzzers and models take both ways.
        cfg!(any(fuzzing, wheelhouse_shuttle)) || self.direct.is_clock()
    }

    /// [`now`](Self::now), if that takes no call, for a place further on.
    #[inline(always)]
    pub(crate) fn read_ahead(&self) -> Ahead {
        Ahead(self.now_in_line().unwrap_or(0))
    }

    // Out of line: each look-up has a copy of `now`.
    #[inline(never)]
    fn now_indirectly(&self) -> u64 {
        match &self.source {
            Source::Counter { counter, .. } => counter.now(),
            Source::Custom(ticker, origin) => ticker.nanos().wrapping_sub(*origin),
        }
    }

    /// The conversion between cache time and the program's time, for a reading that the caller has
    /// taken just before. The caller uses it for one operation and does not keep it.
    ///
    /// The reading comes first: that order is what keeps policy instants from going back in a
    /// thread.
    #[inline]
    pub(crate) fn view(&self, now: u64) -> View {
        self.view_at_once(now)
            .unwrap_or_else(|| self.view_after_correction(now))
    }

    /// Calls `convert` with the [`view`](Self::view): for a caller that otherwise calls no
    /// function, and so need not save registers.
    #[inline(always)]
    pub(crate) fn with_view<R>(&self, now: u64, convert: impl FnOnce(View) -> R) -> R {
        match self.view_at_once(now) {
            Some(view) => convert(view),
            None => self.with_view_late(now, convert),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_view_late<R>(&self, now: u64, convert: impl FnOnce(View) -> R) -> R {
        convert(self.view(now))
    }

    /// The view, if no correction of the default clock is due or under way.
    #[inline(always)]
    fn view_at_once(&self, now: u64) -> Option<View> {
        match &self.source {
            Source::Counter {
                discipline, origin, ..
            } => discipline.view_at_once(now, *origin),
            Source::Custom(..) => Some(View::identity(self.base, now)),
        }
    }

    #[cold]
    #[inline(never)]
    fn view_after_correction(&self, now: u64) -> View {
        match &self.source {
            Source::Counter {
                discipline, origin, ..
            } => discipline.view_after_correction(now, *origin),
            Source::Custom(..) => View::identity(self.base, now),
        }
    }

    /// The time left from now until a deadline: `None` if it never comes, zero if it is due.
    pub(crate) fn time_until(&self, deadline: u64) -> Option<Duration> {
        if deadline == NEVER {
            return None;
        }
        let now = self.now();
        self.view(now).time_left(now, deadline)
    }

    /// The point `now` of cache time, which was read just before, as a policy is told it.
    #[inline]
    pub(crate) fn instant(&self, now: u64) -> Instant {
        self.view(now).policy_instant()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_custom_clock_starts_at_zero_and_crosses_the_wrap() {
        let ticker = ManualTicker::starting_at(u64::MAX - 1);
        let clock = Clock::custom(Box::new(ticker.clone()));
        assert_eq!(clock.now(), 0);
        ticker.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), 5 * SECOND);
    }

    #[test]
    fn instants_differ_by_cache_time_on_both_sides_of_the_origin() {
        let clock = Clock::custom(Box::new(ManualTicker::new()));
        let later = clock.instant(3 * SECOND);
        assert_eq!(later - clock.instant(SECOND), Duration::from_secs(2));
        assert_eq!(
            later - clock.instant(SECOND.wrapping_neg()),
            Duration::from_secs(4)
        );
        // However far, it answers.
        clock.instant(i64::MAX as u64);
        clock.instant(1 << 63);
    }

    #[test]
    fn the_default_clock_runs_forward_at_the_rate_of_the_system() {
        let clock = Clock::tsc();
        let (from, started) = (clock.now(), Instant::now());
        let mut last = from;
        while started.elapsed() < Duration::from_millis(20) {
            let now = clock.now();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        let shown = Duration::from_nanos(clock.now() - from);
        assert!(
            shown >= Duration::from_millis(19),
            "{shown:?} shown for 20 ms"
        );
        assert!(
            shown <= started.elapsed() * 2,
            "{shown:?} shown for {:?}",
            started.elapsed()
        );
    }
}
