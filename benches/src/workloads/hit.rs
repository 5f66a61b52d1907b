//! Reads that all hit.

use super::race::{self, Race, entries, expect, fill, plan};
use crate::{
    contest::Outcome,
    keys,
    measure::{Work, piece, timed},
    peer::{Expiring, Peer},
    peers::{Batches, CoarseReads, IdleLimit, Visit},
    report::Report,
    setup::Setup,
};

/// Keys of one stream; every worker goes round its own.
const STREAM: usize = 1 << 17;
/// Reads of a slice.
const SLICE: usize = 1 << 15;

struct Hit {
    workload: &'static str,
    about: String,
    resident: usize,
    bounded: bool,
    streams: Vec<Vec<u64>>,
    slice: usize,
    slices: usize,
    threads: Vec<usize>,
}

pub(super) fn zipf(setup: &Setup, report: &mut Report) {
    race::run(&zipf_hit(setup, "hit-zipf", true), setup, report);
}

pub(super) fn unbounded(setup: &Setup, report: &mut Report) {
    race::run(&zipf_hit(setup, "hit-unbounded", false), setup, report);
}

fn zipf_hit(setup: &Setup, workload: &'static str, bounded: bool) -> Hit {
    Hit {
        workload,
        about: format!(
            "u64 -> u64, every read hits; {} keys, Zipf {}, {}",
            keys::SMALL,
            keys::SKEW,
            if bounded {
                "room for four times as many"
            } else {
                "no bound where the peer allows none"
            }
        ),
        resident: keys::SMALL,
        bounded,
        streams: streams(setup, |worker| {
            keys::zipf_ranks(keys::SMALL, STREAM, worker)
        }),
        slice: SLICE,
        slices: setup.size(16, 4),
        threads: if bounded {
            setup.threads.clone()
        } else {
            setup.threads_within_cores()
        },
    }
}

pub(super) fn uniform(setup: &Setup, report: &mut Report) {
    let resident = setup.size(1_000_000, 50_000);
    let hit = Hit {
        workload: "hit-uniform",
        about: format!(
            "u64 -> u64, every read hits; {resident} keys, all equally likely, room for four times as many"
        ),
        resident,
        bounded: true,
        streams: streams(setup, |worker| {
            keys::uniform_ranks(resident, setup.size(STREAM * 2, STREAM), worker)
        }),
        slice: SLICE / 2,
        slices: setup.size(16, 8),
        threads: setup.threads_within_cores(),
    };
    race::run(&hit, setup, report);
}

pub(super) fn one(setup: &Setup, report: &mut Report) {
    let hit = Hit {
        workload: "hit-one",
        about: format!(
            "u64 -> u64, every read hits the same key, of {} present",
            keys::SMALL
        ),
        resident: keys::SMALL,
        bounded: true,
        streams: streams(setup, |_| vec![0; STREAM]),
        slice: SLICE,
        slices: setup.size(16, 4),
        threads: setup.threads_within_cores(),
    };
    race::run(&hit, setup, report);
}

fn streams(setup: &Setup, ranks: impl Fn(usize) -> Vec<u32>) -> Vec<Vec<u64>> {
    (0..setup.most_threads())
        .map(|worker| keys::keys_of(&ranks(worker)))
        .collect()
}

impl Race for Hit {
    type K = u64;
    type V = u64;

    fn workload(&self) -> &'static str {
        self.workload
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn variants(&self) -> &'static [Expiring] {
        &[Expiring::Never, Expiring::Create, Expiring::Access]
    }

    fn also(&self, expiring: Expiring, visit: &mut impl Visit<u64, u64>) {
        match expiring {
            Expiring::Create => {
                visit.meet::<CoarseReads<u64, u64>>();
                visit.meet::<Batches<u64, u64>>();
            }
            Expiring::Access => visit.meet::<IdleLimit<u64, u64>>(),
            // Without a deadline no clock is read.
            Expiring::Never | Expiring::Write => (),
        }
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let capacity = self.bounded.then_some(self.resident as u64 * 4);
        let cache = P::build(&plan(expiring, self.resident, capacity))?;
        fill(&cache, entries(self.resident))?;
        let mut readings = Vec::new();
        for &threads in &self.threads {
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    slices: self.slices,
                    operations: self.slice,
                    prepare: || Ok(()),
                    warm: |_: &(), worker: usize| {
                        warm(&cache, &self.streams[worker]);
                    },
                    run: |_: &(), worker: usize, slice: usize| {
                        read(&cache, piece(&self.streams[worker], self.slice, slice))
                    },
                },
            )?;
            let reads = threads * self.slices * self.slice;
            expect("right answers", done.sum, reads as u64)?;
            readings.extend(done.timing.readings(setup, threads));
        }
        Ok(readings)
    }
}

/// Caches, branch predictors and the peers' own buffers see some reads before the clock starts.
fn warm<P: Peer<u64, u64>>(cache: &P, stream: &[u64]) {
    read(cache, &stream[..stream.len() / 4]);
}

/// The measured loop; counts right answers.
#[inline(never)]
fn read<P: Peer<u64, u64>>(cache: &P, stream: &[u64]) -> u64 {
    cache.count_right(stream, |key, value| *value == keys::value(*key))
}
