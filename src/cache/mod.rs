//! The cache: each method is a step in the map, an event, and perhaps a little maintenance.

mod core;
mod gate;
mod limits;
mod many;
mod read;
mod refresh;
mod remove;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod write;

use self::core::Once;
pub(crate) use self::core::{Core, Hit, Lifetimes, Weigher};
pub(crate) use gate::{Check, Explicit, Gate, Written};
pub(crate) use limits::Limits;
pub(crate) use refresh::{FromLoad, set_refresh};
pub(crate) use write::{Given, Refused};

use crate::builder::CacheBuilder;
use crate::entry_ref::EntryRef;
use crate::hash::RandomState;
use crate::iter::Iter;
use crate::load::By;
use crate::policy::Policy;
use crate::scheduler::Task;
use crate::stats::Stats;
use equivalent::Equivalent;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A concurrent cache in which every entry may have a deadline of its own.
///
/// A `Cache` is a handle: a clone shares the same entries. When the last handle is dropped, all
/// entries are dropped (without notifications), and what was removed before is told to the
/// listener.
///
/// # Who is asked about a lifetime
///
/// | operation | key absent | present | expired, not yet removed |
/// |---|---|---|---|
/// | [`insert`](Self::insert) | [create] | [update] with the new value | the old value leaves as `Expired`, then create |
/// | [`insert_with_ttl`](Self::insert_with_ttl) | the given lifetime | the given lifetime | the old value leaves as `Expired`; the given lifetime |
/// | [`get`](Self::get), [`get_many`](Self::get_many), [`get_ref`](Self::get_ref) | – | [read] | nobody: a miss |
/// | [`peek_ref`](Self::peek_ref), [`contains_key`](Self::contains_key), [`iter`](Self::iter), [`retain`](Self::retain) | – | nobody | skipped |
/// | [`set_expiry`](Self::set_expiry) | `false` | the deadline is set, `true` | `false` |
/// | [`invalidate`](Self::invalidate), [`remove`](Self::remove) | – | nobody; cause `Explicit` | cause `Expired`; `remove` returns `None` |
///
/// Without a policy, an entry inserted by `insert` has no lifetime of its own, whatever its
/// predecessor had.
///
/// [create]: crate::Expiry::expire_after_create
/// [update]: crate::Expiry::expire_after_update
/// [read]: crate::Expiry::expire_after_read
///
/// # Panics in user code
///
/// A panic in [`Expiry`](crate::Expiry), the weigher, `Hash`, `Eq` or `Clone` passes on to the
/// caller, and the cache is as if the call had not been made. No lock is held while they run; they
/// may call the same cache. A panic in a [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm)
/// may reach the caller after the write was made. All cases stand under [When callbacks
/// misbehave](crate#when-callbacks-misbehave).
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, expiry};
///
/// /// A token and how long its issuer vouches for it.
/// struct Token { text: String, good_for: Duration }
///
/// let tokens: Cache<String, std::sync::Arc<Token>> = Cache::builder()
///     .max_capacity(100_000)
///     .expire_after(expiry::writing(|_: &String, token: &std::sync::Arc<Token>| Some(token.good_for)))
///     .build();
/// tokens.insert("ada".into(), Token { text: "s3cret".into(), good_for: Duration::from_secs(900) }.into());
/// assert_eq!(tokens.get("ada").unwrap().text, "s3cret");
/// ```
pub struct Cache<K, V, S = RandomState> {
    pub(crate) core: Arc<Core<K, V, S>>,
}

impl<K, V, S> Clone for Cache<K, V, S> {
    /// Another handle to the same entries: one reference count.
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

// What is left after a panic in user code is promised (callbacks.md), so a handle may be carried
// out of one. What keys, values and hasher hide is their own affair; what policy, weigher,
// listener, ticker and alarm hide is reached by the cache alone, which goes on using them.
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> UnwindSafe for Cache<K, V, S> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for Cache<K, V, S> {}

impl<K, V> Cache<K, V, RandomState> {
    /// Begins the settings of a cache.
    ///
    /// # Cost
    ///
    /// Next to nothing: what the settings ask for is made by [`build`](CacheBuilder::build).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::Cache;
    ///
    /// let cache: Cache<u64, String> = Cache::builder().time_to_live(Duration::from_secs(60)).build();
    /// cache.insert(1, "one".into());
    /// assert_eq!(cache.get(&1).as_deref(), Some("one"));
    /// ```
    pub fn builder() -> CacheBuilder<K, V, RandomState> {
        CacheBuilder::new()
    }
}

impl<K, V> Cache<K, V, RandomState>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A cache of at most this many entries, with all other settings at their defaults.
    ///
    /// # Cost
    ///
    /// That of [`build`](CacheBuilder::build): some allocations, whatever the capacity; memory for
    /// entries is taken as they come.
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

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    pub(crate) fn from_core(core: Core<K, V, S>) -> Self {
        let core = Arc::new(core);
        let weak: Weak<Core<K, V, S>> = Arc::downgrade(&core);
        core.maintenance.enlist(weak as Weak<dyn Task>);
        Self { core }
    }

    /// The value of a key, cloned; `None` if the key is absent or its entry has expired.
    ///
    /// Counts as a read: the policy's [`expire_after_read`](crate::Expiry::expire_after_read) is
    /// asked, and the use is noted for the size policy. With values that are dear to clone, store
    /// an `Arc` or use [`get_ref`](Self::get_ref).
    ///
    /// Whether it has expired is judged when it is found: a `Clone`, or a policy that leaves the
    /// deadline, may take until after it.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq`, the value's `Clone` or the policy does; then the read has moved
    /// no deadline. A [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics may reach
    /// the caller, too: see [When callbacks misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// No allocation. No lock and no write to shared memory, unless the read moves the deadline (to
    /// an earlier moment or to never: under the shard's lock), is the first use of the entry since
    /// maintenance last looked, or meets an entry that is due. May drain the read buffer of a
    /// bounded cache when it is full; where nobody wakes, who meets an entry that is due does a
    /// small part of the expiry.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
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
        let core = &*self.core;
        let hash = core.hash(key);
        if core.swift
            && let Some(pin) = core.shared.pin_alone()
        {
            return match core.look_once(hash, key, &pin) {
                Once::Alive(hit) => {
                    let value = hit.node.value().clone();
                    if core.maintenance.should_record(hit.node) {
                        return core.get_news(hit.node, value, pin);
                    }
                    Some(value)
                }
                Once::Absent => None,
                Once::Met(node) => core.get_met(hash, key, node, pin),
                Once::Unclear => core.get_on(hash, key, pin),
            };
        }
        core.get_one(hash, key)
    }

    /// A look at a key's entry without cloning it; `None` if the key is absent or its entry has
    /// expired.
    ///
    /// Counts as a read, as [`get`](Self::get) does.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the policy does; then the read has moved no deadline. A
    /// [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics may reach the caller,
    /// too: see [When callbacks misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// As `get`, without the clone. While the [`EntryRef`] lives, memory that leaves this cache is
    /// not freed.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, vec![1, 2, 3]);
    /// assert_eq!(cache.get_ref(&1).unwrap().len(), 3);
    /// ```
    #[inline]
    pub fn get_ref<Q>(&self, key: &Q) -> Option<EntryRef<'_, K, V>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        let core = &*self.core;
        let hash = core.hash(key);
        if core.swift
            && let Some(pin) = core.shared.pin_alone()
        {
            return match core.look_once(hash, key, &pin) {
                Once::Alive(hit) if core.maintenance.should_record(hit.node) => {
                    core.ref_news(hit, pin)
                }
                Once::Alive(hit) => Some(EntryRef::new(hit, core, pin.into_pin())),
                Once::Absent => None,
                Once::Met(node) => core.ref_met(hash, key, node, pin),
                Once::Unclear => core.ref_on(hash, key, pin),
            };
        }
        core.ref_one(hash, key)
    }

    /// A look at a key's entry that leaves no trace: no policy is asked, no use is noted.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does. A [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm)
    /// that panics may reach the caller, too: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// As [`get_ref`](Self::get_ref), and no write to shared memory unless it meets an entry that
    /// is due.
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
        let core = &*self.core;
        let hash = core.hash(key);
        if core.swift
            && let Some(pin) = core.shared.pin_alone()
        {
            return match core.look_once(hash, key, &pin) {
                Once::Alive(hit) => Some(EntryRef::new(hit, core, pin.into_pin())),
                Once::Absent => None,
                Once::Met(node) => core.peek_met(hash, key, node, pin),
                Once::Unclear => core.peek_on(hash, key, pin),
            };
        }
        core.peek_one(hash, key)
    }

    /// Whether the key has a live entry. Leaves no trace, like [`peek_ref`](Self::peek_ref).
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does. A [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm)
    /// that panics may reach the caller, too: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
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
        let core = &*self.core;
        let hash = core.hash(key);
        if let Some(pin) = core.shared.pin_alone() {
            return match core.look_once(hash, key, &pin) {
                Once::Alive(_) => true,
                Once::Absent => false,
                Once::Met(node) => core.has_met(hash, key, node, pin),
                Once::Unclear => core.has_on(hash, key, pin),
            };
        }
        core.has_one(hash, key)
    }

    /// Stores a value. What was there before leaves with the cause `Replaced`, or `Expired` if it
    /// was due.
    ///
    /// The policy is asked for the lifetime: about a new entry, or about the update of a live one.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq`, the weigher or the policy does; then the cache is as it was. A
    /// [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics may reach the caller,
    /// too, perhaps after the write was made: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// No allocation but for room, when what there was is taken; the shard's lock for a few dozen
    /// nanoseconds. At most two readings of the clock with a policy, one if it looks at [key and
    /// value alone](crate::Expiry::looks_at_the_entry_alone); one without. Every now and then, when
    /// its shard has gathered enough writes, a small bounded maintenance pass.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert("ada", 1815);
    /// cache.insert("ada", 1852);
    /// assert_eq!(cache.get("ada"), Some(1852));
    /// ```
    pub fn insert(&self, key: K, value: V) {
        self.core.put(key, value, Given::Policy);
    }

    /// Stores a value that lives for `ttl` from now, whatever the policy would say. Works on any
    /// cache.
    ///
    /// Zero: stored, never visible, removed as `Expired`. More than 2^62 ns (146 years) counts as
    /// that. Cache-wide limits still hold: the earliest deadline does. From then on the policy is
    /// asked as about any entry, so one that answers reads moves this deadline, too.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the weigher does; then the cache is as it was. A
    /// [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics may reach the caller,
    /// too, perhaps after the write was made: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// As [`insert`](Self::insert), with one reading of the clock.
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
        self.core.put(key, value, Given::Life(ttl));
    }

    /// Sets how long an entry lives from now; `None` lets it live for ever. False if the key is
    /// absent or its entry has expired.
    ///
    /// Zero ends its life at once: the entry leaves as `Expired`. More than 2^62 ns (146 years)
    /// counts as that. Cache-wide limits still hold: the earliest deadline does. Counts as a use
    /// for `time_to_idle`, and neither as a read nor as a write: the policy is asked again when one
    /// comes, and may then move the deadline.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does; then the deadline is where it was. A
    /// [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics may reach the caller,
    /// too, perhaps after it was moved: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// The shard's lock, one reading of the clock; now and then a small bounded maintenance pass.
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
    pub fn set_expiry<Q>(&self, key: &Q, life: Option<Duration>) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        self.core.set_life(key, life)
    }

    /// Removes a key's entry, with the cause `Explicit`, or `Expired` if it was due.
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` does; then the entry is still there. A [`Ticker`](crate::Ticker)
    /// or an [`Alarm`](crate::Alarm) that panics may reach the caller, too, perhaps after the
    /// removal: see [When callbacks misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// The shard's lock if the key is present; now and then a small bounded maintenance pass.
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
        self.core.take(key, By::Blind, false, |_| Some(()));
    }

    /// Removes a key's entry and returns its value, cloned; `None` if the key is absent or its
    /// entry has expired.
    ///
    /// The cause is that of [`invalidate`](Self::invalidate).
    ///
    /// # Panics
    ///
    /// If the key's `Hash` or `Eq` or the value's `Clone` does; then the entry is still there. A
    /// [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics may reach the caller,
    /// too, perhaps after the removal: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
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
        self.core
            .take(key, By::Seeing, false, |node| Some(node.value().clone()))
    }

    /// Removes all entries that are present at the call; each is told to the listener. Entries that
    /// come in meanwhile may or may not be removed.
    ///
    /// # Panics
    ///
    /// Only a [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics reaches the
    /// caller, perhaps when a part of the work was done: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries; each shard's lock is held for 64 removals at a time,
    /// and the call does its share of the maintenance.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// cache.insert(2, "two");
    /// cache.invalidate_all();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn invalidate_all(&self) {
        self.core.take_all();
    }

    /// Removes the entries for which `keep` returns false, with the cause `Explicit`. Expired
    /// entries are not shown.
    ///
    /// `keep` runs with no lock held and may call the cache. An entry that is replaced between the
    /// question and the removal stays.
    ///
    /// # Panics
    ///
    /// If `keep` does; entries refused before are removed. A [`Ticker`](crate::Ticker) or an
    /// [`Alarm`](crate::Alarm) that panics may reach the caller, too, perhaps after some removals:
    /// see [When callbacks misbehave](crate#when-callbacks-misbehave).
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
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) {
        self.core.retain(keep);
    }

    /// How many entries are stored now, expired ones that were not yet removed included.
    ///
    /// Exact after [`run_pending_tasks`](Self::run_pending_tasks) on a cache that nobody else uses.
    ///
    /// # Cost
    ///
    /// Takes each shard's lock for a moment.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, "one");
    /// assert_eq!(cache.entry_count(), 1);
    /// ```
    pub fn entry_count(&self) -> u64 {
        self.core.shared.map.len()
    }

    /// What all stored entries weigh together, expired ones that were not yet removed included.
    /// Without a [`weigher`](CacheBuilder::weigher) every entry weighs 1.
    ///
    /// As exact as [`entry_count`](Self::entry_count): it counts what is stored, so it may be over
    /// the bound until maintenance has run.
    ///
    /// # Cost
    ///
    /// Takes each shard's lock for a moment.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::builder().weigher(|_: &u8, text: &String| text.len() as u32).build();
    /// cache.insert(1, "one".to_string());
    /// cache.insert(3, "three".to_string());
    /// assert_eq!(cache.weighted_size(), 8);
    /// ```
    pub fn weighted_size(&self) -> u64 {
        self.core.shared.map.weight()
    }

    /// Does all work that is due: removes every expired entry, evicts down to the bound, tells the
    /// listener, and frees the memory that no reader holds. Before it returns, all notifications
    /// for this have been delivered, unless it is called from inside a listener: then they follow
    /// after that listener returns.
    ///
    /// # Panics
    ///
    /// Only a [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics reaches the
    /// caller, perhaps when a part of the work was done: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Proportional to the work that is due, in bounded passes: other callers are not held up. The
    /// listener, and destructors of removed values, may run on the calling thread. May wait for a
    /// listener that runs on another thread, and for a second at most for destructors that do.
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
        self.core.maintenance.finish(&self.core.shared);
    }

    /// How long it is until the timer wheel has work next, for event loops: `None` if nothing is
    /// scheduled, zero if there is work.
    ///
    /// Not always a deadline: an entry that is far from its own is filed again on the way. A loop
    /// that sleeps for so long, then calls [`run_pending_tasks`](Self::run_pending_tasks) and asks
    /// again, removes each entry within [`expiry_resolution`](crate::Policy::expiry_resolution)
    /// after its deadline; as long as others write meanwhile, it needs
    /// [`Scheduler::custom`](crate::Scheduler::custom), which tells it of an earlier one.
    ///
    /// # Panics
    ///
    /// Only a [`Ticker`](crate::Ticker) or an [`Alarm`](crate::Alarm) that panics reaches the
    /// caller, perhaps when a part of the work was done: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Takes in the writes that wait in buffers, in bounded passes.
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
        self.core.maintenance.next_in(&self.core.shared)
    }
}

impl<K, V, S> Cache<K, V, S> {
    /// Iterates over the live entries, in no particular order.
    ///
    /// Weakly consistent: a key that is there during the whole iteration is shown exactly once,
    /// with its value of some moment of the iteration; one that comes or goes meanwhile may be
    /// shown or not. Leaves no trace: no policy is asked, no use is noted. Expired entries are
    /// skipped.
    ///
    /// # Panics
    ///
    /// Never itself; a step does if the key's `Eq` or the [`Ticker`](crate::Ticker) does.
    ///
    /// # Cost
    ///
    /// Proportional to the number of entries, without locks.
    ///
    /// ```
    /// let cache = wheelhouse::Cache::new(100);
    /// cache.insert(1, 10);
    /// cache.insert(2, 20);
    /// assert_eq!(cache.iter().map(|entry| *entry).sum::<i32>(), 30);
    /// for entry in &cache {
    ///     assert_eq!(*entry.key() * 10, *entry.value());
    /// }
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V, S> {
        Iter::new(&self.core)
    }

    /// The name given to the builder.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::builder().name("dns").build();
    /// assert_eq!(cache.name(), Some("dns"));
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.core.shared.name.as_deref()
    }

    /// What happened so far: hits, misses, removals by cause, how late entries expired. All 0
    /// unless the cache was built with [`record_stats`](CacheBuilder::record_stats).
    ///
    /// # Cost
    ///
    /// No lock; sums up some dozens of counters and copies 496. For every few seconds, not for
    /// every look-up.
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
        self.core.maintenance.stats(&self.core.shared)
    }

    /// The settings in force.
    ///
    /// ```
    /// let cache: wheelhouse::Cache<u8, u8> = wheelhouse::Cache::new(100);
    /// assert_eq!(cache.policy().max_capacity(), Some(100));
    /// ```
    pub fn policy(&self) -> Policy<'_, K, V, S> {
        Policy::new(&self.core)
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
            .field("entry_count", &self.core.shared.map.len())
            .field("max_capacity", &self.core.shared.max_capacity())
            .finish_non_exhaustive()
    }
}
