//! Which thread calls a cache's listener: the setting, and the tasks that do it.
//!
//! # How it works
//!
//! A cache whose notifications wait *offers* a delivery: to the shared threads ([`listeners`]) or
//! to the program's executor. It offers one at a time. The thread that takes the offer delivers
//! what waits, and offers again if there is more.
//!
//! When the last handle is dropped, what is left to deliver goes the same way: threads that deliver
//! may still enter the cache. The drop waits until all is delivered.
//!
//! [`listeners`]: super::listeners

use super::gate::TaskRef;
use super::listeners::{self, Job};
use super::thread::report_once;
use crate::contain::contain;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a call waits for a task that its executor has neither run nor dropped.
pub(crate) const EXECUTOR_PATIENCE: Duration = Duration::from_secs(2);

/// Which thread calls a cache's removal listener, for
/// [`delivery`](crate::CacheBuilder::delivery).
///
/// | choose | if | the listener runs |
/// |---|---|---|
/// | [`Background`](Self::Background), the default | nothing below applies | soon, on threads that all caches of the process share |
/// | [`Caller`](Self::Caller) | the program relies on what the listener does, when a call returns: it keeps a second index, say | before the call that removed the entry returns |
/// | [`executor`](Self::executor) | the listener needs the context of a runtime, or threads of the program | where the program runs the [`DeliveryTask`] |
///
/// A cache without a scheduler (the default with a custom ticker) has no thread that soon reports a
/// removal: with `Background` and `executor`, its listener hears of removals after an operation or
/// `run_pending_tasks` has done maintenance.
///
/// In each mode, one thread at a time calls the listener of a cache. Each removal is reported once,
/// and the removals of a key in their order. The listener runs with no lock of the cache held.
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
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Delivery {
    /// Threads that all caches of the process share.
    ///
    /// At most one of them works for a cache at a time. There are as many as there are listeners at
    /// work, and none after some seconds without removals. A slow listener delays neither callers
    /// nor other caches. If no thread can be started, this is reported once on standard error, and
    /// `run_pending_tasks` and the last drop call the listener themselves.
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
    /// Each call that removes an entry takes the maintenance lock of the cache, and waits for its
    /// turn to call the listener. Writers that remove entries therefore take turns.
    Caller,
    /// The program's executor: see [`executor`](Self::executor).
    Executor(Arc<dyn Fn(DeliveryTask) + Send + Sync>),
}

impl Delivery {
    /// Gives each batch of notifications to `run_it`, as a [`DeliveryTask`] that the program runs
    /// where it wants.
    ///
    /// `run_it` is called when a removal is to be reported and no earlier task waits to be run. The
    /// thread that calls it may be a caller of the cache or the scheduler thread; it holds no lock
    /// of the cache. `run_it` may run the task at once: then that thread calls the
    /// listener, and waits for it. Else `run_it` must return soon. It must not call the cache. A
    /// panic in it is caught, and the task counts as dropped.
    ///
    /// # Waiting
    ///
    /// `run_pending_tasks` waits until the tasks have reported what was removed before. A task that
    /// is dropped without having run is offered again with the next notification, and once by a
    /// `run_pending_tasks` that waits for it. If that one is dropped too, or is neither run nor
    /// dropped within two seconds, `run_pending_tasks` returns without it; for the latter it writes
    /// a warning to standard error, once. So do not call `run_pending_tasks` on the only thread
    /// that could run the task.
    ///
    /// The drop of the last handle offers the rest in the same way. If its task is dropped, or not
    /// begun within two seconds, a thread of the cache calls the listener in its place, and the
    /// drop waits for that. Inside a listener of any cache, the drop does not wait: it hands the
    /// cache to a background thread, which offers the rest and waits in its place. So flush before
    /// the runtime shuts down: call `run_pending_tasks` from `spawn_blocking`, then drop the cache.
    ///
    /// # Examples
    ///
    /// With tokio, a listener that may block runs on the pool for blocking work, in the runtime's
    /// context:
    ///
    /// ```
    /// use wheelhouse::{Cache, Delivery, DeliveryTask, RemovalCause};
    ///
    /// # let workers = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    /// # workers.unwrap().block_on(async {
    /// let runtime = tokio::runtime::Handle::current();
    /// let cache: Cache<u64, String> = Cache::builder()
    ///     .delivery(Delivery::executor(move |task: DeliveryTask| {
    ///         runtime.spawn_blocking(|| task.run());
    ///     }))
    ///     .removal_listener(|key: &u64, _: &String, _: RemovalCause| {
    ///         println!("{key} left, heard in {:?}", tokio::runtime::Handle::current().id());
    ///     })
    ///     .build();
    /// cache.insert(1, "ada".into());
    /// cache.invalidate(&1);
    /// let flushed = cache.clone();
    /// tokio::task::spawn_blocking(move || flushed.run_pending_tasks()).await.unwrap();
    /// # });
    /// ```
    ///
    /// A listener that has to await sends what it heard to a task of the program. It needs no
    /// executor, since sending does not block. At shutdown the program drops the cache, which
    /// reports the rest and drops the sender; then the task ends by itself:
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
    pub fn executor(run_it: impl Fn(DeliveryTask) + Send + Sync + 'static) -> Self {
        Self::Executor(Arc::new(run_it))
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Background => "Delivery::Background",
            Self::Caller => "Delivery::Caller",
            Self::Executor(_) => "Delivery::executor(..)",
        })
    }
}

/// The waiting notifications of one cache, to be delivered by the thread that runs this.
///
/// See [`Delivery::executor`]. A task holds the cache weakly: if the cache is gone, it does
/// nothing. A task that is dropped is offered again with the next notification.
///
/// ```
/// use std::sync::mpsc;
/// use wheelhouse::{Cache, Delivery, DeliveryTask, RemovalCause};
///
/// let (offer, tasks) = mpsc::channel();
/// let worker = std::thread::spawn(move || tasks.into_iter().for_each(DeliveryTask::run));
/// let cache: Cache<u8, u8> = Cache::builder()
///     .delivery(Delivery::executor(move |task: DeliveryTask| offer.send(task).unwrap()))
///     .removal_listener(|key: &u8, _: &u8, cause: RemovalCause| println!("{key} left: {cause}"))
///     .build();
/// cache.insert(1, 1);
/// cache.invalidate(&1);
/// cache.run_pending_tasks(); // waits for the worker
/// drop(cache);
/// worker.join().unwrap();
/// ```
#[must_use = "a task that is dropped tells nothing"]
pub struct DeliveryTask(Option<TaskRef>);

impl DeliveryTask {
    /// Calls the listener for each notification that waits, a bounded number of them; if more are
    /// left, another task is offered. If the executor runs that one at once, on the same thread,
    /// this call goes on in its place.
    ///
    /// # Cost
    ///
    /// That of the listener calls.
    ///
    /// ```
    /// use wheelhouse::{Cache, Delivery, DeliveryTask};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder()
    ///     .delivery(Delivery::executor(|task: DeliveryTask| {
    ///         std::thread::spawn(move || task.run());
    ///     }))
    ///     .removal_listener(|key: &u8, _: &u8, cause| println!("{key} left: {cause}"))
    ///     .build();
    /// cache.insert(1, 1);
    /// ```
    pub fn run(mut self) {
        let Some(cache) = self.0.take() else {
            return;
        };
        if OFFERS.get().0 == cache.address() {
            return OFFERS.set((cache.address(), true));
        }
        cache.with(true, |task| {
            while task.deliver() {
                let outer = OFFERS.replace((cache.address(), false));
                task.delivery().map(|mode| mode.offer(&cache));
                let (_, is_run_here) = OFFERS.replace(outer);
                if !is_run_here {
                    break;
                }
            }
        });
    }
}

thread_local! {
    /// The cache whose next task a `run` on this thread offers now, by its address, and whether
    /// that task was run on this thread meanwhile. The `run` that offers then does its work:
    /// else each task would run inside the one before.
    static OFFERS: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

impl Drop for DeliveryTask {
    fn drop(&mut self) {
        if let Some(cache) = self.0.take() {
            cache.with(true, |task| task.drop_offer());
        }
    }
}

impl fmt::Debug for DeliveryTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryTask").finish_non_exhaustive()
    }
}

impl Delivery {
    /// Offers a delivery of a cache. False if no thread can be started for it.
    pub(crate) fn offer(&self, cache: &TaskRef) -> bool {
        match self {
            Self::Executor(executor) => {
                // If it panics, it has dropped the task.
                contain(|| executor(DeliveryTask(Some(cache.clone()))));
                true
            }
            Self::Background | Self::Caller => listeners::run(Job::Deliver(cache.clone())),
        }
    }
}

/// Reports, once in a process, that an executor lets a call wait for its task.
pub(crate) fn report_idle_executor() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    report_once(
        &REPORTED,
        format_args!(
            "run_pending_tasks has waited {EXECUTOR_PATIENCE:?} for a DeliveryTask that the \
             executor has neither run nor dropped, and returns without it"
        ),
    );
}
