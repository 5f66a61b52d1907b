//! The handles of a cache, and which one is the last.
//!
//! A reference count alone does not tell: threads of the crate take references too while they work
//! on the cache. So handles are counted apart. The drop of the last one waits for those threads.

use super::core::Core;
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

    /// The state, for what must not keep it alive.
    pub(crate) fn downgrade(&self) -> Weak<Core<K, V, S>> {
        Arc::downgrade(&self.core)
    }
}

/// The state, if it has a handle still.
pub(crate) fn with_handles<K, V, S>(core: &Weak<Core<K, V, S>>) -> Option<Arc<Core<K, V, S>>> {
    let core = core.upgrade()?;
    // Relaxed: a handle that goes at this very moment may be missed either way.
    (core.handles.load(Ordering::Relaxed) > 0).then_some(core)
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
            self.core.maintenance.last_handle_goes();
        }
    }
}

impl<K, V, S> Deref for Handle<K, V, S> {
    type Target = Core<K, V, S>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.core
    }
}
