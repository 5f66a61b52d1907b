//! The domain of one cache: a pin finds the calling thread's record in it.
//!
//! A thread registers a record with its first pin in a domain, and its records leave their domains
//! when it ends.
#![allow(unsafe_code)]

use super::records;
use super::scheme::{Grace, Pin, Scheme, SolePin};
use super::table::OwnedId;
use std::borrow::Borrow;
use std::ops::Deref;

/// The pins and grace periods of one cache. Every pin reads it.
// The id and the word of the epoch are read by each pin, and stand beside what else a hit reads.
pub(crate) struct Domain {
    id: OwnedId,
    pub(super) scheme: Scheme,
}

impl Domain {
    pub(crate) fn new() -> Self {
        Self {
            id: OwnedId::new(),
            scheme: Scheme::new(),
        }
    }

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        match records::recent(self.id.get()) {
            // SAFETY: reclaim 1: the number is this domain's, so this thread's registration in it
            // keeps the record.
            Some(record) => unsafe { self.scheme.pin(record) },
            None => self.pin_slowly(),
        }
    }

    /// A [`SolePin`], for the fast path of a look-up. `None` if this thread has used another domain
    /// since, or already holds a pin of this one: such a caller calls [`pin`](Self::pin).
    #[inline]
    pub(crate) fn pin_alone(&self) -> Option<SolePin> {
        let record = records::recent(self.id.get())?;
        // SAFETY: reclaim 1, as in `pin`.
        unsafe { self.scheme.pin_alone(record) }
    }

    #[cold]
    #[inline(never)]
    fn pin_slowly(&self) -> Pin {
        match records::find_or_register(self.id.get(), || self.scheme.register_thread()) {
            // SAFETY: a registration of this thread's keeps it, as in `pin`.
            Some(record) => unsafe { self.scheme.pin(record) },
            // The thread is ending and its registrations are gone.
            None => self.scheme.pin_unregistered(),
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
        self.scheme.grace(|| self.pin())
    }
}

impl Grace {
    /// Whether every pin held at its beginning has been dropped. For the domain that began it.
    /// After a `true`, a later call may return `false` again: the `true` stays right.
    pub(crate) fn is_over(&self, domain: &Domain) -> bool {
        domain.scheme.is_over(self, || domain.pin())
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
