//! Changes of which the pass need not hear.

use crate::map::EventKind;
use crate::{Cache, ManualTicker, Scheduler};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// How many events wait in all batches.
fn events(cache: &Cache<u64, u64>) -> usize {
    let map = &cache.engine().map;
    let shards = 0..map.shards();
    shards.map(|shard| map.lock_shard(shard).buffered()).sum()
}

#[test]
fn a_deadline_that_moves_later_leaves_no_event_and_holds() {
    let clock = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .build();
    cache.insert_with_ttl(1, 0, 10 * SECOND);
    cache.run_pending_tasks();
    assert!(cache.set_expiry(&1, Some(20 * SECOND)));
    assert_eq!(events(&cache), 0);
    clock.advance(19 * SECOND);
    cache.run_pending_tasks();
    assert!(cache.contains_key(&1));
    assert!(cache.set_expiry(&1, Some(SECOND / 2)));
    assert_eq!(events(&cache), 1, "an earlier one does");
    clock.advance(SECOND / 2);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    cache.insert(2, 0);
    cache.run_pending_tasks();
    for (lifetime, change) in [(Some(SECOND), "comes"), (None, "goes")] {
        assert!(cache.set_expiry(&2, lifetime));
        assert_eq!(events(&cache), 1, "a deadline {change}");
        cache.run_pending_tasks();
        cache.engine().check_invariants();
    }
}

#[test]
fn an_entry_that_the_pass_did_not_hear_of_gets_a_deadline_is_replaced_and_removed() {
    let clock = ManualTicker::new();
    let told = Arc::new(AtomicU64::new(0));
    let teller = Arc::clone(&told);
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .removal_listener(move |key: &u64, _: &u64, _| {
            teller.fetch_add(1 << (8 * key), Ordering::Relaxed);
        })
        .build();
    // Before and after a pass has drained the event.
    for drains in [false, true] {
        told.store(0, Ordering::Relaxed);
        (0..5).for_each(|key| cache.insert(key, 0));
        let map = &cache.engine().map;
        let mut kinds = (0..map.shards()).flat_map(|shard| map.lock_shard(shard).kinds());
        assert!(kinds.all(|kind| kind == EventKind::Unheard));
        if drains {
            cache.run_pending_tasks();
        }
        assert!(cache.set_expiry(&0, Some(SECOND)));
        cache.insert_with_ttl(1, 1, SECOND);
        cache.insert(2, 1);
        cache.invalidate(&3);
        cache.engine().check_invariants();
        cache.run_pending_tasks();
        assert_eq!(told.load(Ordering::Relaxed), 0x01_01_01_00);
        clock.advance(SECOND);
        cache.run_pending_tasks();
        assert_eq!(told.load(Ordering::Relaxed), 0x01_01_02_01);
        assert_eq!(cache.entry_count(), 2);
        cache.invalidate_all();
        cache.run_pending_tasks();
    }
}

/// Right behind the insertion; behind another event of the key; and after a pass has heard of it.
#[test]
fn a_removal_takes_the_place_of_the_insertion_before_it() {
    let clock = ManualTicker::new();
    let told = Arc::new(AtomicU64::new(0));
    let teller = Arc::clone(&told);
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .max_capacity(10_000)
        .removal_listener(move |_: &u64, value: &u64, _| {
            teller.fetch_add(*value, Ordering::Relaxed);
        })
        .build();
    let takes = |key, between: &dyn Fn(), expected: &[EventKind]| {
        told.store(0, Ordering::Relaxed);
        cache.insert_with_ttl(key, 1, 10 * SECOND);
        between();
        cache.invalidate(&key);
        let map = &cache.engine().map;
        let kinds = map.lock_shard(map.shard_of(cache.hash(&key))).kinds();
        assert_eq!(kinds, expected);
        cache.engine().check_invariants();
        cache.run_pending_tasks();
        assert_eq!(told.load(Ordering::Relaxed), 1);
    };
    takes(1, &|| (), &[EventKind::Removed]);
    let sooner = || assert!(cache.set_expiry(&2, Some(SECOND)));
    let all = [EventKind::Added, EventKind::Rescheduled, EventKind::Removed];
    takes(2, &sooner, &all);
    takes(3, &|| cache.run_pending_tasks(), &[EventKind::Removed]);
    clock.advance(20 * SECOND);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}
