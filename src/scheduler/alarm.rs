//! A program's own timer.

use super::task::MaintenanceTask;
use std::time::Duration;

/// A timer that runs a cache's maintenance, for programs that have an event loop of their own.
///
/// [`set`](Self::set) has an example; `examples/tokio_timer.rs` runs on a tokio timer.
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
    /// A panic in `set` reaches the caller of the cache. The write is stored by then, and the next
    /// request calls the alarm again.
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
