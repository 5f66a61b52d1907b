//! The default scheme: epochs of this crate's own. The protocol of pins and grace periods, and what
//! a pin and a registration own of a record.
//!
//! # How it works
//!
//! A [`Domain`] has an *epoch*, a number that each grace period advances by one step. Each thread
//! has a [`Record`] in it: 0, or the epoch that the thread read when it was pinned. A nested pin
//! keeps that epoch and counts. A grace period's *target* is the number to which it advanced the
//! epoch. It waits for the records that say less: their threads may have read shared places before
//! it began.
//!
//! ```text
//! reader                                  writer
//!
//! read the epoch (acquire)                unlink objects from every shared place
//! store it in the record (release)        fence                                    FG
//! fence                             FR    advance the epoch to the target (release)
//! read shared places, use objects         check every record (acquire):
//! store 0 in the record (release)             over if each is 0 or at least the target
//! ```
//!
//! # Why no reader uses a freed object
//!
//! Take a record, the value that the last check of it has found, and one pin of it. The fences are
//! sequentially consistent, so all threads agree on the order of FG and FR. A check happens after
//! FG, in this thread or in another one that got the target from it.
//!
//! 1. *The check found a value from before this pin's first store.* Then FG is before FR. Otherwise
//!    the check, which is after FG, would have found the store, which is before FR. So the reader's
//!    loads, which are after FR, see what was done before FG: the reader cannot reach the objects.
//! 2. *It found a store of this pin, of the target or more.* Then the reader has read the epoch
//!    from this grace period or a later one. Both advance it by a release, and a later one
//!    continues the release sequence of the earlier, so the reader sees what was done before
//!    either.
//! 3. *It found a store of this pin, of less.* Then the grace period is not over.
//! 4. *It found a later value*: the 0 of this pin's end, or a value stored after it. Each is a
//!    release store after everything that was done under the pin, and the check reads it by an
//!    acquire. So all of that happens before the freeing.
//! 5. *The check did not meet the record*, because it was registered later or unregistered earlier.
//!    Both happen under the lock that the check holds. A thread that registers later sees all that
//!    was done before. What a record's thread did before it unregistered happens before the
//!    freeing.
//!
//! Each record has to pass once, at any time after FG: by 1, no later pin of it matters. So a
//! positive answer is final, and it is noted. A later check of the same record may show a lower
//! epoch, because a reader may store an epoch that it read long ago.
//!
//! One check serves many targets. It first reads the epoch, by an acquire, so the FG of each target
//! up to that number happens before the check. Then it takes the least value of all records. Each
//! record was 0 or at least that, so 1 to 5 hold for each target up to both numbers. The check
//! publishes the smaller one by a release. A thread that finds its target not above that reads it
//! by an acquire: what happens before the check happens before that thread's freeing.
//!
//! In 2 the fences alone would do. The release and the acquire of the epoch are for
//! ThreadSanitizer, which does not follow fences.
//!
//! Each pin has a fence, a nested one too, though no grace period needs that. A cache call begins
//! with a pin. Take two threads, each of which writes one key and then reads the key of the other.
//! The fence ensures that at least one of them sees the other's write
//! (`tests/cache/lifecycle/references.rs`).
//!
//! Models without one of the fences fail (`models/loom/grace/`).
#![allow(unsafe_code)]

use super::atomics::{AtomicU64, Mutex, grace_fence, pin_fence};
use crate::atomic64;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The pins and grace periods of one cache.
// Each pin reads the number and the epoch: they stand beside what else a hit reads.
pub(crate) struct Domain {
    pub(super) number: u64,
    /// Each grace period writes it.
    epoch: AtomicU64,
    records: Arc<Records>,
}

/// The records of a domain, and what checks of them have found. A pin reads neither.
struct Records {
    /// Those of all live threads that were pinned here, and *orphans*: records of threads that
    /// ended while they were pinned, by a thread-local that is destroyed later.
    list: Mutex<Vec<Arc<Record>>>,
    /// The greatest target that checks have found passed, so that the parts of a cache share their
    /// checks. Written under the lock of the list.
    passed: AtomicU64,
}

/// A pin: while it lives, no grace period of its domain ends, so no node that its thread has found
/// is freed.
pub(crate) struct Pin(NonNull<Record>);

/// A grace period that has begun: its target.
pub(crate) type Grace = u64;

/// A thread's share in its record of one domain.
pub(super) struct Registration(Arc<Record>);

/// One thread's pins. On its own cache lines, adjacent-line prefetch included.
#[repr(align(128))]
pub(super) struct Record {
    /// 0, or the epoch that the first of the held pins has read. Only the record's own thread
    /// writes it (reclaim 3), so it reads it relaxed.
    pinned: AtomicU64,
    /// The number of held pins beyond the first. Only the record's own thread uses it, relaxed. In
    /// 64 bits it cannot overflow, however many pins are forgotten.
    further: atomic64::AtomicU64,
    /// Dangles once the domain is dropped.
    records: Weak<Records>,
}

/// The value of a record that is not pinned; never an epoch.
const NONE: u64 = 0;

impl Domain {
    pub(super) fn numbered(number: u64) -> Self {
        Self {
            number,
            epoch: AtomicU64::new(NONE + 1),
            records: Arc::new(Records {
                list: Mutex::new(Vec::new()),
                passed: AtomicU64::new(NONE),
            }),
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
        unsafe {
            (*record).enter(self);
            Pin(NonNull::new_unchecked(record.cast_mut()))
        }
    }

    /// A pin, if the thread holds none by this record.
    ///
    /// # Safety
    ///
    /// As for [`pin_by`](Self::pin_by).
    #[inline]
    pub(super) unsafe fn pin_alone_by(&self, record: *const Record) -> Option<Pin> {
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

    /// A record for the calling thread.
    pub(super) fn register(&self) -> Arc<Record> {
        let record = Arc::new(Record {
            pinned: AtomicU64::new(NONE),
            further: atomic64::AtomicU64::new(0),
            records: Arc::downgrade(&self.records),
        });
        self.records.list.lock().push(Arc::clone(&record));
        record
    }

    /// Begins a grace period: it is over once every pin held now has been dropped.
    ///
    /// The caller has unlinked the objects in question from all shared places before.
    pub(crate) fn begin_grace(&self) -> Grace {
        grace_fence(Ordering::SeqCst);
        // Release, partner: the acquire in `enter_alone`.
        self.epoch.fetch_add(1, Ordering::Release) + 1
    }

    /// Whether every pin held at the beginning of a grace period of this domain has been dropped:
    /// no thread is pinned since before the target.
    pub(crate) fn is_over(&self, target: &Grace) -> bool {
        // Acquire, partner: the release below.
        if self.records.passed.load(Ordering::Acquire) >= *target {
            return true;
        }
        let mut records = self.records.list.lock();
        // Relaxed: it changes under this lock.
        let before = self.records.passed.load(Ordering::Relaxed);
        if before >= *target {
            return true;
        }
        // Acquire, partner: the release in `begin_grace`. Before the records are read.
        let mut passed = self.epoch.load(Ordering::Acquire);
        for at in 0..records.len() {
            // Acquire, partners: the releases in `enter_alone` and `leave`.
            let pinned = records[at].pinned.load(Ordering::Acquire);
            if pinned == NONE {
                continue;
            }
            if pinned < *target {
                // The next check begins here: a pin that is held for long costs it one step.
                records.swap(0, at);
                return false;
            }
            passed = passed.min(pinned);
        }
        // It may be less: see the module docs.
        let passed = passed.max(before);
        // Release, partner: the acquire above.
        self.records.passed.store(passed, Ordering::Release);
        true
    }

    /// The greatest target that is known to have passed.
    #[cfg(test)]
    pub(super) fn passed(&self) -> Grace {
        self.records.passed.load(Ordering::Relaxed)
    }

    /// The number of records.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.list.lock().len()
    }
}

impl Record {
    /// Begins a pin. The record is the calling thread's, and registered in this domain.
    #[inline]
    pub(super) fn enter(&self, domain: &Domain) {
        if !self.enter_alone(domain) {
            let further = self.further.load(Ordering::Relaxed);
            self.further.store(further + 1, Ordering::Relaxed);
            // What a call has written must be visible to all threads before this thread's next call
            // reads, nested or not. It may still be in the processor's store buffer: a plain store
            // unlocks a shard.
            pin_fence(Ordering::SeqCst);
        }
    }

    /// Begins a pin if the thread holds none of this record; otherwise returns `false`.
    #[inline]
    pub(super) fn enter_alone(&self, domain: &Domain) -> bool {
        if self.pinned.load(Ordering::Relaxed) != NONE {
            return false;
        }
        // Acquire, partner: the release in `begin_grace`.
        let epoch = domain.epoch.load(Ordering::Acquire);
        // Release, partner: the acquire in `is_over`.
        self.pinned.store(epoch, Ordering::Release);
        pin_fence(Ordering::SeqCst);
        true
    }

    /// Ends a pin. It takes a pointer: another thread may free the record before this returns.
    ///
    /// # Safety
    ///
    /// The calling thread's pin keeps the record until then.
    #[inline]
    pub(super) unsafe fn leave(record: *const Self) {
        // SAFETY: the caller's promise. Neither is used after the pin has ended.
        let further = unsafe { &(*record).further };
        // SAFETY: likewise.
        let pinned = unsafe { &(*record).pinned };
        let pins = further.load(Ordering::Relaxed);
        if pins > 0 {
            further.store(pins - 1, Ordering::Relaxed);
        } else {
            // Release, partners: the acquires in `is_over` and `is_left`. The last access: from
            // then on an orphan may be freed.
            pinned.store(NONE, Ordering::Release);
        }
    }

    fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed) != NONE
    }

    /// Whether it is an orphan whose pins have ended.
    fn is_left(self: &Arc<Self>) -> bool {
        // Acquire, partner: the release in `leave`.
        Arc::strong_count(self) == 1 && self.pinned.load(Ordering::Acquire) == NONE
    }

    /// Takes the record of a thread that ends out of its domain. If it is pinned, it stays there as
    /// an orphan, and the orphans before it whose pins have ended go.
    pub(super) fn unregister(self: &Arc<Self>) {
        let is_pinned = self.is_pinned();
        if let Some(records) = self.records.upgrade() {
            records.list.lock().retain(|record| {
                if Arc::ptr_eq(record, self) {
                    is_pinned
                } else {
                    !(is_pinned && record.is_left())
                }
            });
        } else if is_pinned {
            // It is in no list.
            std::mem::forget(Arc::clone(self));
        }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: reclaim 2.
        unsafe { Record::leave(self.0.as_ptr()) };
    }
}

impl Registration {
    #[inline]
    pub(super) fn record(&self) -> *const Record {
        Arc::as_ptr(&self.0)
    }

    /// Whether its domain still exists.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.records.strong_count() > 0
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
