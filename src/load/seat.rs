//! Threads of a pool that wait for a load.
//!
//! A thread that runs the loads of a queue may wait for a load that stands in that queue. So it
//! gives its seat back to the pool before it sleeps, and another thread may run the queue.

use crate::sync::IS_MODEL;
use std::cell::RefCell;
use std::sync::Arc;

/// The place of a thread in its pool.
pub(crate) trait Seat {
    /// The calling thread, whose seat this is, is about to wait.
    fn leave(&self);

    /// It continues.
    fn come_back(&self);
}

thread_local!(static SEAT: RefCell<Option<Arc<dyn Seat>>> = const { RefCell::new(None) });

/// Runs the work of a thread that has a seat.
pub(crate) fn seated<R>(seat: Arc<dyn Seat>, work: impl FnOnce() -> R) -> R {
    struct Seated;
    impl Drop for Seated {
        fn drop(&mut self) {
            let seat = SEAT.with(RefCell::take);
            drop(seat);
        }
    }
    if IS_MODEL {
        return work();
    }
    SEAT.set(Some(seat));
    let seated = Seated;
    let answer = work();
    drop(seated);
    answer
}

/// Runs a wait of the calling thread. No lock may be held.
pub(crate) fn away<R>(wait: impl FnOnce() -> R) -> R {
    struct Away(Arc<dyn Seat>);
    impl Drop for Away {
        fn drop(&mut self) {
            self.0.come_back();
        }
    }
    if IS_MODEL {
        return wait();
    }
    // In a thread's last moments it has none.
    let seat = SEAT.try_with(|seat| seat.borrow().clone());
    let Some(seat) = seat.ok().flatten() else {
        return wait();
    };
    seat.leave();
    let away = Away(seat);
    let answer = wait();
    drop(away);
    answer
}
