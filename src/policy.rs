//! The settings of a cache, and its time.

use crate::cache::Cache;
use crate::contain::with_name;
use crate::eviction::EvictionPolicy;
use crate::hash::RandomState;
use equivalent::Equivalent;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, Instant};

/// The settings of a cache and its time, from [`Cache::policy`](crate::Cache::policy).
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
pub struct Policy<'a, K, V, S = RandomState> {
    pub(crate) cache: &'a Cache<K, V, S>,
}

impl<K, V, S> Cache<K, V, S> {
    /// Returns the settings in force.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.policy().max_capacity(), Some(100));
    /// ```
    pub fn policy(&self) -> Policy<'_, K, V, S> {
        Policy { cache: self }
    }
}

impl<K, V, S> Policy<'_, K, V, S> {
    /// Returns the cache's present time, as an [`Expiry`](crate::Expiry) receives it.
    ///
    /// [`Ticker`](crate::Ticker) says how it agrees with [`Instant::now`].
    ///
    /// Use it where a test or a program compares its own deadlines with what a policy was told.
    ///
    /// # Cost
    ///
    /// One reading of the clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let time = ManualTicker::new();
    /// let cache: Cache<u8, u8> = Cache::builder().ticker(time.clone()).build();
    /// let before = cache.policy().now();
    /// time.advance(Duration::from_secs(5));
    /// assert_eq!(cache.policy().now() - before, Duration::from_secs(5));
    /// ```
    pub fn now(&self) -> Instant {
        let clock = &self.cache.engine().clock;
        clock.instant(clock.now())
    }

    /// Returns the bound on the weight of all entries, which is their number unless the cache has a
    /// weigher; `None` for an unbounded cache.
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
        self.cache.engine().max_capacity()
    }

    /// Changes the bound of a cache that was built with one. After a smaller bound each maintenance
    /// pass evicts a bounded number of entries;
    /// [`run_pending_tasks`](crate::Cache::run_pending_tasks) evicts down to the bound. [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears of it.
    ///
    /// Entries of weight 0 are never evicted. The number of shards does not change; it follows from
    /// the bound that the cache was built with.
    ///
    /// # Panics
    ///
    /// If the cache was built without `max_capacity`, since its entries then have no fields for the
    /// size policy. Build with a bound of `u64::MAX` to set one later.
    ///
    /// # Cost
    ///
    /// Takes the maintenance lock. Visits all entries if one has ever weighed more than the new
    /// bound, else a few.
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
        let engine = self.cache.engine();
        if !engine.set_max_capacity(max_capacity) {
            let message = format!(
                "set_max_capacity was called with {max_capacity}, but the cache was built without a \
                 bound; set max_capacity on its builder, to u64::MAX if it is to begin unbounded"
            );
            panic!("{}", with_name(engine.name.as_deref(), &message));
        }
    }

    /// Returns the eviction policy. It has no effect on an unbounded cache.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache: Cache<u8, u8> = Cache::new(100);
    /// assert_eq!(cache.policy().eviction_policy(), EvictionPolicy::Adaptive);
    /// ```
    pub fn eviction_policy(&self) -> EvictionPolicy {
        self.cache.engine().eviction_policy
    }

    /// Returns the cache-wide limit on the time since the last write.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let cache: wheelhouse::Cache<u8, u8> =
    ///     wheelhouse::Cache::builder().time_to_live(minute).build();
    /// assert_eq!(cache.policy().time_to_live(), Some(minute));
    /// ```
    pub fn time_to_live(&self) -> Option<Duration> {
        self.cache.engine().lifetimes.time_to_live
    }

    /// Returns the cache-wide limit on the time since the last use.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let cache: wheelhouse::Cache<u8, u8> =
    ///     wheelhouse::Cache::builder().time_to_idle(minute).build();
    /// assert_eq!(cache.policy().time_to_idle(), Some(minute));
    /// ```
    pub fn time_to_idle(&self) -> Option<Duration> {
        self.cache.engine().lifetimes.time_to_idle
    }

    /// Returns the width of the finest bucket of the timer wheel: the builder's setting rounded up
    /// to a power of two nanoseconds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache: wheelhouse::Cache<u8, u8> =
    ///     wheelhouse::Cache::builder().expiry_resolution(Duration::from_millis(10)).build();
    /// assert_eq!(cache.policy().expiry_resolution(), Duration::from_nanos(1 << 24)); // 16.8 ms
    /// ```
    pub fn expiry_resolution(&self) -> Duration {
        self.cache.engine().spans.resolution()
    }

    /// Returns how many bytes the cache allocates for an entry, on average, once it is full: key
    /// and value themselves, their deadline, and all that the cache keeps beside them. What key and
    /// value have on the heap is not in it.
    ///
    /// Divide the memory that a cache may take by it, to choose
    /// [`max_capacity`](crate::CacheBuilder::max_capacity); or add it to what key and value have on
    /// the heap, in a [`weigher`](crate::CacheBuilder::weigher). It follows from the types and the
    /// settings, so an empty cache of the same settings tells it.
    ///
    /// A cache of 10,000 entries or more for each core takes between 10 % less and 10 % more. The
    /// difference comes from memory that is kept for growth. The table doubles, so it takes 13 to
    /// 26 bytes for each entry, of which 18 are counted. A sixteenth of the slots for entries is
    /// taken to be free. A smaller cache takes more, and each cache a few kilobytes for itself.
    /// Between two maintenance passes there are also removed values that are not yet freed;
    /// `max_capacity` states how many.
    ///
    /// # Cost
    ///
    /// A few instructions, with the lock of one shard.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// type Pages = Cache<u64, [u8; 100]>;
    ///
    /// let sample: Pages = Cache::new(1);
    /// let entry = sample.policy().memory_per_entry();
    /// assert!((180..240).contains(&entry)); // 108 of them are the key and the value
    /// let pages: Pages = Cache::new((64 << 20) / entry); // about 64 MiB, when it is full
    /// # assert_eq!(pages.policy().memory_per_entry(), entry);
    /// ```
    pub fn memory_per_entry(&self) -> u64 {
        let engine = self.cache.engine();
        let bytes = engine.map.memory_per_entry();
        let of_policy = match engine.max_capacity() {
            Some(_) => engine.eviction_policy.memory_per_entry(),
            None => 0.0,
        };
        (bytes + of_policy).round() as u64
    }

    /// Returns the levels of the timer wheel, the finest first: the width of a level's buckets,
    /// which of them contains the wheel's time, and how many entries each holds. For viewers.
    ///
    /// First it does what [`next_maintenance_in`](crate::Cache::next_maintenance_in) does.
    #[doc(hidden)]
    pub fn wheel(&self) -> Vec<(Duration, usize, Vec<usize>)> {
        // Links what waits in the buffers.
        _ = self.cache.engine().next_in();
        let engine = self.cache.engine();
        let levels = engine.wheel_levels().into_iter().enumerate();
        levels
            .map(|(level, (hand, entries))| (engine.spans.span(level), hand, entries))
            .collect()
    }
}

impl<K, V, S: BuildHasher> Policy<'_, K, V, S> {
    /// Returns the weight of a key's entry, which the weigher returned when the entry was written;
    /// 1 without a weigher. `None` if the key is absent or its entry has expired. Does not count as
    /// a use of the entry.
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
    /// let cache = wheelhouse::Cache::builder()
    ///     .max_capacity(1_000)
    ///     .weigher(|_: &i32, text: &&str| text.len() as u32)
    ///     .build();
    /// cache.insert(3, "three");
    /// assert_eq!(cache.policy().weight_of(&3), Some(5));
    /// assert_eq!(cache.policy().weight_of(&4), None);
    /// ```
    pub fn weight_of<Q>(&self, key: &Q) -> Option<u32>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let pin = self.cache.engine().pin();
        let hit = self
            .cache
            .engine()
            .find_live(self.cache.hash(key), key, &pin)?;
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
