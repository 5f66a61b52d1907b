//! Which entries a full cache keeps. New entries are not starved: in a cache full of popular
//! entries, a new key that is looked up at once is found. And the entries that are used most are
//! known: they are shown as the hottest, and stay when the bound gets smaller.

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

/// Fills a cache of 1,000 entries by look-ups whose keys are distributed as Zipf says: key 0 is
/// requested most, key 1 half as often, and so on.
fn busy(policy: EvictionPolicy, keys: u32, seed: u64) -> Cache<u32, u32> {
    let cache = Cache::builder()
        .max_capacity(1_000)
        .parts(1)
        .eviction_policy(policy)
        .ticker(ManualTicker::new())
        .build();
    let mut sum = 0.0;
    let shares: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / f64::from(rank).powf(0.9);
            sum
        })
        .collect();
    let mut dice = Dice::new(seed);
    for _ in 0..30_000 {
        let drawn = dice.below(1 << 53) as f64 / (1_u64 << 53) as f64 * sum;
        let key = shares.partition_point(|share| *share < drawn) as u32;
        if cache.get(&key).is_none() {
            cache.insert(key, key);
        }
    }
    cache.run_pending_tasks();
    cache
}

/// How many of the twenty busiest keys are in an answer.
fn busiest(keys: impl Iterator<Item = u32>) -> usize {
    keys.filter(|key| *key < 20).count()
}

#[test]
fn a_smaller_bound_keeps_more_of_the_busiest_keys_than_lru() {
    let mut sums = [0; 2];
    for keys in [1_000, 2_000, 10_000] {
        let kept = POLICIES.map(|policy| {
            let one = |seed| {
                let cache = busy(policy, keys, seed);
                assert_eq!(busiest(cache.iter().map(|entry| *entry.key())), 20);
                cache.policy().set_max_capacity(100);
                cache.run_pending_tasks();
                assert_eq!(cache.entry_count(), 100);
                busiest(cache.iter().map(|entry| *entry.key()))
            };
            (1..=3).map(one).sum::<usize>()
        });
        println!("of {keys} keys, {kept:?} of 60 stay");
        assert!(kept[0] >= 45, "{kept:?} of 60 stay");
        sums[0] += kept[0];
        sums[1] += kept[1];
    }
    assert!(sums[0] > sums[1], "{sums:?} of 180 stay");
}

#[test]
fn the_hottest_entries_are_those_that_were_requested_most() {
    for keys in [1_000, 2_000, 10_000] {
        let shown = |seed| {
            let cache = busy(EvictionPolicy::Adaptive, keys, seed);
            let hottest: Vec<u32> = cache.policy().hottest(20).map(|e| *e.key()).collect();
            assert_eq!(hottest.len(), 20);
            let coldest = cache.policy().coldest(500).map(|entry| *entry.key());
            assert_eq!(busiest(coldest), 0, "none of them is among the coldest");
            // A snapshot has the same order.
            let saved = cache.snapshot();
            let saved: Vec<u32> = saved.iter().take(20).map(|entry| entry.key).collect();
            assert_eq!(saved, hottest);
            busiest(hottest.into_iter())
        };
        let shown: usize = (1..=3).map(shown).sum();
        println!("of {keys} keys, {shown} of 60 are shown");
        assert!(shown >= 36, "{shown} of 60 are shown");
    }
}

#[test]
fn the_order_of_eviction_is_shown_from_both_ends() {
    let cache = busy(EvictionPolicy::Adaptive, 2_000, 1);
    let keys = |view: wheelhouse::Iter<'_, u32, u32, _>| -> Vec<u32> {
        view.map(|entry| *entry.key()).collect()
    };
    let first = keys(cache.policy().first_to_evict(usize::MAX));
    let mut last = keys(cache.policy().last_to_evict(usize::MAX));
    last.reverse();
    assert_eq!((first.len(), &first), (1_000, &last));
    cache.insert(9_999, 0); // pushes one out
    cache.run_pending_tasks();
    assert!(!cache.contains_key(&first[0]), "the first victim");
}
