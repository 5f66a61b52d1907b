//! Pins and grace periods by `crossbeam-epoch`, with a collector for each domain.
//!
//! A grace period is a flag that a deferred function sets: the collector runs it once every earlier
//! pin was dropped. This crate defers no other function. So no user code runs inside a pin or under
//! the maintenance lock, whichever thread the collector chooses.
//!
//! The epoch advances only when a thread asks the collector to try, and each try walks all
//! registered threads. Every 128th pin of a thread asks, and so does each check of a grace period
//! that is not over. A grace period takes two advances, and each waits for the pins that are held
//! then. So, unlike in the own scheme, a pin that is taken during a grace period may delay its end.
#![allow(unsafe_code)]

use crate::sync::epoch_atomics::pin_fence;
use crossbeam_epoch::{Collector, Guard, LocalHandle};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Proof that the calling thread holds up grace periods of one domain.
pub(crate) type Pin = Guard;

/// The pins and grace periods of one cache.
pub(crate) struct Domain {
    pub(super) number: u64,
    collector: Collector,
    /// Tells registrations, which keep the collector, whether the domain still exists.
    exists: Arc<()>,
}

/// A grace period that has begun: whether it is over.
pub(crate) type Grace = Arc<AtomicBool>;

/// The object that a thread pins.
pub(super) type Record = LocalHandle;

/// A thread's participation in a domain.
pub(super) struct Registration {
    /// Shared with nothing, but it stays valid to point at when the registration moves.
    record: Rc<Record>,
    domain: Weak<()>,
}

/// The tries that a check of a grace period makes: two advances end one that no pin holds up.
const TRIES: usize = 3;

impl Domain {
    pub(super) fn numbered(number: u64) -> Self {
        Self {
            number,
            collector: Collector::new(),
            exists: Arc::new(()),
        }
    }

    /// A pin by this record.
    ///
    /// # Safety
    ///
    /// It is a record of the calling thread in this domain, kept by the thread's registration.
    #[inline]
    pub(super) unsafe fn pin_by(&self, record: *const Record) -> Pin {
        // SAFETY: the caller's promise.
        let record = unsafe { &*record };
        let is_nested = record.is_pinned();
        let pin = record.pin();
        if is_nested {
            // crossbeam-epoch counts a nested pin without a fence. What a call has written must be
            // visible to all threads before this thread's next call reads, nested or not
            // (`tests/cache/lifecycle/references.rs`).
            pin_fence(Ordering::SeqCst);
        }
        pin
    }

    /// A pin, if the thread holds none by this record.
    ///
    /// # Safety
    ///
    /// As for [`pin_by`](Self::pin_by).
    #[inline]
    pub(super) unsafe fn pin_alone_by(&self, record: *const Record) -> Option<Pin> {
        // SAFETY: the caller's promise.
        let record = unsafe { &*record };
        if record.is_pinned() {
            return None;
        }
        Some(record.pin())
    }

    /// Registers the calling thread, which has no record here.
    pub(super) fn register_thread(&self) -> Registration {
        Registration {
            record: Rc::new(self.collector.register()),
            domain: Arc::downgrade(&self.exists),
        }
    }

    /// Begins a grace period: it is over once every pin held now has been dropped.
    ///
    /// The caller has unlinked the objects in question from all shared places before.
    pub(crate) fn begin_grace(&self) -> Grace {
        let grace = Grace::default();
        let flag = Arc::clone(&grace);
        let pin = self.pin();
        // Release, partner: the acquire in `is_over`.
        pin.defer(move || flag.store(true, Ordering::Release));
        // Takes the function out of this thread's bag, where it would otherwise wait for more of
        // them.
        pin.flush();
        grace
    }

    /// Whether every pin held at the beginning of a grace period of this domain has been dropped.
    pub(crate) fn is_over(&self, grace: &Grace) -> bool {
        // Acquire, partner: the release in the deferred function, which comes after all that was
        // done under the pins of before.
        let is_over = || grace.load(Ordering::Acquire);
        for _ in 0..TRIES {
            if is_over() {
                return true;
            }
            self.pin().flush();
        }
        is_over()
    }
}

impl Registration {
    #[inline]
    pub(super) fn record(&self) -> *const Record {
        Rc::as_ptr(&self.record)
    }

    /// Whether its domain still exists.
    pub(super) fn is_wanted(&self) -> bool {
        self.domain.strong_count() > 0
    }

    /// Whether the thread holds a pin by it.
    pub(super) fn is_pinned(&self) -> bool {
        self.record.is_pinned()
    }
}
