//! The protocol of pins and grace periods.
//!
//! # How it works
//!
//! An [`Epoch`] is a number that each grace period moves on by one step. Each thread has a
//! [`Record`] in it: 0, or the epoch that the thread read when it was pinned. A thread that pins
//! once more keeps that epoch and counts. A grace period's *target* is the number that it has
//! brought about. It waits for the records that say less: those may have seen what was shared
//! before it.
//!
//! ```text
//! reader                                  who retires
//!
//! read the epoch (acquire)                take objects out of every shared place
//! store it in the record (release)        fence                                    FG
//! fence                             FR    move the epoch on to the target (release)
//! read what is shared, use it             look at every record (acquire):
//! store 0 in the record (release)             over if each is 0 or at least the target
//! ```
//!
//! # Why nobody uses what is freed
//!
//! Take a record, the value that the last look at it has found, and a pin of it. The fences are
//! sequentially consistent, so one is before the other in an order that all threads agree on. Looks
//! come after FG, whichever thread takes them.
//!
//! 1. *The look found what was there before this pin's first store.* Then FG is before FR, for else
//!    the look, which comes after FG, would have found the store, which comes before FR. So the
//!    reader's loads, which come after FR, see what was done before FG: the objects are out of
//!    reach for it.
//! 2. *It found a store of this pin, of the target or more.* Then the reader has read the epoch
//!    from this grace period or a later one. Both move it on by a release, and a later one
//!    continues what the earlier began, so what was done before is seen as well.
//! 3. *It found a store of this pin, of less*: then the grace period is not over.
//! 4. *It found something later*, the 0 of this pin's end or what follows it. Each is a release
//!    store after all that was done under the pin, read by an acquire: that lies before the
//!    freeing.
//! 5. *A record that the look did not meet*, because it came later or had gone before: both happen
//!    under the lock under which the look is taken. What came later sees all that was done before;
//!    what a record's thread did before it took it out lies before the freeing.
//!
//! Each record has to pass but once, at any time after FG: by 1, no later pin of it matters. So an
//! answer is final though a later look might say otherwise, where a reader has read the epoch long
//! ago and stores it only now.
//!
//! In 2 the fences alone would do. The release and the acquire of the epoch are for who does not
//! follow fences: ThreadSanitizer, and the exchange that takes the place of store and fence on
//! x86-64 (`sync/mod.rs`).
//!
//! Each pin has a fence, a nested one too, though no grace period needs that: cache calls begin
//! with one, and it keeps two threads, each of which writes and then reads what the other writes,
//! from both reading what was before (`tests/references.rs`).
//!
//! On doors that lack one of the fences this file fails in a model, as it must
//! (`src/tests/grace/`).

use super::door::{AtomicU64, Mutex, fence, store_before_loads};
use std::sync::atomic::{self, Ordering};
use std::sync::{Arc, Weak};

/// The number, and who is pinned since which. Written once a grace period, read by every pin.
pub(super) struct Epoch {
    now: AtomicU64,
    records: Arc<Records>,
}

/// Every thread's that has been here and has not ended, and orphans.
type Records = Mutex<Vec<Arc<Record>>>;

/// One thread's pin. On lines of its own, and those that the processor fetches with them.
#[repr(align(128))]
pub(super) struct Record {
    /// 0, or the epoch read by the first of the pins held, with [`MORE`] if there was more to know
    /// than that one is held. Written by the record's own thread alone (reclaim 3), which reads it
    /// relaxed.
    // What a lone pin begins and ends with: all that most calls touch.
    pinned: AtomicU64,
    /// [`PIN`] for each pin held beside one, and [`ORPHAN`]. Of the record's own thread, relaxed.
    /// In 64 bits: pins can be forgotten, but not so many.
    further: atomic::AtomicU64,
    /// Gone with the epoch.
    home: Weak<Records>,
}

/// Nobody is pinned at it, for it means that a record is not.
const NONE: u64 = 0;

/// From one epoch to the next: epochs are even.
const STEP: u64 = 2;
/// In `pinned`: look at `further`. Whether the epoch is less than a target is the same with it and
/// without.
const MORE: u64 = 1;

/// In `further`: a pin.
const PIN: u64 = 2;
/// In `further`: the last pin to go is to see to the record.
const ORPHAN: u64 = 1;

impl Epoch {
    pub(super) fn new() -> Self {
        Self {
            now: AtomicU64::new(NONE + STEP),
            records: Arc::new(Mutex::new(Vec::new())),
        }
    }

    /// A record for the calling thread.
    pub(super) fn register(&self) -> Arc<Record> {
        let record = Arc::new(Record {
            pinned: AtomicU64::new(NONE),
            further: atomic::AtomicU64::new(0),
            home: Arc::downgrade(&self.records),
        });
        self.records.lock().push(Arc::clone(&record));
        record
    }

    /// Begins a grace period for what the caller has taken out of every shared place; its target.
    pub(super) fn begin_grace(&self) -> u64 {
        fence(Ordering::SeqCst);
        // Release, partner: the acquire in `enter_alone`.
        self.now.fetch_add(STEP, Ordering::Release) + STEP
    }

    /// Whether nobody is pinned since before that target.
    pub(super) fn has_passed(&self, target: u64) -> bool {
        let mut records = self.records.lock();
        let holds_up = |record: &Arc<Record>| {
            // Acquire, partners: the releases in `enter_alone`, `leave` and `note`.
            let pinned = record.pinned.load(Ordering::Acquire);
            pinned != NONE && pinned < target
        };
        match records.iter().position(holds_up) {
            None => true,
            Some(at) => {
                // One that is held for long costs each look no more than this one.
                records.swap(0, at);
                false
            }
        }
    }

    /// How many threads' records there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.records.lock().len()
    }
}

impl std::fmt::Debug for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Relaxed: to be looked at.
        self.now.load(Ordering::Relaxed).fmt(f)
    }
}

impl Record {
    /// Begins a pin of the calling thread, whose record this is, in the epoch it is of.
    #[inline]
    pub(super) fn enter(&self, epoch: &Epoch) {
        if !self.enter_alone(epoch) {
            self.note(self.further.load(Ordering::Relaxed) + PIN);
            // What a call has written is seen by all before the thread's next call reads, nested or
            // not: it may be in the processor's store buffer yet, since a shard's lock is given
            // back by a plain store.
            fence(Ordering::SeqCst);
        }
    }

    /// The same if the thread holds no pin there; else false.
    #[inline]
    pub(super) fn enter_alone(&self, epoch: &Epoch) -> bool {
        if self.pinned.load(Ordering::Relaxed) != NONE {
            return false;
        }
        // Acquire, partner: the release in `begin_grace`.
        let now = epoch.now.load(Ordering::Acquire);
        store_before_loads(&self.pinned, now);
        true
    }

    /// Ends a pin; true if it was an orphan's last.
    #[inline]
    pub(super) fn leave(&self) -> bool {
        let more = self.pinned.load(Ordering::Relaxed) & MORE != 0;
        let further = if more {
            self.further.load(Ordering::Relaxed)
        } else {
            0
        };
        if further >= PIN {
            self.further.store(further - PIN, Ordering::Relaxed);
            return false;
        }
        // Release, partner: the acquire in `has_passed`.
        self.pinned.store(NONE, Ordering::Release);
        further == ORPHAN
    }

    /// Has `leave` tell of the last pin. For a record that is pinned.
    pub(super) fn make_orphan(&self) {
        self.note(self.further.load(Ordering::Relaxed) | ORPHAN);
    }

    /// Notes what there is beside one pin. `pinned` goes on telling of it until the last has gone,
    /// though it be no more.
    #[inline]
    fn note(&self, further: u64) {
        self.further.store(further, Ordering::Relaxed);
        let pinned = self.pinned.load(Ordering::Relaxed);
        debug_assert_ne!(pinned, NONE);
        if pinned & MORE == 0 {
            // Release, partner: the acquire in `has_passed`, to which nothing has changed.
            self.pinned.store(pinned | MORE, Ordering::Release);
        }
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Relaxed) != NONE
    }

    /// Whether the epoch is still there.
    pub(super) fn is_wanted(&self) -> bool {
        self.home.strong_count() > 0
    }

    /// Takes the record out, which is not pinned and never will be again.
    pub(super) fn unregister(self: &Arc<Self>) {
        if let Some(records) = self.home.upgrade() {
            records.lock().retain(|record| !Arc::ptr_eq(record, self));
        }
    }
}
