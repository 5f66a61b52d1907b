//! A hit beside sleeping threads that once used the cache: what each of them still costs.

use super::prelude::*;

/// Numbers of sleeping threads, and what a hit costs beside them.
const HITS: [(usize, Metric); 3] = [
    (0, Metric::ranked("ns/op, no sleeper")),
    (64, Metric::ranked("ns/op, 64 sleepers")),
    (512, Metric::ranked("ns/op, 512 sleepers")),
];

struct Sleepers(Vec<u64>);

pub(super) fn run(bench: Bench<'_>) {
    let stream = keys::small_stream(bench.size(1 << 19, 1 << 17));
    let (count, skew) = (keys::SMALL, keys::SKEW);
    let about = format!("u64 -> u64, every read hits; {count} keys, Zipf {skew}; 1 thread reads");
    let variants = by_expiring(&[Expiring::Create]);
    bench.race(&about, variants, 5, &Sleepers(stream));
}

impl Race for Sleepers {
    fn round<P: Peer>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let Self(stream) = self;
        let mut readings = Vec::new();
        for (sleepers, metric) in HITS {
            let cache: P = small_cache(expiring)?;
            let (asleep, end) = (Barrier::new(sleepers + 1), Barrier::new(sleepers + 1));
            let (nanos, right) = thread::scope(|scope| {
                for _ in 0..sleepers {
                    scope.spawn(|| {
                        cache.get(&stream[0]);
                        asleep.wait();
                        end.wait();
                    });
                }
                asleep.wait();
                let measured = on_a_core(|| {
                    hits(&cache, &stream[..stream.len() / 4]);
                    timed_here(setup.cpu, stream.len(), || hits(&cache, stream))
                });
                end.wait();
                measured
            });
            expect("right answers", right, stream.len() as u64)?;
            readings.push(metric.of(nanos));
        }
        Ok(readings)
    }
}
