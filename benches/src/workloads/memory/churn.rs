//! An hour of virtual time with entries coming and going: what is held must not creep up.

use std::time::Duration;

use wheelhouse::{Cache, ManualTicker, Scheduler, expiry};

use super::{Figures, MIB, figures, resident};
use crate::alloc::{start_counting, tally};
use crate::workloads::prelude::*;

/// Inserts in each virtual second.
pub(super) const RATE: u64 = 5_000;
const LONGEST: u64 = 120;

fn lifetime(key: &u64, _: &u64) -> Option<Duration> {
    Some(Duration::from_secs(1 + key % LONGEST))
}

pub(super) fn measure(seconds: u64) -> Result<Figures, Problem> {
    start_counting();
    let (before, resident_before) = (tally(), resident());
    let ticker = ManualTicker::new();
    let cache = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::disabled())
        .expire_after(expiry::accessing(lifetime))
        .build();
    let settled = (seconds / 6).max(LONGEST * 2);
    let (mut inserted, mut sum, mut most) = (0u64, 0u64, 0u64);
    let (mut held, mut resident_then) = (0.0, 0.0);
    for second in 0..seconds {
        for _ in 0..RATE {
            let key = keys::key(inserted);
            cache.insert(key, keys::value(key));
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
            held = (tally() - before).usable as f64;
            resident_then = resident() - resident_before;
        }
    }
    // Each entry lives for at most two minutes, once more if it was read, and a bucket of the
    // wheel.
    if most > RATE * (2 * LONGEST + 4) {
        return Err(Problem::Wrong(format!(
            "{most} entries at once: they do not leave when they are due"
        )));
    }
    let (held_end, resident_end) = (
        (tally() - before).usable as f64,
        resident() - resident_before,
    );
    figures([
        ("entries (mean)", sum as f64 / seconds as f64),
        ("held MiB early", held / MIB),
        ("held MiB at end", held_end / MIB),
        ("resident MiB early", resident_then / MIB),
        ("resident MiB at end", resident_end / MIB),
        (
            "resident growth %",
            100.0 * (resident_end / resident_then - 1.0),
        ),
    ])
}
