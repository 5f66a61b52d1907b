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

/// The names of the workloads with caches that are no longer young.
pub(super) const AGED: &str = "cancel-aged";
pub(super) const ANY: &str = "cancel-any";

const ALIVE: usize = 100_000;
const SLICES: usize = 20;
/// How often each entry alive has made room for another in a cache that is no longer young.
const AGE: usize = 20;

struct Cancel {
    name: &'static str,
    /// How often each entry alive has made room for another before the clock starts.
    age: usize,
    leaves: Leaves,
    pairs: usize,
}

/// Who makes room.
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

/// In one that has done so for a while: what leaves its memory in order, and what shuffles it, is seen only then.
pub(super) fn aged(setup: &Setup, report: &mut Report) {
    race(AGED, setup.size(AGE, 2), Leaves::Oldest, setup, report);
}

/// The same in no order, so that nothing can keep one.
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

    fn workload(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        let who = match self.leaves {
            Leaves::Oldest => "the oldest",
            Leaves::Any => "any other",
        };
        let age = match self.age {
            0 => String::new(),
            age => format!(", after {age} times as many have left"),
        };
        format!(
            "u64 -> u64, one insert of a new key and one invalidation of {who} (time of the pair); {ALIVE} alive{age}"
        )
    }

    fn variants(&self) -> &'static [Expiring] {
        &[Expiring::Never, Expiring::Write]
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let alive = ALIVE / threads;
            let slice = self.pairs / SLICES;
            let streams: Vec<_> = (0..threads)
                .map(|worker| self.stream(worker, alive))
                .collect();
            let past = |worker: usize| streams[worker].split_at(self.age * alive);
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    slices: SLICES,
                    operations: slice,
                    prepare: || {
                        let cache = P::build(&plan(expiring, ALIVE, Some(ALIVE as u64 * 4)))?;
                        let first = (0..threads).flat_map(|worker| Self::first(worker, alive));
                        fill(&cache, first.map(|key| (key, keys::value(key))))?;
                        Ok::<_, Problem>(cache)
                    },
                    warm: |cache: &P, worker: usize| {
                        let (before, _) = past(worker);
                        if !before.is_empty() {
                            churn(cache, before);
                            cache.settle();
                        }
                    },
                    run: |cache: &P, worker: usize, number: usize| {
                        let (_, timed) = past(worker);
                        churn(cache, &timed[number * slice..][..slice])
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
    fn as_many_leave_as_come_and_nobody_twice() {
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
