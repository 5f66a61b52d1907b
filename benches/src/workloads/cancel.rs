//! Insert one, invalidate another, with many alive: what the start and the cancelling of a timer
//! cost.

use super::prelude::*;

/// The names of the workloads with caches that are no longer young.
pub(super) const AGED: &str = "cancel-aged";
pub(super) const ANY: &str = "cancel-any";

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

/// One key that comes, one that leaves.
struct Pair {
    new: u64,
    old: u64,
}

/// In a cache that was just filled.
pub(super) fn run(setup: &Setup, report: &mut Report) {
    race("cancel", 0, true, setup, report);
}

/// In a cache that has done so for a while: whether that shuffles its memory shows only then.
pub(super) fn aged(setup: &Setup, report: &mut Report) {
    race(AGED, setup.size(AGE, 2), true, setup, report);
}

/// The same in no order, so that no cache can keep one.
pub(super) fn any(setup: &Setup, report: &mut Report) {
    race(ANY, setup.size(AGE, 2), false, setup, report);
}

fn race(name: &str, age: usize, oldest: bool, setup: &Setup, report: &mut Report) {
    let which = if oldest { "the oldest" } else { "any other" };
    let mut about = format!(
        "u64 -> u64, one insert of a new key and one invalidation of {which} (time of the pair); {ALIVE} alive"
    );
    if age > 0 {
        about += &format!(", after {age} times as many have left");
    }
    let pairs = setup.size(200_000, 60_000);
    let variants = by_expiring(&[Expiring::Never, Expiring::Write]);
    race::run(
        &Cancel { age, oldest, pairs },
        (name, about),
        variants,
        5,
        setup,
        report,
    );
}

impl Cancel {
    /// A worker's share of the entries alive at first.
    fn first(worker: usize, alive: usize) -> impl Iterator<Item = u64> + Clone {
        (0..alive as u64).map(move |rank| keys::key(((worker as u64) << 32) + rank))
    }

    /// What a worker does, before the clock starts and after.
    fn stream(&self, worker: usize, alive: usize) -> Vec<Pair> {
        let mut live: Vec<u64> = Self::first(worker, alive).collect();
        (0..self.age * alive + self.pairs)
            .map(|number| {
                let new = keys::key(((worker as u64) << 32) + (alive + number) as u64);
                // A mixed number is as good as drawn.
                let at = if self.oldest { number } else { new as usize } % alive;
                let old = std::mem::replace(&mut live[at], new);
                Pair { new, old }
            })
            .collect()
    }
}

impl Race for Cancel {
    type Variant = Expiring;

    fn round<P: Peer>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let alive = ALIVE / threads;
            let stream = |worker| self.stream(worker, alive);
            let streams: Vec<_> = (0..threads).map(stream).collect();
            let parts = |worker: usize| streams[worker].split_at(self.age * alive);
            let cache = P::build(&plan(expiring, ALIVE, Some(ALIVE as u64 * 4)))?;
            let first = (0..threads).flat_map(|worker| Self::first(worker, alive));
            fill(&cache, first.map(|key| (key, keys::value(key))))?;
            let warm = |worker: usize| {
                churn(&cache, parts(worker).0);
                cache.settle();
            };
            let run = |worker: usize| churn(&cache, parts(worker).1);
            let done = time(setup, threads, self.pairs, warm, run);
            // stretto puts both off and drops some.
            if P::CARD.name != "stretto" {
                expect_len(&cache, (alive * threads) as u64)?;
            }
            readings.push(done.reading());
        }
        Ok(readings)
    }
}

/// The measured loop.
#[inline(never)]
fn churn<P: Peer>(cache: &P, pairs: &[Pair]) -> u64 {
    for pair in pairs {
        cache.insert(pair.new, keys::value(pair.new));
        cache.remove(&pair.old);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn as_many_leave_as_come_and_none_twice() {
        for oldest in [true, false] {
            let cancel = Cancel {
                age: 3,
                oldest,
                pairs: 70,
            };
            let mut live: HashSet<u64> = Cancel::first(1, 50).collect();
            let stream = cancel.stream(1, 50);
            assert_eq!((live.len(), stream.len()), (50, 3 * 50 + 70));
            for pair in &stream {
                assert!(live.insert(pair.new) && live.remove(&pair.old));
            }
            let left = stream[..50].iter().map(|pair| pair.old);
            assert_eq!(left.eq(Cancel::first(1, 50)), oldest);
        }
    }
}
