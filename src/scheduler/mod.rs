//! Which thread runs maintenance when no operation of the cache does.
//!
//! A cache without traffic still has to remove entries when they are due, and to call its listener.
//! A [`Scheduler`] says which thread does that: one thread for all caches of the process
//! ([`Scheduler::background`]), or a timer of the program's own ([`Scheduler::custom`] with an
//! [`Alarm`]). With [`Scheduler::disabled`] the next operation or
//! [`run_pending_tasks`](crate::Cache::run_pending_tasks) does it.
//!
//! | file | is |
//! |------|----|
//! | [`crew`] | the threads of the crate |
//! | [`gate`] | the way to a cache for threads without a handle, and the drop of the last one |

mod crew;
mod gate;

pub(crate) use crew::{CREW, is_crew_thread};
#[cfg(wheelhouse_loom)]
pub(crate) use gate::Gate;
pub(crate) use gate::{CacheRef, CacheWork, Visit, WeakHandle, in_listener, inside_listener};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which thread runs a cache's maintenance when no operation does.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, Scheduler};
///
/// let cache: Cache<u64, String> = Cache::builder().scheduler(Scheduler::background()).build();
/// cache.insert_with_ttl(1, "ada".into(), Duration::from_secs(60));
/// assert!(cache.contains_key(&1));
/// ```
#[derive(Clone, Default)]
pub struct Scheduler(WokenBy);

impl Scheduler {
    /// The scheduler thread, which sleeps until the next deadline: the default.
    ///
    /// One thread, named `wheelhouse`, serves all caches of the process that have this scheduler.
    /// It starts when a cache first has something to wait for, sleeps without wake-ups while
    /// nothing is scheduled, holds the caches weakly, and ends with the last of them. After a
    /// bounded amount of work for one cache it serves the others first.
    ///
    /// It calls no listener, unless no other thread can be started, or a destructor that it runs
    /// calls `run_pending_tasks`: [`Delivery`](crate::Delivery) says which threads do. So a slow
    /// listener delays neither other caches nor the removal of entries. Destructors of values run
    /// on the scheduler thread; a slow one delays all caches that share it.
    ///
    /// If the scheduler thread cannot be started, this is reported once on standard error, and the
    /// caches continue as if their scheduler were [`disabled`](Self::disabled); later requests try
    /// again. If the thread has not run for seconds although an entry is due, the calls that write
    /// to the cache, or find an expired entry, run maintenance.
    ///
    /// # Cost
    ///
    /// Nothing until there is work: an entry with a deadline, an insert into a cache with a bound,
    /// or a removal. Then one sleeping thread in the process. The cost of a request for an earlier
    /// run grows with the logarithm of the number of caches.
    ///
    /// ```
    /// use wheelhouse::{Cache, Scheduler};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().scheduler(Scheduler::background()).build();
    /// cache.insert(1, 1);
    /// assert_eq!(cache.get(&1), Some(1));
    /// ```
    pub fn background() -> Self {
        Self(WokenBy::Background)
    }

    /// No thread: operations of the cache and `run_pending_tasks` do the maintenance. The default
    /// with a custom ticker.
    ///
    /// An expired entry is never visible. It stays in memory, and the listener is not called for
    /// it, until a call does maintenance. Writes, removals and `run_pending_tasks` free what was
    /// removed; hits free nothing.
    ///
    /// # Cost
    ///
    /// No thread. A call that meets expired entries removes some of them, in a small bounded pass.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse::{Cache, ManualTicker, Scheduler};
    ///
    /// let ticker = ManualTicker::new();
    /// let cache: Cache<u8, u8> =
    ///     Cache::builder().scheduler(Scheduler::disabled()).ticker(ticker.clone()).build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
    /// ticker.advance(Duration::from_secs(5));
    /// assert_eq!(cache.entry_count(), 1); // expired, and no call has removed it
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn disabled() -> Self {
        Self(WokenBy::Disabled)
    }

    pub(crate) fn is_disabled(&self) -> bool {
        matches!(self.0, WokenBy::Disabled)
    }

    /// A timer of the program's own, such as an event loop's.
    ///
    /// # Cost
    ///
    /// No thread. A call of [`Alarm::set`] for each write that needs a run earlier than the last
    /// one requested, and at the end of each run that needs another.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    /// use wheelhouse::{Alarm, Cache, MaintenanceTask, Scheduler};
    ///
    /// /// Remembers the request; a real one would set a timer.
    /// #[derive(Clone, Default)]
    /// struct Note(Arc<Mutex<Option<(Duration, MaintenanceTask)>>>);
    ///
    /// impl Alarm for Note {
    ///     fn set(&self, after: Duration, task: MaintenanceTask) {
    ///         *self.0.lock().unwrap() = Some((after, task));
    ///     }
    /// }
    ///
    /// let note = Note::default();
    /// let cache: Cache<u8, u8> =
    ///     Cache::builder().scheduler(Scheduler::custom(note.clone())).build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
    ///
    /// let (after, task) = note.0.lock().unwrap().take().expect("a deadline was set");
    /// assert!(after <= Duration::from_secs(7));
    /// task.run(); // too early: nothing is due, and the alarm is set again
    /// assert!(note.0.lock().unwrap().is_some());
    /// ```
    pub fn custom(alarm: impl Alarm) -> Self {
        Self(WokenBy::Custom(Arc::new(alarm)))
    }

    /// Whether no thread wakes the cache, so that callers do its maintenance.
    #[inline]
    pub(crate) fn callers_maintain(&self) -> bool {
        match self.0 {
            WokenBy::Disabled => true,
            WokenBy::Background => CREW.has_failed(),
            WokenBy::Custom(_) => false,
        }
    }

    /// Whether the runs are done by the scheduler thread: it serves all caches, so it calls no
    /// listener.
    #[inline]
    pub(crate) fn is_background(&self) -> bool {
        matches!(self.0, WokenBy::Background)
    }

    /// Asks for a run of the cache after a time. May start the scheduler thread.
    pub(crate) fn wake(&self, cache: &CacheRef, after: Duration) {
        match &self.0 {
            WokenBy::Disabled => (),
            WokenBy::Background => CREW.wake(cache, after),
            WokenBy::Custom(alarm) => alarm.set(after, MaintenanceTask(cache.clone())),
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            WokenBy::Background => "Scheduler::background()",
            WokenBy::Disabled => "Scheduler::disabled()",
            WokenBy::Custom(_) => "Scheduler::custom(..)",
        })
    }
}

/// A timer that runs a cache's maintenance, for programs that have an event loop of their own.
///
/// [`set`](Self::set) has an example; `examples/tokio_timer.rs` in the repository runs on a tokio
/// timer.
pub trait Alarm: Send + Sync + 'static {
    /// Arranges that [`task.run()`](MaintenanceTask::run) is called once, `after` from now.
    ///
    /// A later call for the same cache replaces an earlier one. Running too early or more than once
    /// is harmless; running late makes removals late. If a task is dropped and never run, the bound
    /// on entries still holds. But the cache removes no due entry, calls no listener and frees no
    /// memory until [`run_pending_tasks`](crate::Cache::run_pending_tasks) is called, or a write
    /// requests an earlier run and that run takes place. The writing thread calls `set` while it
    /// holds a lock. So `set` must return soon, and must not call the cache or drop a handle of it:
    /// it should only pass the request to the event loop.
    ///
    /// # Panics
    ///
    /// A panic in `set` reaches the caller of the cache. The write is stored by then, and the next
    /// request calls the alarm again.
    ///
    /// # Cost
    ///
    /// Part of a write that asks for an earlier run.
    ///
    /// ```
    /// use std::sync::mpsc::{self, Sender};
    /// use std::time::Duration;
    /// use wheelhouse::{Alarm, Cache, MaintenanceTask, Scheduler};
    ///
    /// /// Passes the request to the thread at the other end of the channel.
    /// struct ToLoop(Sender<(Duration, MaintenanceTask)>);
    ///
    /// impl Alarm for ToLoop {
    ///     fn set(&self, after: Duration, task: MaintenanceTask) {
    ///         self.0.send((after, task)).ok(); // the loop may have ended
    ///     }
    /// }
    ///
    /// let (requests, event_loop) = mpsc::channel();
    /// let cache: Cache<u8, u8> =
    ///     Cache::builder().scheduler(Scheduler::custom(ToLoop(requests))).build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(60));
    /// cache.insert_with_ttl(2, 2, Duration::from_secs(5)); // earlier: set again
    /// let requested: Vec<Duration> = event_loop.try_iter().map(|(after, _)| after).collect();
    /// assert_eq!(requested.len(), 2);
    /// assert!(requested[1] < requested[0]);
    /// ```
    fn set(&self, after: Duration, task: MaintenanceTask);
}

/// The maintenance of one cache, to be run by an [`Alarm`].
///
/// It holds the cache weakly: a task of a cache that is gone does nothing. [`run`](Self::run) has
/// an example.
#[derive(Clone)]
pub struct MaintenanceTask(CacheRef);

impl MaintenanceTask {
    /// Does all work that is due and delivers the notifications for it, then sets the alarm again
    /// if there is anything to wait for.
    ///
    /// Returns the time until the next run, which [`Alarm::set`] got as well; `None` if
    /// nothing is scheduled, or the cache is gone.
    ///
    /// # Panics
    ///
    /// Only if the cache's [`Ticker`](crate::Ticker) or [`Alarm::set`] does: see [When callbacks
    /// misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Proportional to the work that is due. Waits for a listener that runs in the background,
    /// unless other work falls due meanwhile.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    /// use wheelhouse::{Alarm, Cache, MaintenanceTask, ManualTicker, RemovalCause, Scheduler};
    ///
    /// #[derive(Clone, Default)]
    /// struct Latest(Arc<Mutex<Option<MaintenanceTask>>>);
    ///
    /// impl Alarm for Latest {
    ///     fn set(&self, _: Duration, task: MaintenanceTask) {
    ///         *self.0.lock().unwrap() = Some(task);
    ///     }
    /// }
    ///
    /// let (ticker, latest) = (ManualTicker::new(), Latest::default());
    /// let told = Arc::new(Mutex::new(Vec::new()));
    /// let tell = Arc::clone(&told);
    /// let cache: Cache<u8, u8> = Cache::builder()
    ///     .ticker(ticker.clone())
    ///     .scheduler(Scheduler::custom(latest.clone()))
    ///     .removal_listener(move |key: &u8, _: &u8, cause| {
    ///         tell.lock().unwrap().push((*key, cause))
    ///     })
    ///     .build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
    /// ticker.advance(Duration::from_secs(7));
    /// let task = latest.0.lock().unwrap().take().expect("a deadline was set");
    /// task.run();
    /// assert_eq!(*told.lock().unwrap(), [(1, RemovalCause::Expired)]);
    /// drop(cache);
    /// assert_eq!(task.run(), None);
    /// ```
    pub fn run(&self) -> Option<Duration> {
        self.0.with(false, |cache| cache.run_due())?
    }
}

impl fmt::Debug for MaintenanceTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintenanceTask")
            .field("cache_alive", &!self.0.is_closed())
            .finish()
    }
}

/// Which thread wakes a cache.
#[derive(Clone, Default)]
enum WokenBy {
    /// None.
    Disabled,
    /// The scheduler thread, which all caches share.
    #[default]
    Background,
    Custom(Arc<dyn Alarm>),
}
