//! Snapshots: a restart loses only time.

mod support;

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use support::census::Census;
use support::record::Record;
use support::secs;
use wheelhouse::RemovalCause::Expired;
use wheelhouse::{
    Cache, CacheBuilder, Downtime, Ended, EvictionPolicy, ManualTicker, Restore, Restored,
    SavedEntry, Snapshot,
};

fn saved(key: u32, time_left: Option<Duration>) -> SavedEntry<u32, u32> {
    let mut entry = SavedEntry::new(key, key * 10);
    entry.time_left = time_left;
    entry
}

fn built(
    with: impl FnOnce(CacheBuilder<u32, u32>) -> CacheBuilder<u32, u32>,
) -> (Cache<u32, u32>, ManualTicker) {
    let clock = ManualTicker::new();
    let cache = with(Cache::builder().ticker(clock.clone())).build();
    (cache, clock)
}

/// The snapshot as if it had been taken this long ago.
#[cfg(feature = "formats")]
fn aged(snapshot: &Snapshot<u32, u32>, ago: Duration) -> Snapshot<u32, u32> {
    let mut json = serde_json::to_value(snapshot).unwrap();
    let at = SystemTime::now() - ago;
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    json["taken_at"] = serde_json::json!({ "secs": at.as_secs(), "nanos": at.subsec_nanos() });
    serde_json::from_value(json).unwrap()
}

/// The counts of a restore, with zero for those that are not named.
macro_rules! counts {
    ($($field:ident: $count:expr),* $(,)?) => {{
        let mut counts = Restored::default();
        $(counts.$field = $count;)*
        counts
    }};
}

fn only(restored: u64) -> Restored {
    counts! { restored: restored }
}

/// A hasher that takes a second of the cache's time for each key.
#[derive(Clone)]
struct Slow(ManualTicker);

impl std::hash::BuildHasher for Slow {
    type Hasher = std::hash::DefaultHasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.advance(secs(1));
        Self::Hasher::new()
    }
}

#[test]
fn all_lifetimes_count_from_the_beginning_of_the_restore() {
    let (old, _clock) = built(|b| b);
    (0..20).for_each(|key| old.insert_with_ttl(key, key, secs(1_000)));
    old.insert_with_ttl(20, 20, secs(5));
    let snapshot = old.snapshot();
    let clock = ManualTicker::new();
    let record = Record::new();
    let new: Cache<u32, u32, Slow> = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(record.listener())
        .hasher(Slow(clock.clone()))
        .build();
    let restored = new.restore(snapshot, Restore::default().downtime(Downtime::Ignored));
    assert_eq!(restored, only(21));
    let took = Duration::from_nanos(wheelhouse::Ticker::nanos(&clock));
    assert!(took > secs(20), "the clock did not move during the restore");
    for entry in new.iter().filter(|entry| *entry.key() != 20) {
        let end =
            entry.time_left().unwrap() + Duration::from_nanos(wheelhouse::Ticker::nanos(&clock));
        assert_eq!(end, secs(1_000), "key {}", entry.key());
    }
    new.run_pending_tasks();
    assert_eq!(
        record.take(),
        [(20, 20, Expired)],
        "it ended during the restore"
    );
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

#[cfg(feature = "formats")]
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
            counts! {
                restored: 2,
                expired: 1,
            },
        ),
        (
            secs(5_000),
            Restore::default(),
            counts! {
                restored: 1,
                expired: 2,
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

#[cfg(feature = "formats")]
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
    let expected = counts! {
        restored: 1,
        expired: 1,
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

/// The downtime counts against each limit of the cache, as it does against the entry's own life.
#[cfg(feature = "formats")]
#[test]
fn the_downtime_counts_against_the_limits() {
    let (old, clock) = built(|b| b.time_to_idle(secs(600)));
    old.insert(1, 10);
    clock.advance(secs(200));
    old.insert(2, 20);
    let snapshot = aged(&old.snapshot(), secs(300));
    let ended_1 = counts! {
        restored: 1,
        expired: 1,
    };
    // The system's clock continues during the test: some seconds less may be left.
    let about = |left: Option<Duration>, wanted: Duration| {
        let left = left.unwrap();
        assert!(
            left <= wanted && left + secs(20) > wanted,
            "{left:?} of {wanted:?}"
        );
    };
    // The first was written 500 s ago, the second 300 s ago.
    let (new, _) = built(|b| b.time_to_live(secs(450)));
    assert_eq!(new.restore(snapshot.clone(), Restore::default()), ended_1);
    about(new.peek_ref(&2).unwrap().time_left(), secs(150));
    let age = new.peek_ref(&2).unwrap().age();
    assert!(age >= secs(300) && age < secs(320), "{age:?}");
    // Of their 600 s without a read, 100 s and 300 s are left.
    let (new, _) = built(|b| b.time_to_idle(secs(600)));
    assert_eq!(new.restore(snapshot.clone(), Restore::default()), only(2));
    about(new.peek_ref(&1).unwrap().time_left(), secs(100));
    about(new.peek_ref(&2).unwrap().time_left(), secs(300));
    // A whole idle limit of downtime, of the old cache or of a shorter one of now.
    for (limit, ago) in [(secs(600), secs(600)), (secs(250), secs(300))] {
        let (new, _) = built(|b| b.time_to_idle(limit));
        let snapshot = aged(&snapshot, ago);
        let restored = new.restore(snapshot, Restore::default());
        assert_eq!((restored.restored, restored.expired), (0, 2), "{limit:?}");
    }
    // A cache without an idle limit does not ask how long an entry was not read.
    let (new, _) = built(|b| b);
    let snapshot = aged(&snapshot, secs(5_000));
    assert_eq!(new.restore(snapshot, Restore::default()), only(2));
}

#[test]
fn an_idle_limit_of_now_holds() {
    let ignored = Restore::default().downtime(Downtime::Ignored);
    // A shorter one than before, and the first one at all.
    for old_limit in [Some(secs(600)), None] {
        let (old, _) = built(|b| match old_limit {
            Some(limit) => b.time_to_idle(limit),
            None => b,
        });
        old.insert(1, 10);
        let (new, clock) = built(|b| b.time_to_idle(secs(60)));
        assert_eq!(new.restore(old.snapshot(), ignored), only(1));
        clock.advance(secs(59));
        assert!(new.contains_key(&1), "{old_limit:?}");
        clock.advance(secs(1));
        assert!(!new.contains_key(&1), "{old_limit:?}");
    }
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
    let expected = counts! {
        restored: 2,
        present: 1,
    };
    assert_eq!(new.restore(snapshot, Restore::default()), expected);
    assert_eq!(
        [1, 2, 3].map(|key| new.get(&key)),
        [Some(11), Some(20), Some(30)]
    );
    new.run_pending_tasks();
    assert_eq!(heard.take(), [(2, 22, Expired)]);
}

/// Entries come hottest first, so the first of a key is the one to keep.
#[test]
fn of_entries_with_one_key_the_first_counts() {
    let entry = |key: u32, value: u32, time_left: Duration| {
        let mut entry = saved(key, Some(time_left));
        entry.value = value;
        entry
    };
    let snapshot: Snapshot<_, _> = [
        entry(1, 11, secs(60)),
        entry(2, 21, Duration::ZERO),
        entry(1, 12, secs(90)),
        entry(2, 22, secs(90)),
        entry(3, 31, secs(60)),
        entry(1, 13, Duration::ZERO),
    ]
    .into_iter()
    .collect();
    let heard = Record::new();
    // Room for two: the second entry of a key takes none.
    let (new, _) = built(|b| b.max_capacity(2).removal_listener(heard.listener()));
    let expected = counts! {
        restored: 2,
        expired: 1,
        present: 3,
        refused: 0,
    };
    let how = Restore::default()
        .downtime(Downtime::Ignored)
        .ended(Ended::Tell);
    assert_eq!(new.restore(snapshot, how), expected);
    new.run_pending_tasks();
    assert_eq!(
        [1, 2, 3].map(|key| new.get(&key)),
        [Some(11), None, Some(31)]
    );
    assert_eq!(new.peek_ref(&1).unwrap().time_left(), Some(secs(60)));
    assert_eq!(heard.take(), [(2, 21, Expired)]);
}

#[cfg(feature = "formats")]
#[test]
fn changed_values_keep_all_else() {
    let mut entry = SavedEntry::new(1, 10);
    entry.time_left = Some(secs(1));
    entry.idle_left = Some(secs(2));
    entry.refresh_in = Some(secs(3));
    entry.age = secs(4);
    let snapshot: Snapshot<u32, u32> = [entry.clone(), saved(2, None)].into_iter().collect();
    let snapshot = aged(&snapshot, secs(300));
    let taken_at = snapshot.taken_at();
    let texts: Snapshot<u32, String> = snapshot.map_values(|value| value.to_string());
    assert_eq!(texts.taken_at(), taken_at);
    let texts: Vec<_> = texts.into_iter().collect();
    assert_eq!((texts[0].value.as_str(), texts[1].key), ("10", 2));
    let mut back = SavedEntry::new(texts[0].key, 10);
    back.time_left = texts[0].time_left;
    back.idle_left = texts[0].idle_left;
    back.refresh_in = texts[0].refresh_in;
    back.age = texts[0].age;
    assert_eq!(back, entry);
}

/// A program takes some entries out of a snapshot that it has read: the downtime still counts.
#[cfg(feature = "formats")]
#[test]
fn a_snapshot_that_lost_entries_stays_as_old_as_it_is() {
    let (old, _) = built(|b| b);
    (1..=3).for_each(|key| old.insert_with_ttl(key, key * 10, secs(100 * u64::from(key))));
    let mut snapshot = aged(&old.snapshot(), secs(150));
    let taken_at = snapshot.taken_at();
    snapshot.retain(|entry| entry.key != 3);
    assert_eq!(snapshot.taken_at(), taken_at);
    let (new, _) = built(|b| b);
    let expected = counts! {
        restored: 1,
        expired: 1,
    };
    assert_eq!(new.restore(snapshot, Restore::default()), expected);
    assert!(new.contains_key(&2));
}

/// A thread may be held up between the readings of the two clocks. Then the entry may live longer,
/// but never ends early: the system's clock is read after the cache's.
#[test]
fn the_system_clock_is_read_after_the_clock_of_the_cache() {
    /// Goes on by a second at each reading from `begin` on, and notes when it was read.
    #[derive(Default)]
    struct Readings {
        begin: AtomicBool,
        at: Mutex<Vec<SystemTime>>,
    }
    impl wheelhouse::Ticker for Readings {
        fn nanos(&self) -> u64 {
            if !self.begin.load(SeqCst) {
                return 0;
            }
            let mut at = self.at.lock().unwrap();
            at.push(SystemTime::now());
            at.len() as u64 * 1_000_000_000
        }
    }
    let readings = Arc::new(Readings::default());
    let old: Cache<u32, u32> = Cache::builder().ticker(Arc::clone(&readings)).build();
    old.insert_with_ttl(1, 10, secs(1_000));
    readings.begin.store(true, SeqCst);
    let snapshot = old.snapshot();
    // The time that is left tells which reading it comes from.
    let left = snapshot.iter().next().unwrap().time_left.unwrap();
    let reading = (secs(1_000) - left).as_secs() as usize;
    let at = readings.at.lock().unwrap()[reading - 1];
    assert!(
        at <= snapshot.taken_at(),
        "{at:?} {:?}",
        snapshot.taken_at()
    );
}

#[test]
fn a_smaller_cache_keeps_the_hottest_and_evicts_nothing() {
    for policy in [EvictionPolicy::Lru, EvictionPolicy::Adaptive] {
        let (old, _) = built(|b| b.max_capacity(1_000).eviction_policy(policy).parts(1));
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
                .parts(1)
                .removal_listener(heard.listener())
        });
        let expected = counts! {
            restored: 100,
            refused: 900,
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
fn a_bound_that_shrinks_meanwhile_refuses_what_no_longer_fits() {
    let handle = Arc::new(Mutex::new(None::<Cache<u8, u8>>));
    let (cache, calls) = (Arc::clone(&handle), AtomicU64::new(0));
    let new = Cache::builder()
        .max_capacity(100)
        .record_stats()
        // When the second entry is weighed, the first one has been found to fit.
        .weigher(move |_: &u8, _: &u8| {
            if calls.fetch_add(1, SeqCst) == 1 {
                if let Some(cache) = &*cache.lock().unwrap() {
                    cache.policy().set_max_capacity(5);
                }
            }
            10
        })
        .build();
    *handle.lock().unwrap() = Some(new.clone());
    let old = Cache::new(10);
    [1, 2].into_iter().for_each(|key| old.insert(key, key));
    let counts = new.restore(old.snapshot(), Restore::default());
    *handle.lock().unwrap() = None;
    assert_eq!((counts.restored, counts.refused, counts.present), (0, 2, 0));
    assert_eq!((new.entry_count(), new.stats().insertions()), (0, 0));
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
    let expected = counts! {
        restored: 3,
        refused: 1,
    };
    assert_eq!(new.restore(snapshot, Restore::default()), expected);
    assert!([6, 4, 0].iter().all(|key| new.contains_key(key)) && !new.contains_key(&5));
}

#[cfg(feature = "formats")]
#[test]
fn snapshots_go_through_json_and_postcard() {
    let (old, clock) = built(|b| b.time_to_idle(secs(3_600)));
    (0..100).for_each(|key| old.insert_with_ttl(key, key, secs(60 + u64::from(key))));
    old.insert(100, 100);
    clock.advance(secs(7));
    let mut snapshot: Snapshot<u32, u32> = old.snapshot();
    // With a moment of a reload, and without anything that ends.
    let mut reloaded = saved(200, Some(Duration::MAX));
    reloaded.refresh_in = Some(Duration::new(5, 1));
    let more = [reloaded, saved(201, None)];
    snapshot = snapshot.into_iter().chain(more).collect();
    assert_eq!(snapshot.len(), 103);
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

#[cfg(feature = "formats")]
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
    assert!(postcard::from_bytes::<Snapshot<u32, u32>>(&bytes).is_ok());
    // Postcard's errors carry no text; that of the version is the only one of this kind.
    bytes[0] = 9;
    let refused = postcard::from_bytes::<Snapshot<u32, u32>>(&bytes).unwrap_err();
    assert_eq!(refused, postcard::Error::SerdeDeCustom);
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
    let (cache, clock) = built(|b| {
        b.max_capacity(100)
            .eviction_policy(EvictionPolicy::Lru)
            .parts(1)
    });
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
fn next_to_expire_runs_no_maintenance_and_no_destructor() {
    let census = Census::default();
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .max_capacity(100)
        .record_stats()
        .build();
    (0..10).for_each(|key| cache.insert_with_ttl(key, census.counted(key), secs(60)));
    (0..5).for_each(|key| cache.invalidate(&key));
    let passes = || cache.stats().maintenance_passes();
    let before = passes();
    assert_eq!(cache.policy().next_to_expire(10).count(), 5);
    assert_eq!((passes(), census.alive()), (before, 10));
    // There was something to do.
    assert_eq!(cache.policy().hottest(10).count(), 5);
    assert!(passes() > before);
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!(census.alive(), 5);
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

#[test]
fn the_age_counts_on_over_two_restarts() {
    let ignored = Restore::default().downtime(Downtime::Ignored);
    let (first, clock) = built(|b| b);
    first.insert(1, 10);
    clock.advance(secs(30));
    let (second, clock) = built(|b| b);
    assert_eq!(second.restore(first.snapshot(), ignored), only(1));
    assert_eq!(second.peek_ref(&1).unwrap().age(), secs(30));
    clock.advance(secs(10));
    let snapshot = second.snapshot();
    assert_eq!(snapshot.iter().next().unwrap().age, secs(40));
    let (third, _) = built(|b| b.time_to_live(secs(100)));
    assert_eq!(third.restore(snapshot, ignored), only(1));
    assert_eq!(third.peek_ref(&1).unwrap().time_left(), Some(secs(60)));
}

#[test]
fn a_deadline_that_was_set_makes_an_entry_no_younger() {
    let (cache, clock) = built(|b| b.time_to_idle(secs(30)));
    cache.insert_with_ttl(1, 10, secs(50));
    clock.advance(secs(10));
    assert!(cache.set_expiry(&1, Some(secs(20))) && cache.get(&1).is_some());
    clock.advance(secs(5));
    let saved = cache.snapshot().into_iter().next().unwrap();
    assert_eq!((saved.time_left, saved.age), (Some(secs(15)), secs(15)));
}

/// A panic of a key's or a value's `Clone` goes to the caller, and the cache continues; a `Clone`
/// that uses the cache finds no lock held.
#[test]
fn clones_may_panic_and_use_the_cache() {
    static CACHE: std::sync::OnceLock<Cache<Key, u32>> = std::sync::OnceLock::new();
    static PANICS: AtomicBool = AtomicBool::new(false);
    #[derive(PartialEq, Eq, Hash)]
    struct Key(u32);
    impl Clone for Key {
        fn clone(&self) -> Key {
            if self.0 == 7 && PANICS.load(SeqCst) {
                panic!("told to panic in clone");
            }
            if self.0 < 5 {
                let cache = CACHE.get().unwrap();
                cache.insert(Key(self.0 + 100), 1);
                cache.invalidate(&Key(self.0 + 50));
                cache.run_pending_tasks();
            }
            Key(self.0)
        }
    }
    support::hide_scripted_panics();
    let cache = CACHE.get_or_init(|| Cache::new(1_000));
    (0..60).for_each(|key| cache.insert(Key(key), key));
    PANICS.store(true, SeqCst);
    let panicked = std::panic::catch_unwind(|| cache.snapshot());
    assert!(panicked.is_err());
    PANICS.store(false, SeqCst);
    let snapshot = support::must_end(|| CACHE.get().unwrap().snapshot());
    assert!(snapshot.len() >= 55);
    cache.insert(Key(7), 77);
    cache.run_pending_tasks();
    assert_eq!(cache.get(&Key(7)), Some(77));
}

/// The refresh policy of now is asked, less the age; the earlier moment holds.
#[test]
fn the_refresh_policy_of_now_holds_for_what_is_restored() {
    use wheelhouse::{loader_fn, refresh};
    let entry = |key, refresh_in, age, time_left| {
        let mut entry = saved(key, time_left);
        entry.age = age;
        entry.refresh_in = refresh_in;
        entry
    };
    let day = secs(86_400);
    let policies: [(&str, bool); 2] = [("after", true), ("of a program", false)];
    for (name, is_ready) in policies {
        let time = ManualTicker::new();
        let builder = Cache::builder()
            .ticker(time.clone())
            .loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key)));
        let users = if is_ready {
            builder.refresh_after(refresh::after(secs(60))).build()
        } else {
            builder.refresh_after(Minute).build()
        };
        let entries = [
            // By what saved them: nothing, later, earlier; and one that is older than a minute.
            entry(1, None, secs(20), Some(day)),
            entry(2, Some(day), secs(20), None),
            entry(3, Some(secs(5)), secs(20), None),
            entry(4, None, secs(3_600), Some(day)),
        ];
        let how = Restore::default().downtime(Downtime::Ignored);
        let snapshot: Snapshot<u32, u32> = entries.into_iter().collect();
        assert_eq!(users.cache().restore(snapshot, how), only(4), "{name}");
        let mut moments: Vec<_> = (users.cache().snapshot().into_iter())
            .map(|entry| (entry.key, entry.refresh_in))
            .collect();
        moments.sort_unstable();
        let expected = [
            (1, Some(secs(40))),
            (2, Some(secs(40))),
            (3, Some(secs(5))),
            (4, Some(Duration::ZERO)),
        ];
        assert_eq!(moments, expected, "{name}");
    }
}

/// Stale a minute after the write.
struct Minute;

impl wheelhouse::Refresh<u32, u32> for Minute {
    fn refresh_after_create(
        &self,
        _: &u32,
        _: &u32,
        at: Instant,
        lifetime: Option<Duration>,
    ) -> Option<Duration> {
        assert!(at <= Instant::now(), "the time of the write");
        assert!(lifetime.is_none_or(|lifetime| lifetime > secs(86_400)));
        Some(secs(60))
    }
}

#[cfg(feature = "formats")]
#[test]
fn a_moment_of_refresh_that_passed_in_the_downtime_is_stale_at_once() {
    use wheelhouse::{loader_fn, refresh};
    let clock = ManualTicker::new();
    let users = Cache::<u32, u32>::builder()
        .ticker(clock.clone())
        .record_stats()
        .loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key)))
        .refresh_after(refresh::after(secs(100_000)))
        .build();
    let stale_in = |key, moment| {
        let mut entry = saved(key, Some(secs(10_000)));
        entry.refresh_in = Some(moment);
        entry
    };
    let snapshot = [stale_in(1, secs(10)), stale_in(2, secs(5_000))];
    let snapshot = aged(&snapshot.into_iter().collect(), secs(100));
    assert_eq!(users.cache().restore(snapshot, Restore::default()), only(2));
    let is_stale = |key| users.cache().peek_ref(&key).unwrap().is_stale();
    assert_eq!((is_stale(1), is_stale(2)), (true, false));
    assert_eq!((users.get(&1), users.get(&2)), (Ok(10), Ok(20)));
    assert_eq!(users.refresh(1).wait(), Ok(Some(1)));
    // The other has its own moment still, less the downtime.
    clock.advance(secs(4_800));
    assert!(!is_stale(2));
    clock.advance(secs(100));
    assert!(is_stale(2));
    assert_eq!(users.get(&2), Ok(20));
    support::until("it is reloaded", || users.cache().get(&2) == Some(2));
}

#[cfg(feature = "formats")]
#[test]
fn a_file_that_was_cut_off_is_an_error() {
    let (old, _) = built(|b| b);
    (0..3).for_each(|key| old.insert_with_ttl(key, key, secs(60)));
    let bytes = postcard::to_stdvec(&old.snapshot()).unwrap();
    for length in 0..bytes.len() {
        let cut = postcard::from_bytes::<Snapshot<u32, u32>>(&bytes[..length]);
        assert!(cut.is_err(), "{length} of {} bytes", bytes.len());
    }
    // Fields may come in any order where the format names them.
    let json = serde_json::to_value(old.snapshot()).unwrap();
    let text = format!(
        r#"{{"entries":{},"taken_at":{},"version":{}}}"#,
        json["entries"], json["taken_at"], json["version"]
    );
    let read: Snapshot<u32, u32> = serde_json::from_str(&text).unwrap();
    assert_eq!(read.len(), 3);
}

/// The reload that is under way ends with the process: the entry is as stale as it was.
#[test]
fn an_entry_that_is_being_reloaded_comes_back_stale() {
    use wheelhouse::{async_loader_fn, refresh};
    for timeout in [None, Some(secs(500))] {
        let clock = ManualTicker::new();
        let tasks = Arc::new(Mutex::new(Vec::new()));
        let spawned = Arc::clone(&tasks);
        let loading = Cache::<u32, u32>::builder()
            .ticker(clock.clone())
            .loading(async_loader_fn(|key: &u32| {
                std::future::ready(Ok::<u32, ()>(key * 10))
            }))
            .refresh_after(refresh::after(secs(60)))
            .spawner(move |task| spawned.lock().unwrap().push(task));
        let old = match timeout {
            Some(time) => loading.load_timeout(time).build(),
            None => loading.build(),
        };
        old.cache().insert(1, 10);
        let left = || {
            old.cache()
                .snapshot()
                .into_iter()
                .next()
                .unwrap()
                .refresh_in
        };
        clock.advance(secs(60));
        assert_eq!(left(), Some(Duration::ZERO));
        assert_eq!(old.get(&1).unwrap(), 10);
        assert_eq!(tasks.lock().unwrap().len(), 1, "it is being reloaded");
        assert_eq!(left(), Some(Duration::ZERO));
        // A task that is dropped has failed: the policy says when it is tried again.
        tasks.lock().unwrap().clear();
        assert_eq!(left(), Some(secs(1)));
    }
}

/// Entries that are due take up no room, though no pass has removed them yet.
#[test]
fn a_cache_full_of_expired_entries_has_room() {
    let (new, clock) = built(|b| b.max_capacity(10));
    (0..10).for_each(|key| new.insert_with_ttl(key, 1, secs(1)));
    clock.advance(secs(1));
    let snapshot: Snapshot<_, _> = (5..15).map(|key| saved(key, None)).collect();
    assert_eq!(new.restore(snapshot, Restore::default()), only(10));
    new.run_pending_tasks();
    assert!((5..15).all(|key| new.get(&key) == Some(key * 10)));
}

/// Stops a cache as the documentation of `Cache::snapshot` says. Returns what is to be saved, after
/// `ended` has had all that was removed.
fn stop(
    cache: Cache<u32, u32>,
    stopping: &AtomicBool,
    collected: &mpsc::Receiver<u32>,
    ended: &Mutex<Vec<u32>>,
) -> Snapshot<u32, u32> {
    stopping.store(true, SeqCst);
    let mut snapshot = cache.snapshot();
    cache.run_pending_tasks();
    drop(cache);
    let late: HashSet<u32> = collected.try_iter().collect();
    snapshot.retain(|saved| !late.contains(&saved.key));
    ended.lock().unwrap().extend(late);
    snapshot
}

/// A cache whose listener ends what it hears of, or collects it when the cache is being stopped.
type Stoppable = (
    CacheBuilder<u32, u32>,
    Arc<AtomicBool>,
    mpsc::Receiver<u32>,
    Arc<Mutex<Vec<u32>>>,
);

fn stoppable() -> Stoppable {
    let (stopping, ended) = <(Arc<AtomicBool>, Arc<Mutex<Vec<u32>>>)>::default();
    let (stops, ends) = (Arc::clone(&stopping), Arc::clone(&ended));
    let (collect, collected) = mpsc::channel();
    let builder = Cache::builder().removal_listener(move |key: &u32, _: &u32, _| {
        if stops.load(SeqCst) {
            collect.send(*key).unwrap();
        } else {
            ends.lock().unwrap().push(*key);
        }
    });
    (builder, stopping, collected, ended)
}

fn assert_each_is_ended_or_saved(ended: &Mutex<Vec<u32>>, saved: &Snapshot<u32, u32>, all: u32) {
    let ended = ended.lock().unwrap();
    let mut keys: Vec<u32> = ended.to_vec();
    keys.extend(saved.iter().map(|saved| saved.key));
    keys.sort_unstable();
    assert!(
        keys.into_iter().eq(0..all),
        "each key is ended or saved, once"
    );
}

#[test]
fn a_stop_in_steps_ends_or_saves_each_entry_once() {
    let (builder, stopping, collected, ended) = stoppable();
    let clock = ManualTicker::new();
    let cache = builder.ticker(clock.clone()).build();
    for key in 0..1_000 {
        cache.insert_with_ttl(key, key, Duration::from_millis(u64::from(key)));
    }
    // Half of them are due, and no pass has removed them.
    clock.advance(Duration::from_millis(499));
    let saved = stop(cache, &stopping, &collected, &ended);
    assert_eq!((saved.len(), ended.lock().unwrap().len()), (500, 500));
    assert_each_is_ended_or_saved(&ended, &saved, 1_000);
}

#[test]
fn a_stop_while_entries_expire_ends_or_saves_each_once() {
    const ALL: u32 = 20_000;
    let (builder, stopping, collected, ended) = stoppable();
    let cache = builder.expiry_resolution(Duration::from_millis(1)).build();
    // They fall due all the while, whatever the machine does: from now on, and for a second.
    for key in 0..ALL {
        let ttl = Duration::from_micros(50 * u64::from(key) + 1);
        cache.insert_with_ttl(key, key, ttl);
    }
    while ended.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    let saved = stop(cache, &stopping, &collected, &ended);
    assert_each_is_ended_or_saved(&ended, &saved, ALL);
}

thread_local! {
    /// How many values this thread has dropped while their destructors panic; `None` if they do
    /// not.
    static DROPPED: Cell<Option<u32>> = const { Cell::new(None) };
}

#[derive(Clone)]
struct Brittle;

impl Drop for Brittle {
    fn drop(&mut self) {
        if let Some(dropped) = DROPPED.get() {
            DROPPED.set(Some(dropped + 1));
            panic!("told to panic in a destructor");
        }
    }
}

/// Restores keys from 0 on, of which two have ended, into a cache of five that weighs them so. Says
/// how many values that has dropped.
fn restore_brittle(
    present: u32,
    weigh: impl Fn(&Cache<u32, Brittle>, u32) + Send + Sync + 'static,
) -> (std::thread::Result<Restored>, u32) {
    support::hide_scripted_panics();
    let handle = Arc::new(Mutex::new(None::<Cache<u32, Brittle>>));
    let theirs = Arc::clone(&handle);
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .max_capacity(5)
        .weigher(move |key: &u32, _: &Brittle| {
            let cache = theirs.lock().unwrap().take();
            if let Some(cache) = cache {
                weigh(&cache, *key);
                *theirs.lock().unwrap() = Some(cache);
            }
            1
        })
        .build();
    (0..present).for_each(|key| cache.insert(key, Brittle));
    *handle.lock().unwrap() = Some(cache.clone());
    let entries = (0..9).map(|key| {
        let mut entry = SavedEntry::new(key, Brittle);
        entry.time_left = (key / 2 == 1).then_some(Duration::ZERO);
        entry
    });
    let snapshot: Snapshot<_, _> = entries.collect();
    DROPPED.set(Some(0));
    let restore = AssertUnwindSafe(|| cache.restore(snapshot, Restore::default()));
    let restored = catch_unwind(restore);
    let dropped = DROPPED.take().unwrap();
    *handle.lock().unwrap() = None;
    (restored, dropped)
}

#[test]
fn destructors_of_what_does_not_come_back_are_contained() {
    // One key is written when it has been found to be absent.
    let (restored, dropped) = restore_brittle(2, |cache, key| {
        if key == 4 {
            cache.insert(4, Brittle);
        }
    });
    let expected = counts! {
        restored: 2,
        expired: 2,
        present: 3,
        refused: 2,
    };
    assert_eq!(restored.unwrap(), expected);
    assert_eq!(dropped, 7);
}

#[test]
fn destructors_are_contained_when_a_callback_ends_the_restore() {
    let (restored, dropped) = restore_brittle(0, |_, key| assert!(key != 6, "told to panic"));
    assert!(restored.is_err());
    assert_eq!(dropped, 9);
}

#[test]
fn an_entry_older_than_the_longest_lifetime_has_ended() {
    let (cache, _) = built(|b| b.time_to_live(Duration::MAX));
    let mut entry = saved(1, None);
    entry.age = support::LONGEST;
    let snapshot: Snapshot<_, _> = [entry].into_iter().collect();
    let restored = cache.restore(snapshot, Restore::default());
    assert_eq!(restored, counts! { expired: 1 });
}

#[test]
fn views_show_as_many_live_entries_as_they_are_asked_for() {
    let bounds: [Option<(u64, EvictionPolicy)>; 3] = [
        Some((1_000, EvictionPolicy::Lru)),
        Some((1_000, EvictionPolicy::Adaptive)),
        None,
    ];
    for bound in bounds {
        let (cache, clock) = built(|b| match bound {
            Some((max, policy)) => b.max_capacity(max).eviction_policy(policy),
            None => b,
        });
        (0..700).for_each(|key| cache.insert_with_ttl(key, key, secs(1)));
        (700..710).for_each(|key| cache.insert(key, key));
        clock.advance(secs(5));
        let policy = cache.policy();
        for most in [1, 10, 20] {
            let counts = [
                policy.hottest(most).count(),
                policy.coldest(most).count(),
                policy.first_to_evict(most).count(),
                policy.last_to_evict(most).count(),
            ];
            assert_eq!(counts, [most.min(10); 4], "{bound:?}");
        }
    }
}
