//! The instants that a policy receives on the default clock, compared with `Instant::now()`; and
//! `Policy::now`.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use support::{Dial, millis, secs};
use wheelhouse::{Cache, Expiry, ManualTicker};

/// A policy that records the last instant that it received.
#[derive(Clone, Default)]
struct Scribe(Arc<Mutex<Option<Instant>>>);

impl Scribe {
    fn policy_instant(&self) -> Instant {
        self.0.lock().unwrap().expect("the policy was asked")
    }

    fn note(&self, at: Instant) -> Option<Duration> {
        *self.0.lock().unwrap() = Some(at);
        Some(secs(3_600))
    }
}

impl Expiry<u64, u64> for Scribe {
    fn expire_after_create(&self, _: &u64, _: &u64, created_at: Instant) -> Option<Duration> {
        self.note(created_at)
    }

    fn expire_after_update(
        &self,
        _: &u64,
        _: &u64,
        updated_at: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.note(updated_at)
    }

    fn expire_after_read(
        &self,
        _: &u64,
        _: &u64,
        read_at: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        self.note(read_at)
    }
}

fn noted() -> (Cache<u64, u64>, Scribe) {
    let scribe = Scribe::default();
    let cache = Cache::builder().expire_after(scribe.clone()).build();
    (cache, scribe)
}

/// How far an instant lies outside of the time during which the policy received it; the delays of a
/// busy machine fall into that time.
fn outside(before: Instant, policy_instant: Instant, after: Instant) -> Duration {
    before
        .saturating_duration_since(policy_instant)
        .max(policy_instant.saturating_duration_since(after))
}

/// Creates, updates and reads an entry; returns the greatest of the three differences.
fn disagreement(cache: &Cache<u64, u64>, scribe: &Scribe, key: u64) -> Duration {
    let measure = |call: &dyn Fn()| {
        let before = Instant::now();
        call();
        outside(before, scribe.policy_instant(), Instant::now())
    };
    let create = measure(&|| cache.insert(key, 1));
    let update = measure(&|| cache.insert(key, 2));
    let read = measure(&|| assert_eq!(cache.get(&key), Some(2)));
    create.max(update).max(read)
}

#[test]
fn policy_instants_agree_with_the_machines_clock_and_deadlines_are_met() {
    let (cache, scribe) = noted();
    let started = Instant::now();
    let mut apart = Vec::new();
    for key in 0.. {
        apart.push(disagreement(&cache, &scribe, key));
        if started.elapsed() > secs(12) {
            break;
        }
        // With pauses of many lengths.
        thread::sleep(millis(key % 97));
    }
    apart.sort_unstable();
    let [median, most] = [apart[apart.len() / 2], apart[apart.len() - 1]];
    assert!(
        median <= Duration::from_micros(50),
        "half are {median:?} off"
    );
    assert!(most <= Duration::from_micros(200), "one is {most:?} off");

    // From the tenth second on.
    let life = millis(1_500);
    let mut met = Duration::MAX;
    for key in 0..3 {
        let from = Instant::now();
        cache.insert_with_ttl(u64::MAX - key, 0, life);
        let given = Instant::now();
        thread::sleep(life - millis(5));
        let mut last_alive = from;
        let first_dead = loop {
            let before = Instant::now();
            if !cache.contains_key(&(u64::MAX - key)) {
                break Instant::now();
            }
            last_alive = before;
        };
        // The part of this that is certain: seen alive too late, or expired too early.
        let late = last_alive.saturating_duration_since(given + life);
        let early = (from + life).saturating_duration_since(first_dead);
        met = met.min(late.max(early));
    }
    assert!(met <= Duration::from_micros(52), "met {met:?} off");
}

#[test]
fn the_caches_time_goes_forward_in_every_thread() {
    let cache: Cache<u64, u64> = Cache::builder().build();
    let ended = AtomicBool::new(false);
    let most = thread::scope(|threads| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(|| {
                    let (mut last, mut most) = (cache.policy().now(), Duration::ZERO);
                    while !ended.load(Ordering::Relaxed) {
                        let before = Instant::now();
                        let now = cache.policy().now();
                        most = most.max(outside(before, now, Instant::now()));
                        assert!(now >= last, "{:?} back", last - now);
                        last = now;
                    }
                    most
                })
            })
            .collect();
        thread::sleep(millis(1_500));
        ended.store(true, Ordering::Relaxed);
        let most = readers.into_iter().map(|reader| reader.join().unwrap());
        most.max().unwrap()
    });
    assert!(most <= Duration::from_micros(200), "{most:?} off");
}

#[test]
fn caches_built_at_different_times_show_one_time() {
    let first: Cache<u64, u64> = Cache::builder().build();
    thread::sleep(millis(30));
    let second: Cache<u64, u64> = Cache::builder().build();
    for _ in 0..100 {
        let before = first.policy().now();
        let between = second.policy().now();
        let after = first.policy().now();
        // The two are rounded to a nanosecond.
        let rounding = Duration::from_nanos(2);
        assert!(before <= between + rounding && between <= after + rounding);
    }
}

#[test]
fn policy_now_is_the_time_that_policies_receive() {
    let clock = Dial::at(u64::MAX - 5);
    let scribe = Scribe::default();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .expire_after(scribe.clone())
        .build();
    let start = cache.policy().now();
    for seconds in [0, 1, 60, 86_400, 3_600, 5] {
        // Forwards, and backwards.
        clock.set((u64::MAX - 5).wrapping_add(seconds * 1_000_000_000));
        let now = cache.policy().now();
        assert_eq!(now - start, secs(seconds));
        cache.insert(seconds, 0);
        assert_eq!(scribe.policy_instant(), now);
        cache.insert(seconds, 1);
        assert_eq!(scribe.policy_instant(), now);
        cache.get(&seconds);
        assert_eq!(scribe.policy_instant(), now);
    }
}

#[test]
fn a_step_back_shows_in_the_caches_time() {
    let clock = ManualTicker::starting_at(9_000_000_000);
    let cache: Cache<u64, u64> = Cache::builder().ticker(clock.clone()).build();
    let start = cache.policy().now();
    clock.set_nanos(2_000_000_000);
    assert_eq!(start - cache.policy().now(), secs(7));
    clock.set_nanos(9_000_000_001);
    assert_eq!(cache.policy().now() - start, Duration::from_nanos(1));
}
