//! With `EvictionPolicy::Lru` the cache evicts the entry that was not used for the longest time:
//! what counts as a use, what does not, and that the order is exact. Such a cache has one part.

use crate::support::record::Record;
use crate::support::{Dice, secs};
use std::collections::VecDeque;
use wheelhouse::RemovalCause::{Replaced, Size};
use wheelhouse::{Cache, EvictionPolicy, Iter, ManualTicker, Restore};

type Touch = fn(&Cache<u32, u32>, u32);

/// Entries 1, 2, 3 in a cache for three; 1 is touched, then 4 is inserted: which one is evicted?
fn victim_after(touch: Touch) -> u32 {
    let heard = Record::new();
    let cache = Cache::builder()
        .max_capacity(3)
        .eviction_policy(EvictionPolicy::Lru)
        .parts(1)
        .ticker(ManualTicker::new())
        .removal_listener(heard.listener())
        .build();
    for key in 1..=3 {
        cache.insert(key, key);
        cache.run_pending_tasks();
    }
    touch(&cache, 1);
    cache.run_pending_tasks();
    cache.insert(4, 4);
    cache.run_pending_tasks();
    let victims: Vec<u32> = heard
        .take()
        .into_iter()
        .filter(|(_, _, cause)| *cause != Replaced)
        .map(|(key, value, cause)| {
            assert_eq!((key, cause), (value % 100, Size));
            key
        })
        .collect();
    assert_eq!((victims.len(), cache.entry_count()), (1, 3));
    victims[0]
}

#[test]
fn reads_and_writes_are_uses() {
    let uses: [(&str, Touch); 5] = [
        ("get", |cache, key| _ = cache.get(&key)),
        ("get_ref", |cache, key| _ = cache.get_ref(&key).is_some()),
        ("get_many", |cache, key| _ = cache.get_many([&key])),
        ("insert", |cache, key| cache.insert(key, key + 100)),
        ("insert_with_ttl", |cache, key| {
            cache.insert_with_ttl(key, key + 100, secs(60));
        }),
    ];
    for (name, touch) in uses {
        assert_eq!(victim_after(touch), 2, "{name} does not count as a use");
    }
}

#[test]
fn peeks_are_not_uses() {
    let looks: [(&str, Touch); 6] = [
        ("nothing", |_, _| {}),
        ("peek_ref", |cache, key| _ = cache.peek_ref(&key).is_some()),
        ("contains_key", |cache, key| _ = cache.contains_key(&key)),
        ("weight_of", |cache, key| _ = cache.policy().weight_of(&key)),
        ("iter", |cache, key| {
            _ = cache.iter().find(|e| *e.key() == key).is_some()
        }),
        ("retain", |cache, _| cache.retain(|_, _| true)),
    ];
    for (name, touch) in looks {
        assert_eq!(victim_after(touch), 1, "{name} counts as a use");
    }
}

fn lru(capacity: u64) -> Cache<u64, u64> {
    Cache::builder()
        .max_capacity(capacity)
        .eviction_policy(EvictionPolicy::Lru)
        .parts(1)
        .ticker(ManualTicker::new())
        .build()
}

/// The keys of a cache, the least recently used first.
struct Model {
    capacity: usize,
    keys: VecDeque<u64>,
}

impl Model {
    fn forget(&mut self, key: u64) -> bool {
        let found = self.keys.iter().position(|&other| other == key);
        if let Some(place) = found {
            self.keys.remove(place);
        }
        found.is_some()
    }

    fn read(&mut self, key: u64) -> bool {
        let is_there = self.forget(key);
        if is_there {
            self.keys.push_back(key);
        }
        is_there
    }

    fn insert(&mut self, key: u64) {
        self.forget(key);
        self.keys.push_back(key);
        if self.keys.len() > self.capacity {
            self.keys.pop_front();
        }
    }
}

fn keys<S>(view: Iter<'_, u64, u64, S>) -> Vec<u64> {
    view.map(|entry| *entry.key()).collect()
}

/// Every view, and a snapshot, show the order of the model.
fn assert_order(cache: &Cache<u64, u64>, model: &Model) {
    let capacity = model.capacity;
    let oldest_first: Vec<u64> = model.keys.iter().copied().collect();
    let newest_first: Vec<u64> = model.keys.iter().rev().copied().collect();
    let policy = cache.policy();
    assert_eq!(keys(policy.coldest(usize::MAX)), oldest_first, "{capacity}");
    assert_eq!(keys(policy.first_to_evict(usize::MAX)), oldest_first);
    assert_eq!(keys(policy.hottest(usize::MAX)), newest_first);
    assert_eq!(keys(policy.last_to_evict(usize::MAX)), newest_first);
    let saved: Vec<u64> = cache.snapshot().iter().map(|entry| entry.key).collect();
    assert_eq!(saved, newest_first);
}

/// Reads and writes of one thread in any order. A small cache applies each write at once; a large
/// one is asked to.
#[test]
fn the_order_is_exact() {
    for capacity in [1_u64, 2, 8, 9, 50, 200, 500, 1_000] {
        let cache = lru(capacity);
        let mut model = Model {
            capacity: capacity as usize,
            keys: VecDeque::new(),
        };
        let mut dice = Dice::new(capacity);
        let settle = || {
            if capacity > 500 {
                cache.run_pending_tasks();
            }
        };
        for step in 0..5_000 {
            let key = dice.below(capacity + capacity / 4 + 1);
            match dice.below(16) {
                0 => {
                    cache.invalidate(&key);
                    model.forget(key);
                    settle();
                }
                1..4 => {
                    cache.insert(key, step);
                    model.insert(key);
                    settle();
                }
                4 => assert_eq!(cache.get_ref(&key).is_some(), model.read(key)),
                5 => assert_eq!(cache.contains_key(&key), model.keys.contains(&key)),
                6 => {
                    // Several reads in a row, of fewer keys.
                    for _ in 0..dice.below(100) {
                        let key = dice.below(5);
                        assert_eq!(cache.get(&key).is_some(), model.read(key));
                    }
                }
                _ => {
                    let is_there = cache.get(&key).is_some();
                    assert_eq!(is_there, model.read(key), "{key} in {capacity}, {step}");
                    if !is_there {
                        cache.insert(key, step);
                        model.insert(key);
                        settle();
                    }
                }
            }
            if step % 500 == 499 {
                assert_order(&cache, &model);
            }
        }
    }
}

#[test]
fn a_restore_refuses_what_was_not_used_for_the_longest_time() {
    for capacity in [2_u64, 8, 9, 50, 1_000] {
        let old = lru(capacity);
        (0..capacity).for_each(|key| old.insert(key, key));
        old.run_pending_tasks();
        // Each other key between two reads of key 0; the first half twice.
        for key in (1..capacity).chain(1..capacity / 2) {
            old.get(&key);
            old.get(&0);
        }
        let new = lru(capacity / 2);
        let restored = new.restore(old.snapshot(), Restore::default());
        assert_eq!(restored.refused, capacity - capacity / 2);
        let mut newest = vec![0];
        newest.extend((1..capacity / 2).rev());
        assert_eq!(keys(new.policy().hottest(usize::MAX)), newest, "{capacity}");
    }
}

/// A bound that is set later changes what is recorded, not the order.
#[test]
fn the_order_is_exact_under_a_bound_that_changes() {
    let cache = lru(100_000);
    (0..600).for_each(|key| cache.insert(key, key));
    for max in [300, 5_000, 100, 2_000, 10] {
        cache.policy().set_max_capacity(max);
        cache.run_pending_tasks();
        let mut there = keys(cache.policy().coldest(usize::MAX));
        // From the newest to the oldest, and the oldest again between all reads.
        let oldest = there[0];
        there.reverse();
        for key in &there {
            assert!(cache.get(key).is_some() && cache.get(&oldest).is_some());
        }
        there.pop();
        there.push(oldest);
        assert_eq!(keys(cache.policy().coldest(usize::MAX)), there, "{max}");
    }
}

/// Three entries, of which the first is read; then a fourth comes.
fn keeps_the_one_that_was_read(cache: &Cache<u64, u64>) -> bool {
    for key in 1..=3 {
        cache.insert(key, key);
    }
    assert_eq!(cache.get(&1), Some(1));
    cache.insert(4, 4);
    cache.run_pending_tasks();
    let kept = [1, 2, 3, 4].map(|key| cache.contains_key(&key));
    kept == [true, false, true, true]
}

/// What counts is how many entries there are, not the number that the bound is: it may be a weight,
/// or may have been made smaller.
#[test]
fn the_order_is_exact_in_a_cache_of_few_heavy_entries_and_in_one_that_was_made_small() {
    for round in 0..20 {
        let builder = || {
            Cache::builder()
                .eviction_policy(EvictionPolicy::Lru)
                .parts(1)
                .ticker(ManualTicker::new())
        };
        let heavy = builder().max_capacity(3_000).weigher(|_, _| 1_000).build();
        assert!(keeps_the_one_that_was_read(&heavy), "heavy, {round}");
        let small = builder().max_capacity(10_000).build();
        small.policy().set_max_capacity(3);
        assert!(keeps_the_one_that_was_read(&small), "made small, {round}");
    }
}

/// A thread that wakes the cache does maintenance meanwhile: a read does not overtake the write
/// before it.
#[test]
fn the_order_is_exact_beside_the_scheduler_thread() {
    let capacity = 50;
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(capacity)
        .eviction_policy(EvictionPolicy::Lru)
        .parts(1)
        .build();
    let mut model = Model {
        capacity: capacity as usize,
        keys: VecDeque::new(),
    };
    let mut dice = Dice::new(7);
    for number in 0..50_000 {
        let key = dice.below(2 * capacity);
        // One that the model has evicted may still be there, until its removal.
        if model.read(key) {
            assert_eq!(cache.get(&key), Some(key), "operation {number}");
        } else {
            cache.insert(key, key);
            model.insert(key);
        }
    }
}
