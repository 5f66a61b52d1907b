//! The ready-made policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::acting::Acting;
use crate::support::{Dial, LONGEST, NS, YEAR, millis, nanos, secs};
use wheelhouse::RemovalCause::Expired;
use wheelhouse::expiry::{accessing, creating, jittered, never, writes_only, writing};
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

/// Says itself until when it is valid.
type Token = Instant;

/// As the trait's documentation shows it: create and update.
struct UntilValid;

impl Expiry<u64, Token> for UntilValid {
    fn expire_after_create(&self, _: &u64, token: &Token, now: Instant) -> Option<Duration> {
        Some(*token - now)
    }

    fn expire_after_update(
        &self,
        _: &u64,
        token: &Token,
        now: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(*token - now)
    }
}

/// Leaves update to the default.
struct FirstOnly;

impl Expiry<u64, Token> for FirstOnly {
    fn expire_after_create(&self, _: &u64, token: &Token, now: Instant) -> Option<Duration> {
        Some(*token - now)
    }
}

#[test]
fn a_renewed_token_lives_as_long_as_it_says_itself() {
    let clock = ManualTicker::new();
    let tokens = Cache::builder()
        .expire_after(UntilValid)
        .ticker(clock.clone())
        .build();
    let start = tokens.policy().now();
    let until = |seconds| start + secs(seconds);
    // One that is shorter than the first, and one that is longer.
    for (key, renewed) in [(1, 1), (2, 90)] {
        tokens.insert(key, until(60));
        tokens.insert(key, until(renewed));
    }
    clock.advance(secs(1) - NS);
    assert_eq!(tokens.get(&1), Some(until(1)));
    clock.advance(NS);
    assert_eq!(tokens.get(&1), None, "exactly when it says");
    clock.advance(secs(89) - NS);
    assert_eq!(tokens.get(&2), Some(until(90)), "past the end of the first");
    clock.advance(NS);
    assert_eq!(tokens.get(&2), None);
}

#[test]
fn a_closure_asked_by_writing_renews_too() {
    let (cache, clock) = cache_with(writing(by_value));
    cache.insert(1, 60);
    cache.insert(1, 1);
    clock.advance(secs(30));
    assert_eq!(cache.get(&1), None);
}

/// The default of `expire_after_update`, which the documentation of `Expiry` warns of.
#[test]
fn a_policy_without_update_keeps_the_deadline_of_the_first_value() {
    let clock = ManualTicker::new();
    let tokens = Cache::builder()
        .expire_after(FirstOnly)
        .ticker(clock.clone())
        .build();
    let start = tokens.policy().now();
    for (key, renewed) in [(1, 1), (2, 90)] {
        for seconds in [60, renewed] {
            tokens.insert(key, start + secs(seconds));
        }
    }
    clock.advance(secs(60) - NS);
    assert!(tokens.contains_key(&1) && tokens.contains_key(&2));
    clock.advance(NS);
    assert!(!tokens.contains_key(&1) && !tokens.contains_key(&2));
}

/// Added to a value of another type that each read keeps alive.
const HOT: u64 = 1_000;

/// Of a value of another type: the lifetime in seconds, and whether reads count.
fn parts(value: &u64) -> (u32, bool) {
    ((value % HOT) as u32, *value >= HOT)
}

/// The value is the lifetime in seconds; 0 means never.
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

/// A policy as a user writes it: a value's seconds from its creation and from each read.
struct Ordinary;

impl Expiry<u32, u32> for Ordinary {
    fn expire_after_create(&self, key: &u32, value: &u32, _: Instant) -> Option<Duration> {
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
        by_value(key, value)
    }
}

/// The first read may find out that a policy inherits its method for reads. An inner policy that
/// does says nothing about the outer one, which calls it for some reads only.
#[test]
fn a_policy_that_passes_some_reads_on_is_asked_about_each() {
    struct Created;
    impl Expiry<u32, u32> for Created {
        fn expire_after_create(&self, key: &u32, value: &u32, _: Instant) -> Option<Duration> {
            by_value(key, value)
        }
    }
    struct Even(Created);
    impl Expiry<u32, u32> for Even {
        fn expire_after_create(&self, key: &u32, value: &u32, at: Instant) -> Option<Duration> {
            self.0.expire_after_create(key, value, at)
        }

        fn expire_after_read(
            &self,
            key: &u32,
            value: &u32,
            at: Instant,
            left: Option<Duration>,
            written: Instant,
        ) -> Option<Duration> {
            if key % 2 == 0 {
                by_value(key, value)
            } else {
                self.0.expire_after_read(key, value, at, left, written)
            }
        }
    }
    let shared: Arc<dyn Expiry<u32, u32>> = Arc::new(Even(Created));
    for builder in [
        Cache::builder().expire_after(Even(Created)),
        Cache::builder().expire_after(Box::new(Even(Created))),
        Cache::builder().expire_after(shared),
        Cache::builder()
            .record_stats()
            .expire_after(jittered(Even(Created), 0.0)),
    ] {
        let clock = ManualTicker::new();
        let cache: Cache<u32, u32> = builder.ticker(clock.clone()).build();
        cache.insert(1, 10);
        cache.insert(2, 10);
        clock.advance(secs(4));
        for key in [1, 2] {
            assert_eq!(cache.get(&key), Some(10));
        }
        assert_eq!(left(&cache, 1), Some(Some(secs(6))));
        assert_eq!(left(&cache, 2), Some(Some(secs(10))));
    }
    // One type, with a method for reads of some values, which calls the one for all others.
    impl Expiry<u64, u64> for Created {
        fn expire_after_create(&self, key: &u64, value: &u64, at: Instant) -> Option<Duration> {
            let (seconds, _) = parts(value);
            self.expire_after_create(&(*key as u32), &seconds, at)
        }

        fn expire_after_read(
            &self,
            key: &u64,
            value: &u64,
            at: Instant,
            left: Option<Duration>,
            written: Instant,
        ) -> Option<Duration> {
            let (key, (seconds, is_hot)) = (*key as u32, parts(value));
            if is_hot {
                by_value(&key, &seconds)
            } else {
                self.expire_after_read(&key, &seconds, at, left, written)
            }
        }
    }
    let clock = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .expire_after(Created)
        .build();
    cache.insert(1, 10);
    cache.insert(2, HOT + 10);
    clock.advance(secs(4));
    for (key, time_left) in [(1, 6), (2, 10)] {
        assert!(cache.get(&key).is_some());
        let entry = cache.peek_ref(&key).unwrap();
        assert_eq!(entry.time_left(), Some(secs(time_left)));
    }
    // Asked or not, a policy with create only leaves deadlines where they are.
    for builder in [
        Cache::builder().expire_after(Created),
        Cache::builder().expire_after(Box::new(Created)),
        Cache::builder().record_stats().expire_after(Created),
    ] {
        let clock = ManualTicker::new();
        let cache: Cache<u32, u32> = builder.ticker(clock.clone()).build();
        cache.insert(1, 10);
        for passed in 1..10 {
            clock.advance(secs(1));
            assert_eq!(cache.get(&1), Some(10));
            assert_eq!(cache.get_many([&1]), [Some(10)]);
            assert_eq!(left(&cache, 1), Some(Some(secs(10 - passed))));
        }
        clock.advance(secs(1));
        assert_eq!(cache.get(&1), None);
    }
}

/// One type may be a policy for several types of entries. Whether it inherits its method for reads
/// of one of them says nothing about another.
#[test]
fn a_policy_for_two_types_of_values_is_asked_about_each_read_of_the_one_that_has_a_method() {
    struct Both;
    impl Expiry<u32, u32> for Both {
        fn expire_after_create(&self, key: &u32, value: &u32, _: Instant) -> Option<Duration> {
            by_value(key, value)
        }
    }
    impl Expiry<u64, u64> for Both {
        fn expire_after_create(&self, key: &u64, value: &u64, at: Instant) -> Option<Duration> {
            let (seconds, _) = parts(value);
            self.expire_after_create(&(*key as u32), &seconds, at)
        }

        fn expire_after_read(
            &self,
            key: &u64,
            value: &u64,
            at: Instant,
            left: Option<Duration>,
            written: Instant,
        ) -> Option<Duration> {
            let (key, (seconds, is_hot)) = (*key as u32, parts(value));
            if is_hot {
                by_value(&key, &seconds)
            } else {
                self.expire_after_read(&key, &seconds, at, left, written)
            }
        }
    }
    let clock = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(clock.clone())
        .expire_after(Both)
        .build();
    cache.insert(1, 10);
    cache.insert(2, HOT + 10);
    clock.advance(secs(4));
    for key in [1, 2] {
        assert!(cache.get(&key).is_some());
    }
    let left = |key| cache.peek_ref(&key).and_then(|entry| entry.time_left());
    assert_eq!(left(1), Some(secs(6)));
    assert_eq!(left(2), Some(secs(10)));
}

#[test]
fn a_policy_for_writes_only_is_not_called_on_reads() {
    struct NeverRead;
    impl Expiry<u32, u32> for NeverRead {
        fn expire_after_create(&self, key: &u32, value: &u32, _: Instant) -> Option<Duration> {
            by_value(key, value)
        }

        fn expire_after_update(
            &self,
            key: &u32,
            value: &u32,
            _: Instant,
            left: Option<Duration>,
        ) -> Option<Duration> {
            if *value == 7 {
                left
            } else {
                by_value(key, value)
            }
        }

        fn expire_after_read(
            &self,
            _: &u32,
            _: &u32,
            _: Instant,
            _: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            panic!("called for a read")
        }
    }
    let shared: Arc<dyn Expiry<u32, u32>> = Arc::new(writes_only(NeverRead));
    let boxed: Box<dyn Expiry<u32, u32>> = Box::new(Arc::clone(&shared));
    let (stats, limited) = (
        Cache::builder().record_stats(),
        Cache::builder().time_to_idle(secs(1_000)),
    );
    for builder in [
        Cache::builder().expire_after(writes_only(NeverRead)),
        Cache::builder().expire_after(writes_only(Arc::new(NeverRead))),
        Cache::builder().expire_after(Arc::new(writes_only(NeverRead))),
        Cache::builder().expire_after(writes_only(jittered(NeverRead, 0.0))),
        Cache::builder().expire_after(jittered(writes_only(NeverRead), 0.0)),
        Cache::builder().expire_after(shared),
        Cache::builder().expire_after(boxed),
        stats.expire_after(writes_only(NeverRead)),
        limited.expire_after(writes_only(NeverRead)),
    ] {
        let clock = ManualTicker::new();
        let cache: Cache<u32, u32> = builder.ticker(clock.clone()).build();
        cache.insert(1, 10);
        clock.advance(secs(4));
        assert_eq!(cache.get(&1), Some(10));
        assert_eq!(cache.get_many([&1]), [Some(10)]);
        assert_eq!(left(&cache, 1), Some(Some(secs(6))));
        cache.insert(1, 7);
        assert!(cache.get_ref(&1).is_some());
        assert_eq!(left(&cache, 1), Some(Some(secs(6))));
        cache.insert(1, 20);
        assert_eq!(left(&cache, 1), Some(Some(secs(20))));
        clock.advance(secs(20));
        assert_eq!(cache.get(&1), None);
    }
}

#[test]
fn a_lifetime_given_by_a_read_counts_from_the_look_up() {
    let clock = ManualTicker::new();
    let (asked, takes) = (clock.clone(), Arc::new(AtomicU32::new(1)));
    let delay = Arc::clone(&takes);
    let cache: Cache<u32, Acting> = Cache::builder()
        .expire_after(accessing(move |_: &u32, _: &Acting| {
            asked.advance(secs(delay.load(Relaxed).into()));
            Some(secs(10))
        }))
        .record_stats()
        .ticker(clock.clone())
        .build();
    let left = || cache.peek_ref(&1).map(|entry| entry.time_left());
    let slow = || {
        let clock = clock.clone();
        Acting::when_cloned(1, move || clock.advance(secs(1)))
    };
    cache.insert(1, slow());
    assert_eq!(left(), Some(Some(secs(9))), "the policy took a second");
    clock.advance(secs(7));
    assert!(cache.get(&1).is_some());
    assert_eq!(left(), Some(Some(secs(8))), "so did the clone");
    assert!(cache.get_ref(&1).is_some());
    assert_eq!(left(), Some(Some(secs(9))));

    // The old deadline passes while the value is cloned and the policy is called.
    clock.advance(secs(8));
    assert!(cache.get(&1).is_some());
    assert_eq!(left(), Some(Some(secs(8))));
    // So does the new deadline: this read returns the entry, later reads do not.
    takes.store(u32::MAX, Relaxed);
    assert!(cache.get(&1).is_some());
    assert!(cache.get(&1).is_none());
    // The deadline of a new entry passes in the same way.
    cache.insert(1, slow());
    assert!(cache.get_ref(&1).is_none());
    cache.run_pending_tasks();
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (4, 2));
    assert_eq!(cache.stats().removals(Expired), 2);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn every_hit_reads_the_clock_once() {
    let builder = || Cache::builder().scheduler(Scheduler::disabled());
    for builder in [
        builder().expire_after(writing(by_value)),
        builder().expire_after(accessing(by_value)),
        builder().expire_after(Ordinary),
        builder().time_to_idle(secs(1)),
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
        assert_eq!(clock.readings() - before, 200);
    }
}

#[test]
fn never_sets_no_deadline_but_respects_others() {
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
fn jitter_spreads_lifetimes_within_its_fraction() {
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
fn jitter_accepts_every_lifetime() {
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
        assert_eq!(cache.get(&1), Some(0), "it never expires");
    }
}

#[test]
fn a_look_up_of_a_due_entry_calls_no_policy_and_clones_no_value() {
    let (clock, sealed) = (ManualTicker::new(), Arc::new(AtomicU32::new(0)));
    let asked = Arc::clone(&sealed);
    let cache: Cache<u32, Acting> = Cache::builder()
        .expire_after(accessing(move |_: &u32, _: &Acting| {
            assert_eq!(asked.load(Relaxed), 0, "asked");
            Some(secs(1))
        }))
        .ticker(clock.clone())
        .build();
    let cloned = Arc::clone(&sealed);
    let value = Acting::when_cloned(1, move || assert_eq!(cloned.load(Relaxed), 0, "cloned"));
    cache.insert(1, value);
    clock.advance(secs(1));
    sealed.store(1, Relaxed);
    assert!(cache.get_ref(&1).is_none());
    assert!(cache.get(&1).is_none());
    assert!(cache.get_many([&1])[0].is_none());
}

/// The same for two types of values that have one name: no name says which of them is read.
#[test]
fn a_policy_for_two_types_of_one_name_is_asked_about_each_read_of_the_one_that_has_a_method() {
    struct Policy;
    let names = [
        {
            struct Value;
            impl Expiry<u32, Value> for Policy {
                fn expire_after_create(&self, _: &u32, _: &Value, _: Instant) -> Option<Duration> {
                    Some(secs(10))
                }
            }
            let cache = Cache::builder()
                .ticker(ManualTicker::new())
                .expire_after(Policy)
                .build();
            cache.insert(1, Value);
            assert!(cache.get_ref(&1).is_some());
            std::any::type_name::<Value>()
        },
        {
            struct Value;
            impl Expiry<u32, Value> for Policy {
                fn expire_after_create(&self, _: &u32, _: &Value, _: Instant) -> Option<Duration> {
                    Some(secs(10))
                }

                fn expire_after_read(
                    &self,
                    _: &u32,
                    _: &Value,
                    _: Instant,
                    _: Option<Duration>,
                    _: Instant,
                ) -> Option<Duration> {
                    Some(secs(10))
                }
            }
            let clock = ManualTicker::new();
            let cache = Cache::builder()
                .ticker(clock.clone())
                .expire_after(Policy)
                .build();
            cache.insert(1, Value);
            for _ in 0..3 {
                clock.advance(secs(4));
                let read = cache.get_ref(&1).expect("each read gives ten seconds more");
                assert_eq!(read.time_left(), Some(secs(10)));
            }
            std::any::type_name::<Value>()
        },
    ];
    assert_eq!(names[0], names[1], "the test proves nothing");
}
