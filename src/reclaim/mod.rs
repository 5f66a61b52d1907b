//! Pins and grace periods: when may memory that left the map be freed?
//!
//! # How it works
//!
//! A reader holds a [`Pin`] while it uses nodes. A pass that has unlinked objects from every shared
//! place begins a `Grace`: it is *over* once no pin is held that was taken before it began. This
//! module answers that question only. `maintenance/freeing.rs` does the freeing, and with it the
//! user's `Drop`, outside of every pin and lock.
//!
//! A thread registers a record with its first pin in a domain, and its records leave their domains
//! when it ends. Each cache has its own [`Domain`], so an `EntryRef` that is held on one cache
//! keeps no memory of another cache.
//!
//! | file | is |
//! |------|----|
//! | [`scheme`]: `own/` | the default: an epoch, a record for each thread, the proof |
//! | [`scheme`]: `crossbeam.rs` | the same interface over `crossbeam-epoch`, a collector for each domain (feature `crossbeam-epoch`) |
//! | [`records`] | the records of the calling thread, found by the domain's number |
//!
//! One of the two schemes is compiled. Both have the same types: `Scheme`, `Grace`, `Pin`,
//! `SolePin`, `Record` and `Registration`; no other module knows which one it is. Their tests
//! (`tests.rs`) are the same. `own/epoch.rs` has models under loom (`models/loom/grace/`); the
//! models of other protocols skip it.
//!
//! # Invariants
//!
//! 1. `RECENT` (`records.rs`) is `(0, null)`, or it points to the record of a registration that
//!    this thread's `REGISTRATIONS` owns, and its number is the number of that record's domain.
//!    Every removal from `REGISTRATIONS` resets it first. Domains are numbered from 1, and a number
//!    is never used again.
//! 2. A record outlives its pins. In the own scheme, `REGISTRATIONS` releases a record only while
//!    it has no pin, or makes it an *orphan*, which holds a reference to itself; the last pin then
//!    drops that reference. In crossbeam-epoch, a guard keeps its participant alive.
//! 3. Only the thread that registered a record writes it: pins cannot be sent. Other threads read
//!    whether it is pinned, and since which epoch.
//!
//! # Cost
//!
//! A pin costs one store and one full fence; a nested pin a fence and a count. A thread that
//! changes from cache to cache finds its record in a hash map of its own (`records`). A pin writes
//! nothing that threads share. It reads the epoch, which each grace period changes: there is one
//! for every 128 removals, for a large array, or for each run.
//!
//! The first pin of a thread in a domain allocates its record (256 bytes). The record is freed when
//! the thread ends. A thread frees the record of a dropped domain when it registers in other
//! domains: after at most `max(its records, 3)` registrations.
//!
//! A grace period costs the pass that begins it a fence. Each check reads one word for each live
//! thread that has used the domain, up to the first that is still pinned from before; the next
//! check reads that thread's word first.
//!
//! | ns; `cargo run --release -p wheelhouse-models --example pins` | own epochs | crossbeam-epoch |
//! |---|---|---|
//! | a hit without deadline, no sleeping thread | 9.7 | 12.0 |
//! | beside 512 sleeping threads that once used the cache | 13.3 | 123 |
//!
//! A pin without a fence, and a barrier on all processors in its place, was considered: the barrier
//! interrupts busy threads.
//!
//! # Origin
//!
//! Epoch-based reclamation: K. Fraser, "Practical lock-freedom", 2004. The pin is that of
//! `crossbeam-epoch`. There each thread keeps bags of deferred functions, and every 128th pin tries
//! to advance the epoch, which waits for every pinned thread to follow. The own scheme needs no
//! advance: a record says since which epoch it is pinned, and one comparison is enough.

mod records;
#[cfg(feature = "crossbeam-epoch")]
#[path = "crossbeam.rs"]
mod scheme;
#[cfg(not(feature = "crossbeam-epoch"))]
#[path = "own/mod.rs"]
mod scheme;

pub(crate) use scheme::{Grace, Pin, SolePin};

use scheme::Scheme;
use std::borrow::Borrow;
use std::ops::Deref;

/// The pins and grace periods of one cache. Every pin reads it.
// The number and the word of the epoch are read by each pin, and stand beside what else a hit reads.
pub(crate) struct Domain {
    number: u64,
    scheme: Scheme,
}

impl Domain {
    pub(crate) fn new() -> Self {
        Self {
            number: records::next_number(),
            scheme: Scheme::new(),
        }
    }

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        match records::recent(self.number) {
            // SAFETY: reclaim 1: the number is this domain's, so this thread's registration in it
            // keeps the record.
            Some(record) => unsafe { self.scheme.pin(record) },
            None => self.pin_slowly(),
        }
    }

    /// A [`SolePin`], for the fast path of a look-up. `None` if this thread has used another domain
    /// since, or already holds a pin of this one: such a caller calls [`pin`](Self::pin).
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn pin_alone(&self) -> Option<SolePin> {
        let record = records::recent(self.number)?;
        // SAFETY: reclaim 1, as in `pin`.
        unsafe { self.scheme.pin_alone(record) }
    }

    #[allow(unsafe_code)]
    #[cold]
    #[inline(never)]
    fn pin_slowly(&self) -> Pin {
        match records::find_or_register(self.number, || self.scheme.register_thread()) {
            // SAFETY: a registration of this thread's keeps it, as in `pin`.
            Some(record) => unsafe { self.scheme.pin(record) },
            // The thread is ending and its registrations are gone.
            None => self.scheme.pin_unregistered(),
        }
    }

    /// Whether the calling thread holds a pin of this domain.
    pub(crate) fn is_pinned(&self) -> bool {
        records::is_pinned(self.number)
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

#[cfg(test)]
mod tests;
