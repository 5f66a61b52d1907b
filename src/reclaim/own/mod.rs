//! The default scheme: epochs of this crate's own.
//!
//! [`epoch`] has the protocol. Here is what a pin and a registration own of a record. If a pin is
//! still held when its thread ends, by a thread-local that is destroyed later, its record becomes
//! an orphan, which the epoch keeps.
#![allow(unsafe_code)]

mod epoch;

use super::Domain;
use crate::sync::epoch_atomics as atomics;
use std::ptr::NonNull;
use std::sync::Arc;

pub(super) use epoch::{Epoch as Scheme, Record};

/// A pin: while it lives, no grace period of its domain ends, so no node that its thread has found
/// is freed.
pub(crate) struct Pin(NonNull<Record>);

/// A grace period that has begun, by its target.
pub(crate) struct Grace(u64);

/// A thread's share in its record of one domain.
pub(super) struct Registration(Arc<Record>);

impl Scheme {
    /// # Safety
    ///
    /// It is a record of the calling thread in this domain, kept by the thread's registration.
    #[inline]
    pub(super) unsafe fn pin(&self, record: *const Record) -> Pin {
        // SAFETY: the caller's promise.
        unsafe {
            (*record).enter(self);
            Pin(NonNull::new_unchecked(record.cast_mut()))
        }
    }

    /// A pin, if the thread holds none by this record.
    ///
    /// # Safety
    ///
    /// As for [`pin`](Self::pin).
    #[inline]
    pub(super) unsafe fn pin_alone(&self, record: *const Record) -> Option<Pin> {
        // SAFETY: the caller's promise.
        let alone = unsafe { (*record).enter_alone(self) };
        if !alone {
            return None;
        }
        // SAFETY: the pointer is not null: it was just used.
        Some(Pin(unsafe { NonNull::new_unchecked(record.cast_mut()) }))
    }

    /// Registers the calling thread, which has no record here.
    pub(super) fn register_thread(&self) -> Registration {
        Registration(self.register())
    }
}

impl Grace {
    pub(super) fn begin(domain: &Domain) -> Self {
        Self(domain.scheme.begin_grace())
    }

    /// Whether every pin held at its beginning has been dropped. For the domain that began it.
    /// After a `true`, a later call may return `false` again: the `true` stays right.
    pub(crate) fn is_over(&self, domain: &Domain) -> bool {
        domain.scheme.has_passed(self.0)
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: reclaim 2.
        unsafe { self.0.as_ref() }.leave();
    }
}

impl Registration {
    #[inline]
    pub(super) fn record(&self) -> *const Record {
        Arc::as_ptr(&self.0)
    }

    /// Whether its domain still exists.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }

    /// Whether the thread holds a pin by it.
    pub(super) fn is_pinned(&self) -> bool {
        self.0.is_pinned()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.unregister();
    }
}

#[cfg(test)]
mod tests;
