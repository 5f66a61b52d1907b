//! Loads, computes and writes of two keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shuttle::thread;
use wheelhouse::compute::{CompResult, Op};
use wheelhouse::{Cache, Leased, ManualTicker};

use crate::{dice, explore};

/// Whatever the calls for a key, at most one closure that was not revoked runs at a time; a value
/// loaded before a write is not in the cache after it; and nothing is left behind.
#[test]
fn loads_computes_and_writes_of_two_keys() {
    explore(|| {
        let mut dice = dice();
        let cache: Cache<u64, u64> = Cache::builder().ticker(ManualTicker::new()).build();
        // The backend's version. It changes before each write of the cache.
        let versions: Arc<[AtomicUsize; 2]> = Arc::default();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let plan: Vec<(u64, usize)> = (0..3)
                    .map(|_| (dice.below(6), dice.below(2) as usize))
                    .collect();
                let (cache, versions) = (cache.clone(), Arc::clone(&versions));
                thread::spawn(move || {
                    for (what, key) in plan {
                        let read = || versions[key].load(Ordering::SeqCst) as u64;
                        match what {
                            0 | 1 => _ = cache.get_with(key as u64, read),
                            2 => {
                                versions[key].fetch_add(1, Ordering::SeqCst);
                                cache.invalidate(&(key as u64));
                            }
                            3 => {
                                versions[key].fetch_add(1, Ordering::SeqCst);
                                _ = cache.remove(&(key as u64));
                            }
                            4 => {
                                let result = cache
                                    .entry(key as u64)
                                    .and_compute_with(|_| Op::Put(read()));
                                assert!(!matches!(result, CompResult::StillNone(_)));
                            }
                            _ => {
                                if let Leased::Lease(lease) = cache.lease(key as u64) {
                                    lease.fill(read());
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        for key in 0..2 {
            let version = versions[key].load(Ordering::SeqCst) as u64;
            if let Some(value) = cache.get(&(key as u64)) {
                assert_eq!(value, version, "a stale value stayed");
            }
            cache.invalidate(&(key as u64));
            let leased = cache.lease_timeout(key as u64, Duration::ZERO);
            assert!(matches!(leased, Leased::Lease(_)), "a load is left behind");
        }
    });
}

/// No count is lost, and each turn ends.
#[test]
fn upserts_of_one_key() {
    explore(|| {
        let cache: Cache<u64, u64> = Cache::builder().ticker(ManualTicker::new()).build();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let cache = cache.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        cache
                            .entry(1)
                            .and_upsert_with(|old| old.map_or(1, |old| old.into_value() + 1));
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(cache.get(&1), Some(6));
    });
}

/// What a call is told of a live entry holds, also while another call replaces the entry.
#[test]
fn an_entry_that_is_being_replaced_has_time_left() {
    const HOUR: Duration = Duration::from_secs(3_600);
    explore(|| {
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(ManualTicker::new())
            .time_to_idle(HOUR)
            .build();
        let (computes, writes) = (dice().below(2) == 0, cache.clone());
        if computes {
            cache.insert(1, 1);
        }
        let writer = thread::spawn(move || (2..4).for_each(|value| writes.insert(1, value)));
        if computes {
            _ = cache.entry(1).and_compute_with(|entry| {
                assert_eq!(entry.unwrap().time_left(), Some(HOUR));
                Op::Nop
            });
        } else {
            // Perhaps it gets the value of the writer.
            let entry = cache.entry(1).or_insert_with(|| 1);
            assert_eq!(entry.time_left(), Some(HOUR));
        }
        writer.join().unwrap();
    });
}
