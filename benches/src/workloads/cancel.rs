//! Insert one, invalidate another, with many alive: what the start and the cancelling of a timer
//! cost.

use super::prelude::*;

const ALIVE: usize = 100_000;
/// How often each entry alive has made room for another in a cache that is no longer young.
const AGE: usize = 20;

struct Cancel {
    /// How often each entry alive has made room for another before the clock starts.
    age: usize,
    /// Whether the entry that leaves is the one that came first; else any.
    oldest: bool,
    pairs: usize,
}

/// A key that comes, and one that leaves.
type Pair = (u64, u64);

pub(super) fn run(bench: Bench<'_>) {
    race(bench, 0, true);
}

/// In a cache that has done so for a while: whether that shuffles its memory shows only then.
pub(super) fn aged(bench: Bench<'_>) {
    race(bench, bench.size(AGE, 2), true);
}

/// The same in no order, so that no cache can keep one.
pub(super) fn any(bench: Bench<'_>) {
    race(bench, bench.size(AGE, 2), false);
}

fn race(bench: Bench<'_>, age: usize, oldest: bool) {
    let which = if oldest { "the oldest" } else { "any other" };
    let mut about = format!(
        "u64 -> u64, one insert of a new key and one invalidation of {which} (time of the pair); \
         {ALIVE} alive"
    );
    if age > 0 {
        about += &format!(", after {age} times as many have left");
    }
    let pairs = bench.size(200_000, 60_000);
    let variants = by_expiring(&[Expiring::Never, Expiring::Write]);
    bench.race(&about, variants, 5, &Cancel { age, oldest, pairs });
}

impl Cancel {
    /// What a worker does, before the clock starts and after.
    fn stream(&self, worker: usize, alive: usize) -> Vec<Pair> {
        let mut live: Vec<u64> = keys::new_keys(worker, 0, alive).collect();
        let new = keys::new_keys(worker, alive, self.age * alive + self.pairs);
        let pairs = new.enumerate().map(|(number, new)| {
            // A mixed number is as good as drawn.
            let at = if self.oldest { number } else { new as usize } % alive;
            (new, std::mem::replace(&mut live[at], new))
        });
        pairs.collect()
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
            let parts = |worker: usize| streams[worker].split_at(self.age * alive);
            let cache = P::build(&roomy(expiring, ALIVE))?;
            let first = workers.flat_map(|worker| keys::new_keys(worker, 0, alive));
            fill(&cache, first.map(|key| (key, keys::value(key))))?;
            let warm = |worker: usize| {
                churn(&cache, parts(worker).0);
                cache.settle();
            };
            let run = |worker: usize| churn(&cache, parts(worker).1);
            let (reading, _) = timed(setup.cpu, threads, self.pairs, warm, run);
            if !P::DROPS_WRITES {
                expect_len(&cache, (alive * threads) as u64)?;
            }
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
