//! The feature `quanta`: its clocks as tickers.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use wheelhouse::{Cache, ManualTicker, QuantaRecent, RemovalCause, Scheduler, Ticker};

const NS: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn deadlines_are_exact_on_a_mock() {
    let (clock, mock) = quanta::Clock::mock();
    mock.increment(7 * SECOND);
    let cache = Cache::builder().ticker(clock).build();
    cache.insert_with_ttl(1, 1, MINUTE);
    cache.insert_until(2, 2, cache.policy().now() + 2 * MINUTE);
    mock.increment(MINUTE - NS);
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(NS));
    mock.increment(NS);
    assert_eq!((cache.get(&1), cache.get(&2)), (None, Some(2)));
    // A step back removes nothing early.
    mock.decrement(6 * SECOND);
    assert_eq!(
        cache.peek_ref(&2).unwrap().time_left(),
        Some(MINUTE + 6 * SECOND)
    );
    mock.increment(MINUTE + 6 * SECOND);
    assert_eq!(cache.get(&2), None);
}

#[test]
fn the_real_clock_runs_in_nanoseconds() {
    let clock = quanta::Clock::new();
    let first = clock.nanos();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(20) {}
    let passed = Duration::from_nanos(clock.nanos() - first);
    // It began before the loop; its rate is known to far better than a hundredth.
    assert!(passed >= Duration::from_micros(19_800), "{passed:?}");
    assert!(
        passed <= began.elapsed() + Duration::from_millis(100),
        "{passed:?}"
    );
}

#[test]
fn a_cache_on_the_real_clock_removes_without_traffic() {
    let (tell, told) = mpsc::channel();
    let cache = Cache::builder()
        .ticker(quanta::Clock::new())
        .scheduler(Scheduler::background())
        .expiry_resolution(Duration::from_millis(1))
        .removal_listener(move |key: &u32, _: &u32, cause| tell.send((*key, cause)).unwrap())
        .build();
    cache.insert_with_ttl(1, 1, Duration::from_millis(20));
    let heard = told.recv_timeout(MINUTE);
    assert_eq!(heard, Ok((1, RemovalCause::Expired)));
}

/// One test, since the recent time is one for the process.
#[test]
fn recent_time_stands_between_two_writes_of_it() {
    let recent = QuantaRecent::new();
    // No upkeep has begun: it runs.
    let before = recent.nanos();
    while recent.nanos() == before {}

    let clock = quanta::Clock::new();
    let start = clock.now() + SECOND;
    quanta::set_recent(start);
    let manual = ManualTicker::new();
    let (on_recent, on_manual) = (
        Cache::builder().ticker(recent).build(),
        Cache::builder().ticker(manual.clone()).build(),
    );
    for cache in [&on_recent, &on_manual] {
        cache.insert_with_ttl(1, 1, MINUTE);
    }
    for passed in [0, 1, 59_999_999_999, 60_000_000_000, 60_000_000_001] {
        manual.set_nanos(passed);
        quanta::set_recent(start + Duration::from_nanos(passed));
        let left = |cache: &Cache<u32, u32>| cache.peek_ref(&1).map(|entry| entry.time_left());
        assert_eq!(left(&on_recent), left(&on_manual), "{passed}");
        assert_eq!(on_recent.get(&1), on_manual.get(&1), "{passed}");
    }

    // Written by quanta's thread.
    quanta::set_recent(clock.now());
    let upkeep = quanta::Upkeep::new(Duration::from_millis(1))
        .start()
        .unwrap();
    let (tell, told) = mpsc::channel();
    let cache = Cache::builder()
        .ticker(recent)
        .scheduler(Scheduler::background())
        .expiry_resolution(Duration::from_millis(1))
        .removal_listener(move |key: &u32, _: &u32, cause| tell.send((*key, cause)).unwrap())
        .build();
    cache.insert_with_ttl(1, 1, Duration::from_millis(20));
    let heard = told.recv_timeout(MINUTE);
    assert_eq!(heard, Ok((1, RemovalCause::Expired)));
    drop(upkeep);
}
