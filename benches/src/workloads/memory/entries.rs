//! Bytes and allocations for each entry, and what is left when all have gone.

use super::{Figures, MIB, figures, resident};
use crate::workloads::prelude::*;
use crate::{
    alloc::{start_counting, tally, trim},
    peers::{self, Visit},
};

struct Probe<'a> {
    peer: &'a str,
    expiring: Expiring,
    bounded: bool,
    count: usize,
    outcome: Result<Figures, Problem>,
}

pub(super) fn measure(
    peer: &str,
    expiring: Expiring,
    bounded: bool,
    count: usize,
) -> Result<Figures, Problem> {
    let outcome = Err(Problem::Unsupported("there is no such peer"));
    let mut probe = Probe {
        peer,
        expiring,
        bounded,
        count,
        outcome,
    };
    peers::each(&mut probe);
    probe.outcome
}

impl Visit for Probe<'_> {
    fn meet<P: Peer>(&mut self) {
        if P::CARD.name == self.peer {
            self.outcome = measure_one::<P>(self);
        }
    }
}

fn measure_one<P: Peer>(probe: &Probe<'_>) -> Result<Figures, Problem> {
    let count = probe.count;
    let capacity = probe.bounded.then_some(count as u64 * 4);
    let all: Vec<u64> = (0..count as u64).map(keys::key).collect();
    start_counting();
    let (before, resident_before) = (tally(), resident());
    let cache = P::build(&plan(probe.expiring, 1024, capacity))?;
    for &key in &all {
        cache.insert(key, keys::value(key));
    }
    settle(&cache);
    let (full, resident_full) = (tally() - before, resident() - resident_before);
    let there = all
        .iter()
        .filter(|key| cache.get(key) == Some(keys::value(**key)))
        .count();
    // stretto may drop writes; its figures are for those that it took.
    if P::CARD.name != "stretto" {
        expect("entries found", there as u64, count as u64)?;
    }
    for key in &all {
        cache.remove(key);
    }
    settle(&cache);
    let left = all.iter().filter(|key| cache.get(key).is_some()).count();
    if P::CARD.name != "stretto" {
        expect("entries left after all were removed", left as u64, 0)?;
    }
    let (empty, resident_empty) = (tally() - before, resident() - resident_before);
    trim();
    let resident_trimmed = resident() - resident_before;

    let each = |figure: f64| figure / there as f64;
    figures([
        ("B/entry", each(full.usable as f64)),
        ("B asked for/entry", each(full.requested as f64)),
        ("allocations/entry", each(full.live as f64)),
        ("calls/insert", full.calls as f64 / count as f64),
        ("resident B/entry", each(resident_full)),
        ("resident MiB full", resident_full / MIB),
        ("emptied", resident_empty / MIB),
        ("emptied, trimmed", resident_trimmed / MIB),
        ("held MiB emptied", empty.usable as f64 / MIB),
    ])
}

/// Removed entries may be freed only when later work comes by.
fn settle<P: Peer>(cache: &P) {
    for _ in 0..5 {
        cache.settle();
    }
}
