//! Under many threads, the notifications of each key come in the order in which its values were
//! stored, and each value that `remove` returned is delivered as `Explicit`.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::record::Record;
use crate::support::{millis, nanos};
use wheelhouse::RemovalCause::{Expired, Explicit, Size};
use wheelhouse::{Cache, Scheduler, expiry};

/// Entries live for less than a millisecond, or for ever: 2 of 3 values, by their number.
fn lifetime(_: &u64, number: &u64) -> Option<Duration> {
    (number % 3 != 0).then(|| Duration::from_micros(1 + number % 700))
}

fn run(bound: u64, scheduler: Scheduler) {
    let heard = Record::new();
    let cache = Cache::builder()
        .max_capacity(bound)
        .scheduler(scheduler)
        .expiry_resolution(nanos(1 << 16))
        .expire_after(expiry::writing(lifetime))
        .removal_listener(heard.listener())
        .build();
    // The closure of an upsert runs alone for its key, so the numbers of a key are in order.
    let (next, stored) = (AtomicU64::new(1), AtomicU64::new(0));
    let removed = Mutex::new(HashSet::new());
    std::thread::scope(|threads| {
        for thread in 0..3 {
            let (cache, next, stored, removed) = (&cache, &next, &stored, &removed);
            threads.spawn(move || {
                for step in 0..20_000u32 {
                    let key = (step.wrapping_mul(2_654_435_761) >> 7).wrapping_add(thread) % 40;
                    let key = u64::from(key);
                    match step % 6 {
                        0 => {
                            if let Some(number) = cache.remove(&key) {
                                assert!(removed.lock().unwrap().insert(number), "removed twice");
                            }
                        }
                        1 => cache.invalidate(&key),
                        _ => {
                            let number = || next.fetch_add(1, Ordering::SeqCst);
                            let entry = cache.entry(key).and_upsert_with(|_| number());
                            stored.fetch_add(u64::from(entry.is_stored()), Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    cache.invalidate_all();
    cache.run_pending_tasks();
    let heard = heard.take();
    assert_eq!(heard.len() as u64, stored.load(Ordering::SeqCst));
    let mut removed = removed.into_inner().unwrap();
    let mut last = HashMap::new();
    for &(key, number, cause) in &heard {
        let before = last.insert(key, number).unwrap_or(0);
        assert!(before < number, "key {key}: {number} after {before}");
        assert!(!removed.remove(&number) || cause == Explicit, "{cause:?}");
    }
    assert!(removed.is_empty(), "not delivered: {removed:?}");
    let count = |of| heard.iter().filter(|told| told.2 == of).count();
    assert!(count(Expired) > 0 && (count(Size) > 0 || bound > 40));
}

#[test]
fn each_key_is_delivered_in_the_order_of_its_writes() {
    let _shared = crate::beside_others();
    for bound in [20, 1_000] {
        run(bound, Scheduler::background());
        run(bound, Scheduler::disabled());
    }
}

#[test]
fn clearing_misses_no_entry_while_other_threads_grow_and_shrink_the_table() {
    let _alone = crate::alone();
    let cache: Cache<u64, u64> = Cache::builder().build();
    let end = std::time::Instant::now() + millis(1_500);
    let running = || std::time::Instant::now() < end;
    std::thread::scope(|threads| {
        for thread in 1..3u64 {
            let cache = &cache;
            threads.spawn(move || {
                while running() {
                    let keys = (0..30_000).map(|key| thread << 40 | key);
                    keys.clone().for_each(|key| cache.insert(key, 0));
                    keys.for_each(|key| cache.invalidate(&key));
                }
            });
        }
        for round in 0.. {
            (0..20).for_each(|key| cache.insert(key, round));
            let own = |key: &u64| *key < 20;
            let shown = cache.iter().filter(|entry| own(entry.key()));
            let mut shown: Vec<u64> = shown.map(|entry| *entry.key()).collect();
            shown.sort_unstable();
            assert_eq!(shown, Vec::from_iter(0..20), "round {round}");
            match round % 2 {
                0 => cache.invalidate_all(),
                _ => cache.retain(|key, _| !own(key)),
            }
            assert!(
                (0..20).all(|key| !cache.contains_key(&key)),
                "round {round}"
            );
            if !running() {
                break;
            }
        }
    });
}
