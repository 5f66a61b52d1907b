//! Pins and grace periods: when may memory that left the map be freed.
//!
//! # How it works
//!
//! A reader holds a [`Pin`] while it looks at nodes. Whoever has taken objects out of every shared place asks for a
//! [`Grace`]: it is *over* once no pin taken before the request is held any more. Only the question is answered here; the
//! freeing, and with it the user's `Drop`, happens where the caller of this module wants it, never inside somebody's pin.
//!
//! Each cache has a [`Domain`] of its own, so that an `EntryRef` held long on one cache holds no memory of another. A
//! thread keeps its registration with each domain it has used; the last used one is found by one comparison.
//!
//! # Invariants
//!
//! 1. `RECENT` is `(0, null)` or points to a handle that this thread's `HANDLES` owns and that belongs to the domain named
//!    beside it: every removal from `HANDLES` resets it first. Domains are numbered from 1 and a number is never used again.
//! 2. A deferred function only sets a flag: it neither panics nor calls user code, so it may run inside any pin.
//!
//! # Cost
//!
//! A pin is about 6 ns (a fence) and a thread-local comparison; a nested one about 2 ns. The first pin of a thread in a domain
//! allocates a registration (about 2 KiB), freed when the thread ends or, for a domain that is gone, at the thread's next
//! registration anywhere.
//!
//! # Origin
//!
//! Epoch-based reclamation: K. Fraser, "Practical lock-freedom", 2004; the implementation is `crossbeam-epoch`, named in
//! this file only.
#![allow(unsafe_code)]

mod retired;

use crossbeam_epoch::{Collector, Guard, LocalHandle};
pub(crate) use retired::{Ready, Retire, Retired, is_freeing};
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Witness that the calling thread holds up grace periods of one domain.
pub(crate) struct Pin(Guard);

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pin")
    }
}

/// The set of pins that matter for one cache.
pub(crate) struct Domain {
    number: u64,
    collector: Collector,
    /// Threads' registrations hold a weak one: gone means that they may let go.
    alive: Arc<()>,
}

struct Registration {
    number: u64,
    alive: Weak<()>,
    /// Boxed: `RECENT` points at it while the vector may move.
    handle: Box<LocalHandle>,
}

struct Registrations(RefCell<Vec<Registration>>);

impl Drop for Registrations {
    fn drop(&mut self) {
        RECENT.set((0, ptr::null()));
    }
}

thread_local! {
    static RECENT: Cell<(u64, *const LocalHandle)> = const { Cell::new((0, ptr::null())) };
    static HANDLES: Registrations = const { Registrations(RefCell::new(Vec::new())) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Domain {
    pub(crate) fn new() -> Self {
        Self {
            // Relaxed: only uniqueness counts.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            collector: Collector::new(),
            alive: Arc::new(()),
        }
    }

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        let (number, handle) = RECENT.get();
        if number == self.number {
            // SAFETY: reclaim 1: the number is ours, so the pointer is not null and its handle is alive on this thread.
            return Pin(unsafe { &*handle }.pin());
        }
        self.pin_slowly()
    }

    #[cold]
    #[inline(never)]
    fn pin_slowly(&self) -> Pin {
        HANDLES
            .try_with(|handles| {
                let mut handles = handles.0.borrow_mut();
                let known = handles.iter().position(|r| r.number == self.number);
                let at = known.unwrap_or_else(|| {
                    RECENT.set((0, ptr::null()));
                    // Registrations with domains that are gone are let go here, so that a thread that makes and drops
                    // caches all day holds one, not all.
                    handles.retain(|r| r.alive.strong_count() > 0);
                    handles.push(Registration {
                        number: self.number,
                        alive: Arc::downgrade(&self.alive),
                        handle: Box::new(self.collector.register()),
                    });
                    handles.len() - 1
                });
                let handle: &LocalHandle = &handles[at].handle;
                RECENT.set((self.number, handle));
                Pin(handle.pin())
            })
            // The thread is ending and its registrations are gone: one for this pin alone.
            .unwrap_or_else(|_| Pin(self.collector.register().pin()))
    }

    /// Whether the calling thread holds a pin of this domain.
    #[cfg(test)]
    pub(crate) fn is_pinned(&self) -> bool {
        HANDLES.with(|handles| {
            let handles = handles.0.borrow();
            handles
                .iter()
                .any(|r| r.number == self.number && r.handle.is_pinned())
        })
    }

    /// Begins a grace period: it is over once every pin held now has been dropped.
    ///
    /// The caller has taken the objects in question out of all shared places before. `former`, which is over, is used again.
    pub(crate) fn begin_grace(&self, former: Option<Grace>) -> Grace {
        let mut over = former.map_or_else(Arc::default, |former| former.over);
        match Arc::get_mut(&mut over) {
            Some(flag) => *flag.get_mut() = false,
            // Whoever has set the flag is about to let go of it.
            None => over = Arc::default(),
        }
        let flag = Arc::clone(&over);
        let pin = self.pin();
        // Release, partner: the acquire in `is_over`: what the last readers did lies before the freeing.
        pin.0.defer(move || flag.store(true, Ordering::Release));
        pin.0.flush();
        Grace { over }
    }

    /// Moves the domain's epoch on if no pin stands in the way. About 100 ns and a few per registered thread.
    pub(crate) fn nudge(&self) {
        self.pin().0.flush();
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain")
            .field("number", &self.number)
            .finish()
    }
}

/// A grace period under way.
#[derive(Debug)]
pub(crate) struct Grace {
    over: Arc<AtomicBool>,
}

impl Grace {
    /// Whether every pin held at its beginning has been dropped. Needs [`Domain::nudge`] to come true.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(domain: &Domain, grace: &Grace) -> bool {
        (0..8).any(|_| {
            domain.nudge();
            grace.is_over()
        })
    }

    #[test]
    fn a_grace_period_ends_when_nobody_is_pinned() {
        let domain = Domain::new();
        let grace = domain.begin_grace(None);
        assert!(wait(&domain, &grace));
    }

    #[test]
    fn a_pin_holds_up_its_own_domain_only() {
        let (one, other) = (Domain::new(), Domain::new());
        let pin = one.pin();
        let (held, free) = (one.begin_grace(None), other.begin_grace(None));
        assert!(!wait(&one, &held));
        assert!(wait(&other, &free));
        drop(pin);
        assert!(wait(&one, &held));
    }

    #[test]
    fn a_later_pin_does_not_hold_up_an_earlier_grace_period() {
        let domain = Arc::new(Domain::new());
        let grace = domain.begin_grace(None);
        domain.nudge();
        domain.nudge();
        domain.nudge();
        let _late = domain.pin();
        assert!(grace.is_over() || wait(&domain, &grace));
    }

    #[test]
    fn registrations_of_dropped_domains_are_let_go() {
        for _ in 0..1_000 {
            let domain = Domain::new();
            drop(domain.pin());
        }
        let domain = Domain::new();
        drop(domain.pin());
        let kept = HANDLES.with(|h| {
            h.0.borrow()
                .iter()
                .filter(|r| r.alive.strong_count() == 0)
                .count()
        });
        assert_eq!(kept, 0);
    }

    #[test]
    fn pins_work_while_the_thread_ends() {
        struct Late(Arc<Domain>);
        impl Drop for Late {
            fn drop(&mut self) {
                drop(self.0.pin());
            }
        }
        thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });
        let domain = Arc::new(Domain::new());
        let theirs = Arc::clone(&domain);
        std::thread::spawn(move || {
            LATE.with(|late| *late.borrow_mut() = Some(Late(Arc::clone(&theirs))));
            drop(theirs.pin());
        })
        .join()
        .unwrap();
        let grace = domain.begin_grace(None);
        assert!(wait(&domain, &grace));
    }
}
