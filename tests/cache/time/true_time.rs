//! The instants that a policy receives on the default clock, compared with `Instant::now()`; and
//! `Policy::now`.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Dial, millis, secs};
use wheelhouse::{Cache, Expiry, ManualTicker};

/// How far the cache's time may lie from `Instant::now()`.
const PRECISION: Duration = Duration::from_micros(50);

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
fn policy_instants_agree_with_the_machines_clock() {
    let (cache, scribe) = noted();
    let started = Instant::now();
    let mut most = Duration::ZERO;
    for key in 0.. {
        most = most.max(disagreement(&cache, &scribe, key));
        if started.elapsed() > secs(2) {
            break;
        }
        // With pauses of many lengths.
        thread::sleep(millis(key % 97));
    }
    assert!(most <= PRECISION, "{most:?} off");
}

/// The lifetime up to `valid_until`, which its value holds.
struct ValidUntil;

impl Expiry<u64, Instant> for ValidUntil {
    fn expire_after_create(&self, _: &u64, until: &Instant, told: Instant) -> Option<Duration> {
        Some(until.saturating_duration_since(told))
    }

    fn expire_after_update(
        &self,
        _: &u64,
        until: &Instant,
        told: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(until.saturating_duration_since(told))
    }
}

/// How far from `valid_until` the entry is gone, as far as that is certain: seen alive too late, or
/// missed too early.
fn found_off(cache: &Cache<u64, Instant>, key: u64, until: Instant) -> Duration {
    let mut last_alive = None;
    loop {
        let before = Instant::now();
        if !cache.contains_key(&key) {
            let early = until.saturating_duration_since(Instant::now());
            let late = last_alive.map_or(Duration::ZERO, |alive: Instant| {
                alive.saturating_duration_since(until)
            });
            return early.max(late);
        }
        last_alive = Some(before);
    }
}

/// The environment variable that makes this program a process of the test below: how long its
/// entries are valid, in milliseconds.
const VALID_FOR: &str = "WHEELHOUSE_VALID_FOR";

/// The work of one process: entries made first of all.
#[test]
fn a_process_for_the_test_of_eight() {
    let Ok(valid_for) = std::env::var(VALID_FOR) else {
        return;
    };
    let until = Instant::now() + millis(valid_for.parse().unwrap());
    let cache = Cache::builder().expire_after(ValidUntil).build();
    for key in 0..3 {
        cache.insert(key, until + millis(10 * key));
    }
    // A long way past the slack of the coarse clock, the entry is there.
    while until.saturating_duration_since(Instant::now()) > millis(2) {
        let is_there = cache.contains_key(&0);
        // After the call: on a busy machine, the deadline may come during it.
        let left = until.saturating_duration_since(Instant::now());
        assert!(is_there || left.is_zero(), "gone {left:?} early");
        thread::sleep(left.saturating_sub(millis(1)).min(millis(100)));
    }
    let off = (0..3).map(|key| found_off(&cache, key, until + millis(10 * key)));
    println!("off {:?} ns", off.min().unwrap().as_nanos());
}

/// From the first moment of a process on, an entry is gone within 50 µs of the instant up to which
/// it is valid.
#[test]
fn in_eight_processes_entries_made_at_the_start_are_gone_when_they_should() {
    // The long run of this test: a minute.
    let valid_for = if std::env::var_os("WHEELHOUSE_LONG").is_some() {
        "60000"
    } else {
        "3000"
    };
    let program = std::env::current_exe().unwrap();
    let processes: Vec<_> = (0..8)
        .map(|_| {
            Command::new(&program)
                .args([
                    "--exact",
                    "time::true_time::a_process_for_the_test_of_eight",
                ])
                .arg("--nocapture")
                .env(VALID_FOR, valid_for)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        let (_, off) = said.split_once("off ").expect("the process says it");
        let nanos: u64 = off.split_once(" ns").unwrap().0.parse().unwrap();
        println!("{nanos} ns off");
        assert!(u128::from(nanos) <= PRECISION.as_nanos(), "{nanos} ns off");
    }
}

/// Entries of 50 ms to 2 s under eight busy threads, for longer than the longest lifetime.
#[test]
fn no_value_is_served_after_its_deadline_under_busy_threads() {
    let cache: Cache<u64, Instant> = Cache::builder()
        .max_capacity(4_000)
        .expire_after(ValidUntil)
        .build();
    let started = Instant::now();
    let hits = AtomicU64::new(0);
    thread::scope(|threads| {
        for thread in 0..8_u64 {
            let (cache, hits) = (&cache, &hits);
            threads.spawn(move || {
                let mut state = thread + 1;
                while started.elapsed() < millis(2_500) {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(99);
                    let key = (state >> 33) % 2_000;
                    // Before the call: a value that it returns was valid at some later moment.
                    let before = Instant::now();
                    if let Some(until) = cache.get(&key) {
                        let late = before.saturating_duration_since(until);
                        assert!(late <= PRECISION, "served {late:?} after its deadline");
                        hits.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let life = millis(50 + (state >> 20) % 1_950);
                        cache.insert(key, Instant::now() + life);
                    }
                }
            });
        }
    });
    let hits = hits.into_inner();
    assert!(hits > 10_000, "{hits} hits prove little");
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
    assert!(most <= PRECISION, "{most:?} off");
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

/// Valgrind shows no vDSO to a program, which the coarse clock is read through.
#[test]
#[cfg_attr(wheelhouse_single, ignore = "valgrind and ASan exclude each other")]
fn a_hit_with_a_deadline_runs_under_valgrind() {
    const INSIDE: &str = "WHEELHOUSE_UNDER_VALGRIND";
    if std::env::var_os(INSIDE).is_some() {
        let cache = Cache::builder().time_to_live(secs(60)).build();
        cache.insert(1, 2);
        assert_eq!(cache.get(&1), Some(2));
        return;
    }
    if cfg!(target_arch = "x86") {
        println!("skipped: rustix reads the vDSO of 32-bit programs at its first system call");
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", "--tool=none"])
        .arg(std::env::current_exe().unwrap());
    let test = "time::true_time::a_hit_with_a_deadline_runs_under_valgrind";
    let output = valgrind.args(["--exact", test]).env(INSIDE, "1").output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
