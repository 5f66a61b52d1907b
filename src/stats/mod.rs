//! Statistics of a cache: counts, and how late expired entries were removed.

mod counters;
mod histogram;
mod list;

use crate::listener::RemovalCause;
use counters::Counts;
pub(crate) use counters::{Count, Counters};
pub use list::{Stat, StatValue};
use std::fmt;
use std::ops::Sub;
use std::time::Duration;

/// Statistics of a cache since it was built; from [`Cache::stats`](crate::Cache::stats).
///
/// A plain snapshot: it does not change with the cache. The difference of two snapshots is what
/// happened between them. All counts are 0 unless the cache was built with
/// [`record_stats`](crate::CacheBuilder::record_stats).
///
/// Every key–value pair that is stored counts as an insertion or an update. Every pair that leaves
/// counts as a removal, with the cause that the removal listener receives:
///
/// | call | counts |
/// |---|---|
/// | `get`, `get_many` for each key, `get_ref` | a hit; a miss if the key is absent or expired |
/// | `get_with` and its relatives, `get_all_with` for each key (once, if it is given twice), `lease`, `entry` with `or_…` | the same; a call that waits for another call's load is a miss, too |
/// | `get`, `get_all`, `get_if_present` of a `LoadingCache` | the same; a stale entry is a hit |
/// | `peek_ref`, `contains_key`, `iter`, `retain`, `weight_of` | nothing as a look-up |
/// | `entry` with `and_…`, `replace_if`, `remove_if`, `remove`, `set_expiry`, `refresh` | nothing as a look-up |
/// | `insert`, `insert_with_ttl`, `insert_until` on an absent key | an insertion |
/// | … on a present one | an update, and a removal as `Replaced` |
/// | … on one that expired and was not removed yet | an insertion, and a removal as `Expired` |
/// | … of a rejected entry, as with a capacity of 0 | as above, and a removal as `Size` |
///
/// So insertions plus updates, minus all removals, is the number of entries stored, exactly so
/// while no call is in progress.
///
/// # Cost
///
/// To take one reads the counts of all threads, and allocates the 4 KiB of a histogram. A getter
/// then reads one number, unless it says otherwise.
///
/// ```
/// use wheelhouse::{Cache, RemovalCause};
///
/// let cache = Cache::builder().record_stats().build();
/// cache.insert("ada", 1815);
/// let before = cache.stats();
/// cache.get("ada");
/// cache.get("bob");
/// cache.insert("ada", 1852);
/// let between = cache.stats() - before;
/// assert_eq!((between.hits(), between.misses()), (1, 1));
/// assert_eq!((between.insertions(), between.updates()), (0, 1));
/// assert_eq!(between.removals(RemovalCause::Replaced), 1);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stats {
    counts: Counts,
    /// Counts of a histogram; empty if nothing is recorded.
    lateness: Vec<u64>,
}

impl Stats {
    /// The counts so far, those of the notifier included.
    pub(crate) fn of(counters: &Counters, listener_panics: u64) -> Self {
        let mut counts = counters.counts();
        counts[Count::ListenerPanics as usize] = listener_panics;
        Self {
            counts,
            lateness: counters.lateness(),
        }
    }

    /// How many look-ups found a live entry, counted per key: by `get`, `get_ref`, `get_many`, and
    /// by every method that reads a value and loads it if it is absent. [`Stats`] has a table of
    /// the methods.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert(1, "one");
    /// cache.get(&1);
    /// cache.peek_ref(&1);
    /// assert_eq!(cache.stats().hits(), 1);
    /// ```
    pub fn hits(&self) -> u64 {
        self.counts[Count::Hits as usize]
    }

    /// How many look-ups found no entry or an expired one, counted per key, by the same methods as
    /// [`hits`](Self::hits). A look-up that then loads the value, or waits for a load, is a miss.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().record_stats().build();
    /// cache.get(&1);
    /// assert_eq!(cache.stats().misses(), 1);
    /// ```
    pub fn misses(&self) -> u64 {
        self.counts[Count::Misses as usize]
    }

    /// The fraction of look-ups that hit, from 0 to 1; 1 if there was none.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// assert_eq!(cache.stats().hit_ratio(), 1.0);
    /// cache.insert(1, "one");
    /// cache.get(&1);
    /// cache.get(&2);
    /// assert_eq!(cache.stats().hit_ratio(), 0.5);
    /// ```
    pub fn hit_ratio(&self) -> f64 {
        // In floating point, where a sum cannot overflow.
        let hits = self.hits() as f64;
        let misses = self.misses() as f64;
        if hits + misses == 0.0 {
            1.0
        } else {
            hits / (hits + misses)
        }
    }

    /// How many values were stored under an absent key, or in place of an expired entry.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert(1, "one");
    /// cache.insert(1, "uno");
    /// assert_eq!(cache.stats().insertions(), 1);
    /// ```
    pub fn insertions(&self) -> u64 {
        self.counts[Count::Insertions as usize]
    }

    /// How many values replaced a live one.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert(1, "one");
    /// cache.insert(1, "uno");
    /// assert_eq!(cache.stats().updates(), 1);
    /// ```
    pub fn updates(&self) -> u64 {
        self.counts[Count::Updates as usize]
    }

    /// How many key–value pairs left for this cause. A pair is counted when it leaves, which may be
    /// before the listener is called.
    ///
    /// ```
    /// use wheelhouse::{Cache, RemovalCause};
    ///
    /// let cache = Cache::builder().record_stats().build();
    /// cache.insert(1, "one");
    /// cache.invalidate(&1);
    /// assert_eq!(cache.stats().removals(RemovalCause::Explicit), 1);
    /// assert_eq!(cache.stats().removals(RemovalCause::Expired), 0);
    /// ```
    pub fn removals(&self, cause: RemovalCause) -> u64 {
        self.counts[Count::Removals as usize + cause as usize]
    }

    /// The total weight of the pairs that left for this cause. Without a weigher every entry weighs
    /// 1.
    ///
    /// ```
    /// use wheelhouse::{Cache, RemovalCause};
    ///
    /// let cache = Cache::builder()
    ///     .record_stats()
    ///     .max_capacity(1_000)
    ///     .weigher(|_: &i32, page: &&str| page.len() as u32)
    ///     .build();
    /// cache.insert(1, "twelve bytes");
    /// cache.insert(1, "");
    /// assert_eq!(cache.stats().removed_weight(RemovalCause::Replaced), 12);
    /// ```
    pub fn removed_weight(&self, cause: RemovalCause) -> u64 {
        self.counts[Count::Weights as usize + cause as usize]
    }

    /// The total weight of the entries that the cache itself removed: the sum of
    /// [`removed_weight`](Self::removed_weight) over the causes for which
    /// [`was_evicted`](RemovalCause::was_evicted) is true.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().max_capacity(10).record_stats().build();
    /// for n in 0..25 {
    ///     cache.insert(n, n);
    /// }
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.stats().evicted_weight(), 15);
    /// ```
    pub fn evicted_weight(&self) -> u64 {
        let expired = self.removed_weight(RemovalCause::Expired);
        expired.saturating_add(self.removed_weight(RemovalCause::Size))
    }

    /// How many calls of the removal listener panicked.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder()
    ///     .record_stats()
    ///     .removal_listener(|_: &u8, _: &u8, _| panic!("the listener gave up"))
    ///     .build();
    /// cache.insert(1, 1);
    /// cache.invalidate(&1);
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.stats().listener_panics(), 1);
    /// ```
    pub fn listener_panics(&self) -> u64 {
        self.counts[Count::ListenerPanics as usize]
    }

    /// How many maintenance passes were run, by writers or by other threads. Each does a bounded
    /// amount of work.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert(1, 1);
    /// cache.run_pending_tasks();
    /// assert!(cache.stats().maintenance_passes() > 0);
    /// ```
    pub fn maintenance_passes(&self) -> u64 {
        self.counts[Count::Passes as usize]
    }

    /// The total duration of maintenance passes in real time, whatever the cache's ticker: the time
    /// with the maintenance lock held. Listeners, and destructors of keys and values, run outside
    /// of it.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert(1, 1);
    /// cache.run_pending_tasks();
    /// let stats = cache.stats();
    /// let one = stats.maintenance_time() / stats.maintenance_passes() as u32;
    /// assert!(one <= stats.maintenance_time());
    /// ```
    pub fn maintenance_time(&self) -> Duration {
        Duration::from_nanos(self.counts[Count::PassNanos as usize])
    }

    /// How many of the [`removals`](Self::removals) with the cause `Expired` were done by
    /// maintenance passes. The others were done by a call that met the expired entry: a write,
    /// a removal, a load or `restore`.
    ///
    /// # Cost
    ///
    /// Adds 496 counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker, RemovalCause};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().record_stats().ticker(ticker.clone()).build();
    /// cache.insert_with_ttl(1, "one", Duration::from_secs(5));
    /// cache.insert_with_ttl(2, "two", Duration::from_secs(5));
    /// ticker.advance(Duration::from_secs(5));
    /// cache.insert(1, "uno");
    /// cache.run_pending_tasks();
    /// let stats = cache.stats();
    /// assert_eq!(stats.removals(RemovalCause::Expired), 2);
    /// assert_eq!(stats.expired_by_maintenance(), 1);
    /// ```
    pub fn expired_by_maintenance(&self) -> u64 {
        self.lateness.iter().sum()
    }

    /// How long after their deadlines expired entries were removed, in the cache's time: the
    /// lateness that the fraction `quantile` of them, from 0 to 1, did not exceed. `None` if
    /// maintenance has removed none, or for NaN; below 0 counts as 0, above 1 as 1.
    ///
    /// The answer may be too high by up to an eighth, never too low. Expired entries that a writer
    /// removes do not count.
    ///
    /// # Cost
    ///
    /// Reads 496 counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().record_stats().ticker(ticker.clone()).build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
    /// ticker.advance(Duration::from_secs(6));
    /// cache.run_pending_tasks();
    /// let median = cache.stats().expiry_lateness(0.5).unwrap();
    /// assert!(median >= Duration::from_secs(1) && median <= Duration::from_millis(1_125));
    /// ```
    pub fn expiry_lateness(&self, quantile: f64) -> Option<Duration> {
        histogram::quantile(&self.lateness, quantile).map(Duration::from_nanos)
    }

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

    /// How many loads had an outcome that was not stored, since the key had been written meanwhile
    /// or a newer load had replaced an overdue one.
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

    /// How long loads took together, by the cache's ticker. If one call loads many keys, its time
    /// counts once for each key.
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

impl Sub for Stats {
    type Output = Stats;

    /// Returns the counts of what happened between `earlier` and `self`, as the subtraction of two
    /// references does.
    fn sub(self, earlier: Stats) -> Stats {
        &self - &earlier
    }
}

impl Sub for &Stats {
    type Output = Stats;

    /// Returns the counts of what happened between `earlier` and `self`. Where `earlier` counts
    /// more, because it is the later one or comes from another cache, the difference is 0.
    fn sub(self, earlier: &Stats) -> Stats {
        let mut between = self.clone();
        subtract(&mut between.counts, &earlier.counts);
        subtract(&mut between.lateness, &earlier.lateness);
        between
    }
}

fn subtract(counts: &mut [u64], earlier: &[u64]) {
    for (count, before) in counts.iter_mut().zip(earlier) {
        *count = count.saturating_sub(*before);
    }
}

impl fmt::Debug for Stats {
    /// Shows the counts, and two quantiles of the lateness instead of its histogram.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Stats");
        for Stat { name, cause, value } in self {
            let name = match cause {
                Some(cause) => format!("{name}({cause})"),
                None => name.to_string(),
            };
            match value {
                StatValue::Count(count) => shown.field(&name, &count),
                StatValue::Time(time) => shown.field(&name, &time),
                StatValue::Buckets { count, .. } => shown
                    .field("expired_by_maintenance", &count)
                    .field("median_lateness", &self.expiry_lateness(0.5))
                    .field("most_lateness", &self.expiry_lateness(1.0)),
            };
        }
        shown.finish()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
