//! Who runs maintenance when nobody calls the cache.
//!
//! A cache without traffic still has to remove entries when they are due and to tell its listener.
//! A [`Scheduler`] says who does it: a thread that sleeps until the next deadline
//! ([`Scheduler::background`]), nobody ([`Scheduler::disabled`]: the next operation or
//! [`run_pending_tasks`](crate::Cache::run_pending_tasks) does it), or a timer of the program's own
//! ([`Scheduler::custom`] with an [`Alarm`]).
//!
//! How the thread works stands in [`driver`].

mod driver;

use driver::Driver;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Who wakes a cache's maintenance when nobody calls the cache.
///
/// Cloning a background scheduler and giving the clones to several caches makes them share one
/// thread.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse::{Cache, Scheduler};
///
/// let shared = Scheduler::background();
/// let sessions: Cache<u64, String> = Cache::builder().scheduler(shared.clone()).build();
/// let tokens: Cache<u64, String> = Cache::builder().scheduler(shared).build();
/// sessions.insert_with_ttl(1, "ada".into(), Duration::from_secs(60));
/// tokens.insert_with_ttl(1, "s3cret".into(), Duration::from_secs(5));
/// assert!(sessions.contains_key(&1) && tokens.contains_key(&1));
/// ```
#[derive(Clone)]
pub struct Scheduler(Kind);

#[derive(Clone)]
enum Kind {
    Background(Arc<Driver>),
    Disabled,
    Custom(Arc<dyn Alarm>),
}

impl Scheduler {
    /// A thread that sleeps until the next deadline: the default.
    ///
    /// The thread starts when there is first something to wait for, sleeps without wake-ups while
    /// nothing is scheduled, holds the caches weakly and ends with the last of them. If it cannot
    /// be started, this is reported once on standard error and the caches go on as if their
    /// scheduler were [`disabled`](Self::disabled).
    ///
    /// The thread of a single cache also runs its removal listener. Where several share the thread,
    /// or could since a clone of this scheduler is kept, each cache with a listener gets a thread
    /// for deliveries of its own, so that a slow listener delays no other cache.
    ///
    /// # Cost
    ///
    /// Nothing until the first deadline; then one sleeping thread.
    ///
    /// ```
    /// use wheelhouse::{Cache, Scheduler};
    ///
    /// let cache: Cache<u8, u8> = Cache::builder().scheduler(Scheduler::background()).build();
    /// cache.insert(1, 1);
    /// assert_eq!(cache.get(&1), Some(1));
    /// ```
    pub fn background() -> Self {
        Self(Kind::Background(Arc::new(Driver::new())))
    }

    /// Nobody: maintenance is done by operations of the cache and by `run_pending_tasks`. The
    /// default with a custom ticker.
    ///
    /// An expired entry is never visible, whoever runs maintenance; it just stays in memory,
    /// unannounced, until somebody does. Listeners run inside `run_pending_tasks`, and inside a
    /// writing call only when very many notifications wait.
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
    /// assert_eq!(cache.entry_count(), 1); // expired, and nobody has come by
    /// cache.run_pending_tasks();
    /// assert_eq!(cache.entry_count(), 0);
    /// ```
    pub fn disabled() -> Self {
        Self(Kind::Disabled)
    }

    /// A timer of the program's own, such as an event loop's.
    ///
    /// # Cost
    ///
    /// No thread. A call of [`Alarm::set`] whenever a run is wanted earlier than was last asked
    /// for, and at the end of each run that wants another.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    /// use wheelhouse::{Alarm, Cache, MaintenanceTask, Scheduler};
    ///
    /// /// Remembers what was asked for; a real one would set a timer.
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
    /// let cache: Cache<u8, u8> = Cache::builder().scheduler(Scheduler::custom(note.clone())).build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
    ///
    /// let (after, task) = note.0.lock().unwrap().take().expect("a deadline was set");
    /// assert!(after <= Duration::from_secs(7));
    /// task.run(); // too early: nothing is due, and the alarm is set again
    /// assert!(note.0.lock().unwrap().is_some());
    /// ```
    pub fn custom(alarm: impl Alarm) -> Self {
        Self(Kind::Custom(Arc::new(alarm)))
    }

    /// The waker of one cache.
    pub(crate) fn waker(&self, name: Option<&str>) -> Waker {
        match &self.0 {
            Kind::Background(driver) => Waker::Driver {
                number: driver.number(),
                driver: Arc::clone(driver),
                name: name.map(Into::into),
            },
            Kind::Disabled => Waker::None,
            Kind::Custom(alarm) => Waker::Alarm {
                alarm: Arc::clone(alarm),
                task: OnceLock::new(),
            },
        }
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::background()
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Background(_) => "Scheduler::background()",
            Kind::Disabled => "Scheduler::disabled()",
            Kind::Custom(_) => "Scheduler::custom(..)",
        })
    }
}

/// A timer that runs a cache's maintenance, for programs that have an event loop of their own.
///
/// See [`Scheduler::custom`] for an example, and `examples/tokio_timer.rs` for one on a tokio
/// timer.
pub trait Alarm: Send + Sync + 'static {
    /// Arranges that [`task.run()`](MaintenanceTask::run) is called once, `after` from now.
    ///
    /// A later call for the same cache replaces an earlier one. Running too early or more than once
    /// is harmless, running late makes removals late. It is called by whichever thread writes to
    /// the cache, while a lock of the cache's scheduling is held: it must return soon and must not
    /// call the cache; handing the request to the event loop is all it should do.
    ///
    /// A panic in it reaches who called the cache, when the write has been made; the next request
    /// tells the alarm anew.
    ///
    /// ```
    /// use std::sync::mpsc::{self, Sender};
    /// use std::time::Duration;
    /// use wheelhouse::{Alarm, Cache, MaintenanceTask, Scheduler};
    ///
    /// /// Hands the request to whoever listens at the other end.
    /// struct ToLoop(Sender<(Duration, MaintenanceTask)>);
    ///
    /// impl Alarm for ToLoop {
    ///     fn set(&self, after: Duration, task: MaintenanceTask) {
    ///         self.0.send((after, task)).ok(); // the loop may have ended
    ///     }
    /// }
    ///
    /// let (requests, event_loop) = mpsc::channel();
    /// let cache: Cache<u8, u8> = Cache::builder().scheduler(Scheduler::custom(ToLoop(requests))).build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(60));
    /// cache.insert_with_ttl(2, 2, Duration::from_secs(5)); // earlier: told again
    /// let requested: Vec<Duration> = event_loop.try_iter().map(|(after, _)| after).collect();
    /// assert_eq!(requested.len(), 2);
    /// assert!(requested[1] < requested[0]);
    /// ```
    fn set(&self, after: Duration, task: MaintenanceTask);
}

/// The maintenance of one cache, to be run by an [`Alarm`].
///
/// It holds the cache weakly: a task of a cache that is gone does nothing.
///
/// ```
/// use std::sync::{Arc, OnceLock};
/// use std::time::Duration;
/// use wheelhouse::{Alarm, Cache, MaintenanceTask, Scheduler};
///
/// /// Keeps the task, for a loop that calls it once a turn.
/// #[derive(Clone, Default)]
/// struct EachTurn(Arc<OnceLock<MaintenanceTask>>);
///
/// impl Alarm for EachTurn {
///     fn set(&self, _: Duration, task: MaintenanceTask) {
///         self.0.set(task).ok(); // the same each time
///     }
/// }
///
/// let turns = EachTurn::default();
/// let cache: Cache<u8, u8> = Cache::builder().scheduler(Scheduler::custom(turns.clone())).build();
/// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
/// let task = turns.0.get().expect("a deadline was set").clone();
/// assert!(task.run().is_some()); // something is scheduled
/// drop(cache);
/// assert_eq!(task.run(), None);
/// ```
#[derive(Clone)]
pub struct MaintenanceTask(Weak<dyn Task>);

impl MaintenanceTask {
    /// Does all work that is due and delivers the notifications for it, then sets the alarm again
    /// if there is anything to wait for.
    ///
    /// Returns how long it is until the next run is wanted, as told to [`Alarm::set`] as well;
    /// `None` if nothing is scheduled, or the cache is gone.
    ///
    /// # Panics
    ///
    /// Only if the cache's [`Ticker`](crate::Ticker) or [`Alarm::set`] does: see
    /// [When callbacks misbehave](crate#when-callbacks-misbehave).
    ///
    /// # Cost
    ///
    /// Proportional to the work that is due. Listeners run on the calling
    /// thread.
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
    ///     .removal_listener(move |key: &u8, _: &u8, cause| tell.lock().unwrap().push((*key, cause)))
    ///     .build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
    /// ticker.advance(Duration::from_secs(7));
    /// let task = latest.0.lock().unwrap().take().expect("a deadline was set");
    /// task.run();
    /// assert_eq!(*told.lock().unwrap(), [(1, RemovalCause::Expired)]);
    /// ```
    pub fn run(&self) -> Option<Duration> {
        self.0.upgrade()?.run_due()
    }
}

impl fmt::Debug for MaintenanceTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintenanceTask")
            .field("cache_alive", &(self.0.strong_count() > 0))
            .finish()
    }
}

/// What a driver or an alarm runs.
pub(crate) trait Task: Send + Sync {
    /// Does what is due; says how long it is until the next run.
    fn run_due(&self) -> Option<Duration>;

    /// Delivers the notifications that wait.
    fn deliver(&self);
}

/// Which of a task's two sides a driver runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    Maintenance,
    Delivery,
}

/// How one cache asks to be woken.
pub(crate) enum Waker {
    None,
    Driver {
        driver: Arc<Driver>,
        number: u64,
        name: Option<Box<str>>,
    },
    Alarm {
        alarm: Arc<dyn Alarm>,
        task: OnceLock<MaintenanceTask>,
    },
}

impl Waker {
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        match self {
            Self::None => true,
            Self::Driver { driver, .. } => driver.has_failed(),
            Self::Alarm { .. } => false,
        }
    }

    /// Whether the thread that runs this cache's maintenance runs other caches' too, or may come
    /// to: a cache that joins it while it is inside a listener would have to wait. Asked by that
    /// thread.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            // The thread has one, this waker another. Any more is another cache's, or a `Scheduler`
            // that can be given to one.
            Self::Driver { driver, .. } => Arc::strong_count(driver) > 2,
            _ => false,
        }
    }

    /// A thread of its own for one cache's deliveries.
    pub(crate) fn courier(name: Option<&str>) -> Self {
        let driver = Arc::new(Driver::new());
        Self::Driver {
            number: driver.number(),
            driver,
            name: Some(format!("{}-listener", name.unwrap_or("cache")).into()),
        }
    }

    /// Names the task to be run; to be called once, when the cache has its address.
    pub(crate) fn enlist(&self, task: Weak<dyn Task>, job: Job) {
        match self {
            Self::None => (),
            Self::Driver { driver, number, .. } => driver.enlist(*number, task, job),
            Self::Alarm { task: cell, .. } => _ = cell.set(MaintenanceTask(task)),
        }
    }

    /// Asks for a run after a time.
    pub(crate) fn wake(&self, after: Duration) {
        match self {
            Self::None => (),
            Self::Driver {
                driver,
                number,
                name,
            } => driver.wake(*number, after, name.as_deref()),
            Self::Alarm { alarm, task } => {
                if let Some(task) = task.get() {
                    alarm.set(after, task.clone());
                }
            }
        }
    }

    /// The cache is going; no run is wanted any more.
    pub(crate) fn leave(&self) {
        if let Self::Driver { driver, number, .. } = self {
            driver.leave(*number);
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Driver { .. } => "Driver",
            Self::Alarm { .. } => "Alarm",
        })
    }
}
