//! A look at the settings of a cache, and at its timer wheel.

use crate::builder::about;
use crate::cache::Core;
use crate::eviction::EvictionPolicy;
use equivalent::Equivalent;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The settings of a cache in force, from [`Cache::policy`](crate::Cache::policy).
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::Cache;
///
/// let cache: Cache<u64, u64> =
///     Cache::builder().max_capacity(100).time_to_live(Duration::from_secs(60)).build();
/// let policy = cache.policy();
/// assert_eq!(policy.max_capacity(), Some(100));
/// assert_eq!(policy.time_to_live(), Some(Duration::from_secs(60)));
/// assert_eq!(policy.time_to_idle(), None);
/// ```
pub struct Policy<'a, K, V, S> {
    core: &'a Core<K, V, S>,
}

impl<'a, K, V, S> Policy<'a, K, V, S> {
    pub(crate) fn new(core: &'a Core<K, V, S>) -> Self {
        Self { core }
    }

    /// The bound on the weight of all entries, which is their number unless there is a weigher; `None` if there is none.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let bounded: Cache<u8, u8> = Cache::new(100);
    /// let unbounded: Cache<u8, u8> = Cache::builder().build();
    /// assert_eq!(bounded.policy().max_capacity(), Some(100));
    /// assert_eq!(unbounded.policy().max_capacity(), None);
    /// ```
    pub fn max_capacity(&self) -> Option<u64> {
        self.core.upkeep.max_capacity()
    }

    /// Moves the bound of a cache that was built with one. A smaller bound evicts in the next passes, a bounded number of entries each;
    /// after [`run_pending_tasks`](crate::Cache::run_pending_tasks) it holds.
    ///
    /// Entries of weight 0 stay whatever the bound. How many shards the cache has was settled by the bound it was built with.
    ///
    /// # Panics
    ///
    /// If the cache was built without `max_capacity`: its entries have no place for what a size policy needs to know. Build with a
    /// bound of `u64::MAX` to set one later.
    ///
    /// # Cost
    ///
    /// The maintenance lock. Visits all entries if the new bound is below what a single entry weighs, else a few.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// for n in 0..100 {
    ///     cache.insert(n, n);
    /// }
    /// cache.policy().set_max_capacity(10);
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.entry_count(), 10);
    /// assert_eq!(cache.policy().max_capacity(), Some(10));
    /// ```
    #[track_caller]
    pub fn set_max_capacity(&self, max_capacity: u64) {
        if !self.core.upkeep.set_max_capacity(max_capacity) {
            let message = format!(
                "set_max_capacity is asked for {max_capacity}, but the cache was built without a bound; \
                 set max_capacity on its builder, to u64::MAX for none at first"
            );
            panic!("{}", about(self.core.name.as_deref(), &message));
        }
    }

    /// Who goes when the cache is full; of no meaning in an unbounded one.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache: Cache<u8, u8> = Cache::new(100);
    /// assert_eq!(cache.policy().eviction_policy(), EvictionPolicy::TinyLfu);
    /// ```
    pub fn eviction_policy(&self) -> EvictionPolicy {
        self.core.upkeep.eviction_policy
    }

    /// The cache-wide limit on the time since the last write.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().time_to_live(minute).build();
    /// assert_eq!(cache.policy().time_to_live(), Some(minute));
    /// ```
    pub fn time_to_live(&self) -> Option<Duration> {
        self.core.lifetimes.limits.time_to_live
    }

    /// The cache-wide limit on the time since the last use.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().time_to_idle(minute).build();
    /// assert_eq!(cache.policy().time_to_idle(), Some(minute));
    /// ```
    pub fn time_to_idle(&self) -> Option<Duration> {
        self.core.lifetimes.limits.time_to_idle
    }

    /// Width of the finest bucket of the timer wheel: the builder's setting rounded up to a power of two nanoseconds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache: wheelhouse::Cache<u8, u8> =
    ///     wheelhouse::Cache::builder().expiry_resolution(Duration::from_millis(10)).build();
    /// assert_eq!(cache.policy().expiry_resolution(), Duration::from_nanos(1 << 24)); // 16.8 ms
    /// ```
    pub fn expiry_resolution(&self) -> Duration {
        self.core.upkeep.resolution()
    }

    /// A picture of the timer wheel, for viewers and for the curious.
    ///
    /// Writes that still wait in a buffer are taken in first.
    ///
    /// # Panics
    ///
    /// As [`next_maintenance_in`](crate::Cache::next_maintenance_in).
    ///
    /// # Cost
    ///
    /// Takes the maintenance lock and may run bounded maintenance, as [`next_maintenance_in`](crate::Cache::next_maintenance_in)
    /// does; then copies 165 lengths.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let cache = Cache::builder().ticker(ManualTicker::new()).build();
    /// cache.insert_with_ttl("soon", 1, Duration::from_secs(10));
    /// cache.insert_with_ttl("late", 2, Duration::from_secs(3600));
    /// let wheel = cache.policy().wheel();
    /// assert_eq!(wheel.levels().len(), 5);
    /// assert_eq!(wheel.levels()[0].lens().iter().sum::<usize>(), 1);
    /// ```
    pub fn wheel(&self) -> WheelSnapshot {
        let next_maintenance_in = self.core.upkeep.next_in();
        let (now_nanos, levels) = self.core.upkeep.wheel_levels();
        WheelSnapshot {
            now_nanos,
            next_maintenance_in,
            levels: levels
                .into_iter()
                .map(|level| LevelSnapshot {
                    span: level.span,
                    hand: level.hand,
                    lens: level.lens,
                })
                .collect(),
        }
    }
}

impl<K, V, S> Policy<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// What a key's entry weighs, as the weigher said when it was written; 1 without a weigher. `None` if the key is absent or its entry
    /// has expired. Leaves no trace: no use is noted.
    ///
    /// # Panics
    ///
    /// As [`peek_ref`](crate::Cache::peek_ref).
    ///
    /// # Cost
    ///
    /// As [`peek_ref`](crate::Cache::peek_ref).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().weigher(|_: &u8, text: &&str| text.len() as u32).build();
    /// cache.insert(3, "three");
    /// assert_eq!(cache.policy().weight_of(&3), Some(5));
    /// assert_eq!(cache.policy().weight_of(&4), None);
    /// ```
    pub fn weight_of<Q>(&self, key: &Q) -> Option<u32>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let pin = self.core.upkeep.pin();
        let hit = self.core.find_live(self.core.hash(key), key, &pin).ok()?;
        Some(hit.node.weight())
    }
}

impl<K, V, S> fmt::Debug for Policy<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("max_capacity", &self.max_capacity())
            .field("eviction_policy", &self.eviction_policy())
            .field("time_to_live", &self.time_to_live())
            .field("time_to_idle", &self.time_to_idle())
            .field("expiry_resolution", &self.expiry_resolution())
            .finish()
    }
}

/// The timer wheel at a moment; see [`Policy::wheel`].
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
    /// The time to which the wheel was last advanced, in nanoseconds since the cache was built.
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

    /// How long it is until the wheel has work: `None` if it is empty, zero if something is due. As
    /// [`Cache::next_maintenance_in`](crate::Cache::next_maintenance_in); entries that are far from their deadlines have to be filed
    /// again on the way, so it may be less than what is left until the next deadline.
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

    /// The five levels, finest first.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().build();
    /// let buckets: Vec<usize> = cache.policy().wheel().levels().iter().map(|level| level.lens().len()).collect();
    /// assert_eq!(buckets, [64, 64, 32, 4, 1]);
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
/// assert_eq!(ahead, 9); // ten seconds are 9.3 buckets of 1.07 s
/// ```
#[derive(Clone, Debug)]
pub struct LevelSnapshot {
    span: Duration,
    hand: usize,
    lens: Vec<usize>,
}

impl LevelSnapshot {
    /// Width of one bucket.
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

    /// Index of the bucket whose tick holds the wheel's time.
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

    /// How many entries each bucket holds.
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
