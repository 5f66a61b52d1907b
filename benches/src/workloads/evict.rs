//! Read, and insert on a miss, in a cache that holds a tenth of the keys.

use super::race::{self, Race, by_expiring, plan, time, waken};
use crate::{
    figure::{HIT_PERCENT, Outcome, Reading},
    keys,
    peer::{Expiring, Peer, Problem},
    report::Report,
    setup::Setup,
};

struct Evict {
    keys: usize,
    /// Of all reads, how many go to the tenth of the keys that is read most.
    share_of_most_popular: f64,
    streams: Vec<Vec<u64>>,
}

pub(super) fn run(setup: &Setup, report: &mut Report) {
    let keys = setup.size(1_000_000, 100_000);
    let stream = setup.size(900_000, 200_000);
    let streams = (0..setup.most_threads())
        .map(|worker| keys::keys_of(&keys::zipf_ranks(keys, stream, worker)))
        .collect();
    let share_of_most_popular = keys::zipf_share(keys / 10, keys);
    race::run(
        &Evict {
            keys,
            share_of_most_popular,
            streams,
        },
        setup,
        report,
    );
}

impl Race for Evict {
    type K = u64;
    type V = u64;
    type Variant = Expiring;

    fn workload(&self) -> &'static str {
        "evict"
    }

    fn about(&self) -> String {
        format!(
            "u64 -> u64, get, then insert on a miss; {} entries allowed, {} keys, Zipf {}",
            self.keys / 10,
            self.keys,
            keys::SKEW
        )
    }

    fn rounds(&self, setup: &Setup) -> usize {
        setup.rounds.min(3)
    }

    fn variants(&self) -> Vec<(String, Expiring)> {
        by_expiring(&[Expiring::Never, Expiring::Write])
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        if let Some(why) = P::SITS_OUT_EVICTION {
            return Err(Problem::Unsupported(why));
        }
        let capacity = self.keys / 10;
        let mut readings = Vec::new();
        for threads in setup.threads.clone() {
            let half = self.streams[0].len() / 2;
            let warm = half / threads;
            let cache = P::build(&plan(expiring, capacity, Some(capacity as u64)))?;
            waken(&cache);
            let before = |worker: usize| {
                read_through(&cache, &self.streams[worker][..warm]);
            };
            let run = |worker: usize| read_through(&cache, &self.streams[worker][half..]);
            let done = time(setup, threads, half, before, run);
            let percent = 100.0 * done.sum as f64 / (threads * half) as f64;
            self.judge(percent)?;
            cache.settle();
            // Peers cut into shards may hold a little more.
            if let Some(entries) = cache
                .entries()
                .filter(|entries| *entries > capacity as u64 * 21 / 20)
            {
                return Err(Problem::Wrong(format!(
                    "{entries} entries where {capacity} are allowed"
                )));
            }
            readings.push(done.reading());
            readings.push(Reading::new(threads, HIT_PERCENT, percent));
        }
        Ok(readings)
    }
}

impl Evict {
    /// Nothing can hit more often than a cache that always holds the most popular tenth, and a
    /// sound policy is not far behind.
    fn judge(&self, percent: f64) -> Result<(), Problem> {
        let most = 100.0 * self.share_of_most_popular;
        if percent > most + 1.0 {
            Err(Problem::Wrong(format!(
                "{percent:.1} % hits, more than the bound permits ({most:.1} %)"
            )))
        } else if percent < most - 15.0 {
            Err(Problem::Wrong(format!(
                "{percent:.1} % hits where {most:.1} % is the most: the policy does not work"
            )))
        } else {
            Ok(())
        }
    }
}

/// The measured loop; counts hits, and takes a wrong value for a miss.
#[inline(never)]
fn read_through<P: Peer<u64, u64>>(cache: &P, stream: &[u64]) -> u64 {
    let mut hits = 0;
    for key in stream {
        if cache.get(key) == Some(keys::value(*key)) {
            hits += 1;
        } else {
            cache.insert(*key, keys::value(*key));
        }
    }
    hits
}
