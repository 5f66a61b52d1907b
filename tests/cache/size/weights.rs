//! Bounds by weight: when the weigher is called, what counts, what is evicted, and a bound that
//! changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::record::Record;
use crate::support::{Dice, OwnCache, secs};
use wheelhouse::RemovalCause::{Expired, Replaced, Size};
use wheelhouse::{Cache, CacheBuilder, EvictionPolicy, ManualTicker, Scheduler};

const POLICIES: [EvictionPolicy; 2] = [EvictionPolicy::Adaptive, EvictionPolicy::Lru];

/// Each value is its own weight.
fn weighed(clock: &ManualTicker) -> CacheBuilder<u32, u32> {
    Cache::builder()
        .ticker(clock.clone())
        .weigher(|_, weight| *weight)
}

#[test]
fn the_sum_of_weights_is_bounded() {
    for policy in POLICIES {
        let cache = weighed(&ManualTicker::new())
            .eviction_policy(policy)
            .max_capacity(1_000)
            .build();
        assert_eq!(cache.policy().eviction_policy(), policy);
        let mut dice = Dice::new(1);
        for key in 0..5_000 {
            cache.insert(key % 300, 1 + dice.below(60) as u32);
            if key % 97 == 0 {
                cache.run_pending_tasks();
                let sum: u64 = cache.iter().map(|entry| u64::from(*entry)).sum();
                assert_eq!(cache.weighted_size(), sum);
                assert!(sum <= 1_000, "{sum} with {policy:?}");
            }
        }
        cache.run_pending_tasks();
        // The next victim would have weighed 60 at most.
        assert!(cache.weighted_size() > 940, "{}", cache.weighted_size());
    }
}

#[test]
fn the_sum_is_kept_whatever_happens_to_entries_under_a_bound_that_is_never_met() {
    let clock = ManualTicker::new();
    let cache = weighed(&clock).max_capacity(u64::MAX).build();
    cache.insert(1, 10);
    cache.insert(2, 200);
    assert_eq!(cache.weighted_size(), 210);
    cache.insert(1, 3_000);
    assert_eq!(cache.weighted_size(), 3_200);
    cache.insert(1, 0);
    assert_eq!((cache.weighted_size(), cache.entry_count()), (200, 2));
    cache.insert_with_ttl(3, 40, secs(1));
    clock.advance(secs(1));
    assert_eq!(cache.get(&3), None);
    cache.run_pending_tasks();
    assert_eq!(cache.weighted_size(), 200);
    cache.invalidate(&2);
    assert_eq!((cache.weighted_size(), cache.entry_count()), (0, 1));
    cache.insert(4, u32::MAX);
    cache.insert(5, u32::MAX);
    assert_eq!(cache.weighted_size(), 2 * u64::from(u32::MAX));
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(cache.weighted_size(), 0);
}

#[test]
fn without_a_weigher_every_entry_weighs_one() {
    for builder in [Cache::builder(), Cache::builder().max_capacity(100)] {
        let cache: Cache<u32, u32> = builder.build();
        for key in 0..7 {
            cache.insert(key, 50);
        }
        assert_eq!((cache.weighted_size(), cache.entry_count()), (7, 7));
        assert_eq!(cache.policy().weight_of(&3), Some(1));
    }
}

#[test]
fn the_weigher_is_called_once_for_each_write_and_may_use_the_cache() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let own = OwnCache::<Cache<u32, u32>>::new();
    let inside = own.place();
    let cache = Cache::builder()
        .max_capacity(100)
        .time_to_live(secs(60))
        .weigher(move |key: &u32, weight: &u32| {
            count.fetch_add(1, Ordering::SeqCst);
            // With a lock held, this would wait for ever.
            if let Some(cache) = inside.get() {
                cache.get(key);
                cache.invalidate(&(key + 100));
                cache.run_pending_tasks();
            }
            *weight
        })
        .build();
    own.set(&cache);
    crate::support::must_end(move || {
        cache.insert(1, 5);
        cache.insert(1, 6);
        cache.insert_with_ttl(2, 7, secs(1));
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        cache.get(&1);
        cache.set_expiry(&1, Some(secs(5)));
        cache.retain(|_, _| true);
        cache.run_pending_tasks();
        cache.remove(&1);
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        assert_eq!(cache.weighted_size(), 7);
    });
}

#[test]
fn writers_of_one_key_call_the_weigher_once_for_each_write() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let cache = Cache::builder()
        .max_capacity(100)
        .time_to_live(crate::support::nanos(20_000))
        .weigher(move |_: &u32, _: &u32| {
            count.fetch_add(1, Ordering::SeqCst);
            1
        })
        .build();
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for step in 0..10_000 {
                    cache.insert(step % 3, step);
                    cache.insert_with_ttl(step % 3, step, secs(1));
                    if step % 7 == 0 {
                        cache.invalidate(&(step % 3));
                    }
                }
            });
        }
    });
    assert_eq!(asked.load(Ordering::SeqCst), 60_000);
}

#[test]
fn a_panic_of_the_weigher_leaves_the_cache_as_it_was() {
    let cache = Cache::builder()
        .max_capacity(100)
        .record_stats()
        .weigher(|_: &u32, weight: &u32| {
            assert!(*weight != 13, "on purpose");
            *weight
        })
        .build();
    cache.insert(1, 5);
    let before = cache.stats();
    for key in [1, 2] {
        assert!(catch_unwind(AssertUnwindSafe(|| cache.insert(key, 13))).is_err());
    }
    assert_eq!(cache.stats().insertions(), before.insertions());
    assert_eq!(cache.stats().updates(), before.updates());
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(5), None));
    assert_eq!((cache.weighted_size(), cache.entry_count()), (5, 1));
    cache.insert(2, 6);
    cache.run_pending_tasks();
    assert_eq!(cache.weighted_size(), 11);
}

#[test]
fn an_entry_heavier_than_the_cache_leaves_and_evicts_no_other() {
    for policy in POLICIES {
        let heard = Record::new();
        let cache = weighed(&ManualTicker::new())
            .eviction_policy(policy)
            .max_capacity(100)
            .record_stats()
            .removal_listener(heard.listener())
            .build();
        for key in 0..10 {
            cache.insert(key, 10);
        }
        cache.run_pending_tasks();
        cache.insert(50, 101);
        assert_eq!(cache.get(&50), None);
        cache.run_pending_tasks();
        assert_eq!(heard.take(), [(50, 101, Size)]);
        cache.insert(3, u32::MAX);
        assert_eq!(
            (cache.get(&3), cache.weighted_size()),
            (None, 90),
            "at once"
        );
        cache.run_pending_tasks();
        assert_eq!(heard.take(), [(3, 10, Replaced), (3, u32::MAX, Size)]);
        assert_eq!((cache.weighted_size(), cache.entry_count()), (90, 9));
        let evicted = 101 + u64::from(u32::MAX);
        assert_eq!(cache.stats().evicted_weight(), evicted);
        // Exactly as heavy as the cache: it fits, alone.
        cache.insert(60, 100);
        cache.run_pending_tasks();
        assert!(cache.weighted_size() <= 100);
    }
}

#[test]
fn an_entry_of_weight_zero_is_never_a_victim() {
    for policy in POLICIES {
        let heard = Record::new();
        let cache = weighed(&ManualTicker::new())
            .eviction_policy(policy)
            .max_capacity(10)
            .removal_listener(heard.listener())
            .build();
        for key in 0..50 {
            cache.insert(key, 0);
        }
        for key in 100..1_000 {
            cache.insert(key, 1);
        }
        cache.run_pending_tasks();
        assert_eq!((cache.weighted_size(), cache.entry_count()), (10, 60));
        assert!(heard.take().iter().all(|(_, weight, _)| *weight == 1));
        cache.policy().set_max_capacity(0);
        cache.run_pending_tasks();
        assert_eq!((cache.weighted_size(), cache.entry_count()), (0, 50));
        assert!(heard.take().iter().all(|(_, weight, _)| *weight == 1));
    }
}

#[test]
fn a_capacity_of_zero_keeps_entries_of_weight_zero() {
    let heard = Record::new();
    let cache = weighed(&ManualTicker::new())
        .max_capacity(0)
        .removal_listener(heard.listener())
        .build();
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), None);
    cache.insert(2, 0);
    assert_eq!(cache.get(&2), Some(0));
    cache.run_pending_tasks();
    assert_eq!(cache.get(&2), Some(0));
    assert_eq!(heard.take(), [(1, 1, Size)]);
}

#[test]
fn weight_of_leaves_no_trace() {
    let clock = ManualTicker::new();
    let cache = weighed(&clock)
        .max_capacity(u64::MAX)
        .time_to_idle(secs(10))
        .record_stats()
        .build();
    cache.insert(1, 7);
    clock.advance(secs(9));
    assert_eq!(cache.policy().weight_of(&1), Some(7));
    assert_eq!(cache.policy().weight_of(&2), None);
    clock.advance(secs(1));
    assert_eq!(
        cache.policy().weight_of(&1),
        None,
        "weight_of did not extend it"
    );
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (0, 0));
}

#[test]
fn the_bound_can_be_moved_both_ways() {
    for policy in POLICIES {
        let heard = Record::new();
        let cache = weighed(&ManualTicker::new())
            .eviction_policy(policy)
            .max_capacity(1_000)
            .removal_listener(heard.listener())
            .build();
        for key in 0..2_000 {
            cache.insert(key, 10);
        }
        cache.run_pending_tasks();
        assert_eq!(cache.weighted_size(), 1_000);
        heard.take();
        cache.policy().set_max_capacity(55);
        assert_eq!(cache.policy().max_capacity(), Some(55));
        cache.run_pending_tasks();
        assert_eq!(cache.weighted_size(), 50);
        let gone = heard.take();
        assert_eq!(gone.len(), 95);
        assert!(gone.iter().all(|(_, _, cause)| *cause == Size));
        cache.policy().set_max_capacity(9);
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0, "each is too heavy now");
        cache.insert(1, 10);
        assert_eq!(cache.get(&1), None);
        cache.policy().set_max_capacity(400);
        for key in 0..2_000 {
            cache.insert(key, 10);
        }
        cache.run_pending_tasks();
        assert_eq!(cache.weighted_size(), 400);
    }
}

#[test]
fn a_smaller_bound_holds_without_any_call() {
    let cache: Cache<u32, u32> = Cache::new(1_000);
    for key in 0..1_000 {
        cache.insert(key, key);
    }
    cache.policy().set_max_capacity(10);
    let began = std::time::Instant::now();
    while cache.entry_count() > 10 {
        assert!(
            began.elapsed() < secs(20),
            "{} entries",
            cache.entry_count()
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_bound_cannot_be_set_where_there_was_none() {
    let cache: Cache<u32, u32> = Cache::builder().build();
    let panic = catch_unwind(AssertUnwindSafe(|| cache.policy().set_max_capacity(5))).unwrap_err();
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(
        said.contains("set_max_capacity was called with 5"),
        "{said}"
    );
    assert!(said.contains("set max_capacity on its builder"), "{said}");
    assert_eq!(cache.policy().max_capacity(), None);
    cache.insert(1, 1);
    cache.run_pending_tasks();
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn expired_entries_are_removed_before_live_ones() {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache = weighed(&clock)
        .max_capacity(100)
        .parts(1)
        .removal_listener(heard.listener())
        .build();
    cache.insert(1, 50);
    cache.insert_with_ttl(2, 50, secs(1));
    cache.run_pending_tasks();
    clock.advance(secs(1));
    cache.insert(3, 50);
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [(2, 50, Expired)]);
    assert!(cache.contains_key(&1) && cache.contains_key(&3));
}

#[test]
fn an_entry_read_all_the_time_outlives_values_that_grow() {
    const HOT: u32 = 100;
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(20_000)
        .weigher(|_, &weight| weight)
        .scheduler(Scheduler::disabled())
        .build();
    (0..2_000).for_each(|key| cache.insert(key, 10));
    cache.run_pending_tasks();
    // The others are replaced in turn by something a little heavier: some entry has to be evicted,
    // although none is inserted.
    for weight in 11..30 {
        for key in HOT..2_000 {
            (0..5).for_each(|hot| drop(cache.get_ref(&((key * 5 + hot) % HOT))));
            if cache.contains_key(&key) {
                cache.insert(key, weight);
            }
        }
    }
    cache.run_pending_tasks();
    let left = (0..HOT).filter(|key| cache.contains_key(key)).count();
    assert!(left > 90, "{left} of {HOT} are left");
}
