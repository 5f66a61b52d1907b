//! Settings, their validation and its messages.

use crate::cache::{Cache, Core, Lifetimes, Limits, Weigher};
use crate::eviction::EvictionPolicy;
use crate::expiry::Expiry;
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

/// Room for more entries than this is not made in advance.
const MOST_INITIAL: usize = 1 << 36;

/// Width of the finest wheel bucket if none is asked for: 2^30 ns.
const DEFAULT_RESOLUTION: Duration = Duration::from_nanos(1 << 30);

/// Settings of a cache to be built; from [`Cache::builder`].
///
/// A setting given twice: the later one holds.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, RemovalCause, expiry};
///
/// let cache: Cache<String, u32> = Cache::builder()
///     .name("tokens")
///     .max_capacity(10_000)
///     .expire_after(expiry::writing(|_: &String, seconds: &u32| Some(Duration::from_secs(u64::from(*seconds)))))
///     .removal_listener(|key: &String, _: &u32, cause: RemovalCause| println!("{key} left: {cause}"))
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
    policy: Option<Box<dyn Expiry<K, V>>>,
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
    pub(crate) fn new() -> Self {
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
    /// Names the cache: the name shows in its `Debug` output, in the name of its thread, and in
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
    /// case; this saves the work.
    ///
    /// # Cost
    ///
    /// 13 to 26 bytes an entry, allocated by [`build`](Self::build): the table's. Entries
    /// themselves take theirs as they come.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().initial_capacity(100_000).build();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn initial_capacity(mut self, entries: usize) -> Self {
        self.initial_capacity = entries;
        self
    }

    /// Bounds the number of entries, or their weight if there is a [`weigher`](Self::weigher).
    /// Without it the cache is unbounded; with 0 it keeps nothing, and each insert is removed with
    /// the cause [`Size`](RemovalCause::Size) (entries of weight 0 it does keep).
    ///
    /// The bound holds after each [`run_pending_tasks`](Cache::run_pending_tasks). In between,
    /// evictions lag behind inserts by what waits in the write buffers: up to 24 entries per shard
    /// (four shards per core, fewer in a small cache) where writers find time for maintenance, up
    /// to 1,024 per shard, and 2,048 more, under the heaviest load. With a weigher, up to 1,024 per
    /// shard and 3,072 more, each as heavy as the heaviest.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u32, u32> = wheelhouse::Cache::builder().max_capacity(10).build();
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

    /// Says what each entry weighs: [`max_capacity`](Self::max_capacity) then bounds the sum of the
    /// weights instead of the number of entries. Without it, each weighs 1.
    ///
    /// Called once per write, with no lock held, before the expiry policy is asked; the weight
    /// stays until the next write of the key. An entry of weight 0 is never evicted for its size.
    /// One that is heavier than the whole cache is removed with the cause
    /// [`Size`](RemovalCause::Size), at the latest by the next maintenance, and pushes no other
    /// entry out; what it replaced has left as `Replaced`.
    ///
    /// What waits in the write buffers is counted in entries, whatever they weigh: see
    /// `max_capacity`.
    ///
    /// # Panics
    ///
    /// A panic in it passes on to the writer, and the cache is as it was.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let pages = Cache::builder()
    ///     .max_capacity(10_000)
    ///     .weigher(|url: &&str, page: &Vec<u8>| (url.len() + page.len()).try_into().unwrap_or(u32::MAX))
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

    /// Which entries a bounded cache gives up when it is full. The default is
    /// [`EvictionPolicy::Adaptive`], which adapts to the load. Without
    /// [`max_capacity`](Self::max_capacity) it has nothing to say.
    ///
    /// ```
    /// use wheelhouse::{Cache, EvictionPolicy};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().max_capacity(100).eviction_policy(EvictionPolicy::Lru).build();
    /// assert_eq!(cache.policy().eviction_policy(), EvictionPolicy::Lru);
    /// ```
    pub fn eviction_policy(mut self, policy: EvictionPolicy) -> Self {
        self.eviction_policy = policy;
        self
    }

    /// Gives each entry a lifetime of its own; see [`Expiry`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, expiry};
    ///
    /// let cache: Cache<u8, u64> = Cache::builder()
    ///     .expire_after(expiry::creating(|_: &u8, minutes: &u64| Some(Duration::from_secs(60 * minutes))))
    ///     .build();
    /// cache.insert(1, 5);
    /// assert!(cache.get_ref(&1).unwrap().time_left().unwrap() <= Duration::from_secs(300));
    /// ```
    pub fn expire_after(mut self, policy: impl Expiry<K, V>) -> Self {
        self.policy = Some(Box::new(policy));
        self
    }

    /// Bounds the time since an entry was last written. With other lifetimes: the earliest deadline
    /// holds.
    ///
    /// Zero makes every entry due at once; more than 2^62 ns (146 years) counts as that.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).time_to_live(Duration::from_secs(60)).build();
    /// cache.insert("k", 1);
    /// ticker.advance(Duration::from_secs(60));
    /// assert_eq!(cache.get("k"), None);
    /// ```
    pub fn time_to_live(mut self, life: Duration) -> Self {
        self.limits.time_to_live = Some(life);
        self
    }

    /// Bounds the time since an entry was last read or written. With other lifetimes: the earliest
    /// deadline holds.
    ///
    /// [`set_expiry`](Cache::set_expiry) counts as a use; `contains_key`, `peek_ref`, iteration and
    /// `retain` do not. Zero makes every entry due at once; more than 2^62 ns (146 years) counts as
    /// that.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).time_to_idle(Duration::from_secs(10)).build();
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
    /// old one wait for the new one. With a scheduler they do so when the time is over. None by
    /// default.
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
    /// Rounded up to a power of two nanoseconds. The default is 2^30 ns (1.07 s), the finest 2^16
    /// ns (65.536 µs), the widest 2^43 ns (2.4 hours); `build` refuses others. A finer resolution
    /// means more wake-ups for the same entries.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().expiry_resolution(Duration::from_millis(10)).build();
    /// assert_eq!(cache.policy().expiry_resolution(), Duration::from_nanos(1 << 24));
    /// ```
    pub fn expiry_resolution(mut self, width: Duration) -> Self {
        self.resolution = width;
        self
    }

    /// Takes time from this ticker instead of the processor's counter. The scheduler's default is
    /// then [`Scheduler::disabled`], since nobody knows how the ticker's time relates to that of
    /// the machine. Not together with [`coarse_reads`](Self::coarse_reads).
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

    /// Lets look-ups go by a time that a thread stores every now and then, so that a hit reads no
    /// clock. Between 1 ms and 1 s; without it, every look-up is exact.
    ///
    /// A look-up (`get`, `get_many`, `get_ref`, `peek_ref`, `contains_key`, iteration,
    /// [`Policy::weight_of`](crate::Policy::weight_of)) may then still find an entry for
    /// `staleness` after its deadline; longer by as much as the system wakes that thread later than
    /// `staleness / 2` after its time, which on a machine with too much to do, or a process that
    /// was stopped, has no bound. That goes for lives of zero, too. Nothing ever expires early.
    ///
    /// All else goes by the exact clock as before: new deadlines, updates, `set_expiry`, `remove`,
    /// `retain`, maintenance and with it the removal listener, and what an
    /// [`EntryRef`](crate::EntryRef) says about its entry. Reads that may move a deadline
    /// ([`time_to_idle`](Self::time_to_idle), a policy that answers reads) have to know the time:
    /// in a cache that has these, this setting does nothing. Beside a [`ticker`](Self::ticker) it
    /// is refused: one that is cheap to read needs no other time.
    ///
    /// # What still holds
    ///
    /// All look-ups of a cache go by one time, which never goes back. An entry that one look-up has
    /// missed, that `remove` or `set_expiry` has refused as expired, or that the listener has heard
    /// of, is not returned by any look-up that begins after that. So to its callers, each entry has
    /// one moment at which it expires; only that it may be a little after the deadline. `retain`
    /// alone, which is exact and says nothing about what it skips, may skip an entry that a look-up
    /// then still finds.
    ///
    /// # Cost
    ///
    /// A hit on an entry with a deadline saves what it cannot hide of reading the processor's
    /// counter: it took 9.7 ns in place of 14.0 in a small set, and among a million keys 98 to 104
    /// in place of 126 to 160, in three runs (2 cores of an AMD EPYC); it saves more where the
    /// system's clock has to be asked. For that, one thread serves all such caches of a process. It
    /// starts with the first, ends with the last, and wakes twice in the shortest staleness among
    /// them, whether or not anybody calls: this took 3.4 % of a core at 1 ms, 0.6 % at 10 ms, 0.2 %
    /// at 100 ms. So at 10 ms it pays from some two million hits a second on. If the thread cannot
    /// be started, this is reported once on standard error, and look-ups are exact.
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

    /// Who runs maintenance when nobody calls the cache. The default is [`Scheduler::background`].
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

    /// Hears of every value that leaves the cache; the promises are in
    /// [`listener`](crate::listener).
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use wheelhouse::{Cache, RemovalCause};
    ///
    /// let (heard, left) = mpsc::channel();
    /// let cache: Cache<u8, char> = Cache::builder()
    ///     .removal_listener(move |key: &u8, value: &char, cause: RemovalCause| heard.send((*key, *value, cause)).unwrap())
    ///     .build();
    /// cache.insert(1, 'a');
    /// cache.insert(1, 'b');
    /// cache.run_pending_tasks();
    /// assert_eq!(left.recv(), Ok((1, 'a', RemovalCause::Replaced)));
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
    /// Off: a branch for each look-up. On: a nanosecond or two, and no memory that threads share,
    /// up to two threads a core (32 at least); some more for an expired entry, whose lateness is
    /// read from the clock. About 9 KiB for the cache, more on large machines.
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

    /// Says from when on entries are stale. For a cache that loads by itself.
    pub(crate) fn set_refresh(&mut self, policy: Box<dyn Refresh<K, V>>) {
        self.refresh = Some(policy);
    }

    /// Puts the cache's name before a fault.
    pub(crate) fn fault(&self, fault: &str) -> BuildError {
        BuildError(about(self.name.as_deref(), fault))
    }

    /// Hashes keys with this instead of [`RandomState`].
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
    /// Some kilobytes. Without a custom ticker, the first cache of a process measures the
    /// processor's counter: about a millisecond, up to 200 ms on a machine that makes it hard.
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

    /// Builds the cache, or says which setting is invalid.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if `expiry_resolution` is finer or wider than the wheel can be,
    /// `initial_capacity` is beyond what memory could hold, `name` contains a NUL, or
    /// `coarse_reads` is out of its range or comes with a `ticker`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let error = Cache::<u8, u8>::builder().expiry_resolution(Duration::from_nanos(1)).try_build().unwrap_err();
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

    /// Builds the cache on a clock, with a scheduler if none was asked for.
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
        let waker = scheduler.waker(name.as_deref());
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
            reads_extend: lifetimes.reads_extend,
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
                "initial_capacity is {}, but room can be made in advance for at most {MOST_INITIAL} entries",
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
                    "coarse_reads is {staleness:?}, but may be given only without a ticker: a thread can keep the time of the machine's clock alone"
                ));
            }
        }
        Ok(())
    }
}

/// A message as it is shown: with the name of the cache that it is about, if it has one.
pub(crate) fn about(name: Option<&str>, message: &str) -> String {
    match name {
        Some(name) => format!("cache {name:?}: {message}"),
        None => message.to_string(),
    }
}

/// How many shards a cache gets: enough that writers seldom meet, few in a small cache, whose bound
/// they make inexact.
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

/// Why a cache could not be built: which setting, which value was met, what is allowed.
///
/// ```
/// let error = wheelhouse::Cache::<u8, u8>::builder().initial_capacity(usize::MAX).try_build().unwrap_err();
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
