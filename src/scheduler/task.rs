//! The work of one cache that a thread does without a handle.

use super::gate::Gate;
use crate::sync::{nap, thread_local};
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a thread that drops a cache waits before it looks again whether another thread still
/// holds a reference, which that thread is about to drop.
const LAST_REFERENCE_PAUSE: Duration = Duration::from_micros(50);

/// A cache as its own threads, and those of alarms, see it.
pub(crate) trait Task: Send + Sync {
    /// Does the work that is due; returns the time until the next run.
    fn run_due(&self) -> Option<Duration>;

    /// Delivers the notifications that wait.
    fn deliver(&self);

    /// The name for a thread that calls the listener; `None` if the cache has no listener.
    fn notifier_name(&self) -> Option<String>;
}

thread_local! {
    /// Which kind of thread the calling thread is, if the crate has started it.
    static OWN: Cell<Option<OwnThread>> = const { Cell::new(None) };
}

/// The threads that the crate starts to work on caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnThread {
    Scheduler,
    Notifier,
}

impl OwnThread {
    /// Sets which kind of thread the calling thread is.
    pub(super) fn mark(self) {
        OWN.with(|own| own.set(Some(self)));
    }

    fn current() -> Option<Self> {
        OWN.try_with(Cell::get).ok()?
    }
}

/// A cache, held weakly, and the gate through which threads reach it.
#[derive(Clone)]
pub(crate) struct TaskRef {
    gate: Arc<Gate>,
    task: Weak<dyn Task>,
}

impl TaskRef {
    pub(crate) fn new(task: Weak<dyn Task>) -> Self {
        Self {
            gate: Gate::new(),
            task,
        }
    }

    /// Lets the calling thread work on the cache; `None` if it is gone, or going.
    pub(super) fn with<T>(&self, work: impl FnOnce(&dyn Task) -> T) -> Option<T> {
        // Left after the reference was dropped (gate 1), also if `work` panics.
        let _entered = self.gate.enter()?;
        let task = self.task.upgrade()?;
        let answer = work(&*task);
        // The last handle may have been dropped in a destructor that has just run here. Then this
        // reference is the last, and this thread drops the cache. But it calls no listener if other
        // caches need the thread.
        if self.is_closed() && OwnThread::current() == Some(OwnThread::Scheduler) {
            self.drop_on_new_thread(task);
        }
        Some(answer)
    }

    pub(crate) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }

    /// Whether the last handle was dropped.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// The calling thread is about to drop the last handle. Waits until no other thread is at work
    /// on the cache, so that this thread drops the cache itself. A thread that is at work on a
    /// cache, or inside a listener, does not wait (gate 2).
    pub(crate) fn close(&self) {
        if self.gate.close() {
            self.gate.wait_until_empty();
        } else if OwnThread::current().is_some()
            && !self.gate.is_innermost()
            && let Some(task) = self.task.upgrade()
        {
            // This thread is at work on another cache, which a listener must not delay.
            self.drop_on_new_thread(task);
        }
    }

    /// Starts a thread that drops a cache with a listener, and that first delivers its
    /// notifications.
    fn drop_on_new_thread(&self, task: Arc<dyn Task>) {
        let Some(name) = task.notifier_name() else {
            return;
        };
        if !self.gate.claim_new_thread() {
            return;
        }
        let gate = self.gate();
        // If the thread cannot be started, its reference is dropped here, and with it perhaps the
        // cache.
        _ = std::thread::Builder::new().name(name).spawn(move || {
            gate.wait_until_empty();
            while Arc::strong_count(&task) > 1 {
                nap(LAST_REFERENCE_PAUSE);
            }
            drop(task);
        });
    }
}

/// The maintenance of one cache, to be run by an [`Alarm`](crate::Alarm).
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
pub struct MaintenanceTask(pub(super) TaskRef);

impl MaintenanceTask {
    /// Does all work that is due and delivers the notifications for it, then sets the alarm again
    /// if there is anything to wait for.
    ///
    /// Returns the time until the next run, which [`Alarm::set`](crate::Alarm::set) got as well;
    /// `None` if nothing is scheduled, or the cache is gone.
    ///
    /// # Panics
    ///
    /// Only if the cache's [`Ticker`](crate::Ticker) or [`Alarm::set`](crate::Alarm::set) does: see
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
    ///     .removal_listener(move |key: &u8, _: &u8, cause| {
    ///         tell.lock().unwrap().push((*key, cause))
    ///     })
    ///     .build();
    /// cache.insert_with_ttl(1, 1, Duration::from_secs(5));
    /// ticker.advance(Duration::from_secs(7));
    /// let task = latest.0.lock().unwrap().take().expect("a deadline was set");
    /// task.run();
    /// assert_eq!(*told.lock().unwrap(), [(1, RemovalCause::Expired)]);
    /// ```
    pub fn run(&self) -> Option<Duration> {
        self.0.with(|task| task.run_due())?
    }
}

impl fmt::Debug for MaintenanceTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintenanceTask")
            .field("cache_alive", &!self.0.is_closed())
            .finish()
    }
}
