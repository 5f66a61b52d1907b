//! The part of [`Stats`] about loads.

use super::Stats;
use super::counters::Count;
use std::time::Duration;

impl Stats {
    /// How many loads began, failed ones and computes included.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.get_with("ada", || 1815);
    /// cache.get_with("ada", || 1852); // a hit
    /// assert_eq!(cache.stats().loads(), 1);
    /// ```
    pub fn loads(&self) -> u64 {
        self.counts[Count::Loads as usize]
    }

    /// How many loads ended without a value: their code returned an error or `None`, or panicked,
    /// or its future was dropped. A compute that stores nothing is no failure.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::<_, u32>::builder().record_stats().build();
    /// assert_eq!(cache.optionally_get_with("ada", || None), None);
    /// assert_eq!(cache.stats().load_failures(), 1);
    /// ```
    pub fn load_failures(&self) -> u64 {
        self.counts[Count::FailedLoads as usize]
    }

    /// How many loads made a value that was not stored, since the key had been written meanwhile or
    /// a newer load had replaced an overdue one.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// let value = cache.get_with("ada", || {
    ///     cache.invalidate("ada");
    ///     1815
    /// });
    /// assert_eq!((value, cache.get("ada")), (1815, None));
    /// assert_eq!(cache.stats().loads_discarded(), 1);
    /// ```
    pub fn loads_discarded(&self) -> u64 {
        self.counts[Count::DiscardedLoads as usize]
    }

    /// How many calls waited for another call's load. Each counts once, when it begins to wait.
    ///
    /// ```
    /// use std::{sync::mpsc, thread};
    ///
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// let other = cache.clone();
    /// let (began, begun) = mpsc::channel();
    /// let leader = thread::spawn(move || {
    ///     other.get_with("ada", || {
    ///         began.send(()).unwrap();
    ///         while other.stats().load_waits() == 0 {
    ///             thread::yield_now();
    ///         }
    ///         1815
    ///     })
    /// });
    /// begun.recv().unwrap();
    /// assert_eq!(cache.get_with("ada", || unreachable!()), 1815);
    /// assert_eq!(cache.stats().load_waits(), 1);
    /// # leader.join().unwrap();
    /// ```
    pub fn load_waits(&self) -> u64 {
        self.counts[Count::LoadWaits as usize]
    }

    /// How long loads took together, by the cache's ticker.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().record_stats().ticker(ticker.clone()).build();
    /// cache.get_with("ada", || {
    ///     ticker.advance(Duration::from_secs(2));
    ///     1815
    /// });
    /// assert_eq!(cache.stats().load_time(), Duration::from_secs(2));
    /// ```
    pub fn load_time(&self) -> Duration {
        Duration::from_nanos(self.counts[Count::LoadNanos as usize])
    }

    /// How many reloads began: loads by a [`LoadingCache`](crate::LoadingCache) of a key that had a
    /// live entry. They count as loads, too.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let load = loader_fn(|key: &u32| Ok::<u32, ()>(key * 2));
    /// let cache = Cache::builder().record_stats().loading(load).build();
    /// cache.get(&4).unwrap();
    /// cache.refresh(4).wait().unwrap();
    /// let stats = cache.cache().stats();
    /// assert_eq!((stats.loads(), stats.reloads()), (2, 1));
    /// ```
    pub fn reloads(&self) -> u64 {
        self.counts[Count::Reloads as usize]
    }

    /// How many reloads failed: the loader returned an error or panicked, or its task was dropped.
    ///
    /// ```
    /// use wheelhouse::{Cache, loader_fn};
    ///
    /// let load = loader_fn(|_: &u32| Err::<u32, _>("closed"));
    /// let cache = Cache::builder().record_stats().loading(load).build();
    /// cache.cache().insert(4, 8);
    /// assert!(cache.refresh(4).wait().is_err());
    /// assert_eq!(cache.cache().stats().reload_failures(), 1);
    /// ```
    pub fn reload_failures(&self) -> u64 {
        self.counts[Count::FailedReloads as usize]
    }

    /// How many calls of a [`LoadingCache`](crate::LoadingCache) got an error that was remembered,
    /// so that the loader was not called; see
    /// [`failure_backoff`](crate::LoadingBuilder::failure_backoff).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, loader_fn, refresh};
    ///
    /// let second = Duration::from_secs(1);
    /// let cache = Cache::builder()
    ///     .record_stats()
    ///     .loading(loader_fn(|_: &u32| Err::<u32, _>("down")))
    ///     .failure_backoff(refresh::doubling(second, 60 * second))
    ///     .build();
    /// assert!(cache.get(&1).is_err() && cache.get(&1).is_err());
    /// let stats = cache.cache().stats();
    /// assert_eq!((stats.loads(), stats.remembered_failures()), (1, 1));
    /// ```
    pub fn remembered_failures(&self) -> u64 {
        self.counts[Count::RememberedFailures as usize]
    }
}
