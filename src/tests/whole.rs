//! Whole calls on a cache of one shard: look-ups against writers of the same key.

use super::explore;
use crate::{Cache, ManualTicker};
use loom::thread;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

/// A cache of one shard whose reads extend.
fn cache() -> Cache<u64, u64, BuildHasherDefault<DefaultHasher>> {
    Cache::builder()
        .max_capacity(100)
        .time_to_idle(Duration::from_secs(10))
        .ticker(ManualTicker::new())
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
fn a_get_against_a_removal_meets_the_value_or_nothing() {
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
