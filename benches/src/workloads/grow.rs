//! Inserts of new keys into a cache that was told to expect few.

use super::race::{self, Race, expect_len, plan, waken};
use crate::{
    contest::Outcome,
    keys,
    measure::{Work, timed},
    peer::{Expiring, Peer, Problem},
    report::Report,
    setup::Setup,
};

struct Grow {
    entries: usize,
    keys: Vec<u64>,
}

pub(super) fn run(setup: &Setup, report: &mut Report) {
    let entries = setup.size(1_000_000, 150_000);
    race::run(
        &Grow {
            entries,
            keys: (0..entries as u64).map(keys::key).collect(),
        },
        setup,
        report,
    );
}

impl Race for Grow {
    type K = u64;
    type V = u64;

    fn workload(&self) -> &'static str {
        "grow"
    }

    fn about(&self) -> String {
        format!(
            "u64 -> u64, inserts of new keys, from empty to {}; growth of the tables included",
            self.entries
        )
    }

    fn variants(&self) -> &'static [Expiring] {
        &[Expiring::Never, Expiring::Write]
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let share = self.entries / threads;
            let done = timed(
                &setup.yardstick,
                Work {
                    threads,
                    // In one: what an insert costs depends on how many there are.
                    slices: 1,
                    operations: share,
                    prepare: || {
                        let plan = plan(expiring, 1024, Some(self.entries as u64 * 4));
                        let cache = P::build(&plan)?;
                        waken(&cache);
                        Ok::<_, Problem>(cache)
                    },
                    warm: |_: &P, _: usize| (),
                    run: |cache: &P, worker: usize, _: usize| {
                        insert(cache, &self.keys[worker * share..][..share])
                    },
                },
            )?;
            // stretto drops writes that come faster than its one thread can take them.
            if P::CARD.name != "stretto" {
                expect_len(&done.on, (share * threads) as u64)?;
            }
            readings.extend(done.timing.readings(setup, threads));
        }
        Ok(readings)
    }
}

/// The measured loop.
#[inline(never)]
fn insert<P: Peer<u64, u64>>(cache: &P, keys: &[u64]) -> u64 {
    for &key in keys {
        cache.insert(key, keys::value(key));
    }
    0
}
