//! Memory, each peer in a process of its own, so that the figures hold no free pages of another
//! peer or of an earlier workload.
//!
//! Three kinds: *entries* fills a cache and empties it again; *churn* lets an hour of virtual time
//! pass over wheelhouse, the one peer with a clock that can be set; *snapshot* saves all entries of
//! one.

use std::{
    cell::RefCell,
    error::Error,
    fs,
    process::{Command, Stdio},
};

use wheelhouse::{Cache, ManualTicker, Scheduler, expiry};

use super::prelude::*;
use crate::alloc::{start_counting, tally, trim};

/// First argument of a child process; the others are the variant, the peer, and whether the run is
/// a quick one.
pub const PROBE: &str = "memory-probe";

/// Runs all kinds, each peer in a child.
pub(super) fn run(bench: Bench<'_>) {
    let mut contests = contests(bench);
    for contest in &mut contests {
        let variant = &contest.table.variant;
        for one in &mut contest.contestants {
            let asked = [PROBE, variant, one.card.name, &bench.quick.to_string()];
            let asked = asked.map(String::from);
            one.run = Box::new(move || child(&asked));
        }
    }
    bench.run(1, contests);
}

/// The child's side: measures one peer of one contest and prints the outcome.
pub fn probe(variant: &str, peer: &str, quick: bool) {
    let setup = Setup {
        quick,
        ..Setup::default()
    };
    let bench = Bench {
        name: "memory",
        setup: &setup,
        report: &RefCell::default(),
    };
    let contests = contests(bench).into_iter();
    let mut meant = contests.filter(|contest| contest.table.variant == variant);
    let all = meant.next().into_iter().flat_map(|meant| meant.contestants);
    let mut one = all.filter(|one| one.card.name == peer);
    let outcome = match one.next() {
        Some(mut one) => (one.run)(),
        None => Err(Problem::Unsupported("there is no such peer")),
    };
    let answer = serde_json::to_string(&outcome);
    println!("{}", answer.expect("figures are finite"));
}

/// All contests, to be run in this process.
fn contests(bench: Bench<'_>) -> Vec<Contest<'_>> {
    let count = count(bench.setup);
    let about = format!(
        "u64 -> u64, {count} entries inserted, then all removed; each peer in its own process"
    );
    let heat = |name: &str, expiring, bounded| {
        bench.heat(name.into(), &about, (expiring, bounded), &Entries)
    };
    let seconds = bench.size(3600, 900) as u64;
    let churn = format!(
        "{seconds} s of virtual time (early: after a sixth), {RATE} inserts a second living 1 to 120 s, \
         a tenth invalidated, a tenth extended by reads; only wheelhouse has a clock that can be set"
    );
    let saved = format!("u64 -> u64, {count} entries, per-entry expiry; bytes of what is taken");
    let churn = bench.contest("churn", churn);
    let snapshot = bench.contest("snapshot", saved);
    let subject = <Wheelhouse as Peer>::CARD;
    vec![
        heat(Expiring::Never.label(), Expiring::Never, true),
        heat(Expiring::Write.label(), Expiring::Write, true),
        heat("per-entry expiry, no bound", Expiring::Write, false),
        churn.with(subject, move || churn_for(seconds)),
        snapshot.with(subject, move || snapshot_of(count)),
    ]
}

/// Starts this program again to measure one thing.
fn child(asked: &[String]) -> Outcome {
    let wrong = |error: &dyn Error| Problem::Wrong(format!("{asked:?}: {error}"));
    let start = |program| {
        let mut command = Command::new(program);
        command.args(asked).stderr(Stdio::inherit()).output()
    };
    let done = std::env::current_exe().and_then(start);
    let answer = done.map_err(|error| wrong(&error))?.stdout;
    serde_json::from_slice(&answer).map_err(|error| wrong(&error))?
}

/// Resident size of this process, bytes.
fn resident() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(f64::NAN) * rustix::param::page_size() as f64
}

/// A number of bytes, in MiB.
fn mib(bytes: f64) -> f64 {
    bytes / (1024.0 * 1024.0)
}

/// How many there are.
fn count(setup: &Setup) -> usize {
    setup.size(1_000_000, 300_000)
}

/// Fills a cache and empties it.
struct Entries;

impl Race<u64, u64, (Expiring, bool)> for Entries {
    /// The variant is what sets a deadline, and whether there is a bound.
    fn round<P: Peer>(&self, setup: &Setup, (expiring, bounded): (Expiring, bool)) -> Outcome {
        let count = count(setup);
        let all: Vec<u64> = (0..count as u64).map(keys::key).collect();
        let capacity = bounded.then_some(count as u64 * 4);
        start_counting();
        let before = resident();
        let resident = || resident() - before;
        let cache = P::build(&plan(expiring, 1024, capacity))?;
        // Removed entries may be freed only when later work comes by.
        let settle = || (0..5).for_each(|_| cache.settle());
        for &key in &all {
            cache.insert(key, keys::value(key));
        }
        settle();
        let (full, resident_full) = (tally(), resident());
        let found = |key: &&u64| cache.get(key) == Some(keys::value(**key));
        let there = all.iter().filter(found).count();
        // The figures of a peer that drops writes are for those that it took.
        expect("entries found", there as u64, count as u64)?;
        for key in &all {
            cache.remove(key);
        }
        settle();
        let left = all.iter().filter(|key| cache.get(key).is_some()).count();
        expect("entries left after all were removed", left as u64, 0)?;
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
}

/// Inserts in each virtual second.
const RATE: u64 = 5_000;
const LONGEST: u64 = 120;

fn lifetime(key: &u64, _: &u64) -> Option<Duration> {
    Some(Duration::from_secs(1 + key % LONGEST))
}

fn churn_for(seconds: u64) -> Outcome {
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
    ensure!(
        most <= RATE * (2 * LONGEST + 4),
        "{most} entries at once: they do not leave when they are due"
    );
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

fn snapshot_of(count: usize) -> Outcome {
    start_counting();
    let cache = <Wheelhouse as Peer>::build(&plan(Expiring::Create, 1024, Some(count as u64 * 4)))?;
    fill(&cache, keys::entries(count))?;
    cache.settle();
    let full = tally().usable;
    let more = || tally().usable - full;
    let watch = |most: &mut i64| {
        *most = more().max(*most);
        thread::yield_now();
    };
    let (snapshot, most) = watched(0, watch, || cache.0.snapshot());
    expect("entries saved", snapshot.len() as u64, count as u64)?;
    Ok(vec![
        Metric::median("cache MiB").of(mib(full as f64)),
        Metric::median("snapshot MiB").of(mib(more() as f64)),
        Metric::worst("most MiB while it is taken").of(mib(most as f64)),
    ])
}
