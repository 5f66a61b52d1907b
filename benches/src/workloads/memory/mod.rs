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
    fs,
    process::{Command, Stdio},
};

use crate::peers::{self, Visit};
use crate::workloads::prelude::*;

/// First argument of a child process.
pub const PROBE: &str = "memory-probe";

const METRICS: &[Metric] = &[
    Metric::ranked("B/entry"),
    Metric::median("B asked for/entry"),
    Metric::median("allocations/entry"),
    Metric::median("calls/insert"),
    Metric::median("resident B/entry"),
    Metric::median("resident MiB full"),
    Metric::median("emptied"),
    Metric::median("emptied, trimmed"),
    Metric::median("held MiB emptied"),
    Metric::median("entries (mean)"),
    Metric::median("held MiB early"),
    Metric::median("held MiB at end"),
    Metric::median("resident MiB early"),
    Metric::median("resident MiB at end"),
    Metric::worst("resident growth %"),
    Metric::median("cache MiB"),
    Metric::median("snapshot MiB"),
    Metric::worst("most MiB while it is taken"),
];

/// Figures of a child, by metric.
type Figures = Vec<(String, f64)>;

/// The figures of a child.
fn figures<const N: usize>(figures: [(&str, f64); N]) -> Result<Figures, Problem> {
    Ok(figures
        .map(|(name, figure)| (name.to_owned(), figure))
        .to_vec())
}

/// Runs all kinds.
pub fn run(setup: &Setup, report: &mut Report) {
    let count = setup.size(1_000_000, 300_000).to_string();
    let about = format!(
        "u64 -> u64, {count} entries inserted, then all removed; each peer in its own process"
    );
    let entries = |variant, expiring, bound| {
        let contest = Contest::new("memory", variant, &*about);
        let arguments = ["entries", expiring, bound, &count];
        let mut children = Children(contest, arguments);
        peers::each::<u64, u64>(&mut children);
        children.0
    };
    let seconds = setup.size(3600, 900).to_string();
    let churn = format!(
        "{seconds} s of virtual time (early: after a sixth), {} inserts a second living 1 to 120 s, \
         a tenth invalidated, a tenth extended by reads; only wheelhouse has a clock that can be set",
        churn::RATE
    );
    let saved = format!("u64 -> u64, {count} entries, per-entry expiry; bytes of what is taken");
    let subject = Card::subject("wheelhouse");
    let alone = |variant, about, argument| {
        Contest::new("memory", variant, about)
            .with(subject, move || child(&[variant, argument, "", "", ""]))
    };
    let all = vec![
        entries(Expiring::Never.label(), "never", "bounded"),
        entries(Expiring::Write.label(), "write", "bounded"),
        entries("per-entry expiry, no bound", "write", "unbounded"),
        alone("churn", churn, &seconds),
        alone("snapshot", saved, &count),
    ];
    contests(setup, report, 1, all);
}

/// A child for each peer.
struct Children<'a>(Contest<'a>, [&'a str; 4]);

impl<K: Key, V: Value> Visit<K, V> for Children<'_> {
    fn meet<P: Peer<K, V>>(&mut self) {
        let [kind, expiring, bound, count] = self.1;
        let run = move || child(&[kind, P::CARD.name, expiring, bound, count]);
        self.0.add(P::CARD, run);
    }
}

/// Starts this program again to measure one thing.
fn child(arguments: &[&str; 5]) -> Outcome {
    let wrong = |what: &str| Problem::Wrong(format!("{PROBE} {}: {what}", arguments.join(" ")));
    let start = |program| {
        let mut command = Command::new(program);
        command
            .arg(PROBE)
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
    };
    let done = std::env::current_exe().and_then(start);
    let done = done.map_err(|error| wrong(&error.to_string()))?;
    let answer: Result<Figures, (bool, String)> =
        serde_json::from_slice(&done.stdout).map_err(|error| wrong(&error.to_string()))?;
    let figures = answer.map_err(|(unsupported, why)| match unsupported {
        true => Problem::Unsupported(why.leak()),
        false => wrong(&why),
    })?;
    let readings = figures.into_iter().map(|(name, value)| {
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let metric = metric.ok_or_else(|| wrong(&format!("no metric {name}")))?;
        Ok(metric.of(value))
    });
    readings.collect()
}

/// The child's side: measures what `arguments` say and prints it.
pub fn probe(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().unwrap_or(0);
    let outcome = match arguments[..] {
        ["entries", peer, expiring, bound, count] => {
            let expiring = match expiring {
                "never" => Expiring::Never,
                _ => Expiring::Write,
            };
            entries::measure(peer, expiring, bound == "bounded", number(count) as usize)
        }
        ["churn", seconds, ..] => churn::measure(number(seconds)),
        ["snapshot", count, ..] => saved::measure(number(count) as usize),
        _ => Err(Problem::Wrong(format!(
            "{PROBE} does not know {arguments:?}"
        ))),
    };
    let answer = outcome.map_err(|problem| match problem {
        Problem::Unsupported(why) => (true, why.to_owned()),
        Problem::Wrong(why) => (false, why),
    });
    let answer = serde_json::to_string(&answer);
    println!("{}", answer.expect("figures are finite"));
}

/// Resident size of this process, bytes.
fn resident() -> f64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    // SAFETY: `sysconf` has no preconditions.
    pages.unwrap_or(f64::NAN) * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64
}

const MIB: f64 = 1024.0 * 1024.0;
