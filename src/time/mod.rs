//! Time: where it comes from, and the arithmetic of deadlines.
//!
//! *Cache time* is a `u64` count of nanoseconds that starts at 0 when the cache is built and wraps past `u64::MAX`. A
//! [`Ticker`] supplies readings of any origin; [`Clock`] subtracts the reading it took at construction, so nothing else
//! in the crate knows about origins. A *deadline* is a point in cache time, or [`NEVER`].
//!
//! Invariants, which other modules cite as "time 1" and so on:
//!
//! 1. A point `t` lies in the past of `now` when `now.wrapping_sub(t) as i64 >= 0`. Plain `<` on cache time is a bug:
//!    it breaks at the wrap and when a clock runs backwards past its origin.
//! 2. A deadline made here is [`NEVER`], or lies at most [`MAX_LIFE_NANOS`] (and the 1 ns by which it may step over
//!    `NEVER`) ahead of the `now` it was made from. Half of the signed range therefore stays free, so the clock may run
//!    backwards by 146 years before a comparison means the wrong thing.
//! 3. No function that reads or compares times takes a lock, allocates or panics; only a caller's [`Ticker`] can.
//!
//! The default clock is [`counter`]'s; [`coarse`] has a time for look-ups that lags behind it.

pub(crate) mod coarse;
mod counter;

use coarse::Coarse;
use counter::{Counter, Direct};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A source of time, for caches that should not use the machine's clock.
///
/// Give one to the builder with `ticker`. Every lifetime of that cache is then measured by it, and the cache no longer
/// starts a background thread by default: the machine cannot know when a foreign clock reaches a deadline.
///
/// Only differences between readings matter, and only differences below 2^63 ns (292 years) mean anything. So the
/// origin is free, and readings may wrap past [`u64::MAX`] to 0. A reading lower than an earlier one is taken as time
/// that ran backwards: nothing is removed early because of it, and nothing panics. To stop time, return the same reading.
///
/// # Without a ticker
///
/// A cache that is given none reads the processor's time stamp counter where it runs at a constant rate, and the
/// monotonic clock of the operating system elsewhere. What to know about the former:
///
/// - The first cache of a process measures the rate of the counter. That keeps the building thread busy, usually for
///   less than a millisecond, at worst for 200 ms.
/// - The rate is good to some ten parts per million: against a wall clock a deadline one day away may be about a second
///   off.
/// - Whether time passes while the machine is suspended depends on its hardware.
///
/// # Examples
///
/// A clock in whole milliseconds that an event loop updates once a turn:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::time::Duration;
/// use wheelhouse::{Cache, Ticker};
///
/// struct LoopTime(AtomicU64);
///
/// impl Ticker for LoopTime {
///     fn nanos(&self) -> u64 {
///         self.0.load(Relaxed) * 1_000_000
///     }
/// }
///
/// let time = Arc::new(LoopTime(AtomicU64::new(0)));
/// let cache: Cache<&str, u32> = Cache::builder()
///     .ticker(Arc::clone(&time))
///     .time_to_live(Duration::from_millis(20))
///     .build();
///
/// cache.insert("a", 1);
/// time.0.store(19, Relaxed);
/// assert_eq!(cache.get("a"), Some(1));
/// time.0.store(20, Relaxed);
/// assert_eq!(cache.get("a"), None);
/// ```
pub trait Ticker: Send + Sync + 'static {
    /// Returns the time in nanoseconds since an arbitrary fixed origin.
    ///
    /// Called on whichever thread uses the cache, often and concurrently. It must not call the cache it belongs to,
    /// since some readings are taken while the cache holds a lock.
    ///
    /// # Panics
    ///
    /// An implementation should not panic. If it does, the panic reaches whoever called the cache, or ends a background run, which is
    /// tried again after a second. Nothing is lost by it.
    ///
    /// # Cost
    ///
    /// Each operation on a cache with deadlines waits for this call, so it should take nanoseconds and never block.
    fn nanos(&self) -> u64;
}

impl<T: Ticker + ?Sized> Ticker for Arc<T> {
    #[inline]
    fn nanos(&self) -> u64 {
        (**self).nanos()
    }
}

impl<T: Ticker + ?Sized> Ticker for Box<T> {
    #[inline]
    fn nanos(&self) -> u64 {
        (**self).nanos()
    }
}

/// A clock that stands still until it is told to advance, for tests and simulations.
///
/// A clone shows and moves the same time, so keep one and give the other to the builder.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker};
///
/// let time = ManualTicker::new();
/// let cache: Cache<&str, u32> = Cache::builder()
///     .ticker(time.clone())
///     .time_to_live(Duration::from_secs(60))
///     .build();
///
/// cache.insert("a", 1);
/// time.advance(Duration::from_secs(59));
/// assert_eq!(cache.get("a"), Some(1));
/// time.advance(Duration::from_secs(1));
/// assert_eq!(cache.get("a"), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualTicker {
    // A plain std atomic also under loom: the time of a model is its script, not one of the races it explores.
    nanos: Arc<AtomicU64>,
}

impl ManualTicker {
    /// Creates a clock that stands at 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use wheelhouse::{ManualTicker, Ticker};
    ///
    /// assert_eq!(ManualTicker::new().nanos(), 0);
    /// ```
    ///
    /// # Cost
    ///
    /// One allocation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a clock that stands at `nanos` nanoseconds.
    ///
    /// A cache behaves the same from every origin; this is for tests which show that, above all just before the wrap.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{ManualTicker, Ticker};
    ///
    /// let time = ManualTicker::starting_at(u64::MAX);
    /// time.advance(Duration::from_nanos(3));
    /// assert_eq!(time.nanos(), 2);
    /// ```
    ///
    /// # Cost
    ///
    /// One allocation.
    #[must_use]
    pub fn starting_at(nanos: u64) -> Self {
        Self {
            nanos: Arc::new(AtomicU64::new(nanos)),
        }
    }

    /// Moves the time forward by `by`.
    ///
    /// Time wraps past [`u64::MAX`] nanoseconds to 0. A `by` of 2^64 ns (584 years) or more counts modulo 2^64 ns, and
    /// one of 2^63 ns or more looks to a cache like a step backwards.
    ///
    /// The cache itself does nothing yet: entries that are now due stay stored, unseen, until an operation or
    /// `run_pending_tasks` removes them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{ManualTicker, Ticker};
    ///
    /// let time = ManualTicker::new();
    /// let shared = time.clone();
    /// time.advance(Duration::from_micros(7));
    /// assert_eq!(shared.nanos(), 7_000);
    /// ```
    ///
    /// # Cost
    ///
    /// One atomic addition.
    pub fn advance(&self, by: Duration) {
        // Truncation is the documented modulo. Release pairs with the load in `nanos`: whoever sees the new time also
        // sees what the advancing thread did before.
        self.nanos
            .fetch_add(by.as_nanos() as u64, Ordering::Release);
    }
}

impl Ticker for ManualTicker {
    #[inline]
    fn nanos(&self) -> u64 {
        // Pairs with `advance`.
        self.nanos.load(Ordering::Acquire)
    }
}

/// The deadline of an entry that never expires.
///
/// An odd-looking value rather than 0 or `u64::MAX`, which a clock does meet. [`deadline_after`] steps over it, so a
/// deadline that equals it was never meant as a point in time.
pub(crate) const NEVER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The longest lifetime, 2^62 ns (146 years). Longer ones are cut to it, see time 2.
pub(crate) const MAX_LIFE_NANOS: u64 = 1 << 62;

/// Whether an entry with this deadline is expired: at exactly its deadline it is.
#[inline]
pub(crate) fn is_due(now: u64, deadline: u64) -> bool {
    deadline != NEVER && is_past(now, deadline)
}

/// Whether a deadline that is not [`NEVER`] is due.
#[inline]
pub(crate) fn is_past(now: u64, deadline: u64) -> bool {
    debug_assert_ne!(deadline, NEVER);
    now.wrapping_sub(deadline) as i64 >= 0
}

/// The deadline of a life that starts `now`; never [`NEVER`].
///
/// A deadline that would fall on the reserved value moves 1 ns later, or 1 ns earlier for a life of zero, which must be
/// due at once.
#[inline]
pub(crate) fn deadline_after(now: u64, life: Duration) -> u64 {
    let life = saturating_nanos(life).min(MAX_LIFE_NANOS);
    let deadline = now.wrapping_add(life);
    if deadline != NEVER {
        deadline
    } else if life == 0 {
        NEVER - 1
    } else {
        NEVER + 1
    }
}

/// The deadline of a life that starts `now` and lasts forever if `None`.
#[inline]
pub(crate) fn deadline_in(now: u64, life: Option<Duration>) -> u64 {
    match life {
        Some(life) => deadline_after(now, life),
        None => NEVER,
    }
}

/// What is left until the deadline: `None` if it never comes, zero if it is due.
#[inline]
pub(crate) fn time_left(now: u64, deadline: u64) -> Option<Duration> {
    if deadline == NEVER {
        None
    } else if is_due(now, deadline) {
        Some(Duration::ZERO)
    } else {
        Some(Duration::from_nanos(deadline.wrapping_sub(now)))
    }
}

/// Whether deadline `a` comes strictly before deadline `b`, seen from `now`. [`NEVER`] comes last.
#[inline]
pub(crate) fn is_before(a: u64, b: u64, now: u64) -> bool {
    if a == NEVER {
        false
    } else if b == NEVER {
        true
    } else {
        (a.wrapping_sub(now) as i64) < (b.wrapping_sub(now) as i64)
    }
}

/// The earlier of two deadlines, seen from `now`. [`NEVER`] comes last.
#[inline]
pub(crate) fn earlier(a: u64, b: u64, now: u64) -> u64 {
    if is_before(b, a, now) { b } else { a }
}

/// The duration in nanoseconds, at most `u64::MAX`.
#[inline]
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    // In 64 bits: by way of `as_nanos` it takes three times as long, on every read that extends.
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

/// The clock of one cache: readings in cache time.
pub(crate) struct Clock {
    /// The counter where it can be read directly.
    direct: Direct,
    /// The same for look-ups, if these go by it.
    glanced: Direct,
    /// What look-ups go by instead.
    coarse: Option<Coarse>,
    source: Source,
    /// What the machine's clock showed at construction; cache time 0 for those who want an [`Instant`].
    base: Instant,
}

/// An enum rather than `Box<dyn Ticker>` for both, so that the default costs no indirect call.
enum Source {
    Counter(Counter),
    /// A ticker, and what it showed at construction.
    Custom(Box<dyn Ticker>, u64),
}

impl Clock {
    /// The default clock: the processor's time stamp counter where it runs at a constant rate, else the monotonic clock
    /// of the operating system.
    ///
    /// The first call in a process measures the rate of the counter against the system's clock, which keeps that thread
    /// busy for 0.6 ms on the machine where this was written, at worst for 200 ms. Later calls, from any cache, take the
    /// rate as measured. It was off by 2 to 18 parts per million there.
    pub(crate) fn tsc() -> Self {
        // Calibrates first, so that its origin and `base` name the same moment.
        let counter = Counter::new();
        Self {
            direct: counter.direct(),
            glanced: counter.direct(),
            coarse: None,
            source: Source::Counter(counter),
            base: Instant::now(),
        }
    }

    /// The same clock, whose [`glance`](Self::glance) shows what it showed up to `staleness` ago. A custom clock stays as it is, as does
    /// any where no thread can be started for that.
    pub(crate) fn with_coarse_glances(self, staleness: Duration) -> Self {
        let Source::Counter(counter) = &self.source else {
            return self;
        };
        // Read in the same way: the two round differently, and the coarse time must not be ahead.
        let (direct, counter) = (self.direct, counter.clone());
        let read = move || direct.now().unwrap_or_else(|| counter.now());
        match Coarse::of(read, staleness) {
            Some(coarse) => self.glancing_at(coarse),
            None => self,
        }
    }

    /// The same clock for all but look-ups, which go by `coarse`.
    pub(crate) fn glancing_at(self, coarse: Coarse) -> Self {
        Self {
            glanced: Direct::NONE,
            coarse: Some(coarse),
            ..self
        }
    }

    /// A clock that shows what the ticker shows.
    pub(crate) fn custom(ticker: Box<dyn Ticker>) -> Self {
        let origin = ticker.nanos();
        Self {
            direct: Direct::NONE,
            glanced: Direct::NONE,
            coarse: None,
            source: Source::Custom(ticker, origin),
            base: Instant::now(),
        }
    }

    /// Now, in cache time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // One question instead of two: which source, and can it be read directly.
        self.direct.now().unwrap_or_else(|| self.now_indirectly())
    }

    /// Now, as look-ups may see it that move no deadline: [`now`](Self::now), or some time ago where the cache has coarse reads.
    ///
    /// Never ahead of `now`.
    #[inline]
    pub(crate) fn glance(&self) -> u64 {
        // The same question as in `now`; a second one only where the answer is no.
        self.glanced.now().unwrap_or_else(|| match &self.coarse {
            Some(coarse) => coarse.now(),
            None => self.now_indirectly(),
        })
    }

    #[cfg(all(test, not(wheelhouse_loom)))]
    pub(crate) fn is_coarse(&self) -> bool {
        self.coarse.is_some()
    }

    // Out of line: each look-up has a copy of `now`.
    #[inline(never)]
    fn now_indirectly(&self) -> u64 {
        match &self.source {
            Source::Counter(counter) => counter.now(),
            Source::Custom(ticker, origin) => ticker.nanos().wrapping_sub(*origin),
        }
    }

    /// The [`Instant`] of cache time 0.
    #[inline]
    pub(crate) fn base(&self) -> Instant {
        self.base
    }

    /// The point `now` of cache time as an [`Instant`], such that differences between two of them are cache time.
    ///
    /// Where the platform cannot represent the result it is the instant at which the cache was built.
    #[inline]
    pub(crate) fn instant(&self, now: u64) -> Instant {
        // Signed, since a clock that ran backwards shows a time before its origin.
        let offset = now as i64;
        let distance = Duration::from_nanos(offset.unsigned_abs());
        let shifted = if offset >= 0 {
            self.base.checked_add(distance)
        } else {
            self.base.checked_sub(distance)
        };
        shifted.unwrap_or(self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Moments around every place where the arithmetic could go wrong.
    const MOMENTS: [u64; 9] = [
        0,
        1,
        SECOND,
        i64::MAX as u64,
        1 << 63,
        NEVER - SECOND,
        NEVER,
        u64::MAX - 1,
        u64::MAX,
    ];

    #[test]
    fn due_at_exactly_the_deadline_from_any_origin() {
        for now in MOMENTS {
            let deadline = deadline_after(now, Duration::from_nanos(SECOND + 1));
            assert!(!is_due(now, deadline));
            assert!(!is_due(deadline.wrapping_sub(1), deadline));
            assert!(is_due(deadline, deadline));
            assert!(is_due(deadline.wrapping_add(MAX_LIFE_NANOS), deadline));
            assert!(
                !is_due(now.wrapping_sub(MAX_LIFE_NANOS), deadline),
                "time ran backwards"
            );
        }
    }

    #[test]
    fn never_is_not_due_and_has_no_time_left() {
        for now in MOMENTS {
            assert!(!is_due(now, NEVER));
            assert_eq!(time_left(now, NEVER), None);
            assert_eq!(deadline_in(now, None), NEVER);
        }
    }

    #[test]
    fn a_life_of_zero_is_due_at_once() {
        for now in MOMENTS {
            let deadline = deadline_after(now, Duration::ZERO);
            assert!(is_due(now, deadline));
            assert_eq!(time_left(now, deadline), Some(Duration::ZERO));
        }
    }

    #[test]
    fn a_huge_life_counts_as_the_longest() {
        for now in MOMENTS {
            let longest = deadline_after(now, Duration::from_nanos(MAX_LIFE_NANOS));
            assert_eq!(deadline_after(now, Duration::MAX), longest);
            assert_eq!(
                deadline_in(now, Some(Duration::from_nanos(u64::MAX))),
                longest
            );
            assert_eq!(
                time_left(now, longest),
                Some(Duration::from_nanos(MAX_LIFE_NANOS))
            );
        }
        assert_eq!(saturating_nanos(Duration::MAX), u64::MAX);
        assert_eq!(saturating_nanos(Duration::from_nanos(u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_deadline_steps_over_the_reserved_value() {
        let second = Duration::from_nanos(SECOND);
        assert_eq!(deadline_after(NEVER - SECOND, second), NEVER + 1);
        assert_eq!(deadline_after(NEVER, Duration::ZERO), NEVER - 1);
    }

    #[test]
    fn the_earlier_deadline_wins_across_the_wrap() {
        for now in MOMENTS {
            let past = deadline_after(now.wrapping_sub(2 * SECOND), Duration::from_secs(1));
            let soon = deadline_after(now, Duration::from_secs(1));
            let late = deadline_after(now, Duration::MAX);
            let sorted = [past, soon, late, NEVER];
            for (i, &a) in sorted.iter().enumerate() {
                for (j, &b) in sorted.iter().enumerate() {
                    assert_eq!(is_before(a, b, now), i < j, "{i} {j} at {now}");
                    assert_eq!(earlier(a, b, now), sorted[i.min(j)], "{i} {j} at {now}");
                }
            }
        }
    }

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

    #[test]
    fn a_manual_ticker_wraps_and_is_shared_by_its_clones() {
        let ticker = ManualTicker::starting_at(u64::MAX);
        let shared: Box<dyn Ticker> = Box::new(Arc::new(ticker.clone()));
        ticker.advance(Duration::from_nanos(1));
        assert_eq!(shared.nanos(), 0);
        ticker.advance(Duration::from_nanos(u64::MAX) + Duration::from_nanos(4));
        assert_eq!(shared.nanos(), 3);
    }
}
