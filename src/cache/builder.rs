//! The settings of a cache, and the methods that set them.

use crate::engine::Settings;
use crate::eviction::EvictionPolicy;
use crate::expiry::Expiry;
use crate::hash::RandomState;
use crate::listener::{Delivery, RemovalCause};
use crate::scheduler::Scheduler;
use crate::time::Ticker;
use std::fmt;
use std::time::Duration;

/// Width of the finest wheel bucket by default.
const DEFAULT_RESOLUTION: Duration = Duration::from_nanos(1 << 30);

/// The settings of a cache, from [`Cache::builder`](crate::Cache::builder).
///
/// If a setting is given twice, the later one counts.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, RemovalCause, expiry};
///
/// let cache: Cache<String, u32> = Cache::builder()
///     .name("tokens")
///     .max_capacity(10_000)
///     .expire_after(expiry::writing(|_: &String, seconds: &u32| {
///         Some(Duration::from_secs(u64::from(*seconds)))
///     }))
///     .removal_listener(|key: &String, _: &u32, cause: RemovalCause| {
///         println!("{key} left: {cause}");
///     })
///     .build();
/// cache.insert("t1".into(), 30);
/// assert_eq!(cache.get("t1"), Some(30));
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct CacheBuilder<K, V, S = RandomState> {
    pub(crate) settings: Settings<K, V>,
    pub(super) hasher: S,
}

impl<K, V> CacheBuilder<K, V, RandomState> {
    /// Returns the settings of a cache of at most `max_capacity` entries (or of this total weight,
    /// if a [`weigher`](Self::weigher) is set), with defaults for everything else.
    ///
    /// The same as [`Cache::builder`](crate::Cache::builder) and then
    /// [`max_capacity`](Self::max_capacity).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, CacheBuilder};
    ///
    /// let cache: Cache<u64, String> =
    ///     CacheBuilder::new(100).time_to_live(Duration::from_secs(60)).build();
    /// assert_eq!(cache.policy().max_capacity(), Some(100));
    /// ```
    pub fn new(max_capacity: u64) -> Self {
        Self::default().max_capacity(max_capacity)
    }
}

impl<K, V> Default for CacheBuilder<K, V, RandomState> {
    /// The settings of an unbounded cache, as [`Cache::builder`](crate::Cache::builder) returns
    /// them.
    fn default() -> Self {
        Self {
            settings: Settings {
                name: None,
                initial_capacity: 0,
                max_capacity: None,
                weigher: None,
                eviction_policy: None,
                eviction_seed: None,
                parts: None,
                policy: None,
                time_to_live: None,
                time_to_idle: None,
                load_timeout: None,
                resolution: DEFAULT_RESOLUTION,
                ticker: None,
                scheduler: None,
                listener: None,
                delivery: Delivery::default(),
                record_stats: false,
                refresh: None,
                forget_failure: None,
            },
            hasher: RandomState::new(),
        }
    }
}

impl<K, V, S> CacheBuilder<K, V, S> {
    /// Names the cache: the name appears in its `Debug` output, in the names of its reload threads,
    /// and in messages about it.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses a name with a NUL.
    ///
    /// # Cost
    ///
    /// The name itself; calls do not read it.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().name("dns").build();
    /// assert_eq!(cache.name(), Some("dns"));
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Makes room for this many entries in advance. The table grows without long pauses in any
    /// case; this setting saves the work of growing. Linux often grants more memory than there is,
    /// and kills the process that uses it: ask for no more.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) returns one if the allocator refuses the memory.
    ///
    /// # Cost
    ///
    /// [`build`](Self::build) allocates 13 to 26 bytes of table for each entry. It does not write
    /// to a large table: most systems provide its pages as entries come. The memory of the entries
    /// themselves is allocated as they are inserted.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().initial_capacity(100_000).build();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn initial_capacity(mut self, entries: usize) -> Self {
        self.settings.initial_capacity = entries;
        self
    }

    /// Bounds the number of entries, or their total weight if there is a
    /// [`weigher`](Self::weigher). Without `max_capacity` the cache is unbounded. With 0 the cache
    /// keeps no entry: each insert is removed with the cause [`Size`](RemovalCause::Size), except
    /// entries of weight 0, which stay.
    ///
    /// The bound holds after each [`run_pending_tasks`](crate::Cache::run_pending_tasks). Between
    /// two maintenance passes, evictions follow inserts with a short delay. With any number of
    /// writers the cache holds at most:
    ///
    /// | | |
    /// |---|---|
    /// | entries | bound + 25 % + 256 |
    /// | removed values that are not yet freed, beside them | 1.25 × bound + 1,024 |
    ///
    /// A writer that finds too much maintenance waiting takes part in it. The cache frees a removed
    /// value when no reader can still hold it. If a reader holds one for more than 8 ms, for
    /// example in an [`EntryRef`](crate::EntryRef), writers stop waiting. Until it is dropped, the
    /// second row does not hold. Values that wait for a slow listener are not counted.
    ///
    /// # Memory
    ///
    /// Bytes that a full cache allocates for each entry, key and value included, without what these
    /// have on the heap. They are the same with or without a deadline, and nearly so on targets of
    /// 32 bits:
    ///
    /// | size of key and value | without a bound | with `max_capacity` | and with weigher, policy and idle limit |
    /// |---|---|---|---|
    /// | 8 + 8 | 96 | 121 | 134 |
    /// | 24 + 24 | 135 | 160 | 173 |
    /// | 24 + 64 | 180 | 206 | 218 |
    /// | 8 + 128 | 225 | 251 | 264 |
    ///
    /// So count the sizes of key and value, about 80 bytes, and 25 more in a bounded cache (17 with
    /// [`EvictionPolicy::Lru`]). [`Policy::memory_per_entry`](crate::Policy::memory_per_entry)
    /// returns the figure for any types and settings, and says how exact it is.
    ///
    /// Chunks of memory serve new entries again, and go back to the allocator when all their
    /// entries have left. So a few remaining entries can hold most of the memory: the last 500 of
    /// 500,000 held 46 of 74 MB. It is used again as the cache grows.
    ///
    /// # Weight
    ///
    /// With a weigher, the weight may exceed the bound by `1,024 × shards + 3,072` times the weight
    /// of the heaviest entry. A cache has four shards per core, rounded up to a power of two and at
    /// most 1,024; a small one has fewer.
    ///
    /// # Cost
    ///
    /// Some 25 bytes for each entry. Reads are noted for the size policy, and writers take part in
    /// evictions.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().max_capacity(10).build();
    /// for n in 0..100 {
    ///     cache.insert(n, n);
    /// }
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.entry_count(), 10);
    /// ```
    pub fn max_capacity(mut self, entries: u64) -> Self {
        self.settings.max_capacity = Some(entries);
        self
    }

    /// Sets the function that weighs an entry: [`max_capacity`](Self::max_capacity) then bounds the
    /// sum of the weights instead of the number of entries. Without it, each entry weighs 1.
    ///
    /// The cache calls it once per write, with no lock held, before it asks the expiry policy. It
    /// also does so for a `replace_if` without a match, and for a load whose value is not stored.
    /// The weight stays until the next write of the key. An entry of weight 0 is never evicted for
    /// its size. An entry that is heavier than the whole cache is removed with the cause
    /// [`Size`](RemovalCause::Size), at the latest by the next maintenance pass, and evicts no
    /// other entry. The value that it replaced has left as `Replaced`.
    ///
    /// To bound the memory, add what the cache itself needs for each entry
    /// ([`Policy::memory_per_entry`](crate::Policy::memory_per_entry)) to what key and value have
    /// on the heap.
    ///
    /// The limits on waiting maintenance count entries, whatever they weigh: see `max_capacity`.
    ///
    /// # Errors
    ///
    /// Without a bound, [`try_build`](Self::try_build) refuses it: give `u64::MAX` to a cache that
    /// weighs entries and evicts none.
    ///
    /// # Panics
    ///
    /// A panic in the function reaches the writer, and the cache is as it was before the call.
    ///
    /// # Cost
    ///
    /// One call for each write, and four bytes for each entry.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let pages = Cache::builder()
    ///     .max_capacity(10_000)
    ///     .weigher(|url: &&str, page: &Vec<u8>| {
    ///         (url.len() + page.len()).try_into().unwrap_or(u32::MAX)
    ///     })
    ///     .build();
    /// pages.insert("/", vec![0; 6_000]);
    /// pages.insert("/all", vec![0; 20_000]);
    /// pages.run_pending_tasks();
    /// assert!(pages.contains_key("/") && !pages.contains_key("/all"));
    /// assert_eq!(pages.weighted_size(), 6_001);
    /// ```
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> u32 + Send + Sync + 'static) -> Self {
        self.settings.weigher = Some(Box::new(weigher));
        self
    }

    /// Sets how a bounded cache chooses the entries to evict when it is full. The default is
    /// [`EvictionPolicy::Adaptive`], which adapts to the workload.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses it without [`max_capacity`](Self::max_capacity).
    ///
    /// # Cost
    ///
    /// `Adaptive` keeps 8 bytes for each entry and 4 KiB for each cache. `Lru` keeps nothing beside
    /// the entries, but moves an entry at each use that it hears of.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder()
    ///     .max_capacity(100)
    ///     .eviction_policy(EvictionPolicy::Lru)
    ///     .build();
    /// assert_eq!(cache.policy().eviction_policy(), EvictionPolicy::Lru);
    /// ```
    pub fn eviction_policy(mut self, policy: EvictionPolicy) -> Self {
        self.settings.eviction_policy = Some(policy);
        self
    }

    /// Seeds the random choices of [`EvictionPolicy::Adaptive`], so that two runs of a simulation
    /// agree. By default each cache draws a seed, which cannot be guessed. Under
    /// [`EvictionPolicy::Lru`] nothing is random.
    ///
    /// The policy also knows keys by their hashes, and a cache has shards by the number of
    /// processors. So two caches evict the same keys in the same order if
    ///
    /// - they have the same settings and the same seed,
    /// - their [`hasher`](Self::hasher) gives the same hashes, which the default one does not,
    /// - time is that of a [`ManualTicker`](crate::ManualTicker), and no
    ///   [`scheduler`](Self::scheduler) runs, as is the default with a ticker,
    /// - one thread makes the same calls, and a removal listener, if there is one, is called by
    ///   that thread ([`Delivery::Caller`]),
    /// - and both run on machines with as many processors.
    ///
    /// Do not set it in production: an attacker who knows the seed and the hasher can choose keys
    /// that the policy treats badly.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses it without [`max_capacity`](Self::max_capacity).
    ///
    /// # Cost
    ///
    /// None.
    ///
    /// ```
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let simulate = || {
    ///     let cache: Cache<u64, u64, BuildHasherDefault<DefaultHasher>> = Cache::builder()
    ///         .max_capacity(100)
    ///         .eviction_seed(7)
    ///         .hasher(BuildHasherDefault::default())
    ///         .ticker(ManualTicker::new())
    ///         .build();
    ///     (0..10_000).filter(|n| cache.get_with(n * n % 317, || *n) == *n).count()
    /// };
    /// assert_eq!(simulate(), simulate());
    /// ```
    pub fn eviction_seed(mut self, seed: u64) -> Self {
        self.settings.eviction_seed = Some(seed);
        self
    }

    /// Sets how many parts the cache has, each with a maintenance lock of its own: the power of two
    /// at or above `parts`, up to 16. For tests, which need the same number on each machine.
    #[doc(hidden)]
    pub fn parts(mut self, parts: usize) -> Self {
        self.settings.parts = Some(parts);
        self
    }

    /// Gives each entry a lifetime of its own; see [`Expiry`].
    ///
    /// A policy that has a method for reads is asked about each hit, which makes hits slower. If
    /// reads need not move deadlines, leave the method out, or pass
    /// [`expiry::writes_only(policy)`](crate::expiry::writes_only).
    ///
    /// # Panics
    ///
    /// This method does not. A panic in the policy reaches the caller of the cache, which is as it
    /// was before the call.
    ///
    /// # Cost
    ///
    /// A call of the policy for each write, and for each hit if it has a method for reads. A hit on
    /// which the policy moves the deadline takes a lock if there is a `time_to_live` or a
    /// `time_to_idle`, too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, expiry};
    ///
    /// let cache: Cache<u64, u64> = Cache::builder()
    ///     .expire_after(expiry::creating(|_: &u64, minutes: &u64| {
    ///         Some(Duration::from_secs(60 * minutes))
    ///     }))
    ///     .build();
    /// cache.insert(1, 5);
    /// assert!(cache.get_ref(&1).unwrap().time_left().unwrap() <= Duration::from_secs(300));
    /// ```
    pub fn expire_after(mut self, policy: impl Expiry<K, V>) -> Self {
        self.settings.policy = Some(Box::new(policy));
        self
    }

    /// Bounds the time since an entry was last written. If an entry has other lifetimes too, the
    /// earliest deadline counts.
    ///
    /// Zero makes every entry due at once. A lifetime above the [longest one](Expiry#answers) is
    /// cut to it.
    ///
    /// # Cost
    ///
    /// A write reads the clock in any case. A hit compares the deadline with the time, as with any
    /// lifetime.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder()
    ///     .ticker(ticker.clone())
    ///     .time_to_live(Duration::from_secs(60))
    ///     .build();
    /// cache.insert("k", 1);
    /// ticker.advance(Duration::from_secs(60));
    /// assert_eq!(cache.get("k"), None);
    /// ```
    pub fn time_to_live(mut self, lifetime: Duration) -> Self {
        self.settings.time_to_live = Some(lifetime);
        self
    }

    /// Bounds the time since an entry was last read or written. If an entry has other lifetimes
    /// too, the earliest deadline counts.
    ///
    /// [`set_expiry`](crate::Cache::set_expiry) resets the idle time too; `contains_key`,
    /// `peek_ref`, iteration and `retain` do not. Zero makes every entry due at once. A
    /// lifetime above the [longest one](Expiry#answers) is cut to it.
    ///
    /// Without a ticker, a lifetime of ten seconds or more may count from up to 0.1 s after the
    /// read. So a key that is read often is written once in 50 ms, not once per read. A shorter
    /// lifetime counts from the read, or from one up to 4.1 µs before.
    ///
    /// # Cost
    ///
    /// A hit stores the new deadline in the entry, without a lock; a key that is read often seldom,
    /// as said above. An entry takes eight bytes more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder()
    ///     .ticker(ticker.clone())
    ///     .time_to_idle(Duration::from_secs(10))
    ///     .build();
    /// cache.insert("k", 1);
    /// ticker.advance(Duration::from_secs(9));
    /// assert_eq!(cache.get("k"), Some(1));
    /// ticker.advance(Duration::from_secs(9));
    /// assert_eq!(cache.get("k"), Some(1));
    /// ticker.advance(Duration::from_secs(10));
    /// assert_eq!(cache.get("k"), None);
    /// ```
    pub fn time_to_idle(mut self, lifetime: Duration) -> Self {
        self.settings.time_to_idle = Some(lifetime);
        self
    }

    /// Bounds how long a load holds its key. A load that takes longer is *overdue*. The next call
    /// that needs the key starts a load of its own, which replaces it. Calls that waited for the
    /// old load then wait for the new one. Waiting threads need no help to do so: they look once in
    /// 50 ms at least. Waiting tasks need a scheduler. By default there is no limit.
    ///
    /// An overdue load is not stopped. Its value is stored if no newer load has replaced it, and
    /// dropped otherwise. The time is measured by the cache's clock.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses zero.
    ///
    /// # Cost
    ///
    /// A call that meets a running load compares its age with the limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, Leased, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache: Cache<&str, u32> = Cache::builder()
    ///     .ticker(ticker.clone())
    ///     .load_timeout(Duration::from_secs(5))
    ///     .build();
    /// let stuck = cache.lease("k"); // its holder never fills it
    /// ticker.advance(Duration::from_secs(6));
    /// assert_eq!(cache.get_with("k", || 1), 1);
    /// # drop(stuck);
    /// ```
    pub fn load_timeout(mut self, time: Duration) -> Self {
        self.settings.load_timeout = Some(time);
        self
    }

    /// Sets the width of the finest bucket of the timer wheel: how late the *removal* of an expired
    /// entry may be. What reads see does not depend on it.
    ///
    /// The builder rounds it up to a power of two nanoseconds. The default is 2^30 ns (1.07 s), the
    /// finest 2^16 ns (65.536 µs), the widest 2^43 ns (2.4 hours). A finer resolution means more
    /// wake-ups for the same entries.
    ///
    /// # Errors
    ///
    /// [`try_build`](Self::try_build) refuses other widths.
    ///
    /// # Cost
    ///
    /// At most one wake-up for each stretch of this width in which entries expire.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u8, u8> = Cache::builder()
    ///     .expiry_resolution(Duration::from_millis(10))
    ///     .build();
    /// assert_eq!(cache.policy().expiry_resolution(), Duration::from_nanos(1 << 24));
    /// ```
    pub fn expiry_resolution(mut self, width: Duration) -> Self {
        self.settings.resolution = width;
        self
    }

    /// Takes the time from this ticker instead of the program's monotonic clock, the one behind
    /// [`Instant`](std::time::Instant). The default scheduler is then [`Scheduler::disabled`],
    /// because the cache cannot know how the ticker's time relates to real time.
    ///
    /// # Panics
    ///
    /// This method does not. A panic in the ticker reaches the caller of the cache, sometimes after
    /// the write was made: see [When callbacks misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// A call of the ticker for each reading of the clock.
    ///
    /// ```
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().ticker(ManualTicker::new()).build();
    /// cache.insert(1, 1);
    /// ```
    pub fn ticker(mut self, ticker: impl Ticker) -> Self {
        self.settings.ticker = Some(Box::new(ticker));
        self
    }

    /// Sets which thread runs maintenance when no operation of the cache does.
    ///
    /// The default is [`Scheduler::background`], one thread for all caches of the process; with a
    /// custom [`ticker`](Self::ticker) it is [`Scheduler::disabled`].
    ///
    /// # Cost
    ///
    /// [`Scheduler`] states that of each.
    ///
    /// ```
    /// use wheelhouse::{Cache, Scheduler};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().scheduler(Scheduler::disabled()).build();
    /// cache.insert(1, 1);
    /// ```
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.settings.scheduler = Some(scheduler);
        self
    }

    /// Sets the function that is called for every value that leaves the cache: soon, on a thread
    /// that all caches share. [`delivery`](Self::delivery) chooses another thread, or lets the call
    /// that removes an entry wait for the listener. A listener is not `async`: see [listeners that
    /// need a runtime](Delivery#listeners-that-need-a-runtime).
    ///
    /// [`listener`](crate::listener) lists the guarantees.
    ///
    /// # Panics
    ///
    /// This method does not. A panic in the listener is caught, and counted with
    /// [`record_stats`](Self::record_stats). It reaches no caller.
    ///
    /// # Cost
    ///
    /// 16 bytes for each removal until the listener has heard of it. Key and value stay in memory
    /// that long.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use wheelhouse::{Cache, RemovalCause};
    ///
    /// let (sender, removals) = mpsc::channel();
    /// let cache: Cache<u8, u8> = Cache::builder()
    ///     .removal_listener(move |key: &u8, value: &u8, cause: RemovalCause| {
    ///         sender.send((*key, *value, cause)).unwrap();
    ///     })
    ///     .build();
    /// cache.insert(1, 10);
    /// cache.insert(1, 20);
    /// cache.run_pending_tasks();
    /// assert_eq!(removals.recv(), Ok((1, 10, RemovalCause::Replaced)));
    /// ```
    #[doc(alias = "eviction_listener")]
    pub fn removal_listener(
        mut self,
        listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static,
    ) -> Self {
        self.settings.listener = Some(Box::new(listener));
        self
    }

    /// Sets which thread calls the [`removal_listener`](Self::removal_listener), and whether calls
    /// wait for it; [`Delivery`] says which to choose, and which locks a program may hold. The
    /// default is [`Delivery::Background`]. Has no effect without a listener.
    ///
    /// # Cost
    ///
    /// With [`Delivery::Caller`], a call that removes an entry waits for the listener; with
    /// [`Delivery::Background`], none does.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::sync::Arc;
    /// use wheelhouse::{Cache, Delivery, RemovalCause};
    ///
    /// let left = Arc::new(AtomicU32::new(0));
    /// let count = Arc::clone(&left);
    /// let cache: Cache<u8, u8> = Cache::builder()
    ///     .delivery(Delivery::Caller)
    ///     .removal_listener(move |_: &u8, _: &u8, _: RemovalCause| {
    ///         count.fetch_add(1, Ordering::Relaxed);
    ///     })
    ///     .build();
    /// cache.insert(1, 10);
    /// cache.insert(1, 20);
    /// assert_eq!(left.load(Ordering::Relaxed), 1); // heard before the call returned
    /// ```
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.settings.delivery = delivery;
        self
    }

    /// Counts hits, misses, removals and more, for [`Cache::stats`](crate::Cache::stats). Off by
    /// default.
    ///
    /// # Cost
    ///
    /// Off: one branch per look-up. On: a few instructions per look-up. With at most two threads
    /// per core, or 32 if that is more, each thread counts in memory of its own. A removal of an
    /// expired entry also reads the clock, for its lateness. The counters take about 9 KiB per
    /// cache, more on large machines.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert("ada", 1815);
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// assert_eq!(cache.stats().hits(), 1);
    /// ```
    pub fn record_stats(mut self) -> Self {
        self.settings.record_stats = true;
        self
    }

    /// Hashes keys with this hasher instead of [`RandomState`].
    ///
    /// # Panics
    ///
    /// This method does not. A panic in the hasher reaches the caller of the cache, which is as it
    /// was before the call.
    ///
    /// # Cost
    ///
    /// The cache mixes the hashes of a hasher that it does not know, by one multiplication.
    ///
    /// ```
    /// use std::collections::hash_map::RandomState;
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u8, u8, RandomState> = Cache::builder().hasher(RandomState::new()).build();
    /// cache.insert(1, 1);
    /// assert_eq!(cache.get(&1), Some(1));
    /// ```
    pub fn hasher<H>(self, hasher: H) -> CacheBuilder<K, V, H> {
        CacheBuilder {
            settings: self.settings,
            hasher,
        }
    }
}

impl<K, V, S> fmt::Debug for CacheBuilder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        f.debug_struct("CacheBuilder")
            .field("name", &settings.name)
            .field("initial_capacity", &settings.initial_capacity)
            .field("max_capacity", &settings.max_capacity)
            .field("weigher", &settings.weigher.is_some())
            .field("eviction_policy", &settings.eviction_policy)
            .field("eviction_seed", &settings.eviction_seed)
            .field("expire_after", &settings.policy.is_some())
            .field("time_to_live", &settings.time_to_live)
            .field("time_to_idle", &settings.time_to_idle)
            .field("load_timeout", &settings.load_timeout)
            .field("expiry_resolution", &settings.resolution)
            .field("scheduler", &settings.scheduler)
            .field("removal_listener", &settings.listener.is_some())
            .field("delivery", &settings.delivery)
            .field("record_stats", &settings.record_stats)
            .finish_non_exhaustive()
    }
}
