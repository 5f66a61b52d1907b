//! Memory, each peer in a process of its own, so that the figures hold no free pages of another
//! peer or of an earlier workload.
//!
//! Two kinds of child: *entries* fills a cache and empties it again; *churn* lets an hour of
//! virtual time pass over wheelhouse, the one peer with a clock that can be set.

mod churn;
mod entries;

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::{
    contest::{Contest, Contestant, contests},
    figure::{Heading, Metric, Outcome, Reading},
    peer::{Card, Expiring, Key, Peer, Problem, Role, Value},
    peers::{self, Visit},
    report::Report,
    setup::Setup,
};

/// First argument of a child process.
pub const PROBE: &str = "memory-probe";

/// Bytes set aside by the C library for each entry, rounding included.
pub const USABLE: Metric = Metric::ranked("B/entry");
/// Allocations alive for each entry.
pub const LIVE: Metric = Metric::median("allocations/entry");

/// Per-entry expiry in a cache without a bound, which needs no order of use.
pub const UNBOUNDED: &str = "per-entry expiry, no bound";

const METRICS: &[Metric] = &[
    USABLE,
    Metric::median("B asked for/entry"),
    LIVE,
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
];

/// Figures of a child, by metric.
type Figures = Vec<(String, f64)>;

/// Runs both kinds.
pub fn run(setup: &Setup, report: &mut Report) {
    let count = setup.size(1_000_000, 300_000);
    let about = format!(
        "u64 -> u64, {count} entries inserted, then all removed; each peer in its own process"
    );
    let mut cards = Cards(Vec::new());
    peers::each::<u64, u64>(&mut cards);
    let entries = |variant: &str, expiring: &'static str, bound: &'static str| {
        let child = |card: &Card| {
            let count = count.to_string();
            child_of(*card, ["entries", card.name, expiring, bound, &count])
        };
        Contest {
            heading: Heading::new("memory", variant, &*about),
            contestants: cards.0.iter().map(child).collect(),
        }
    };
    let seconds = setup.size(3600, 900);
    let churn = format!(
        "{seconds} s of virtual time (early: after a sixth), {} inserts a second living 1 to 120 s, \
         a tenth invalidated, a tenth extended by reads; only wheelhouse has a clock that can be set",
        churn::RATE
    );
    let subject = Card {
        name: "wheelhouse",
        role: Role::Subject,
    };
    let all = vec![
        entries(Expiring::Never.label(), "never", "bounded"),
        entries(Expiring::Write.label(), "write", "bounded"),
        entries(UNBOUNDED, "write", "unbounded"),
        Contest {
            heading: Heading::new("memory", "churn", churn),
            contestants: vec![child_of(
                subject,
                ["churn", &seconds.to_string(), "", "", ""],
            )],
        },
    ];
    contests(setup, report, 1, all);
}

struct Cards(Vec<Card>);

impl<K: Key, V: Value> Visit<K, V> for Cards {
    fn meet<P: Peer<K, V>>(&mut self) {
        self.0.push(P::CARD);
    }
}

fn child_of<'a>(card: Card, arguments: [&str; 5]) -> Contestant<'a> {
    let arguments = arguments.map(String::from);
    Contestant::new(card, move || child(&arguments))
}

/// Starts this program again to measure one thing.
fn child(arguments: &[String]) -> Outcome {
    let wrong = |what: &str| Problem::Wrong(format!("{} {}: {what}", PROBE, arguments.join(" ")));
    let done = std::env::current_exe()
        .and_then(|program| {
            Command::new(program)
                .arg(PROBE)
                .args(arguments)
                .stderr(Stdio::inherit())
                .output()
        })
        .map_err(|error| wrong(&error.to_string()))?;
    let answer: Result<Figures, String> =
        serde_json::from_slice(&done.stdout).map_err(|error| wrong(&error.to_string()))?;
    let figures = match answer {
        Ok(figures) => figures,
        Err(why) => {
            let unsupported = UNSUPPORTED.iter().find(|known| **known == why);
            return Err(unsupported.map_or_else(|| wrong(&why), |why| Problem::Unsupported(why)));
        }
    };
    figures
        .into_iter()
        .map(|(name, value)| {
            let metric = METRICS
                .iter()
                .find(|metric| metric.name == name)
                .ok_or_else(|| wrong(&format!("no metric {name}")))?;
            Ok(Reading::new(1, *metric, value))
        })
        .collect()
}

const UNSUPPORTED: &[&str] = &[
    "no expiry",
    "without expiry it is quick_cache",
    "there is no such peer",
];

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
        _ => Err(Problem::Wrong(format!(
            "{PROBE} does not know {arguments:?}"
        ))),
    };
    let answer: Result<Figures, String> = outcome.map_err(|problem| match problem {
        Problem::Unsupported(why) => why.to_owned(),
        Problem::Wrong(why) => why,
    });
    println!(
        "{}",
        serde_json::to_string(&answer).expect("figures are finite")
    );
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
