//! A cache that loads what is absent: hits, misses, herds, failures, computes.

use futures_util::future::join_all;
use tokio::{runtime::Builder, time::sleep};

use super::prelude::*;

/// Adds each of the caches that load to a contest, run by an expression over its type.
macro_rules! loading {
    ($contest:expr, $peer:ident => $run:expr) => {
        loading!($contest, $peer => $run;
            Wheelhouse, Wheelhouse<u64, u64, READY>, Moka, QuickCache, Fibre)
    };
    ($contest:expr, $peer:ident => $run:expr; $($type:ty),+) => {
        $contest$(.with(<$type as $crate::peer::Peer>::CARD, {
            type $peer = $type;
            move || $run
        }))+
    };
}

const GET: Metric = Metric::ranked("get ns");
const GET_WITH: Metric = Metric::ranked("get_with ns");
const BY_HAND: Metric = Metric::ranked("get, then insert ns");

/// How long a load takes.
const LOAD: Duration = Duration::from_millis(1);
const TASKS: usize = 64;
const THREADS: usize = 8;

/// Operations between which the two ways to ask take turns.
const TURN: usize = 1 << 14;

pub(super) fn run(bench: Bench<'_>) {
    let hits = bench.size(1 << 19, 1 << 17);
    let (count, skew) = (keys::SMALL, keys::SKEW);
    let hit = format!("hits by both calls in turns; {count} keys, Zipf {skew}; 1 thread");
    let misses = bench.size(400_000, 100_000);
    let miss =
        format!("{misses} absent keys, by both ways in turns; a load does nothing; 1 thread");
    let mut all = Vec::new();
    for (label, expiring) in by_expiring(&[Expiring::Never, Expiring::Create]) {
        let hit = bench.contest(format!("hit, {label}"), &hit);
        all.push(loading!(hit, P => hits_of::<P>(expiring, hits)));
        let miss = bench.contest(format!("miss, {label}"), &miss);
        all.push(loading!(miss, P => misses_of::<P>(expiring, misses)));
    }
    bench.run(bench.rounds(), all);
    herds(bench);
    computes(bench);
}

/// Fails where the loads of a peer cannot have the deadlines that are wanted.
fn can_load<P: Loads>(expiring: Expiring) -> Result<(), Problem> {
    match expiring {
        Expiring::Never => Ok(()),
        _ => P::LOADS_EXPIRE,
    }
}

fn hits_of<P: Loads>(expiring: Expiring, operations: usize) -> Outcome {
    can_load::<P>(expiring)?;
    let cache: P = small_cache(expiring)?;
    let stream = keys::small_stream(operations);
    let get = |keys: &[u64]| sum(keys, |key| cache.get(&key).unwrap_or(0));
    let get_with = |keys: &[u64]| sum(keys, |key| cache.get_with(key, || 0));
    get_with(&stream[..operations / 4]);
    in_turns(&stream, [(GET, &get), (GET_WITH, &get_with)])
}

/// Misses by hand, and by `get_with` in another cache.
fn misses_of<P: Loads>(expiring: Expiring, operations: usize) -> Outcome {
    can_load::<P>(expiring)?;
    let build = || P::build(&roomy(expiring, operations));
    let (one, other) = (build()?, build()?);
    let stream: Vec<u64> = (0..operations as u64).map(keys::key).collect();
    let by_hand = |keys: &[u64]| {
        sum(keys, |key| {
            one.get(&key).unwrap_or_else(|| {
                one.insert(key, keys::value(key));
                keys::value(key)
            })
        })
    };
    let get_with = |keys: &[u64]| sum(keys, |key| other.get_with(key, || keys::value(key)));
    in_turns(&stream, [(BY_HAND, &by_hand), (GET_WITH, &get_with)])
}

#[inline(always)]
fn sum(keys: &[u64], ask: impl Fn(u64) -> u64) -> u64 {
    keys.iter().fold(0, |sum, &key| sum.wrapping_add(ask(key)))
}

/// A way to ask for keys, which adds up the values.
type Way<'a> = (Metric, &'a (dyn Fn(&[u64]) -> u64 + Sync));

/// Times two ways to ask for the keys of a stream, some keys at a time.
fn in_turns(stream: &[u64], ways: [Way<'_>; 2]) -> Outcome {
    let mut readings = ways.map(|(metric, _)| metric.of(0.0));
    let mut sums = [0_u64; 2];
    on_a_core(|| {
        for keys in stream.chunks(TURN) {
            for (way, (_, run)) in ways.iter().enumerate() {
                let (spent, sum) = timed_here(false, stream.len(), || run(keys));
                readings[way].value += spent;
                sums[way] = sums[way].wrapping_add(sum);
            }
        }
    });
    for right in sums {
        expect("sums of the values", right, sum(stream, keys::value))?;
    }
    Ok(readings.to_vec())
}

/// Adds one to values: of one key, and of a million.
fn computes(bench: Bench<'_>) {
    let (setup, operations) = (bench.setup, bench.size(1 << 18, 1 << 16));
    let million = bench.size(1_000_000, 50_000);
    let about = "each operation adds one to a value that is there, by `and_upsert_with` (quick_cache: \
                 `entry`, fibre_cache: `compute`, which call back under a lock)";
    let all = [("one key", 1), ("a million keys", million)].map(|(variant, resident)| {
        let contest = bench.contest(format!("compute, {variant}"), about);
        loading!(contest, P => compute::<P>(setup, resident, operations);
            Wheelhouse, Moka, QuickCache, Fibre)
    });
    bench.run(bench.rounds().min(3), all);
}

fn compute<P: Loads>(setup: &Setup, resident: usize, operations: usize) -> Outcome {
    let cache = P::build(&roomy(Expiring::Never, resident))?;
    let all = (0..resident as u64).map(keys::key);
    fill(&cache, all.clone().map(|key| (key, 0)))?;
    let mut readings = Vec::new();
    let mut added = 0;
    for threads in setup.threads_within_cores() {
        let stream = |worker| keys::keys_of(&keys::uniform_ranks(resident, operations, worker));
        let streams: Vec<_> = (0..threads).map(stream).collect();
        let run = |worker: usize| {
            streams[worker].iter().for_each(|&key| cache.add_one(key));
            0
        };
        readings.push(timed(setup.cpu, threads, operations, |_| (), run).0);
        added += threads * operations;
    }
    cache.settle();
    // A lost entry is missed in the sum.
    let sum = all.filter_map(|key| cache.get(&key)).sum();
    expect("sum of the values", sum, added as u64)?;
    Ok(readings)
}

/// Many callers that ask for one cold key at once: how often the load runs, and when the last of
/// them has its answer.
fn herds(bench: Bench<'_>) {
    let herds = bench.size(100, 10);
    let about = format!(
        "{herds} cold keys, one after the other, each asked for by all callers at once; a load \
         ends 1 ms after the last of them has begun. Times count from the end of its first run; \
         median of the herds. Tasks run on one thread, and those of moka in its cache for tasks"
    );
    let contest = |variant: String| bench.contest(variant, &*about);
    let threads = |fails: bool| {
        let what = if fails { ", the load fails" } else { "" };
        loading!(contest(format!("{THREADS} threads{what}")), P => {
            let cache = built::<P>(herds)?;
            let ask = |key, herd: &Herd| ask(&cache, fails, key, herd);
            gather(herds, THREADS, &[&ask as Ask<'_>; THREADS])
        }; Wheelhouse, Moka, QuickCache, Fibre)
    };
    let tasks = loading!(contest(format!("{TASKS} tasks")), P => {
        let cache = built::<P>(herds)?;
        gather(herds, TASKS, &[&|key, herd| drive(&cache, key, herd)])
    }; Wheelhouse, QuickCache);
    let moka = move || {
        let cache = moka::future::Cache::new(herds as u64 * 4);
        gather(herds, TASKS, &[&|key, herd| drive(&cache, key, herd)])
    };
    let both = loading!(contest(format!("{TASKS} tasks and {THREADS} threads")), P => {
        let cache = built::<P>(herds)?;
        let ask = |key, herd: &Herd| ask(&cache, false, key, herd);
        let mut asking = vec![&ask as Ask<'_>; THREADS];
        let drive = |key, herd: &Herd| drive(&cache, key, herd);
        asking.push(&drive);
        gather(herds, TASKS + THREADS, &asking)
    }; Wheelhouse, QuickCache);
    let tasks = tasks.with(<Moka as Peer>::CARD, moka);
    let all = [threads(false), tasks, both, threads(true)];
    bench.run(bench.rounds().min(3), all);
}

fn built<P: Peer>(herds: usize) -> Result<P, Problem> {
    P::build(&roomy(Expiring::Never, herds))
}

#[derive(Default)]
struct Herd {
    /// Callers that have not begun to ask.
    to_come: AtomicU64,
    runs: AtomicU64,
    /// When the first run of the load ended.
    ended: AtomicU64,
    /// When the last caller had its answer.
    last: AtomicU64,
}

impl Herd {
    fn end(&self) {
        self.runs.fetch_add(1, SeqCst);
        self.ended.fetch_min(clock::nanos(), SeqCst);
    }

    /// Some thread may begin late; a load that ended before would not be one for all callers.
    fn load(&self) {
        while self.to_come.load(SeqCst) > 0 {
            thread::sleep(LOAD / 10);
        }
        thread::sleep(LOAD);
        self.end();
    }

    async fn load_by_future(&self, key: u64) -> u64 {
        while self.to_come.load(SeqCst) > 0 {
            sleep(LOAD).await;
        }
        sleep(LOAD).await;
        self.end();
        keys::value(key)
    }
}

/// Asks on the calling thread, with a load that may fail.
fn ask(cache: &impl Loads, fails: bool, key: u64, herd: &Herd) {
    herd.to_come.fetch_sub(1, SeqCst);
    let load = || {
        herd.load();
        keys::value(key)
    };
    if fails {
        let fail = || {
            load();
            Err(())
        };
        assert_eq!(cache.try_get_with(key, fail), None);
    } else {
        assert_eq!(cache.get_with(key, load), keys::value(key));
    }
}

/// Asks by tasks, on the calling thread.
fn drive(cache: &impl LoadsByFuture, key: u64, herd: &Herd) {
    let task = |_| async {
        herd.to_come.fetch_sub(1, SeqCst);
        let value = cache.get_with_future(key, herd.load_by_future(key)).await;
        assert_eq!(value, keys::value(key));
        herd.last.fetch_max(clock::nanos(), SeqCst);
    };
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime needs no resources");
    runtime.block_on(join_all((0..TASKS).map(task)));
}

type Ask<'a> = &'a (dyn Fn(u64, &Herd) + Sync);

/// Lets this many callers ask for one key after the other, from a thread for each of `asking`.
fn gather(herds: usize, callers: usize, asking: &[Ask<'_>]) -> Outcome {
    let herd = |_| Herd {
        to_come: AtomicU64::new(callers as u64),
        ended: AtomicU64::new(u64::MAX),
        ..Herd::default()
    };
    let all: &Vec<Herd> = &(0..herds).map(herd).collect();
    let barrier = &Barrier::new(asking.len());
    thread::scope(|scope| {
        for ask in asking {
            scope.spawn(move || {
                for (herd, rank) in all.iter().zip(0..) {
                    barrier.wait();
                    ask(keys::key(rank), herd);
                    herd.last.fetch_max(clock::nanos(), SeqCst);
                }
            });
        }
    });
    let runs = all.iter().map(|herd| herd.runs.load(SeqCst)).max();
    let waited = |herd: &Herd| herd.last.load(SeqCst) - herd.ended.load(SeqCst);
    let mut waited: Vec<u64> = all.iter().map(waited).collect();
    waited.sort_unstable();
    Ok(vec![
        Metric::worst("runs of the load").of(runs.unwrap_or(0) as f64),
        Metric::ranked("last caller us").of(waited[herds / 2] as f64 / 1e3),
        Metric::worst("last caller of the slowest herd us").of(waited[herds - 1] as f64 / 1e3),
    ])
}
