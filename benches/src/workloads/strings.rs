//! Reads by string keys.

use std::time::Duration;

use super::race::{self, Race, expect, fill};
use crate::{
    contest::Outcome,
    keys,
    measure::{Work, piece, timed},
    peer::{Expiring, Peer, Plan},
    report::Report,
    setup::Setup,
};

const STREAM: usize = 1 << 17;
/// Reads of a slice.
const SLICE: usize = 1 << 15;

struct Strings {
    names: Vec<String>,
    /// Ranks, not clones of names: each read touches the name itself.
    streams: Vec<Vec<u32>>,
    slices: usize,
}

pub(super) fn run(setup: &Setup, report: &mut Report) {
    let names = (0..keys::SMALL as u64)
        .map(|rank| format!("session:{:016x}:user", keys::key(rank)))
        .collect();
    let streams = (0..setup.most_threads())
        .map(|worker| keys::zipf_ranks(keys::SMALL, STREAM, worker))
        .collect();
    race::run(
        &Strings {
            names,
            streams,
            slices: setup.size(16, 4),
        },
        setup,
        report,
    );
}

impl Race for Strings {
    type K = String;
    type V = u64;

    fn workload(&self) -> &'static str {
        "strings"
    }

    fn about(&self) -> String {
        format!(
            "String of 29 bytes -> u64, every read hits; {} keys, Zipf {}",
            keys::SMALL,
            keys::SKEW
        )
    }

    fn variants(&self) -> &'static [Expiring] {
        &[Expiring::Never, Expiring::Create]
    }

    fn round<P: Peer<String, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let hour = Duration::from_secs(3600);
        let cache = P::build(&Plan {
            capacity: Some(keys::SMALL as u64 * 4),
            expected: keys::SMALL,
            expiring,
            lifetime: |_, value| Duration::from_secs(3600 + value),
            uniform: Some(hour),
            listener: None,
        })?;
        fill(&cache, self.names.iter().cloned().zip(0..))?;
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    slices: self.slices,
                    operations: SLICE,
                    prepare: || Ok(()),
                    warm: |_: &(), worker: usize| {
                        read(&cache, &self.names, &self.streams[worker]);
                    },
                    run: |_: &(), worker: usize, slice: usize| {
                        let stream = piece(&self.streams[worker], SLICE, slice);
                        read(&cache, &self.names, stream)
                    },
                },
            )?;
            let reads = threads * self.slices * SLICE;
            expect("right answers", done.sum, reads as u64)?;
            readings.extend(done.timing.readings(setup, threads));
        }
        Ok(readings)
    }
}

/// The measured loop; counts right answers.
#[inline(never)]
fn read<P: Peer<String, u64>>(cache: &P, names: &[String], stream: &[u32]) -> u64 {
    let mut right = 0;
    for &rank in stream {
        right += u64::from(cache.get(&names[rank as usize]) == Some(u64::from(rank)));
    }
    right
}
