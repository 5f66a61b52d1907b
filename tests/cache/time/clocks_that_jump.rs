//! Clocks that start anywhere, wrap, stand still, run backwards or jump by years.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::{Dial, Dice, HOUR, LONGEST, NS, SPAN, YEAR, millis, nanos, secs};
use wheelhouse::RemovalCause::Expired;
use wheelhouse::expiry::accessing;
use wheelhouse::{Cache, Expiry, ManualTicker, Scheduler, Ticker};

const ORIGINS: [u64; 13] = [
    0,
    1,
    (1 << 30) - 1,
    1 << 30,
    (1 << 62) - 1,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
    i64::MIN as u64,
    i64::MIN as u64 + 1,
    u64::MAX - (1 << 36),
    u64::MAX - 5,
    u64::MAX - 1,
    u64::MAX,
];

fn cache_on(clock: impl Ticker) -> (Cache<u64, u64>, Record<u64, u64>) {
    let heard = Record::new();
    let cache = Cache::builder()
        .ticker(clock)
        .removal_listener(heard.listener())
        .build();
    (cache, heard)
}

#[test]
fn the_manual_clock_is_shared_by_its_clones_and_wraps() {
    let clock = ManualTicker::new();
    let other = clock.clone();
    let start = clock.nanos();
    other.advance(secs(1));
    assert_eq!(clock.nanos() - start, 1_000_000_000);
    let clock = ManualTicker::starting_at(u64::MAX);
    assert_eq!(clock.nanos(), u64::MAX);
    clock.advance(nanos(2));
    assert_eq!(clock.nanos(), 1);
}

#[test]
fn every_origin_is_as_good_as_zero() {
    // Odd by 37 ns, so that no deadline of this walk falls on an origin's own extreme.
    let lives = [
        1,
        1 << 16,
        1 << 30,
        1 << 36,
        1 << 42,
        1 << 47,
        1 << 49,
        1 << 53,
        1 << 61,
    ]
    .map(|n| nanos(n + 37));
    for origin in ORIGINS {
        let clock = ManualTicker::starting_at(origin);
        let (cache, heard) = cache_on(clock.clone());
        for (key, life) in (0..).zip(lives) {
            cache.insert_with_ttl(key, 0, life);
        }
        cache.insert(100, 0);
        let mut now = Duration::ZERO;
        for (key, life) in (0..).zip(lives) {
            clock.advance(life - now - NS);
            assert!(cache.contains_key(&key), "{life:?} from {origin}");
            cache.run_pending_tasks();
            assert_eq!(heard.take(), [], "just before {life:?} from {origin}");
            clock.advance(NS);
            assert!(!cache.contains_key(&key), "{life:?} from {origin}");
            cache.run_pending_tasks();
            assert_eq!(
                heard.take(),
                [(key, 0, Expired)],
                "at {life:?} from {origin}"
            );
            now = life;
        }
        assert_eq!(
            cache.peek_ref(&100).map(|entry| entry.time_left()),
            Some(None)
        );
        assert_eq!(cache.entry_count(), 1);
    }
}

#[test]
fn an_entry_seen_expired_stays_expired_however_late_its_removal() {
    // Up to the longest lifetime.
    let leaps = [0, 1, 36, 60, 61, 62].map(|bits| Duration::from_nanos(1 << bits));
    for leap in leaps {
        let clock = ManualTicker::starting_at(5);
        let cache: Cache<u32, u32> = Cache::builder()
            .ticker(clock.clone())
            .scheduler(Scheduler::disabled())
            .build();
        cache.insert_with_ttl(1, 1, secs(1));
        clock.advance(secs(1));
        assert_eq!(cache.get(&1), None);
        clock.advance(leap);
        assert!(!cache.contains_key(&1), "after {leap:?}");
        assert_eq!(cache.get(&1), None, "after {leap:?}");
        assert!(!cache.set_expiry(&1, None), "after {leap:?}");
        assert_eq!(cache.remove(&1), None, "after {leap:?}");
    }
}

#[test]
fn a_deadline_on_any_reading_is_a_deadline() {
    // Whichever reading an implementation reserves for "never", an entry whose deadline falls on it
    // still expires there; one nanosecond either way is allowed.
    for deadline in [
        0,
        1,
        u64::MAX,
        u64::MAX - 1,
        i64::MAX as u64,
        i64::MIN as u64,
    ] {
        for life in [secs(1), HOUR, YEAR] {
            let clock = ManualTicker::starting_at(deadline.wrapping_sub(life.as_nanos() as u64));
            let (cache, heard) = cache_on(clock.clone());
            cache.insert_with_ttl(1, 1, life);
            cache.insert(2, 2);
            cache.run_pending_tasks();
            assert!(cache.next_maintenance_in().is_some());
            clock.advance(life - nanos(2));
            cache.run_pending_tasks();
            assert!(cache.contains_key(&1), "two before {deadline}");
            clock.advance(nanos(3));
            assert!(!cache.contains_key(&1), "one past {deadline}");
            cache.run_pending_tasks();
            assert_eq!(heard.take(), [(1, 1, Expired)]);
            assert!(cache.contains_key(&2));
        }
    }
}

#[test]
fn the_clock_wraps_in_the_middle_of_many_lifetimes() {
    let clock = ManualTicker::starting_at(u64::MAX - 30_000_000_000);
    let (cache, heard) = cache_on(clock.clone());
    for key in 0..60 {
        cache.insert_with_ttl(key, 0, millis(1_000 * key + 500));
    }
    for second in 0..60 {
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 60 - second);
        assert_eq!(
            cache.get(&second),
            Some(0),
            "alive half a second before its end, in second {second}"
        );
        clock.advance(millis(500));
        assert_eq!(cache.get(&second), None);
        cache.run_pending_tasks();
        assert_eq!(heard.take(), [(second, 0, Expired)]);
        clock.advance(millis(500));
    }
}

#[test]
fn a_clock_that_runs_backwards_removes_nothing_early() {
    for start in [
        u64::MAX / 3,
        1_000_000_000_000,
        5,
        i64::MAX as u64 + 5,
        u64::MAX,
    ] {
        let s = |seconds: u64| start.wrapping_add(seconds * 1_000_000_000);
        let clock = Dial::at(s(0));
        let (cache, heard) = cache_on(clock.clone());
        clock.set(s(1_000));
        cache.insert_with_ttl(1, 1, secs(10));
        cache.run_pending_tasks();

        clock.set(s(500));
        cache.run_pending_tasks();
        assert_eq!(cache.get(&1), Some(1));
        assert!(cache.peek_ref(&1).unwrap().time_left() >= Some(secs(10)));
        assert!(cache.peek_ref(&1).unwrap().age() <= secs(10));
        cache.insert_with_ttl(2, 2, secs(10));
        assert!(cache.set_expiry(&2, Some(secs(20))));
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        clock.set(s(520) - 1);
        cache.run_pending_tasks();
        assert_eq!((cache.get(&1), cache.get(&2)), (Some(1), Some(2)));
        assert_eq!(heard.take(), []);
        assert_eq!(cache.entry_count(), 2);

        clock.set(s(1_010) - 1);
        cache.run_pending_tasks();
        assert_eq!(
            cache.get(&1),
            Some(1),
            "the deadline it got before the clock went back"
        );
        clock.set(s(1_020));
        assert_eq!((cache.get(&1), cache.get(&2)), (None, None));
        cache.run_pending_tasks();
        assert_eq!(heard.take_sorted(), [(1, 1, Expired), (2, 2, Expired)]);
    }
}

#[test]
fn a_clock_that_jitters_removes_nothing_early_and_all_in_the_end() {
    let clock = Dial::at(u64::MAX - 1_000_000);
    let (cache, heard) = cache_on(clock.clone());
    let mut dice = Dice::new(1);
    let mut reading = u64::MAX - 1_000_000;
    let mut highest = 0u64;
    let (origin, mut inserted) = (reading, 0);
    let mut earliest_end = std::collections::BTreeMap::new();
    for step in 0..20_000 {
        reading = reading
            .wrapping_add(dice.below(3_000_000))
            .wrapping_sub(1_000_000);
        clock.set(reading);
        let now = reading.wrapping_sub(origin);
        if now < 1 << 63 {
            highest = highest.max(now);
        }
        if step % 4 == 0 {
            let life = dice.below(1 << 33);
            cache.insert_with_ttl(step, 0, nanos(life));
            inserted += 1;
            let now = if now < 1 << 63 { now } else { 0 };
            earliest_end.insert(step, now + life);
        }
        if step % 16 == 0 {
            cache.run_pending_tasks();
        }
        for (key, _, cause) in heard.take() {
            assert_eq!(cause, Expired);
            let end = earliest_end.remove(&key).expect("heard once");
            assert!(end <= highest, "key {key} ended at {highest}, before {end}");
        }
    }
    clock.set(reading.wrapping_add(1 << 34));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(heard.count(), earliest_end.len(), "of {inserted}");
}

#[test]
fn a_manual_clock_that_is_set_back_removes_nothing_early() {
    for origin in ORIGINS {
        let clock = ManualTicker::starting_at(origin);
        let set = |nanos: i64| clock.set_nanos(origin.wrapping_add_signed(nanos));
        let (cache, heard) = cache_on(clock.clone());
        let mut dice = Dice::new(origin ^ 7);
        // By key, the reading at which the entry expires.
        let mut ends = std::collections::BTreeMap::new();
        let (mut now, mut highest) = (0, 0);
        for key in 0..2_000 {
            // One step in four goes back, by a little or to before the origin.
            let bits = dice.below(40);
            let step = dice.below(1 << bits) as i64;
            now += if dice.below(4) == 0 { -step } else { step };
            set(now);
            highest = highest.max(now);
            let bits = dice.below(36);
            let life = dice.below(1 << bits);
            cache.insert_with_ttl(key, key, nanos(life));
            ends.insert(key, now + life as i64);
            let asked = dice.below(key + 1);
            if let Some(entry) = cache.peek_ref(&asked) {
                assert!(entry.time_left() > Some(Duration::ZERO));
                assert!(ends[&asked] > now, "seen past its end");
            }
            if dice.below(8) == 0 {
                cache.run_pending_tasks();
            }
            for (key, _, cause) in heard.take() {
                assert_eq!(cause, Expired);
                let end = ends.remove(&key).expect("heard once");
                assert!(end <= highest, "{key} ended at {highest}, before {end}");
            }
        }
        set(highest + (1 << 36));
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0);
        assert_eq!(heard.take().len(), ends.len());
    }
}

#[test]
fn a_manual_clock_that_is_set_back_gives_the_time_back() {
    for origin in ORIGINS {
        let clock = ManualTicker::starting_at(origin);
        let (cache, _) = cache_on(clock.clone());
        cache.insert_with_ttl(1, 1, secs(10));
        clock.advance(secs(9));
        assert_eq!(cache.peek_ref(&1).unwrap().age(), secs(9));
        clock.set_nanos(origin);
        cache.run_pending_tasks();
        assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(secs(10)));
        clock.set_nanos(origin.wrapping_sub(5_000_000_000));
        cache.run_pending_tasks();
        let entry = cache.peek_ref(&1).unwrap();
        assert_eq!((entry.time_left(), entry.age()), (Some(secs(15)), secs(0)));
        drop(entry);
        clock.set_nanos(origin.wrapping_add(10_000_000_000));
        assert_eq!(cache.get(&1), None);
        // An entry that was found expired does not come back.
        clock.set_nanos(origin);
        assert_eq!(cache.get(&1), None);
    }
}

#[test]
fn under_a_clock_that_stands_still_only_lifetimes_of_zero_expire() {
    for origin in ORIGINS {
        let clock = Dial::at(origin);
        let (cache, heard) = cache_on(clock);
        for key in 0..100 {
            cache.insert_with_ttl(key, 0, nanos(key));
        }
        for _ in 0..10 {
            cache.run_pending_tasks();
        }
        assert_eq!(heard.take(), [(0, 0, Expired)]);
        assert_eq!(cache.iter().count(), 99);
        assert!((1..100).all(|key| cache.get(&key) == Some(0)));
    }
}

#[test]
fn a_jump_of_years_expires_only_due_entries() {
    for jump in [YEAR, YEAR * 50, YEAR * 100, LONGEST - secs(1)] {
        let clock = ManualTicker::starting_at(12_345);
        let (cache, heard) = cache_on(clock.clone());
        let lives: Vec<Duration> = (0..62)
            .map(|bits| nanos(1 << bits))
            .chain([jump - NS, jump, jump + NS, jump + SPAN, LONGEST])
            .collect();
        for (key, life) in (0..).zip(&lives) {
            cache.insert_with_ttl(key, 0, *life);
        }
        cache.insert(1_000, 0);
        clock.advance(jump);
        let due = lives.iter().filter(|life| **life <= jump).count();
        for (key, life) in (0..).zip(&lives) {
            assert_eq!(
                cache.contains_key(&key),
                *life > jump,
                "{life:?} after {jump:?}"
            );
        }
        cache.run_pending_tasks();
        assert_eq!(heard.take().len(), due);
        assert_eq!(cache.entry_count(), (lives.len() + 1 - due) as u64);
        // The remaining entries expire exactly.
        cache.insert_with_ttl(2_000, 0, secs(3));
        clock.advance(secs(3) - NS);
        assert!(cache.contains_key(&2_000));
        clock.advance(NS);
        cache.run_pending_tasks();
        assert!(!cache.contains_key(&2_000));
        clock.advance(LONGEST - jump);
        cache.run_pending_tasks();
        assert_eq!(
            cache.entry_count(),
            1,
            "only entries that never expire are left after {jump:?}"
        );
    }
}

#[test]
fn a_thousand_years_of_service() {
    let clock = ManualTicker::starting_at(u64::MAX - 77);
    let (cache, heard) = cache_on(clock.clone());
    cache.insert(1, 1);
    for decade in 0..100 {
        cache.insert_with_ttl(2, decade, YEAR * 10);
        cache.insert_with_ttl(3, decade, YEAR * 10 + NS);
        cache.run_pending_tasks();
        clock.advance(YEAR * 10);
        assert_eq!((cache.get(&2), cache.get(&3)), (None, Some(decade)));
        cache.run_pending_tasks();
        assert_eq!(cache.remove(&3), Some(decade));
        cache.run_pending_tasks();
        assert_eq!(heard.take().len(), 2);
    }
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(cache.entry_count(), 1);
}

#[test]
fn an_idle_clock_is_extended_across_the_wrap() {
    let clock = ManualTicker::starting_at(u64::MAX - 7_000_000_000);
    let heard = Record::new();
    let cache = Cache::builder()
        .expire_after(accessing(|_: &u64, _: &u64| Some(secs(5))))
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    cache.insert(1, 1);
    for _ in 0..10 {
        clock.advance(secs(5) - NS);
        cache.run_pending_tasks();
        assert_eq!(cache.get(&1), Some(1));
    }
    clock.advance(secs(5));
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [(1, 1, Expired)]);
}

#[test]
fn waiting_as_the_cache_says_meets_every_deadline_within_a_span() {
    for origin in [0, u64::MAX - 5, i64::MAX as u64 - 12_345_678_901] {
        let clock = ManualTicker::starting_at(origin);
        let (cache, heard) = cache_on(clock.clone());
        let mut dice = Dice::new(origin);
        let mut ends: Vec<Duration> = Vec::new();
        for key in 0..400 {
            let bits = dice.below(58);
            let life = nanos((1 << bits) + dice.below(1 << bits));
            cache.insert_with_ttl(key, 0, life);
            ends.push(life);
        }
        let (mut now, mut wakes) = (Duration::ZERO, 0);
        while let Some(wait) = cache.next_maintenance_in() {
            clock.advance(wait);
            now += wait;
            cache.run_pending_tasks();
            wakes += 1;
            assert!(wakes < 400 * 12, "{wakes} wake-ups for 400 entries");
            for (key, _, _) in heard.take() {
                let end = ends[key as usize];
                assert!(
                    end <= now && now <= end + SPAN,
                    "due at {end:?}, delivered at {now:?}"
                );
            }
        }
        assert_eq!(cache.entry_count(), 0);
    }
}

/// A policy whose answer to a read takes years, in which other calls look the key up.
struct Slow {
    clock: ManualTicker,
    takes: Duration,
    slot: Arc<Mutex<Option<Cache<u64, u64>>>>,
    found: Arc<Mutex<Vec<bool>>>,
}

impl Expiry<u64, u64> for Slow {
    fn expire_after_create(&self, _: &u64, _: &u64, _: Instant) -> Option<Duration> {
        Some(secs(10))
    }

    fn expire_after_read(
        &self,
        _: &u64,
        _: &u64,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        if let Some(cache) = self.slot.lock().unwrap().take() {
            self.clock.advance(self.takes);
            self.found.lock().unwrap().push(cache.contains_key(&1));
        }
        Some(secs(20))
    }
}

#[test]
fn an_entry_that_was_missed_is_not_brought_back_by_a_read_that_began_before() {
    for takes in [secs(10), YEAR, YEAR * 72, YEAR * 74, YEAR * 100, YEAR * 125] {
        let (slot, found) = (Arc::default(), Arc::default());
        let (clock, heard) = (ManualTicker::new(), Record::new());
        let cache: Cache<u64, u64> = Cache::builder()
            .expire_after(Slow {
                clock: clock.clone(),
                takes,
                slot: Arc::clone(&slot),
                found: Arc::clone(&found),
            })
            .ticker(clock.clone())
            .removal_listener(heard.listener())
            .build();
        cache.insert(1, 1);
        *slot.lock().unwrap() = Some(cache.clone());
        let read = cache.get(&1);
        assert_eq!(*found.lock().unwrap(), [false], "missed after {takes:?}");
        assert_eq!(read, None, "back again after {takes:?}");
        assert_eq!(cache.peek_ref(&1).map(|entry| *entry), None);
        cache.insert(1, 2);
        assert_eq!(cache.get(&1), Some(2));
        clock.advance(secs(20));
        cache.run_pending_tasks();
        assert_eq!(
            heard.take(),
            [(1, 1, Expired), (1, 2, Expired)],
            "{takes:?}"
        );
    }
}
