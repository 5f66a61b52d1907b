//! Look-ups and reads that extend, on an exact clock and a coarse clock of the test.

use crate::time::tests::{Clocks, random};
use crate::{Cache, CacheBuilder, Expiry, Scheduler, expiry, loader_fn, refresh};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;
const SLACK: u64 = SECOND / 10;
const START: u64 = 5 * SECOND;
const HOUR: Duration = Duration::from_secs(3600);

fn cache(
    clocks: Clocks,
    settings: impl FnOnce(CacheBuilder<u64, u64>) -> CacheBuilder<u64, u64>,
) -> Cache<u64, u64> {
    let builder = Cache::builder().scheduler(Scheduler::disabled());
    clocks.build(|| settings(builder).build())
}

/// Whether each kind of look-up finds the key.
fn finds(cache: &Cache<u64, u64>, key: u64) -> [bool; 6] {
    [
        cache.contains_key(&key),
        cache.peek_ref(&key).is_some(),
        cache.iter().any(|entry| *entry.key() == key),
        cache.get_many([&key])[0].is_some(),
        cache.get(&key).is_some(),
        cache.get_ref(&key).is_some(),
    ]
}

#[test]
fn every_look_up_judges_exactly_on_both_sides_of_the_slack() {
    for lag in [0, 4_000_000, SLACK / 2] {
        for life in [
            1,
            SLACK / 2,
            SLACK - 1,
            SLACK,
            SLACK + 1,
            SECOND,
            60 * SECOND,
        ] {
            for before in [1, SLACK / 2, SLACK, SLACK + 1, 0] {
                let clocks = Clocks::new(START);
                let cache = cache(clocks, |builder| builder);
                cache.insert_with_ttl(1, 1, Duration::from_nanos(life));
                let Some(now) = life.checked_sub(before) else {
                    continue;
                };
                clocks.set(START + now, lag as i64);
                let there = before > 0;
                assert_eq!(
                    finds(&cache, 1),
                    [there; 6],
                    "lag {lag}, life {life}, {before} left"
                );
            }
        }
    }
}

type Settings = Box<dyn FnOnce(Builder) -> Builder>;
type Builder = CacheBuilder<u64, u64>;
type Kind = (&'static str, fn(Duration) -> Settings);

#[test]
fn an_idle_limit_counts_from_the_read_or_up_to_a_tenth_of_a_second_later() {
    let ten = Duration::from_secs(10);
    let kinds: [Kind; 2] = [
        ("time_to_idle", |life| {
            Box::new(move |builder| builder.time_to_idle(life))
        }),
        ("accessing", |life| {
            let policy = expiry::accessing(move |_: &u64, _: &u64| Some(life));
            Box::new(move |builder| builder.expire_after(policy))
        }),
    ];
    for (kind, settings) in kinds {
        for life in [ten, ten - Duration::from_nanos(1), HOUR] {
            for lag in [0, 3_000_000, SLACK / 2] {
                let clocks = Clocks::new(START);
                let cache = cache(clocks, settings(life));
                cache.insert(1, 1);
                let read = START + 5 * SECOND;
                clocks.set(read, lag as i64);
                assert_eq!(cache.get(&1), Some(1));
                let nanos = life.as_nanos() as u64;
                let late = if life < ten { 0 } else { SLACK - lag };
                let what = format!("{kind} of {life:?}, lag {lag}");
                clocks.set(read + nanos - 1, lag as i64);
                assert!(cache.contains_key(&1), "{what}: early");
                if late > 0 {
                    clocks.set(read + nanos + late - 1, lag as i64);
                    assert!(
                        cache.contains_key(&1),
                        "{what}: it counts from the coarse reading"
                    );
                }
                clocks.set(read + nanos + late, lag as i64);
                assert_eq!(finds(&cache, 1), [false; 6], "{what}: late");
            }
        }
    }
}

#[test]
fn reads_within_half_of_the_slack_store_one_deadline() {
    let idle = |builder: Builder| builder.time_to_idle(HOUR);
    stores_one_deadline(idle);
    // Here, the size policy has to hear of each read.
    stores_one_deadline(|builder| idle(builder).max_capacity(100));
}

fn stores_one_deadline(settings: impl FnOnce(Builder) -> Builder) {
    let clocks = Clocks::new(START);
    let cache = cache(clocks, settings);
    cache.insert(1, 1);
    let left = |after: u64, lag: u64| {
        let engine = cache.engine();
        if engine.max_capacity().is_some() {
            engine.reads.renew();
        }
        clocks.set(START + SECOND + after, lag as i64);
        assert_eq!(cache.get(&1), Some(1));
        clocks.set(START + SECOND, 0);
        cache.peek_ref(&1).unwrap().time_left().unwrap()
    };
    let first = HOUR + Duration::from_nanos(SLACK);
    assert_eq!(left(0, 0), first);
    for (after, lag) in [
        (1, 1),
        (4_000_000, 0),
        (SLACK / 2 - 1, 0),
        (SLACK - 1, SLACK / 2),
    ] {
        assert_eq!(left(after, lag), first, "{after} ns later, lag {lag}");
    }
    let moved = first + Duration::from_nanos(SLACK / 2);
    assert_eq!(left(SLACK / 2, 0), moved);
}

#[test]
fn the_first_read_of_a_policy_without_reads_moves_an_idle_limit_by_its_exact_reading() {
    struct NoReads;
    impl Expiry<u64, u64> for NoReads {
        fn expire_after_create(&self, _: &u64, _: &u64, _: Instant) -> Option<Duration> {
            None
        }
    }
    let clocks = Clocks::new(START);
    let cache = cache(clocks, |builder| {
        builder.expire_after(NoReads).time_to_idle(HOUR)
    });
    cache.insert(1, 1);
    let read = START + SLACK / 2 - 1;
    clocks.set(read, 0);
    assert_eq!(cache.get(&1), Some(1));
    clocks.set(read + HOUR.as_nanos() as u64 - 1, 0);
    assert!(cache.contains_key(&1), "early");
}

#[test]
fn reads_by_the_exact_clock_move_an_idle_limit_once_in_a_few_microseconds() {
    for limit in [SECOND, SECOND / 100, 4_096, 8, 1] {
        let grain = crate::time::EXACT_GRAIN.min(limit / 8);
        let clocks = Clocks::new(START);
        let idle = Duration::from_nanos(limit);
        let cache = cache(clocks, |builder| builder.time_to_idle(idle));
        let left_after_read = |after: u64| {
            clocks.set(START, 0);
            cache.insert(1, 1);
            clocks.set(START + after, 0);
            assert_eq!(cache.get(&1), Some(1));
            cache.peek_ref(&1).unwrap().time_left().unwrap()
        };
        for after in [0, grain.saturating_sub(1), grain, 2 * grain] {
            let moves = after >= grain;
            let passed = if moves { 0 } else { after };
            let left = idle - Duration::from_nanos(passed);
            assert_eq!(left_after_read(after), left, "{idle:?}, {after} ns later");
            // The last nanosecond counts, and the next one does not.
            let end = START + after + limit - passed;
            clocks.set(end - 1, 0);
            assert!(cache.contains_key(&1), "{idle:?}, {after} ns later: early");
            clocks.set(end, 0);
            assert_eq!(finds(&cache, 1), [false; 6], "{idle:?}: late");
        }
    }
}

#[test]
fn an_idle_limit_is_never_early_and_at_most_a_tenth_of_a_second_late() {
    let (clocks, mut state) = (Clocks::new(START), 1);
    let mut below = |most: u64| random(&mut state) % most;
    let cache = cache(clocks, |builder| builder.time_to_idle(HOUR));
    let (hour, mut now) = (HOUR.as_nanos() as u64, START);
    for round in 0..2_000 {
        cache.insert(1, 1);
        for _ in 0..below(20) {
            now += below(2 * SLACK / 3);
            clocks.set(now, below(SLACK / 2 + 1) as i64);
            assert_eq!(cache.get(&1), Some(1));
        }
        let mut there = |at: u64| {
            clocks.set(at, below(SLACK / 2 + 1) as i64);
            cache.contains_key(&1)
        };
        assert!(there(now + hour - 1), "early in round {round}");
        now += hour + SLACK;
        assert!(!there(now), "late in round {round}");
    }
}

/// A value whose clone calls the cache, once.
struct Clones(Arc<Mutex<Option<Call>>>);
type Call = Box<dyn FnOnce() + Send>;

impl Clone for Clones {
    fn clone(&self) -> Self {
        let call = self.0.lock().unwrap().take();
        if let Some(call) = call {
            call();
        }
        Self(Arc::clone(&self.0))
    }
}

#[test]
fn a_read_with_an_old_reading_moves_no_deadline_back() {
    let clocks = Clocks::new(START);
    let builder = Cache::builder().scheduler(Scheduler::disabled());
    let cache = clocks.build(|| builder.time_to_idle(HOUR).build());
    let hook = Arc::new(Mutex::new(None));
    cache.insert(1, Clones(Arc::clone(&hook)));
    clocks.set(START + SECOND, 0);
    let inner = cache.clone();
    *hook.lock().unwrap() = Some(Box::new(move || {
        clocks.set(START + 60 * SECOND, 0);
        assert!(inner.get(&1).is_some());
    }));
    assert!(cache.get(&1).is_some(), "its reading is a minute old");
    let left = cache.peek_ref(&1).unwrap().time_left().unwrap();
    assert_eq!(left, HOUR + Duration::from_nanos(SLACK));
}

#[test]
fn an_idle_limit_leaves_an_own_deadline_that_is_earlier() {
    let clocks = Clocks::new(START);
    let cache = cache(clocks, |builder| builder.time_to_idle(HOUR));
    let own = HOUR + Duration::from_secs(1);
    cache.insert_with_ttl(1, 1, own);
    for second in 1..10 {
        clocks.set(START + second * SECOND, 0);
        assert_eq!(cache.get(&1), Some(1));
        let left = cache.peek_ref(&1).unwrap().time_left().unwrap();
        assert_eq!(left, own - Duration::from_secs(second));
    }
    assert!(cache.set_expiry(&1, None));
    clocks.set(START + 10 * SECOND, 0);
    assert_eq!(cache.get(&1), Some(1));
    let left = cache.peek_ref(&1).unwrap().time_left().unwrap();
    assert_eq!(left, HOUR + Duration::from_nanos(SLACK));
}

#[test]
fn an_entry_is_stale_from_its_moment_on_and_not_before() {
    for lag in [0, 3_000_000, SLACK / 2] {
        for lives in [None, Some(HOUR)] {
            let clocks = Clocks::new(START);
            let mut builder = Cache::builder().scheduler(Scheduler::disabled());
            if let Some(lives) = lives {
                builder = builder.time_to_live(lives);
            }
            let cache = clocks.build(|| {
                (builder.loading(loader_fn(|key: &u64| Ok::<_, ()>(*key))))
                    .refresh_after(refresh::after(Duration::from_secs(1)))
                    .build()
            });
            cache.cache().insert(1, 1);
            let is_stale = |at: u64| {
                clocks.set(at, lag as i64);
                let entry = cache.cache().get_ref(&1).unwrap();
                let engine = cache.cache().engine();
                let is_stale = engine.is_stale(entry.node, None);
                let bound = engine.clock.upper_bound();
                assert_eq!(engine.is_stale(entry.node, bound), is_stale);
                is_stale
            };
            for left in [SLACK, SLACK - lag, SLACK / 2, 1] {
                assert!(!is_stale(START + SECOND - left), "lag {lag}, {left} left");
            }
            for past in [0, lag, SECOND] {
                assert!(
                    is_stale(START + SECOND + past),
                    "lag {lag}, lives {lives:?}"
                );
            }
        }
    }
}

#[test]
fn a_policy_of_the_users_is_told_the_exact_time() {
    #[derive(Clone, Default)]
    struct Scribe(Arc<Mutex<Vec<Instant>>>);
    impl Expiry<u64, u64> for Scribe {
        fn expire_after_create(&self, _: &u64, _: &u64, at: Instant) -> Option<Duration> {
            self.0.lock().unwrap().push(at);
            Some(HOUR)
        }

        fn expire_after_read(
            &self,
            _: &u64,
            _: &u64,
            at: Instant,
            left: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            self.0.lock().unwrap().push(at);
            left
        }
    }
    let scribe = Scribe::default();
    let clocks = Clocks::new(START);
    let policy = scribe.clone();
    let cache = cache(clocks, |builder| builder.expire_after(policy));
    cache.insert(1, 1);
    for round in 1..4 {
        clocks.set(START + round * SECOND, 3_000_000);
        assert_eq!(cache.get(&1), Some(1));
    }
    let told = scribe.0.lock().unwrap().clone();
    let steps: Vec<_> = told.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps, [Duration::from_secs(1); 3]);
}
