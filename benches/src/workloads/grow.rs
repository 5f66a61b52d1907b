//! Inserts of new keys into a cache that was told to expect few.

use super::race::{self, Race, by_expiring, expect_len, plan, time, waken};
use crate::{
    figure::Outcome,
    keys,
    peer::{Expiring, Peer},
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
    type Variant = Expiring;

    fn workload(&self) -> &'static str {
        "grow"
    }

    fn about(&self) -> String {
        format!(
            "u64 -> u64, inserts of new keys, from empty to {}; growth of the tables included",
            self.entries
        )
    }

    fn rounds(&self, setup: &Setup) -> usize {
        setup.rounds.min(3)
    }

    fn variants(&self) -> Vec<(String, Expiring)> {
        by_expiring(&[Expiring::Never, Expiring::Write])
    }

    fn round<P: Peer<u64, u64>>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let share = self.entries / threads;
            let cache = P::build(&plan(expiring, 1024, Some(self.entries as u64 * 4)))?;
            waken(&cache);
            let run = |worker: usize| insert(&cache, &self.keys[worker * share..][..share]);
            let done = time(setup, threads, share, |_| (), run);
            // stretto drops writes that come faster than its one thread can take them.
            if P::CARD.name != "stretto" {
                expect_len(&cache, (share * threads) as u64)?;
            }
            readings.push(done.reading());
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
