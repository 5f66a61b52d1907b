//! A million entries saved and restored, and what a reader feels meanwhile. Peers without
//! snapshots copy their entries by iterator and insert the copies, which loses what is left of each
//! life.

use std::{collections::HashMap, fs, hint::black_box};

use wheelhouse::Restore;

use super::prelude::*;

/// What the reader waited for, and its quantiles.
const READS: [(Metric, f64); 2] = [
    (Metric::median("reader p99.99 us"), 0.9999),
    (Metric::worst("reader longest us"), 1.0),
];
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
    let snapshot = |old: &Wheelhouse| old.0.snapshot();
    let restore = |new: &Wheelhouse, saved| {
        new.0.restore(saved, Restore::default());
    };
    let ours = move || round(Expiring::Create, count, snapshot, restore);
    let moka = move || by_hand::<Moka>(Expiring::Create, count);
    let quick_cache = move || by_hand::<QuickCache>(Expiring::Never, count);
    let save = bench
        .contest("save and restore", about)
        .with(<Wheelhouse as Peer>::CARD, ours)
        .with(Card::cache("moka, by hand"), moka)
        .with(Card::cache("quick_cache, by hand"), quick_cache)
        .with(Card::floor("no cache"), move || nothing(count));
    bench.run(bench.rounds().min(3), [save]);
}

/// Saves the entries of a cache and restores them in another.
fn round<P: Peer, S: Send>(
    expiring: Expiring,
    count: usize,
    save: fn(&P) -> S,
    restore: fn(&P, S),
) -> Outcome {
    let plan = plan(expiring, count, Some(count as u64 * 2));
    let (old, new) = (P::build(&plan)?, P::build(&plan)?);
    fill(&old, keys::entries(count))?;
    old.settle();
    let (saved, mut readings) = beside_reads(count, |key| old.get(&key), || save(&old));
    let began = clock::nanos();
    restore(&new, saved);
    readings.push(millis(Metric::ranked("restore ms"), began));
    let there = keys::entries(count).filter(|(key, value)| new.get(key) == Some(*value));
    expect("entries restored", there.count() as u64, count as u64)?;
    Ok(readings)
}

fn by_hand<P: Loads>(expiring: Expiring, count: usize) -> Outcome {
    let restore = |new: &P, copy| {
        for (key, value) in copy {
            new.insert(key, value);
        }
        new.settle();
    };
    round(expiring, count, P::copy, restore)
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
        ended: 0,
        queued: 0,
        longest: 0,
    };
    let read = |reader: &mut Reader| {
        if reader.seen.is_empty() {
            cpu::bind(0);
        }
        let key = stream[reader.seen.len() as usize % stream.len()];
        if clock::nanos() - reader.ended > LONG {
            reader.queued = queued();
        }
        let began = clock::nanos();
        assert_eq!(get(key), Some(keys::value(key)), "a read beside the save");
        reader.ended = clock::nanos();
        let took = reader.ended - began;
        tail::record(&mut reader.seen, took);
        if took > LONG {
            let before = std::mem::replace(&mut reader.queued, queued());
            let own = took.saturating_sub(reader.queued - before);
            reader.longest = own.max(reader.longest);
        }
    };
    let save = || {
        cpu::bind(1);
        let began = clock::nanos();
        let saved = save();
        (saved, millis(Metric::ranked("save ms"), began))
    };
    let save = || thread::scope(|scope| joined(scope.spawn(save)));
    let ((saved, spent), reader) = watched(reader, read, save);
    let mut readings = vec![spent, OWN_STALL.of(reader.longest as f64 / 1e3)];
    readings.extend(tail::readings(&reader.seen, 1e3, &READS));
    (saved, readings)
}

struct Reader {
    seen: Histogram<u64>,
    /// When the last read ended.
    ended: u64,
    /// What [`queued`] said last.
    queued: u64,
    /// The longest read, without the time that the reader waited for its core.
    longest: u64,
}

/// How long the calling thread was ready to run and had no core, in nanoseconds; 0 where the system
/// does not say.
fn queued() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = stat.split(' ').nth(1).unwrap_or("0");
    waited.parse().expect("a number of nanoseconds")
}
