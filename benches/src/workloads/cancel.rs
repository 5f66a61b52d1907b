//! Insert one, invalidate another, with many alive: what the start and the cancelling of a timer cost.

use super::race::{self, Race, expect_len, fill, plan};
use crate::{
    contest::Outcome,
    keys,
    measure::{Work, timed},
    peer::{Expiring, Peer, Problem},
    report::Report,
    setup::Setup,
};

/// The name of the workload with caches that are no longer young.
pub(super) const AGED: &str = "cancel-aged";

const ALIVE: usize = 100_000;
const SLICES: usize = 20;

struct Cancel {
    name: &'static str,
    /// How often each entry alive has made room for another before the clock starts.
    age: usize,
    pairs: usize,
    /// Per worker: its share of the entries alive at first, then those to come.
    streams: Vec<Vec<u64>>,
}

/// In a cache that was just filled.
pub(super) fn run(setup: &Setup, report: &mut Report) {
    race("cancel", 0, setup, report);
}

/// In one that has done so for a while: what leaves memory in some order, and what is shuffled, is seen only then.
pub(super) fn aged(setup: &Setup, report: &mut Report) {
    race(AGED, setup.size(20, 1), setup, report);
}

fn race(name: &'static str, age: usize, setup: &Setup, report: &mut Report) {
    let pairs = setup.size(200_000, 60_000);
    let streams = (0..setup.most_threads() as u64)
        .map(|worker| {
            (0..(ALIVE + age * ALIVE + pairs) as u64)
                .map(|rank| keys::key((worker << 32) + rank))
                .collect()
        })
        .collect();
    let cancel = Cancel {
        name,
        age,
        pairs,
        streams,
    };
    race::run(&cancel, setup, report);
}

impl Race for Cancel {
    type K = u64;
    type V = u64;

    fn workload(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let age = if self.age > 0 {
            format!(", each after {} others that have left", self.age)
        } else {
            String::new()
        };
        format!(
            "u64 -> u64, one insert of a new key and one invalidation of the oldest (time of the pair); {ALIVE} alive{age}"
        )
    }

    fn variants(&self) -> &'static [Expiring] {
        &[Expiring::Never, Expiring::Write]
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let alive = ALIVE / threads;
            let aged = self.age * alive;
            let slice = self.pairs / SLICES;
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    slices: SLICES,
                    operations: slice,
                    prepare: || {
                        let cache = P::build(&plan(expiring, ALIVE, Some(ALIVE as u64 * 4)))?;
                        let streams = self.streams[..threads].iter();
                        let first = streams.flat_map(|stream| &stream[..alive]);
                        fill(&cache, first.map(|&key| (key, keys::value(key))))?;
                        Ok::<_, Problem>(cache)
                    },
                    warm: |cache: &P, worker: usize| {
                        churn(cache, &self.streams[worker], alive, aged);
                    },
                    run: |cache: &P, worker: usize, number: usize| {
                        let from = aged + number * slice;
                        churn(cache, &self.streams[worker][from..], alive, slice)
                    },
                },
            )?;
            // stretto puts both off and drops some.
            if P::CARD.name != "stretto" {
                expect_len(&done.on, (alive * threads) as u64)?;
            }
            readings.extend(done.timing.readings(setup, threads));
        }
        Ok(readings)
    }
}

/// The measured loop.
#[inline(never)]
fn churn<P: Peer<u64, u64>>(cache: &P, stream: &[u64], alive: usize, pairs: usize) -> u64 {
    for (&new, old) in stream[alive..][..pairs].iter().zip(stream) {
        cache.insert(new, keys::value(new));
        cache.remove(old);
    }
    0
}
