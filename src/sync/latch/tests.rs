use super::*;
use std::sync::Arc;
use std::thread::{self, sleep, yield_now};

/// Threads that each count this number of times under the lock, in a plain number, which
/// ThreadSanitizer watches.
fn count(threads: u64, times: u64, hold: impl Fn(u64) + Send + Copy + 'static) {
    let counter = Arc::new(ShortMutex::new(0));
    let counting: Vec<_> = (0..threads)
        .map(|_| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                for _ in 0..times {
                    let mut count = counter.lock();
                    *count += 1;
                    hold(*count);
                }
            })
        })
        .collect();
    counting
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(*counter.lock(), threads * times);
}

#[test]
fn holders_come_one_after_the_other() {
    count(4, 50_000, |_| ());
}

#[test]
fn a_thread_that_waits_for_a_holder_without_a_processor_gets_its_turn() {
    // More threads than processors, and holders that yield, or sleep for longer than a waiter
    // pauses.
    count(16, 200, |count| {
        if count % 100 == 0 {
            sleep(20 * WAITER_NAP);
        } else {
            yield_now();
        }
    });
}

#[test]
fn a_taken_lock_is_refused_and_a_panic_unlocks_it() {
    let mutex = Arc::new(ShortMutex::new(()));
    let held = mutex.lock();
    assert!(mutex.try_lock().is_none());
    drop(held);
    let theirs = Arc::clone(&mutex);
    let panicked = thread::spawn(move || {
        let _held = theirs.lock();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panicked.join().is_err());
    assert!(mutex.try_lock().is_some());
}
