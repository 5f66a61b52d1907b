//! One operation over and over in a filled cache that has room for more: hits, replacements, and
//! mixes of both.

use std::{sync::Arc, time::Duration};

use super::prelude::*;
use crate::peers::{Batches, IdleLimit, ReadsAsTold, Ready, Visit, Wheelhouse, WritesOnly};

/// Length of each worker's stream of ranks.
const STREAM: usize = 1 << 17;

/// What is done with each rank of a stream.
trait Operation<K: Key = u64, V: Value = u64>: Sync {
    /// What a stream is made of.
    type Item: Send + Sync;

    const VARIANTS: &'static [Expiring];
    /// Longer than any run.
    const LIFETIME: Lifetime<K, V>;
    /// How often a stream is run through in a turn.
    const PASSES: usize = 4;

    fn entry(&self, rank: u32) -> (K, V);

    fn item(&self, rank: u32) -> Self::Item;

    /// The measured loop; counts right answers.
    fn pass<P: Peer<K, V>>(&self, cache: &P, stream: &[Self::Item]) -> u64;

    /// Shows further peers, as [`Race::also`].
    fn also(_expiring: Expiring, _visit: &mut impl Visit<K, V>) {}
}

/// Keys and how they are drawn.
struct Steady<I, O> {
    about: String,
    operation: O,
    resident: usize,
    bounded: bool,
    threads: Vec<usize>,
    streams: Vec<Vec<I>>,
    passes: usize,
}

impl<K: Key, V: Value, O: Operation<K, V>> Race<K, V> for Steady<O::Item, O> {
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
            let pass = |stream: &[O::Item]| self.operation.pass(&cache, stream);
            let warm = |worker: usize| {
                let stream = &self.streams[worker];
                pass(&stream[..stream.len() / 4]);
            };
            let run = |worker: usize| (0..self.passes).map(|_| pass(&self.streams[worker])).sum();
            let done = time(setup, threads, operations, warm, run);
            expect("right answers", done.sum, (threads * operations) as u64)?;
            readings.push(done.reading());
        }
        expect_len(&cache, self.resident as u64)?;
        Ok(readings)
    }
}

/// `get` of `u64` keys.
struct Get;

impl Operation for Get {
    type Item = u64;

    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create, Expiring::Access];
    const LIFETIME: Lifetime<u64, u64> = hours;

    fn entry(&self, rank: u32) -> (u64, u64) {
        let key = keys::key(rank.into());
        (key, keys::value(key))
    }

    fn item(&self, rank: u32) -> u64 {
        keys::key(rank.into())
    }

    #[inline(never)]
    fn pass<P: Peer>(&self, cache: &P, stream: &[u64]) -> u64 {
        cache.count_right(stream, |key, value| *value == keys::value(*key))
    }

    fn also(expiring: Expiring, visit: &mut impl Visit) {
        match expiring {
            Expiring::Create => {
                visit.meet::<Wheelhouse<u64, u64, ReadsAsTold>>();
                visit.meet::<Wheelhouse<u64, u64, WritesOnly>>();
                visit.meet::<Wheelhouse<u64, u64, Ready>>();
                visit.meet::<Wheelhouse<u64, u64, Batches>>();
            }
            Expiring::Access => visit.meet::<Wheelhouse<u64, u64, IdleLimit>>(),
            Expiring::Never | Expiring::Write => (),
        }
    }
}

/// Writes, and three reads before each if `reads`.
struct Writes {
    reads: bool,
}

impl Operation for Writes {
    type Item = u64;

    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Write];
    const LIFETIME: Lifetime<u64, u64> = hours;
    const PASSES: usize = 2;

    fn entry(&self, rank: u32) -> (u64, u64) {
        Get.entry(rank)
    }

    fn item(&self, rank: u32) -> u64 {
        Get.item(rank)
    }

    /// A write counts as right.
    #[inline(never)]
    fn pass<P: Peer>(&self, cache: &P, stream: &[u64]) -> u64 {
        let mut right = stream.len() as u64;
        if self.reads {
            for four in stream.chunks_exact(4) {
                for key in &four[..3] {
                    right -= u64::from(cache.get(key) != Some(keys::value(*key)));
                }
                cache.insert(four[3], keys::value(four[3]));
            }
        } else {
            for &key in stream {
                cache.insert(key, keys::value(key));
            }
        }
        right
    }
}

/// `get` of string keys.
struct GetString(Vec<String>);

impl Operation<String> for GetString {
    /// A rank, not a clone of the name: each read touches the name itself.
    type Item = u32;

    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create];
    const LIFETIME: Lifetime<String, u64> = |_, value| Duration::from_secs(3600 + value);

    fn entry(&self, rank: u32) -> (String, u64) {
        (self.0[rank as usize].clone(), rank.into())
    }

    fn item(&self, rank: u32) -> u32 {
        rank
    }

    #[inline(never)]
    fn pass<P: Peer<String>>(&self, cache: &P, stream: &[u32]) -> u64 {
        let is_right = |rank: u32| cache.get(&self.0[rank as usize]) == Some(rank.into());
        stream.iter().map(|&rank| u64::from(is_right(rank))).sum()
    }
}

/// A value that one would not copy.
type Shared = Arc<[u64; 32]>;

/// Reads of shared values: cloned, which writes to the value's count, or in place.
struct GetShared {
    in_place: bool,
}

impl Operation<u64, Shared> for GetShared {
    type Item = u64;

    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create];
    const LIFETIME: Lifetime<u64, Shared> = |key, _| hours(key, &0);

    fn entry(&self, rank: u32) -> (u64, Shared) {
        let (key, value) = Get.entry(rank);
        (key, Arc::new([value; 32]))
    }

    fn item(&self, rank: u32) -> u64 {
        Get.item(rank)
    }

    #[inline(never)]
    fn pass<P: Peer<u64, Shared>>(&self, cache: &P, stream: &[u64]) -> u64 {
        let mut right = 0;
        for key in stream {
            let is_right = |value: &Shared| value[7] == keys::value(*key);
            let answer = if self.in_place {
                cache.look(key, is_right)
            } else {
                cache.get(key).map(|value| is_right(&value))
            };
            right += u64::from(answer == Some(true));
        }
        right
    }
}

/// Over the small set of keys, drawn by Zipf's law.
fn zipf<K: Key, V: Value, O: Operation<K, V>>(
    about: &str,
    operation: O,
    threads: Vec<usize>,
    setup: &Setup,
) -> Steady<O::Item, O> {
    let about = format!("{about}; {} keys, Zipf {}", keys::SMALL, keys::SKEW);
    let ranks = |worker| keys::zipf_ranks(keys::SMALL, STREAM, worker);
    over(about, operation, threads, setup, keys::SMALL, ranks)
}

fn over<K: Key, V: Value, O: Operation<K, V>>(
    about: String,
    operation: O,
    threads: Vec<usize>,
    setup: &Setup,
    resident: usize,
    ranks: impl Fn(usize) -> Vec<u32>,
) -> Steady<O::Item, O> {
    let items = |worker| {
        ranks(worker)
            .into_iter()
            .map(|rank| operation.item(rank))
            .collect()
    };
    Steady {
        about,
        resident,
        bounded: true,
        streams: (0..setup.most_threads()).map(items).collect(),
        threads,
        passes: setup.size(O::PASSES, 1),
        operation,
    }
}

fn run<K: Key, V: Value, O: Operation<K, V>>(
    name: &str,
    steady: Steady<O::Item, O>,
    setup: &Setup,
    report: &mut Report,
) {
    // To fill a large cache takes longer than to read it.
    let rounds = if steady.resident > keys::SMALL {
        3
    } else {
        usize::MAX
    };
    let (variants, about) = (by_expiring(O::VARIANTS), steady.about.clone());
    race::run(&steady, (name, about), variants, rounds, setup, report);
}

pub(super) fn hit_zipf(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, every read hits, room for four times as many entries";
    run(
        "hit-zipf",
        zipf(about, Get, setup.threads.clone(), setup),
        setup,
        report,
    );
}

pub(super) fn hit_unbounded(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, every read hits, no bound where the peer allows none";
    let hit = Steady {
        bounded: false,
        ..zipf(about, Get, setup.threads_within_cores(), setup)
    };
    run("hit-unbounded", hit, setup, report);
}

pub(super) fn hit_uniform(setup: &Setup, report: &mut Report) {
    let resident = setup.size(1_000_000, 50_000);
    let ranks = |worker| keys::uniform_ranks(resident, STREAM * 2, worker);
    let about = format!("u64 -> u64, every read hits; {resident} keys, all equally likely");
    let hit = Steady {
        passes: 1,
        ..over(
            about,
            Get,
            setup.threads_within_cores(),
            setup,
            resident,
            ranks,
        )
    };
    run("hit-uniform", hit, setup, report);
}

pub(super) fn hit_one(setup: &Setup, report: &mut Report) {
    let about = format!(
        "u64 -> u64, every read hits the same key, of {} present",
        keys::SMALL
    );
    let ranks = |_| vec![0; STREAM];
    let hit = over(
        about,
        Get,
        setup.threads_within_cores(),
        setup,
        keys::SMALL,
        ranks,
    );
    run("hit-one", hit, setup, report);
}

pub(super) fn replace(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, inserts of keys that are there";
    let writes = Writes { reads: false };
    run(
        "replace",
        zipf(about, writes, setup.threads.clone(), setup),
        setup,
        report,
    );
}

pub(super) fn mix(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, every fourth operation replaces, the others read";
    let writes = Writes { reads: true };
    run(
        "mix",
        zipf(about, writes, setup.threads.clone(), setup),
        setup,
        report,
    );
}

pub(super) fn strings(setup: &Setup, report: &mut Report) {
    let ranks = 0..keys::SMALL as u64;
    let names = ranks.map(|rank| format!("session:{:016x}:user", keys::key(rank)));
    let strings = zipf(
        "String of 29 bytes -> u64, every read hits",
        GetString(names.collect()),
        setup.threads_within_cores(),
        setup,
    );
    run("strings", strings, setup, report);
}

pub(super) fn arcs_clone(setup: &Setup, report: &mut Report) {
    let about = "u64 -> Arc of 256 bytes, cloned, one word read";
    let arcs = zipf(
        about,
        GetShared { in_place: false },
        setup.threads_within_cores(),
        setup,
    );
    run("arcs-clone", arcs, setup, report);
}

pub(super) fn arcs_look(setup: &Setup, report: &mut Report) {
    let about = "u64 -> Arc of 256 bytes, read in place where the peer can, one word read";
    let arcs = zipf(
        about,
        GetShared { in_place: true },
        setup.threads_within_cores(),
        setup,
    );
    run("arcs-look", arcs, setup, report);
}
