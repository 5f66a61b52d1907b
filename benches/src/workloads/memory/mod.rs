//! Memory, each peer in a process of its own, so that the figures hold no free pages of another
//! peer or of an earlier workload.
//!
//! Three kinds of child: *entries* fills a cache and empties it again; *churn* lets an hour of
//! virtual time pass over wheelhouse, the one peer with a clock that can be set; *snapshot* saves
//! all entries of one.

mod churn;
mod entries;
mod saved;

use std::{
    error::Error,
    fs,
    process::{Command, Stdio},
};

use serde::{Deserialize, Serialize};

use crate::peers::{self, Visit};
use crate::workloads::prelude::*;

/// First argument of a child process.
pub const PROBE: &str = "memory-probe";

/// What a child measures.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Kind {
    /// Entries of this expiry, in a cache with a bound or without.
    Entries(Expiring, bool),
    Churn,
    Snapshot,
}

/// What a child is asked for: the kind, the peer, and how many entries or seconds.
#[derive(Serialize, Deserialize)]
struct Asked(Kind, String, usize);

/// Runs all kinds.
pub fn run(bench: Bench<'_>) {
    let count = bench.size(1_000_000, 300_000);
    let about = format!(
        "u64 -> u64, {count} entries inserted, then all removed; each peer in its own process"
    );
    let entries = |variant, expiring, bounded| {
        let kind = Kind::Entries(expiring, bounded);
        let mut children = Children(bench.contest(variant, &*about), kind, count);
        peers::each::<u64, u64>(&mut children);
        children.0
    };
    let seconds = bench.size(3600, 900);
    let churn = format!(
        "{seconds} s of virtual time (early: after a sixth), {} inserts a second living 1 to 120 s, \
         a tenth invalidated, a tenth extended by reads; only wheelhouse has a clock that can be set",
        churn::RATE
    );
    let saved = format!("u64 -> u64, {count} entries, per-entry expiry; bytes of what is taken");
    let subject = Card::subject("wheelhouse");
    let alone = |variant, about, kind, count| {
        let contest = bench.contest(variant, about);
        contest.with(subject, move || child(&Asked(kind, String::new(), count)))
    };
    let all = [
        entries(Expiring::Never.label(), Expiring::Never, true),
        entries(Expiring::Write.label(), Expiring::Write, true),
        entries("per-entry expiry, no bound", Expiring::Write, false),
        alone("churn", churn, Kind::Churn, seconds),
        alone("snapshot", saved, Kind::Snapshot, count),
    ];
    bench.run(1, all);
}

/// A child for each peer.
struct Children<'a>(Contest<'a>, Kind, usize);

impl<K: Key, V: Value> Visit<K, V> for Children<'_> {
    fn meet<P: Peer<K, V>>(&mut self) {
        let asked = Asked(self.1, P::CARD.name.into(), self.2);
        self.0.add(P::CARD, move || child(&asked));
    }
}

/// Starts this program again to measure one thing.
fn child(asked: &Asked) -> Outcome {
    let asked = serde_json::to_string(asked).expect("made of names and numbers");
    let wrong = |error: &dyn Error| Problem::Wrong(format!("{PROBE} {asked}: {error}"));
    let start = |program| {
        let mut command = Command::new(program);
        command
            .args([PROBE, &asked])
            .stderr(Stdio::inherit())
            .output()
    };
    let done = std::env::current_exe().and_then(start);
    let answer = done.map_err(|error| wrong(&error))?.stdout;
    serde_json::from_slice(&answer).map_err(|error| wrong(&error))?
}

/// The child's side: measures what it is asked for and prints it.
pub fn probe(asked: &str) {
    let outcome = match serde_json::from_str(asked) {
        Ok(Asked(Kind::Entries(expiring, bounded), peer, count)) => {
            entries::measure(peer, expiring, bounded, count)
        }
        Ok(Asked(Kind::Churn, _, seconds)) => churn::measure(seconds as u64),
        Ok(Asked(Kind::Snapshot, _, count)) => saved::measure(count),
        Err(error) => Err(Problem::Wrong(error.to_string())),
    };
    let answer = serde_json::to_string(&outcome);
    println!("{}", answer.expect("figures are finite"));
}

/// Resident size of this process, bytes.
fn resident() -> f64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    // SAFETY: `sysconf` has no preconditions.
    pages.unwrap_or(f64::NAN) * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64
}

/// A number of bytes, in MiB.
fn mib(bytes: impl Into<f64>) -> f64 {
    bytes.into() / (1024.0 * 1024.0)
}
