//! The lock for short holds: threads that hold it one after the other.
//!
//! The other models take loom's own mutex in its place. So it is compiled here once more, from its
//! file, on loom's atomics.

use super::explore;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

mod latch_parts {
    use super::super::late;
    use loom::thread::yield_now;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    /// An exchange that finds true stores what is there already. Here it stores nothing: loom has
    /// no order for such a store and that of the holder, so a waiting thread could read its own
    /// for ever.
    pub(super) struct AtomicBool(late::AtomicBool);

    impl AtomicBool {
        pub(super) const fn new(value: bool) -> Self {
            Self(late::AtomicBool::new(value))
        }

        pub(super) fn load(&self, ordering: Ordering) -> bool {
            self.0.load(ordering)
        }

        pub(super) fn store(&self, value: bool, ordering: Ordering) {
            self.0.store(value, ordering);
        }

        pub(super) fn swap(&self, value: bool, ordering: Ordering) -> bool {
            assert!(value, "only true is exchanged");
            self.0
                .compare_exchange(false, true, ordering, ordering)
                .is_err()
        }
    }

    pub(super) fn nap(_: Duration) {
        yield_now();
    }

    pub(super) fn pause(_: u32) {
        yield_now();
    }
}

#[path = "../../src/sync/latch.rs"]
mod latch;

type Count = latch::ShortMutex<UnsafeCell<u32>>;

/// A count that its lock guards. The lock is used once, before there are threads.
fn count() -> Arc<Count> {
    let count = Arc::new(Count::new(UnsafeCell::new(0)));
    add(&count.lock());
    count
}

fn add(count: &UnsafeCell<u32>) {
    // SAFETY: the caller holds the lock, so no other thread uses the number; loom checks it.
    count.with_mut(|count| unsafe { *count += 1 });
}

/// Adds if the lock is free, and returns how often it did.
fn try_to_add(count: &Count) -> u32 {
    match count.try_lock() {
        Some(count) => {
            add(&count);
            1
        }
        None => 0,
    }
}

fn counted(count: &Count) -> u32 {
    // SAFETY: under the lock no other thread uses the number; loom checks it.
    count.lock().with(|count| unsafe { *count })
}

#[test]
fn two_threads_that_wait_hold_it_one_after_the_other() {
    explore(|| {
        let count = count();
        let theirs = Arc::clone(&count);
        let other = thread::spawn(move || {
            add(&theirs.lock());
            add(&theirs.lock());
        });
        add(&count.lock());
        other.join().unwrap();
        assert_eq!(counted(&count), 4);
    });
}

#[test]
fn three_threads_that_try_hold_it_one_after_the_other() {
    explore(|| {
        let count = count();
        let spawn = |()| {
            let count = Arc::clone(&count);
            thread::spawn(move || try_to_add(&count) + try_to_add(&count))
        };
        let others = [(), ()].map(spawn);
        let mut added = 1 + try_to_add(&count) + try_to_add(&count);
        for other in others {
            added += other.join().unwrap();
        }
        assert_eq!(counted(&count), added);
    });
}
