//! One operation over and over in a filled cache that has room for more: hits, replacements, and
//! mixes of both.

mod operations;

use self::operations::{Get, GetShared, GetString, Operation, Writes};
use crate::peers::Visit;
use crate::workloads::prelude::*;

/// Length of each worker's stream of ranks.
const STREAM: usize = 1 << 17;

/// Keys and how they are drawn.
struct Steady<O> {
    operation: O,
    resident: usize,
    bounded: bool,
    threads: Vec<usize>,
    streams: Vec<Vec<u64>>,
    passes: usize,
}

impl<K: Key, V: Value, O: Operation<K, V>> Race<K, V> for Steady<O> {
    type Variant = Expiring;

    fn also(&self, expiring: Expiring, visit: &mut impl Visit<K, V>) {
        O::also(expiring, visit);
    }

    fn round<P: Peer<K, V>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let capacity = self.bounded.then_some(self.resident as u64 * 4);
        let cache = P::build(&plan_of(expiring, self.resident, capacity, O::LIFETIME))?;
        let ranks = 0..self.resident as u32;
        fill(&cache, ranks.map(|rank| self.operation.entry(rank)))?;
        let mut readings = Vec::new();
        for &threads in &self.threads {
            let operations = self.passes * self.streams[0].len();
            let pass = |stream: &[u64]| self.operation.pass(&cache, stream);
            let warm = |worker: usize| {
                let stream = &self.streams[worker];
                pass(&stream[..stream.len() / 4]);
            };
            let run = |worker: usize| (0..self.passes).map(|_| pass(&self.streams[worker])).sum();
            let done = timed(setup.cpu, threads, operations, warm, run);
            expect("right answers", done.sum, (threads * operations) as u64)?;
            readings.push(done.reading());
        }
        expect_len(&cache, self.resident as u64)?;
        Ok(readings)
    }
}

/// Over `resident` keys, in the order of `ranks`, by no more workers than cores.
fn over<K: Key, V: Value, O: Operation<K, V>>(
    bench: Bench<'_>,
    operation: O,
    resident: usize,
    ranks: impl Fn(usize) -> Vec<u32>,
) -> Steady<O> {
    let items = |worker| ranks(worker).into_iter().map(O::item).collect();
    Steady {
        operation,
        resident,
        bounded: true,
        threads: bench.threads_within_cores(),
        streams: (0..bench.most_threads()).map(items).collect(),
        passes: bench.size(O::PASSES, 1),
    }
}

/// Over the small set of keys, drawn by Zipf's law.
fn zipf<K: Key, V: Value, O: Operation<K, V>>(bench: Bench<'_>, operation: O) -> Steady<O> {
    let ranks = |worker| keys::zipf_ranks(keys::SMALL, STREAM, worker);
    over(bench, operation, keys::SMALL, ranks)
}

impl<O> Steady<O> {
    /// By as many workers as were asked for, even if there are fewer cores.
    fn by_all(mut self, bench: Bench<'_>) -> Self {
        self.threads = bench.all_threads();
        self
    }

    fn run<K: Key, V: Value>(self, bench: Bench<'_>, about: &str)
    where
        O: Operation<K, V>,
    {
        // To fill a large cache takes longer than to read it.
        let is_large = self.resident > keys::SMALL;
        let rounds = if is_large { 3 } else { usize::MAX };
        bench.race(about, by_expiring(O::VARIANTS), rounds, &self);
    }

    /// Runs what [`zipf`] made.
    fn run_zipf<K: Key, V: Value>(self, bench: Bench<'_>, about: &str)
    where
        O: Operation<K, V>,
    {
        let about = format!("{about}; {} keys, Zipf {}", keys::SMALL, keys::SKEW);
        self.run(bench, &about);
    }
}

pub(super) fn hit_zipf(bench: Bench<'_>) {
    let about = "u64 -> u64, every read hits, room for four times as many entries";
    zipf(bench, Get).by_all(bench).run_zipf(bench, about);
}

pub(super) fn hit_unbounded(bench: Bench<'_>) {
    let mut hit = zipf(bench, Get);
    hit.bounded = false;
    hit.run_zipf(
        bench,
        "u64 -> u64, every read hits, no bound where the peer allows none",
    );
}

pub(super) fn hit_uniform(bench: Bench<'_>) {
    let resident = bench.size(1_000_000, 50_000);
    let ranks = |worker| keys::uniform_ranks(resident, STREAM * 2, worker);
    let about = format!("u64 -> u64, every read hits; {resident} keys, all equally likely");
    let mut hit = over(bench, Get, resident, ranks);
    hit.passes = 1;
    hit.run(bench, &about);
}

pub(super) fn hit_one(bench: Bench<'_>) {
    let count = keys::SMALL;
    let about = format!("u64 -> u64, every read hits the same key, of {count} present");
    over(bench, Get, count, |_| vec![0; STREAM]).run(bench, &about);
}

pub(super) fn replace(bench: Bench<'_>) {
    let writes = zipf(bench, Writes { reads: false }).by_all(bench);
    writes.run_zipf(bench, "u64 -> u64, inserts of keys that are there");
}

pub(super) fn mix(bench: Bench<'_>) {
    let writes = zipf(bench, Writes { reads: true }).by_all(bench);
    writes.run_zipf(
        bench,
        "u64 -> u64, every fourth operation replaces, the others read",
    );
}

pub(super) fn strings(bench: Bench<'_>) {
    let ranks = 0..keys::SMALL as u64;
    let names = ranks.map(|rank| format!("session:{:016x}:user", keys::key(rank)));
    let strings = zipf(bench, GetString(names.collect()));
    strings.run_zipf(bench, "String of 29 bytes -> u64, every read hits");
}

pub(super) fn arcs_clone(bench: Bench<'_>) {
    let about = "u64 -> Arc of 256 bytes, cloned, one word read";
    zipf(bench, GetShared { in_place: false }).run_zipf(bench, about);
}

pub(super) fn arcs_look(bench: Bench<'_>) {
    let about = "u64 -> Arc of 256 bytes, read in place where the peer can, one word read";
    zipf(bench, GetShared { in_place: true }).run_zipf(bench, about);
}
