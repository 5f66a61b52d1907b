//! Reads of shared values: cloned out, which writes to the value's count, or looked at in place.

use std::{sync::Arc, time::Duration};

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

/// A value that one would not copy.
type Shared = Arc<[u64; 32]>;

struct Arcs {
    in_place: bool,
    streams: Vec<Vec<u64>>,
    slices: usize,
}

pub(super) fn clone(setup: &Setup, report: &mut Report) {
    race::run(&arcs(setup, false), setup, report);
}

pub(super) fn look(setup: &Setup, report: &mut Report) {
    race::run(&arcs(setup, true), setup, report);
}

fn arcs(setup: &Setup, in_place: bool) -> Arcs {
    let streams = (0..setup.most_threads())
        .map(|worker| keys::keys_of(&keys::zipf_ranks(keys::SMALL, STREAM, worker)))
        .collect();
    Arcs {
        in_place,
        streams,
        slices: setup.size(16, 4),
    }
}

impl Race for Arcs {
    type K = u64;
    type V = Shared;

    fn workload(&self) -> &'static str {
        if self.in_place {
            "arcs-look"
        } else {
            "arcs-clone"
        }
    }

    fn about(&self) -> String {
        let how = if self.in_place {
            "looked at in place where the peer can"
        } else {
            "cloned out"
        };
        format!(
            "u64 -> Arc of 256 bytes, {how}, one word read; {} keys, Zipf {}",
            keys::SMALL,
            keys::SKEW
        )
    }

    fn variants(&self) -> &'static [Expiring] {
        &[Expiring::Never, Expiring::Create]
    }

    fn round<P: Peer<u64, Shared>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let cache = P::build(&Plan {
            capacity: Some(keys::SMALL as u64 * 4),
            expected: keys::SMALL,
            expiring,
            lifetime: |key, _| Duration::from_secs(3600 + (key & 0xFFF)),
            uniform: Some(Duration::from_secs(3600)),
            listener: None,
        })?;
        let entries = (0..keys::SMALL as u64).map(keys::key);
        fill(
            &cache,
            entries.map(|key| (key, Arc::new([keys::value(key); 32]))),
        )?;
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let read = if self.in_place {
                look_at::<P>
            } else {
                clone_out::<P>
            };
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    slices: self.slices,
                    operations: SLICE,
                    prepare: || Ok(()),
                    warm: |_: &(), worker: usize| {
                        read(&cache, &self.streams[worker]);
                    },
                    run: |_: &(), worker: usize, slice: usize| {
                        read(&cache, piece(&self.streams[worker], SLICE, slice))
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

/// The measured loop with clones; counts right answers.
#[inline(never)]
fn clone_out<P: Peer<u64, Shared>>(cache: &P, stream: &[u64]) -> u64 {
    let mut right = 0;
    for key in stream {
        right += u64::from(
            cache
                .get(key)
                .is_some_and(|value| value[7] == keys::value(*key)),
        );
    }
    right
}

/// The measured loop without clones; counts right answers.
#[inline(never)]
fn look_at<P: Peer<u64, Shared>>(cache: &P, stream: &[u64]) -> u64 {
    let mut right = 0;
    for key in stream {
        right += u64::from(cache.look(key, |value| value[7] == keys::value(*key)) == Some(true));
    }
    right
}
