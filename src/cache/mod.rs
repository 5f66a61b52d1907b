//! The handle of a cache, and the settings from which one is built.
//!
//! A handle hashes keys. What all handles share is a [`House`]: the engine, and the hasher at its
//! door. Below this module no type knows the hasher.

mod build;
mod builder;

pub use build::BuildError;
pub use builder::CacheBuilder;

use crate::contain::let_go;
use crate::engine::{Engine, LifetimeSource, WeakHandle};
use crate::flight::RevokedBy;
use crate::hash::{self, RandomState};
use crate::node::NodePtr;
use crate::operations::{Condition, EntryRef};
use crate::scheduler::CacheWork;
use crate::stats::Stats;
use crate::sync::Ordering;
use equivalent::Equivalent;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A concurrent cache in which every entry may have a deadline of its own.
///
/// A `Cache` is a handle: a clone shares the same entries. When the drop of the last handle
/// returns, the listener has been called for all earlier removals, and all entries have been
/// dropped, without notifications. [Dropping the last handle](crate#dropping-the-last-handle) says
/// what the drop waits for.
///
/// # When the policy is asked
///
/// | operation | key absent | present | expired, not yet removed |
/// |---|---|---|---|
/// | [`insert`](Self::insert), a compute of [`entry`](Self::entry) that stores a value without a lifetime | [create] | [update] with the new value | the listener gets the old value as `Expired`; then create |
/// | [`get_with`](Self::get_with), [`entry`](Self::entry) with `or_insert…`, [`get_all_with`](Self::get_all_with), [`lease`](Self::lease) | create, when the load stores its value | [read] | the listener gets the old value as `Expired`; create, when the load stores its value |
/// | the same for a value with a lifetime of its own, such as [`fill_with_ttl`](crate::Lease::fill_with_ttl) | the given lifetime | read | the listener gets the old value as `Expired`; the given lifetime |
/// | [`insert_with_ttl`](Self::insert_with_ttl), [`insert_until`](Self::insert_until), [`Op::PutWithTtl`](crate::compute::Op), [`Op::PutUntil`](crate::compute::Op) | the given lifetime | the given lifetime | the listener gets the old value as `Expired`; the given lifetime |
/// | [`replace_if`](Self::replace_if) | nothing is stored | update, if the old value matches | nothing is stored |
/// | a reload of a [`LoadingCache`](crate::LoadingCache) | create, if the entry was evicted meanwhile | update | create |
/// | [`get`](Self::get), [`get_many`](Self::get_many), [`get_ref`](Self::get_ref) | – | [read] | not asked: a miss |
/// | [`peek_ref`](Self::peek_ref), [`contains_key`](Self::contains_key), [`iter`](Self::iter), [`retain`](Self::retain) | – | not asked | skipped |
/// | [`set_expiry`](Self::set_expiry) | `false` | the deadline is set, `true` | `false` |
/// | [`invalidate`](Self::invalidate), [`remove`](Self::remove) | – | not asked; cause `Explicit` | cause `Expired`; `remove` returns `None` |
///
/// Without a policy and without [`time_to_live`](CacheBuilder::time_to_live), the lifetime that
/// [`insert_with_ttl`](Self::insert_with_ttl), [`insert_until`](Self::insert_until),
/// `or_insert_with_ttl` or [`set_expiry`](Self::set_expiry) gave to an entry stays or goes:
///
/// | call on a present entry | its deadline |
/// |---|---|
/// | `insert` | is set anew: the entry has no lifetime of its own, as after `SET` in Redis |
/// | `insert_with_ttl`, `insert_until`, `Op::PutWithTtl`, `Op::PutUntil` | is set anew: the given lifetime |
/// | `and_upsert_with`, `Op::Put`, `replace_if` | stays, as after `INCR` in Redis: a counter ends with its window |
/// | `get`, and every other read | stays |
///
/// If `insert` must keep the deadline too, pass [`expiry::never()`](fn@crate::expiry::never) to
/// [`expire_after`](CacheBuilder::expire_after).
///
/// [create]: crate::Expiry::expire_after_create
/// [update]: crate::Expiry::expire_after_update
/// [read]: crate::Expiry::expire_after_read
///
/// # Which of two equal keys stays
///
/// Keys that are equal may differ in what `Eq` does not compare. `insert` and its relatives, a
/// compute, a load and a reload store the key that they were called with. A listener gets the key
/// that was stored with the value that has left. [`replace_if`](Self::replace_if) keeps the stored
/// key. On a hit, [`entry`](Self::entry) returns the caller's key, and [`get_ref`](Self::get_ref)
/// shows the stored one.
///
/// # Panics in user code
///
/// A panic in [`Expiry`](crate::Expiry), the weigher, `Hash`, `Eq` or `Clone` reaches the caller.
/// The cache is as if the call had not been made, but if `Clone` panics, a read has counted. No
/// lock is held while they run; they may call the same cache. A panic in a
/// [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) may reach the caller after the write was
/// made. All cases are described under [When callbacks misbehave](crate#when-callbacks-misbehave).
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::Cache;
///
/// let orders: Cache<u64, &str> = Cache::builder().name("orders").build();
/// let shared = orders.clone();
/// shared.insert_with_ttl(7, "two tickets", Duration::from_secs(900));
/// assert_eq!(orders.remove(&7), Some("two tickets"));
/// ```
pub struct Cache<K, V, S = RandomState> {
    house: Arc<House<K, V, S>>,
}

impl<K, V, S> Clone for Cache<K, V, S> {
    /// Another handle to the same entries.
    fn clone(&self) -> Self {
        // The reference first: it aborts the process before the count could overflow.
        let house = Arc::clone(&self.house);
        // Relaxed: the handle that is cloned keeps the count above zero.
        house.engine.handles.fetch_add(1, Ordering::Relaxed);
        Self { house }
    }
}

impl<K, V, S> Drop for Cache<K, V, S> {
    fn drop(&mut self) {
        let engine = self.engine();
        // AcqRel: what was done through the other handles happens before the end.
        if engine.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            engine.waking.cache.close();
        }
    }
}

impl<K, V, S> Default for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    /// A cache without a bound and with all settings at their defaults, as
    /// [`builder`](Cache::builder)`().build()` makes it.
    fn default() -> Self {
        Cache::builder().hasher(S::default()).build()
    }
}

impl<K: Hash + Eq + 'static, V: 'static, S: BuildHasher> Extend<(K, V)> for Cache<K, V, S> {
    /// Inserts each pair, as [`insert`](Cache::insert) does. `Extend` needs `&mut`: where the cache
    /// is shared, extend a clone of the handle.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.clone().extend([("ada", 1815), ("alan", 1912)]);
    /// assert_eq!(cache.get("alan"), Some(1912));
    /// ```
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        for (key, value) in pairs {
            self.insert(key, value);
        }
    }
}

impl<K, V, S> FromIterator<(K, V)> for Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    /// A cache of these pairs, without a bound and with all settings at their defaults. For other
    /// settings, build the cache and [`extend`](Extend::extend) it.
    ///
    /// ```
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<_, _> = [("ada", 1815), ("alan", 1912)].into_iter().collect();
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// ```
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        let mut cache: Self = Cache::builder()
            .initial_capacity(pairs.size_hint().0)
            .hasher(S::default())
            .build();
        cache.extend(pairs);
        cache
    }
}

// A cache is whole after a panic in user code (callbacks.md), so a handle may cross `catch_unwind`.
// Keys, values and hasher must be unwind safe themselves. Only the cache reaches the state of
// policy, weigher, listener, ticker and alarm, and it keeps using them.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> UnwindSafe for Cache<K, V, S> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for Cache<K, V, S> {}

impl<K, V> Cache<K, V, RandomState> {
    /// Returns the settings of a cache without a bound, to be changed and then built.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u64, String> =
    ///     Cache::builder().time_to_live(Duration::from_secs(60)).build();
    /// cache.insert(1, "one".into());
    /// assert_eq!(cache.get(&1).as_deref(), Some("one"));
    /// ```
    pub fn builder() -> CacheBuilder<K, V, RandomState> {
        CacheBuilder::default()
    }
}

impl<K, V> Cache<K, V, RandomState>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Builds a cache of at most this many entries, with all other settings at their defaults.
    ///
    /// # Cost
    ///
    /// As [`build`](CacheBuilder::build): some allocations, whatever the capacity. The memory of
    /// the entries is allocated as they are inserted.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("ada", 1815);
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// ```
    pub fn new(max_capacity: u64) -> Self {
        Self::builder().max_capacity(max_capacity).build()
    }
}

impl<K: Hash + Eq + 'static, V: 'static, S: BuildHasher> Cache<K, V, S> {
    /// Returns the value of a key, cloned; `None` if the key is absent or its entry has expired.
    ///
    /// Counts as a read: the policy's [`expire_after_read`](crate::Expiry::expire_after_read) is
    /// asked, and the use is noted for the size policy. If values are expensive to clone, store an
    /// `Arc` or use [`get_ref`](Self::get_ref).
    ///
    /// The cache decides whether the entry has expired when it finds it. `Clone` and the policy run
    /// later, and may end after the deadline.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the policy panics; the deadline is then unchanged. If the
    /// value's `Clone` panics: the read may have moved the deadline before.
    ///
    /// # Cost
    ///
    /// No allocation. If the entry has a deadline, mostly one reading of the clock. The read takes
    /// a lock if it moves the deadline to an earlier moment or to never, and when a thread first
    /// uses the cache. In a cache that also has a `time_to_live` or a `time_to_idle`, each move by
    /// a policy takes it. It writes shared memory in these cases:
    ///
    /// - it moves the deadline, or finds an expired entry, or renews the exact clock;
    /// - it is the first read of the entry for a while, or any read under
    ///   [`Lru`](crate::EvictionPolicy::Lru) or in a cache of up to 64 entries;
    /// - [`record_stats`](crate::CacheBuilder::record_stats) counts it.
    ///
    /// If the read buffer of a bounded cache is full, the read may drain it. With
    /// [`Scheduler::disabled`](crate::Scheduler::disabled), a read that finds an expired entry also
    /// expires a few others, and with [`Delivery::Caller`](crate::Delivery::Caller) it waits for
    /// the listener.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// cache.insert("ada".to_string(), 1815);
    /// assert_eq!(cache.get("ada"), Some(1815));
    /// assert_eq!(cache.get("bob"), None);
    /// ```
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        V: Clone,
    {
        let clone = |entry: EntryRef<'_, K, V>, _| entry.value().clone();
        self.engine().read(self.hash(key), key, clone)
    }

    /// Stores a value. The listener gets the old value, if there is one, with the cause `Replaced`,
    /// or `Expired` if it had expired. [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when that is, and when it is
    /// dropped. With [`Delivery::Caller`](crate::Delivery) the call waits for the listener (for
    /// limits see `Delivery`).
    ///
    /// The cache asks the policy for the lifetime of a new entry, or of the updated one. One
    /// reading of the clock, taken after the weigher has run, decides: the policy is told this
    /// instant, the deadline counts from it, and the value counts as written then.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq`, the weigher or the policy panics. The cache is then as before.
    ///
    /// # Cost
    ///
    /// Allocates only when the table or the memory for entries must grow. Takes the lock of the
    /// key's *shard*, one of several parts of the map, for a moment, and mostly reads the clock
    /// once. When enough writes wait in that shard, runs a small bounded maintenance pass. In a
    /// cache of up to 64 entries (512 under `Lru`) each write runs one, and waits up to 50 ms for
    /// that of another thread. For large values see [limits](crate#limits).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("ada", 1815);
    /// cache.insert("ada", 1852);
    /// assert_eq!(cache.get("ada"), Some(1852));
    /// ```
    pub fn insert(&self, key: K, value: V) {
        self.engine().put(self.hash(&key), key, value, None);
    }

    /// Stores a value that lives for `ttl` from now. The policy is not asked. Works on any cache.
    ///
    /// With a `ttl` of zero, no read finds the value, and the listener gets it as `Expired`. A
    /// lifetime above the [longest one](crate::Expiry#answers) is cut to it. Cache-wide limits
    /// still hold: the earliest deadline counts. The listener hears of the old value as after an
    /// [`insert`](Self::insert): see [when](crate#when-is-a-removal-told-and-a-value-dropped).
    ///
    /// Later reads and updates ask the policy as usual, and may move this deadline. Without a
    /// policy, [one table](Self#when-the-policy-is-asked) says which later call keeps it.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the weigher panics. The cache is then as before.
    ///
    /// # Cost
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).build();
    /// cache.insert_with_ttl("k", 1, Duration::from_secs(5));
    /// ticker.advance(Duration::from_nanos(4_999_999_999));
    /// assert_eq!(cache.get("k"), Some(1));
    /// ticker.advance(Duration::from_nanos(1));
    /// assert_eq!(cache.get("k"), None);
    /// ```
    pub fn insert_with_ttl(&self, key: K, value: V, ttl: Duration) {
        self.engine().put(self.hash(&key), key, value, Some(ttl));
    }

    /// Stores a value that ends at exactly `deadline`. The policy is not asked. Works on any cache.
    ///
    /// Count the instant from [`Instant::now`]. With a ticker, count it from this cache's
    /// [`Policy::now`](crate::Policy::now) instead. If it has come, the value is due at once: no
    /// read finds it, and the listener gets it as `Expired`. For a suspended machine see
    /// [`Ticker`](crate::Ticker#without-a-ticker). [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when it hears of the old
    /// value. For all else see [`insert_with_ttl`](Self::insert_with_ttl).
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the weigher panics. The cache is then as before.
    ///
    /// # Cost
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).build();
    /// let deadline = cache.policy().now() + Duration::from_secs(5);
    /// ticker.advance(Duration::from_secs(3));
    /// cache.insert_until("k", 1, deadline);
    /// assert_eq!(cache.get_ref("k").unwrap().time_left(), Some(Duration::from_secs(2)));
    /// ticker.advance(Duration::from_secs(2));
    /// assert_eq!(cache.get("k"), None);
    /// ```
    pub fn insert_until(&self, key: K, value: V, deadline: Instant) {
        let engine = self.engine();
        let mut new = engine.new_node(self.hash(&key), key, value);
        let given = LifetimeSource::Until(deadline);
        if let Some(written) = engine.write(&mut new, given, Condition::Always) {
            engine.after_write(written.outcome);
        }
    }

    /// Returns a reference to a key's entry; `None` if the key is absent or its entry has expired.
    ///
    /// Counts as a read, as [`get`](Self::get) does: `get_ref(key).is_some()` is a use without a
    /// clone.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the policy panics. The deadline is then unchanged.
    ///
    /// # Cost
    ///
    /// As `get`, without the clone; [`EntryRef`] says what it keeps in memory.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u64, String> = wheelhouse::Cache::new(100);
    /// cache.insert(1, "ada".into());
    /// assert_eq!(cache.get_ref(&1).unwrap().len(), 3);
    /// ```
    #[inline]
    pub fn get_ref<Q>(&self, key: &Q) -> Option<EntryRef<'_, K, V>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        (self.engine()).read(self.hash(key), key, |entry, _| entry)
    }

    /// Returns the values of several keys, cloned, in the order of the keys; `None` for each key
    /// that is absent or whose entry has expired.
    ///
    /// Each key is a `get`, also for the statistics and for the policy's
    /// [`expire_after_read`](crate::Expiry::expire_after_read), but at a lower cost. It is not a
    /// snapshot: each key is looked up at some moment of the call, not necessarily in order.
    ///
    /// The iterator `keys` may call the cache: it runs between the look-ups of one batch of keys
    /// and the next.
    ///
    /// # Panics
    ///
    /// If `keys`, the key's `Hash` or `Eq`, the value's `Clone` or the policy panics. Keys that
    /// were read before count as read.
    ///
    /// # Cost
    ///
    /// One allocation, for the answers. Sixteen keys at a time share one reading of the clock and
    /// wait for memory together. In a large cache a key of `get_many` costs a fraction of a `get`.
    /// If reads move deadlines, only the wait for memory is shared.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<String, u32> = wheelhouse::Cache::new(100);
    /// cache.insert("ada".to_string(), 1815);
    /// cache.insert("bob".to_string(), 1955);
    /// assert_eq!(cache.get_many(["bob", "eve", "ada"]), [Some(1955), None, Some(1815)]);
    ///
    /// let keys = vec!["ada".to_string()];
    /// assert_eq!(cache.get_many(&keys), [Some(1815)]);
    /// ```
    pub fn get_many<'a, Q>(&self, keys: impl IntoIterator<Item = &'a Q>) -> Vec<Option<V>>
    where
        Q: Equivalent<K> + Hash + ?Sized + 'a,
        V: Clone,
    {
        let hash = |key: &Q| self.hash(key);
        let serve = |node: NodePtr<K, V>| node.value().clone();
        self.engine().find_many(keys, hash, serve)
    }

    /// Returns a reference to a key's entry without counting as a read: no policy is asked, no use
    /// is noted.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics.
    ///
    /// # Cost
    ///
    /// As [`get_ref`](Self::get_ref), and no write to shared memory unless it finds an expired
    /// entry.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// assert_eq!(*cache.peek_ref(&1).unwrap(), "one");
    /// ```
    #[inline]
    pub fn peek_ref<Q>(&self, key: &Q) -> Option<EntryRef<'_, K, V>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        (self.engine()).peek(self.hash(key), key, |entry, _| entry)
    }

    /// Returns whether the key has an entry that has not expired. Does not count as a read, like
    /// [`peek_ref`](Self::peek_ref).
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics.
    ///
    /// # Cost
    ///
    /// As `peek_ref`.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// assert!(cache.contains_key(&1) && !cache.contains_key(&2));
    /// ```
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        (self.engine())
            .peek(self.hash(key), key, |_, _| ())
            .is_some()
    }

    /// Sets how long an entry lives from now; `None` removes its deadline. Returns false if the key
    /// is absent or its entry has expired.
    ///
    /// A lifetime means what it means for [`insert_with_ttl`](Self::insert_with_ttl), and later
    /// calls move it likewise. The call restarts `time_to_idle`. It does not count as a read or a
    /// write otherwise. With a lifetime of zero the entry leaves as one whose [deadline has
    /// come](crate#when-is-a-removal-told-and-a-value-dropped).
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics. The deadline is then unchanged.
    ///
    /// # Cost
    ///
    /// Takes the shard's lock and reads the clock once. Now and then runs a small bounded
    /// maintenance pass.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("k", 1);
    /// assert!(cache.set_expiry("k", Some(Duration::from_secs(60))));
    /// assert!(cache.get_ref("k").unwrap().time_left().is_some());
    /// assert!(cache.set_expiry("k", None));
    /// assert_eq!(cache.get_ref("k").unwrap().time_left(), None);
    /// assert!(!cache.set_expiry("absent", None));
    /// ```
    pub fn set_expiry<Q>(&self, key: &Q, lifetime: Option<Duration>) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        self.engine().set_lifetime(self.hash(key), key, lifetime)
    }

    /// Removes a key's entry, with the cause `Explicit`, or `Expired` if it had expired. [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears of it,
    /// and when key and value are dropped. With [`Delivery::Caller`](crate::Delivery) the call
    /// waits for the listener (for limits see `Delivery`).
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` panics. The entry is then still there.
    ///
    /// # Cost
    ///
    /// Takes the shard's lock, also if the key is absent. Now and then runs a small bounded
    /// maintenance pass.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// cache.invalidate(&1);
    /// assert_eq!(cache.get(&1), None);
    /// ```
    pub fn invalidate<Q>(&self, key: &Q)
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let (by, look) = (RevokedBy::Overwrite, |_| Some(()));
        self.engine().remove(self.hash(key), key, by, false, look);
    }

    /// Removes a key's entry and returns its value, cloned; `None` if the key is absent or its
    /// entry has expired.
    ///
    /// The cause, and when the listener hears of it, are those of [`invalidate`](Self::invalidate).
    /// If the value is not `Clone`, call `invalidate`, or store an `Arc`.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the value's `Clone` panics. The entry then stays, unless each
    /// clone replaces it.
    ///
    /// # Cost
    ///
    /// As `invalidate`, and the clone.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// assert_eq!(cache.remove(&1), Some("one"));
    /// assert_eq!(cache.remove(&1), None);
    /// ```
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        V: Clone,
    {
        let look = |node: NodePtr<K, V>| Some(node.value().clone());
        (self.engine()).remove(self.hash(key), key, RevokedBy::Conditional, false, look)
    }

    /// Removes all entries that are present at the call, with a notification for each. Entries that
    /// are inserted meanwhile may or may not be removed.
    ///
    /// Keys and values are dropped before this returns, unless a reader or the listener still needs
    /// them: see [when](crate#when-is-a-removal-told-and-a-value-dropped).
    ///
    /// # Panics
    ///
    /// Only a panic in a [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) reaches the
    /// caller, perhaps after a part of the work is done: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries. Holds a shard's lock for 64 removals at a time, and
    /// does a part of the maintenance.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// cache.insert(2, "two");
    /// cache.invalidate_all();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn invalidate_all(&self) {
        self.engine().take_all();
        self.engine().free_removed();
    }

    /// Removes the entries for which `keep` returns false, with the cause `Explicit`. Expired
    /// entries are skipped.
    ///
    /// `keep` runs with no lock held and may call the cache. An entry that is replaced after `keep`
    /// has seen it stays.
    ///
    /// Keys and values are dropped before this returns, unless a reader or the listener still needs
    /// them: see [when](crate#when-is-a-removal-told-and-a-value-dropped).
    ///
    /// # Panics
    ///
    /// If `keep` panics. Entries for which it returned false before are removed.
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries; a shard's lock for each removal.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// for n in 0..10 {
    ///     cache.insert(n, n * n);
    /// }
    /// cache.retain(|_, square| square % 2 == 0);
    /// assert_eq!(cache.entry_count(), 5);
    /// ```
    #[doc(alias = "invalidate_entries_if")]
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.engine().retain(keep);
        self.engine().free_removed();
    }

    /// Returns the number of entries that are stored now, including expired ones that were not yet
    /// removed.
    ///
    /// Exact as long as no other thread writes: it counts every write that has returned. While
    /// other threads write, it may miss some of their last writes, or count them early.
    ///
    /// # Cost
    ///
    /// One load for each shard, and no lock.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// assert_eq!(cache.entry_count(), 1);
    /// ```
    pub fn entry_count(&self) -> u64 {
        self.engine().map.len()
    }

    /// Returns the sum of the weights of all stored entries, including expired ones that were not
    /// yet removed. Without a [`weigher`](CacheBuilder::weigher) every entry weighs 1.
    ///
    /// As exact as [`entry_count`](Self::entry_count): it counts what is stored, so it may be over
    /// the bound until maintenance has run.
    ///
    /// # Cost
    ///
    /// One load for each shard, and no lock.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder()
    ///     .max_capacity(1_000_000)
    ///     .weigher(|_: &u64, text: &String| text.len() as u32)
    ///     .build();
    /// cache.insert(1, "one".to_string());
    /// cache.insert(3, "three".to_string());
    /// assert_eq!(cache.weighted_size(), 8);
    /// ```
    pub fn weighted_size(&self) -> u64 {
        self.engine().map.weight()
    }

    /// Does all maintenance that is due: removes every expired entry, and evicts down to the bound.
    /// Waits until the listener has heard of it, and frees the memory that no reader holds. If a
    /// listener calls it, it does not wait. [`Delivery`](crate::Delivery) says what it does while
    /// the listener itself waits for a load.
    ///
    /// # Panics
    ///
    /// Only a panic in a [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) reaches the
    /// caller, perhaps after a part of the work is done: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Proportional to the work that is due, in bounded passes: other callers need not wait for it.
    /// A call that finds an entry due also visits those that fall due within the same
    /// [`expiry_resolution`](crate::CacheBuilder::expiry_resolution). The destructors of removed
    /// values may run on the calling thread. Waits for the listener, and at most a second for
    /// destructors on other threads.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache = Cache::builder().ticker(ticker.clone()).build();
    /// cache.insert_with_ttl("k", 1, Duration::from_secs(5));
    /// ticker.advance(Duration::from_secs(5));
    /// assert_eq!(cache.entry_count(), 1); // not visible, still stored
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn run_pending_tasks(&self) {
        self.engine().run_pending();
    }

    /// Returns the time until the timer wheel has work next, for event loops: `None` if nothing is
    /// scheduled, zero if there is work, say a notification.
    ///
    /// This is not always the time until a deadline: an entry whose deadline is far away moves to a
    /// finer level of the wheel first. A loop that sleeps for this time, then calls
    /// [`run_pending_tasks`](Self::run_pending_tasks) and asks again, removes each entry within
    /// [`expiry_resolution`](crate::Policy::expiry_resolution) after its deadline. If other threads
    /// write meanwhile, use [`Scheduler::custom`](crate::Scheduler::custom): it tells the loop of
    /// an earlier deadline.
    ///
    /// # Panics
    ///
    /// Only a panic in a [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) reaches the
    /// caller, perhaps after a part of the work is done: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Drains the write buffers first, in bounded passes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker};
    ///
    /// let cache = Cache::builder().ticker(ManualTicker::new()).build();
    /// assert_eq!(cache.next_maintenance_in(), None);
    /// cache.insert_with_ttl("k", 1, Duration::from_secs(5));
    /// let next = cache.next_maintenance_in().unwrap();
    /// assert!(next <= Duration::from_secs(5) + cache.policy().expiry_resolution());
    /// ```
    pub fn next_maintenance_in(&self) -> Option<Duration> {
        self.engine().next_in()
    }
}

impl<K: Hash + Eq + Clone + 'static, V: 'static, S: BuildHasher> Cache<K, V, S> {
    /// Replaces the value of a key if the key is present and `matches` returns true: compare and
    /// set.
    ///
    /// The value that `matches` has seen is the one that is replaced. `matches` runs with no lock
    /// held, and again if another write comes first. [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears of the
    /// old value.
    ///
    /// If the cache has neither a policy nor a `time_to_live`, the entry keeps its deadline.
    ///
    /// # Errors
    ///
    /// The value that was not stored: the key is absent, or its value does not match.
    ///
    /// # Panics
    ///
    /// If `matches`, or other user code that an insert runs, panics.
    ///
    /// # Cost
    ///
    /// A look-up and a clone of the key, then an [`insert`](Self::insert).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("version", 1);
    /// assert_eq!(cache.replace_if("version", 2, |old| *old == 1), Ok(()));
    /// assert_eq!(cache.replace_if("version", 3, |old| *old == 1), Err(3));
    /// assert_eq!(cache.replace_if("absent", 1, |_| true), Err(1));
    /// ```
    pub fn replace_if<Q>(&self, key: &Q, value: V, matches: impl Fn(&V) -> bool) -> Result<(), V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let engine = self.engine();
        let hash = self.hash(key);
        let owned = {
            let pin = engine.pin();
            let Some(hit) = engine.find_live(hash, key, &pin) else {
                return Err(value);
            };
            hit.node.key().clone()
        };
        let condition = Condition::Over(&matches);
        let mut new = engine.new_node(hash, owned, value);
        let given = LifetimeSource::Update;
        let Some(written) = engine.write(&mut new, given, condition) else {
            let (key, value) = new.take();
            let_go(key);
            return Err(value);
        };
        engine.after_write(written.outcome);
        Ok(())
    }

    /// Removes the value of a key and returns it, if the key is present and `matches` returns true.
    ///
    /// The value that `matches` has seen is the one that is removed. `matches` runs with no lock
    /// held, and again if another write comes first. [One
    /// table](crate#when-is-a-removal-told-and-a-value-dropped) says when the listener hears of it.
    ///
    /// # Panics
    ///
    /// If `matches`, the key's `Hash` or `Eq` or the value's `Clone` panics. The entry is then
    /// still there.
    ///
    /// # Cost
    ///
    /// As [`remove`](Self::remove).
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("token", 1);
    /// assert_eq!(cache.remove_if("token", |token| *token == 2), None);
    /// assert_eq!(cache.remove_if("token", |token| *token == 1), Some(1));
    /// assert_eq!(cache.get("token"), None);
    /// ```
    pub fn remove_if<Q>(&self, key: &Q, matches: impl Fn(&V) -> bool) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        V: Clone,
    {
        let engine = self.engine();
        let look = |node: NodePtr<K, V>| {
            let value = node.value();
            if engine.is_live(node) && matches(value) {
                Some(value.clone())
            } else {
                None
            }
        };
        engine.remove(self.hash(key), key, RevokedBy::Conditional, true, look)
    }
}

impl<K, V, S> Cache<K, V, S> {
    /// Returns the name given to the builder.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().name("dns").build();
    /// assert_eq!(cache.name(), Some("dns"));
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.engine().name.as_deref()
    }

    /// Returns the statistics so far: hits, misses, removals by cause, how late entries expired.
    /// All are 0 unless the cache was built with
    /// [`record_stats`](crate::CacheBuilder::record_stats).
    ///
    /// # Cost
    ///
    /// Takes no lock. Sums up dozens of counters and copies hundreds: call it every few seconds,
    /// not with every look-up.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().record_stats().build();
    /// cache.insert("ada", 1815);
    /// cache.get("ada");
    /// cache.get("bob");
    /// let stats = cache.stats();
    /// assert_eq!((stats.hits(), stats.misses(), stats.insertions()), (1, 1, 1));
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// What all handles share.
    #[inline]
    pub(crate) fn engine(&self) -> &Engine<K, V> {
        &self.house.engine
    }

    /// The hash by which the engine knows a key.
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        self.house.hash(key)
    }

    /// The cache, for callers that must not keep it alive.
    pub(crate) fn downgrade(&self) -> WeakHandle<K, V>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
        S: Send + Sync + 'static,
    {
        let house: Weak<House<K, V, S>> = Arc::downgrade(&self.house);
        self.engine().waking.cache.of(house)
    }
}

/// The state behind a [`Cache`].
///
/// The hasher comes first, so that a hit reads two cache lines only, with the default hasher: up to
/// the clock's first field. An entry with a deadline costs one more line. The alignment keeps the
/// reference counts in front of the state on other lines.
#[repr(C, align(128))]
struct House<K, V, S> {
    hasher: S,
    engine: Engine<K, V>,
}

impl<K, V, S> House<K, V, S> {
    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        let hash = self.hasher.hash_one(key);
        if hash::fills_all_bits::<S>() {
            hash
        } else {
            hash::mix_bits(hash)
        }
    }
}

impl<K, V, S> AsRef<Engine<K, V>> for House<K, V, S> {
    fn as_ref(&self) -> &Engine<K, V> {
        &self.engine
    }
}

impl<K, V, S> CacheWork for House<K, V, S>
where
    K: Send + Sync,
    V: Send + Sync,
    S: Send + Sync,
{
    fn run_due(&self) -> Option<Duration> {
        self.engine.run_due()
    }

    fn deliver(&self) -> bool {
        self.engine.deliver()
    }

    fn tell_rest(&self) -> bool {
        self.engine.tell_rest()
    }
}

impl<K, V, S> fmt::Debug for Cache<K, V, S> {
    /// Name and number of entries, never the entries.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cache = f.debug_struct("Cache");
        if let Some(name) = self.name() {
            cache.field("name", &name);
        }
        cache
            .field("entry_count", &self.engine().map.len())
            .field("max_capacity", &self.engine().max_capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
