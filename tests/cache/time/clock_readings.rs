//! A cache without any deadline reads the clock once per write, for the entry's age, and at no
//! other time.

use crate::support::{Dial, secs};
use wheelhouse::{Cache, Scheduler};

/// A clock that counts its readings, for a cache without deadlines of any kind.
fn timeless() -> (Cache<u32, u32>, Dial, u64) {
    let clock = Dial::at(1_000);
    let cache = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .build();
    let at_start = clock.readings();
    (cache, clock, at_start)
}

#[test]
fn only_writes_read_the_clock() {
    let (cache, clock, at_start) = timeless();
    for key in 0..1_000 {
        cache.insert(key, key);
    }
    assert_eq!(clock.readings(), at_start + 1_000);
    for key in 0..1_000 {
        cache.insert(key, key + 1);
    }
    let written = at_start + 2_000;
    let unread = |what: &str| assert_eq!(clock.readings(), written, "{what} read the clock");
    unread("an insert more than once");
    for key in 0..1_100 {
        assert_eq!(cache.get(&key), (key < 1_000).then_some(key + 1));
    }
    unread("get");
    assert_eq!(cache.get_ref(&5).map(|entry| *entry), Some(6));
    unread("get_ref");
    assert_eq!(cache.peek_ref(&5).and_then(|entry| entry.time_left()), None);
    unread("peek_ref");
    assert!(cache.contains_key(&5));
    unread("contains_key");
    assert_eq!(cache.iter().count(), 1_000);
    unread("iter");
    cache.retain(|key, _| key % 2 == 0);
    unread("retain");
    cache.invalidate(&0);
    assert_eq!(cache.remove(&2), Some(3));
    unread("invalidate and remove");
    assert_eq!(cache.next_maintenance_in(), None);
    unread("next_maintenance_in");
    cache.invalidate_all();
    unread("invalidate_all");
}

#[test]
fn maintenance_without_a_deadline_reads_no_clock() {
    let (cache, clock, at_start) = timeless();
    for key in 0..1_000 {
        cache.insert(key, key);
        cache.invalidate(&(key / 2));
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 500);
    assert_eq!(clock.readings(), at_start + 1_000);
}

#[test]
fn a_bound_needs_no_clock_of_its_own() {
    let clock = Dial::at(5);
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(10)
        .ticker(clock.clone())
        .build();
    let at_start = clock.readings();
    for key in 0..1_000 {
        cache.insert(key, key);
        cache.get(&key);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 10);
    assert_eq!(clock.readings(), at_start + 1_000);
}

#[test]
fn an_entry_without_a_deadline_has_an_age() {
    let (cache, clock, _) = timeless();
    cache.insert(1, 1);
    clock.set(1_000 + 7_000_000_000);
    assert_eq!(cache.get_ref(&1).unwrap().age(), secs(7));
    assert!(cache.set_expiry(&1, Some(secs(60))));
    assert_eq!(cache.peek_ref(&1).unwrap().age(), secs(7));
    cache.insert(1, 2);
    assert_eq!(cache.get_ref(&1).unwrap().age(), secs(0));
}

#[test]
fn the_first_fixed_lifetime_starts_the_clock() {
    let (cache, clock, _) = timeless();
    for key in 0..100 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    // At the first deadline, the cache has not read the clock for half the clock's range.
    let start = 1 << 62;
    clock.set(start);
    cache.insert_with_ttl(1, 1, secs(10));
    assert!(cache.set_expiry(&2, Some(secs(5))));
    clock.set(start + 5_000_000_000);
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(1), None));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 99);
    clock.set(start + 9_999_999_999);
    assert!(cache.contains_key(&1));
    clock.set(start + 10_000_000_000);
    assert!(!cache.contains_key(&1));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 98);
    assert_eq!(cache.iter().count(), 98);
}
