//! A million entries saved and restored, and what a reader feels meanwhile. Peers without
//! snapshots copy their entries by iterator and insert the copies, which loses what is left of each
//! life.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use hdrhistogram::Histogram;
use wheelhouse::Restore;

use super::race::{entries, expect, fill, plan};
use crate::{
    clock,
    contest::{Contest, Contestant, contests},
    cpu,
    figure::{Heading, Metric, Outcome, Reading},
    keys,
    peer::{Card, Expiring, Loads, Peer, Problem, Role},
    peers::{Moka, QuickCache, Wheelhouse},
    report::Report,
    setup::Setup,
    tail,
};

pub(super) const NAME: &str = "snapshot";
const SAVE: Metric = Metric::ranked("save ms");
const RESTORE: Metric = Metric::ranked("restore ms");
const P9999: Metric = Metric::median("reader p99.99 us");
const STALL: Metric = Metric::worst("reader longest us");

type Ours = Wheelhouse<u64, u64>;

/// Runs it for ours, for copies by hand, and for no cache.
pub(super) fn run(setup: &Setup, report: &mut Report) {
    let count = setup.size(1_000_000, 100_000);
    let card = |name, role| Card { name, role };
    let save = Contest {
        heading: Heading::new(
            NAME,
            "save and restore",
            format!(
                "u64 -> u64, {count} entries; beside the save another thread reads, each key as \
                 likely; no cache: it reads nothing, beside a thread that copies as much memory"
            ),
        ),
        contestants: vec![
            Contestant::new(card("wheelhouse", Role::Subject), move || saved(count)),
            Contestant::new(card("moka, by hand", Role::Cache), move || {
                copied::<Moka<u64, u64>>(Expiring::Create, count)
            }),
            Contestant::new(card("quick_cache, by hand", Role::Cache), move || {
                copied::<QuickCache<u64, u64>>(Expiring::Never, count)
            }),
            Contestant::new(card("no cache", Role::Floor), move || nothing(count)),
        ],
    };
    contests(setup, report, setup.rounds.min(3), vec![save]);
}

fn saved(count: usize) -> Outcome {
    let (old, new): (Ours, Ours) = pair(Expiring::Create, count)?;
    let (snapshot, mut readings) = watched(count, |key| old.get(&key), || old.cache.snapshot());
    let began = clock::nanos();
    let restored = new.cache.restore(snapshot, Restore::default()).restored;
    readings.push(millis(RESTORE, began));
    expect("entries restored", restored, count as u64)?;
    all_there(&new, count)?;
    Ok(readings)
}

fn copied<P: Loads>(expiring: Expiring, count: usize) -> Outcome {
    let (old, new): (P, P) = pair(expiring, count)?;
    let (copy, mut readings) = watched(count, |key| old.get(&key), || old.copy());
    let began = clock::nanos();
    for (key, value) in copy {
        new.insert(key, value);
    }
    new.settle();
    readings.push(millis(RESTORE, began));
    all_there(&new, count)?;
    Ok(readings)
}

/// The machine's own stalls: a reader of nothing beside copies that take as long as a save.
fn nothing(count: usize) -> Outcome {
    let source = vec![[1_u64; 12]; count];
    let copies = || (0..8).for_each(|_| drop(black_box(source.clone())));
    let mut readings = watched(count, |key| Some(keys::value(key)), copies).1;
    readings.remove(0);
    Ok(readings)
}

/// A cache with its entries, and an empty one.
fn pair<P: Peer<u64, u64>>(expiring: Expiring, count: usize) -> Result<(P, P), Problem> {
    let plan = plan(expiring, count, Some(count as u64 * 2));
    let old = P::build(&plan)?;
    fill(&old, entries(count))?;
    old.settle();
    Ok((old, P::build(&plan)?))
}

fn all_there<P: Peer<u64, u64>>(cache: &P, count: usize) -> Result<(), Problem> {
    let there = entries(count).filter(|(key, value)| cache.get(key) == Some(*value));
    expect("entries found", there.count() as u64, count as u64)
}

fn millis(metric: Metric, began: u64) -> Reading {
    Reading::new(1, metric, (clock::nanos() - began) as f64 / 1e6)
}

/// Runs `save` while another core reads, each read timed.
fn watched<T>(
    count: usize,
    get: impl Fn(u64) -> Option<u64> + Sync,
    save: impl FnOnce() -> T + Send,
) -> (T, Vec<Reading>)
where
    T: Send,
{
    let stream = keys::keys_of(&keys::uniform_ranks(count, 1 << 20, 0));
    let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let read = || {
        cpu::pin(0);
        let mut seen = tail::histogram();
        for &key in stream.iter().cycle() {
            let began = clock::nanos();
            assert_eq!(get(key), Some(keys::value(key)), "a read beside the save");
            tail::record(&mut seen, clock::nanos() - began);
            ready.store(true, Relaxed);
            if over.load(Relaxed) {
                break;
            }
        }
        seen
    };
    let (saved, seen, spent) = thread::scope(|scope| {
        let reader = scope.spawn(read);
        let saver = scope.spawn(|| {
            cpu::pin(1);
            while !ready.load(Relaxed) {
                thread::yield_now();
            }
            let began = clock::nanos();
            let saved = save();
            let spent = millis(SAVE, began);
            over.store(true, Relaxed);
            (saved, spent)
        });
        let (saved, spent) = saver.join().expect("a save does not panic");
        let seen: Histogram<u64> = reader.join().expect("every read hits");
        (saved, seen, spent)
    });
    let micros = |quantile| seen.value_at_quantile(quantile) as f64 / 1e3;
    let tail = [(P9999, 0.9999), (STALL, 1.0)];
    let tail = tail.map(|(metric, quantile)| Reading::new(1, metric, micros(quantile)));
    (saved, [vec![spent], tail.to_vec()].concat())
}
