//! Insert one, invalidate another, with many alive: what the start and the cancelling of a timer
//! cost.

use super::race::{self, Race, by_expiring, expect_len, fill, plan, time};
use crate::{
    figure::Outcome,
    keys,
    peer::{Expiring, Peer},
    report::Report,
    setup::Setup,
};

/// The names of the workloads with caches that are no longer young.
pub(super) const AGED: &str = "cancel-aged";
pub(super) const ANY: &str = "cancel-any";

const ALIVE: usize = 100_000;
/// How often each entry alive has made room for another in a cache that is no longer young.
const AGE: usize = 20;

struct Cancel {
    name: &'static str,
    /// How often each entry alive has made room for another before the clock starts.
    age: usize,
    leaves: Leaves,
    pairs: usize,
}

/// Which entry is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// The one that came first.
    Oldest,
    /// Any of them.
    Any,
}

/// One key that comes, one that leaves.
struct Pair {
    new: u64,
    old: u64,
}

/// In a cache that was just filled.
pub(super) fn run(setup: &Setup, report: &mut Report) {
    race("cancel", 0, Leaves::Oldest, setup, report);
}

/// In a cache that has done so for a while: whether that shuffles its memory shows only then.
pub(super) fn aged(setup: &Setup, report: &mut Report) {
    race(AGED, setup.size(AGE, 2), Leaves::Oldest, setup, report);
}

/// The same in no order, so that no cache can keep one.
pub(super) fn any(setup: &Setup, report: &mut Report) {
    race(ANY, setup.size(AGE, 2), Leaves::Any, setup, report);
}

fn race(name: &'static str, age: usize, leaves: Leaves, setup: &Setup, report: &mut Report) {
    let cancel = Cancel {
        name,
        age,
        leaves,
        pairs: setup.size(200_000, 60_000),
    };
    race::run(&cancel, setup, report);
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
                let at = match self.leaves {
                    Leaves::Oldest => number % alive,
                    // As good as drawn: the keys are mixed numbers.
                    Leaves::Any => (new % alive as u64) as usize,
                };
                let old = std::mem::replace(&mut live[at], new);
                Pair { new, old }
            })
            .collect()
    }
}

impl Race for Cancel {
    type K = u64;
    type V = u64;
    type Variant = Expiring;

    fn workload(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let which = match self.leaves {
            Leaves::Oldest => "the oldest",
            Leaves::Any => "any other",
        };
        let age = match self.age {
            0 => String::new(),
            age => format!(", after {age} times as many have left"),
        };
        format!(
            "u64 -> u64, one insert of a new key and one invalidation of {which} (time of the pair); {ALIVE} alive{age}"
        )
    }

    fn variants(&self) -> Vec<(String, Expiring)> {
        by_expiring(&[Expiring::Never, Expiring::Write])
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let alive = ALIVE / threads;
            let streams: Vec<_> = (0..threads)
                .map(|worker| self.stream(worker, alive))
                .collect();
            let parts = |worker: usize| streams[worker].split_at(self.age * alive);
            let cache = P::build(&plan(expiring, ALIVE, Some(ALIVE as u64 * 4)))?;
            let first = (0..threads).flat_map(|worker| Self::first(worker, alive));
            fill(&cache, first.map(|key| (key, keys::value(key))))?;
            let warm = |worker: usize| {
                let (before, _) = parts(worker);
                if !before.is_empty() {
                    churn(&cache, before);
                    cache.settle();
                }
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
fn churn<P: Peer<u64, u64>>(cache: &P, pairs: &[Pair]) -> u64 {
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
        for leaves in [Leaves::Oldest, Leaves::Any] {
            let cancel = Cancel {
                name: "test",
                age: 3,
                leaves,
                pairs: 70,
            };
            let mut live: HashSet<u64> = Cancel::first(1, 50).collect();
            let stream = cancel.stream(1, 50);
            assert_eq!((live.len(), stream.len()), (50, 3 * 50 + 70));
            for pair in &stream {
                assert!(live.insert(pair.new) && live.remove(&pair.old));
            }
            let oldest: Vec<u64> = Cancel::first(1, 50).collect();
            let first: Vec<u64> = stream[..50].iter().map(|pair| pair.old).collect();
            assert_eq!(first == oldest, leaves == Leaves::Oldest);
        }
    }
}
