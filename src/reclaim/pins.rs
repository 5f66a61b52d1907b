//! Domains, and the records that a thread has in them.
//!
//! A thread keeps its record of each domain it has used, in `RECORDS`; that of the domain it used last is found by one comparison, by
//! `RECENT`. When the thread ends, its records leave their domains. A pin that is held even then, by a
//! thread-local that is destroyed later, has its record to itself.
#![allow(unsafe_code)]

use super::epoch::{Epoch, Record};
use crate::sync::thread_local;
use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Witness that the calling thread holds up grace periods of one domain.
pub(crate) struct Pin(NonNull<Record>);

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

    /// Holds up every grace period that begins from now on, until the pin is dropped.
    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        match RECENT.try_with(Cell::get) {
            // SAFETY: reclaim 1: the number is ours, so the pointer is that of a record of this thread's.
            Ok((number, record)) if number == self.number => unsafe { self.pin_with(record) },
            _ => self.pin_slowly(),
        }
    }

    /// # Safety
    ///
    /// It is a record of the calling thread in this domain, which `RECORDS` owns or which is an orphan; from `Arc::as_ptr`
    /// or the like.
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
        let record = RECORDS
            .try_with(|records| {
                let mut records = records.0.borrow_mut();
                let known = records.iter().position(|k| k.number == self.number);
                let at = known.unwrap_or_else(|| {
                    forget_recent();
                    // Those of domains that are gone are let go here, so that a thread that makes and drops caches all day
                    // holds one, not all.
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
            })
            // The thread is ending and its records are gone: one for this pin alone.
            .unwrap_or_else(|_| {
                let record = self.epoch.register();
                record.make_orphan();
                Arc::into_raw(record)
            });
        // SAFETY: it was found in `RECORDS` or put there, or is an orphan.
        unsafe { self.pin_with(record) }
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
    /// Whether every pin held at its beginning has been dropped; of the domain it was begun in. Who asks on after a "yes" may hear a "no" for
    /// which there is no cause any more.
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
        // SAFETY: reclaim 2: it was given up as a raw pointer when the record was made an orphan, and the last pin comes here once.
        let record = unsafe { Arc::from_raw(self.0.as_ptr().cast_const()) };
        record.unregister();
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
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicPtr};
    use std::thread;

    /// What a thread does when its records are gone.
    struct Late(Option<Box<dyn FnOnce()>>);

    impl Drop for Late {
        fn drop(&mut self) {
            if let Some(end) = self.0.take() {
                assert!(RECORDS.try_with(|_| ()).is_err(), "nothing would be shown");
                end();
            }
        }
    }

    thread_local!(static LATE: RefCell<Late> = const { RefCell::new(Late(None)) });

    /// Lets a thread begin, and do at its end what that has given.
    fn on_a_thread<F: FnOnce() + 'static>(begin: impl FnOnce() -> F + Send + 'static) {
        let seen = Arc::new(AtomicBool::new(false));
        let see = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            // What is touched first is destroyed last.
            LATE.with(|late| drop(late.borrow()));
            let end = begin();
            let end = move || {
                end();
                see.store(true, Ordering::Relaxed);
            };
            LATE.with(|late| late.borrow_mut().0 = Some(Box::new(end)));
        });
        thread.join().unwrap();
        assert!(seen.load(Ordering::Relaxed), "nothing was shown");
    }

    #[test]
    fn a_grace_period_is_over_at_once_if_nobody_is_pinned() {
        let domain = Domain::new();
        assert!(domain.begin_grace().is_over(&domain));
        drop(domain.pin());
        assert!(domain.begin_grace().is_over(&domain));
    }

    #[test]
    fn a_pin_holds_up_its_own_domain_only() {
        let (one, other) = (Domain::new(), Domain::new());
        let pin = one.pin();
        assert!(one.is_pinned() && !other.is_pinned());
        let (held, free) = (one.begin_grace(), other.begin_grace());
        assert!(!held.is_over(&one));
        assert!(free.is_over(&other));
        drop(pin);
        assert!(held.is_over(&one));
    }

    #[test]
    fn a_pin_holds_up_what_began_after_it_and_nothing_before() {
        let domain = Domain::new();
        let before = domain.begin_grace();
        let pin = domain.pin();
        let (after, later) = (domain.begin_grace(), domain.begin_grace());
        let over = || [&before, &after, &later].map(|grace| grace.is_over(&domain));
        assert_eq!(over(), [true, false, false]);
        drop(pin);
        let _pin = domain.pin();
        assert_eq!(over(), [true, true, true]);
    }

    #[test]
    fn the_outermost_pin_counts_in_whatever_order_they_go() {
        let domain = Domain::new();
        let outer = domain.pin();
        let early = domain.begin_grace();
        let inner = domain.pin();
        let late = domain.begin_grace();
        drop(outer);
        assert!(domain.is_pinned());
        assert!(!early.is_over(&domain) && !late.is_over(&domain));
        drop(inner);
        assert!(!domain.is_pinned());
        assert!(early.is_over(&domain) && late.is_over(&domain));
    }

    #[test]
    fn domains_in_turns_have_one_record_each() {
        let domains = [Domain::new(), Domain::new(), Domain::new()];
        for _ in 0..10 {
            let pins: Vec<_> = domains.iter().map(Domain::pin).collect();
            let graces: Vec<_> = domains.iter().map(Domain::begin_grace).collect();
            for (n, pin) in pins.into_iter().enumerate() {
                assert!(!graces[n].is_over(&domains[n]));
                drop(pin);
                assert!(graces[n].is_over(&domains[n]));
            }
        }
        assert!(domains.iter().all(|domain| domain.epoch.len() == 1));
    }

    #[test]
    fn records_of_dropped_domains_are_let_go() {
        let kept = || {
            RECORDS.with(|records| {
                let records = records.0.borrow();
                records.iter().filter(|k| !k.record.is_wanted()).count()
            })
        };
        for _ in 0..1_000 {
            let domain = Domain::new();
            drop(domain.pin());
        }
        drop(Domain::new().pin());
        // The last one's own.
        assert_eq!(kept(), 1);
        // One that is still pinned stays until it is not.
        let survivor = Domain::new().pin();
        let domain = Domain::new();
        drop(domain.pin());
        assert_eq!(kept(), 1);
        drop(survivor);
        let domain = Domain::new();
        drop(domain.pin());
        assert_eq!(kept(), 0);
    }

    #[test]
    fn a_thread_that_ends_takes_its_record_along() {
        let domain = Arc::new(Domain::new());
        for _ in 0..3 {
            let theirs = Arc::clone(&domain);
            let count = thread::spawn(move || {
                drop(theirs.pin());
                theirs.epoch.len()
            });
            assert_eq!(count.join().unwrap(), 1);
            assert_eq!(domain.epoch.len(), 0);
        }
    }

    #[test]
    fn pins_work_while_the_thread_ends() {
        let domain = Arc::new(Domain::new());
        let theirs = Arc::clone(&domain);
        on_a_thread(move || {
            drop(theirs.pin());
            move || {
                let (one, other) = (theirs.pin(), theirs.pin());
                let grace = theirs.begin_grace();
                drop(one);
                assert!(!grace.is_over(&theirs));
                drop(other);
                assert!(grace.is_over(&theirs));
            }
        });
        assert_eq!(domain.epoch.len(), 0);
    }

    #[test]
    fn pins_that_outlive_the_records_of_their_thread_hold_on() {
        let domain = Arc::new(Domain::new());
        let theirs = Arc::clone(&domain);
        on_a_thread(move || {
            let (one, other) = (theirs.pin(), theirs.pin());
            move || {
                assert_eq!(theirs.epoch.len(), 1);
                let grace = theirs.begin_grace();
                // A new one has a record of its own.
                let new = theirs.pin();
                assert_eq!(theirs.epoch.len(), 2);
                drop(one);
                assert!(!grace.is_over(&theirs));
                drop(other);
                assert!(grace.is_over(&theirs));
                assert_eq!(theirs.epoch.len(), 1);
                drop(new);
            }
        });
        assert_eq!(domain.epoch.len(), 0);
    }

    #[test]
    fn a_pin_may_outlive_thread_and_domain() {
        on_a_thread(|| {
            let domain = Domain::new();
            let pin = domain.pin();
            drop(domain);
            move || drop(pin)
        });
    }

    /// Readers that come and go, each pinned for most of the time, beside somebody who replaces and frees what they read.
    #[test]
    fn many_threads_use_nothing_that_was_freed() {
        const READERS: usize = 3;
        const OBJECTS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let domain = Arc::new(Domain::new());
        let shared = Arc::new(AtomicPtr::new(Box::into_raw(Box::new(1_u64))));
        let (begin, end) = (
            Arc::new(Barrier::new(READERS + 1)),
            Arc::new(AtomicBool::new(false)),
        );
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let (domain, shared) = (Arc::clone(&domain), Arc::clone(&shared));
                let (begin, end) = (Arc::clone(&begin), Arc::clone(&end));
                thread::spawn(move || {
                    begin.wait();
                    let mut last = 0;
                    let mut look = || {
                        let _pin = domain.pin();
                        let _nested = number.is_multiple_of(2).then(|| domain.pin());
                        let at = shared.load(Ordering::Acquire);
                        // SAFETY: the pin was taken before the address was read, and it is freed after a grace period.
                        let object = unsafe { *at };
                        assert!(object >= last, "freed, and used again or overwritten");
                        last = object;
                    };
                    while !end.load(Ordering::Relaxed) {
                        (0..100).for_each(|_| look());
                    }
                })
            })
            .collect();
        begin.wait();
        for object in 2..=OBJECTS {
            let old = shared.swap(Box::into_raw(Box::new(object)), Ordering::AcqRel);
            let grace = domain.begin_grace();
            while !grace.is_over(&domain) {
                thread::yield_now();
            }
            // SAFETY: nobody finds it any more, and those who had found it have gone. Overwritten first, to be noticed.
            unsafe {
                *old = 0;
                drop(Box::from_raw(old));
            }
        }
        end.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        assert_eq!(domain.epoch.len(), 0);
        // SAFETY: the last one, which nobody reads.
        unsafe { drop(Box::from_raw(shared.load(Ordering::Relaxed))) };
    }
}
