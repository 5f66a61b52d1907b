//! Insert one, invalidate another, with many alive: what the start and the cancelling of a timer
//! cost.

use super::prelude::*;

const ALIVE: usize = 100_000;

struct Cancel {
    pairs: usize,
}

/// A key that comes, and one that leaves.
type Pair = (u64, u64);

pub(super) fn run(bench: Bench<'_>) {
    let about = format!(
        "u64 -> u64, one insert of a new key and one invalidation of the oldest (time of the \
         pair); {ALIVE} alive"
    );
    let pairs = bench.size(200_000, 60_000);
    let variants = by_expiring(&[Expiring::Never, Expiring::Write]);
    bench.race(&about, variants, 5, &Cancel { pairs });
}

impl Cancel {
    /// What a worker does.
    fn stream(&self, worker: usize, alive: usize) -> Vec<Pair> {
        let all = keys::new_keys(worker, 0, alive + self.pairs);
        let new = keys::new_keys(worker, alive, self.pairs);
        new.zip(all).collect()
    }
}

impl Race for Cancel {
    fn round<P: Peer>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let alive = ALIVE / threads;
            let workers = 0..threads;
            let stream = |worker| self.stream(worker, alive);
            let streams: Vec<_> = workers.clone().map(stream).collect();
            let cache = P::build(&roomy(expiring, ALIVE))?;
            let first = workers.flat_map(|worker| keys::new_keys(worker, 0, alive));
            fill(&cache, first.map(|key| (key, keys::value(key))))?;
            let warm = |_: usize| cache.settle();
            let run = |worker: usize| churn(&cache, &streams[worker]);
            let (reading, _) = timed(setup.cpu, threads, self.pairs, warm, run);
            expect_len(&cache, (alive * threads) as u64)?;
            readings.push(reading);
        }
        Ok(readings)
    }
}

/// The measured loop.
#[inline(never)]
fn churn<P: Peer>(cache: &P, pairs: &[Pair]) -> u64 {
    for (new, old) in pairs {
        cache.insert(*new, keys::value(*new));
        cache.remove(old);
    }
    0
}
