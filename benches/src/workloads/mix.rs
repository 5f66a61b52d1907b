//! Three reads, one replacement.

use super::race::{self, Race, entries, expect, expect_len, fill, plan};
use crate::{
    contest::Outcome,
    keys,
    measure::{Work, piece, timed},
    peer::{Expiring, Peer},
    report::Report,
    setup::Setup,
};

const STREAM: usize = 1 << 17;
/// Operations of a slice.
const SLICE: usize = 1 << 15;

struct Mix {
    streams: Vec<Vec<u64>>,
    slices: usize,
}

pub(super) fn run(setup: &Setup, report: &mut Report) {
    let streams = (0..setup.most_threads())
        .map(|worker| keys::keys_of(&keys::zipf_ranks(keys::SMALL, STREAM, worker)))
        .collect();
    race::run(
        &Mix {
            streams,
            slices: setup.size(16, 4),
        },
        setup,
        report,
    );
}

impl Race for Mix {
    type K = u64;
    type V = u64;

    fn workload(&self) -> &'static str {
        "mix"
    }

    fn about(&self) -> String {
        format!(
            "u64 -> u64, every fourth operation replaces, the others read; {} keys, Zipf {}",
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
        for &threads in &setup.threads {
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    slices: self.slices,
                    operations: SLICE,
                    prepare: || Ok(()),
                    warm: |_: &(), worker: usize| {
                        mix(&cache, &self.streams[worker][..STREAM / 4]);
                    },
                    run: |_: &(), worker: usize, slice: usize| {
                        mix(&cache, piece(&self.streams[worker], SLICE, slice))
                    },
                },
            )?;
            expect(
                "right answers",
                done.sum,
                (threads * self.slices * SLICE / 4 * 3) as u64,
            )?;
            readings.extend(done.timing.readings(setup, threads));
        }
        expect_len(&cache, keys::SMALL as u64)?;
        Ok(readings)
    }
}

/// The measured loop; counts right answers.
#[inline(never)]
fn mix<P: Peer<u64, u64>>(cache: &P, stream: &[u64]) -> u64 {
    let mut right = 0;
    for four in stream.chunks_exact(4) {
        for key in &four[..3] {
            right += u64::from(cache.get(key) == Some(keys::value(*key)));
        }
        cache.insert(four[3], keys::value(four[3]));
    }
    right
}
