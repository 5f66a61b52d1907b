//! A copy of the timer wheel's state at one moment, for viewers.

use std::time::Duration;

/// The timer wheel at a moment; see [`Policy::wheel`](crate::Policy::wheel).
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker};
///
/// let ticker = ManualTicker::new();
/// let cache = Cache::builder().ticker(ticker.clone()).build();
/// for (key, seconds) in [("a", 10), ("b", 11), ("c", 3_600)] {
///     cache.insert_with_ttl(key, seconds, Duration::from_secs(seconds));
/// }
/// let entries = |cache: &Cache<&str, u64>| -> Vec<usize> {
///     cache.policy().wheel().levels().iter().map(|level| level.lens().iter().sum()).collect()
/// };
/// assert_eq!(entries(&cache), [2, 1, 0, 0, 0]);
///
/// ticker.advance(Duration::from_secs(3_599));
/// cache.run_pending_tasks();
/// assert_eq!(entries(&cache), [1, 0, 0, 0, 0]); // what is near has come to the finest level
/// ```
#[derive(Clone, Debug)]
pub struct WheelSnapshot {
    now_nanos: u64,
    next_maintenance_in: Option<Duration>,
    levels: Vec<LevelSnapshot>,
}

impl WheelSnapshot {
    pub(crate) fn new(
        now_nanos: u64,
        next_maintenance_in: Option<Duration>,
        levels: Vec<LevelSnapshot>,
    ) -> Self {
        Self {
            now_nanos,
            next_maintenance_in,
            levels,
        }
    }

    /// Returns the time to which the wheel was last advanced, in nanoseconds since the cache was
    /// built.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).build();
    /// cache.insert_with_ttl("k", 1, Duration::from_secs(60));
    /// ticker.advance(Duration::from_secs(10));
    /// assert_eq!(cache.policy().wheel().now_nanos(), 10_000_000_000);
    /// ```
    pub fn now_nanos(&self) -> u64 {
        self.now_nanos
    }

    /// Returns the time until the wheel has work: `None` if it is empty, zero if something is due.
    /// The same as [`Cache::next_maintenance_in`](crate::Cache::next_maintenance_in). Entries far
    /// from their deadlines cascade to finer levels on the way, so it may be less than the time
    /// until the next deadline.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).build();
    /// assert_eq!(cache.policy().wheel().next_maintenance_in(), None);
    /// cache.insert_with_ttl("k", 1, Duration::from_secs(5));
    /// let next = cache.policy().wheel().next_maintenance_in().unwrap();
    /// assert!(next <= Duration::from_secs(5) + cache.policy().expiry_resolution());
    /// ticker.advance(Duration::from_secs(10));
    /// assert_eq!(cache.policy().wheel().next_maintenance_in(), Some(Duration::ZERO));
    /// ```
    pub fn next_maintenance_in(&self) -> Option<Duration> {
        self.next_maintenance_in
    }

    /// Returns the five levels, finest first.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().build();
    /// let wheel = cache.policy().wheel();
    /// let buckets = wheel.levels().iter().map(|level| level.lens().len());
    /// assert!(buckets.eq([64, 64, 32, 4, 1]));
    /// ```
    pub fn levels(&self) -> &[LevelSnapshot] {
        &self.levels
    }
}

/// One level of the timer wheel; see [`WheelSnapshot::levels`].
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, ManualTicker};
///
/// let cache = Cache::builder().ticker(ManualTicker::new()).build();
/// cache.insert_with_ttl("k", 1, Duration::from_secs(10));
/// let wheel = cache.policy().wheel();
/// let finest = &wheel.levels()[0];
/// let ahead = finest.lens().iter().position(|&len| len > 0).unwrap() - finest.hand();
/// assert_eq!(ahead, 9); // ten seconds are 9.3 default resolutions
/// ```
#[derive(Clone, Debug)]
pub struct LevelSnapshot {
    pub(crate) span: Duration,
    pub(crate) hand: usize,
    pub(crate) lens: Vec<usize>,
}

impl LevelSnapshot {
    /// Returns the width of one bucket.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().build();
    /// let wheel = cache.policy().wheel();
    /// assert_eq!(wheel.levels()[0].span(), cache.policy().expiry_resolution());
    /// assert_eq!(wheel.levels()[1].span(), 64 * wheel.levels()[0].span());
    /// ```
    pub fn span(&self) -> Duration {
        self.span
    }

    /// Returns the index of the bucket whose tick contains the wheel's time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).build();
    /// cache.insert_with_ttl("k", 1, Duration::from_secs(60));
    /// assert_eq!(cache.policy().wheel().levels()[0].hand(), 0);
    /// ticker.advance(3 * cache.policy().expiry_resolution());
    /// assert_eq!(cache.policy().wheel().levels()[0].hand(), 3);
    /// ```
    pub fn hand(&self) -> usize {
        self.hand
    }

    /// Returns how many entries each bucket holds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let cache = Cache::builder().ticker(ManualTicker::new()).build();
    /// cache.insert_with_ttl("a", 1, Duration::from_secs(1));
    /// cache.insert_with_ttl("b", 2, Duration::from_secs(1));
    /// let wheel = cache.policy().wheel();
    /// assert_eq!(wheel.levels()[0].lens()[0], 2);
    /// ```
    pub fn lens(&self) -> &[usize] {
        &self.lens
    }
}
