//! An hour of virtual time with entries coming and going: what is held must not creep up.

use wheelhouse::{Cache, ManualTicker, Scheduler, expiry};

use super::{mib, resident};
use crate::alloc::{start_counting, tally};
use crate::workloads::prelude::*;

/// Inserts in each virtual second.
pub(super) const RATE: u64 = 5_000;
const LONGEST: u64 = 120;

fn lifetime(key: &u64, _: &u64) -> Option<Duration> {
    Some(Duration::from_secs(1 + key % LONGEST))
}

pub(super) fn measure(seconds: u64) -> Outcome {
    start_counting();
    let before = resident();
    let held = || (tally().usable as f64, resident() - before);
    let ticker = ManualTicker::new();
    let cache = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::disabled())
        .expire_after(expiry::accessing(lifetime))
        .build();
    let settled = (seconds / 6).max(LONGEST * 2);
    let (mut inserted, mut sum, mut most) = (0u64, 0u64, 0u64);
    let mut early = (0.0, 0.0);
    for second in 0..seconds {
        for _ in 0..RATE {
            let (key, value) = keys::entry(inserted);
            cache.insert(key, value);
            // Inserted a twentieth of a second ago.
            let earlier = keys::key(inserted.saturating_sub(RATE / 20));
            match inserted % 10 {
                3 => cache.invalidate(&earlier),
                7 => drop(cache.get(&earlier)),
                _ => {}
            }
            inserted += 1;
        }
        ticker.advance(Duration::from_secs(1));
        cache.run_pending_tasks();
        let len = cache.entry_count();
        sum += len;
        most = most.max(len);
        if second + 1 == settled {
            early = held();
        }
    }
    // Each entry lives for at most two minutes, once more if it was read, and a bucket of the
    // wheel.
    if most > RATE * (2 * LONGEST + 4) {
        let why = format!("{most} entries at once: they do not leave when they are due");
        return Err(Problem::Wrong(why));
    }
    let end = held();
    Ok(vec![
        Metric::median("entries (mean)").of(sum as f64 / seconds as f64),
        Metric::median("held MiB early").of(mib(early.0)),
        Metric::median("held MiB at end").of(mib(end.0)),
        Metric::median("resident MiB early").of(mib(early.1)),
        Metric::median("resident MiB at end").of(mib(end.1)),
        Metric::worst("resident growth %").of(100.0 * (end.1 / early.1 - 1.0)),
    ])
}
