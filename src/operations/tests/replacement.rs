//! Replacements of which the pass does not hear all: what follows from a replacement happens all
//! the same.

use crate::{Cache, ManualTicker, RemovalCause, Scheduler};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn cache(clock: &ManualTicker, bound: u64) -> Cache<u64, Arc<u64>> {
    Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .max_capacity(bound)
        .build()
}

/// How many events wait in all batches that tell of more than a use.
fn changes(cache: &Cache<u64, Arc<u64>>) -> usize {
    let map = &cache.engine().map;
    let shards = 0..map.shards();
    shards.map(|shard| map.lock_shard(shard).changes()).sum()
}

#[test]
fn a_replacement_with_a_later_deadline_is_no_news_and_that_deadline_holds() {
    let clock = ManualTicker::new();
    let cache = cache(&clock, 1_000);
    cache.insert_with_ttl(1, Arc::new(0), 10 * SECOND);
    cache.run_pending_tasks();
    let values: Vec<Arc<u64>> = (1..=3).map(Arc::new).collect();
    for (value, lifetime) in values.iter().zip([10, 20, 30]) {
        cache.insert_with_ttl(1, Arc::clone(value), lifetime * SECOND);
        assert_eq!(changes(&cache), 0, "of the value {value}");
    }
    clock.advance(29 * SECOND);
    for _ in 0..4 {
        cache.run_pending_tasks();
    }
    assert_eq!(cache.get(&1).as_deref(), Some(&3));
    let left = values.iter().map(Arc::strong_count);
    assert!(left.eq([1, 1, 2]), "the former values are dropped");
    clock.advance(SECOND);
    for _ in 0..4 {
        cache.run_pending_tasks();
    }
    assert_eq!((cache.get(&1), cache.entry_count()), (None, 0));
    assert_eq!(
        Arc::strong_count(&values[2]),
        1,
        "the last value is dropped"
    );
}

#[test]
fn a_replacement_with_an_earlier_deadline_or_none_is_news() {
    let clock = ManualTicker::new();
    let cache = cache(&clock, 1_000);
    for (former, lifetime) in [(Some(20), Some(10)), (Some(20), None), (None, Some(10))] {
        let store = |value, lifetime: Option<u32>| match lifetime {
            Some(lifetime) => cache.insert_with_ttl(1, Arc::new(value), lifetime * SECOND),
            None => cache.insert(1, Arc::new(value)),
        };
        store(1, former);
        cache.run_pending_tasks();
        store(2, lifetime);
        assert_eq!(changes(&cache), 1, "from {former:?} to {lifetime:?}");
        clock.advance(10 * SECOND);
        cache.run_pending_tasks();
        assert_eq!(cache.get(&1).is_some(), lifetime.is_none());
        cache.invalidate(&1);
        cache.run_pending_tasks();
    }
}

#[test]
fn where_the_pass_has_yet_to_hear_of_the_former_node_it_hears_of_the_next() {
    let cache: Cache<u64, Arc<u64>> = Cache::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::disabled())
        .max_capacity(1_000)
        .weigher(|_: &u64, value: &Arc<u64>| **value as u32)
        .build();
    // So many that the cache is not small.
    (1_000..1_100).for_each(|key| cache.insert(key, Arc::new(1)));
    cache.insert(1, Arc::new(3));
    cache.run_pending_tasks();
    cache.insert(1, Arc::new(5));
    assert_eq!(changes(&cache), 1, "the weight is another");
    cache.insert(1, Arc::new(5));
    assert_eq!(changes(&cache), 2, "the first event waits");
    cache.run_pending_tasks();
    cache.insert(1, Arc::new(5));
    assert_eq!(changes(&cache), 0);
    cache.run_pending_tasks();
    assert_eq!(cache.weighted_size(), 105);
    cache.engine().check_invariants();
}

#[test]
fn a_replacement_that_is_no_news_is_a_use() {
    let clock = ManualTicker::new();
    let cache = cache(&clock, 1_000);
    (0..100).for_each(|key| cache.insert(key, Arc::new(key)));
    cache.run_pending_tasks();
    for round in 0..3 {
        cache.insert(50, Arc::new(round));
        assert_eq!(changes(&cache), 0);
        cache.run_pending_tasks();
    }
    let hottest = cache.policy().hottest(1).map(|entry| *entry.key());
    assert!(hottest.eq([50]));
}

#[test]
fn a_listener_hears_of_each_replacement_in_order() {
    let clock = ManualTicker::new();
    let heard: Arc<Mutex<Vec<(u64, RemovalCause)>>> = Arc::default();
    let theirs = Arc::clone(&heard);
    let cache: Cache<u64, Arc<u64>> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .removal_listener(move |_, value: &Arc<u64>, cause| {
            theirs.lock().unwrap().push((**value, cause));
        })
        .build();
    cache.insert_with_ttl(1, Arc::new(0), SECOND);
    cache.run_pending_tasks();
    cache.insert_with_ttl(1, Arc::new(1), SECOND);
    assert_eq!(changes(&cache), 1);
    clock.advance(SECOND);
    for _ in 0..4 {
        cache.run_pending_tasks();
    }
    let heard = heard.lock().unwrap();
    assert_eq!(
        *heard,
        [(0, RemovalCause::Replaced), (1, RemovalCause::Expired)]
    );
}

#[test]
fn entries_replaced_before_and_after_the_pass_knows_them_are_evicted_and_expire() {
    const BOUND: u64 = 100;
    let clock = ManualTicker::new();
    let cache = cache(&clock, BOUND);
    for known in [false, true] {
        for key in 0..BOUND {
            cache.insert_with_ttl(key, Arc::new(key), 10 * SECOND);
        }
        if known {
            cache.run_pending_tasks();
        }
        for key in 0..BOUND {
            cache.insert_with_ttl(key, Arc::new(key + 1), 20 * SECOND);
        }
        // As many new ones: the old ones leave, whichever of their nodes the pass has met.
        for key in BOUND..2 * BOUND {
            cache.insert_with_ttl(key, Arc::new(key), 15 * SECOND);
            cache.insert_with_ttl(key, Arc::new(key), 15 * SECOND);
        }
        for _ in 0..4 {
            cache.run_pending_tasks();
        }
        assert_eq!(cache.entry_count(), BOUND);
        assert_eq!(cache.iter().count() as u64, BOUND);
        clock.advance(20 * SECOND);
        for _ in 0..4 {
            cache.run_pending_tasks();
        }
        assert_eq!(cache.entry_count(), 0);
    }
}

#[test]
fn an_entry_replaced_after_the_wheel_has_found_it_due_stays() {
    let clock = ManualTicker::new();
    let cache = cache(&clock, 1_000);
    cache.insert_with_ttl(1, Arc::new(1), SECOND);
    cache.run_pending_tasks();
    clock.advance(2 * SECOND);
    // The write creates an entry anew, in the place of one that is due.
    cache.insert_with_ttl(1, Arc::new(2), SECOND);
    assert_eq!(changes(&cache), 0);
    cache.run_pending_tasks();
    assert_eq!(cache.get(&1).as_deref(), Some(&2));
    clock.advance(SECOND);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}
