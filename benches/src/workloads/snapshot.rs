//! A million entries saved and restored, and what a reader feels meanwhile. Peers without
//! snapshots copy their entries by iterator and insert the copies, which loses what is left of each
//! life.

use std::{
    collections::HashMap,
    fs,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use hdrhistogram::Histogram;
use wheelhouse::Restore;

use super::prelude::*;
use crate::peers::{Moka, QuickCache, Wheelhouse};

pub(super) const NAME: &str = "snapshot";
const SAVE: Metric = Metric::ranked("save ms");
const RESTORE: Metric = Metric::ranked("restore ms");
const P9999: Metric = Metric::median("reader p99.99 us");
const STALL: Metric = Metric::worst("reader longest us");
/// The same without the time in which other threads of the machine had the reader's core.
const OWN_STALL: Metric = Metric::worst("on its core us");
/// Reads, and pauses between them, that take more nanoseconds may contain such a time.
const LONG: u64 = 10_000;

/// Runs it for ours, for copies by hand, and for no cache.
pub(super) fn run(setup: &Setup, report: &mut Report) {
    let count = setup.size(1_000_000, 100_000);
    let about = format!(
        "u64 -> u64, {count} entries; beside the save another thread reads, each key as likely; no \
         cache: it reads a `HashMap`, beside a thread that copies memory"
    );
    let save = Contest::new(NAME, "save and restore", about)
        .with(<Wheelhouse as Peer>::CARD, move || saved(count))
        .with(Card::cache("moka, by hand"), move || {
            copied::<Moka>(Expiring::Create, count)
        })
        .with(Card::cache("quick_cache, by hand"), move || {
            copied::<QuickCache>(Expiring::Never, count)
        })
        .with(Card::floor("no cache"), move || nothing(count));
    contests(setup, report, setup.rounds.min(3), vec![save]);
}

fn saved(count: usize) -> Outcome {
    let (old, new): (Wheelhouse, Wheelhouse) = pair(Expiring::Create, count)?;
    let (snapshot, mut readings) = watched(count, |key| old.get(&key), || old.0.snapshot());
    let began = clock::nanos();
    let restored = new.0.restore(snapshot, Restore::default()).restored;
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

/// The machine's own stalls: a reader of a map without writers, beside copies of memory.
fn nothing(count: usize) -> Outcome {
    let map: HashMap<u64, u64, Hasher> = entries(count).collect();
    let source = vec![[1_u64; 12]; count];
    let copies = || (0..20).for_each(|_| drop(black_box(source.clone())));
    let mut readings = watched(count, |key| map.get(&key).copied(), copies).1;
    readings.remove(0);
    Ok(readings)
}

/// A cache with its entries, and an empty one.
fn pair<P: Peer>(expiring: Expiring, count: usize) -> Result<(P, P), Problem> {
    let plan = plan(expiring, count, Some(count as u64 * 2));
    let old = P::build(&plan)?;
    fill(&old, entries(count))?;
    old.settle();
    Ok((old, P::build(&plan)?))
}

fn all_there<P: Peer>(cache: &P, count: usize) -> Result<(), Problem> {
    let there = entries(count).filter(|(key, value)| cache.get(key) == Some(*value));
    expect("entries found", there.count() as u64, count as u64)
}

fn millis(metric: Metric, began: u64) -> Reading {
    metric.of((clock::nanos() - began) as f64 / 1e6)
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
        let (mut seen, mut longest) = (tail::histogram(), 0);
        let (mut before, mut ended) = (queued(), clock::nanos());
        for &key in stream.iter().cycle() {
            let began = clock::nanos();
            if began - ended > LONG {
                before = queued();
            }
            let began = clock::nanos();
            assert_eq!(get(key), Some(keys::value(key)), "a read beside the save");
            ended = clock::nanos();
            tail::record(&mut seen, ended - began);
            if ended - began > LONG {
                longest = longest.max((ended - began).saturating_sub(queued() - before));
                before = queued();
            }
            ready.store(true, Relaxed);
            if over.load(Relaxed) {
                break;
            }
        }
        (seen, longest)
    };
    let (saved, (seen, longest), spent) = thread::scope(|scope| {
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
        let seen: (Histogram<u64>, u64) = reader.join().expect("every read hits");
        (saved, seen, spent)
    });
    let micros = |quantile| seen.value_at_quantile(quantile) as f64 / 1e3;
    let tail = [(P9999, 0.9999), (STALL, 1.0)];
    let tail = tail.map(|(metric, quantile)| metric.of(micros(quantile)));
    let own = OWN_STALL.of(longest as f64 / 1e3);
    (saved, [vec![spent], tail.to_vec(), vec![own]].concat())
}

/// How long the calling thread was ready to run and had no core, in nanoseconds; 0 where the system
/// is not Linux.
fn queued() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = stat.split(' ').nth(1).unwrap_or("0");
    waited.parse().expect("a number of nanoseconds")
}
