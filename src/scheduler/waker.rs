//! How one cache asks for its next run.

use super::alarm::Alarm;
use super::task::{MaintenanceTask, TaskRef};
use super::thread::{self, MemberId};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Which thread wakes a cache.
#[derive(Clone)]
pub(super) enum Source {
    /// None.
    Disabled,
    /// The scheduler thread, which all caches share.
    Background,
    Custom(Arc<dyn Alarm>),
}

/// One cache's connection to its scheduler.
pub(crate) struct Waker {
    source: Source,
    member: MemberId,
    task: OnceLock<TaskRef>,
}

impl Waker {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            member: MemberId::new(),
            task: OnceLock::new(),
        }
    }

    /// The waker of an alarm.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn of_alarm(alarm: impl Alarm) -> Self {
        Self::new(Source::Custom(Arc::new(alarm)))
    }

    /// Whether no thread wakes the cache, so that callers do its maintenance.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        match self.source {
            Source::Disabled => true,
            Source::Background => thread::has_failed(),
            Source::Custom(_) => false,
        }
    }

    /// Whether the runs are done by the scheduler thread: it serves all caches, so it calls no
    /// listener.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.source, Source::Background)
    }

    /// Names the task to be run; to be called once, when the cache has its address.
    pub(crate) fn enlist(&self, task: TaskRef) {
        if self.task.set(task).is_ok() {
            thread::cache_begins();
        }
    }

    pub(crate) fn task(&self) -> Option<&TaskRef> {
        self.task.get()
    }

    /// Asks for a run after a time. May start the scheduler thread.
    pub(crate) fn wake(&self, after: Duration) {
        let Some(task) = self.task() else {
            return;
        };
        match &self.source {
            Source::Disabled => (),
            Source::Background => thread::wake(self.member, task, after),
            Source::Custom(alarm) => alarm.set(after, MaintenanceTask(task.clone())),
        }
    }

    /// The cache is being dropped: removes its registration.
    pub(crate) fn leave(&self) {
        if self.is_shared() {
            thread::leave(self.member);
        }
    }

    /// The cache was dropped. If it was the last one of the process, waits for the end of the
    /// crate's threads.
    pub(crate) fn end(&self) {
        if self.task().is_some() {
            thread::cache_ends();
        }
    }
}
