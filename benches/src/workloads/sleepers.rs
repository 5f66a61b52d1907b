//! A hit beside sleeping threads that once used the cache: what each of them still costs.

use std::{sync::Barrier, thread};

use super::race::{self, Race, entries, expect, fill, plan};
use crate::{
    figure::{Metric, Outcome, Reading},
    keys,
    measure::{on_a_core, timed_here},
    peer::{Expiring, Peer},
    report::Report,
    setup::Setup,
};

/// Name of the workload.
pub const NAME: &str = "sleepers";
/// Numbers of sleeping threads, and what a hit costs beside them.
pub const HITS: [(usize, Metric); 3] = [
    (0, Metric::ranked("ns/op, no sleeper")),
    (64, Metric::ranked("ns/op, 64 sleepers")),
    (512, Metric::ranked("ns/op, 512 sleepers")),
];

struct Sleepers {
    stream: Vec<u64>,
}

pub(super) fn run(setup: &Setup, report: &mut Report) {
    let length = setup.size(1 << 19, 1 << 17);
    let stream = keys::keys_of(&keys::zipf_ranks(keys::SMALL, length, 0));
    race::run(&Sleepers { stream }, setup, report);
}

impl Race for Sleepers {
    type K = u64;
    type V = u64;
    type Variant = Expiring;

    fn workload(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        let (count, skew) = (keys::SMALL, keys::SKEW);
        format!("u64 -> u64, every read hits; {count} keys, Zipf {skew}; 1 thread reads")
    }

    fn variants(&self) -> Vec<(String, Expiring)> {
        race::by_expiring(&[Expiring::Create])
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let cpu = setup.cpu;
        let mut readings = Vec::new();
        for (sleepers, metric) in HITS {
            let cache = P::build(&plan(expiring, keys::SMALL, Some(keys::SMALL as u64 * 4)))?;
            fill(&cache, entries(keys::SMALL))?;
            let (asleep, end) = (Barrier::new(sleepers + 1), Barrier::new(sleepers + 1));
            let (nanos, right) = thread::scope(|scope| {
                for _ in 0..sleepers {
                    scope.spawn(|| {
                        cache.get(&self.stream[0]);
                        asleep.wait();
                        end.wait();
                    });
                }
                asleep.wait();
                let measured = on_a_core(|| {
                    read(&cache, &self.stream[..self.stream.len() / 4]);
                    timed_here(cpu, self.stream.len(), || read(&cache, &self.stream))
                });
                end.wait();
                measured
            });
            expect("right answers", right, self.stream.len() as u64)?;
            readings.push(Reading::new(1, metric, nanos));
        }
        Ok(readings)
    }
}

/// The measured loop; counts right answers.
#[inline(never)]
fn read<P: Peer<u64, u64>>(cache: &P, stream: &[u64]) -> u64 {
    cache.count_right(stream, |key, value| *value == keys::value(*key))
}
