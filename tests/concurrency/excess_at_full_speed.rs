//! How far a bounded cache may exceed its bound while writers on every core insert as fast as they
//! can: the documented figure.

use crate::{BATCH_HARD_LIMIT, cores, shards};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::{Cache, EvictionPolicy, Scheduler};

const CAPACITY: u64 = 10_000;

#[test]
fn eviction_keeps_up_with_writers_on_every_core() {
    let _alone = crate::alone();
    let cores = cores();
    for threads in [cores, 4 * cores] {
        let cache: Cache<u64, u64> = Cache::builder().max_capacity(CAPACITY).build();
        let stop = AtomicBool::new(false);
        let mut most = 0;
        thread::scope(|scope| {
            for thread in 0..threads as u64 {
                let (cache, stop) = (&cache, &stop);
                scope.spawn(move || {
                    let mut key = thread << 40;
                    while !stop.load(Ordering::Relaxed) {
                        cache.insert(key, key);
                        key += 1;
                    }
                });
            }
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(700) {
                most = most.max(cache.entry_count());
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        // Each thread may add one more event before it notices.
        let bound = CAPACITY + CAPACITY / 4 + 256 + threads as u64;
        assert!(
            most <= bound,
            "{threads} threads: {most} entries, the bound is {bound}"
        );
        cache.run_pending_tasks();
        assert!(cache.entry_count() <= CAPACITY);
    }
}

/// Each new entry weighs as much as a thousand of those to be evicted: with as many victims as
/// entries it would not be enough.
#[test]
fn eviction_of_light_entries_keeps_up_with_heavy_writes() {
    let _alone = crate::alone();
    const LIGHT: u64 = 100_000;
    const HEAVY: u64 = 1_000;
    let cores = cores();
    for policy in [EvictionPolicy::Lru, EvictionPolicy::Adaptive] {
        for threads in [1, 2 * cores] {
            let cache: Cache<u64, u64> = Cache::builder()
                .max_capacity(LIGHT)
                .eviction_policy(policy)
                .scheduler(Scheduler::disabled())
                .weigher(|_, weight| *weight as u32)
                .build();
            for key in 0..LIGHT {
                cache.insert(key, 1);
            }
            cache.run_pending_tasks();
            let bound = LIGHT + ((shards() + 3) * BATCH_HARD_LIMIT + threads as u64) * HEAVY;
            thread::scope(|scope| {
                for thread in 1..=threads as u64 {
                    let cache = &cache;
                    scope.spawn(move || {
                        for key in 0..60_000 / threads as u64 {
                            cache.insert((thread << 40) + key, HEAVY);
                            if key % 16 == 0 {
                                let weight = cache.weighted_size();
                                assert!(
                                    weight <= bound,
                                    "{policy:?}, {threads} threads: {weight}, the bound is {bound}"
                                );
                            }
                        }
                    });
                }
            });
            cache.run_pending_tasks();
            assert!(cache.weighted_size() <= LIGHT);
        }
    }
}
