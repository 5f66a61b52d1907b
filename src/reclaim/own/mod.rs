//! The default scheme: epochs of this crate's own.
//!
//! [`epoch`] has the protocol. Here a pin finds the calling thread's record of the domain. A thread
//! registers a record with its first pin in a domain, and its records leave their domains when it
//! ends. If a pin is still held then, by a thread-local that is destroyed later, its record is made
//! an orphan and belongs to the pins alone.
#![allow(unsafe_code)]

mod epoch;

use super::records::{self, OwnedId, Registered};
use crate::sync::of_epochs as door;
use epoch::Epoch;
use std::borrow::Borrow;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

pub(super) use epoch::Record;

/// Witness that the calling thread holds up grace periods of one domain.
pub(crate) struct Pin(NonNull<Record>);

/// An outermost pin that lives for one call. Its record is no orphan, so dropping the pin skips
/// that check.
pub(crate) struct SolePin(ManuallyDrop<Pin>);

/// The pins and grace periods of one cache. Every pin reads it.
#[derive(Debug)]
// The id and the epoch's word are read by each pin, and stand beside what else a hit reads.
pub(crate) struct Domain {
    id: OwnedId,
    epoch: Epoch,
}

/// A grace period that has begun.
#[derive(Debug)]
pub(crate) struct Grace {
    target: u64,
}

/// A thread's share in its record of one domain.
pub(super) struct Registration(Arc<Record>);

impl Domain {
    pub(crate) fn new() -> Self {
        Self {
            id: OwnedId::new(),
            epoch: Epoch::new(),
        }
    }

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        match records::recent(self.id.get()) {
            // SAFETY: reclaim 1: the number is this domain's, so this thread's registration in it
            // keeps the record.
            Some(record) => unsafe { self.pin_with(record) },
            None => self.pin_slowly(),
        }
    }

    /// The same if that takes no call: this thread used this domain last and holds no pin of it.
    #[inline]
    pub(crate) fn pin_alone(&self) -> Option<SolePin> {
        let record = records::recent(self.id.get())?;
        // SAFETY: reclaim 1, as in `pin`.
        let alone = unsafe { (*record).enter_alone(&self.epoch) };
        // SAFETY: the pointer is not null: it was just used.
        let pin = || Pin(unsafe { NonNull::new_unchecked(record.cast_mut()) });
        alone.then(|| SolePin(ManuallyDrop::new(pin())))
    }

    /// # Safety
    ///
    /// It is a record of the calling thread in this domain, kept by the thread's registration or an
    /// orphan; the pointer comes from `Arc::as_ptr` or `Arc::into_raw`.
    #[inline]
    unsafe fn pin_with(&self, record: *const Record) -> Pin {
        // SAFETY: the caller's promise.
        unsafe {
            (*record).enter(&self.epoch);
            Pin(NonNull::new_unchecked(record.cast_mut()))
        }
    }

    #[cold]
    #[inline(never)]
    fn pin_slowly(&self) -> Pin {
        let register = || Registration(self.epoch.register());
        match records::find_or_register(self.id.get(), register) {
            // SAFETY: a registration of this thread's keeps it, as in `pin`.
            Some(record) => unsafe { self.pin_with(record) },
            // The thread is ending and its registrations are gone: a record for this pin alone.
            None => self.pin_an_orphan(),
        }
    }

    fn pin_an_orphan(&self) -> Pin {
        let record = Arc::into_raw(self.epoch.register());
        // SAFETY: it is the calling thread's, in this domain. The share just given up keeps it
        // until its last pin, this one, has gone (reclaim 2).
        unsafe {
            let pin = self.pin_with(record);
            (*record).make_orphan();
            pin
        }
    }

    /// Whether the calling thread holds a pin of this domain.
    pub(crate) fn is_pinned(&self) -> bool {
        records::is_pinned(self.id.get())
    }

    /// Begins a grace period: it is over once every pin held now has been dropped.
    ///
    /// The caller has unlinked the objects in question from all shared places before.
    pub(crate) fn begin_grace(&self) -> Grace {
        Grace {
            target: self.epoch.begin_grace(),
        }
    }
}

impl Grace {
    /// Whether every pin held at its beginning has been dropped. For the domain that began it.
    /// After a `true`, a later call may return `false` again: the `true` stays right.
    pub(crate) fn is_over(&self, domain: &Domain) -> bool {
        domain.epoch.has_passed(self.target)
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: reclaim 2.
        if unsafe { self.0.as_ref() }.leave() {
            self.free_orphan();
        }
    }
}

impl Pin {
    /// Takes over the share that an orphan has in itself.
    #[cold]
    #[inline(never)]
    fn free_orphan(&self) {
        // SAFETY: reclaim 2: it was given up as a raw pointer when the record was made an orphan,
        // and only the last pin comes here.
        let record = unsafe { Arc::from_raw(self.0.as_ptr().cast_const()) };
        record.unregister();
    }
}

impl SolePin {
    /// As a pin that may outlive the call.
    #[inline]
    pub(crate) fn into_pin(self) -> Pin {
        let this = ManuallyDrop::new(self);
        Pin(this.0.0)
    }
}

impl From<SolePin> for Pin {
    #[inline]
    fn from(pin: SolePin) -> Self {
        pin.into_pin()
    }
}

impl Borrow<Pin> for SolePin {
    #[inline]
    fn borrow(&self) -> &Pin {
        self
    }
}

impl Deref for SolePin {
    type Target = Pin;

    #[inline]
    fn deref(&self) -> &Pin {
        &self.0
    }
}

impl Drop for SolePin {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: reclaim 2.
        let last_of_orphan = unsafe { self.0.0.as_ref() }.leave();
        // The record came from `RECENT`, so a registration had it, and has it still: the thread
        // does not end within a call.
        debug_assert!(!last_of_orphan);
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

impl Registration {
    #[inline]
    pub(super) fn record(&self) -> *const Record {
        Arc::as_ptr(&self.0)
    }
}

impl Registered for Registration {
    fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }

    fn is_pinned(&self) -> bool {
        self.0.is_pinned()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let record = &self.0;
        if record.is_pinned() {
            // The thread is ending, and the pin's holder is destroyed after this.
            record.make_orphan();
            _ = Arc::into_raw(Arc::clone(record));
        } else {
            record.unregister();
        }
    }
}

#[cfg(test)]
mod tests;
