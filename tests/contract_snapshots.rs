//! Section 5 of the loading contract: what a snapshot holds, and what a restoration does with it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use wheelhouse::{
    Cache, Downtime, Ended, Expiry, ManualTicker, RemovalCause, Restore, Restored, SavedEntry,
    Snapshot, expiry,
};

const SECOND: Duration = Duration::from_secs(1);

type C = Cache<u32, u32>;

fn with_ticker() -> (C, ManualTicker) {
    let ticker = ManualTicker::new();
    (Cache::builder().ticker(ticker.clone()).build(), ticker)
}
fn saved(key: u32, time_left: Option<Duration>) -> SavedEntry<u32, u32> {
    SavedEntry {
        key,
        value: key + 10,
        time_left,
        idle_left: None,
        refresh_in: None,
        age: Duration::ZERO,
    }
}
/// Lets real time pass; a snapshot's downtime is told by the wall clock.
fn pass(real: Duration) {
    let start = Instant::now();
    while start.elapsed() < real {
        std::thread::yield_now();
    }
}
fn ignored() -> Restore {
    Restore::default().downtime(Downtime::Ignored)
}

#[test]
fn signatures() {
    let _: fn(&C) -> Snapshot<u32, u32> = |c| c.snapshot();
    let _: fn(&C, Snapshot<u32, u32>, Restore) -> Restored = |c, s, how| c.restore(s, how);
    let _: fn(&Snapshot<u32, u32>) -> SystemTime = |s| s.taken_at();
    let _ = Restore::default()
        .downtime(Downtime::Counts)
        .ended(Ended::Skip);
    let _ = Restore::default()
        .downtime(Downtime::Ignored)
        .ended(Ended::Tell);
    let before = SystemTime::now();
    let snapshot: Snapshot<u32, u32> = [saved(1, None)].into_iter().collect();
    assert!(snapshot.taken_at() >= before && snapshot.taken_at() <= SystemTime::now());
    let entries: Vec<SavedEntry<u32, u32>> = snapshot.into_iter().collect();
    assert_eq!((entries[0].key, entries[0].value), (1, 11));
    let Restored {
        restored,
        expired,
        present,
        refused,
        ..
    } = C::new(1).restore([].into_iter().collect(), Restore::default());
    assert_eq!((restored, expired, present, refused), (0, 0, 0, 0));
}

#[test]
fn a_snapshot_tells_deadlines_idle_limits_and_ages() {
    let ticker = ManualTicker::new();
    let cache: C = Cache::builder()
        .time_to_idle(5 * SECOND)
        .expire_after(expiry::creating(|k: &u32, _: &u32| {
            (*k > 0).then(|| Duration::from_secs(u64::from(*k)))
        }))
        .ticker(ticker.clone())
        .build();
    cache.insert(0, 1);
    cache.insert(10, 2);
    cache.insert(1, 3);
    ticker.advance(2 * SECOND);
    cache.get(&10);
    ticker.advance(SECOND);
    let mut entries: Vec<_> = cache.snapshot().into_iter().collect();
    entries.sort_by_key(|entry| entry.key);
    assert_eq!(entries.len(), 2, "what is due is not in it");
    let told = |entry: &SavedEntry<u32, u32>| {
        (
            entry.key,
            entry.value,
            entry.time_left,
            entry.idle_left,
            entry.age,
        )
    };
    assert_eq!(
        told(&entries[0]),
        (0, 1, None, Some(2 * SECOND), 3 * SECOND)
    );
    let seven = Some(7 * SECOND);
    assert_eq!(
        told(&entries[1]),
        (10, 2, seven, Some(4 * SECOND), 3 * SECOND)
    );
    assert_eq!(entries[0].refresh_in, None);
}

#[test]
fn lives_go_on_where_they_were_and_the_policy_is_not_asked() {
    struct Mute;
    impl Expiry<u32, u32> for Mute {
        fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
            panic!("asked")
        }
    }
    let (old, old_ticker) = with_ticker();
    old.insert_with_ttl(1, 1, 10 * SECOND);
    old.insert(2, 2);
    old_ticker.advance(4 * SECOND);
    let ticker = ManualTicker::starting_at(u64::MAX - 1);
    let new: C = Cache::builder()
        .expire_after(Mute)
        .ticker(ticker.clone())
        .build();
    let report = new.restore(old.snapshot(), ignored());
    assert_eq!(
        (
            report.restored,
            report.expired,
            report.present,
            report.refused
        ),
        (2, 0, 0, 0)
    );
    assert_eq!(new.peek_ref(&1).unwrap().time_left(), Some(6 * SECOND));
    assert_eq!(new.peek_ref(&2).unwrap().time_left(), None);
    assert_eq!(new.peek_ref(&1).unwrap().age(), 4 * SECOND);
    ticker.advance(6 * SECOND);
    assert!(!new.contains_key(&1) && new.contains_key(&2));
}

#[test]
fn the_limits_of_now_cap_a_life() {
    let (old, old_ticker) = with_ticker();
    old.insert_with_ttl(1, 1, 100 * SECOND);
    old.insert(2, 2);
    old_ticker.advance(4 * SECOND);
    old.insert(3, 3);
    let ticker = ManualTicker::new();
    let new: C = Cache::builder()
        .time_to_live(10 * SECOND)
        .ticker(ticker.clone())
        .build();
    new.restore(old.snapshot(), ignored());
    let left = |key| new.peek_ref(key).unwrap().time_left().unwrap();
    assert_eq!(
        (left(&1), left(&2), left(&3)),
        (6 * SECOND, 6 * SECOND, 10 * SECOND)
    );
    let strict: C = Cache::builder()
        .time_to_live(3 * SECOND)
        .ticker(ticker)
        .build();
    let report = strict.restore(old.snapshot(), ignored());
    assert_eq!((report.restored, report.expired), (1, 2));
    assert!(strict.contains_key(&3));
}

#[test]
fn a_present_key_is_kept_and_a_due_one_is_not_present() {
    let (new, ticker) = with_ticker();
    new.insert(1, 100);
    new.insert_with_ttl(2, 200, SECOND);
    ticker.advance(SECOND);
    let report = new.restore(
        [saved(1, None), saved(2, None)].into_iter().collect(),
        ignored(),
    );
    assert_eq!((report.restored, report.present), (1, 1));
    assert_eq!((new.get(&1), new.get(&2)), (Some(100), Some(12)));
}

#[test]
fn what_does_not_fit_is_refused_coldest_first_and_nobody_is_told() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    let new: C = Cache::builder()
        .max_capacity(10)
        .removal_listener(move |k: &u32, _: &u32, cause| sink.lock().unwrap().push((*k, cause)))
        .build();
    let report = new.restore((0..30).map(|key| saved(key, None)).collect(), ignored());
    assert_eq!((report.restored, report.refused), (10, 20));
    new.run_pending_tasks();
    assert_eq!(new.entry_count(), 10);
    assert!(
        (0..10).all(|key| new.contains_key(&key)),
        "the hottest come first"
    );
    assert!(
        heard.lock().unwrap().is_empty(),
        "refused, not inserted and evicted"
    );
    let none: C = Cache::new(0);
    let report = none.restore([saved(1, None)].into_iter().collect(), ignored());
    assert_eq!((report.restored, report.refused), (0, 1));
}

#[test]
fn the_hottest_come_first_in_a_snapshot() {
    let cache: C = Cache::new(100);
    for key in 0..100 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    for _ in 0..20 {
        for key in 40..50 {
            cache.get(&key);
        }
        cache.run_pending_tasks();
    }
    let order: Vec<u32> = cache
        .snapshot()
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    assert_eq!(order.len(), 100);
    let hot = order[..20]
        .iter()
        .filter(|key| (40..50).contains(*key))
        .count();
    assert_eq!(hot, 10, "{order:?}");
}

#[test]
fn downtime_counts_by_the_wall_clock_or_not() {
    let short = Duration::from_millis(20);
    let snapshot = || -> Snapshot<u32, u32> {
        [
            saved(1, Some(short)),
            saved(2, Some(1_000 * SECOND)),
            saved(3, None),
        ]
        .into_iter()
        .collect()
    };
    let (counts, ignores) = (snapshot(), snapshot());
    let begun = Instant::now();
    pass(3 * short);
    let (cache, _) = with_ticker();
    let report = cache.restore(counts, Restore::default().downtime(Downtime::Counts));
    let most = begun.elapsed();
    assert_eq!((report.restored, report.expired), (2, 1));
    let left = cache.peek_ref(&2).unwrap().time_left().unwrap();
    assert!(left <= 1_000 * SECOND - 2 * short && left + most + SECOND >= 1_000 * SECOND);
    let (cache, _) = with_ticker();
    let report = cache.restore(ignores, ignored());
    assert_eq!((report.restored, report.expired), (3, 0));
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(short));
}

#[test]
fn what_ended_meanwhile_is_skipped_or_told_once() {
    for (ended, told) in [(Ended::Skip, 0), (Ended::Tell, 2)] {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        let cache: C = Cache::builder()
            .ticker(ManualTicker::new())
            .removal_listener(move |k: &u32, v: &u32, c| sink.lock().unwrap().push((*k, *v, c)))
            .build();
        let snapshot: Snapshot<u32, u32> = [
            saved(1, Some(Duration::ZERO)),
            saved(2, Some(Duration::from_nanos(1))),
            saved(3, None),
        ]
        .into_iter()
        .collect();
        pass(Duration::from_millis(2));
        let report = cache.restore(snapshot, Restore::default().ended(ended));
        assert_eq!((report.restored, report.expired), (1, 2));
        assert!(!cache.contains_key(&1) && !cache.contains_key(&2));
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        let mut heard = heard.lock().unwrap().clone();
        heard.sort_by_key(|gone| gone.0);
        assert_eq!(heard.len(), told);
        if told > 0 {
            let expected = [
                (1, 11, RemovalCause::Expired),
                (2, 12, RemovalCause::Expired),
            ];
            assert_eq!(heard, expected);
        }
    }
}

#[test]
fn idle_limits_are_restored_with_what_was_left_of_them() {
    let idle = |limit: u64, ticker: &ManualTicker| -> C {
        Cache::builder()
            .time_to_idle(Duration::from_secs(limit))
            .ticker(ticker.clone())
            .build()
    };
    let ticker = ManualTicker::new();
    let old = idle(10, &ticker);
    old.insert(1, 1);
    ticker.advance(4 * SECOND);
    let entries: Vec<_> = old.snapshot().into_iter().collect();
    assert_eq!(
        (entries[0].time_left, entries[0].idle_left),
        (None, Some(6 * SECOND))
    );
    let new = idle(10, &ticker);
    new.restore(old.snapshot(), ignored());
    ticker.advance(6 * SECOND - Duration::from_nanos(1));
    assert!(new.contains_key(&1));
    ticker.advance(Duration::from_nanos(1));
    assert!(!new.contains_key(&1));
}

#[test]
fn a_snapshot_of_a_full_cache_is_restored_whole() {
    let (old, ticker) = with_ticker();
    for key in 0..5_000 {
        old.insert_with_ttl(key, key, Duration::from_secs(1 + u64::from(key)));
    }
    ticker.advance(1_000 * SECOND);
    let (new, _) = with_ticker();
    let report = new.restore(old.snapshot(), ignored());
    assert_eq!((report.restored, report.expired), (4_000, 0));
    for entry in &new {
        assert_eq!(
            Some(Duration::from_secs(1 + u64::from(*entry)) - 1_000 * SECOND),
            entry.time_left()
        );
    }
}

#[test]
fn no_pin_is_held_over_a_slow_consumer() {
    let alive = Arc::new(());
    let cache: Cache<u32, Arc<()>> = Cache::builder().build();
    for key in 0..1_000 {
        cache.insert(key, alive.clone());
    }
    let mut entries = cache.snapshot().into_iter();
    let first = entries.next();
    cache.invalidate_all();
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    drop((first, entries));
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[cfg(feature = "serde")]
#[test]
fn a_snapshot_goes_through_a_format_and_back() {
    let (old, _) = with_ticker();
    old.insert_with_ttl(1, 1, 10 * SECOND);
    old.insert(2, 2);
    let snapshot = old.snapshot();
    let at = snapshot.taken_at();
    let text = serde_json::to_string(&snapshot).unwrap();
    let back: Snapshot<u32, u32> = serde_json::from_str(&text).unwrap();
    assert_eq!(back.taken_at(), at);
    let (new, _) = with_ticker();
    assert_eq!(new.restore(back, ignored()).restored, 2);
    assert_eq!(new.peek_ref(&1).unwrap().time_left(), Some(10 * SECOND));
    let bytes = postcard::to_stdvec(&snapshot).unwrap();
    let back: Snapshot<u32, u32> = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(back.into_iter().count(), 2);
    assert!(serde_json::from_str::<Snapshot<u32, u32>>("{}").is_err());
}
