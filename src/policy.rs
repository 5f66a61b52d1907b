//! A look at the settings of a cache in force.

use crate::builder::about;
use crate::cache::Core;
use crate::eviction::EvictionPolicy;
use crate::wheel_snapshot::WheelSnapshot;
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

    /// The bound on the weight of all entries, which is their number unless there is a weigher;
    /// `None` if there is none.
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
        self.core.shared.max_capacity()
    }

    /// Moves the bound of a cache that was built with one. A smaller bound evicts in the next
    /// passes, a bounded number of entries each; after
    /// [`run_pending_tasks`](crate::Cache::run_pending_tasks) it holds.
    ///
    /// Entries of weight 0 stay whatever the bound. How many shards the cache has was settled by
    /// the bound it was built with.
    ///
    /// # Panics
    ///
    /// If the cache was built without `max_capacity`: its entries have no place for what a size
    /// policy needs to know. Build with a bound of `u64::MAX` to set one later.
    ///
    /// # Cost
    ///
    /// The maintenance lock. Visits all entries if the new bound is below what a single entry
    /// weighs, else a few.
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
        if !self
            .core
            .maintenance
            .set_max_capacity(&self.core.shared, max_capacity)
        {
            let message = format!(
                "set_max_capacity is asked for {max_capacity}, but the cache was built without a bound; \
                 set max_capacity on its builder, to u64::MAX for none at first"
            );
            panic!("{}", about(self.core.shared.name.as_deref(), &message));
        }
    }

    /// Who goes when the cache is full; of no meaning in an unbounded one.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache: Cache<u8, u8> = Cache::new(100);
    /// assert_eq!(cache.policy().eviction_policy(), EvictionPolicy::Adaptive);
    /// ```
    pub fn eviction_policy(&self) -> EvictionPolicy {
        self.core.shared.eviction_policy
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

    /// Width of the finest bucket of the timer wheel: the builder's setting rounded up to a power
    /// of two nanoseconds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache: wheelhouse::Cache<u8, u8> =
    ///     wheelhouse::Cache::builder().expiry_resolution(Duration::from_millis(10)).build();
    /// assert_eq!(cache.policy().expiry_resolution(), Duration::from_nanos(1 << 24)); // 16.8 ms
    /// ```
    pub fn expiry_resolution(&self) -> Duration {
        self.core.maintenance.resolution()
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
    /// Takes the maintenance lock and may run bounded maintenance, as
    /// [`next_maintenance_in`](crate::Cache::next_maintenance_in) does; then copies 165 lengths.
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
        let next_maintenance_in = self.core.maintenance.next_in(&self.core.shared);
        let (now_nanos, levels) = self.core.maintenance.wheel_levels();
        WheelSnapshot::new(now_nanos, next_maintenance_in, levels)
    }
}

impl<K, V, S> Policy<'_, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// What a key's entry weighs, as the weigher said when it was written; 1 without a weigher.
    /// `None` if the key is absent or its entry has expired. Leaves no trace: no use is noted.
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
        let pin = self.core.shared.pin();
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
