//! Snapshots: a restart loses only time.

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
#[cfg(feature = "serde")]
use std::time::SystemTime;
use std::time::{Duration, Instant};

use support::record::Record;
use support::secs;
#[cfg(feature = "serde")]
use wheelhouse::Ended;
use wheelhouse::RemovalCause::Expired;
use wheelhouse::{
    Cache, CacheBuilder, Downtime, EvictionPolicy, ManualTicker, Restore, Restored, SavedEntry,
    Snapshot,
};

fn saved(key: u32, time_left: Option<Duration>) -> SavedEntry<u32, u32> {
    SavedEntry {
        key,
        value: key * 10,
        time_left,
        idle_left: None,
        refresh_in: None,
        age: Duration::ZERO,
    }
}

fn built(
    with: impl FnOnce(CacheBuilder<u32, u32>) -> CacheBuilder<u32, u32>,
) -> (Cache<u32, u32>, ManualTicker) {
    let clock = ManualTicker::new();
    let cache = with(Cache::builder().ticker(clock.clone())).build();
    (cache, clock)
}

/// The snapshot as if it had been taken this long ago.
#[cfg(feature = "serde")]
fn aged(snapshot: &Snapshot<u32, u32>, ago: Duration) -> Snapshot<u32, u32> {
    let mut json = serde_json::to_value(snapshot).unwrap();
    let at = SystemTime::now() - ago;
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    json["taken_at"] = serde_json::json!({ "secs": at.as_secs(), "nanos": at.subsec_nanos() });
    serde_json::from_value(json).unwrap()
}

fn only(restored: u64) -> Restored {
    Restored {
        restored,
        ..Restored::default()
    }
}

#[test]
fn remaining_lifetimes_are_restored_and_the_policy_is_not_called() {
    let (old, clock) = built(|b| b);
    old.insert(1, 10);
    old.insert_with_ttl(2, 20, secs(60));
    old.insert_with_ttl(3, 30, secs(10));
    clock.advance(secs(10));
    let snapshot = old.snapshot();
    assert_eq!(snapshot.len(), 2, "expired entries are left out");
    let by_key = |key| snapshot.iter().find(|entry| entry.key == key).unwrap();
    assert_eq!((by_key(1).time_left, by_key(1).age), (None, secs(10)));
    assert_eq!(
        (by_key(2).time_left, by_key(2).age),
        (Some(secs(50)), secs(10))
    );

    let (new, clock) = built(|b| {
        b.expire_after(wheelhouse::expiry::writing(
            |_: &u32, _: &u32| -> Option<Duration> {
                panic!("called for an entry that is restored")
            },
        ))
    });
    assert_eq!(
        new.restore(snapshot, Restore::default().downtime(Downtime::Ignored)),
        only(2)
    );
    assert_eq!(new.peek_ref(&1).unwrap().time_left(), None);
    assert_eq!(new.peek_ref(&2).unwrap().time_left(), Some(secs(50)));
    assert_eq!(new.peek_ref(&2).unwrap().age(), secs(10));
    clock.advance(secs(50));
    assert_eq!((new.get(&1), new.get(&2)), (Some(10), None));
}

#[cfg(feature = "serde")]
#[test]
fn the_downtime_counts_or_is_ignored_and_expired_entries_are_skipped_or_delivered_once() {
    let (old, _) = built(|b| b);
    old.insert_with_ttl(1, 10, secs(100));
    old.insert_with_ttl(2, 20, secs(1_000));
    old.insert(3, 30);
    let snapshot = old.snapshot();
    // Half of the lifetime of the first, then all of it.
    for (ago, how, expected) in [
        (secs(0), Restore::default(), only(3)),
        (secs(50), Restore::default(), only(3)),
        (
            secs(500),
            Restore::default().downtime(Downtime::Ignored),
            only(3),
        ),
        (
            secs(500),
            Restore::default(),
            Restored {
                restored: 2,
                expired: 1,
                ..Restored::default()
            },
        ),
        (
            secs(5_000),
            Restore::default(),
            Restored {
                restored: 1,
                expired: 2,
                ..Restored::default()
            },
        ),
    ] {
        for ended in [Ended::Skip, Ended::Tell] {
            let heard = Record::new();
            let (new, _) = built(|b| b.removal_listener(heard.listener()));
            assert_eq!(
                new.restore(aged(&snapshot, ago), how.ended(ended)),
                expected,
                "{ago:?}"
            );
            new.run_pending_tasks();
            let told = if ended == Ended::Tell {
                expected.expired
            } else {
                0
            };
            let all = [(1, 10, Expired), (2, 20, Expired)];
            assert_eq!(heard.take_sorted(), all[..told as usize], "{ago:?}");
            assert_eq!(new.entry_count(), expected.restored);
            if let Some(entry) = new.peek_ref(&2) {
                let counted = if how == Restore::default().downtime(Downtime::Ignored) {
                    secs(0)
                } else {
                    ago
                };
                let left = entry.time_left().unwrap();
                let wanted = secs(1_000) - counted;
                assert!(
                    left <= wanted && left + secs(20) > wanted,
                    "{left:?} of {wanted:?}"
                );
            }
        }
    }
}

#[cfg(feature = "serde")]
#[test]
fn a_wall_clock_that_was_set_back_counts_as_no_downtime() {
    let (old, _) = built(|b| b);
    old.insert_with_ttl(1, 10, secs(100));
    let mut json = serde_json::to_value(old.snapshot()).unwrap();
    let ahead = SystemTime::now() + secs(1_000_000);
    let ahead = ahead.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    json["taken_at"]["secs"] = ahead.as_secs().into();
    let (new, _) = built(|b| b);
    assert_eq!(
        new.restore(serde_json::from_value(json).unwrap(), Restore::default()),
        only(1)
    );
    assert_eq!(new.peek_ref(&1).unwrap().time_left(), Some(secs(100)));
}

#[test]
fn limits_of_the_new_cache_apply() {
    let (old, clock) = built(|b| b);
    old.insert(1, 10);
    clock.advance(secs(30));
    old.insert(2, 20);
    let ignored = Restore::default().downtime(Downtime::Ignored);
    // The first is older than the present limit allows.
    let (new, clock) = built(|b| b.time_to_live(secs(20)));
    let expected = Restored {
        restored: 1,
        expired: 1,
        ..Restored::default()
    };
    assert_eq!(new.restore(old.snapshot(), ignored), expected);
    clock.advance(secs(19));
    assert_eq!(new.get(&2), Some(20));
    clock.advance(secs(1));
    assert_eq!(new.get(&2), None);
    // One written 30 s ago has 10 s left of 40.
    let (new, _) = built(|b| b.time_to_live(secs(40)));
    assert_eq!(new.restore(old.snapshot(), ignored), only(2));
    assert_eq!(new.peek_ref(&1).unwrap().time_left(), Some(secs(10)));
}

#[test]
fn idle_times_continue_where_they_were() {
    let (old, clock) = built(|b| b.time_to_idle(secs(60)));
    old.insert(1, 10);
    old.insert_with_ttl(2, 20, secs(90));
    clock.advance(secs(40));
    old.get(&2);
    let snapshot = old.snapshot();
    let by_key = |key| snapshot.iter().find(|entry| entry.key == key).unwrap();
    assert_eq!(
        (by_key(1).time_left, by_key(1).idle_left),
        (None, Some(secs(20)))
    );
    assert_eq!(
        (by_key(2).time_left, by_key(2).idle_left),
        (Some(secs(50)), Some(secs(50)))
    );
    let ignored = Restore::default().downtime(Downtime::Ignored);
    let (new, clock) = built(|b| b.time_to_idle(secs(60)));
    assert_eq!(new.restore(snapshot.clone(), ignored), only(2));
    clock.advance(secs(19));
    assert_eq!(new.get(&1), Some(10), "a read renews the idle limit");
    clock.advance(secs(31));
    assert_eq!(
        (new.get(&1), new.get(&2)),
        (Some(10), None),
        "the deadline stays"
    );
    // Without an idle limit now, the idle time does not matter.
    let (new, clock) = built(|b| b);
    assert_eq!(new.restore(snapshot, ignored), only(2));
    clock.advance(secs(10_000));
    assert_eq!(new.get(&1), Some(10));
}

#[test]
fn a_present_key_keeps_its_entry_and_an_expired_one_makes_room() {
    let heard = Record::new();
    let (new, clock) = built(|b| b.removal_listener(heard.listener()));
    new.insert(1, 11);
    new.insert_with_ttl(2, 22, secs(1));
    clock.advance(secs(1));
    let snapshot: Snapshot<_, _> = [saved(1, None), saved(2, None), saved(3, None)]
        .into_iter()
        .collect();
    let expected = Restored {
        restored: 2,
        present: 1,
        ..Restored::default()
    };
    assert_eq!(new.restore(snapshot, Restore::default()), expected);
    assert_eq!(
        [1, 2, 3].map(|key| new.get(&key)),
        [Some(11), Some(20), Some(30)]
    );
    new.run_pending_tasks();
    assert_eq!(heard.take(), [(2, 22, Expired)]);
}

#[test]
fn a_smaller_cache_keeps_the_hottest_and_evicts_nothing() {
    for policy in [EvictionPolicy::Lru, EvictionPolicy::Adaptive] {
        let (old, _) = built(|b| b.max_capacity(1_000).eviction_policy(policy));
        (0..1_000).for_each(|key| old.insert(key, key));
        old.run_pending_tasks();
        for _ in 0..3 {
            (500..600).for_each(|key| _ = old.get(&key));
            old.run_pending_tasks();
        }
        let snapshot = old.snapshot();
        assert_eq!(snapshot.len(), 1_000);
        let hottest: HashSet<u32> = snapshot.iter().take(100).map(|entry| entry.key).collect();
        if policy == EvictionPolicy::Lru {
            assert!((500..600).all(|key| hottest.contains(&key)), "{hottest:?}");
        }
        let heard: Record<u32, u32> = Record::new();
        let (new, _) = built(|b| {
            b.max_capacity(100)
                .eviction_policy(policy)
                .removal_listener(heard.listener())
        });
        let expected = Restored {
            restored: 100,
            refused: 900,
            ..Restored::default()
        };
        assert_eq!(new.restore(snapshot, Restore::default()), expected);
        new.run_pending_tasks();
        assert_eq!(heard.take(), [], "refused entries never were in the cache");
        assert!(hottest.iter().all(|key| new.contains_key(key)));
        // The order of use was restored: the hottest are the newest.
        if policy == EvictionPolicy::Lru {
            let again: Vec<u32> = new.snapshot().into_iter().map(|entry| entry.key).collect();
            let before: Vec<u32> = old
                .snapshot()
                .into_iter()
                .take(100)
                .map(|entry| entry.key)
                .collect();
            assert_eq!(again, before);
        }
    }
}

#[test]
fn weights_count_against_the_bound() {
    let (new, _) = built(|b| b.max_capacity(10).weigher(|_, value| *value / 10));
    let snapshot: Snapshot<_, _> = [
        saved(6, None),
        saved(5, None),
        saved(4, None),
        saved(0, None),
    ]
    .into_iter()
    .collect();
    let expected = Restored {
        restored: 3,
        refused: 1,
        ..Restored::default()
    };
    assert_eq!(new.restore(snapshot, Restore::default()), expected);
    assert!([6, 4, 0].iter().all(|key| new.contains_key(key)) && !new.contains_key(&5));
}

#[cfg(feature = "serde")]
#[test]
fn snapshots_go_through_json_and_postcard() {
    let (old, clock) = built(|b| b.time_to_idle(secs(3_600)));
    (0..100).for_each(|key| old.insert_with_ttl(key, key, secs(60 + u64::from(key))));
    clock.advance(secs(7));
    let snapshot = old.snapshot();
    let json = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(
        serde_json::from_str::<Snapshot<u32, u32>>(&json).unwrap(),
        snapshot
    );
    let bytes = postcard::to_stdvec(&snapshot).unwrap();
    assert_eq!(
        postcard::from_bytes::<Snapshot<u32, u32>>(&bytes).unwrap(),
        snapshot
    );
}

#[cfg(feature = "serde")]
#[test]
fn an_unknown_version_is_an_error_that_says_so() {
    let (old, _) = built(|b| b);
    old.insert(1, 10);
    let json = serde_json::to_string(&old.snapshot()).unwrap();
    assert!(json.starts_with(r#"{"version":1,"#), "{json}");
    // What follows the version may have any form in another version.
    let other = r#"{"version":2,"entries":"another form"}"#;
    let refused = serde_json::from_str::<Snapshot<u32, u32>>(other).unwrap_err();
    assert!(
        refused.to_string().contains("format version 2"),
        "{refused}"
    );
    let mut bytes = postcard::to_stdvec(&old.snapshot()).unwrap();
    bytes[0] = 9;
    assert!(postcard::from_bytes::<Snapshot<u32, u32>>(&bytes).is_err());
    let without = serde_json::json!({ "entries": [], "taken_at": { "secs": 0, "nanos": 0 } });
    let refused = serde_json::from_value::<Snapshot<u32, u32>>(without).unwrap_err();
    assert!(refused.to_string().contains("version"), "{refused}");
}

/// Writers, readers and a thousand evictions run while snapshots are taken: each entry that stays
/// all the time is in each of them, exactly once.
#[test]
fn entries_that_stay_are_in_every_snapshot_exactly_once() {
    let cache: Cache<u32, u32> = Cache::new(4_000);
    (0..1_000).for_each(|key| cache.insert(key, key));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut fresh = 10_000;
            while !stop.load(SeqCst) {
                // Keys in use, so that none of them is a victim, and others that are inserted and
                // removed.
                (0..1_000).for_each(|key| _ = cache.get(&key));
                for _ in 0..200 {
                    fresh += 1;
                    cache.insert_with_ttl(fresh, fresh, Duration::from_millis(2));
                }
                cache.insert(fresh % 1_000, fresh);
            }
        });
        for _ in 0..20 {
            let snapshot = cache.snapshot();
            let keys: Vec<u32> = snapshot.into_iter().map(|entry| entry.key).collect();
            let distinct: HashSet<u32> = keys.iter().copied().collect();
            assert_eq!(distinct.len(), keys.len(), "a key twice");
            let missing =
                (0..1_000).filter(|key| !distinct.contains(key) && cache.contains_key(key));
            assert_eq!(missing.count(), 0);
        }
        stop.store(true, SeqCst);
    });
}

/// A million entries: readers continue meanwhile.
#[test]
fn a_large_snapshot_delays_no_reader() {
    let count = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let cache: Cache<u32, Arc<u32>> = Cache::new(2 * u64::from(count));
    (0..count).for_each(|key| cache.insert(key, Arc::new(key)));
    cache.run_pending_tasks();
    let longest = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut key = 0;
            while !stop.load(SeqCst) {
                let began = Instant::now();
                assert!(cache.get(&key).is_some());
                let took = began.elapsed().as_micros() as u64;
                longest.fetch_max(took, SeqCst);
                key = (key + 7_919) % count;
            }
        });
        let began = Instant::now();
        let snapshot = cache.snapshot();
        println!("{count} entries: snapshot in {:?}", began.elapsed());
        stop.store(true, SeqCst);
        assert_eq!(snapshot.len(), count as usize);
    });
    let took = Duration::from_micros(longest.into_inner());
    // Generous: a thread may lose its processor.
    println!("longest read meanwhile: {took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[test]
fn views_show_entries_in_their_order_and_skip_removed_ones() {
    let (cache, clock) = built(|b| b.max_capacity(100).eviction_policy(EvictionPolicy::Lru));
    (0..100).for_each(|key| cache.insert_with_ttl(key, key, secs(200 - u64::from(key))));
    cache.run_pending_tasks();
    cache.get(&7);
    fn keys<'a>(view: impl Iterator<Item = wheelhouse::EntryRef<'a, u32, u32>>) -> Vec<u32> {
        view.map(|entry| *entry.key()).collect()
    }
    let policy = cache.policy();
    assert_eq!(keys(policy.hottest(3)), [7, 99, 98]);
    assert_eq!(keys(policy.coldest(3)), [0, 1, 2]);
    assert_eq!(keys(policy.next_to_expire(3)), [99, 98, 97]);
    assert_eq!(
        keys(policy.hottest(0)).len() + keys(policy.next_to_expire(0)).len(),
        0
    );
    assert_eq!(keys(policy.next_to_expire(1_000)).len(), 100);
    let view = policy.coldest(3);
    cache.invalidate(&1);
    assert_eq!(keys(view), [0, 2], "removed entries are skipped");
    clock.advance(secs(101));
    assert_eq!(
        keys(policy.next_to_expire(2)),
        [98, 97],
        "due entries are not shown"
    );
    let (unbounded, _) = built(|b| b);
    (0..10).for_each(|key| unbounded.insert(key, key));
    assert_eq!(keys(unbounded.policy().hottest(4)).len(), 4);
}

#[test]
fn the_moment_of_a_refresh_comes_back() {
    use wheelhouse::{loader_fn, refresh};
    let loading = |clock: &ManualTicker| {
        Cache::<u32, u32>::builder()
            .ticker(clock.clone())
            .loading(loader_fn(|key: &u32| Ok::<u32, ()>(key * 10)))
            .refresh_after(refresh::after(secs(60)))
            .build()
    };
    let clock = ManualTicker::new();
    let old = loading(&clock);
    assert_eq!(old.get(&1).unwrap(), 10);
    clock.advance(secs(20));
    let snapshot = old.cache().snapshot();
    let entry = snapshot.iter().next().unwrap();
    assert_eq!(entry.refresh_in, Some(secs(40)));

    let clock = ManualTicker::new();
    let new = loading(&clock);
    let how = Restore::default().downtime(Downtime::Ignored);
    assert_eq!(new.cache().restore(snapshot, how), only(1));
    let again = new.cache().snapshot();
    assert_eq!(again.iter().next().unwrap().refresh_in, Some(secs(40)));
}
