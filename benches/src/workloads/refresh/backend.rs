//! A backend that takes 5 ms, under a steady number of requests a second.
//!
//! Callers sleep, and wake up to make all the calls that came due meanwhile: so two cores are
//! enough for the pace, and few calls are interrupted by another caller. Each call is timed from
//! its start. "No cache" shows what the machine and the other callers do to calls that do nothing.

use wheelhouse::{Cache, loader_fn, refresh};

use crate::peers::{Moka, OnWrite};
use crate::workloads::prelude::*;

const CALL: Duration = Duration::from_millis(5);
const LIFE: Duration = Duration::from_secs(1);
const KEYS: usize = 1_000;
const CALLERS: u64 = 16;
/// Nanoseconds from one call of a caller to the next: 50,000 calls a second in all.
const PACE: u64 = CALLERS * 20_000;
/// Nanoseconds from one awakening of a caller to the next.
const BEAT: u64 = 4_000_000;

const LATENCY: [(Metric, f64); 4] = [
    (Metric::median("get p50 us"), 0.5),
    (Metric::median("get p99 us"), 0.99),
    (Metric::ranked("get p99.9 us"), 0.999),
    (Metric::worst("get max us"), 1.0),
];
const BACKEND: Metric = Metric::median("backend calls/s");
const REQUESTS: Metric = Metric::median("requests/s");

/// Measures both settings of ours, moka, and no cache.
pub(super) fn run(bench: Bench<'_>) {
    let about = "50,000 requests a second by 16 callers, 1,000 keys equally likely, lives of 1 s; \
                 refresh: a quarter of the life before its end, up to a fifth earlier by chance, on \
                 16 threads";
    let seconds = bench.size(4, 1) as u64;
    let load = move || Load {
        seconds,
        calls: Arc::default(),
    };
    let ours = |name, refreshes| (Card::subject(name), move || loading(load(), refreshes));
    let (refresh, run) = ours("wheelhouse, refresh", true);
    let (no_refresh, run_without) = ours("wheelhouse, no refresh", false);
    let nothing = Card::floor("no cache, calls that do nothing");
    let contest = bench
        .contest("backend of 5 ms", about)
        .with(refresh, run)
        .with(no_refresh, run_without)
        .with(<Moka as Peer>::CARD, move || with_moka(load()))
        .with(nothing, move || load().run(keys::value));
    bench.run(bench.rounds().min(2), [contest]);
}

/// The requests to come, and the calls of the backend.
struct Load {
    seconds: u64,
    calls: Arc<AtomicU64>,
}

fn call(calls: &AtomicU64, key: u64) -> u64 {
    calls.fetch_add(1, Relaxed);
    thread::sleep(CALL);
    keys::value(key)
}

fn loading(load: Load, refreshes: bool) -> Outcome {
    let calls = Arc::clone(&load.calls);
    let builder = Cache::builder()
        .max_capacity(KEYS as u64 * 4)
        .expire_after(OnWrite(|_: &u64, _: &u64| LIFE))
        .loading(loader_fn(move |key: &u64| {
            Ok::<u64, ()>(call(&calls, *key))
        }));
    let cache = match refreshes {
        true => builder
            .refresh_after(refresh::jittered(refresh::fraction(0.75), 0.2))
            .reload_threads(16)
            .build(),
        false => builder.build(),
    };
    load.run(|key| cache.get(&key).unwrap_or(0))
}

fn with_moka(load: Load) -> Outcome {
    let cache = Moka::build(&Plan {
        lifetime: |_, _| LIFE,
        ..roomy(Expiring::Write, KEYS)
    })?;
    let calls = Arc::clone(&load.calls);
    load.run(|key| cache.get_with(key, || call(&calls, key)))
}

impl Load {
    /// Two lives without a figure, then the seconds that are measured.
    fn run(&self, get: impl Fn(u64) -> u64 + Sync) -> Outcome {
        let start = clock::nanos() + 10_000_000;
        let from = start + 2 * LIFE.as_nanos() as u64;
        let end = from + self.seconds * 1_000_000_000;
        let caller = |number: u64| {
            let stream = keys::keys_of(&keys::uniform_ranks(KEYS, 1 << 16, number as usize));
            let mut seen = tail::histogram();
            let mut due = start + number * PACE / CALLERS;
            let mut awake = start + number * BEAT / CALLERS;
            let (mut keys, mut right, mut made) = (stream.iter().cycle(), 0, 0);
            while due < end {
                awake += BEAT;
                clock::sleep_until(awake);
                while due < clock::nanos().min(end) {
                    let key = *keys.next().expect("goes round");
                    let began = clock::nanos();
                    right += u64::from(get(key) == keys::value(key));
                    if began >= from {
                        tail::record(&mut seen, clock::nanos() - began);
                    }
                    made += 1;
                    due += PACE;
                }
            }
            (seen, right, made)
        };
        let (seen, right, made, calls) = thread::scope(|scope| {
            let spawn = |number| scope.spawn(move || caller(number));
            let callers: Vec<_> = (0..CALLERS).map(spawn).collect();
            clock::sleep_until(from);
            let before = self.calls.load(Relaxed);
            clock::sleep_until(end);
            let calls = self.calls.load(Relaxed) - before;
            let none = (tail::histogram(), 0, 0, calls);
            callers
                .into_iter()
                .map(joined)
                .fold(none, |all, (seen, right, made)| {
                    (all.0 + seen, all.1 + right, all.2 + made, calls)
                })
        });
        expect("right answers", right, made)?;
        let rate = |count: u64| count as f64 / self.seconds as f64;
        let mut readings = tail::readings(&seen, 1e3, &LATENCY);
        readings.extend([BACKEND.of(rate(calls)), REQUESTS.of(rate(seen.len()))]);
        Ok(readings)
    }
}
