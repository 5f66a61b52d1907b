//! Read, and insert on a miss, in a cache that holds a tenth of the keys.

use super::prelude::*;

struct Evict {
    capacity: usize,
    /// The most hits that a cache of that capacity can have, in percent.
    most: f64,
    streams: Vec<Vec<u64>>,
}

pub(super) fn run(bench: Bench<'_>) {
    let (keys, length) = (bench.size(1_000_000, 100_000), bench.size(600_000, 200_000));
    let capacity = keys / 10;
    let evict = Evict {
        capacity,
        most: 100.0 * keys::zipf_share(capacity, keys),
        streams: keys::zipf_streams(keys, length, bench.most_threads()),
    };
    let about = format!(
        "u64 -> u64, get, then insert on a miss; {capacity} entries allowed, {keys} keys, Zipf {}",
        keys::SKEW
    );
    let variants = by_expiring(&[Expiring::Never, Expiring::Write]);
    bench.race(&about, variants, 3, &evict);
}

impl Race for Evict {
    type Variant = Expiring;

    fn round<P: Peer>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        if let Some(why) = P::SITS_OUT_EVICTION {
            return Err(Problem::Unsupported(why));
        }
        let capacity = self.capacity as u64;
        let mut readings = Vec::new();
        for threads in setup.all_threads() {
            let half = self.streams[0].len() / 2;
            let warm = half / threads;
            let cache = P::build(&plan(expiring, self.capacity, Some(capacity)))?;
            waken(&cache);
            let before = |worker: usize| {
                read_through(&cache, &self.streams[worker][..warm]);
            };
            let run = |worker: usize| read_through(&cache, &self.streams[worker][half..]);
            let done = timed(setup.cpu, threads, half, before, run);
            let percent = 100.0 * done.sum as f64 / (threads * half) as f64;
            self.judge(percent)?;
            cache.settle();
            // Peers cut into shards may hold a little more.
            match cache.entries() {
                Some(entries) if entries > capacity * 21 / 20 => {
                    let why = format!("{entries} entries where {capacity} are allowed");
                    return Err(Problem::Wrong(why));
                }
                _ => readings.push(done.reading()),
            }
            readings.push(HIT_PERCENT.by(threads, percent));
        }
        Ok(readings)
    }
}

impl Evict {
    /// Nothing can hit more often than a cache that always holds the most popular tenth, and a
    /// sound policy is not far behind.
    fn judge(&self, percent: f64) -> Result<(), Problem> {
        let most = self.most;
        let why = if percent > most + 1.0 {
            format!("{percent:.1} % hits, more than the bound permits ({most:.1} %)")
        } else if percent < most - 15.0 {
            format!("{percent:.1} % hits where {most:.1} % is the most: the policy does not work")
        } else {
            return Ok(());
        };
        Err(Problem::Wrong(why))
    }
}

/// The measured loop; counts hits, and takes a wrong value for a miss.
#[inline(never)]
fn read_through<P: Peer>(cache: &P, stream: &[u64]) -> u64 {
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
