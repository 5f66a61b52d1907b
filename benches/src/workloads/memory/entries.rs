//! Bytes and allocations for each entry, and what is left when all have gone.

use super::{mib, resident};
use crate::workloads::prelude::*;
use crate::{
    alloc::{start_counting, tally, trim},
    peers::{self, Visit},
};

struct Probe {
    peer: String,
    expiring: Expiring,
    capacity: Option<u64>,
    count: usize,
    outcome: Outcome,
}

/// Measures the peer of this name.
pub(super) fn measure(peer: String, expiring: Expiring, bounded: bool, count: usize) -> Outcome {
    let mut probe = Probe {
        peer,
        expiring,
        capacity: bounded.then_some(count as u64 * 4),
        count,
        outcome: Err(Problem::Unsupported("there is no such peer")),
    };
    peers::each(&mut probe);
    probe.outcome
}

impl Visit for Probe {
    fn meet<P: Peer>(&mut self) {
        if P::CARD.name == self.peer {
            self.outcome = measure_one::<P>(self);
        }
    }
}

fn measure_one<P: Peer>(probe: &Probe) -> Outcome {
    let count = probe.count;
    let all: Vec<u64> = (0..count as u64).map(keys::key).collect();
    start_counting();
    let before = resident();
    let resident = || resident() - before;
    let cache = P::build(&plan(probe.expiring, 1024, probe.capacity))?;
    for &key in &all {
        cache.insert(key, keys::value(key));
    }
    settle(&cache);
    let (full, resident_full) = (tally(), resident());
    let found = |key: &&u64| cache.get(key) == Some(keys::value(**key));
    let there = all.iter().filter(found).count();
    // The figures of a peer that drops writes are for those that it took.
    if !P::DROPS_WRITES {
        expect("entries found", there as u64, count as u64)?;
    }
    for key in &all {
        cache.remove(key);
    }
    settle(&cache);
    let left = all.iter().filter(|key| cache.get(key).is_some()).count();
    if !P::DROPS_WRITES {
        expect("entries left after all were removed", left as u64, 0)?;
    }
    let (empty, resident_empty) = (tally(), resident());
    trim();
    let resident_trimmed = resident();

    let each = |figure: f64| figure / there as f64;
    Ok(vec![
        Metric::ranked("B/entry").of(each(full.usable as f64)),
        Metric::median("B asked for/entry").of(each(full.requested as f64)),
        Metric::median("allocations/entry").of(each(full.live as f64)),
        Metric::median("calls/insert").of(full.calls as f64 / count as f64),
        Metric::median("resident B/entry").of(each(resident_full)),
        Metric::median("resident MiB full").of(mib(resident_full)),
        Metric::median("emptied").of(mib(resident_empty)),
        Metric::median("emptied, trimmed").of(mib(resident_trimmed)),
        Metric::median("held MiB emptied").of(mib(empty.usable as f64)),
    ])
}

/// Removed entries may be freed only when later work comes by.
fn settle<P: Peer>(cache: &P) {
    for _ in 0..5 {
        cache.settle();
    }
}
