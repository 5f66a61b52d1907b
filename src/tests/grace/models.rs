//! The models, for whatever doors the protocol beside this stands on.

use super::epoch::{Epoch, Record};
use crate::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

/// Something that can be found, and freed.
struct Object {
    /// Whether readers find it.
    linked: AtomicU64,
    /// To be read by those who have found it, written by who frees it: loom refuses the one beside
    /// the other.
    alive: UnsafeCell<bool>,
}

struct Shared {
    epoch: Epoch,
    objects: [Object; 2],
}

// SAFETY: that nobody reads what is written is what the models are to show; loom watches it.
unsafe impl Sync for Shared {}

/// How often a retirement asks whether its grace period is over, before it leaves the object where
/// it is.
const LOOKS: usize = 2;

impl Object {
    fn new() -> Self {
        Self {
            linked: AtomicU64::new(1),
            alive: UnsafeCell::new(true),
        }
    }

    /// Looks for it, and uses it if it is found. Under a pin.
    fn use_it(&self) {
        if self.linked.load(Ordering::Acquire) == 1 {
            // SAFETY: as above.
            self.alive
                .with(|alive| assert!(unsafe { *alive }, "used, though freed"));
        }
    }
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: Epoch::new(),
            objects: [Object::new(), Object::new()],
        })
    }

    /// Looks for the first objects under a pin.
    fn read(&self, record: &Record, objects: usize) {
        record.enter(&self.epoch);
        self.objects[..objects].iter().for_each(Object::use_it);
        assert!(!record.leave(), "nobody has made it an orphan");
    }

    /// Takes an object out, and frees it if nobody holds it up.
    fn retire(&self, number: usize) {
        let object = &self.objects[number];
        object.linked.store(0, Ordering::Release);
        let target = self.epoch.begin_grace();
        if (0..LOOKS).any(|_| self.epoch.has_passed(target)) {
            // SAFETY: as above.
            object.alive.with_mut(|alive| unsafe { *alive = false });
        }
    }

    /// A thread whose record has been there before, and which reads so many times.
    fn reader(self: &Arc<Self>, times: usize, objects: usize) -> JoinHandle<()> {
        let (shared, record) = (Arc::clone(self), self.epoch.register());
        thread::spawn(move || (0..times).for_each(|_| shared.read(&record, objects)))
    }
}

pub(in super::super) fn a_reader() {
    let shared = Shared::new();
    let reader = shared.reader(1, 1);
    shared.retire(0);
    reader.join().unwrap();
}

pub(in super::super) fn a_reader_twice() {
    let shared = Shared::new();
    let reader = shared.reader(2, 1);
    shared.retire(0);
    reader.join().unwrap();
}

pub(in super::super) fn two_readers() {
    let shared = Shared::new();
    let readers = [shared.reader(1, 1), shared.reader(1, 1)];
    shared.retire(0);
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
}

/// Its second pin begins before the first ends, and ends after it.
pub(in super::super) fn a_reader_with_two_pins() {
    let shared = Shared::new();
    let (theirs, record) = (Arc::clone(&shared), shared.epoch.register());
    let reader = thread::spawn(move || {
        record.enter(&theirs.epoch);
        record.enter(&theirs.epoch);
        assert!(!record.leave());
        theirs.objects[0].use_it();
        assert!(!record.leave());
    });
    shared.retire(0);
    reader.join().unwrap();
}

/// It comes and goes in the middle of the retirement.
pub(in super::super) fn a_new_thread() {
    let shared = Shared::new();
    let theirs = Arc::clone(&shared);
    let reader = thread::spawn(move || {
        let record = theirs.epoch.register();
        theirs.read(&record, 1);
        record.unregister();
    });
    shared.retire(0);
    reader.join().unwrap();
}

/// What passes for the second object must not pass for the first, nor the other way round.
pub(in super::super) fn two_retirements() {
    let shared = Shared::new();
    let reader = shared.reader(2, 2);
    shared.retire(0);
    shared.retire(1);
    reader.join().unwrap();
}
