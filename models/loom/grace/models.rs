//! The models, with the fences of the module that includes this file.

use super::own::{Domain, Record};
use crate::sync::{AtomicU64, Mutex, Ordering};
use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

/// An object that readers can find, and that is freed.
struct Object {
    /// Whether readers find it.
    linked: AtomicU64,
    /// A reader that has found the object reads this, and freeing writes it. loom reports a read
    /// concurrent with the write.
    alive: UnsafeCell<bool>,
}

struct Shared {
    domain: Domain,
    objects: [Object; 2],
}

// SAFETY: the models show that no thread reads during a write; loom checks it.
unsafe impl Sync for Shared {}

/// How often a grace period is checked before the model gives up and does not free the object.
const CHECKS: usize = 2;

impl Object {
    fn new() -> Self {
        Self {
            linked: AtomicU64::new(1),
            alive: UnsafeCell::new(true),
        }
    }

    /// Looks the object up under a pin, and reads it if it is found.
    fn use_it(&self) {
        if self.linked.load(Ordering::Acquire) == 1 {
            // SAFETY: as above.
            self.alive
                .with(|alive| assert!(unsafe { *alive }, "used after it was freed"));
        }
    }
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            domain: Domain::numbered(1),
            objects: [Object::new(), Object::new()],
        })
    }

    /// Looks the first objects up under a pin.
    fn read(&self, record: &Record, objects: usize) {
        record.enter(&self.domain);
        self.objects[..objects].iter().for_each(Object::use_it);
        // SAFETY: the model keeps the record until the thread has ended.
        unsafe { Record::leave(record) };
    }

    /// Unlinks an object, and frees it if its grace period ends.
    fn retire(&self, number: usize) {
        let target = self.unlink(number);
        self.free(number, target);
    }

    /// Unlinks an object and begins a grace period; its target.
    fn unlink(&self, number: usize) -> u64 {
        self.objects[number].linked.store(0, Ordering::Release);
        self.domain.begin_grace()
    }

    /// Frees an object if the grace period with this target ends.
    fn free(&self, number: usize, target: u64) {
        let object = &self.objects[number];
        if (0..CHECKS).any(|_| self.domain.is_over(&target)) {
            // SAFETY: as above.
            object.alive.with_mut(|alive| unsafe { *alive = false });
        }
    }

    /// A thread that reads this many times; its record was registered before.
    fn reader(self: &Arc<Self>, times: usize, objects: usize) -> JoinHandle<()> {
        let (shared, record) = (Arc::clone(self), self.domain.register());
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
    let (theirs, record) = (Arc::clone(&shared), shared.domain.register());
    let reader = thread::spawn(move || {
        record.enter(&theirs.domain);
        record.enter(&theirs.domain);
        // SAFETY: the model keeps the record until the thread has ended.
        unsafe { Record::leave(&*record) };
        theirs.objects[0].use_it();
        // SAFETY: the model keeps the record until the thread has ended.
        unsafe { Record::leave(&*record) };
    });
    shared.retire(0);
    reader.join().unwrap();
}

/// A reader that begins and ends in the middle of the retirement.
pub(in super::super) fn a_new_thread() {
    let shared = Shared::new();
    let theirs = Arc::clone(&shared);
    let reader = thread::spawn(move || {
        let record = theirs.domain.register();
        theirs.read(&record, 1);
        record.unregister();
    });
    shared.retire(0);
    reader.join().unwrap();
}

/// Two grace periods of one thread share their checks.
pub(in super::super) fn two_retirements() {
    let shared = Shared::new();
    let reader = shared.reader(2, 2);
    shared.retire(0);
    shared.retire(1);
    reader.join().unwrap();
}

/// The check of one thread may tell that the grace period of the other is over.
pub(in super::super) fn retirements_on_two_threads() {
    let shared = Shared::new();
    let reader = shared.reader(1, 2);
    let theirs = Arc::clone(&shared);
    let other = thread::spawn(move || theirs.retire(1));
    shared.retire(0);
    reader.join().unwrap();
    other.join().unwrap();
}

/// The pass that finds the grace period over runs on another thread than the one that began it. The
/// target moves from one to the other under a lock, as it does under the maintenance lock.
pub(in super::super) fn a_check_on_a_third_thread() {
    let shared = Shared::new();
    let reader = shared.reader(1, 1);
    let begun = Arc::new(Mutex::new(None));
    let (theirs, hears) = (Arc::clone(&shared), Arc::clone(&begun));
    let checker = thread::spawn(move || {
        let target = *hears.lock();
        if let Some(target) = target {
            theirs.free(0, target);
        }
    });
    let target = shared.unlink(0);
    *begun.lock() = Some(target);
    reader.join().unwrap();
    checker.join().unwrap();
}
