//! A table that grows and shrinks under its readers, with real threads and the processor's own
//! memory order. A writer moves entries between buckets, into an overflow chain and out of it; a
//! key that stays is never missed.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::millis;
use wheelhouse::{Cache, Scheduler};

/// The number of different hashes: the fewer, the longer the overflow chains.
#[derive(Clone, Copy)]
struct Hashes(u64);

impl BuildHasher for Hashes {
    type Hasher = Remainder;

    fn build_hasher(&self) -> Remainder {
        Remainder(self.0, 0)
    }
}

struct Remainder(u64, u64);

impl Hasher for Remainder {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        self.1 = key % self.0;
    }

    fn finish(&self) -> u64 {
        self.1
    }
}

/// Two readers look up `stay` keys while a writer inserts `come` others and removes them again.
fn no_key_is_missed(hashes: u64, stay: u64, come: u64, lasts: Duration) {
    let cache: Cache<u64, u64, Hashes> = Cache::builder()
        .max_capacity(u64::from(u32::MAX))
        .scheduler(Scheduler::disabled())
        .hasher(Hashes(hashes))
        .build();
    for key in 0..stay {
        cache.insert(key * 3, key);
    }
    let over = AtomicBool::new(false);
    let met = AtomicU64::new(0);
    let end = Instant::now() + lasts;
    std::thread::scope(|threads| {
        for first in 0..2 {
            let (cache, over, met) = (&cache, &over, &met);
            threads.spawn(move || {
                for n in first.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = n * 7_919 % stay;
                    assert_eq!(cache.get(&(key * 3)), Some(key), "{hashes} hashes");
                    met.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while Instant::now() < end {
            for key in 0..come {
                cache.insert(key * 3 + 1, key);
            }
            for key in 0..come {
                cache.invalidate(&(key * 3 + 1));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(met.into_inner() > 0);
    assert_eq!(cache.entry_count(), stay);
}

#[test]
fn a_key_that_stays_is_found_while_buckets_split_and_merge() {
    let _alone = crate::alone();
    no_key_is_missed(u64::MAX, 100, 4_000, millis(1_500));
}

#[test]
fn a_key_that_stays_is_found_while_overflow_chains_are_made_and_freed() {
    let _alone = crate::alone();
    no_key_is_missed(400, 200, 2_000, millis(1_500));
    no_key_is_missed(64, 60, 300, millis(1_500));
}

#[test]
fn held_entries_stay_while_tables_are_made_and_freed() {
    let _shared = crate::beside_others();
    let cache: Cache<u64, String> = Cache::builder().scheduler(Scheduler::disabled()).build();
    for key in 0..100 {
        cache.insert(key, key.to_string());
    }
    let held: Vec<_> = (0..100).filter_map(|key| cache.get_ref(&key)).collect();
    let mut visit = cache.iter();
    let mut met: Vec<u64> = visit.by_ref().take(10).map(|entry| *entry.key()).collect();
    for _ in 0..3 {
        for key in 100..30_000 {
            cache.insert(key, String::new());
        }
        cache.run_pending_tasks();
        for key in (0..30_000).filter(|key| key % 100 != 7) {
            cache.invalidate(&key);
        }
        cache.run_pending_tasks();
    }
    // In order of insertion, whether the entries are still there or not.
    assert!((0..100).eq(held.iter().map(|entry| *entry.key())));
    assert!(
        held.iter()
            .all(|entry| *entry.value() == entry.key().to_string())
    );
    // An iteration yields the entries that stay once; here an entry that it had yielded was
    // removed.
    met.extend(visit.map(|entry| *entry.key()));
    let once: HashSet<u64> = met.iter().copied().collect();
    assert!(once.contains(&7));
    assert_eq!(once.len(), met.len(), "met twice");
}
