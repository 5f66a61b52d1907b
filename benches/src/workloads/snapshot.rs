//! A million entries saved and restored, and what a reader feels meanwhile. Peers without
//! snapshots copy their entries by iterator and insert the copies, which loses what is left of each
//! life.

use std::{collections::HashMap, fs, hint::black_box};

use wheelhouse::Restore;

use super::prelude::*;
use crate::peers::{Moka, QuickCache, Wheelhouse};

const SAVE: Metric = Metric::ranked("save ms");
const RESTORE: Metric = Metric::ranked("restore ms");
const P9999: Metric = Metric::median("reader p99.99 us");
const STALL: Metric = Metric::worst("reader longest us");
/// The same without the time in which other threads of the machine had the reader's core.
const OWN_STALL: Metric = Metric::worst("on its core us");
/// Reads, and pauses between them, that take more nanoseconds may contain such a time.
const LONG: u64 = 10_000;

/// Runs it for ours, for copies by hand, and for no cache.
pub(super) fn run(bench: Bench<'_>) {
    let count = bench.size(1_000_000, 100_000);
    let about = format!(
        "u64 -> u64, {count} entries; beside the save another thread reads, each key as likely; no \
         cache: it reads a `HashMap`, beside a thread that copies memory"
    );
    let save = bench
        .contest("save and restore", about)
        .with(<Wheelhouse as Peer>::CARD, move || saved(count))
        .with(Card::cache("moka, by hand"), move || {
            copied::<Moka>(Expiring::Create, count)
        })
        .with(Card::cache("quick_cache, by hand"), move || {
            copied::<QuickCache>(Expiring::Never, count)
        })
        .with(Card::floor("no cache"), move || nothing(count));
    bench.run(bench.rounds().min(3), [save]);
}

fn saved(count: usize) -> Outcome {
    let (old, new): (Wheelhouse, Wheelhouse) = pair(Expiring::Create, count)?;
    let (snapshot, mut readings) = beside_reads(count, |key| old.get(&key), || old.0.snapshot());
    let began = clock::nanos();
    let restored = new.0.restore(snapshot, Restore::default()).restored;
    readings.push(millis(RESTORE, began));
    expect("entries restored", restored, count as u64)?;
    all_there(&new, count)?;
    Ok(readings)
}

fn copied<P: Loads>(expiring: Expiring, count: usize) -> Outcome {
    let (old, new): (P, P) = pair(expiring, count)?;
    let (copy, mut readings) = beside_reads(count, |key| old.get(&key), || old.copy());
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
    let map: HashMap<u64, u64, Hasher> = keys::entries(count).collect();
    let source = vec![[1_u64; 12]; count];
    let copies = || (0..20).for_each(|_| drop(black_box(source.clone())));
    let mut readings = beside_reads(count, |key| map.get(&key).copied(), copies).1;
    readings.remove(0);
    Ok(readings)
}

/// A cache with its entries, and an empty one.
fn pair<P: Peer>(expiring: Expiring, count: usize) -> Result<(P, P), Problem> {
    let plan = plan(expiring, count, Some(count as u64 * 2));
    let old = P::build(&plan)?;
    fill(&old, keys::entries(count))?;
    old.settle();
    Ok((old, P::build(&plan)?))
}

fn all_there<P: Peer>(cache: &P, count: usize) -> Result<(), Problem> {
    let there = keys::entries(count).filter(|(key, value)| cache.get(key) == Some(*value));
    expect("entries found", there.count() as u64, count as u64)
}

fn millis(metric: Metric, began: u64) -> Reading {
    metric.of((clock::nanos() - began) as f64 / 1e6)
}

/// Runs `save` while another core reads, each read timed.
fn beside_reads<T: Send>(
    count: usize,
    get: impl Fn(u64) -> Option<u64> + Sync,
    save: impl FnOnce() -> T + Send,
) -> (T, Vec<Reading>) {
    let stream = keys::keys_of(&keys::uniform_ranks(count, 1 << 20, 0));
    let reader = Reader {
        seen: tail::histogram(),
        reads: 0,
        ended: 0,
        queued: 0,
        longest: 0,
    };
    let read = |reader: &mut Reader| {
        if reader.reads == 0 {
            cpu::pin(0);
        }
        let key = stream[reader.reads % stream.len()];
        if clock::nanos() - reader.ended > LONG {
            reader.queued = queued();
        }
        let began = clock::nanos();
        assert_eq!(get(key), Some(keys::value(key)), "a read beside the save");
        reader.ended = clock::nanos();
        reader.note(reader.ended - began);
    };
    let save = || {
        cpu::pin(1);
        let began = clock::nanos();
        let saved = save();
        (saved, millis(SAVE, began))
    };
    let save = || thread::scope(|scope| joined(scope.spawn(save)));
    let ((saved, spent), reader) = watched(reader, read, save);
    let mut readings = vec![spent, OWN_STALL.of(reader.longest as f64 / 1e3)];
    let metrics = [(P9999, 0.9999), (STALL, 1.0)];
    readings.extend(tail::readings(&reader.seen, 1e3, &metrics));
    (saved, readings)
}

struct Reader {
    seen: Histogram<u64>,
    reads: usize,
    /// When the last read ended.
    ended: u64,
    /// What [`queued`] said last.
    queued: u64,
    /// The longest read, without the time that the reader waited for its core.
    longest: u64,
}

impl Reader {
    fn note(&mut self, took: u64) {
        tail::record(&mut self.seen, took);
        self.reads += 1;
        if took > LONG {
            let before = std::mem::replace(&mut self.queued, queued());
            self.longest = self.longest.max(took.saturating_sub(self.queued - before));
        }
    }
}

/// How long the calling thread was ready to run and had no core, in nanoseconds; 0 where the system
/// does not say.
fn queued() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = stat.split(' ').nth(1).unwrap_or("0");
    waited.parse().expect("a number of nanoseconds")
}
