//! How one cache asks for its next run.

use super::task::TaskRef;
use super::thread::{self, MemberId};
use super::{Alarm, MaintenanceTask};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One cache's connection to its scheduler.
pub(crate) struct Waker {
    to: Target,
    task: OnceLock<TaskRef>,
}

pub(super) enum Target {
    /// No thread wakes the cache.
    None,
    /// The scheduler thread, which all caches share.
    Thread(MemberId),
    Alarm(Arc<dyn Alarm>),
}

impl Waker {
    pub(super) fn new(to: Target) -> Self {
        Self {
            to,
            task: OnceLock::new(),
        }
    }

    /// The waker of an alarm.
    #[cfg(all(test, wheelhouse_loom))]
    pub(crate) fn of_alarm(alarm: impl Alarm) -> Self {
        Self::new(Target::Alarm(Arc::new(alarm)))
    }

    /// Whether no thread wakes the cache, so that callers do its maintenance.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        match self.to {
            Target::None => true,
            Target::Thread(_) => thread::has_failed(),
            Target::Alarm(_) => false,
        }
    }

    /// Whether the runs are done by the scheduler thread: it serves all caches, so it calls no
    /// listener.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.to, Target::Thread(_))
    }

    /// Names the task to be run; to be called once, when the cache has its address.
    pub(crate) fn enlist(&self, task: TaskRef) {
        _ = self.task.set(task);
    }

    pub(crate) fn task(&self) -> Option<&TaskRef> {
        self.task.get()
    }

    /// Asks for a run after a time. May start the scheduler thread.
    pub(crate) fn wake(&self, after: Duration) {
        let Some(task) = self.task() else {
            return;
        };
        match &self.to {
            Target::None => (),
            Target::Thread(member) => thread::wake(*member, task, after),
            Target::Alarm(alarm) => alarm.set(after, MaintenanceTask(task.clone())),
        }
    }

    /// The cache is being dropped: removes its registration.
    pub(crate) fn leave(&self) {
        if let Target::Thread(member) = self.to {
            thread::leave(member);
        }
    }
}
