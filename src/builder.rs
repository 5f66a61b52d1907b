//! Settings, their validation and its messages.

use crate::cache::{Cache, Core, Lifetimes, Limits, Weigher};
use crate::eviction::EvictionPolicy;
use crate::expiry::{self, Expiry, Lifetime};
use crate::hash::{self, RandomState};
use crate::listener::{Listener, RemovalCause};
use crate::maintenance::{Maintenance, Setup};
use crate::map::Map;
use crate::node::Columns;
use crate::refresh::Refresh;
use crate::scheduler::Scheduler;
use crate::shared::{Shared, SharedSetup};
use crate::stripe;
use crate::time::{Clock, Ticker, coarse};
use crate::wheel;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// `initial_capacity` makes room for at most this many entries in advance.
const MOST_INITIAL: usize = 1 << 36;

/// Width of the finest wheel bucket by default: 2^30 ns.
const DEFAULT_RESOLUTION: Duration = Duration::from_nanos(1 << 30);

/// The settings of a cache, from [`Cache::builder`].
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
    name: Option<String>,
    initial_capacity: usize,
    max_capacity: Option<u64>,
    weigher: Option<Weigher<K, V>>,
    eviction_policy: EvictionPolicy,
    policy: Option<Box<dyn Lifetime<K, V>>>,
    limits: Limits,
    resolution: Duration,
    ticker: Option<Box<dyn Ticker>>,
    coarse_reads: Option<Duration>,
    scheduler: Option<Scheduler>,
    listener: Option<Listener<K, V>>,
    record_stats: bool,
    refresh: Option<Box<dyn Refresh<K, V>>>,
    hasher: S,
}

impl<K, V> CacheBuilder<K, V, RandomState> {
    /// The settings of a cache of at most `max_capacity` entries (or of this total weight, if a
    /// [`weigher`](Self::weigher) is set), with defaults for everything else.
    ///
    /// The same as [`Cache::builder`] and then [`max_capacity`](Self::max_capacity).
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
    /// The settings of an unbounded cache, as [`Cache::builder`] returns them.
    fn default() -> Self {
        Self {
            name: None,
            initial_capacity: 0,
            max_capacity: None,
            weigher: None,
            eviction_policy: EvictionPolicy::default(),
            policy: None,
            limits: Limits::default(),
            resolution: DEFAULT_RESOLUTION,
            ticker: None,
            coarse_reads: None,
            scheduler: None,
            listener: None,
            record_stats: false,
            refresh: None,
            hasher: RandomState::new(),
        }
    }
}

impl<K, V, S> CacheBuilder<K, V, S> {
    /// Names the cache: the name appears in its `Debug` output, in the name of its thread, and in
    /// messages about it.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().name("dns").build();
    /// assert_eq!(cache.name(), Some("dns"));
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes room for this many entries in advance. The table grows without long pauses in any
    /// case; this setting saves that work.
    ///
    /// # Cost
    ///
    /// [`build`](Self::build) allocates 13 to 26 bytes of table for each entry. The memory of the
    /// entries themselves is allocated as they are inserted.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().initial_capacity(100_000).build();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn initial_capacity(mut self, entries: usize) -> Self {
        self.initial_capacity = entries;
        self
    }

    /// Bounds the number of entries, or their total weight if there is a
    /// [`weigher`](Self::weigher). Without it the cache is unbounded. With 0 the cache keeps no
    /// entry: each insert is removed with the cause [`Size`](RemovalCause::Size), except entries of
    /// weight 0, which stay.
    ///
    /// The bound holds after each [`run_pending_tasks`](Cache::run_pending_tasks). Between two
    /// maintenance passes, evictions follow inserts with a short delay. With any number of writers
    /// the cache holds at most:
    ///
    /// | | at the median | ever |
    /// |---|---|---|
    /// | entries | bound + 2 % + 64 | bound + 25 % + 256 |
    /// | values in memory, removed ones included | 1.25 × bound + 1,024 | 1.5 × bound + 2,048 |
    ///
    /// A writer that finds more than that waiting yields its processor until other threads have
    /// caught up with the maintenance. The cache frees a removed value when no reader can still
    /// hold it. If a reader holds one for more than 32 ms, for example in an
    /// [`EntryRef`](crate::EntryRef), writers stop waiting, and the second row does not hold until
    /// that reader has dropped it. The rows do not count values that wait for a slow listener.
    ///
    /// With a weigher, up to 1,024 inserts per shard (four shards per core, fewer in a small cache)
    /// and 3,072 more may exceed the bound, each as heavy as the heaviest entry.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u32, u32> = Cache::builder().max_capacity(10).build();
    /// for n in 0..100 {
    ///     cache.insert(n, n);
    /// }
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.entry_count(), 10);
    /// ```
    pub fn max_capacity(mut self, entries: u64) -> Self {
        self.max_capacity = Some(entries);
        self
    }

    /// Sets the function that weighs an entry: [`max_capacity`](Self::max_capacity) then bounds the
    /// sum of the weights instead of the number of entries. Without it, each entry weighs 1.
    ///
    /// The cache calls it once per write, with no lock held, before it asks the expiry policy. The
    /// weight stays until the next write of the key. An entry of weight 0 is never evicted for its
    /// size. An entry that is heavier than the whole cache is removed with the cause
    /// [`Size`](RemovalCause::Size), at the latest by the next maintenance pass, and evicts no
    /// other entry; the value that it replaced has left as `Replaced`.
    ///
    /// The limit on events in the write buffers counts entries, whatever they weigh: see
    /// `max_capacity`.
    ///
    /// # Panics
    ///
    /// A panic in the function reaches the writer, and the cache is as it was before the call.
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
        self.weigher = Some(Box::new(weigher));
        self
    }

    /// Sets how a bounded cache chooses the entries to evict when it is full. The default is
    /// [`EvictionPolicy::Adaptive`], which adapts to the load. Has no effect without
    /// [`max_capacity`](Self::max_capacity).
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
        self.eviction_policy = policy;
        self
    }

    /// Gives each entry a lifetime of its own; see [`Expiry`].
    ///
    /// The cache also asks the policy on each read. If reads need not move deadlines, pass
    /// [`expiry::writes_only(policy)`](crate::expiry::writes_only): hits are then cheaper.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, expiry};
    ///
    /// let cache: Cache<u8, u64> = Cache::builder()
    ///     .expire_after(expiry::creating(|_: &u8, minutes: &u64| {
    ///         Some(Duration::from_secs(60 * minutes))
    ///     }))
    ///     .build();
    /// cache.insert(1, 5);
    /// assert!(cache.get_ref(&1).unwrap().time_left().unwrap() <= Duration::from_secs(300));
    /// ```
    pub fn expire_after(mut self, policy: impl Expiry<K, V>) -> Self {
        self.policy = Some(expiry::erase(policy));
        self
    }

    /// Bounds the time since an entry was last written. If an entry has other lifetimes too, the
    /// earliest deadline counts.
    ///
    /// Zero makes every entry due at once; more than 2^62 ns (146 years) counts as that.
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
    pub fn time_to_live(mut self, life: Duration) -> Self {
        self.limits.time_to_live = Some(life);
        self
    }

    /// Bounds the time since an entry was last read or written. If an entry has other lifetimes
    /// too, the earliest deadline counts.
    ///
    /// [`set_expiry`](Cache::set_expiry) resets the idle time too; `contains_key`, `peek_ref`,
    /// iteration and `retain` do not. Zero makes every entry due at once; more than 2^62 ns (146
    /// years) counts as that.
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
    pub fn time_to_idle(mut self, life: Duration) -> Self {
        self.limits.time_to_idle = Some(life);
        self
    }

    /// Bounds how long a load holds its key. A load that is older is *overdue*: the next call that
    /// needs the key's value replaces it with a load of its own, and the calls that waited for the
    /// old one wait for the new one. With a scheduler, waiting tasks wake when the time is over.
    /// There is no time limit by default.
    ///
    /// An overdue load is not stopped. Its value is stored if no newer load has replaced it, and
    /// dropped otherwise. The time is that of the cache's ticker.
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
        self.limits.load_timeout = Some(time);
        self
    }

    /// Width of the finest bucket of the timer wheel: how late the *removal* of an expired entry
    /// may be. What reads see does not depend on it.
    ///
    /// The builder rounds it up to a power of two nanoseconds. The default is 2^30 ns (1.07 s), the
    /// finest 2^16 ns (65.536 µs), the widest 2^43 ns (2.4 hours); `build` refuses others. A finer
    /// resolution means more wake-ups for the same entries.
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
        self.resolution = width;
        self
    }

    /// Takes the time from this ticker instead of the processor's counter. The default scheduler is
    /// then [`Scheduler::disabled`], because the cache cannot know how the ticker's time relates to
    /// real time. Cannot be combined with [`coarse_reads`](Self::coarse_reads).
    ///
    /// ```
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().ticker(ManualTicker::new()).build();
    /// cache.insert(1, 1);
    /// ```
    pub fn ticker(mut self, ticker: impl Ticker) -> Self {
        self.ticker = Some(Box::new(ticker));
        self
    }

    /// Lets look-ups use a time that a thread stores at intervals, so that a hit reads no clock.
    /// `staleness` is between 1 ms and 1 s. Without this setting, every look-up is exact.
    ///
    /// A look-up (`get`, `get_many`, `get_ref`, `peek_ref`, `contains_key`, iteration,
    /// [`Policy::weight_of`](crate::Policy::weight_of)) may then still find an entry for
    /// `staleness` after its deadline, even if its lifetime was zero. If the system wakes the
    /// thread more than `staleness / 2` too late, the entry stays visible for longer. On an
    /// overloaded machine, or in a process that was stopped, this delay has no bound. Entries never
    /// expire early.
    ///
    /// Everything else uses the exact clock as before: new deadlines, updates, `set_expiry`,
    /// `remove`, `retain`, maintenance and with it the removal listener, and what an
    /// [`EntryRef`](crate::EntryRef) says about its entry. Reads that may move a deadline
    /// ([`time_to_idle`](Self::time_to_idle), a policy that answers reads) need the exact time: in
    /// a cache that has these, this setting has no effect. It cannot be combined with a
    /// [`ticker`](Self::ticker).
    ///
    /// # What still holds
    ///
    /// All look-ups of a cache use one time, which never goes back. A call may find that an entry
    /// has expired: a look-up misses it, `remove` or `set_expiry` refuses it, or the listener is
    /// notified of it. No look-up that begins later returns that entry. So each entry expires at
    /// one moment for all callers; this moment may be a little after the deadline. The exception is
    /// `retain`, which uses the exact clock: it may skip an entry that a later look-up still finds.
    ///
    /// # Cost
    ///
    /// A hit on an entry with a deadline then does not read the processor's counter; the gain is
    /// greater where the clock is a system call. One thread serves all such caches of a process. It
    /// starts with the first of them and ends with the last. It wakes twice in the shortest
    /// staleness among them, even while no cache is used. So the setting pays in a process with
    /// millions of hits a second. If the thread cannot be started, this is reported once on
    /// standard error, and look-ups are exact.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u8, u8> = Cache::builder()
    ///     .time_to_live(Duration::from_secs(60))
    ///     .coarse_reads(Duration::from_millis(10)) // an entry may be seen for 60.01 s
    ///     .build();
    /// cache.insert(1, 1);
    /// assert_eq!(cache.get(&1), Some(1));
    /// ```
    pub fn coarse_reads(mut self, staleness: Duration) -> Self {
        self.coarse_reads = Some(staleness);
        self
    }

    /// Which thread runs maintenance when no operation of the cache does.
    ///
    /// The default is [`Scheduler::background`], one thread for all caches of the process; with a
    /// custom [`ticker`](Self::ticker) it is [`Scheduler::disabled`].
    ///
    /// ```
    /// use wheelhouse::{Cache, Scheduler};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().scheduler(Scheduler::disabled()).build();
    /// cache.insert(1, 1);
    /// ```
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Sets the function that receives every value that leaves the cache;
    /// [`listener`](crate::listener) lists the guarantees.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use wheelhouse::{Cache, RemovalCause};
    ///
    /// let (sender, removals) = mpsc::channel();
    /// let cache: Cache<u8, char> = Cache::builder()
    ///     .removal_listener(move |key: &u8, value: &char, cause: RemovalCause| {
    ///         sender.send((*key, *value, cause)).unwrap();
    ///     })
    ///     .build();
    /// cache.insert(1, 'a');
    /// cache.insert(1, 'b');
    /// cache.run_pending_tasks();
    /// assert_eq!(removals.recv(), Ok((1, 'a', RemovalCause::Replaced)));
    /// ```
    pub fn removal_listener(
        mut self,
        listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static,
    ) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Counts hits, misses, removals and more, for [`Cache::stats`]. Off by default.
    ///
    /// # Cost
    ///
    /// Off: one branch per look-up. On: a few instructions per look-up, without memory that threads
    /// share, up to two threads per core (and up to 32 threads on any machine). A removal of an
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
        self.record_stats = true;
        self
    }

    /// The policy that decides when entries become stale. For a `LoadingCache`.
    pub(crate) fn set_refresh(&mut self, policy: Box<dyn Refresh<K, V>>) {
        self.refresh = Some(policy);
    }

    /// Puts the cache's name before an error message.
    pub(crate) fn fault(&self, fault: &str) -> BuildError {
        BuildError(about(self.name.as_deref(), fault))
    }

    /// Hashes keys with this hasher instead of [`RandomState`].
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
            name: self.name,
            initial_capacity: self.initial_capacity,
            max_capacity: self.max_capacity,
            weigher: self.weigher,
            eviction_policy: self.eviction_policy,
            policy: self.policy,
            limits: self.limits,
            resolution: self.resolution,
            ticker: self.ticker,
            coarse_reads: self.coarse_reads,
            scheduler: self.scheduler,
            listener: self.listener,
            record_stats: self.record_stats,
            refresh: self.refresh,
            hasher,
        }
    }
}

impl<K, V, S> CacheBuilder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds the cache.
    ///
    /// # Panics
    ///
    /// If a setting is invalid; the message names the setting, the value met and what is allowed.
    /// See [`try_build`](Self::try_build).
    ///
    /// # Cost
    ///
    /// A few kilobytes. Without a custom ticker, the first cache of a process measures the rate of
    /// the processor's counter; [`Ticker`](crate::Ticker#without-a-ticker) says how long that
    /// takes.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().build();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    #[track_caller]
    pub fn build(self) -> Cache<K, V, S> {
        match self.try_build() {
            Ok(cache) => cache,
            Err(error) => panic!("{error}"),
        }
    }

    /// Builds the cache, or returns an error that names the invalid setting.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if `expiry_resolution` is finer or wider than the wheel can be,
    /// `initial_capacity` is more than memory can hold, `name` contains a NUL, or `coarse_reads` is
    /// out of its range or combined with a `ticker`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let too_fine = Duration::from_nanos(1);
    /// let error = Cache::<u8, u8>::builder()
    ///     .expiry_resolution(too_fine)
    ///     .try_build()
    ///     .unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "expiry_resolution is 1ns, but must be between 65.536µs and 8796.093022208s"
    /// );
    /// ```
    pub fn try_build(mut self) -> Result<Cache<K, V, S>, BuildError> {
        self.validate()
            .map_err(|fault| BuildError(about(self.name.as_deref(), &fault)))?;
        let (clock, scheduler) = match self.ticker.take() {
            Some(ticker) => (Clock::custom(ticker), Scheduler::disabled()),
            None => (Clock::tsc(), Scheduler::background()),
        };
        Ok(self.build_on(clock, scheduler))
    }

    /// Builds the cache on a clock, with a scheduler if none was set.
    pub(crate) fn build_on(self, clock: Clock, scheduler: Scheduler) -> Cache<K, V, S> {
        let scheduler = self.scheduler.unwrap_or(scheduler);
        let name: Option<Box<str>> = self.name.map(Into::into);
        let lifetimes = Lifetimes::new(self.policy, self.limits);
        let columns = Columns {
            queue: self.max_capacity.is_some(),
            own: lifetimes.kept_apart,
            weight: self.weigher.is_some(),
            refresh: self.refresh.is_some(),
        };
        let map = Map::new(shards(self.max_capacity), self.initial_capacity, columns);
        let waker = scheduler.waker();
        let setup = SharedSetup {
            clock: match self.coarse_reads {
                Some(staleness) if !lifetimes.reads_extend => clock.with_coarse_glances(staleness),
                _ => clock,
            },
            max_capacity: self.max_capacity,
            eviction_policy: self.eviction_policy,
            record_stats: self.record_stats,
            name,
        };
        let shared = Shared::new(map, setup);
        let setup = Setup {
            resolution: self.resolution,
            listener: self.listener,
            weighed: self.weigher.is_some(),
            waker,
        };
        let maintenance = Maintenance::new(&shared, setup);
        let mut core = Core::new(
            shared,
            maintenance,
            lifetimes,
            self.weigher,
            self.hasher,
            !hash::fills_all_bits::<S>(),
        );
        core.refresh = self.refresh;
        Cache::from_core(core)
    }

    fn validate(&self) -> Result<(), String> {
        let rounded = self.resolution.as_nanos().next_power_of_two();
        if rounded < wheel::FINEST.as_nanos() || rounded > wheel::WIDEST.as_nanos() {
            return Err(format!(
                "expiry_resolution is {:?}, but must be between {:?} and {:?}",
                self.resolution,
                wheel::FINEST,
                wheel::WIDEST
            ));
        }
        if self.initial_capacity > MOST_INITIAL {
            return Err(format!(
                "initial_capacity is {}, but must be at most {MOST_INITIAL}",
                self.initial_capacity
            ));
        }
        if let Some(name) = &self.name
            && name.contains('\0')
        {
            return Err(format!(
                "name is {name:?}, but must be without NUL: it names a thread"
            ));
        }
        if let Some(staleness) = self.coarse_reads {
            if !(coarse::FINEST..=coarse::COARSEST).contains(&staleness) {
                return Err(format!(
                    "coarse_reads is {staleness:?}, but must be between {:?} and {:?}",
                    coarse::FINEST,
                    coarse::COARSEST
                ));
            }
            if self.ticker.is_some() {
                return Err(format!(
                    "coarse_reads is {staleness:?}, but is allowed only without a ticker: a thread can store the time of the machine's clock only"
                ));
            }
        }
        Ok(())
    }
}

/// A message with the name of its cache in front, if the cache has one.
pub(crate) fn about(name: Option<&str>, message: &str) -> String {
    match name {
        Some(name) => format!("cache {name:?}: {message}"),
        None => message.to_string(),
    }
}

/// The number of shards of a cache: enough that two writers seldom need the same one, few in a
/// small cache, because each shard makes the bound less exact.
fn shards(max_capacity: Option<u64>) -> usize {
    let most = stripe::stripes(4);
    match max_capacity {
        Some(max) => (usize::try_from(max / 64).unwrap_or(most).max(1))
            .next_power_of_two()
            .min(most),
        None => most,
    }
}

impl<K, V, S> fmt::Debug for CacheBuilder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("name", &self.name)
            .field("initial_capacity", &self.initial_capacity)
            .field("max_capacity", &self.max_capacity)
            .field("weigher", &self.weigher.is_some())
            .field("eviction_policy", &self.eviction_policy)
            .field("expire_after", &self.policy.is_some())
            .field("time_to_live", &self.limits.time_to_live)
            .field("time_to_idle", &self.limits.time_to_idle)
            .field("load_timeout", &self.limits.load_timeout)
            .field("expiry_resolution", &self.resolution)
            .field("coarse_reads", &self.coarse_reads)
            .field("scheduler", &self.scheduler)
            .field("removal_listener", &self.listener.is_some())
            .field("record_stats", &self.record_stats)
            .finish_non_exhaustive()
    }
}

/// Why a cache could not be built: the setting, the value met, and the values allowed.
///
/// ```
/// use wheelhouse::Cache;
///
/// let settings = Cache::<u8, u8>::builder().initial_capacity(usize::MAX);
/// let error = settings.try_build().unwrap_err();
/// assert!(error.to_string().starts_with("initial_capacity is 18446744073709551615"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(String);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BuildError {}
