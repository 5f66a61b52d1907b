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

use super::records::{self, OwnedId, Registered};
use crate::sync::of_epochs::pin_fence;
use crossbeam_epoch::{Collector, Guard, LocalHandle};
use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Witness that the calling thread holds up grace periods of one domain.
pub(crate) struct Pin(Guard);

/// An outermost pin that lives for one call.
pub(crate) struct SolePin(Pin);

/// The pins and grace periods of one cache. Every pin reads it.
#[derive(Debug)]
pub(crate) struct Domain {
    id: OwnedId,
    collector: Collector,
    /// Tells registrations, which keep the collector, whether the domain still exists.
    exists: Arc<()>,
}

/// A grace period that has begun.
#[derive(Debug)]
pub(crate) struct Grace {
    is_over: Arc<AtomicBool>,
}

/// What a thread pins.
pub(super) type Record = LocalHandle;

/// A thread's participation in a domain.
pub(super) struct Registration {
    /// At a fixed address.
    record: Box<Record>,
    domain: Weak<()>,
}

/// The tries that a check of a grace period makes: two advances end one that no pin holds up.
const TRIES: usize = 3;

impl Domain {
    pub(crate) fn new() -> Self {
        Self {
            id: OwnedId::new(),
            collector: Collector::new(),
            exists: Arc::new(()),
        }
    }

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        match records::recent(self.id.get()) {
            // SAFETY: reclaim 1: the number is this domain's, so this thread's registration in it
            // keeps the record.
            Some(record) => pin_with(unsafe { &*record }),
            None => self.pin_slowly(),
        }
    }

    /// The same if that takes no call: this thread used this domain last and holds no pin of it.
    #[inline]
    pub(crate) fn pin_alone(&self) -> Option<SolePin> {
        let record = records::recent(self.id.get())?;
        // SAFETY: reclaim 1, as in `pin`.
        let record = unsafe { &*record };
        (!record.is_pinned()).then(|| SolePin(Pin(record.pin())))
    }

    #[cold]
    #[inline(never)]
    fn pin_slowly(&self) -> Pin {
        let register = || Registration {
            record: Box::new(self.collector.register()),
            domain: Arc::downgrade(&self.exists),
        };
        match records::find_or_register(self.id.get(), register) {
            // SAFETY: a registration of this thread's keeps it, as in `pin`.
            Some(record) => pin_with(unsafe { &*record }),
            // The thread is ending: the guard alone keeps the new participant (reclaim 2).
            None => pin_with(&self.collector.register()),
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
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let pin = self.pin();
        // Release, partner: the acquire in `Grace::is_over`.
        pin.0.defer(move || flag.store(true, Ordering::Release));
        // Takes the function out of this thread's bag, where it would otherwise wait for more of
        // them.
        pin.0.flush();
        Grace { is_over }
    }
}

#[inline]
fn pin_with(record: &Record) -> Pin {
    let is_nested = record.is_pinned();
    let pin = Pin(record.pin());
    if is_nested {
        // crossbeam-epoch counts a nested pin without a fence. What a call has written must be
        // visible to all threads before this thread's next call reads, nested or not
        // (`tests/references.rs`).
        pin_fence(Ordering::SeqCst);
    }
    pin
}

impl Grace {
    /// Whether every pin held at its beginning has been dropped. For the domain that began it.
    pub(crate) fn is_over(&self, domain: &Domain) -> bool {
        // Acquire, partner: the release in the deferred function, which comes after all that was
        // done under the pins of before.
        let is_over = || self.is_over.load(Ordering::Acquire);
        for _ in 0..TRIES {
            if is_over() {
                return true;
            }
            domain.pin().0.flush();
        }
        is_over()
    }
}

impl SolePin {
    /// As a pin that may outlive the call.
    #[inline]
    pub(crate) fn into_pin(self) -> Pin {
        self.0
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

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

impl Registration {
    #[inline]
    pub(super) fn record(&self) -> *const Record {
        &raw const *self.record
    }
}

impl Registered for Registration {
    fn is_wanted(&self) -> bool {
        self.domain.strong_count() > 0
    }

    fn is_pinned(&self) -> bool {
        self.record.is_pinned()
    }
}
