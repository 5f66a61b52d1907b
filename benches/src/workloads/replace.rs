//! Replacing the values of existing keys.

use super::race::{self, Race, entries, expect_len, fill, plan};
use crate::{
    contest::Outcome,
    keys,
    measure::{Work, piece, timed},
    peer::{Expiring, Peer},
    report::Report,
    setup::Setup,
};

const STREAM: usize = 1 << 17;
/// Writes of a slice.
const SLICE: usize = 1 << 15;

struct Replace {
    streams: Vec<Vec<u64>>,
    slices: usize,
}

pub(super) fn run(setup: &Setup, report: &mut Report) {
    let streams = (0..setup.most_threads())
        .map(|worker| keys::keys_of(&keys::zipf_ranks(keys::SMALL, STREAM, worker)))
        .collect();
    race::run(
        &Replace {
            streams,
            slices: setup.size(16, 4),
        },
        setup,
        report,
    );
}

impl Race for Replace {
    type K = u64;
    type V = u64;

    fn workload(&self) -> &'static str {
        "replace"
    }

    fn about(&self) -> String {
        format!(
            "u64 -> u64, inserts of keys that are there; {} keys, Zipf {}",
            keys::SMALL,
            keys::SKEW
        )
    }

    fn variants(&self) -> &'static [Expiring] {
        &[Expiring::Never, Expiring::Write]
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let cache = P::build(&plan(expiring, keys::SMALL, Some(keys::SMALL as u64 * 4)))?;
        fill(&cache, entries(keys::SMALL))?;
        let mut readings = Vec::new();
        for threads in setup.threads.clone() {
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    slices: self.slices,
                    operations: SLICE,
                    prepare: || Ok(()),
                    warm: |_: &(), worker: usize| {
                        replace(&cache, &self.streams[worker][..STREAM / 4]);
                    },
                    run: |_: &(), worker: usize, slice: usize| {
                        replace(&cache, piece(&self.streams[worker], SLICE, slice))
                    },
                },
            )?;
            readings.extend(done.timing.readings(setup, threads));
        }
        expect_len(&cache, keys::SMALL as u64)?;
        Ok(readings)
    }
}

/// The measured loop.
#[inline(never)]
fn replace<P: Peer<u64, u64>>(cache: &P, stream: &[u64]) -> u64 {
    for &key in stream {
        cache.insert(key, keys::value(key));
    }
    0
}
