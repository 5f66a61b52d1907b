//! A loading cache: what a hit costs that is fresh, or stale, and what its callers feel of a slow
//! backend.
//!
//! The backend takes 5 ms, under a steady number of requests a second. Callers sleep, and wake up
//! to make all the calls that came due meanwhile: so two cores are enough for the pace, and few
//! calls are interrupted by another caller. Each call is timed from its start. "No cache" shows
//! what the machine and the other callers do to calls that do nothing.

use std::sync::RwLock;

use wheelhouse::{Cache, Loaded, Loader, LoadingCache, Refresh, Reloaded, loader_fn, refresh};

use super::prelude::*;

const PLAIN: Metric = Metric::ranked("Cache::get ns");
const FRESH: Metric = Metric::ranked("LoadingCache::get, fresh, ns");
const STALE: Metric = Metric::ranked("LoadingCache::get, stale, ns");

/// Keys of a worker's stream, and the numbers of workers.
const STREAM: usize = 1 << 17;
const THREADS: [usize; 2] = [1, 8];

pub(super) fn run(bench: Bench<'_>) {
    let about = format!(
        "u64 -> u64, {} keys, Zipf {}; stale: the thread that reloads is busy throughout",
        keys::SMALL,
        keys::SKEW
    );
    let contest = bench.contest("hits, per-entry expiry", about);
    let hits = contest.with(<Wheelhouse as Peer>::CARD, || hits(bench.setup));
    bench.run(bench.rounds(), [hits]);
    backend(bench);
}

/// A loader whose reloads wait for the lock.
#[derive(Clone, Default)]
struct Held(Arc<(RwLock<()>, AtomicU64)>);

impl Loader<u64, u64> for Held {
    type Error = ();

    fn load(&self, key: &u64) -> Result<Loaded<u64>, ()> {
        Ok(keys::value(*key).into())
    }

    fn reload(&self, _: &u64, _: &u64) -> Result<Reloaded<u64>, ()> {
        drop(self.0.0.read());
        self.0.1.fetch_add(1, SeqCst);
        Ok(Reloaded::Unchanged)
    }
}

fn loading(held: &Held, policy: impl Refresh<u64, u64>) -> LoadingCache<u64, u64, ()> {
    let cache = Cache::builder()
        .max_capacity(keys::SMALL as u64 * 4)
        .expire_after(OnCreate(hours))
        .loading(held.clone())
        .refresh_after(policy)
        .build();
    for (key, value) in keys::entries(keys::SMALL) {
        assert_eq!(cache.get(&key).ok(), Some(value));
    }
    cache
}

fn hits(setup: &Setup) -> Outcome {
    let plain: Wheelhouse = small_cache(Expiring::Create)?;
    let held = Held::default();
    let under_way = held.0.0.write();
    let fresh = loading(&held, refresh::after(Duration::from_secs(3600)));
    let stale = loading(&held, refresh::after(Duration::from_nanos(1)));
    // The first read of a stale entry starts the reload.
    let first = keys::entries(keys::SMALL).filter(|(key, value)| stale.get(key) == Ok(*value));
    expect("right answers", first.count() as u64, keys::SMALL as u64)?;
    let mut readings = Vec::new();
    for threads in THREADS {
        let streams = keys::zipf_streams(keys::SMALL, STREAM, threads);
        let mut measure = |metric: Metric, get: &(dyn Fn(&[u64]) -> u64 + Sync)| {
            let run = |worker: usize| (0..4).map(|_| get(&streams[worker])).sum();
            let warm = |worker: usize| {
                get(&streams[worker][..STREAM / 4]);
            };
            let (reading, right) = timed(setup.cpu, threads, STREAM * 4, warm, run);
            readings.push(metric.by(threads, reading.value));
            expect("right answers", right, (threads * STREAM * 4) as u64)
        };
        measure(PLAIN, &|stream| right(stream, |key| plain.0.get(key)))?;
        measure(FRESH, &|stream| right(stream, |key| fresh.get(key).ok()))?;
        measure(STALE, &|stream| right(stream, |key| stale.get(key).ok()))?;
    }
    expect("reloads that have ended", held.0.1.load(SeqCst), 0)?;
    // One stale entry is being reloaded, some wait for the thread, the others stay stale.
    drop(under_way);
    let until = clock::nanos() + 10_000_000_000;
    while held.0.1.load(SeqCst) < 2 && clock::nanos() < until {
        thread::yield_now();
    }
    if held.0.1.load(SeqCst) < 2 {
        return Err(Problem::Wrong(
            "no key has waited for the thread".to_owned(),
        ));
    }
    Ok(readings)
}

/// The measured loop; counts right answers.
#[inline(always)]
fn right(stream: &[u64], get: impl Fn(&u64) -> Option<u64>) -> u64 {
    let is_right = |key: &&u64| get(key) == Some(keys::value(**key));
    stream.iter().filter(is_right).count() as u64
}

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

/// Measures both settings of ours, moka, and no cache.
fn backend(bench: Bench<'_>) {
    let about = "50,000 requests a second by 16 callers, 1,000 keys equally likely, lives of 1 s; \
                 refresh: a quarter of the life before its end, up to a fifth earlier by chance, on \
                 16 threads";
    let seconds = bench.size(4, 1) as u64;
    let (refresh, no_refresh) = ("wheelhouse, refresh", "wheelhouse, no refresh");
    let nothing = move || requests(seconds, &AtomicU64::new(0), keys::value);
    let contest = bench
        .contest("backend of 5 ms", about)
        .with(Card::subject(refresh), move || refreshing(seconds, true))
        .with(Card::subject(no_refresh), move || {
            refreshing(seconds, false)
        })
        .with(<Moka as Peer>::CARD, move || with_moka(seconds))
        .with(Card::floor("no cache, calls that do nothing"), nothing);
    bench.run(bench.rounds().min(2), [contest]);
}

/// A call of the backend.
fn call(calls: &AtomicU64, key: u64) -> u64 {
    calls.fetch_add(1, Relaxed);
    thread::sleep(CALL);
    keys::value(key)
}

fn refreshing(seconds: u64, refreshes: bool) -> Outcome {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let load = move |key: &u64| Ok::<u64, ()>(call(&counted, *key));
    let builder = Cache::builder()
        .max_capacity(KEYS as u64 * 4)
        .expire_after(OnWrite(|_: &u64, _: &u64| LIFE))
        .loading(loader_fn(load));
    let cache = match refreshes {
        true => builder
            .refresh_after(refresh::jittered(refresh::fraction(0.75), 0.2))
            .reload_threads(16)
            .build(),
        false => builder.build(),
    };
    requests(seconds, &calls, |key| cache.get(&key).unwrap_or(0))
}

fn with_moka(seconds: u64) -> Outcome {
    let cache = Moka::build(&Plan {
        lifetime: |_, _| LIFE,
        ..roomy(Expiring::Write, KEYS)
    })?;
    let calls = AtomicU64::new(0);
    requests(seconds, &calls, |key| {
        cache.get_with(key, || call(&calls, key))
    })
}

/// Runs for two lifetimes that are not measured, then for the seconds that are measured.
fn requests(seconds: u64, calls: &AtomicU64, get: impl Fn(u64) -> u64 + Sync) -> Outcome {
    let start = clock::nanos() + 10_000_000;
    let from = start + 2 * LIFE.as_nanos() as u64;
    let end = from + seconds * 1_000_000_000;
    let caller = |number: u64| {
        let stream = keys::keys_of(&keys::uniform_ranks(KEYS, 1 << 16, number as usize));
        let mut seen = tail::histogram();
        let mut due = start + number * PACE / CALLERS;
        let mut awake = start + number * BEAT / CALLERS;
        let mut keys = stream.iter().cycle();
        while due < end {
            awake += BEAT;
            clock::sleep_until(awake);
            while due < clock::nanos().min(end) {
                let key = *keys.next().expect("goes round");
                let began = clock::nanos();
                assert_eq!(get(key), keys::value(key), "an answer of the cache");
                if began >= from {
                    tail::record(&mut seen, clock::nanos() - began);
                }
                due += PACE;
            }
        }
        seen
    };
    let mut seen = tail::histogram();
    let calls = thread::scope(|scope| {
        let caller = &caller;
        let spawn = |number| scope.spawn(move || caller(number));
        let callers: Vec<_> = (0..CALLERS).map(spawn).collect();
        clock::sleep_until(from);
        let before = calls.load(Relaxed);
        clock::sleep_until(end);
        let calls = calls.load(Relaxed) - before;
        for caller in callers {
            seen += joined(caller);
        }
        calls
    });
    let rate = |count: u64| count as f64 / seconds as f64;
    let mut readings = tail::readings(&seen, 1e3, &LATENCY);
    readings.push(Metric::median("backend calls/s").of(rate(calls)));
    readings.push(Metric::median("requests/s").of(rate(seen.len())));
    Ok(readings)
}
