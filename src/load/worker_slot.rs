//! Threads of a pool that wait for a load.
//!
//! A thread that runs the loads of a queue may wait for a load that stands in that queue. So it
//! gives its slot back to the pool before it sleeps, and another thread may run the queue.

use crate::sync::IS_MODEL;
use std::cell::RefCell;
use std::sync::Arc;

/// The place of a thread in its pool.
pub(crate) trait WorkerSlot {
    /// The calling thread, whose slot this is, is about to wait.
    fn release(&self);

    /// It continues.
    fn reacquire(&self);
}

thread_local!(static SLOT: RefCell<Option<Arc<dyn WorkerSlot>>> = const { RefCell::new(None) });

/// Runs the work of a thread that has a slot.
pub(crate) fn with_worker_slot<R>(slot: Arc<dyn WorkerSlot>, work: impl FnOnce() -> R) -> R {
    struct InSlot;
    impl Drop for InSlot {
        fn drop(&mut self) {
            let slot = SLOT.with(RefCell::take);
            drop(slot);
        }
    }
    if IS_MODEL {
        return work();
    }
    SLOT.set(Some(slot));
    let in_slot = InSlot;
    let answer = work();
    drop(in_slot);
    answer
}

/// Runs a wait of the calling thread. No lock may be held.
pub(crate) fn wait_without_slot<R>(wait: impl FnOnce() -> R) -> R {
    struct Waiting(Arc<dyn WorkerSlot>);
    impl Drop for Waiting {
        fn drop(&mut self) {
            self.0.reacquire();
        }
    }
    if IS_MODEL {
        return wait();
    }
    // In a thread's last moments it has none.
    let slot = SLOT.try_with(|slot| slot.borrow().clone());
    let Some(slot) = slot.ok().flatten() else {
        return wait();
    };
    slot.release();
    let waiting = Waiting(slot);
    let answer = wait();
    drop(waiting);
    answer
}
