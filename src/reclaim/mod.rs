//! Pins and grace periods: when may memory that left the map be freed?
//!
//! # How it works
//!
//! A reader holds a [`Pin`] while it uses nodes. A pass that has unlinked objects from every shared
//! place begins a `Grace`: it is *over* once no pin is held that was taken before it began. This
//! module answers that question only. `engine/freeing.rs` does the freeing, and with it the
//! user's `Drop`, outside of every pin and lock.
//!
//! A thread registers a record with its first pin in a domain, and its records leave their domains
//! when it ends. Each cache has its own [`Domain`], so an `EntryRef` that is held on one cache
//! keeps no memory of another cache.
//!
//! | file | is |
//! |------|----|
//! | [`scheme`]: `own.rs` | the default: an epoch, a record for each thread, the proof |
//! | [`scheme`]: `crossbeam.rs` | the same interface over `crossbeam-epoch`, a collector for each domain (feature `crossbeam-epoch`) |
//! | this one | pins of the calling thread, which has its records by the numbers of their domains |
//!
//! One of the two files is compiled, as the module `scheme`. Both have the same types: `Domain`,
//! `Grace`, `Pin`, `Record` and `Registration`; no other module knows which one it is. Their tests
//! (`tests.rs`) are the same. `own.rs` has models under loom (`models/loom/grace/`).
//!
//! # Invariants
//!
//! 1. `RECENT` is `(0, null)`, or it points to the record of a registration that
//!    this thread's `REGISTRATIONS` owns, and its number is the number of that record's domain.
//!    Every removal from `REGISTRATIONS` resets it first. Domains are numbered from 1, and a number
//!    is never used again.
//! 2. A record outlives its pins. A pin is dropped before its domain: what holds it borrows the
//!    cache. In the own scheme, a registration that goes while its record is pinned leaves it to
//!    the domain, as an *orphan*, which stays until its pins have ended. In crossbeam-epoch, a
//!    guard keeps its participant alive.
//! 3. Only the thread that registered a record writes it: pins cannot be sent. Other threads read
//!    whether it is pinned, and since which epoch.
//!
//! # Cost
//!
//! A pin costs one store and one full fence; a nested pin a fence and a count. A thread that
//! changes from cache to cache finds its record in a map of its own. A pin writes nothing that
//! threads share. It reads the epoch, which each grace period changes: there is one for every 128
//! removals, for a large array, or for each run.
//!
//! The first pin of a thread in a domain allocates its record (256 bytes). The record is freed when
//! the thread ends; an orphan, when the next one comes or with the domain. A thread frees the
//! record of a dropped domain when it registers in other domains: after at most
//! `max(its records, 3)` registrations.
//!
//! A grace period costs the pass that begins it a fence. A check reads one word, if another check
//! has found the period over. If none has, it reads one for each live thread that has used the
//! domain, up to the first that is still pinned from before; the next check begins there.
//!
//! # Origin
//!
//! Epoch-based reclamation: K. Fraser, "Practical lock-freedom", 2004. The pin is that of
//! `crossbeam-epoch`. There an advance of the epoch waits for every pinned thread to follow; here a
//! record says since which epoch it is pinned, and one comparison is enough.

#[cfg(feature = "crossbeam-epoch")]
#[path = "crossbeam.rs"]
mod scheme;
#[cfg(not(feature = "crossbeam-epoch"))]
#[path = "own.rs"]
mod scheme;

pub(crate) use scheme::{Domain, Grace, Pin};

use crate::atomic64::AtomicU64;
use crate::hash::NumberMap;
#[cfg(not(feature = "crossbeam-epoch"))]
use crate::sync::epoch_atomics as atomics;
use crate::sync::thread_local;
use scheme::{Record, Registration};
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::Ordering;

impl Domain {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only uniqueness counts.
        Self::numbered(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        match self.recent_record() {
            // SAFETY: reclaim 1: the number is this domain's, so this thread's registration in it
            // keeps the record.
            Some(record) => unsafe { self.pin_by(record) },
            None => self.pin_slowly(),
        }
    }

    /// A pin, for the fast path of a look-up. `None` if this thread has used another domain since,
    /// or already holds a pin of this one: such a caller calls [`pin`](Self::pin).
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn pin_alone(&self) -> Option<Pin> {
        let record = self.recent_record()?;
        // SAFETY: reclaim 1, as in `pin`.
        unsafe { self.pin_alone_by(record) }
    }

    #[allow(unsafe_code)]
    #[cold]
    #[inline(never)]
    fn pin_slowly(&self) -> Pin {
        let record = REGISTRATIONS.try_with(|registrations| {
            let record = registrations.borrow_mut().record_in(self);
            _ = RECENT.try_with(|recent| recent.set((self.number, record)));
            record
        });
        match record {
            // SAFETY: a registration of this thread's keeps it, as in `pin`.
            Ok(record) => unsafe { self.pin_by(record) },
            // The thread is ending and its registrations are gone.
            Err(_) => {
                let registration = self.register_thread();
                // SAFETY: this registration keeps the record, and goes while it is pinned (reclaim
                // 2).
                unsafe { self.pin_by(registration.record()) }
            }
        }
    }

    /// The calling thread's record, if the thread used no other domain since.
    #[inline]
    fn recent_record(&self) -> Option<*const Record> {
        match RECENT.try_with(Cell::get) {
            Ok((number, record)) if number == self.number => Some(record),
            _ => None,
        }
    }

    /// Whether the calling thread holds a pin of this domain, according to its registrations. While
    /// the thread ends they are gone, and the answer is yes: then a caller must not wait for pins.
    pub(crate) fn is_pinned(&self) -> bool {
        let pinned = REGISTRATIONS.try_with(|registrations| {
            match registrations.borrow().known.get(&self.number) {
                Some(registration) => registration.is_pinned(),
                None => false,
            }
        });
        pinned.unwrap_or(true)
    }
}

// The registrations of the calling thread, dropped when it ends. `RECENT` names the record of the
// domain that the thread used last: one that stays with one cache finds that by one comparison.
//
// The registration in a dropped domain leaves by a *cleanup*, which drops all of them. Adding one
// runs a cleanup if as many were added since the last cleanup as that one has left.
thread_local! {
    static RECENT: Cell<(u64, *const Record)> = const { Cell::new((0, ptr::null())) };
    static REGISTRATIONS: RefCell<Registrations> = RefCell::default();
}

/// The registrations of a thread.
#[derive(Default)]
struct Registrations {
    known: NumberMap<u64, Registration>,
    /// How many more registrations come before one runs a cleanup. The first runs one.
    until_cleanup: usize,
}

/// At least this number of registrations come between two cleanups.
const LEAST_UNTIL_CLEANUP: usize = 3;

impl Registrations {
    /// The thread's record in this domain. Registers the thread if it has none.
    fn record_in(&mut self, domain: &Domain) -> *const Record {
        if let Some(registration) = self.known.get(&domain.number) {
            return registration.record();
        }
        if self.until_cleanup == 0 {
            self.drop_dead();
        }
        self.until_cleanup -= 1;
        let registration = domain.register_thread();
        let record = registration.record();
        self.known.insert(domain.number, registration);
        record
    }

    /// Drops the registrations in dropped domains, but for those that are pinned.
    fn drop_dead(&mut self) {
        forget_recent();
        self.known
            .retain(|_, registration| registration.is_wanted() || registration.is_pinned());
        // `retain` visits empty slots, too.
        self.known.shrink_to(2 * self.known.len());
        self.until_cleanup = self.known.len().max(LEAST_UNTIL_CLEANUP);
    }
}

impl Drop for Registrations {
    fn drop(&mut self) {
        forget_recent();
        // Then each registration goes.
    }
}

/// Resets `RECENT`, before a registration goes (reclaim 1).
fn forget_recent() {
    _ = RECENT.try_with(|recent| recent.set((0, ptr::null())));
}

#[cfg(all(test, not(feature = "crossbeam-epoch")))]
#[path = "own/tests.rs"]
mod own_tests;
#[cfg(test)]
mod tests;
