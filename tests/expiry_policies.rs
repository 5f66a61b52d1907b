//! The ready policies.

mod support;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{Dial, LONGEST, NS, YEAR, millis, nanos, secs};
use wheelhouse::RemovalCause::{Expired, Replaced};
use wheelhouse::expiry::{accessing, creating, jittered, never, writing};
use wheelhouse::{Cache, Expiry, ManualTicker, Scheduler};

fn cache_with(policy: impl Expiry<u32, u32>) -> (Cache<u32, u32>, ManualTicker) {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .expire_after(policy)
        .ticker(clock.clone())
        .build();
    (cache, clock)
}

fn left(cache: &Cache<u32, u32>, key: u32) -> Option<Option<Duration>> {
    cache.peek_ref(&key).map(|entry| entry.time_left())
}

/// The value is the life in seconds; 0 means that it never ends.
fn by_value(_: &u32, value: &u32) -> Option<Duration> {
    (*value > 0).then(|| secs(u64::from(*value)))
}

#[test]
fn creating_sets_the_deadline_once() {
    let (cache, clock) = cache_with(creating(by_value));
    cache.insert(1, 10);
    cache.insert(2, 0);
    clock.advance(secs(4));
    assert_eq!(cache.get(&1), Some(10));
    cache.insert(1, 99);
    cache.insert(2, 99);
    assert_eq!(left(&cache, 1), Some(Some(secs(6))));
    assert_eq!(left(&cache, 2), Some(None));
    clock.advance(secs(6));
    cache.insert(1, 99);
    assert_eq!(
        left(&cache, 1),
        Some(Some(secs(99))),
        "the expired one counts as absent"
    );
}

#[test]
fn writing_sets_the_deadline_on_create_and_update() {
    let (cache, clock) = cache_with(writing(by_value));
    cache.insert(1, 10);
    clock.advance(secs(4));
    assert_eq!(cache.get(&1), Some(10));
    assert_eq!(left(&cache, 1), Some(Some(secs(6))));
    cache.insert(1, 20);
    assert_eq!(left(&cache, 1), Some(Some(secs(20))));
    cache.insert(1, 0);
    assert_eq!(left(&cache, 1), Some(None));
    cache.insert(1, 5);
    assert_eq!(left(&cache, 1), Some(Some(secs(5))));
}

#[test]
fn accessing_sets_the_deadline_on_reads_too() {
    let (cache, clock) = cache_with(accessing(by_value));
    cache.insert(1, 10);
    for _ in 0..5 {
        clock.advance(secs(10) - NS);
        assert_eq!(cache.get(&1), Some(10));
        assert_eq!(left(&cache, 1), Some(Some(secs(10))));
    }
    clock.advance(secs(3));
    assert_eq!(
        cache.get_ref(&1).and_then(|entry| entry.time_left()),
        Some(secs(10))
    );
    cache.insert(1, 2);
    assert_eq!(left(&cache, 1), Some(Some(secs(2))));
    clock.advance(secs(2));
    assert_eq!(cache.get(&1), None);
}

/// A value whose clone takes a second.
struct Slow(ManualTicker);

impl Clone for Slow {
    fn clone(&self) -> Self {
        self.0.advance(secs(1));
        Self(self.0.clone())
    }
}

#[test]
fn a_life_that_a_read_gives_begins_when_all_user_code_has_run() {
    let clock = ManualTicker::new();
    let (asked, takes) = (clock.clone(), Arc::new(AtomicU32::new(1)));
    let delay = Arc::clone(&takes);
    let cache: Cache<u32, Slow> = Cache::builder()
        .expire_after(accessing(move |_: &u32, _: &Slow| {
            asked.advance(secs(delay.load(Relaxed).into()));
            Some(secs(10))
        }))
        .record_stats()
        .ticker(clock.clone())
        .build();
    let left = || cache.peek_ref(&1).map(|entry| entry.time_left());
    cache.insert(1, Slow(clock.clone()));
    clock.advance(secs(7));
    assert!(cache.get(&1).is_some(), "9 of 10 seconds are over");
    assert_eq!(left(), Some(Some(secs(10))));
    assert!(cache.get_ref(&1).is_some());
    assert_eq!(left(), Some(Some(secs(10))));

    // The policy takes until the deadline; then the clone does.
    clock.advance(secs(9));
    assert!(cache.get_ref(&1).is_none());
    cache.insert(1, Slow(clock.clone()));
    clock.advance(secs(8));
    assert!(cache.get(&1).is_none());
    takes.store(u32::MAX, Relaxed);
    cache.insert(1, Slow(clock.clone()));
    assert!(cache.get(&1).is_none());
    cache.run_pending_tasks();
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (2, 3));
    assert_eq!(cache.stats().removals(Expired), 3);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn a_hit_reads_the_clock_once_and_again_if_the_policy_moves_the_deadline() {
    let builder = || Cache::builder().scheduler(Scheduler::disabled());
    for (builder, readings) in [
        (builder().expire_after(writing(by_value)), 1),
        (builder().expire_after(accessing(by_value)), 2),
        (builder().time_to_idle(secs(1)), 1),
    ] {
        let clock = Dial::at(0);
        let cache: Cache<u32, u32> = builder.ticker(clock.clone()).build();
        cache.insert(1, 1_000);
        let before = clock.readings();
        for time in 1..=100 {
            clock.set(2 * time);
            assert_eq!(cache.get(&1), Some(1_000));
            clock.set(2 * time + 1);
            assert!(cache.get_ref(&1).is_some());
        }
        assert_eq!(clock.readings() - before, 200 * readings);
    }
}

/// Counts the questions: on create, on update, on read.
struct Counting(Arc<[AtomicU32; 3]>, bool);

impl Expiry<u32, u32> for Counting {
    fn expire_after_create(&self, key: &u32, value: &u32, _: Instant) -> Option<Duration> {
        self.0[0].fetch_add(1, Relaxed);
        by_value(key, value)
    }

    fn expire_after_update(
        &self,
        key: &u32,
        value: &u32,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.0[1].fetch_add(1, Relaxed);
        by_value(key, value)
    }

    fn expire_after_read(
        &self,
        key: &u32,
        value: &u32,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        self.0[2].fetch_add(1, Relaxed);
        by_value(key, value)
    }

    fn looks_at_times(&self) -> bool {
        !self.1
    }

    fn looks_at_the_entry_alone(&self) -> bool {
        self.1
    }
}

#[test]
fn a_policy_of_key_and_value_is_asked_once_a_call_and_means_the_same() {
    let asked = |plain: bool| {
        let counts = Arc::new([const { AtomicU32::new(0) }; 3]);
        let left_by = Arc::new(Mutex::new(Vec::new()));
        let clock = ManualTicker::new();
        let told = Arc::clone(&left_by);
        let cache: Cache<u32, u32> = Cache::builder()
            .expire_after(Counting(Arc::clone(&counts), plain))
            .removal_listener(move |_: &u32, value: &u32, cause| {
                told.lock().unwrap().push((*value, cause));
            })
            .ticker(clock.clone())
            .build();
        cache.insert(1, 10);
        clock.advance(secs(9));
        cache.insert(1, 11);
        assert_eq!(left(&cache, 1), Some(Some(secs(11))));
        clock.advance(secs(10));
        assert_eq!(cache.get(&1), Some(11));
        assert_eq!(left(&cache, 1), Some(Some(secs(11))), "the read extends");
        // Dead: asked as about a new one, and never about the read.
        clock.advance(secs(11));
        assert_eq!(cache.get(&1), None);
        cache.insert(1, 0);
        assert_eq!((cache.get(&1), left(&cache, 1)), (Some(0), Some(None)));
        cache.insert(1, 5);
        clock.advance(secs(5));
        cache.insert(1, 6);
        cache.run_pending_tasks();
        let left_by = left_by.lock().unwrap().clone();
        (counts.each_ref().map(|count| count.load(Relaxed)), left_by)
    };
    let ((counts, left_by), (plain_counts, plain_left_by)) = (asked(false), asked(true));
    let causes = [Replaced, Expired, Replaced, Expired];
    assert_eq!(
        left_by,
        [10, 11, 0, 5].into_iter().zip(causes).collect::<Vec<_>>()
    );
    assert_eq!(plain_left_by, left_by);
    assert_eq!(counts, [3, 2, 2]);
    assert_eq!(
        plain_counts,
        [5, 0, 2],
        "one question a call, and none about the dead"
    );
}

#[test]
fn never_never_ends_but_leaves_room_for_other_deadlines() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .expire_after(never())
        .time_to_live(secs(5))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    assert_eq!(left(&cache, 1), Some(Some(secs(5))));
    clock.advance(secs(5));
    assert_eq!(cache.get(&1), None);

    let (cache, clock) = cache_with(never());
    cache.insert(1, 1);
    clock.advance(YEAR);
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(left(&cache, 1), Some(None));
    cache.insert_with_ttl(2, 2, secs(1));
    assert_eq!(left(&cache, 2), Some(Some(secs(1))));
}

#[test]
fn jitter_spreads_lives_within_its_fraction_and_no_further() {
    let (cache, _clock) = cache_with(jittered(creating(|_, _| Some(secs(100))), 0.2));
    let lives: Vec<Duration> = (0..1_000)
        .map(|key| {
            cache.insert(key, 0);
            left(&cache, key).unwrap().unwrap()
        })
        .collect();
    let (least, most) = (*lives.iter().min().unwrap(), *lives.iter().max().unwrap());
    assert!(least >= secs(80) - millis(1), "{least:?}");
    assert!(most <= secs(120) + millis(1), "{most:?}");
    assert!(
        most - least > secs(10),
        "a thousand draws lie between {least:?} and {most:?}"
    );
}

#[test]
fn jitter_touches_neither_unchanged_nor_missing_deadlines() {
    let (cache, clock) = cache_with(jittered(creating(by_value), 0.5));
    cache.insert(1, 100);
    cache.insert(2, 0);
    let first = left(&cache, 1).unwrap().unwrap();
    for n in 1..=20 {
        clock.advance(secs(1));
        assert!(cache.get(&1).is_some());
        cache.insert(1, 100);
        assert_eq!(left(&cache, 1), Some(Some(first - secs(n))));
        assert!(cache.get(&2).is_some());
        assert_eq!(left(&cache, 2), Some(None));
    }
}

#[test]
fn jitter_survives_every_life() {
    for life in [Duration::ZERO, NS, LONGEST, Duration::MAX] {
        let (cache, _clock) = cache_with(jittered(creating(move |_, _| Some(life)), 0.9));
        for key in 0..50 {
            cache.insert(key, 0);
            let left = left(&cache, key);
            assert!(
                left.is_none_or(|left| left.is_some_and(|left| left <= LONGEST)),
                "{left:?}"
            );
            assert!(life > NS || left.is_none_or(|left| left <= Some(nanos(2))));
        }
    }
}

#[test]
fn a_read_answered_with_none_ends_a_deadline_set_by_hand() {
    let (cache, clock) = cache_with(accessing(by_value));
    for life in [NS, secs(10), YEAR] {
        cache.insert_with_ttl(1, 0, life);
        assert_eq!(left(&cache, 1), Some(Some(life)));
        assert_eq!(cache.get(&1), Some(0));
        assert_eq!(left(&cache, 1), Some(None));
        cache.insert_with_ttl(1, 0, life);
        assert!(cache.get_ref(&1).is_some());
        clock.advance(life);
        assert_eq!(cache.get(&1), Some(0), "it lives for ever");
    }
}

/// A value that must not be cloned once the flag is set.
struct Sealed(Arc<AtomicU32>);

impl Clone for Sealed {
    fn clone(&self) -> Self {
        assert_eq!(self.0.load(Relaxed), 0, "cloned");
        Self(Arc::clone(&self.0))
    }
}

#[test]
fn a_look_up_of_an_entry_that_is_due_asks_and_clones_nothing() {
    let (clock, sealed) = (ManualTicker::new(), Arc::new(AtomicU32::new(0)));
    let asked = Arc::clone(&sealed);
    let cache: Cache<u32, Sealed> = Cache::builder()
        .expire_after(accessing(move |_: &u32, _: &Sealed| {
            assert_eq!(asked.load(Relaxed), 0, "asked");
            Some(secs(1))
        }))
        .ticker(clock.clone())
        .build();
    cache.insert(1, Sealed(Arc::clone(&sealed)));
    clock.advance(secs(1));
    sealed.store(1, Relaxed);
    assert!(cache.get_ref(&1).is_none());
    assert!(cache.get(&1).is_none());
    assert!(cache.get_many([&1])[0].is_none());
}
