//! Which thread calls a cache's listener: the setting.
//!
//! # How it works
//!
//! A cache whose notifications wait *offers* a delivery to the crew ([`crew`]). It offers one at a
//! time. The thread that takes the offer delivers what waits, and offers again if there is more.
//!
//! When the last handle is dropped, what is left to deliver goes the same way: threads that deliver
//! may still enter the cache. The drop waits until all is delivered.
//!
//! [`crew`]: super::crew

use super::crew::{self, Job};
use super::gate::TaskRef;
use std::fmt;

/// Which thread calls a cache's removal listener, for
/// [`delivery`](crate::CacheBuilder::delivery).
///
/// | choose | if | the listener runs |
/// |---|---|---|
/// | [`Background`](Self::Background), the default | nothing below applies | soon, on threads that all caches of the process share |
/// | [`Caller`](Self::Caller) | the program relies on what the listener does, when a call returns: it keeps a second index, say | before the call that removed the entry returns |
///
/// A cache without a scheduler (the default with a custom ticker) has no thread that soon reports a
/// removal: with `Background`, its listener hears of removals after an operation or
/// `run_pending_tasks` has done maintenance.
///
/// [One table](crate#when-is-it-told-and-when-is-it-dropped) says for each removal when the
/// listener hears of it, and when key and value are dropped.
///
/// In both modes, one thread at a time calls the listener of a cache. Each removal is reported
/// once, and the removals of a key in their order. The listener runs with no lock of the cache
/// held.
///
/// # Locks of the program
///
/// With `Background`, a call of `insert` or `invalidate` never waits for the listener, whatever the
/// scheduler is. So a thread may hold a lock that the listener takes, and write to the cache. The
/// calls that wait for listeners are [`run_pending_tasks`](crate::Cache::run_pending_tasks) and the
/// drop of the last handle: release such a lock before them. With `Caller`, each call that removes
/// an entry waits for the listener: a thread that holds a lock which the listener takes would wait
/// for itself.
///
/// # Listeners that load
///
/// A listener may call any method of any cache, also one that waits for a load. A call that waits
/// for the listener then waits for that load, too. If the calling thread leads the load, the call
/// waits no longer. If no thread leads it (it is a lease, or a task between two polls), the calling
/// thread may be the one that has to end it: then the call waits for a second at most, and returns
/// before the listener has heard. With `Caller`, the listener may run on the thread of the call. If
/// that thread runs tasks, a listener must not wait there for a load that is one of them: nothing
/// ends such a wait, as in any other code that blocks this thread.
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
/// runtime: `tokio::spawn` panics there. A listener that needs a runtime holds its handle:
///
/// ```
/// use wheelhouse::{Cache, RemovalCause};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (saved, mut is_saved) = tokio::sync::mpsc::unbounded_channel();
/// let runtime = tokio::runtime::Handle::current();
/// let cache: Cache<u64, String> = Cache::builder()
///     .removal_listener(move |key: &u64, value: &String, _: RemovalCause| {
///         let (key, value, saved) = (*key, value.clone(), saved.clone());
///         runtime.spawn(async move {
///             tokio::task::yield_now().await; // a write to a database, say
///             saved.send((key, value)).ok();
///         });
///     })
///     .build();
/// cache.insert(1, "ada".into());
/// cache.invalidate(&1);
/// assert_eq!(is_saved.recv().await, Some((1, "ada".into())));
/// # });
/// ```
///
/// Tasks that were spawned in this way may end in any order, and a runtime that shuts down drops
/// them. A channel keeps the order, and one task at its other end can be waited for. To send blocks
/// no thread. At shutdown the program drops the cache, which reports the rest and drops the sender;
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
#[non_exhaustive]
pub enum Delivery {
    /// Threads that all caches of the process share.
    ///
    /// At most one of them works for a cache at a time. There are as many as there are listeners at
    /// work, and none after some seconds without removals. A slow listener delays neither callers
    /// nor other caches. If no thread can be started, this is reported once on standard error, and
    /// the calls that do maintenance call the listener themselves.
    #[default]
    Background,
    /// The thread that removes the entry.
    ///
    /// A call that removes or replaces an entry returns after the listener has heard of it. If
    /// another thread calls the listener of this cache at that moment, the call waits until that
    /// thread has reported this removal, or reports it itself. If an entry expires or is evicted,
    /// the thread that removes it reports that: before its call returns if it is a thread of the
    /// program, else in the background. Inside a listener no call waits: what it removes is
    /// reported after that listener has returned.
    ///
    /// # Cost
    ///
    /// Each call that removes an entry, and each insert into a cache with a bound, takes the
    /// maintenance lock of the cache, and waits for its turn to call the listener. Such writers
    /// therefore take turns.
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

/// Offers a delivery of a cache to the crew. False if no thread can be started for it.
pub(crate) fn offer_delivery(cache: &TaskRef) -> bool {
    crew::push(Job::Deliver(cache.clone()))
}
