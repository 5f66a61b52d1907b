//! The ready policies of refresh: the moments they give, asked by themselves and in a cache.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use wheelhouse::{
    Cache, Loaded, LoadingCache, ManualTicker, Refresh, SavedEntry, loader_fn, refresh,
};

const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

type Users = LoadingCache<u32, u32, String>;

fn of_create(policy: &impl Refresh<u32, u32>, life: Option<Duration>) -> Option<Duration> {
    policy.refresh_after_create(&1, &1, Instant::now(), life)
}

/// A cache of these lives, each of whose loads takes so long.
fn users(
    life: Duration,
    load_time: Duration,
    policy: impl Refresh<u32, u32>,
) -> (Users, ManualTicker) {
    let time = ManualTicker::new();
    let slow = time.clone();
    let load = loader_fn(move |key: &u32| {
        slow.advance(load_time);
        Ok::<u32, String>(*key)
    });
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(life)
        .loading(load)
        .refresh_after(policy)
        .build();
    (users, time)
}

/// Reads those of these keys that are absent, and returns how many of all are stale then.
fn stale(users: &Users, keys: std::ops::Range<u32>) -> usize {
    for key in keys.clone() {
        if !users.cache().contains_key(&key) {
            assert_eq!(users.get(&key), Ok(key));
        }
    }
    let entries = users.cache().snapshot().into_iter();
    let is_stale = |entry: &SavedEntry<u32, u32>| {
        keys.contains(&entry.key) && entry.refresh_in == Some(Duration::ZERO)
    };
    entries.filter(is_stale).count()
}

#[test]
fn moments_of_each_policy() {
    let life = Some(10 * SECOND);
    assert_eq!(
        of_create(&refresh::after(6 * SECOND), life),
        Some(6 * SECOND)
    );
    assert_eq!(
        of_create(&refresh::after(6 * SECOND), None),
        Some(6 * SECOND)
    );
    let moment = of_create(&refresh::fraction(0.8), life).unwrap();
    assert!(moment.abs_diff(8 * SECOND) < MICRO, "{moment:?}");
    assert_eq!(of_create(&refresh::fraction(0.8), None), None);
    assert_eq!(of_create(&refresh::never(), life), None);
    let jittered = refresh::jittered(refresh::after(100 * SECOND), 0.1);
    let moments: HashSet<Duration> = (0..1_000)
        .map(|_| of_create(&jittered, None).unwrap())
        .collect();
    assert!(moments.len() > 900, "drawn for each write");
    for moment in moments {
        assert!(
            moment >= 90 * SECOND && moment <= 110 * SECOND,
            "{moment:?}"
        );
    }
}

#[test]
fn each_policy_tries_again_after_the_usual_pause() {
    fn pauses(policy: &impl Refresh<u32, u32>) {
        for (failures, seconds) in [(1, 1), (2, 2), (3, 4), (7, 64), (100, 64)] {
            let pause = policy.refresh_after_failure(&1, &1, failures, None);
            assert_eq!(pause, Some(seconds * SECOND));
        }
    }
    pauses(&refresh::after(SECOND));
    pauses(&refresh::fraction(0.5));
    pauses(&refresh::early(1.0));
    pauses(&refresh::jittered(refresh::after(SECOND), 0.0));
}

#[test]
fn jittered_passes_each_question_on() {
    struct Kinds;
    impl Refresh<u32, u32> for Kinds {
        fn refresh_after_create(
            &self,
            _: &u32,
            _: &u32,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(SECOND)
        }

        fn refresh_after_update(
            &self,
            _: &u32,
            _: &u32,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(2 * SECOND)
        }

        fn refresh_after_reload(
            &self,
            _: &u32,
            _: &u32,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(3 * SECOND)
        }

        fn refresh_after_failure(
            &self,
            _: &u32,
            _: &u32,
            _: u32,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(4 * SECOND)
        }
    }
    let (policy, at) = (refresh::jittered(Kinds, 0.0), Instant::now());
    let answers = [
        policy.refresh_after_create(&1, &1, at, None),
        policy.refresh_after_update(&1, &1, at, None),
        policy.refresh_after_reload(&1, &1, at, None),
        policy.refresh_after_failure(&1, &1, 1, None),
    ];
    assert_eq!(answers, [1, 2, 3, 4].map(|seconds| Some(seconds * SECOND)));
}

#[test]
fn a_fraction_is_that_of_each_entrys_own_lifetime() {
    let time = ManualTicker::new();
    let load = loader_fn(|key: &u32| Ok::<_, String>(Loaded::new(*key).expires_in(*key * SECOND)));
    let users: Users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(load)
        .refresh_after(refresh::fraction(0.5))
        .build();
    assert_eq!(stale(&users, 10..12), 0);
    users.cache().insert(12, 12);
    time.advance(5 * SECOND - MICRO);
    assert_eq!(stale(&users, 10..13), 0);
    time.advance(2 * MICRO);
    assert_eq!(stale(&users, 10..13), 1);
    // The last has no life of which there could be a half.
    time.advance(1_000_000 * SECOND);
    assert_eq!(stale(&users, 12..13), 0);
}

/// `deadline - δ·β·X`, X exponential: its mean is 1, and it is above 1 with a probability of 1/e.
#[test]
fn early_moments_are_distributed_as_promised() {
    let (users, _) = users(10_000_000 * SECOND, 2 * SECOND, refresh::early(100.0));
    assert_eq!(stale(&users, 0..2_000), 0);
    let lead = |entry: SavedEntry<u32, u32>| {
        let moment = entry.refresh_in.expect("each has a moment");
        let left = entry.time_left.expect("each has a deadline");
        (left - moment).as_secs_f64() / 200.0
    };
    let leads: Vec<f64> = users.cache().snapshot().into_iter().map(lead).collect();
    let count = leads.len() as f64;
    let mean = leads.iter().sum::<f64>() / count;
    let above = leads.iter().filter(|lead| **lead > 1.0).count() as f64 / count;
    // Five standard deviations of each.
    assert!((mean - 1.0).abs() < 0.112, "{mean}");
    assert!((above - (-1.0_f64).exp()).abs() < 0.054, "{above}");
}

#[test]
fn early_is_at_most_half_of_the_lifetime() {
    let (users, time) = users(1_000 * SECOND, MICRO, refresh::early(1e15));
    assert_eq!(stale(&users, 0..100), 0);
    // The first was loaded 100 µs before now.
    time.advance(500 * SECOND - 150 * MICRO);
    assert_eq!(stale(&users, 0..100), 0);
    time.advance(200 * MICRO);
    assert_eq!(stale(&users, 0..100), 100);
}

#[test]
fn early_is_drawn_once_for_each_write() {
    let (users, time) = users(100_000 * SECOND, SECOND, refresh::early(10.0));
    assert_eq!(stale(&users, 0..1), 0);
    let moment = || {
        let entry = users.cache().snapshot().into_iter().next().unwrap();
        entry.refresh_in.unwrap()
    };
    let first = moment();
    for _ in 0..100 {
        time.advance(SECOND);
        assert_eq!((stale(&users, 0..1), users.get(&0)), (0, Ok(0)));
    }
    assert_eq!(moment(), first - 100 * SECOND, "reads draw no other");
    let drawn: HashSet<Duration> = (0..100)
        .map(|_| {
            users.refresh(0).wait().unwrap();
            moment()
        })
        .collect();
    assert!(drawn.len() > 90, "each write draws another");
}

#[test]
fn early_of_zero_is_never_early() {
    let (users, time) = users(10 * SECOND, SECOND, refresh::early(0.0));
    assert_eq!(stale(&users, 0..1), 0);
    time.advance(10 * SECOND - Duration::from_nanos(1));
    assert_eq!(stale(&users, 0..1), 0);
    assert_eq!(users.cache().stats().loads(), 1);
}
