//! `get_many` does for each key what `get` does, and shares the cost.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::support::acting::Acting;
use crate::support::record::Record;
use crate::support::rig::{KEY, OLD, Rig};
use crate::support::script::Answer;
use crate::support::{Dial, OneHash, hide_scripted_panics, secs};
use wheelhouse::RemovalCause::{Expired, Size};
use wheelhouse::{Cache, Delivery, EvictionPolicy, ManualTicker, Scheduler};

#[test]
fn answers_come_in_the_order_of_the_keys() {
    for count in [0, 1, 2, 15, 16, 17, 31, 32, 33, 100] {
        let cache = Cache::new(1_000);
        (0..count).for_each(|key| cache.insert(key, key * 10));
        let asked: Vec<u32> = (0..count)
            .rev()
            .flat_map(|key| [key, key + 1_000])
            .collect();
        let expected = asked.iter().map(|&key| (key < 1_000).then_some(key * 10));
        assert_eq!(cache.get_many(&asked), expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_key_may_be_looked_up_more_than_once_and_in_borrowed_form() {
    let cache: Cache<String, u32> = Cache::new(10);
    cache.insert("a".into(), 1);
    assert_eq!(cache.get_many(["a", "b", "a"]), [Some(1), None, Some(1)]);
}

#[test]
fn keys_that_share_their_hash_are_distinguished() {
    let cache = Cache::builder().hasher(OneHash).build();
    (0..40).for_each(|key| cache.insert(key, key));
    let asked: Vec<u32> = (20..60).collect();
    let expected = asked.iter().map(|&key| (key < 40).then_some(key));
    assert_eq!(cache.get_many(&asked), expected.collect::<Vec<_>>());
}

#[test]
fn an_expired_entry_is_a_miss_and_counts_as_one() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .record_stats()
        .build();
    for key in 0..50 {
        cache.insert_with_ttl(key, key, secs(u64::from(key) + 1));
    }
    clock.advance(secs(20));
    let asked: Vec<u32> = (0..60).collect();
    let expected = |key: &u32| (20..50).contains(key).then_some(*key);
    assert_eq!(
        cache.get_many(&asked),
        asked.iter().map(expected).collect::<Vec<_>>()
    );
    let stats = cache.stats();
    assert_eq!((stats.hits(), stats.misses()), (30, 30));
}

#[test]
fn the_clock_is_read_once_for_sixteen_keys_and_not_without_a_deadline() {
    let clock = Dial::at(1_000);
    let cache = Cache::builder().ticker(clock.clone()).build();
    for key in 0..32 {
        cache.insert(key, key);
        cache.insert_with_ttl(key + 100, key, secs(1));
    }
    let readings = |keys: std::ops::Range<u32>| {
        let (before, keys) = (clock.readings(), keys.collect::<Vec<_>>());
        assert!(cache.get_many(&keys).iter().all(Option::is_some));
        clock.readings() - before
    };
    assert_eq!(readings(0..32), 0);
    assert_eq!(readings(100..101), 1);
    assert_eq!(readings(100..116), 1);
    assert_eq!(readings(100..132), 2);
}

#[test]
fn the_policy_is_called_for_each_read() {
    let rig = Rig::present();
    let answers = rig.cache.get_many(&[KEY, KEY + 1, KEY]);
    assert_eq!(answers, [Some(OLD), None, Some(OLD)]);
    assert_eq!(rig.script.asked().len(), 2);
    assert_eq!(rig.left(), Some(Some(secs(30))));

    let rig = Rig::expired();
    assert_eq!(rig.cache.get_many(&[KEY]), [None]);
    rig.nobody_was_asked();

    let rig = Rig::present();
    rig.script.on_read(Answer::Panic);
    hide_scripted_panics();
    let call = AssertUnwindSafe(|| rig.cache.get_many(&[KEY]));
    assert!(catch_unwind(call).is_err());
    assert_eq!(rig.left(), Some(Some(secs(7))));
}

#[test]
fn reads_keep_an_idle_entry_alive() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .time_to_idle(secs(10))
        .build();
    let keys: Vec<u32> = (0..20).collect();
    keys.iter().for_each(|&key| cache.insert(key, key));
    for _ in 0..5 {
        clock.advance(secs(9));
        assert!(cache.get_many(&keys).iter().all(Option::is_some));
    }
    clock.advance(secs(10));
    assert!(cache.get_many(&keys).iter().all(Option::is_none));
}

#[test]
fn reads_count_as_uses() {
    let heard = Record::new();
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .max_capacity(20)
        .eviction_policy(EvictionPolicy::Lru)
        .parts(1)
        .removal_listener(heard.listener())
        .build();
    (0..20).for_each(|key| cache.insert(key, key));
    cache.run_pending_tasks();
    cache.get_many(&(0..10).collect::<Vec<u32>>());
    (100..110).for_each(|key| cache.insert(key, key));
    cache.run_pending_tasks();
    let left = heard.take_sorted();
    let expected: Vec<_> = (10..20).map(|key| (key, key, Size)).collect();
    assert_eq!(left, expected);
}

#[test]
fn without_a_scheduler_expired_entries_that_are_met_are_removed() {
    let (clock, heard) = (ManualTicker::new(), Record::new());
    let cache = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        // A listener thread may hold the lock that a read only tries.
        .delivery(Delivery::Caller)
        .removal_listener(heard.listener())
        .build();
    let keys: Vec<u32> = (0..2_000).collect();
    keys.iter()
        .for_each(|&key| cache.insert_with_ttl(key, key, secs(1)));
    cache.run_pending_tasks();
    clock.advance(secs(3));
    assert!(cache.get_many(&keys).iter().all(Option::is_none));
    assert_eq!(cache.entry_count(), 0, "found, and not removed");
    cache.run_pending_tasks();
    assert!(heard.take().iter().all(|&(_, _, cause)| cause == Expired));
}

#[test]
fn the_iterator_may_call_the_cache_and_is_not_advanced_early() {
    let cache: Cache<u32, u32> = Cache::new(1_000);
    let keys: Vec<u32> = (0..40).collect();
    // Each key is inserted while the one before is yielded, and the first is removed while the
    // seventeenth is.
    let handing = keys.iter().inspect(|&&key| {
        cache.insert(key, key);
        if key == 16 {
            cache.invalidate(&0);
        }
    });
    assert!(cache.get_many(handing).iter().all(Option::is_some));
    assert_eq!(cache.get(&0), None);
}

#[test]
fn an_iterator_is_not_advanced_again_after_its_end() {
    let cache: Cache<u32, u32> = Cache::new(10);
    for count in [0, 1, 16, 17] {
        let (keys, ended) = (vec![1; count], Cell::new(false));
        let mut rest = keys.iter();
        let asked = std::iter::from_fn(|| {
            assert!(!ended.get(), "asked after the end");
            let next = rest.next();
            ended.set(next.is_none());
            next
        });
        assert_eq!(cache.get_many(asked).len(), count);
    }
}

#[test]
fn a_panic_in_clone_goes_to_the_caller_and_the_cache_is_as_it_was() {
    hide_scripted_panics();
    let cache: Cache<u32, Acting> = Cache::new(100);
    let keys: Vec<u32> = (0..40).collect();
    let armed = Arc::new(AtomicBool::new(true));
    for &key in &keys {
        let armed = Arc::clone(&armed);
        let panics = move || assert!(key != 20 || !armed.load(Relaxed), "told to panic");
        cache.insert(key, Acting::when_cloned(key, panics));
    }
    let call = AssertUnwindSafe(|| cache.get_many(&keys));
    assert!(catch_unwind(call).is_err());
    armed.store(false, Relaxed);
    let again = cache.get_many(&keys);
    assert!(
        again
            .iter()
            .zip(0..)
            .all(|(value, key)| value.as_ref().is_some_and(|value| value.number == key))
    );
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn a_clone_may_remove_what_is_being_read() {
    let cache: Arc<Cache<u32, Acting>> = Arc::new(Cache::new(100));
    let keys: Vec<u32> = (0..40).collect();
    for &key in &keys {
        let same = Arc::downgrade(&cache);
        let removes = move || {
            let same = same.upgrade().expect("it is being read");
            same.invalidate_all();
            same.run_pending_tasks();
        };
        cache.insert(key, Acting::when_cloned(key, removes));
    }
    let answers = cache.get_many(&keys);
    // The first sixteen were found before; the changes to the others come too late.
    let found = answers.iter().flatten().map(|value| value.number);
    assert_eq!(found.collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
}
