//! The work of one cache that a thread does without a handle.

use super::delivery::Delivery;
use super::gate::Gate;
use super::listeners::{self, Job};
use super::thread::{Role, role};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a thread that drops a cache waits before it looks again whether another thread still
/// holds a reference, which that thread is about to drop.
pub(super) const LAST_REFERENCE_PAUSE: Duration = Duration::from_micros(50);

/// A cache as its own threads, and those of alarms, see it.
pub(crate) trait Task: Send + Sync {
    /// Does the work that is due; returns the time until the next run.
    fn run_due(&self) -> Option<Duration>;

    /// Which thread calls the listener. The cache owns what the program's executor has captured:
    /// a [`TaskRef`] may outlive the cache.
    fn delivery(&self) -> &Delivery;

    /// For the thread that takes an offered delivery: delivers a bounded number of notifications
    /// that wait. True if more are left: then the caller has to see to the next offer.
    fn deliver(&self) -> bool;

    /// Notes that an offered delivery will not take place.
    fn drop_offer(&self);

    /// After the last handle was dropped, when no thread but those that deliver works on the cache:
    /// applies what was written before, and waits until the listener has heard of all removals.
    fn tell_rest(&self);
}

/// A cache, held weakly, and the gate through which threads reach it.
#[derive(Clone)]
pub(crate) struct TaskRef {
    gate: Arc<Gate>,
    task: Weak<dyn Task>,
    /// Whether there is a listener.
    listens: bool,
}

impl TaskRef {
    pub(crate) fn new(task: Weak<dyn Task>, listens: bool) -> Self {
        Self {
            gate: Gate::new(),
            task,
            listens,
        }
    }

    /// Lets the calling thread work on the cache; `None` if it is gone, or going. A thread that
    /// `delivers` notifications is let in until the listener has heard of everything.
    pub(super) fn with<T>(&self, delivers: bool, work: impl FnOnce(&dyn Task) -> T) -> Option<T> {
        // Left after the reference was dropped (gate 1), also if `work` panics.
        let _entered = self.gate.enter(delivers)?;
        let task = self.task.upgrade()?;
        let answer = work(&*task);
        // The last handle may have been dropped by user code that has just run here. Then this
        // reference is the last.
        if self.is_closed() {
            self.hand_over(task);
        }
        Some(answer)
    }

    /// Tells caches apart, while they live. Not 0.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.gate).addr()
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
    /// on the cache and the listener has heard of everything, so that this thread drops the cache
    /// itself. A thread that is at work on a cache, or inside a listener, does not wait (gate 2). A
    /// listener thread ends another cache itself, if no other thread is at work on that; but the
    /// program's executor is asked by a thread that may wait.
    pub(crate) fn close(&self) {
        let waits = self.gate.close();
        let Some(task) = self.task.upgrade() else {
            return;
        };
        if waits {
            return self.end(&*task);
        } else if self.gate.is_innermost() {
            return;
        }
        let tells = role() == Role::Listener && !matches!(task.delivery(), Delivery::Executor(_));
        if tells && self.gate.end_if_empty() {
            task.tell_rest();
        } else {
            self.hand_over(task);
        }
    }

    /// Ends a cache whose gate is closed: when this returns, no other thread is at work on it, and
    /// none will be.
    pub(super) fn end(&self, task: &dyn Task) {
        self.gate.wait_until_empty();
        task.tell_rest();
        self.gate.end();
        self.gate.wait_until_empty();
    }

    /// Lets a shared thread drop a cache with a listener, after it has delivered the rest; if the
    /// thread that dropped the last handle did not wait. If there is no such thread, the reference
    /// is dropped here, and with it perhaps the cache.
    fn hand_over(&self, task: Arc<dyn Task>) {
        let by_callers = matches!(task.delivery(), Delivery::Caller) && role() == Role::Program;
        if self.listens && !by_callers && self.gate.claim_new_thread() {
            listeners::run(Job::Drop(self.clone(), task));
        }
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
    /// Proportional to the work that is due. Waits for a listener that runs in the background,
    /// unless other work falls due meanwhile; does not wait for an
    /// [`executor`](crate::Delivery::executor).
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
        self.0.with(false, |task| task.run_due())?
    }
}

impl fmt::Debug for MaintenanceTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintenanceTask")
            .field("cache_alive", &!self.0.is_closed())
            .finish()
    }
}

#[cfg(test)]
impl TaskRef {
    /// One that is never run.
    pub(crate) fn idle() -> Self {
        Self::new(Weak::<Idle>::new(), false)
    }
}

#[cfg(test)]
struct Idle;

#[cfg(test)]
impl Task for Idle {
    fn delivery(&self) -> &Delivery {
        &Delivery::Background
    }

    fn run_due(&self) -> Option<Duration> {
        None
    }

    fn deliver(&self) -> bool {
        false
    }

    fn drop_offer(&self) {}

    fn tell_rest(&self) {}
}
