//! What `record_stats` counts: look-ups, insertions, removals and their causes, lateness.

use std::time::Duration;

use crate::support::record::Record;
use crate::support::{Dial, Dice, NS, nanos, secs};
use wheelhouse::RemovalCause::{self, Expired, Explicit, Replaced, Size};
use wheelhouse::compute::Op;
use wheelhouse::{
    Cache, CacheBuilder, LoadingCache, ManualTicker, Scheduler, Stats, expiry, loader_fn,
};

fn recording(clock: &ManualTicker) -> CacheBuilder<u64, u64> {
    Cache::builder().ticker(clock.clone()).record_stats()
}

/// The causes in the order of [`removals`].
const CAUSES: [RemovalCause; 4] = [Expired, Explicit, Replaced, Size];

fn removals(stats: &Stats) -> [u64; 4] {
    assert_eq!(RemovalCause::ALL, CAUSES);
    CAUSES.map(|cause| stats.removals(cause))
}

#[test]
fn nothing_is_counted_unless_asked_for() {
    let clock = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .max_capacity(2)
        .removal_listener(|_: &u64, _: &u64, _| panic!("on purpose"))
        .build();
    for key in 0..10 {
        cache.insert_with_ttl(key, key, secs(key + 1));
        cache.get(&key);
        cache.get(&(key + 100));
    }
    clock.advance(secs(60));
    cache.run_pending_tasks();
    let stats = cache.stats();
    assert_eq!(stats, Stats::default());
    assert_eq!(removals(&stats), [0; 4]);
    assert_eq!((stats.hits(), stats.misses()), (0, 0));
    assert_eq!((stats.insertions(), stats.updates()), (0, 0));
    assert_eq!((stats.evicted_weight(), stats.listener_panics()), (0, 0));
    assert_eq!(stats.maintenance_passes(), 0);
    assert_eq!(stats.maintenance_time(), Duration::ZERO);
    assert_eq!(stats.expiry_lateness(0.5), None);
}

#[test]
fn only_get_and_get_ref_are_look_ups() {
    let clock = ManualTicker::new();
    let cache = recording(&clock).build();
    cache.insert(1, 10);
    cache.insert_with_ttl(2, 20, secs(5));
    assert_eq!(cache.get(&1), Some(10));
    assert!(cache.get_ref(&2).is_some());
    assert_eq!(cache.get(&3), None);
    assert!(cache.get_ref(&3).is_none());
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (2, 2));
    clock.advance(secs(5));
    assert_eq!(cache.get(&2), None, "expired");
    assert!(cache.get_ref(&2).is_none());
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (2, 4));
    assert!(cache.peek_ref(&1).is_some() && cache.peek_ref(&2).is_none());
    assert!(cache.contains_key(&1) && !cache.contains_key(&2));
    assert_eq!(cache.iter().count(), 1);
    cache.retain(|_, _| true);
    assert!(cache.set_expiry(&1, None) && !cache.set_expiry(&2, None));
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (2, 4));
    assert!((cache.stats().hit_ratio() - 2.0 / 6.0).abs() < 1e-12);
}

/// The rows of the table of [`Stats`] about look-ups, for an absent key and for a present one.
#[test]
fn loading_methods_count_look_ups_as_get_does_and_computes_count_none() {
    type Call = fn(&Cache<u32, u32>, &LoadingCache<u32, u32, ()>);
    let look_ups: [(&str, Call); 12] = [
        ("get", |c, _| _ = c.get(&1)),
        ("get_ref", |c, _| _ = c.get_ref(&1)),
        ("get_many", |c, _| _ = c.get_many(&[1])),
        ("get_with", |c, _| _ = c.get_with(1, || 2)),
        ("optionally_get_with", |c, _| {
            _ = c.optionally_get_with(1, || None);
        }),
        ("try_get_with", |c, _| {
            _ = c.try_get_with(1, || Err::<u32, ()>(()));
        }),
        ("get_all_with", |c, _| {
            _ = c.get_all_with([1], |_| Ok::<_, ()>(vec![Some(1)]));
        }),
        ("lease", |c, _| _ = c.lease(1)),
        ("or_insert", |c, _| _ = c.entry(1).or_insert(2)),
        ("get of a loading cache", |_, l| _ = l.get(&1)),
        ("get_all", |_, l| _ = l.get_all([1])),
        ("get_if_present", |_, l| _ = l.get_if_present(&1)),
    ];
    let others: [(&str, Call); 10] = [
        ("peek_ref", |c, _| _ = c.peek_ref(&1)),
        ("contains_key", |c, _| _ = c.contains_key(&1)),
        ("weight_of", |c, _| _ = c.policy().weight_of(&1)),
        ("and_upsert_with", |c, _| {
            _ = c.entry(1).and_upsert_with(|_| 5);
        }),
        ("and_compute_with", |c, _| {
            _ = c.entry(1).and_compute_with(|_| Op::Put(5));
        }),
        ("replace_if", |c, _| _ = c.replace_if(&1, 2, |_| true)),
        ("remove_if", |c, _| _ = c.remove_if(&1, |_| true)),
        ("remove", |c, _| _ = c.remove(&1)),
        ("set_expiry", |c, _| _ = c.set_expiry(&1, None)),
        ("refresh", |_, l| _ = l.refresh(1).wait()),
    ];
    let check = |(name, call): (&str, Call), counted: u64| {
        for present in [false, true] {
            let load = loader_fn(|key: &u32| Ok::<u32, ()>(*key));
            let loading = Cache::builder().record_stats().loading(load).build();
            let cache = loading.cache();
            if present {
                cache.insert(1, 1);
            }
            call(cache, &loading);
            let stats = cache.stats();
            let expected = if present { (counted, 0) } else { (0, counted) };
            assert_eq!((stats.hits(), stats.misses()), expected, "{name}");
        }
    };
    look_ups.into_iter().for_each(|call| check(call, 1));
    others.into_iter().for_each(|call| check(call, 0));
}

#[test]
fn reads_that_move_the_deadline_are_counted_once() {
    let clock = ManualTicker::new();
    let shrinking = |_: &u64, life: &u64| Some(secs(*life));
    let cache = recording(&clock)
        .expire_after(expiry::accessing(shrinking))
        .time_to_idle(secs(50))
        .build();
    cache.insert(1, 100);
    for _ in 0..5 {
        clock.advance(secs(10));
        assert_eq!(cache.get(&1), Some(100));
    }
    clock.advance(secs(50));
    assert_eq!(cache.get(&1), None);
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (5, 1));
}

#[test]
fn each_write_and_each_removal_is_counted_when_it_happens() {
    let clock = ManualTicker::new();
    let cache = recording(&clock).build();
    let mut before = cache.stats();
    let mut since = || {
        let now = cache.stats();
        let between = now.clone() - before.clone();
        before = now;
        (between.insertions(), between.updates(), removals(&between))
    };
    cache.insert(1, 1);
    assert_eq!(since(), (1, 0, [0, 0, 0, 0]));
    cache.insert(1, 2);
    assert_eq!(since(), (0, 1, [0, 0, 1, 0]));
    cache.insert_with_ttl(1, 3, secs(1));
    assert_eq!(since(), (0, 1, [0, 0, 1, 0]));
    clock.advance(secs(1));
    cache.insert(1, 4);
    assert_eq!(since(), (1, 0, [1, 0, 0, 0]), "over an expired entry");
    cache.invalidate(&1);
    cache.invalidate(&1);
    assert_eq!(since(), (0, 0, [0, 1, 0, 0]));
    cache.insert_with_ttl(2, 5, secs(1));
    clock.advance(secs(1));
    assert_eq!(cache.remove(&2), None);
    assert_eq!(since(), (1, 0, [1, 0, 0, 0]));
    for key in 0..5 {
        cache.insert(key, key);
    }
    cache.retain(|key, _| *key > 1);
    cache.invalidate_all();
    assert_eq!(since(), (5, 0, [0, 5, 0, 0]));
    cache.run_pending_tasks();
    assert_eq!(since(), (0, 0, [0; 4]), "the pass counts none of it again");
}

#[test]
fn evictions_and_rejections_count_as_size() {
    let clock = ManualTicker::new();
    let cache = recording(&clock).max_capacity(10).build();
    for key in 0..25 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    assert_eq!(removals(&cache.stats()), [0, 0, 0, 15]);
    assert_eq!(cache.stats().evicted_weight(), 15);

    let nothing = recording(&clock).max_capacity(0).build();
    nothing.insert(1, 1);
    nothing.insert(1, 2);
    let stats = nothing.stats();
    assert_eq!((stats.insertions(), stats.updates()), (2, 0));
    assert_eq!(removals(&stats), [0, 0, 0, 2]);
    assert_eq!(stats.evicted_weight(), 2);
    nothing.run_pending_tasks();
    assert_eq!(removals(&nothing.stats()), [0, 0, 0, 2]);
}

#[test]
fn insertions_minus_removals_are_the_entries_and_the_listener_receives_as_many() {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache = recording(&clock)
        .max_capacity(50)
        .time_to_idle(secs(20))
        .removal_listener(heard.listener())
        .build();
    let mut dice = Dice::new(7);
    for _ in 0..20_000 {
        let key = dice.below(120);
        match dice.below(10) {
            0..4 => drop(cache.get(&key)),
            4..7 => cache.insert(key, dice.roll()),
            7 => cache.insert_with_ttl(key, 0, secs(dice.below(9))),
            8 => cache.invalidate(&key),
            _ => clock.advance(nanos(dice.below(2_000_000_000))),
        }
    }
    cache.run_pending_tasks();
    let stats = cache.stats();
    let all = heard.take();
    let told = CAUSES.map(|cause| all.iter().filter(|(_, _, c)| *c == cause).count() as u64);
    assert_eq!(removals(&stats), told);
    assert!(told.iter().all(|count| *count > 10), "{told:?}");
    let came = stats.insertions() + stats.updates();
    assert_eq!(came - told.iter().sum::<u64>(), cache.entry_count());
    assert_eq!(stats.updates(), stats.removals(Replaced));
    assert_eq!(
        stats.evicted_weight(),
        stats.removals(Size) + stats.removals(Expired)
    );
}

#[test]
fn lateness_is_removal_against_deadline() {
    let clock = ManualTicker::new();
    let cache = recording(&clock).build();
    for key in 0..10 {
        cache.insert_with_ttl(key, 0, secs(10 - key));
    }
    clock.advance(secs(10));
    cache.run_pending_tasks();
    let stats = cache.stats();
    assert_eq!(stats.removals(Expired), 10);
    // They were late by 0 to 9 seconds, and answers are up to an eighth too high.
    for tenth in 1..=10_u32 {
        let late = stats.expiry_lateness(f64::from(tenth) / 10.0).unwrap();
        let exact = secs(u64::from(tenth) - 1);
        assert!(late >= exact && late <= exact + exact / 8, "{late:?}");
    }
    assert_eq!(stats.expiry_lateness(f64::NAN), None);
    cache.insert_with_ttl(1, 0, secs(1));
    clock.advance(secs(1) + NS);
    cache.run_pending_tasks();
    let between = cache.stats() - stats;
    assert_eq!(
        between.expiry_lateness(1.0),
        Some(NS),
        "of the interval alone"
    );
}

#[test]
fn lateness_of_an_entry_that_a_reader_found_expired_before() {
    let clock = ManualTicker::new();
    let cache = recording(&clock).time_to_idle(secs(10)).build();
    cache.insert(1, 1);
    clock.advance(secs(10));
    // This makes the entry's expiry final; the pass comes later.
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.stats().expiry_lateness(1.0), None);
    clock.advance(secs(8));
    cache.run_pending_tasks();
    let late = cache.stats().expiry_lateness(1.0).unwrap();
    assert!(late >= secs(8) && late <= secs(9), "{late:?}");
}

#[test]
fn entries_that_a_writer_finds_expired_are_not_late() {
    let clock = ManualTicker::new();
    let cache = recording(&clock).build();
    cache.insert_with_ttl(1, 1, secs(1));
    clock.advance(secs(100));
    cache.insert(1, 2);
    cache.run_pending_tasks();
    cache.insert_with_ttl(2, 2, secs(1));
    clock.advance(secs(100));
    cache.invalidate(&2);
    cache.run_pending_tasks();
    assert_eq!(cache.stats().removals(Expired), 2);
    assert_eq!(cache.stats().expiry_lateness(1.0), None);
    assert_eq!(cache.stats().expired_by_maintenance(), 0);
}

#[test]
fn expirations_are_counted_by_the_thread_that_found_them() {
    let clock = ManualTicker::new();
    // Full, so that both kinds of maintenance remove some: entries that are due, and expired
    // entries when room is needed.
    let cache = recording(&clock).max_capacity(100).parts(1).build();
    for key in 0..100 {
        cache.insert_with_ttl(key, 0, secs(1 + key % 2));
    }
    cache.run_pending_tasks();
    clock.advance(secs(1));
    for key in 0..10 {
        cache.insert(2 * key, 1);
    }
    let before = cache.stats();
    assert_eq!(
        before.removals(Expired),
        10 + before.expired_by_maintenance()
    );
    for key in 200..240 {
        cache.insert(key, 1);
    }
    clock.advance(secs(1));
    cache.invalidate(&1);
    cache.run_pending_tasks();
    let stats = cache.stats();
    assert_eq!(stats.removals(Expired), 100);
    assert_eq!(stats.expired_by_maintenance(), 89);
    assert_eq!(stats.removals(Size), 0);
    assert_eq!((stats.clone() - stats).expired_by_maintenance(), 0);
}

#[test]
fn passes_and_their_time_are_counted() {
    let cache = recording(&ManualTicker::new()).build();
    for key in 0..1_000 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    let first = cache.stats();
    assert!(first.maintenance_passes() > 0);
    assert!(first.maintenance_time() > Duration::ZERO);
    cache.run_pending_tasks();
    let more = cache.stats() - first;
    assert!(more.maintenance_passes() > 0);
}

#[test]
fn panics_of_the_listener_are_counted() {
    let clock = ManualTicker::new();
    let cache = recording(&clock)
        .removal_listener(|key: &u64, _: &u64, _| assert!(key % 2 == 0, "on purpose"))
        .build();
    for key in 0..10 {
        cache.insert(key, key);
    }
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(cache.stats().listener_panics(), 5);
    assert_eq!(cache.stats().removals(Explicit), 10);
}

#[test]
fn snapshots_that_are_still_needed_are_subtracted_by_reference() {
    let cache = recording(&ManualTicker::new()).build();
    cache.insert(1, 1);
    let earlier = cache.stats();
    cache.insert(2, 2);
    cache.get(&2);
    let later = cache.stats();
    let between = &later - &earlier;
    assert_eq!((between.insertions(), between.hits()), (1, 1));
    assert_eq!((earlier.insertions(), later.insertions()), (1, 2));
    assert_eq!((later - earlier).insertions(), 1);
}

#[test]
fn counting_reads_no_clock_where_nothing_expires() {
    let dial = Dial::at(5);
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(dial.clone())
        .scheduler(Scheduler::disabled())
        .max_capacity(100)
        .record_stats()
        .build();
    let at_start = dial.readings();
    for key in 0..1_000 {
        cache.insert(key, key);
        cache.get(&key);
        cache.get(&(key + 1));
    }
    assert!(cache.stats().maintenance_passes() > 0);
    assert_eq!(cache.stats().insertions(), 1_000);
    // Once per write, for the entry's age.
    assert_eq!(dial.readings(), at_start + 1_000);
}

#[test]
fn all_handles_and_threads_count_together() {
    let cache = recording(&ManualTicker::new()).build();
    cache.insert(0, 0);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            let cache = cache.clone();
            scope.spawn(move || {
                for key in 0..1_000 {
                    cache.get(&(key % 4));
                }
            });
        }
    });
    assert_eq!(
        (cache.stats().hits(), cache.stats().misses()),
        (50 * 250, 50 * 750)
    );
}
