//! Whole calls on a cache of one shard: look-ups against writers of the same key.

use super::explore;
use crate::{Cache, ManualTicker};
use loom::thread;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

/// A cache of one shard whose reads extend deadlines.
fn cache() -> Cache<u64, u64, BuildHasherDefault<DefaultHasher>> {
    cache_at(&ManualTicker::new())
}

/// The same on a clock of the model.
fn cache_at(time: &ManualTicker) -> Cache<u64, u64, BuildHasherDefault<DefaultHasher>> {
    Cache::builder()
        .max_capacity(100)
        .time_to_idle(Duration::from_secs(10))
        .ticker(time.clone())
        .hasher(BuildHasherDefault::default())
        .build()
}

#[test]
fn a_get_against_a_replacing_insert_is_no_miss() {
    explore(|| {
        let cache = cache();
        cache.insert(1, 10);
        let theirs = cache.clone();
        let reader = thread::spawn(move || theirs.get(&1));
        cache.insert(1, 11);
        let got = reader.join().unwrap();
        assert!(
            matches!(got, Some(10 | 11)),
            "the key was there at every moment, got {got:?}"
        );
        assert_eq!(cache.get(&1), Some(11));
    });
}

#[test]
fn a_get_against_a_removal_finds_the_value_or_nothing() {
    explore(|| {
        let cache = cache();
        cache.insert(1, 10);
        let theirs = cache.clone();
        let reader = thread::spawn(move || theirs.get(&1));
        assert_eq!(cache.remove(&1), Some(10));
        let got = reader.join().unwrap();
        assert!(matches!(got, None | Some(10)), "got {got:?}");
        assert_eq!(cache.get(&1), None);
    });
}

/// The look-up makes the expiry final just before the removal would: its value has expired all the
/// same.
#[test]
fn a_removal_against_a_look_up_of_an_expired_entry_returns_nothing() {
    explore(|| {
        let time = ManualTicker::new();
        let cache = cache_at(&time);
        cache.insert(1, 10);
        time.advance(Duration::from_secs(10));
        let theirs = cache.clone();
        let reader = thread::spawn(move || theirs.contains_key(&1));
        assert_eq!(cache.remove(&1), None);
        assert!(!reader.join().unwrap());
    });
}

/// A thread that has seen an entry expired never finds it again, even if another thread is about to
/// extend it.
#[test]
fn a_new_deadline_against_the_end_of_the_old_one_brings_nothing_back() {
    explore(|| {
        let time = ManualTicker::new();
        // Reads do not extend here: look-ups take the fast path.
        let cache: Cache<u64, u64, BuildHasherDefault<DefaultHasher>> = Cache::builder()
            .max_capacity(100)
            .ticker(time.clone())
            .hasher(BuildHasherDefault::default())
            .build();
        cache.insert_with_ttl(1, 10, Duration::from_secs(10));
        let theirs = cache.clone();
        let reader = thread::spawn(move || {
            time.advance(Duration::from_secs(10));
            theirs.contains_key(&1)
        });
        let told = cache.set_expiry(&1, None);
        let seen = reader.join().unwrap();
        assert_eq!((seen, cache.contains_key(&1)), (told, told));
    });
}

#[test]
fn two_inserts_against_each_other_leave_one_of_the_values() {
    explore(|| {
        let cache = cache();
        let theirs = cache.clone();
        let other = thread::spawn(move || theirs.insert(1, 10));
        cache.insert(1, 11);
        other.join().unwrap();
        assert!(matches!(cache.get(&1), Some(10 | 11)));
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 1);
    });
}
