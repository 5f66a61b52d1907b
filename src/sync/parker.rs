//! A thread that waits until another thread wakes it, as a [`Wake`].
//!
//! It does not use the token of `std::thread::park`: the program itself may wait for that token,
//! further up the stack, and a wait of the cache would consume it.

use super::{Condvar, IS_MODEL, Mutex, thread_local};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

/// The place where one thread waits.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    /// Whether a wake-up has come that was not consumed.
    is_woken: Mutex<bool>,
    changed: Condvar,
}

thread_local! {
    static OWN: Arc<Parker> = Arc::default();
}

impl Parker {
    /// The calling thread's own parker. It may still hold a wake-up from an earlier wait, so the
    /// caller checks its condition after each wake-up.
    pub(crate) fn own() -> Arc<Self> {
        // An explorer's objects must not outlive the schedule in which they were made.
        if IS_MODEL {
            return Arc::default();
        }
        OWN.try_with(Arc::clone).unwrap_or_default()
    }

    /// Waits for a wake-up, for `most` at most, and consumes it.
    pub(crate) fn park(&self, most: Option<Duration>) {
        let mut is_woken = self.is_woken.lock();
        while !*is_woken {
            match most {
                Some(most) => {
                    _ = self.changed.wait_for(&mut is_woken, most);
                    break;
                }
                None => self.changed.wait(&mut is_woken),
            }
        }
        *is_woken = false;
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.is_woken.lock() = true;
        self.changed.notify_one();
    }
}
