//! Values that end at an instant: `expiry::until`, `insert_until`, `Op::PutUntil`.

use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::{HOUR, LONGEST, NS, millis, secs};
use wheelhouse::RemovalCause::{Expired, Replaced};
use wheelhouse::compute::{CompResult, Op};
use wheelhouse::expiry::{accessing, jittered, until, writing};
use wheelhouse::{Cache, CacheBuilder, ManualTicker};

/// Says itself until when it is valid; `None` for ever.
type Token = Option<Instant>;

/// Origins of the ticker: the second wraps during the test, the third has passed half of its range.
const ORIGINS: [u64; 3] = [0, u64::MAX - 30_000_000_000, 1 << 63];

fn builder(clock: &ManualTicker) -> CacheBuilder<u32, Token> {
    Cache::builder().ticker(clock.clone())
}

/// Asserts that the entry ends exactly `left` from now, and moves the clock to that moment.
fn assert_ends_in(cache: &Cache<u32, Token>, clock: &ManualTicker, key: u32, left: Duration) {
    let shown = cache.peek_ref(&key).map(|entry| entry.time_left());
    assert_eq!(shown, Some(Some(left)));
    clock.advance(left - NS);
    assert!(cache.contains_key(&key), "1 ns before its end");
    clock.advance(NS);
    assert!(!cache.contains_key(&key), "at its end");
}

#[test]
fn until_ends_each_value_at_exactly_its_own_instant() {
    for origin in ORIGINS {
        let clock = ManualTicker::starting_at(origin);
        let cache = builder(&clock)
            .expire_after(until(|_: &u32, token: &Token| *token))
            .build();
        clock.advance(secs(7));
        let now = cache.policy().now();
        cache.insert(1, Some(now + secs(60)));
        // An update to a later end, and one to an earlier end.
        cache.insert(1, Some(now + secs(90)));
        clock.advance(secs(20));
        cache.insert(1, Some(now + secs(50)));
        // A read moves nothing.
        clock.advance(secs(1));
        assert!(cache.get(&1).is_some());
        assert_ends_in(&cache, &clock, 1, secs(29));
        // The ended entry counts as absent: the next one is created with an end of its own.
        cache.insert(1, Some(now + secs(51)));
        assert_ends_in(&cache, &clock, 1, secs(1));
        // For ever, and then no more.
        cache.insert(1, None);
        assert_eq!(cache.peek_ref(&1).unwrap().time_left(), None);
        cache.insert(1, Some(now + secs(52)));
        assert_ends_in(&cache, &clock, 1, secs(1));
    }
}

#[test]
fn an_instant_that_has_come_is_due_at_once() {
    for origin in ORIGINS {
        let (clock, record) = (ManualTicker::starting_at(origin), Record::new());
        let cache = builder(&clock)
            .expire_after(until(|_: &u32, token: &Token| *token))
            .removal_listener(record.listener())
            .build();
        clock.advance(secs(7));
        let now = cache.policy().now();
        for (key, end) in [(1, now), (2, now - NS), (3, now - secs(7))] {
            cache.insert(key, Some(end));
            cache.insert_until(10 + key, None, end);
            let result = cache
                .entry(20 + key)
                .and_compute_with(|_| Op::PutUntil(None, end));
            assert!(matches!(result, CompResult::Inserted(entry) if !entry.is_stored()));
            for key in [key, 10 + key, 20 + key] {
                assert!(!cache.contains_key(&key), "{key}");
                assert_eq!(cache.get(&key), None);
            }
        }
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0);
        let heard = record.take_sorted();
        let keys: Vec<u32> = heard.iter().map(|(key, _, _)| *key).collect();
        assert_eq!(keys, [1, 2, 3, 11, 12, 13, 21, 22, 23]);
        assert!(heard.iter().all(|(_, _, cause)| *cause == Expired));
    }
}

#[test]
fn insert_until_and_put_until_end_at_exactly_their_instant_whatever_the_policy_says() {
    let by_policy = |clock: &ManualTicker| {
        let hour = writing(|_: &u32, _: &Token| Some(HOUR));
        builder(clock).expire_after(hour).build()
    };
    let plain = |clock: &ManualTicker| builder(clock).build();
    for origin in ORIGINS {
        for build in [&plain as &dyn Fn(&ManualTicker) -> _, &by_policy] {
            let clock = ManualTicker::starting_at(origin);
            let cache = build(&clock);
            let now = cache.policy().now();
            clock.advance(secs(3));
            cache.insert_until(1, None, now + secs(10));
            assert_ends_in(&cache, &clock, 1, secs(7));
            // Over the entry that has ended, then over a live one.
            cache.insert_until(1, None, now + secs(30));
            cache.insert_until(1, None, now + secs(20));
            assert_ends_in(&cache, &clock, 1, secs(10));

            let result = cache
                .entry(1)
                .and_compute_with(|_| Op::PutUntil(None, now + secs(22)));
            assert!(
                matches!(result, CompResult::Inserted(entry) if entry.time_left() == Some(secs(2)))
            );
            let result = cache
                .entry(1)
                .and_compute_with(|_| Op::PutUntil(None, now + secs(25)));
            assert!(
                matches!(result, CompResult::ReplacedWith(entry) if entry.time_left() == Some(secs(5)))
            );
            assert_ends_in(&cache, &clock, 1, secs(5));
        }
    }
}

/// The idle limit has left the former value as long as the new one is to live. That is no sign that
/// the policy leaves the former one's own end.
#[test]
fn until_ends_a_value_at_its_instant_though_an_idle_limit_ends_the_former_one_there() {
    let clock = ManualTicker::new();
    let cache = builder(&clock)
        .expire_after(until(|_: &u32, token: &Token| *token))
        .time_to_idle(secs(10))
        .build();
    let now = cache.policy().now();
    cache.insert(1, Some(now + secs(100)));
    cache.insert(1, Some(now + secs(10)));
    clock.advance(secs(9));
    assert!(cache.get(&1).is_some());
    assert_ends_in(&cache, &clock, 1, secs(1));
}

#[test]
fn the_earliest_of_the_instant_and_the_limits_holds() {
    let clock = ManualTicker::new();
    let cache = builder(&clock)
        .time_to_live(secs(60))
        .time_to_idle(secs(40))
        .build();
    let now = cache.policy().now();
    for (key, end, left) in [(1, 30, 30), (2, 50, 40), (3, 90, 40)] {
        cache.insert_until(key, None, now + secs(end));
        assert_eq!(
            cache.peek_ref(&key).unwrap().time_left(),
            Some(secs(left)),
            "{end}"
        );
    }
    clock.advance(secs(29));
    for (key, left) in [(1, 1), (2, 21), (3, 31)] {
        assert!(cache.get(&key).is_some());
        let shown = cache.peek_ref(&key).unwrap().time_left();
        assert_eq!(shown, Some(secs(left)), "{key}");
    }
}

#[test]
fn an_instant_beyond_the_longest_lifetime_counts_as_that() {
    let clock = ManualTicker::new();
    let cache = builder(&clock).build();
    let Some(end) = cache.policy().now().checked_add(3 * LONGEST) else {
        return; // this platform has no such instant
    };
    cache.insert_until(1, None, end);
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(LONGEST));
}

#[test]
fn until_beside_other_policies() {
    let clock = ManualTicker::new();
    let jittered = builder(&clock)
        .expire_after(jittered(until(|_: &u32, token: &Token| *token), 0.5))
        .build();
    let now = jittered.policy().now();
    jittered.insert(1, Some(now + secs(60)));
    let left = jittered.peek_ref(&1).unwrap().time_left().unwrap();
    assert!((secs(30)..=secs(60)).contains(&left), "{left:?}");

    // A policy that is asked about reads may move the deadline of `insert_until`.
    let extending = builder(&clock)
        .expire_after(accessing(|_: &u32, _: &Token| Some(HOUR)))
        .build();
    extending.insert_until(1, None, now + secs(5));
    assert!(extending.get(&1).is_some());
    assert_eq!(extending.peek_ref(&1).unwrap().time_left(), Some(HOUR));
}

#[test]
fn a_value_that_replaces_another_by_its_instant_tells_of_the_old_one() {
    let (clock, record) = (ManualTicker::new(), Record::new());
    let cache = builder(&clock).removal_listener(record.listener()).build();
    let now = cache.policy().now();
    cache.insert_until(1, None, now + secs(5));
    cache.insert_until(1, Some(now), now + secs(6));
    clock.advance(secs(6));
    cache.insert_until(1, None, now + secs(7));
    cache.run_pending_tasks();
    assert_eq!(
        record.take(),
        [(1, None, Replaced), (1, Some(now), Expired)]
    );
}

#[test]
fn on_the_default_clock_an_entry_ends_at_its_instant_of_the_programs_clock() {
    let cache: Cache<u32, Token> = Cache::builder()
        .expire_after(until(|_: &u32, token: &Token| *token))
        .build();
    for key in 0..20 {
        let end = Instant::now() + millis(2);
        let given = key % 2 == 0;
        if given {
            cache.insert(key, Some(end));
        } else {
            cache.insert_until(key, None, end);
        }
        loop {
            let before = Instant::now();
            if !cache.contains_key(&key) {
                break;
            }
            // Documented: gone within 50 µs of its deadline.
            assert!(before < end + Duration::from_micros(50), "served too late");
        }
        assert!(Instant::now() >= end, "gone too early");
    }
}
