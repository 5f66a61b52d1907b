//! The threads that work on a cache which no caller uses. In real time, because a thread's sleep is
//! tested: the tests wait with generous bounds for what must happen, and only "nothing happens"
//! takes its full time.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::support::census::{Census, Counted};
use crate::support::{Gate, HOUR, millis, must_end, secs};
use wheelhouse::RemovalCause::{Expired, Explicit};
use wheelhouse::expiry::accessing;
use wheelhouse::{Cache, ManualTicker, RemovalCause, Scheduler};

/// Longer than any action here takes, even on a loaded machine.
const SOON: Duration = secs(15);

type Heard = (u32, RemovalCause, Instant);

fn tell(heard: Sender<Heard>) -> impl Fn(&u32, &u32, RemovalCause) + Send + Sync + 'static {
    move |&key, _, cause| {
        heard.send((key, cause, Instant::now())).ok();
    }
}

#[test]
fn an_expiry_is_delivered_without_any_call() {
    let (heard, hears) = mpsc::channel();
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .removal_listener(tell(heard))
        .build();
    let start = Instant::now();
    for key in 1..=5 {
        cache.insert_with_ttl(key, 0, millis(60) * key);
    }
    for key in 1..=5 {
        let (told, cause, at) = hears.recv_timeout(SOON).expect("no thread woke up");
        assert_eq!((told, cause), (key, Expired));
        assert!(at - start >= millis(60) * key, "early: {:?}", at - start);
        assert!(
            at - start <= millis(60) * key + secs(5),
            "late: {:?}",
            at - start
        );
    }
    // After a time with nothing scheduled, it wakes again.
    assert_eq!(
        hears.recv_timeout(millis(50)),
        Err(RecvTimeoutError::Timeout)
    );
    cache.insert_with_ttl(9, 0, millis(20));
    assert_eq!(
        hears.recv_timeout(SOON).map(|(key, cause, _)| (key, cause)),
        Ok((9, Expired))
    );
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn at_the_default_resolution_it_takes_little_more_than_a_second() {
    let (heard, hears) = mpsc::channel();
    let cache = Cache::builder()
        .time_to_live(millis(100))
        .removal_listener(tell(heard))
        .build();
    let start = Instant::now();
    cache.insert(1, 1);
    let (_, cause, at) = hears.recv_timeout(SOON).expect("no thread woke up");
    assert_eq!(cause, Expired);
    assert!(
        at - start >= millis(100) && at - start <= secs(6),
        "{:?}",
        at - start
    );
}

#[test]
fn an_explicit_removal_is_delivered_without_any_call() {
    let (heard, hears) = mpsc::channel();
    let cache = Cache::builder().removal_listener(tell(heard)).build();
    cache.insert(1, 1);
    cache.invalidate(&1);
    assert_eq!(
        hears.recv_timeout(SOON).map(|(key, cause, _)| (key, cause)),
        Ok((1, Explicit))
    );
}

#[test]
fn a_deadline_that_moves_earlier_wakes_the_sleeper() {
    type Shorten = fn(&Cache<u32, u32>);
    let ways: [Shorten; 4] = [
        |cache| assert!(cache.set_expiry(&1, Some(millis(30)))),
        |cache| cache.insert_with_ttl(1, 0, millis(30)),
        |cache| cache.insert(1, 30),
        |cache| {
            // The policy takes its answer for the read from the value.
            assert!(cache.get(&2).is_some());
            cache.invalidate(&1);
        },
    ];
    for (way, shorten) in ways.into_iter().enumerate() {
        let (heard, hears) = mpsc::channel();
        let cache = Cache::builder()
            .expiry_resolution(millis(1))
            .expire_after(accessing(|_: &u32, &value: &u32| {
                Some(millis(u64::from(value)))
            }))
            .removal_listener(tell(heard))
            .build();
        cache.insert_with_ttl(1, 0, HOUR);
        cache.insert_with_ttl(2, 30, HOUR);
        cache.run_pending_tasks();
        assert_eq!(
            hears.recv_timeout(millis(30)),
            Err(RecvTimeoutError::Timeout)
        );
        shorten(&cache);
        let expected = if way == 3 { 2 } else { 1 };
        let mut told = std::iter::from_fn(|| hears.recv_timeout(SOON).ok());
        assert!(
            told.any(|(key, cause, _)| (key, cause) == (expected, Expired)),
            "the thread slept through case {way}"
        );
    }
}

#[test]
fn the_thread_holds_the_cache_weakly() {
    let census = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::builder().expiry_resolution(millis(1)).build();
    for key in 0..1_000 {
        cache.insert_with_ttl(
            key,
            census.counted(key),
            if key < 500 { millis(5) } else { HOUR },
        );
    }
    drop(cache);
    let start = Instant::now();
    // A pass may have been running; nothing else holds the values.
    while census.alive() > 0 {
        assert!(
            start.elapsed() < SOON,
            "{} values outlived their cache",
            census.alive()
        );
        std::thread::yield_now();
    }
}

#[test]
fn hundreds_of_caches_are_made_and_dropped() {
    must_end(|| {
        for n in 0..300u32 {
            let cache = Cache::builder().expiry_resolution(millis(1)).build();
            cache.insert_with_ttl(n, n, millis(u64::from(n % 5)));
            if n % 2 == 0 {
                cache.run_pending_tasks();
            }
        }
    });
}

#[test]
fn disabled_runs_no_maintenance_by_itself() {
    let (heard, hears) = mpsc::channel();
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(Scheduler::disabled())
        .removal_listener(tell(heard))
        .build();
    cache.insert_with_ttl(1, 1, millis(10));
    assert_eq!(
        hears.recv_timeout(millis(200)),
        Err(RecvTimeoutError::Timeout)
    );
    assert_eq!(cache.entry_count(), 1);
    assert_eq!(cache.get(&1), None, "expired all the same");
    cache.run_pending_tasks();
    assert_eq!(
        hears.try_recv().map(|(key, cause, _)| (key, cause)),
        Ok((1, Expired))
    );
}

#[test]
fn caches_may_share_a_scheduler_and_be_dropped_one_by_one() {
    let scheduler = Scheduler::background();
    let (heard, hears) = mpsc::channel();
    let cache = || {
        Cache::builder()
            .expiry_resolution(millis(1))
            .scheduler(scheduler.clone())
            .removal_listener(tell(heard.clone()))
            .build()
    };
    let mut caches: Vec<Cache<u32, u32>> = (0..8).map(|_| cache()).collect();
    for round in 0..3u32 {
        for (n, cache) in (0..).zip(&caches) {
            cache.insert_with_ttl(round * 100 + n, 0, millis(10 + u64::from(n)));
        }
        let mut told: Vec<u32> = caches
            .iter()
            .map(|_| {
                hears
                    .recv_timeout(SOON)
                    .expect("an expiry was not delivered")
                    .0
            })
            .collect();
        told.sort_unstable();
        assert_eq!(
            told,
            (0..caches.len() as u32)
                .map(|n| round * 100 + n)
                .collect::<Vec<_>>()
        );
        caches.truncate(caches.len() / 2);
    }
    // For a while no entry is in it; then one is.
    caches.clear();
    let late = cache();
    late.insert_with_ttl(7_000, 0, millis(10));
    assert_eq!(hears.recv_timeout(SOON).map(|notice| notice.0), Ok(7_000));
    drop(scheduler);
    late.insert_with_ttl(8_000, 0, millis(10));
    assert_eq!(hears.recv_timeout(SOON).map(|notice| notice.0), Ok(8_000));
}

#[test]
fn a_slow_listener_does_not_delay_another_cache_of_the_same_scheduler() {
    let scheduler = Scheduler::background();
    let gate = Gate::new();
    let (entered, wait_entered) = mpsc::channel();
    let (heard, hears) = mpsc::channel();
    let held = Arc::clone(&gate);
    let slow = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(scheduler.clone())
        .removal_listener(move |_: &u32, _: &u32, _| {
            entered.send(()).unwrap();
            held.wait();
        })
        .build();
    let quick = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(scheduler)
        .removal_listener(tell(heard))
        .build();
    slow.insert_with_ttl(1, 1, millis(5));
    wait_entered.recv_timeout(SOON).unwrap();
    quick.insert_with_ttl(2, 2, millis(5));
    let told = hears.recv_timeout(secs(10));
    gate.open();
    assert_eq!(
        told.map(|notice| notice.0),
        Ok(2),
        "held up by the listener of another cache"
    );
}

#[test]
fn a_slow_listener_does_not_delay_a_cache_that_is_built_while_it_runs() {
    let scheduler = Scheduler::background();
    let gate = Gate::new();
    let (entered, wait_entered) = mpsc::channel();
    let (heard, hears) = mpsc::channel();
    let held = Arc::clone(&gate);
    let slow = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(scheduler.clone())
        .removal_listener(move |_: &u32, _: &u32, _| {
            entered.send(()).unwrap();
            held.wait();
        })
        .build();
    slow.insert_with_ttl(1, 1, millis(5));
    wait_entered.recv_timeout(SOON).unwrap();
    let quick = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(scheduler)
        .removal_listener(tell(heard))
        .build();
    quick.insert_with_ttl(2, 2, millis(5));
    let told = hears.recv_timeout(secs(10));
    gate.open();
    assert_eq!(
        told.map(|notice| notice.0),
        Ok(2),
        "held up by the listener of a cache that was there before"
    );
}

#[test]
fn many_due_entries_of_one_cache_do_not_delay_another_of_the_same_scheduler() {
    const CROWD: u32 = 300_000;
    let (scheduler, clock) = (Scheduler::background(), ManualTicker::new());
    let settings = || {
        Cache::builder()
            .scheduler(scheduler.clone())
            .ticker(clock.clone())
    };
    let crowded: Cache<u32, u32> = settings().build();
    let (left, hears) = mpsc::channel();
    let other = crowded.clone();
    let quick: Cache<u32, u32> = settings()
        .removal_listener(move |_: &u32, _: &u32, _| {
            left.send(other.entry_count()).ok();
        })
        .build();
    for key in 0..CROWD {
        crowded.insert_with_ttl(key, key, HOUR);
    }
    quick.insert_with_ttl(1, 1, HOUR);
    clock.advance(2 * HOUR);
    // Each is woken by a removal, the many first.
    crowded.invalidate(&1);
    quick.invalidate(&1);
    let left = hears.recv_timeout(SOON).expect("no thread woke up");
    assert!(left > 0, "all of the many entries were removed first");
    let start = Instant::now();
    while crowded.entry_count() > 0 {
        assert!(start.elapsed() < SOON, "the rest of the many entries stays");
        std::thread::yield_now();
    }
}
