//! `coarse_reads` on the machine's clock. The unit tests of `cache` test its guarantees on a clock
//! of their own; here a real thread keeps the coarse time.

mod support;

use std::time::Instant;

use support::{millis, must_end, secs};
use wheelhouse::{Cache, Scheduler};

#[test]
fn an_entry_is_found_until_its_deadline_and_not_much_longer() {
    must_end(|| {
        let life = millis(100);
        for staleness in [millis(1), millis(20), secs(1)] {
            // No maintenance removes it: look-ups miss it once the coarse time has passed its
            // deadline.
            let cache = Cache::builder()
                .coarse_reads(staleness)
                .scheduler(Scheduler::disabled())
                .build();
            let before = Instant::now();
            cache.insert_with_ttl(1, 1, life);
            let after = Instant::now();
            loop {
                let asked = Instant::now();
                if cache.get(&1).is_none() {
                    break;
                }
                // Much more than documented for an idle machine, because other programs may use
                // this one.
                assert!(asked - after < life + staleness + secs(20), "{staleness:?}");
                std::thread::yield_now();
            }
            let early = life.checked_sub(before.elapsed());
            assert_eq!(early, None, "{staleness:?}: gone too early");
        }
    });
}

#[test]
fn caches_of_different_staleness_share_a_thread_that_keeps_running() {
    must_end(|| {
        let caches: Vec<Cache<u32, u32>> = [1, 5, 1_000]
            .map(|staleness| Cache::builder().coarse_reads(millis(staleness)).build())
            .into();
        for cache in &caches {
            cache.insert_with_ttl(1, 1, millis(20));
            cache.insert(2, 2);
        }
        for cache in &caches {
            while cache.contains_key(&1) {
                std::thread::yield_now();
            }
            assert_eq!(cache.get(&2), Some(2));
        }
        // The cache with the shortest staleness is dropped first.
        for gone in 1..caches.len() {
            let rest = caches[gone..].to_vec();
            for cache in &rest {
                cache.insert_with_ttl(1, 1, millis(20));
                while cache.contains_key(&1) {
                    std::thread::yield_now();
                }
            }
        }
    });
}
