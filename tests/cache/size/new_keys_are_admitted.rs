//! New entries are not starved: in a cache full of popular entries, a new key that is looked up at
//! once is found.

use crate::support::Dice;
use wheelhouse::{Cache, EvictionPolicy, ManualTicker};

const POLICIES: [EvictionPolicy; 2] = [EvictionPolicy::Adaptive, EvictionPolicy::Lru];
const CAPACITIES: [u64; 8] = [1, 2, 3, 10, 63, 100, 1_000, 20_000];

/// The cache is full, and every entry was used again and again.
fn in_demand(policy: EvictionPolicy, capacity: u64) -> Cache<u64, u64> {
    let cache = Cache::builder()
        .max_capacity(capacity)
        .eviction_policy(policy)
        .ticker(ManualTicker::new())
        .build();
    for round in 0..10 {
        for key in 0..capacity {
            if cache.get(&key).is_none() {
                cache.insert(key, round);
            }
        }
        cache.run_pending_tasks();
    }
    assert_eq!(cache.entry_count(), capacity);
    cache
}

#[test]
fn a_new_entry_is_found_at_once() {
    for policy in POLICIES {
        for capacity in CAPACITIES {
            let cache = in_demand(policy, capacity);
            let mut dice = Dice::new(capacity);
            for key in 1_000_000..1_002_000 {
                cache.insert(key, key);
                assert_eq!(cache.get(&key), Some(key), "{policy:?} of {capacity}");
                // The old entries stay popular.
                for _ in 0..3 {
                    cache.get(&dice.below(capacity));
                }
            }
        }
    }
}

#[test]
fn a_new_entry_outlives_the_maintenance_after_its_insert() {
    for policy in POLICIES {
        for capacity in CAPACITIES {
            let cache = in_demand(policy, capacity);
            for key in 1_000_000..1_000_500 {
                cache.insert(key, key);
                cache.run_pending_tasks();
                assert_eq!(cache.get(&key), Some(key), "{policy:?} of {capacity}");
            }
        }
    }
}

/// The new key is looked up before two more are inserted, by a loader that inserts it again on a
/// miss. A miss may happen until its first accesses were drained: a few other keys are inserted
/// between two passes, in a small cache more than the smallest window holds.
#[test]
fn a_new_entry_that_is_loaded_again_stays() {
    for policy in POLICIES {
        let cache = in_demand(policy, 1_000);
        cache.insert(5_000_000, 0);
        cache.run_pending_tasks();
        let mut missed = 0;
        for key in 1_000_000..1_020_000 {
            cache.insert(key, 0);
            if cache.get(&5_000_000).is_none() {
                missed += 1;
                cache.insert(5_000_000, 0);
            }
        }
        assert!(missed <= 20, "{policy:?}: missed {missed} times");
    }
}
