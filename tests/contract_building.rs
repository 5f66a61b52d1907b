//! Section 1 of the contract: what the builder takes, what it refuses, and what each setting does.

use std::collections::hash_map::RandomState;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wheelhouse::{
    BuildError, Cache, CacheBuilder, Equivalent, EvictionPolicy, Expiry, ManualTicker,
    RemovalCause, Scheduler, Ticker,
};

const SECOND: Duration = Duration::from_secs(1);

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().expect("a message").to_string(),
    }
}

/// Neither `Clone` nor `Debug`, and the key is only what the contract asks for.
#[derive(PartialEq, Eq, Hash)]
struct PlainKey(u32);
struct PlainValue(u32);

#[test]
fn bounds_ask_for_no_more_than_the_contract_says() {
    fn handle<T: Clone + Send + Sync + 'static>(_: &T) {}
    let cache: Cache<PlainKey, PlainValue> = Cache::new(10);
    handle(&cache);
    cache.insert(PlainKey(1), PlainValue(10));
    assert_eq!(
        cache.get_ref(&PlainKey(1)).map(|entry| entry.value().0),
        Some(10)
    );
    assert_eq!(cache.peek_ref(&PlainKey(1)).map(|entry| entry.0), Some(10));
    assert!(cache.contains_key(&PlainKey(1)));
    cache.insert_with_ttl(PlainKey(2), PlainValue(20), SECOND);
    assert!(cache.set_expiry(&PlainKey(2), None));
    assert_eq!((&cache).into_iter().count(), 2);
    assert_eq!(cache.iter().map(|entry| entry.key().0).sum::<u32>(), 3);
    cache.retain(|key, _value| key.0 == 1);
    cache.invalidate(&PlainKey(1));
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(cache.weighted_size(), 0);
    let _ = (
        cache.next_maintenance_in(),
        cache.stats(),
        cache.policy().now(),
    );
    assert_eq!(cache.name(), None);
}

#[test]
fn another_form_of_a_key_finds_it() {
    #[derive(Hash)]
    struct Pair<'a>(&'a str, u8);
    impl Equivalent<(String, u8)> for Pair<'_> {
        fn equivalent(&self, key: &(String, u8)) -> bool {
            self.0 == key.0 && self.1 == key.1
        }
    }
    let pairs: Cache<(String, u8), u32> = Cache::new(10);
    pairs.insert(("a".to_owned(), 1), 7);
    let q = Pair("a", 1);
    assert_eq!(pairs.get(&q), Some(7));
    assert_eq!(pairs.get_ref(&q).map(|e| *e), Some(7));
    assert_eq!(pairs.peek_ref(&q).map(|e| *e), Some(7));
    assert!(pairs.contains_key(&q));
    assert!(pairs.set_expiry(&q, None));
    assert_eq!(pairs.policy().weight_of(&q), Some(1));
    assert_eq!(pairs.replace_if(&q, 8, |v| *v == 7), Ok(()));
    assert_eq!(pairs.remove_if(&q, |_| false), None);
    assert_eq!(pairs.remove(&q), Some(8));
    pairs.invalidate(&q);

    let words: Cache<String, u32> = Cache::new(10);
    words.insert("one".to_owned(), 1);
    assert_eq!(words.get("one"), Some(1));
    assert!(words.contains_key("one"));
    assert_eq!(words.remove("one"), Some(1));
}

#[test]
fn every_setting_has_the_promised_shape() {
    struct Life;
    impl Expiry<String, u64> for Life {
        fn expire_after_create(&self, _: &String, _: &u64, _: Instant) -> Option<Duration> {
            Some(SECOND)
        }
    }
    struct Still;
    impl Ticker for Still {
        fn nanos(&self) -> u64 {
            5
        }
    }
    let built: Result<Cache<String, u64, RandomState>, BuildError> = Cache::builder()
        .name("shapes")
        .name(String::from("shapes"))
        .initial_capacity(16_usize)
        .max_capacity(100_u64)
        .weigher(|_key: &String, _value: &u64| -> u32 { 1 })
        .eviction_policy(EvictionPolicy::Adaptive)
        .eviction_policy(EvictionPolicy::Lru)
        .expire_after(Life)
        .time_to_live(SECOND)
        .time_to_idle(SECOND)
        .expiry_resolution(SECOND)
        .ticker(Still)
        .scheduler(Scheduler::disabled())
        .scheduler(Scheduler::background())
        .removal_listener(|_key: &String, _value: &u64, _cause: RemovalCause| {})
        .record_stats()
        .load_timeout(SECOND)
        .hasher(RandomState::new())
        .try_build();
    let cache = built.expect("all of these are valid");
    assert_eq!(cache.name(), Some("shapes"));
    assert!(format!("{cache:?}").contains("shapes"));
    let policy = cache.policy();
    assert_eq!(policy.max_capacity(), Some(100));
    assert_eq!(policy.time_to_live(), Some(SECOND));
    assert_eq!(policy.time_to_idle(), Some(SECOND));
    assert_eq!(policy.eviction_policy(), EvictionPolicy::Lru);
}

#[test]
fn a_builder_can_be_made_with_its_capacity() {
    let cache: Cache<u32, u32> = CacheBuilder::new(7).build();
    assert_eq!(cache.policy().max_capacity(), Some(7));
    let short: Cache<u32, u32> = Cache::new(9);
    assert_eq!(short.policy().max_capacity(), Some(9));
    assert_eq!(short.policy().eviction_policy(), EvictionPolicy::Adaptive);
    let unbounded: Cache<u32, u32> = Cache::builder().build();
    assert_eq!(unbounded.policy().max_capacity(), None);
    assert_eq!(unbounded.policy().time_to_live(), None);
    assert_eq!(unbounded.policy().time_to_idle(), None);
}

#[test]
fn the_later_of_two_equal_settings_holds() {
    let ticker = ManualTicker::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (first, second) = (heard.clone(), heard.clone());
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(1)
        .max_capacity(50)
        .name("one")
        .name("two")
        .time_to_live(SECOND)
        .time_to_live(2 * SECOND)
        .time_to_idle(SECOND)
        .time_to_idle(3 * SECOND)
        .weigher(|_, _| 9)
        .weigher(|_, _| 2)
        .expire_after(wheelhouse::expiry::creating(|_: &u32, _: &u32| {
            Some(Duration::ZERO)
        }))
        .expire_after(wheelhouse::expiry::never())
        .expiry_resolution(SECOND)
        .expiry_resolution(Duration::from_nanos(1 << 20))
        .ticker(ManualTicker::new())
        .ticker(ticker.clone())
        .removal_listener(move |_, _, _| first.lock().unwrap().push(1))
        .removal_listener(move |_, _, _| second.lock().unwrap().push(2))
        .build();
    cache.insert(1, 1);
    assert_eq!(cache.policy().weight_of(&1), Some(2));
    assert_eq!(cache.name(), Some("two"));
    assert_eq!(cache.policy().max_capacity(), Some(50));
    assert_eq!(cache.policy().time_to_live(), Some(2 * SECOND));
    assert_eq!(cache.policy().time_to_idle(), Some(3 * SECOND));
    assert_eq!(
        cache.policy().expiry_resolution(),
        Duration::from_nanos(1 << 20)
    );
    ticker.advance(2 * SECOND - Duration::from_nanos(1));
    assert!(cache.contains_key(&1));
    ticker.advance(Duration::from_nanos(1));
    assert!(!cache.contains_key(&1));
    cache.run_pending_tasks();
    assert_eq!(*heard.lock().unwrap(), [2]);
}

#[test]
fn a_capacity_of_zero_keeps_nothing_and_says_size() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(0)
        .removal_listener(move |k: &u32, v: &u32, cause| sink.lock().unwrap().push((*k, *v, cause)))
        .build();
    for n in 0..5 {
        cache.insert(n, n + 10);
        assert_eq!(cache.get(&n), None, "nothing is kept");
    }
    cache.insert_with_ttl(5, 15, SECOND);
    assert!(!cache.contains_key(&5));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 6);
    assert!(
        heard
            .iter()
            .all(|(k, v, cause)| *v == k + 10 && *cause == RemovalCause::Size)
    );
}

#[test]
fn a_capacity_of_zero_can_be_set_later() {
    let cache: Cache<u32, u32> = Cache::new(10);
    cache.insert(1, 1);
    cache.policy().set_max_capacity(0);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    cache.insert(2, 2);
    cache.run_pending_tasks();
    assert!(!cache.contains_key(&2));
    cache.policy().set_max_capacity(u64::MAX);
    assert_eq!(cache.policy().max_capacity(), Some(u64::MAX));
    cache.insert(3, 3);
    cache.run_pending_tasks();
    assert!(cache.contains_key(&3));
}

#[test]
fn the_weigher_runs_once_for_each_write_and_never_for_a_read() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(1_000)
        .weigher(move |_, value: &u32| {
            count.fetch_add(1, Ordering::Relaxed);
            *value
        })
        .build();
    cache.insert(1, 5);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    cache.insert(1, 6);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    cache.insert_with_ttl(2, 7, SECOND);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    let _ = (
        cache.get(&1),
        cache.contains_key(&1),
        cache.peek_ref(&1).is_some(),
    );
    cache.set_expiry(&1, Some(SECOND));
    assert_eq!(cache.policy().weight_of(&1), Some(6));
    assert_eq!(cache.policy().weight_of(&3), None);
    cache.run_pending_tasks();
    assert_eq!(cache.weighted_size(), 13);
    cache.remove(&1);
    cache.run_pending_tasks();
    assert_eq!(cache.weighted_size(), 7);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[test]
fn a_weight_of_zero_is_never_a_victim() {
    for policy in [EvictionPolicy::Adaptive, EvictionPolicy::Lru] {
        let cache: Cache<u32, u32> = Cache::builder()
            .max_capacity(50)
            .eviction_policy(policy)
            .weigher(|_, value: &u32| *value)
            .build();
        for key in 0..100 {
            cache.insert(key, 0);
        }
        for key in 1_000..5_000 {
            cache.insert(key, 1);
        }
        cache.run_pending_tasks();
        assert_eq!(
            (0..100).filter(|key| cache.contains_key(key)).count(),
            100,
            "{policy:?}"
        );
        assert!(cache.weighted_size() <= 50);
        cache.policy().set_max_capacity(0);
        cache.run_pending_tasks();
        assert_eq!(cache.weighted_size(), 0, "{policy:?}");
        assert_eq!(
            (0..100).filter(|key| cache.contains_key(key)).count(),
            100,
            "{policy:?}"
        );
    }
}

#[test]
fn weights_at_the_upper_end_do_not_overflow() {
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(u64::MAX)
        .weigher(|_, _| u32::MAX)
        .build();
    for key in 0..100 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 100);
    assert_eq!(cache.weighted_size(), 100 * u64::from(u32::MAX));
    let small: Cache<u32, u32> = Cache::builder()
        .max_capacity(10)
        .weigher(|_, _| u32::MAX)
        .build();
    small.insert(1, 1);
    small.run_pending_tasks();
    assert_eq!(small.entry_count(), 0);
}

#[test]
fn the_resolution_is_rounded_up_to_a_power_of_two() {
    let built = |nanos: u64| {
        let cache: Cache<u32, u32> = Cache::builder()
            .expiry_resolution(Duration::from_nanos(nanos))
            .build();
        cache.policy().expiry_resolution()
    };
    assert_eq!(built((1 << 20) + 1), Duration::from_nanos(1 << 21));
    assert_eq!(built(1 << 20), Duration::from_nanos(1 << 20));
    assert_eq!(built(1 << 16), Duration::from_nanos(1 << 16));
    assert_eq!(built((1 << 16) + 1), Duration::from_nanos(1 << 17));
    let default: Cache<u32, u32> = Cache::builder().build();
    assert_eq!(
        default.policy().expiry_resolution(),
        Duration::from_nanos(1 << 30)
    );
}

#[test]
fn a_refusal_names_the_setting_the_value_and_what_is_allowed() {
    for resolution in [Duration::ZERO, Duration::MAX] {
        let attempt = || Cache::<u32, u32>::builder().expiry_resolution(resolution);
        match attempt().try_build() {
            Ok(cache) => {
                // A value below the finest may be rounded up to it.
                assert_eq!(
                    cache.policy().expiry_resolution(),
                    Duration::from_nanos(1 << 16)
                );
            }
            Err(error) => {
                fn is_error<E: std::error::Error + Send + Sync + 'static>(_: &E) {}
                is_error(&error);
                let text = error.to_string();
                assert!(text.contains("expiry_resolution"), "{text}");
                assert!(text.contains(&format!("{resolution:?}")), "{text}");
                let line = Arc::new(Mutex::new(String::new()));
                let seen = line.clone();
                let before = std::panic::take_hook();
                std::panic::set_hook(Box::new(move |info| {
                    *seen.lock().unwrap() = info.location().unwrap().file().to_owned();
                }));
                let panic = catch_unwind(AssertUnwindSafe(|| attempt().build()));
                std::panic::set_hook(before);
                let panic = message(panic.err().expect("build panics where try_build refuses"));
                assert!(panic.contains(&text), "{panic} / {text}");
                assert!(
                    line.lock().unwrap().ends_with("contract_building.rs"),
                    "track_caller"
                );
            }
        }
    }
}

#[test]
fn zero_and_huge_durations_are_lives_and_overflow_nothing() {
    let ticker = ManualTicker::new();
    let zero = Cache::<u32, u32>::builder()
        .time_to_live(Duration::ZERO)
        .ticker(ticker.clone())
        .try_build();
    if let Ok(cache) = zero {
        cache.insert(1, 1);
        assert_eq!(cache.get(&1), None);
    }
    let huge: Cache<u32, u32> = Cache::builder()
        .time_to_live(Duration::MAX)
        .time_to_idle(Duration::MAX)
        .ticker(ticker.clone())
        .build();
    huge.insert(1, 1);
    ticker.advance(Duration::from_secs(100 * 365 * 24 * 3600));
    huge.run_pending_tasks();
    assert_eq!(huge.get(&1), Some(1));
}

#[test]
fn live_and_idle_limits_and_the_policy_meet_at_the_earliest() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u64> = Cache::builder()
        .time_to_live(10 * SECOND)
        .time_to_idle(4 * SECOND)
        .expire_after(wheelhouse::expiry::creating(|_: &u32, v: &u64| {
            (*v > 0).then(|| Duration::from_secs(*v))
        }))
        .ticker(ticker.clone())
        .build();
    cache.insert(1, 2); // the policy is first
    cache.insert(2, 7); // idle, then the policy
    cache.insert(3, 0); // idle, then live
    ticker.advance(2 * SECOND - Duration::from_nanos(1));
    assert!(cache.contains_key(&1));
    ticker.advance(Duration::from_nanos(1));
    assert!(!cache.contains_key(&1));
    assert!(cache.get(&2).is_some() && cache.get(&3).is_some());
    ticker.advance(3 * SECOND); // at 5
    assert!(cache.get(&2).is_some() && cache.get(&3).is_some());
    ticker.advance(2 * SECOND); // at 7
    assert_eq!(cache.get(&2), None);
    assert!(cache.get(&3).is_some());
    ticker.advance(3 * SECOND - Duration::from_nanos(1));
    assert!(cache.get(&3).is_some());
    ticker.advance(Duration::from_nanos(1)); // at 10
    assert_eq!(cache.get(&3), None);
}

#[test]
fn with_a_ticker_of_its_own_a_cache_starts_no_thread() {
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .time_to_live(SECOND)
        .ticker(ticker.clone())
        .removal_listener(move |_, _, _| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    cache.insert(1, 1);
    ticker.advance(10 * SECOND);
    assert_eq!(cache.entry_count(), 1, "nothing happens until an operation");
    assert_eq!(heard.load(Ordering::Relaxed), 0);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(heard.load(Ordering::Relaxed), 1);
}

/// "Between passes, with any number of writers: entries at most max + 25 % + 256 ever."
#[test]
fn the_bound_between_passes_holds_with_four_writers() {
    let max = 2_000_u64;
    let cache: Cache<u64, u64> = Cache::new(max);
    let worst = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            let (cache, worst) = (&cache, &worst);
            scope.spawn(move || {
                for n in 0..50_000 {
                    cache.insert(writer << 32 | n, n);
                    if n % 16 == 0 {
                        worst.fetch_max(cache.entry_count(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let worst = worst.load(Ordering::Relaxed);
    assert!(worst <= max + max / 4 + 256, "{worst}");
    cache.run_pending_tasks();
    assert!(cache.entry_count() <= max);
}
