//! A thread that waits until another thread wakes it, as a [`Wake`].
//!
//! It does not use the token of `std::thread::park`: the program itself may wait for that token,
//! further up the stack, and a wait of the cache would consume it.
//!
//! # How it works
//!
//! To fall asleep and to be woken takes two calls of the system and two switches of the processor.
//! A turn that one thread hands to the next is mostly shorter. So a thread may [`spin`] before it
//! parks: it checks its state for a short time. The caller decides whether that makes sense: the
//! turn has to be near, and there have to be cores to spare. A thread that wakes another one calls
//! the system only if that thread is asleep, or has the lock at this moment.
//!
//! [`spin`]: Parker::spin

use super::{Condvar, IS_MODEL, Mutex, thread_local};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// How long a thread spins at most: about as long as a sleeping thread takes to run again, after it
/// was woken on an idle core. If it were shorter, two threads that hand turns to each other, and
/// have once slept, would sleep again at every turn.
const SPIN: Duration = Duration::from_micros(50);
/// The pauses between two readings of the clock.
const PAUSES: u32 = 16;

/// The place where one thread waits.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    /// Whether a wake-up has come that was not consumed.
    is_woken: Mutex<bool>,
    changed: Condvar,
}

/// A parker, and the waker that wakes it.
pub(crate) struct OwnParker {
    pub(crate) parker: Arc<Parker>,
    pub(crate) waker: Waker,
}

impl Default for OwnParker {
    fn default() -> Self {
        let parker = Arc::<Parker>::default();
        let waker = Waker::from(Arc::clone(&parker));
        Self { parker, waker }
    }
}

thread_local! {
    static OWN: Rc<OwnParker> = Rc::default();
}

impl Parker {
    /// The calling thread's own parker. It may still hold a wake-up from an earlier wait, so the
    /// caller checks its condition after each wake-up.
    pub(crate) fn own() -> Rc<OwnParker> {
        // An explorer's objects must not outlive the schedule in which they were made.
        if IS_MODEL {
            return Rc::default();
        }
        OWN.try_with(Rc::clone).unwrap_or_default()
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

    /// Until when a thread that begins now spins.
    pub(crate) fn spins_until() -> Instant {
        Instant::now() + SPIN
    }

    /// Waits for a wake-up without sleeping, and consumes it. False if none came until `end`.
    pub(crate) fn spin(&self, end: Instant) -> bool {
        while Instant::now() < end {
            // Not `lock`, and seldom: the thread that wakes this one needs the lock.
            if let Some(mut is_woken) = self.is_woken.try_lock() {
                if mem::take(&mut *is_woken) {
                    return true;
                }
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        false
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
