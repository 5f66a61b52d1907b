//! The handles of a cache, and which one is the last.
//!
//! The reference count does not say which handle is the last, since threads that work on a cache
//! without a handle take references, too. So handles have a count of their own. The drop of the
//! last one waits for those threads.
//!
//! A handle gives access to [`Core`]. What `Cache` does with it is a function in the file of its
//! subject: `write::put`, `remove::take`, `look_up` of a kind of [`Lookup`](super::Lookup).

use super::core::Core;
use crate::scheduler::{Entered, Gate};
use crate::sync::Ordering;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// A handle's share of the state.
pub(crate) struct Handle<K, V, S> {
    core: Arc<Core<K, V, S>>,
}

impl<K, V, S> Handle<K, V, S> {
    /// The first handle.
    pub(crate) fn new(core: Arc<Core<K, V, S>>) -> Self {
        Self { core }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core<K, V, S> {
        &self.core
    }

    /// The cache, for callers that must not keep it alive. Panics in a child made by `fork`.
    pub(crate) fn downgrade(&self) -> WeakHandle<K, V, S> {
        self.core.maintenance.check_process();
        WeakHandle {
            core: Arc::downgrade(&self.core),
            gate: self.core.maintenance.gate(),
        }
    }
}

/// A cache that this does not keep alive.
pub(crate) struct WeakHandle<K, V, S> {
    core: Weak<Core<K, V, S>>,
    gate: Arc<Gate>,
}

/// A reference to a cache. The drop of the last handle waits until this is dropped. It stays on its
/// thread.
pub(crate) struct Visit<K, V, S> {
    // Dropped in this order (gate 1).
    core: Arc<Core<K, V, S>>,
    _entered: Entered,
}

impl<K, V, S> WeakHandle<K, V, S> {
    /// For a call that is about to wait. Panics in a child made by `fork`.
    pub(crate) fn check_process(&self) {
        self.gate.check_process();
    }

    /// The cache, if it has a handle still, and this is no child made by `fork`.
    pub(crate) fn visit(&self) -> Option<Visit<K, V, S>> {
        let entered = self.gate.enter()?;
        let core = self.core.upgrade()?;
        Some(Visit {
            core,
            _entered: entered,
        })
    }
}

impl<K, V, S> Clone for WeakHandle<K, V, S> {
    fn clone(&self) -> Self {
        Self {
            core: Weak::clone(&self.core),
            gate: self.gate.clone(),
        }
    }
}

impl<K, V, S> Deref for Visit<K, V, S> {
    type Target = Core<K, V, S>;

    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<K, V, S> Clone for Handle<K, V, S> {
    fn clone(&self) -> Self {
        // The reference first: it aborts the process before the count could overflow.
        let core = Arc::clone(&self.core);
        // Relaxed: the handle that is cloned keeps the count above zero.
        core.handles.fetch_add(1, Ordering::Relaxed);
        Self { core }
    }
}

impl<K, V, S> Drop for Handle<K, V, S> {
    fn drop(&mut self) {
        // AcqRel: what was done through the other handles happens before the end.
        if self.core.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            if self.core.maintenance.is_of_this_process() {
                self.core.maintenance.last_handle_goes();
            } else {
                // A thread of the parent may have stopped anywhere: nothing here can be freed.
                std::mem::forget(Arc::clone(&self.core));
            }
        }
    }
}
