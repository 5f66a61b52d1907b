//! The count of freed items: threads that run destructors against one that waits for them.

use super::explore;
use crate::engine::freeing::{add_freed, freed};
use crate::sync::AtomicU64;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Waits until so many items are freed.
fn wait(count: &AtomicU64, items: u64) {
    while freed(count) < items {
        thread::yield_now();
    }
}

#[test]
fn a_thread_that_waits_for_two_others_sees_what_their_destructors_did() {
    explore(|| {
        let count = Arc::new(AtomicU64::new(0));
        let done = [(); 2].map(|()| Arc::new(UnsafeCell::new(false)));
        for done in &done {
            let (count, done) = (Arc::clone(&count), Arc::clone(done));
            thread::spawn(move || {
                // SAFETY: the waiting thread reads it after the count; loom checks it.
                done.with_mut(|done| unsafe { *done = true });
                add_freed(&count, 1);
            });
        }
        wait(&count, 2);
        for done in &done {
            // SAFETY: both threads have counted their items; loom checks it.
            assert!(done.with(|done| unsafe { *done }));
        }
    });
}

#[test]
fn a_thread_that_waits_for_one_of_two_steps_sees_the_first() {
    explore(|| {
        let count = Arc::new(AtomicU64::new(0));
        let done = Arc::new(UnsafeCell::new(false));
        let (theirs, their_done) = (Arc::clone(&count), Arc::clone(&done));
        let other = thread::spawn(move || {
            // SAFETY: the waiting thread reads it after the count; loom checks it.
            their_done.with_mut(|done| unsafe { *done = true });
            add_freed(&theirs, 2);
            add_freed(&theirs, 1);
        });
        wait(&count, 1);
        // SAFETY: the thread has counted its first items; loom checks it.
        assert!(done.with(|done| unsafe { *done }));
        other.join().unwrap();
    });
}
