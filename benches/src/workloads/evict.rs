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
    fn round<P: Peer>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        P::EVICTS?;
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
            let (reading, hits) = timed(setup.cpu, threads, half, before, run);
            // Nothing can hit more often than a cache that always holds the most popular tenth, and
            // a sound policy is not far behind.
            let (percent, most) = (100.0 * hits as f64 / (threads * half) as f64, self.most);
            ensure!(
                (most - 15.0..=most + 1.0).contains(&percent),
                "{percent:.1} % hits; the most that the bound permits is {most:.1} %"
            );
            cache.settle();
            // Peers cut into shards may hold a little more.
            let entries = cache.entries().unwrap_or(0);
            ensure!(
                entries <= capacity * 21 / 20,
                "{entries} entries where {capacity} are allowed"
            );
            readings.extend([reading, HIT_PERCENT.by(threads, percent)]);
        }
        Ok(readings)
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
