//! A cache that loads what is absent: hits, misses, herds, failures, computes.

mod herd;

use crate::peers::{Moka, QuickCache, Ready, Wheelhouse};
use crate::workloads::prelude::*;

const GET: Metric = Metric::ranked("get ns");
const GET_WITH: Metric = Metric::ranked("get_with ns");
const BY_HAND: Metric = Metric::ranked("get, then insert ns");

/// Operations between which the two ways to ask take turns.
const TURN: usize = 1 << 14;

/// Runs all kinds.
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
    herd::run(bench);
    computes(bench);
}

/// Adds each of the caches that load to a contest, run by an expression over its type.
macro_rules! loading {
    ($contest:expr, $peer:ident => $run:expr) => {
        loading!($contest, $peer => $run; Wheelhouse, Wheelhouse<u64, u64, Ready>, Moka, QuickCache)
    };
    ($contest:expr, $peer:ident => $run:expr; $($type:ty),+) => {
        $contest$(.with(<$type as $crate::peer::Peer>::CARD, {
            type $peer = $type;
            move || $run
        }))+
    };
}
use loading;

/// Hits by `get` and by `get_with`.
fn hits_of<P: Loads>(expiring: Expiring, operations: usize) -> Outcome {
    let cache: P = small_cache(expiring)?;
    let stream = keys::small_stream(operations);
    let get = |keys: &[u64]| sum(keys, |key| cache.get(&key).unwrap_or(0));
    let get_with = |keys: &[u64]| sum(keys, |key| cache.get_with(key, || 0));
    get_with(&stream[..operations / 4]);
    in_turns(&stream, (GET, get), (GET_WITH, get_with))
}

/// Misses by hand, and by `get_with` in another cache.
fn misses_of<P: Loads>(expiring: Expiring, operations: usize) -> Outcome {
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
    in_turns(&stream, (BY_HAND, by_hand), (GET_WITH, get_with))
}

#[inline(always)]
fn sum(keys: &[u64], ask: impl Fn(u64) -> u64) -> u64 {
    keys.iter().fold(0, |sum, &key| sum.wrapping_add(ask(key)))
}

/// Times two ways to ask for the keys of a stream, some keys at a time.
fn in_turns(
    stream: &[u64],
    one: (Metric, impl Fn(&[u64]) -> u64 + Sync),
    other: (Metric, impl Fn(&[u64]) -> u64 + Sync),
) -> Outcome {
    let (mut nanos, mut right) = ([0.0; 2], [0_u64; 2]);
    on_a_core(|| {
        for keys in stream.chunks(TURN) {
            let ways = [&one.1 as &dyn Fn(&[u64]) -> u64, &other.1];
            for (way, run) in ways.into_iter().enumerate() {
                let (spent, sum) = timed_here(false, 1, || run(keys));
                nanos[way] += spent;
                right[way] = right[way].wrapping_add(sum);
            }
        }
    });
    let expected = sum(stream, keys::value);
    expect("sums of the values", right[0], expected)?;
    expect("sums of the values", right[1], expected)?;
    let each = nanos.map(|nanos| nanos / stream.len() as f64);
    Ok(vec![one.0.of(each[0]), other.0.of(each[1])])
}

/// Adds one to values: of one key, and of a million.
fn computes(bench: Bench<'_>) {
    let (setup, operations) = (bench.setup, bench.size(1 << 18, 1 << 16));
    let million = bench.size(1_000_000, 50_000);
    let about = "each operation adds one to a value that is there, by `and_upsert_with` (quick_cache: \
                 `entry`, which calls back under a lock)";
    let all = [("one key", 1), ("a million keys", million)].map(|(variant, resident)| {
        let contest = bench.contest(format!("compute, {variant}"), about);
        loading!(contest, P => compute::<P>(setup, resident, operations); Wheelhouse, Moka, QuickCache)
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
        readings.push(timed(setup.cpu, threads, operations, |_| (), run).reading());
        added += threads * operations;
    }
    cache.settle();
    let values = all.map(|key| cache.get(&key));
    let sum: Option<u64> = values.sum();
    let sum = sum.ok_or_else(|| Problem::Wrong("an entry is lost".into()))?;
    expect("sum of the values", sum, added as u64)?;
    Ok(readings)
}
