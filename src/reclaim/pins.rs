//! Domains, and the records that a thread has in them.
//!
//! A thread keeps its record of each domain it has used, in `RECORDS`; that of the domain it used
//! last is found by one comparison, by `RECENT`. When the thread ends, its records leave their
//! domains. A pin that is held even then, by a thread-local that is destroyed later, has its record
//! to itself.
#![allow(unsafe_code)]

use super::epoch::{Epoch, Record};
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Witness that the calling thread holds up grace periods of one domain.
pub(crate) struct Pin(NonNull<Record>);

/// A pin whose thread held no other there, for the length of one call: no orphan's, so it ends
/// without one.
pub(crate) struct SolePin(ManuallyDrop<Pin>);

/// The set of pins that matter for one cache. On lines of its own: every pin reads them.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Domain {
    number: u64,
    epoch: Epoch,
}

/// A grace period under way.
#[derive(Debug)]
pub(crate) struct Grace {
    target: u64,
}

struct Known {
    number: u64,
    record: Arc<Record>,
}

struct Records(RefCell<Vec<Known>>);

thread_local! {
    static RECENT: Cell<(u64, *const Record)> = const { Cell::new((0, ptr::null())) };
    static RECORDS: Records = const { Records(RefCell::new(Vec::new())) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// Resets `RECENT`, before anything leaves `RECORDS` (reclaim 1).
fn forget_recent() {
    _ = RECENT.try_with(|recent| recent.set((0, ptr::null())));
}

impl Domain {
    pub(crate) fn new() -> Self {
        Self {
            // Relaxed: only uniqueness counts.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            epoch: Epoch::new(),
        }
    }

    /// The calling thread's record, if it stands in `RECENT`.
    #[inline]
    fn recent(&self) -> Option<*const Record> {
        let found = RECENT.try_with(Cell::get);
        match found {
            Ok((number, record)) if number == self.number => Some(record),
            _ => None,
        }
    }

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        match self.recent() {
            // SAFETY: reclaim 1: the number is ours, so the pointer is that of a record of this
            // thread's.
            Some(record) => unsafe { self.pin_with(record) },
            None => self.pin_slowly(),
        }
    }

    /// The same if that takes no call: the calling thread has used this domain last, and holds no
    /// pin of it.
    #[inline]
    pub(crate) fn pin_alone(&self) -> Option<SolePin> {
        match self.recent() {
            Some(record) => {
                // SAFETY: reclaim 1, as in `pin`.
                let alone = unsafe { (*record).enter_alone(&self.epoch) };
                // SAFETY: the pointer is not null: it was just used.
                let pin = || Pin(unsafe { NonNull::new_unchecked(record.cast_mut()) });
                alone.then(|| SolePin(ManuallyDrop::new(pin())))
            }
            None => None,
        }
    }

    /// # Safety
    ///
    /// It is a record of the calling thread in this domain, which `RECORDS` owns or which is an
    /// orphan; from `Arc::as_ptr` or the like.
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
        let known = RECORDS.try_with(|records| {
            let mut records = records.0.borrow_mut();
            let known = records.iter().position(|k| k.number == self.number);
            let at = known.unwrap_or_else(|| {
                forget_recent();
                // Those of domains that are gone are let go here, so that a thread that makes and
                // drops caches all day holds one, not all.
                records.retain(|k| k.record.is_wanted() || k.record.is_pinned());
                records.push(Known {
                    number: self.number,
                    record: self.epoch.register(),
                });
                records.len() - 1
            });
            let record = Arc::as_ptr(&records[at].record);
            _ = RECENT.try_with(|recent| recent.set((self.number, record)));
            record
        });
        match known {
            // SAFETY: it was found in `RECORDS` or put there.
            Ok(record) => unsafe { self.pin_with(record) },
            // The thread is ending and its records are gone: one for this pin alone.
            Err(_) => self.pin_an_orphan(),
        }
    }

    fn pin_an_orphan(&self) -> Pin {
        let record = Arc::into_raw(self.epoch.register());
        // SAFETY: it is the calling thread's, in this domain; the share just given up keeps it
        // until its last pin, this one, has gone (reclaim 2).
        unsafe {
            let pin = self.pin_with(record);
            (*record).make_orphan();
            pin
        }
    }

    /// Whether the calling thread holds a pin of this domain.
    #[cfg(test)]
    pub(crate) fn is_pinned(&self) -> bool {
        RECORDS.with(|records| {
            let records = records.0.borrow();
            records
                .iter()
                .any(|k| k.number == self.number && k.record.is_pinned())
        })
    }

    /// Begins a grace period: it is over once every pin held now has been dropped.
    ///
    /// The caller has taken the objects in question out of all shared places before.
    pub(crate) fn begin_grace(&self) -> Grace {
        Grace {
            target: self.epoch.begin_grace(),
        }
    }
}

impl Grace {
    /// Whether every pin held at its beginning has been dropped; of the domain it was begun in. Who
    /// asks on after a "yes" may hear a "no" for which there is no cause any more.
    pub(crate) fn is_over(&self, domain: &Domain) -> bool {
        domain.epoch.has_passed(self.target)
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: reclaim 2.
        if unsafe { self.0.as_ref() }.leave() {
            self.bury();
        }
    }
}

impl Pin {
    /// Takes over the share that an orphan has in itself.
    #[cold]
    #[inline(never)]
    fn bury(&self) {
        // SAFETY: reclaim 2: it was given up as a raw pointer when the record was made an orphan,
        // and the last pin comes here once.
        let record = unsafe { Arc::from_raw(self.0.as_ptr().cast_const()) };
        record.unregister();
    }
}

impl SolePin {
    /// As a pin that may be kept.
    #[inline]
    pub(crate) fn into_pin(self) -> Pin {
        let this = ManuallyDrop::new(self);
        Pin(this.0.0)
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
        // Taken from `RECENT`, so `RECORDS` had the record, and has it: the thread does not end
        // within a call.
        debug_assert!(!last_of_orphan);
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        forget_recent();
        for Known { record, .. } in self.0.take() {
            if record.is_pinned() {
                // Who holds the pin is destroyed after this.
                record.make_orphan();
                _ = Arc::into_raw(record);
            } else {
                record.unregister();
            }
        }
    }
}

#[cfg(test)]
mod tests;
