//! How far a bounded cache may be over its bound while writers on every core insert as fast as they can: the documented figure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::Cache;

const CAPACITY: u64 = 10_000;
/// Events in a shard's batch at which its writers wait for maintenance.
const LIMIT: u64 = 1_024;

#[test]
fn writers_on_every_core_do_not_run_away_from_eviction() {
    let cores = thread::available_parallelism().map_or(4, usize::from);
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
        // A thread that finds its shard at the limit may add one more before it waits; and the pass in hand has taken out up to two
        // batches whose evictions are still to come.
        let shards = (4 * cores).next_power_of_two().min(1024) as u64;
        let bound = CAPACITY + (shards + 2) * LIMIT + 2 * threads as u64;
        assert!(
            most <= bound,
            "{threads} threads: {most} entries, the bound is {bound}"
        );
        cache.run_pending_tasks();
        assert!(cache.entry_count() <= CAPACITY);
    }
}
