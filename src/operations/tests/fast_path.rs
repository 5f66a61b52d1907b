//! Look-ups on the fast path, compared with the same look-ups on the slow path. A pin that the
//! thread holds already, in which the look-up's pin nests, forces the slow path.

use crate::engine::SLOW_READS;
use crate::{Cache, Expiry, RemovalCause, expiry};
use equivalent::Equivalent;
use std::cell::Cell;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The results of all calls that look up a key.
type Answers = (Option<u64>, Option<u64>, Option<u64>, bool);

fn answers(cache: &Cache<u64, u64>, key: u64) -> Answers {
    (
        cache.get(&key),
        cache.get_ref(&key).map(|entry| *entry),
        cache.peek_ref(&key).map(|entry| *entry),
        cache.contains_key(&key),
    )
}

/// The results, if both paths give the same.
#[track_caller]
fn answers_on_both_paths(cache: &Cache<u64, u64>, key: u64) -> Answers {
    let is_fast = !cache.engine().has_detour(SLOW_READS);
    assert!(is_fast, "the test would prove nothing");
    let fast = answers(cache, key);
    cache.insert(u64::MAX, 0);
    let held = cache.peek_ref(&u64::MAX);
    assert!(cache.engine().domain.pin_alone().is_none());
    assert_eq!(fast, answers(cache, key), "key {key}");
    drop(held);
    fast
}

fn caches() -> [Cache<u64, u64>; 3] {
    [
        Cache::builder().build(),
        Cache::builder().max_capacity(100_000).build(),
        Cache::builder()
            .expire_after(expiry::writing(|_: &u64, _: &u64| Some(HOUR)))
            .build(),
    ]
}

/// A lifetime of an hour; a read may set it anew.
struct Hour;
impl Expiry<u64, u64> for Hour {
    fn expire_after_create(&self, _: &u64, _: &u64, _: Instant) -> Option<Duration> {
        Some(HOUR)
    }
}

struct HourFromReads;
impl Expiry<u64, u64> for HourFromReads {
    fn expire_after_create(&self, _: &u64, _: &u64, _: Instant) -> Option<Duration> {
        Some(HOUR)
    }

    fn expire_after_read(
        &self,
        _: &u64,
        value: &u64,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        if *value == 1 { left } else { Some(HOUR) }
    }
}

#[test]
fn the_first_read_tells_whether_reads_are_fast() {
    let read = |cache: Cache<u64, u64>, reads: &[u64]| {
        for value in reads {
            cache.insert(1, *value);
            cache.get(&1);
        }
        !cache.engine().has_detour(SLOW_READS)
    };
    let ordinary = || Cache::builder().expire_after(Hour);
    assert!(!read(ordinary().build(), &[]));
    assert!(read(ordinary().build(), &[1]));
    assert!(read(ordinary().build(), &[1, 2, 1]));
    let counted = ordinary().record_stats().build();
    assert!(!read(counted, &[1, 2]));
    let idle = |limit| ordinary().time_to_idle(limit).build();
    assert!(read(idle(HOUR), &[1, 2]));
    assert!(
        !read(idle(Duration::from_secs(9)), &[1, 2]),
        "needs the exact time"
    );
    let extended = || Cache::builder().expire_after(HourFromReads).build();
    assert!(!read(extended(), &[1, 1]));
    assert!(!read(extended(), &[1, 2]));
    let none = Cache::builder().build();
    assert!(read(none, &[1]));
}

#[test]
fn both_paths_give_the_same_answers() {
    for cache in caches() {
        cache.insert(1, 10);
        cache.insert_with_ttl(2, 20, HOUR);
        cache.insert_with_ttl(3, 30, Duration::ZERO);
        cache.insert(4, 40);
        cache.invalidate(&4);
        let there = |value| (Some(value), Some(value), Some(value), true);
        let absent = (None, None, None, false);
        assert_eq!(answers_on_both_paths(&cache, 1), there(10), "lives");
        assert_eq!(answers_on_both_paths(&cache, 2), there(20), "an hour left");
        assert_eq!(answers_on_both_paths(&cache, 3), absent, "due");
        assert_eq!(answers_on_both_paths(&cache, 4), absent, "removed");
        assert_eq!(answers_on_both_paths(&cache, 5), absent, "never there");
        cache.insert(2, 21);
        assert_eq!(answers_on_both_paths(&cache, 2), there(21), "replaced");
        assert!(cache.set_expiry(&2, Some(Duration::ZERO)));
        assert_eq!(
            answers_on_both_paths(&cache, 2),
            absent,
            "expired by set_expiry"
        );
        cache.run_pending_tasks();
        cache.engine().check_invariants();
    }
}

/// A look-up reads the clock after it has found the entry. So a value that is due at once is not
/// found by a look-up that began before.
#[test]
fn a_value_stored_already_due_is_not_found_by_an_earlier_call() {
    /// All keys collide.
    #[derive(Clone, Default)]
    struct Colliding;
    impl Hasher for Colliding {
        fn finish(&self) -> u64 {
            0
        }

        fn write(&mut self, _: &[u8]) {}
    }
    /// Finds the key 2. Inserts it first, when it is compared with another.
    struct Second<'a>(&'a dyn Fn());
    impl Hash for Second<'_> {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }
    impl Equivalent<u64> for Second<'_> {
        fn equivalent(&self, key: &u64) -> bool {
            if *key == 1 {
                self.0();
            }
            *key == 2
        }
    }
    let builder = || Cache::builder().time_to_live(HOUR).record_stats();
    for lifetime in [Duration::ZERO, Duration::from_nanos(1)] {
        let hasher = BuildHasherDefault::<Colliding>::default();
        let cache: Cache<u64, u64, _> = builder().hasher(hasher).build();
        cache.insert(1, 10);
        let inserted = Cell::new(0);
        let insert = || {
            cache.insert_with_ttl(2, 20, lifetime);
            inserted.set(inserted.get() + 1);
        };
        assert_eq!(cache.get(&Second(&insert)), None, "{lifetime:?}");
        assert!(!cache.contains_key(&Second(&insert)), "{lifetime:?}");
        cache.run_pending_tasks();
        let expired = cache.stats().removals(RemovalCause::Expired);
        assert_eq!(expired, inserted.get(), "{lifetime:?}");
        cache.engine().check_invariants();
    }
}

#[test]
fn an_entry_expires_at_its_deadline() {
    for cache in caches() {
        let lifetime = Duration::from_millis(2);
        let before = std::time::Instant::now();
        cache.insert_with_ttl(1, 10, lifetime);
        while cache.contains_key(&1) {
            assert!(before.elapsed() < HOUR, "the entry never expires");
        }
        // The cache's time may be this much earlier than the system's.
        let early = Duration::from_micros(50);
        assert!(before.elapsed() + early >= lifetime);
        assert_eq!(answers_on_both_paths(&cache, 1), (None, None, None, false));
    }
}

#[test]
fn a_read_is_recorded_once_and_a_peek_never() {
    let cache = Cache::builder().max_capacity(100).build();
    cache.insert(1_u64, 10_u64);
    let engine = cache.engine();
    let should_record = || {
        let pin = engine.pin();
        let hit = engine.find_live(cache.hash(&1), &1, &pin);
        engine.reads.should_record(hit.unwrap().node)
    };
    // A run renews the stamp.
    let renew = || cache.run_pending_tasks();
    renew();
    assert!(cache.contains_key(&1) && cache.peek_ref(&1).is_some());
    assert!(should_record(), "a peek was recorded");
    assert_eq!(cache.get(&1), Some(10));
    assert!(!should_record(), "get");
    renew();
    assert!(should_record(), "the test proved nothing");
    assert_eq!(cache.get_ref(&1).map(|entry| *entry), Some(10));
    assert!(!should_record(), "get_ref");
}

#[test]
fn present_keys_are_found_and_absent_keys_are_not_while_the_table_grows_and_shrinks() {
    const KEYS: u64 = if cfg!(miri) { 300 } else { 40_000 };
    let cache = Cache::builder().build();
    let done = AtomicBool::new(false);
    (0..100).for_each(|key| cache.insert(key, key));
    thread::scope(|threads| {
        let reader = || {
            let mut rounds = 0;
            while rounds < 3 || !done.load(Ordering::Relaxed) {
                for key in 0..100 {
                    assert_eq!(cache.get(&key), Some(key), "the entry was not removed");
                    assert!(!cache.contains_key(&(key + (1 << 40))), "never there");
                }
                rounds += 1;
            }
        };
        threads.spawn(reader);
        for round in 0..3 {
            (100..KEYS).for_each(|key| cache.insert(key, key));
            for key in (100..KEYS).step_by(7) {
                assert_eq!(cache.get(&key), Some(key), "round {round}");
            }
            (100..KEYS).for_each(|key| cache.invalidate(&key));
            for key in (100..KEYS).step_by(7) {
                assert_eq!(cache.get(&key), None, "round {round}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    cache.run_pending_tasks();
    cache.engine().check_invariants();
}
