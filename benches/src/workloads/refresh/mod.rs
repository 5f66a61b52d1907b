//! A loading cache: what a hit costs that is fresh, or stale, and what its callers feel of a slow
//! backend.

mod backend;

use std::sync::RwLock;

use wheelhouse::{Cache, Loaded, Loader, LoadingCache, Refresh, Reloaded, refresh};

use crate::peers::{OnCreate, Wheelhouse};
use crate::workloads::prelude::*;

const PLAIN: Metric = Metric::ranked("Cache::get ns");
const FRESH: Metric = Metric::ranked("LoadingCache::get, fresh, ns");
const STALE: Metric = Metric::ranked("LoadingCache::get, stale, ns");

/// Keys of a worker's stream, and the numbers of workers.
const STREAM: usize = 1 << 17;
const THREADS: [usize; 2] = [1, 8];

/// Runs both kinds.
pub(super) fn run(bench: Bench<'_>) {
    let about = format!(
        "u64 -> u64, {} keys, Zipf {}; stale: a reload of each key is under way and does not end",
        keys::SMALL,
        keys::SKEW
    );
    let contest = bench.contest("hits, per-entry expiry", about);
    let hits = contest.with(<Wheelhouse as Peer>::CARD, || hits(bench.setup));
    bench.run(bench.rounds(), [hits]);
    backend::run(bench);
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
        let mut measure = |metric, get: &(dyn Fn(&[u64]) -> u64 + Sync)| {
            let run = |worker: usize| (0..4).map(|_| get(&streams[worker])).sum();
            let warm = |worker: usize| {
                get(&streams[worker][..STREAM / 4]);
            };
            let done = timed(setup.cpu, threads, STREAM * 4, warm, run);
            readings.push(done.as_metric(metric));
            expect("right answers", done.sum, (threads * STREAM * 4) as u64)
        };
        measure(PLAIN, &|stream| right(stream, |key| plain.0.get(key)))?;
        measure(FRESH, &|stream| right(stream, |key| fresh.get(key).ok()))?;
        measure(STALE, &|stream| right(stream, |key| stale.get(key).ok()))?;
    }
    // The fresh are never reloaded, the stale once each.
    drop(under_way);
    let until = clock::nanos() + 10_000_000_000;
    let reloads = || held.0.1.load(SeqCst);
    while reloads() < keys::SMALL as u64 && clock::nanos() < until {
        thread::yield_now();
    }
    expect("reloads", reloads(), keys::SMALL as u64)?;
    Ok(readings)
}

/// The measured loop; counts right answers.
#[inline(always)]
fn right(stream: &[u64], get: impl Fn(&u64) -> Option<u64>) -> u64 {
    let is_right = |key: &&u64| get(key) == Some(keys::value(**key));
    stream.iter().filter(is_right).count() as u64
}
