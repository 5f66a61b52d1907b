//! The clocks of the crate quanta as tickers.

use super::Ticker;
use quanta::{Clock, Instant};

/// With the cargo feature `quanta`: the clock of the crate quanta, its mock included.
///
/// Its time runs as fast as real time. So a cache on it can have a thread that removes what is due:
/// give [`Scheduler::background`](crate::Scheduler::background) to the builder. A cache on a mock
/// keeps the default of a ticker, which is no thread.
///
/// A reading is one of the processor's counter, where quanta trusts it. quanta measures the
/// counter's rate once, in up to 0.2 s, when the program makes its first clock. It does not correct
/// the rate later. So deadlines of days may drift from the program's clock by a second or more, and
/// the instants that a policy is told drift from [`Instant::now`](std::time::Instant::now) as well.
/// A cache without a ticker reads the counter too, and does not drift.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::Cache;
///
/// let (clock, mock) = quanta::Clock::mock();
/// let cache = Cache::builder().ticker(clock).build();
/// cache.insert_with_ttl("ada", 1815, Duration::from_secs(60));
/// mock.increment(Duration::from_secs(59));
/// assert_eq!(cache.get("ada"), Some(1815));
/// mock.increment(Duration::from_secs(1));
/// assert_eq!(cache.get("ada"), None);
/// ```
impl Ticker for Clock {
    #[inline]
    fn nanos(&self) -> u64 {
        self.delta_as_nanos(0, self.raw())
    }
}

/// quanta's *recent* time as a ticker: a reading loads one word, which quanta's upkeep thread
/// writes now and then. With the cargo feature `quanta`.
///
/// It makes the fastest hits on entries with a deadline, in caches of up to some ten thousand. This
/// is what it gives up:
///
/// - **Exact ends.** A cache on it serves an entry past its deadline by up to the interval of the
///   upkeep, and for longer if the upkeep thread gets no processor.
/// - **Exact beginnings.** A lifetime counts from the recent time, which lies before the write by
///   as much. So an entry lives up to that much shorter than its lifetime, by real time.
/// - **Independence.** If the upkeep thread ends, the time stands still, and no entry expires any
///   more. Keep the handle that `Upkeep::start` returns as long as the cache. While no upkeep has
///   begun, each reading is one of quanta's exact clock.
/// - **The program's clock.** It drifts as `quanta::Clock` does; see
///   [`Ticker`](Ticker#impl-Ticker-for-Clock).
///
/// The default of a cache with a ticker is no thread for removals. Recent time follows real time:
/// give [`Scheduler::background`](crate::Scheduler::background) to the builder.
///
/// # Cost
///
/// A load of one word for each reading.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, QuantaRecent, Scheduler};
///
/// let upkeep = quanta::Upkeep::new(Duration::from_millis(1)).start().unwrap();
/// let cache = Cache::builder()
///     .ticker(QuantaRecent::new())
///     .scheduler(Scheduler::background())
///     .build();
/// cache.insert_with_ttl("ada", 1815, Duration::from_secs(60));
/// assert_eq!(cache.get("ada"), Some(1815));
/// drop(cache);
/// drop(upkeep); // at the end of the program
/// ```
#[derive(Clone, Copy, Debug)]
pub struct QuantaRecent {
    /// quanta shows the nanoseconds of an instant only as a distance to another one.
    zero: Instant,
}

impl QuantaRecent {
    /// Makes the ticker. All of them show the same time.
    ///
    /// ```
    /// use wheelhouse::{QuantaRecent, Ticker};
    ///
    /// let before = QuantaRecent::new().nanos();
    /// assert!(QuantaRecent::new().nanos() >= before);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        // A new mock shows 0.
        let (clock, _) = Clock::mock();
        Self { zero: clock.now() }
    }
}

impl Default for QuantaRecent {
    fn default() -> Self {
        Self::new()
    }
}

impl Ticker for QuantaRecent {
    #[inline]
    fn nanos(&self) -> u64 {
        let since = Instant::recent().duration_since(self.zero);
        // The compiler sees that this undoes what `Duration` did: the word itself is left.
        since
            .as_secs()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(u64::from(since.subsec_nanos()))
    }
}
