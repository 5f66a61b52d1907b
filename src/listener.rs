//! Removal listeners: their arguments, and what the crate promises about the calls.
//!
//! A listener is a closure `Fn(&K, &V, RemovalCause)` given to the builder with
//! [`removal_listener`](crate::CacheBuilder::removal_listener).
//!
//! | question | answer |
//! |---|---|
//! | On which thread does it run? | By default on background threads that all caches of the process share (if none can be started, on a thread of the program). With [`Delivery::Caller`] on the thread of the call that removes the entry; what the scheduler thread removes is told on a background thread. |
//! | When? | Soon after the removal: with a scheduler within some ten milliseconds, unless earlier calls of the listener take longer. With `Delivery::Caller` before the call that removed the entry returns. |
//! | Which calls wait for it? | [`run_pending_tasks`](crate::Cache::run_pending_tasks) and the drop of the last handle; with `Delivery::Caller` each call that removes an entry. Inside a listener no call waits. |
//! | May it block? | Yes, except with `Delivery::Caller`, where it holds up callers. A slow listener delays neither callers nor other caches; its notifications wait in memory meanwhile. |
//! | May it await, or use a runtime? | It is not `async`, and the background threads belong to no runtime: `tokio::spawn` panics there. Send what you hear to a task through a channel: [`Delivery`](Delivery#listeners-that-need-a-runtime) has an example. |
//!
//! # Guarantees
//!
//! - **Exactly once.** The listener is called once for each key–value pair that left the cache,
//!   with that very value.
//! - **In order for each key.** Of two values that lived under one key, the one that left first is
//!   reported first. Between different keys there is no order. One call at a time runs for a cache.
//! - **After the removal.** When the listener runs, the entry is already gone from the cache. The
//!   cache may already hold another value for the key.
//! - **No lock held.** The listener may call any method of the same cache, also for the same key.
//! - **Panics are caught.** A panic in the listener is caught (and counted, with `record_stats`),
//!   after the process's panic hook has reported it. That notification counts as delivered, and the
//!   listener stays in use.
//! - **Not at the end of the cache.** When the last handle is dropped, entries that are still
//!   stored are dropped without a notification. This includes expired entries that were not removed
//!   yet. Removals that happened before are delivered before the drop returns. To tell of all, call
//!   `invalidate_all` and `run_pending_tasks` first.
//!
//! With [`Scheduler::disabled`](crate::Scheduler::disabled), where no thread wakes the cache, the
//! listener hears of removals when a call of the cache has run maintenance.
//!
//! [`RemovalCause`] lists which call leads to which cause.
//!
//! # A listener that calls its cache
//!
//! A listener that owns a handle of its own cache keeps that cache, and its threads, alive for
//! ever. A listener that holds the cache weakly does not:
//!
//! ```
//! use std::sync::{Arc, Weak};
//! use wheelhouse::{Cache, RemovalCause};
//!
//! type Counts = Cache<String, u32>;
//!
//! // Keeps a copy of the value that was removed last.
//! let cache: Arc<Counts> = Arc::new_cyclic(|cache: &Weak<Counts>| {
//!     let cache = cache.clone();
//!     Cache::builder()
//!         .removal_listener(move |key: &String, count: &u32, cause: RemovalCause| {
//!             if cause == RemovalCause::Explicit {
//!                 if let Some(cache) = cache.upgrade() {
//!                     cache.insert("last".into(), *count);
//!                 }
//!             }
//!         })
//!         .build()
//! });
//! cache.insert("ada".into(), 1815);
//! cache.invalidate("ada");
//! cache.run_pending_tasks();
//! assert_eq!(cache.get("last"), Some(1815));
//! ```

use std::fmt;

/// Why an entry left the cache.
///
/// | what happened | cause |
/// |---|---|
/// | the deadline passed, and a pass or one of the calls below found the entry | [`Expired`](Self::Expired) |
/// | `invalidate`, `remove`, `remove_if`, `Op::Remove`, `invalidate_all` | [`Explicit`](Self::Explicit) |
/// | a reload that answers [`Gone`](crate::Reloaded::Gone) | [`Explicit`](Self::Explicit) |
/// | `retain`, for entries that its closure refused | [`Explicit`](Self::Explicit) |
/// | `insert`, `insert_with_ttl`, `insert_until`, `replace_if`, a compute, `or_insert_with_if` or a reload stores a value over a live one | [`Replaced`](Self::Replaced), for the old value |
/// | `restore` with [`Ended::Tell`](crate::Ended::Tell), for entries that ended during the downtime | [`Expired`](Self::Expired) |
/// | `max_capacity` exceeded, or made smaller | [`Size`](Self::Size) |
/// | the new entry itself was not kept, as with a capacity of 0 | [`Size`](Self::Size) |
///
/// No call returns an entry past its deadline, even while it is still stored. If a call overwrites
/// or invalidates it, the cause is `Expired`, not `Replaced` or `Explicit`.
///
/// More causes may be added in later versions, hence `#[non_exhaustive]`.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use wheelhouse::{Cache, RemovalCause};
///
/// let heard = Arc::new(Mutex::new(Vec::new()));
/// let log = Arc::clone(&heard);
/// let cache: Cache<&str, u32> = Cache::builder()
///     .removal_listener(move |key: &&str, value: &u32, cause: RemovalCause| {
///         log.lock().unwrap().push((*key, *value, cause));
///     })
///     .build();
///
/// cache.insert("a", 1);
/// cache.insert("a", 2);
/// cache.invalidate("a");
/// cache.run_pending_tasks();
///
/// assert_eq!(
///     *heard.lock().unwrap(),
///     [("a", 1, RemovalCause::Replaced), ("a", 2, RemovalCause::Explicit)],
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// The deadline of the entry passed.
    Expired,
    /// A caller removed the entry by key, by closure or with all others; or a reload found it gone.
    Explicit,
    /// A call or a reload stored a new value for the key; the listener gets the old one.
    Replaced,
    /// The cache held more than it may, and the size policy chose this entry.
    Size,
}

impl RemovalCause {
    /// All causes, for tables and exporters. A later version that adds a cause adds it here.
    ///
    /// ```
    /// use wheelhouse::RemovalCause;
    ///
    /// let stats = wheelhouse::Cache::<u8, u8>::new(10).stats();
    /// let all: u64 = RemovalCause::ALL.iter().map(|cause| stats.removals(*cause)).sum();
    /// assert_eq!(all, 0);
    /// ```
    pub const ALL: &'static [Self] = &[Self::Expired, Self::Explicit, Self::Replaced, Self::Size];

    /// Returns the name of the cause in lower case, as a label of a metric: `expired`, `explicit`,
    /// `replaced` or `size`. Later versions keep these names.
    ///
    /// ```
    /// use wheelhouse::RemovalCause;
    ///
    /// assert_eq!(RemovalCause::Expired.as_str(), "expired");
    /// ```
    #[inline]
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Explicit => "explicit",
            Self::Replaced => "replaced",
            Self::Size => "size",
        }
    }

    /// Whether the cache removed the entry on its own: true for [`Expired`](Self::Expired) and
    /// [`Size`](Self::Size).
    ///
    /// # Examples
    ///
    /// ```
    /// use wheelhouse::RemovalCause;
    ///
    /// assert!(RemovalCause::Expired.was_evicted());
    /// assert!(!RemovalCause::Replaced.was_evicted());
    /// ```
    #[inline]
    #[must_use]
    pub const fn was_evicted(self) -> bool {
        matches!(self, Self::Expired | Self::Size)
    }
}

/// Writes the cause as [`as_str`](RemovalCause::as_str) returns it.
impl fmt::Display for RemovalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which thread calls a cache's removal listener, for
/// [`delivery`](crate::CacheBuilder::delivery).
///
/// | choose | if | the listener runs |
/// |---|---|---|
/// | [`Background`](Self::Background), the default | nothing below applies | soon, on threads that all caches of the process share |
/// | [`Caller`](Self::Caller) | the program relies on what the listener does, when a call returns: it keeps a second index, say | before the call that removed the entry returns |
///
/// [One table](crate#when-is-a-removal-told-and-a-value-dropped) says for each removal when the
/// listener hears of it, and when key and value are dropped.
///
/// # Locks of the program
///
/// With `Background`, a call of `insert` or `invalidate` never waits for the listener, whatever the
/// scheduler is. So a thread may hold a lock that the listener takes, and write to the cache. The
/// calls that wait for listeners are [`run_pending_tasks`](crate::Cache::run_pending_tasks) and the
/// drop of the last handle: release such a lock before them. With `Caller`, each call that removes
/// an entry waits for the listener (also a read that expires one, where no thread maintains the
/// cache). A thread that holds a lock which the listener takes would wait for itself.
///
/// # Listeners that load
///
/// A listener may call any method of any cache, also one that waits for a load. A call that waits
/// for the listener then waits for that load, too. If the calling thread leads the load, the call
/// waits no longer. If no thread leads it (it is a lease, or a task between two polls), the calling
/// thread may have to end it. Then the call waits for a second at most, and returns before the
/// listener has heard. With `Caller`, the listener may run on the thread of the call. If that
/// thread runs tasks, a listener must not wait there for a load that is one of them: it would wait
/// for ever. On a reload thread, it must not wait for a thread that waits for a
/// [`refresh`](crate::LoadingCache::refresh).
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
/// use wheelhouse::{Cache, Delivery, RemovalCause};
///
/// // A second index, from mail address to user: true whenever a call has returned. The index is
/// // written after the insert: the listener of the former value runs before the insert returns.
/// let by_mail: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
/// let index = Arc::clone(&by_mail);
/// let users: Cache<u64, String> = Cache::builder()
///     .delivery(Delivery::Caller)
///     .removal_listener(move |_: &u64, mail: &String, _: RemovalCause| {
///         index.lock().unwrap().remove(mail);
///     })
///     .build();
/// for _ in 0..2 {
///     users.insert(1815, "ada@example.org".into());
///     by_mail.lock().unwrap().insert("ada@example.org".into(), 1815);
/// }
/// assert_eq!(by_mail.lock().unwrap().len(), 1);
/// users.invalidate(&1815);
/// assert!(by_mail.lock().unwrap().is_empty());
/// ```
///
/// # Listeners that need a runtime
///
/// It is not promised which thread calls the listener, and the threads of the crate belong to no
/// runtime: `tokio::spawn` panics there; the `spawn` of a runtime's `Handle` does not. But tasks
/// that were spawned in this way may end in any order, and a runtime that shuts down drops them. A
/// channel keeps the order, and one task at its other end can be waited for. To send blocks no
/// thread. At shutdown the program drops the cache, which reports the rest and drops the sender;
/// then the task ends by itself:
///
/// ```
/// use wheelhouse::{Cache, RemovalCause};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
/// let saving = tokio::spawn(async move {
///     let mut saved = Vec::new();
///     while let Some((key, value)) = told.recv().await {
///         tokio::task::yield_now().await; // a write to a database, say
///         saved.push((key, value));
///     }
///     saved
/// });
/// let cache: Cache<u64, String> = Cache::builder()
///     .removal_listener(move |key: &u64, value: &String, _: RemovalCause| {
///         tell.send((*key, value.clone())).ok(); // the task has ended
///     })
///     .build();
/// cache.insert(1, "ada".into());
/// cache.invalidate(&1);
/// drop(cache); // the listener has heard of all removals, and is dropped
/// assert_eq!(saving.await.unwrap(), [(1, "ada".to_string())]);
/// # });
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Threads that all caches of the process share.
    ///
    /// At most one of them works for a cache at a time. There are as many as there are listeners at
    /// work, and none after some seconds without removals. A slow listener delays neither callers
    /// nor other caches. If no thread can be started, this is reported once on standard error, and
    /// the calls that do maintenance call the listener themselves.
    ///
    /// # Cost
    ///
    /// 16 bytes for each removal that waits.
    #[default]
    Background,
    /// The thread that removes the entry.
    ///
    /// A call that removes or replaces an entry returns after the listener has heard of it. If
    /// another thread calls the listener of this cache at that moment, the call waits until that
    /// thread has reported this removal, or reports it itself. If an entry expires or is evicted,
    /// the thread that removes it reports that: before its call returns if it is a thread of the
    /// program, else in the background. Inside a listener no call waits.
    ///
    /// # Cost
    ///
    /// Each call that removes an entry, and each insert into a cache with a bound, takes the
    /// cache's maintenance lock. It waits for its turn to call the listener. Such writers therefore
    /// take turns.
    Caller,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Background => "Delivery::Background",
            Self::Caller => "Delivery::Caller",
        })
    }
}

/// A removal listener as the cache keeps it.
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, RemovalCause) + Send + Sync>;

#[cfg(test)]
mod tests;
