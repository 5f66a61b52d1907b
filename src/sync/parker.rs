//! A thread that waits until another thread wakes it, as a [`Wake`].
//!
//! The token of `std::thread::park` is not used: a program may wait for that token itself, further
//! up the stack, and a wait of the cache would consume it.

use super::{Condvar, IS_MODEL, Mutex, thread_local};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

/// The place where one thread waits.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    static OWN: Arc<Parker> = Arc::default();
}

impl Parker {
    /// The calling thread's own place. One that was used before may still hold a wake-up of then:
    /// the caller looks again after each.
    pub(crate) fn own() -> Arc<Self> {
        // An explorer's objects must not outlive the schedule in which they were made.
        if IS_MODEL {
            return Arc::default();
        }
        OWN.try_with(Arc::clone).unwrap_or_default()
    }

    /// Waits for a wake-up, and consumes it.
    pub(crate) fn park(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            self.changed.wait(&mut woken);
        }
        *woken = false;
    }

    /// The same, but not for longer than `time`.
    pub(crate) fn park_for(&self, time: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.changed.wait_for(&mut woken, time);
        }
        *woken = false;
    }

    fn unpark(&self) {
        *self.woken.lock() = true;
        self.changed.notify_all();
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}
