//! One operation over and over in a filled cache that has room for more: hits, replacements, and
//! mixes of both.

use std::{sync::Arc, time::Duration};

use super::race::{self, Race, by_expiring, expect, expect_len, fill, plan_of, time};
use crate::{
    figure::Outcome,
    keys,
    peer::{Expiring, Key, Lifetime, Peer, Value},
    peers::{Batches, CoarseReads, IdleLimit, ReadsAsTold, Ready, Visit, Wheelhouse, WritesOnly},
    report::Report,
    setup::Setup,
};

/// Length of each worker's stream of ranks, and how often it is run through in a turn.
const STREAM: usize = 1 << 17;
const PASSES: usize = 4;

/// What is done with each rank of a stream.
trait Operation: Sync {
    type K: Key;
    type V: Value;
    /// What a stream is made of.
    type Item: Send + Sync;

    const VARIANTS: &'static [Expiring];
    /// Longer than any run.
    const LIFETIME: Lifetime<Self::K, Self::V>;

    fn entry(&self, rank: u32) -> (Self::K, Self::V);

    fn item(&self, rank: u32) -> Self::Item;

    /// The measured loop; counts right answers.
    fn pass<P: Peer<Self::K, Self::V>>(&self, cache: &P, stream: &[Self::Item]) -> u64;

    /// Shows further peers, as [`Race::also`].
    fn also(_expiring: Expiring, _visit: &mut impl Visit<Self::K, Self::V>) {}
}

struct Steady<O: Operation> {
    workload: &'static str,
    about: String,
    operation: O,
    resident: usize,
    bounded: bool,
    threads: Vec<usize>,
    streams: Vec<Vec<O::Item>>,
    passes: usize,
}

impl<O: Operation> Steady<O> {
    /// Over the small set of keys, drawn by Zipf's law.
    fn zipf(
        setup: &Setup,
        workload: &'static str,
        about: &str,
        operation: O,
        threads: Vec<usize>,
    ) -> Self {
        let ranks = |worker| keys::zipf_ranks(keys::SMALL, STREAM, worker);
        let about = format!("{about}; {} keys, Zipf {}", keys::SMALL, keys::SKEW);
        Self::new(
            setup,
            workload,
            about,
            operation,
            threads,
            keys::SMALL,
            ranks,
        )
    }

    fn new(
        setup: &Setup,
        workload: &'static str,
        about: String,
        operation: O,
        threads: Vec<usize>,
        resident: usize,
        ranks: impl Fn(usize) -> Vec<u32>,
    ) -> Self {
        let stream = |worker| -> Vec<O::Item> {
            let ranks: Vec<u32> = ranks(worker);
            ranks.into_iter().map(|rank| operation.item(rank)).collect()
        };
        Self {
            workload,
            about,
            resident,
            bounded: true,
            streams: (0..setup.most_threads()).map(stream).collect(),
            threads,
            passes: setup.size(PASSES, 1),
            operation,
        }
    }
}

impl<O: Operation> Race for Steady<O> {
    type K = O::K;
    type V = O::V;
    type Variant = Expiring;

    fn workload(&self) -> &'static str {
        self.workload
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn rounds(&self, setup: &Setup) -> usize {
        // To fill a large cache takes longer than to read it.
        setup.rounds.min(if self.resident > keys::SMALL {
            3
        } else {
            usize::MAX
        })
    }

    fn variants(&self) -> Vec<(String, Expiring)> {
        by_expiring(O::VARIANTS)
    }

    fn also(&self, expiring: Expiring, visit: &mut impl Visit<O::K, O::V>) {
        O::also(expiring, visit);
    }

    fn round<P: Peer<O::K, O::V>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let capacity = self.bounded.then_some(self.resident as u64 * 4);
        let plan = plan_of(expiring, self.resident, capacity, O::LIFETIME);
        let cache = P::build(&plan)?;
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
            let run = |worker: usize| {
                let passes = 0..self.passes;
                passes.map(|_| pass(&self.streams[worker])).sum()
            };
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
    type K = u64;
    type V = u64;
    type Item = u64;

    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create, Expiring::Access];
    const LIFETIME: Lifetime<u64, u64> = race::hours;

    fn entry(&self, rank: u32) -> (u64, u64) {
        let key = keys::key(rank.into());
        (key, keys::value(key))
    }

    fn item(&self, rank: u32) -> u64 {
        keys::key(rank.into())
    }

    #[inline(never)]
    fn pass<P: Peer<u64, u64>>(&self, cache: &P, stream: &[u64]) -> u64 {
        cache.count_right(stream, |key, value| *value == keys::value(*key))
    }

    fn also(expiring: Expiring, visit: &mut impl Visit<u64, u64>) {
        match expiring {
            Expiring::Create => {
                visit.meet::<Wheelhouse<u64, u64, ReadsAsTold>>();
                visit.meet::<Wheelhouse<u64, u64, WritesOnly>>();
                visit.meet::<Wheelhouse<u64, u64, Ready>>();
                visit.meet::<Wheelhouse<u64, u64, CoarseReads>>();
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
    type K = u64;
    type V = u64;
    type Item = u64;

    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Write];
    const LIFETIME: Lifetime<u64, u64> = race::hours;

    fn entry(&self, rank: u32) -> (u64, u64) {
        Get.entry(rank)
    }

    fn item(&self, rank: u32) -> u64 {
        Get.item(rank)
    }

    /// A write counts as right.
    #[inline(never)]
    fn pass<P: Peer<u64, u64>>(&self, cache: &P, stream: &[u64]) -> u64 {
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

impl Operation for GetString {
    type K = String;
    type V = u64;
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
    fn pass<P: Peer<String, u64>>(&self, cache: &P, stream: &[u32]) -> u64 {
        let mut right = 0;
        for &rank in stream {
            right += u64::from(cache.get(&self.0[rank as usize]) == Some(rank.into()));
        }
        right
    }
}

/// A value that one would not copy.
type Shared = Arc<[u64; 32]>;

/// Reads of shared values: cloned, which writes to the value's count, or in place.
struct GetShared {
    in_place: bool,
}

impl Operation for GetShared {
    type K = u64;
    type V = Shared;
    type Item = u64;

    const VARIANTS: &'static [Expiring] = &[Expiring::Never, Expiring::Create];
    const LIFETIME: Lifetime<u64, Shared> = |key, _| Duration::from_secs(3600 + (key & 0xFFF));

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

pub(super) fn hit_zipf(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, every read hits, room for four times as many entries";
    let threads = setup.threads.clone();
    race::run(
        &Steady::zipf(setup, "hit-zipf", about, Get, threads),
        setup,
        report,
    );
}

pub(super) fn hit_unbounded(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, every read hits, no bound where the peer allows none";
    let threads = setup.threads_within_cores();
    let hit = Steady {
        bounded: false,
        ..Steady::zipf(setup, "hit-unbounded", about, Get, threads)
    };
    race::run(&hit, setup, report);
}

pub(super) fn hit_uniform(setup: &Setup, report: &mut Report) {
    let resident = setup.size(1_000_000, 50_000);
    let ranks = |worker| keys::uniform_ranks(resident, STREAM * 2, worker);
    let about = format!("u64 -> u64, every read hits; {resident} keys, all equally likely");
    let threads = setup.threads_within_cores();
    let hit = Steady {
        passes: 1,
        ..Steady::new(setup, "hit-uniform", about, Get, threads, resident, ranks)
    };
    race::run(&hit, setup, report);
}

pub(super) fn hit_one(setup: &Setup, report: &mut Report) {
    let ranks = |_| vec![0; STREAM];
    let about = format!(
        "u64 -> u64, every read hits the same key, of {} present",
        keys::SMALL
    );
    let threads = setup.threads_within_cores();
    let hit = Steady::new(setup, "hit-one", about, Get, threads, keys::SMALL, ranks);
    race::run(&hit, setup, report);
}

pub(super) fn replace(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, inserts of keys that are there";
    let writes = Writes { reads: false };
    let threads = setup.threads.clone();
    race::run(
        &Steady::zipf(setup, "replace", about, writes, threads),
        setup,
        report,
    );
}

pub(super) fn mix(setup: &Setup, report: &mut Report) {
    let about = "u64 -> u64, every fourth operation replaces, the others read";
    let writes = Writes { reads: true };
    let threads = setup.threads.clone();
    race::run(
        &Steady::zipf(setup, "mix", about, writes, threads),
        setup,
        report,
    );
}

pub(super) fn strings(setup: &Setup, report: &mut Report) {
    let ranks = 0..keys::SMALL as u64;
    let names = ranks.map(|rank| format!("session:{:016x}:user", keys::key(rank)));
    let strings = GetString(names.collect());
    let about = "String of 29 bytes -> u64, every read hits";
    let threads = setup.threads_within_cores();
    race::run(
        &Steady::zipf(setup, "strings", about, strings, threads),
        setup,
        report,
    );
}

pub(super) fn arcs_clone(setup: &Setup, report: &mut Report) {
    let about = "u64 -> Arc of 256 bytes, cloned, one word read";
    arcs(setup, report, "arcs-clone", about, false);
}

pub(super) fn arcs_look(setup: &Setup, report: &mut Report) {
    let about = "u64 -> Arc of 256 bytes, read in place where the peer can, one word read";
    arcs(setup, report, "arcs-look", about, true);
}

fn arcs(setup: &Setup, report: &mut Report, name: &'static str, about: &str, in_place: bool) {
    let get = GetShared { in_place };
    let threads = setup.threads_within_cores();
    race::run(
        &Steady::zipf(setup, name, about, get, threads),
        setup,
        report,
    );
}
