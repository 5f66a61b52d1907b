//! The end of a cache.
//!
//! # How it works
//!
//! Threads that work on a cache without a handle reach it through a gate (`scheduler/gate.rs`). The
//! drop of the last handle closes it ([`Maintenance::last_handle_goes`]) and waits until these
//! threads have left: a run ends after its pass, a delivery after a few notifications. Then the
//! dropping thread owns the cache alone. It applies what was written by then
//! ([`MaintenanceView::drain_last`]). The thread that the mode of delivery names then calls the
//! listener for the rest (`scheduler/delivery.rs`). At last the dropping thread frees everything
//! ([`Maintenance::close`]).
//!
//! A thread that is itself at work on a cache, or inside a listener, does not wait. A shared thread
//! then does all this in its place, if the cache has a listener.

use super::pass::Plan;
use super::{Maintenance, MaintenanceView};
use crate::contain::contain;
use crate::map::Garbage;
use crate::reclaim::Retire;
use crate::scheduler::{Gate, Task, TaskRef};
use crate::shared::Shared;
use std::sync::{Arc, Weak};

impl<K, V> MaintenanceView<'_, K, V> {
    /// After the last handle was dropped: applies what was written before. True if notifications
    /// wait.
    pub(crate) fn drain_last(self) -> bool {
        // Entries still stored are dropped without notification, those over the bound too.
        let drain = Plan {
            expire: false,
            evict: false,
            resize: false,
            ..Plan::RUN
        };
        // A ticker that panics has been reported and must not keep the rest from being freed.
        while contain(|| self.run_pass(drain, |_| ())).is_none_or(|left| left.is_some()) {}
        self.maintenance.notifier.waiting() > 0
    }

    /// After the last handle was dropped: delivers all that waits.
    pub(crate) fn deliver_rest(self) {
        self.deliver_while(|| true);
    }
}

impl<K, V> Maintenance<K, V> {
    /// To be called once, when the cache has its address.
    pub(crate) fn enlist(&self, task: Weak<dyn Task>) {
        self.waking.waker().enlist(TaskRef::new(task));
    }

    /// The way in for threads that hold no handle.
    pub(crate) fn gate(&self) -> Arc<Gate> {
        let task = self.waking.waker().task();
        task.expect("enlisted before the first handle").gate()
    }

    /// Whether this process has built the cache, and is no child made by `fork`.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Panics in a child made by `fork`.
    #[inline]
    pub(crate) fn check_process(&self) {
        self.process.check();
    }

    /// The calling thread is about to drop the last handle.
    pub(crate) fn last_handle_goes(&self) {
        if let Some(task) = self.waking.waker().task() {
            task.close();
        }
    }

    /// The cache is dropped: delivers the notifications for what was removed before, and frees
    /// everything.
    pub(crate) fn close(&mut self, shared: &mut Shared<K, V>) {
        self.waking.waker().leave();
        // Where no other thread has delivered the rest.
        self.view(shared).drain_last();
        self.view(shared).deliver_while(|| true);
        let state = self.state.get_mut();
        // Nodes whose key and value have no destructor are freed with the memory of the slabs.
        shared.map.take_apart(|node| {
            if Garbage::<K, V>::RUNS_USER_CODE {
                state.freeing.retire(Garbage::Node(node));
            }
        });
        state.freeing.report(&self.backlog);
        let all = state.freeing.retired.take_all();
        self.view(shared).free(all);
        self.waking.waker().end();
    }
}
