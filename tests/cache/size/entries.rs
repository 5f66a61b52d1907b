//! A bound in entries: it holds after each pass, each eviction has the cause `Size`, and no entry
//! is evicted without need.

use std::collections::BTreeMap;

use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::{Dice, must_end, secs};
use wheelhouse::RemovalCause::{self, Expired, Explicit, Replaced, Size};
use wheelhouse::{Cache, EvictionPolicy, ManualTicker};

fn bounded(capacity: u64) -> (Cache<u64, u64>, ManualTicker, Record<u64, u64>) {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache = Cache::builder()
        .max_capacity(capacity)
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    (cache, clock, heard)
}

/// The content of the cache and the removals delivered together are exactly what was inserted.
fn accounted(cache: &Cache<u64, u64>, heard: &Record<u64, u64>, put_in: &[(u64, u64)]) {
    let mut seen: BTreeMap<(u64, u64), u32> = BTreeMap::new();
    for entry in cache {
        *seen.entry((*entry.key(), *entry)).or_default() += 1;
    }
    for (key, value, _) in heard.take() {
        *seen.entry((key, value)).or_default() += 1;
    }
    let put_in: BTreeMap<(u64, u64), u32> = put_in.iter().map(|&pair| (pair, 1)).collect();
    assert_eq!(seen, put_in);
}

#[test]
fn up_to_the_bound_no_entry_is_evicted() {
    for capacity in [1, 2, 7, 64, 1_000] {
        let (cache, _clock, heard) = bounded(capacity);
        for round in 0..3 {
            for key in 0..capacity {
                cache.insert(key, round);
            }
            cache.run_pending_tasks();
            assert_eq!(cache.entry_count(), capacity);
            assert!((0..capacity).all(|key| cache.get(&key) == Some(round)));
        }
        let heard = heard.take();
        assert_eq!(heard.len() as u64, 2 * capacity);
        assert!(
            heard.iter().all(|&(_, _, cause)| cause == Replaced),
            "updates take no room"
        );
    }
}

#[test]
fn past_the_bound_each_insert_evicts_one_entry() {
    for capacity in [1, 2, 7, 64, 1_000] {
        let (cache, _clock, heard) = bounded(capacity);
        let pairs: Vec<_> = (0..10 * capacity).map(|key| (key, key + 1)).collect();
        for &(key, value) in &pairs {
            cache.insert(key, value);
        }
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), capacity);
        assert_eq!(cache.iter().count() as u64, capacity);
        accounted(&cache, &heard, &pairs);

        cache.insert(1_000_000, 0);
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), capacity);
        assert!(matches!(heard.take()[..], [(_, _, Size)]));
    }
}

#[test]
fn a_size_victim_is_an_eviction_like_an_expired_entry() {
    assert!(Size.was_evicted() && Expired.was_evicted());
    assert!(!Explicit.was_evicted() && !Replaced.was_evicted());
}

#[test]
fn a_bound_of_zero_keeps_nothing() {
    let (cache, _clock, heard) = bounded(0);
    for key in 0..1_000 {
        cache.insert(key, key + 1);
    }
    cache.insert_with_ttl(5_000, 1, secs(10));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(cache.iter().count(), 0);
    let mut expected: Vec<_> = (0..1_000).map(|key| (key, key + 1, Size)).collect();
    expected.push((5_000, 1, Size));
    assert_eq!(heard.take_sorted(), expected);
    assert_eq!(cache.next_maintenance_in(), None);
}

#[test]
fn expired_entries_are_removed_before_live_ones_are_evicted() {
    let (clock, heard) = (ManualTicker::new(), Record::new());
    // The tick of the deadline has not ended: one part looks for such entries in its own wheel.
    let cache = Cache::builder()
        .max_capacity(100)
        .parts(1)
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    for key in 0..50 {
        cache.insert(key, 0);
        cache.insert_with_ttl(key + 50, 0, secs(1));
    }
    cache.run_pending_tasks();
    for _ in 0..20 {
        assert!((0..50).all(|key| cache.get(&key).is_some()));
        cache.run_pending_tasks();
    }
    clock.advance(secs(1));
    for key in 100..150 {
        cache.insert(key, 0);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 100);
    let heard = heard.take_sorted();
    assert_eq!(
        heard,
        (50..100).map(|key| (key, 0, Expired)).collect::<Vec<_>>()
    );
}

#[test]
fn a_victim_leaves_the_wheel_too() {
    let (cache, clock, heard) = bounded(10);
    for key in 0..100 {
        cache.insert_with_ttl(key, key, secs(5));
    }
    cache.run_pending_tasks();
    assert_eq!(
        heard
            .take()
            .iter()
            .filter(|notice| notice.2 == Size)
            .count(),
        90
    );
    clock.advance(secs(5));
    cache.run_pending_tasks();
    let heard = heard.take();
    assert_eq!(heard.len(), 10);
    assert!(heard.iter().all(|notice| notice.2 == Expired));
    assert_eq!(
        (cache.entry_count(), cache.next_maintenance_in()),
        (0, None)
    );
}

#[test]
fn removed_entries_make_room() {
    let (cache, _clock, heard) = bounded(100);
    for key in 0..100 {
        cache.insert(key, 0);
    }
    cache.run_pending_tasks();
    for key in 0..60 {
        cache.invalidate(&key);
    }
    for key in 200..260 {
        cache.insert(key, 0);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 100);
    assert!(heard.take().iter().all(|notice| notice.2 == Explicit));

    cache.invalidate_all();
    for key in 0..100 {
        cache.insert(key, 1);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 100);
    assert!(heard.take().iter().all(|notice| notice.2 == Explicit));
}

#[test]
fn without_maintenance_of_its_own_the_cache_still_stays_near_its_bound() {
    let (cache, _clock, heard) = bounded(100);
    for key in 0..200_000 {
        cache.insert(key, key);
    }
    let count = cache.entry_count();
    assert!(
        count < 20_000,
        "{count} entries with a bound of 100: writers must help at some point"
    );
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 100);
    accounted(
        &cache,
        &heard,
        &(0..200_000).map(|key| (key, key)).collect::<Vec<_>>(),
    );
}

#[test]
fn many_writers_and_one_bound() {
    let census = Census::default();
    let heard: Record<u32, RemovalCause> = Record::new();
    let record = heard.clone();
    let cache: Cache<u32, Counted<u32>> = Cache::builder()
        .max_capacity(500)
        .ticker(ManualTicker::new())
        .removal_listener(move |&key: &u32, _: &_, cause| record.note(&key, &cause, cause))
        .build();
    let filled = cache.clone();
    let counted = census.clone();
    let put_in = must_end(move || {
        std::thread::scope(|threads| {
            let writers: Vec<_> = (0..4)
                .map(|seed| {
                    let (cache, census) = (filled.clone(), counted.clone());
                    threads.spawn(move || {
                        let mut dice = Dice::new(seed);
                        for _ in 0..30_000 {
                            let mut key = || dice.below(5_000) as u32;
                            cache.insert(key(), census.counted(0));
                            drop(cache.get_ref(&key()));
                        }
                        30_000u64
                    })
                })
                .collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum::<u64>()
        })
    });
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 500);
    assert_eq!(cache.iter().count(), 500);
    let heard = heard.take();
    assert_eq!(heard.len() as u64 + 500, put_in);
    assert!(
        heard
            .iter()
            .all(|notice| matches!(notice.2, Size | Replaced))
    );
    cache.run_pending_tasks();
    cache.run_pending_tasks();
    assert_eq!(census.alive(), 500);
}

#[test]
fn all_reads_between_two_passes_count_however_many() {
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(200)
        .eviction_policy(EvictionPolicy::Lru)
        .parts(1)
        .ticker(ManualTicker::new())
        .build();
    (0..200).for_each(|key| cache.insert(key, 0));
    cache.run_pending_tasks();
    // Several times the events that a ring of reads holds.
    assert!((0..150).all(|key| cache.contains_key(&key) && cache.get(&key) == Some(0)));
    (200..250).for_each(|key| cache.insert(key, 0));
    cache.run_pending_tasks();
    let here = |key: &u64| cache.contains_key(key);
    assert_eq!((0..150).filter(here).count(), 150, "read last");
    assert_eq!((150..200).filter(here).count(), 0, "read never");
}
