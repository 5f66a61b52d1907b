//! Three reads, one replacement.

use super::race::{self, Race, entries, expect, expect_len, fill, plan};
use crate::{
    contest::Outcome,
    keys,
    measure::{Work, timed},
    peer::{Expiring, Peer},
    report::Report,
    setup::Setup,
};

const STREAM: usize = 1 << 17;

struct Mix {
    streams: Vec<Vec<u64>>,
    laps: usize,
}

pub(super) fn run(setup: &Setup, report: &mut Report) {
    let streams = (0..setup.most_threads())
        .map(|worker| keys::keys_of(&keys::zipf_ranks(keys::SMALL, STREAM, worker)))
        .collect();
    race::run(
        &Mix {
            streams,
            laps: setup.size(4, 1),
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
            let operations = self.laps * STREAM;
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    operations,
                    prepare: || Ok(()),
                    warm: |_: &(), worker: usize| {
                        mix(&cache, &self.streams[worker][..STREAM / 4], 1);
                    },
                    run: |_: &(), worker: usize| mix(&cache, &self.streams[worker], self.laps),
                },
            )?;
            expect(
                "right answers",
                done.sum,
                (threads * operations / 4 * 3) as u64,
            )?;
            readings.extend(done.timing.readings(setup, threads));
        }
        expect_len(&cache, keys::SMALL as u64)?;
        Ok(readings)
    }
}

/// The measured loop; counts right answers.
#[inline(never)]
fn mix<P: Peer<u64, u64>>(cache: &P, stream: &[u64], laps: usize) -> u64 {
    let mut right = 0;
    for _ in 0..laps {
        for four in stream.chunks_exact(4) {
            for key in &four[..3] {
                right += u64::from(cache.get(key) == Some(keys::value(*key)));
            }
            cache.insert(four[3], keys::value(four[3]));
        }
    }
    right
}
