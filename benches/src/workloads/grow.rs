//! Inserts of new keys into a cache that was told to expect few.

use super::prelude::*;

struct Grow(Vec<u64>);

pub(super) fn run(bench: Bench<'_>) {
    let entries = bench.size(1_000_000, 150_000);
    let about = format!(
        "u64 -> u64, inserts of new keys, from empty to {entries}; growth of the tables included"
    );
    let grow = Grow((0..entries as u64).map(keys::key).collect());
    let variants = by_expiring(&[Expiring::Never, Expiring::Write]);
    bench.race(&about, variants, 3, &grow);
}

impl Race for Grow {
    fn round<P: Peer>(&self, setup: &Setup, expiring: Expiring) -> Outcome {
        let mut readings = Vec::new();
        for threads in setup.threads_within_cores() {
            let share = self.0.len() / threads;
            let cache = P::build(&plan(expiring, 1024, Some(self.0.len() as u64 * 4)))?;
            waken(&cache);
            let run = |worker: usize| inserts(&cache, &self.0[worker * share..][..share]);
            let (reading, _) = timed(setup.cpu, threads, share, |_| (), run);
            expect_len(&cache, (share * threads) as u64)?;
            readings.push(reading);
        }
        Ok(readings)
    }
}
