//! Memory, each peer in a process of its own, so that no other peer's free pages and no earlier workload are in the figures.
//!
//! Two kinds of child: *entries* fills a cache and empties it again; *churn* lets an hour of virtual time pass over wheelhouse, the one
//! peer with a clock that can be turned.

mod churn;
mod entries;

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::{
    contest::{Contestant, Heading, Metric, Outcome, Reading, Shown, contest},
    peer::{Card, Expiring, Key, Peer, Problem, Role, Value},
    peers::{self, Visit},
    report::Report,
    setup::Setup,
};

/// First argument of a child process.
pub const PROBE: &str = "memory-probe";

/// Bytes set aside by the C library for each entry, rounding included.
pub const USABLE: Metric = Metric {
    name: "B/entry",
    shown: Shown::Ranked,
};
/// Allocations alive for each entry.
pub const LIVE: Metric = Metric {
    name: "allocations/entry",
    shown: Shown::Median(0),
};

/// Per-entry expiry in a cache that no size limits, so that no order of use need be kept.
pub const UNBOUNDED: &str = "per-entry expiry, no bound";

const METRICS: &[Metric] = &[
    USABLE,
    Metric {
        name: "B asked for/entry",
        shown: Shown::Median(0),
    },
    LIVE,
    Metric {
        name: "calls/insert",
        shown: Shown::Median(0),
    },
    Metric {
        name: "resident B/entry",
        shown: Shown::Median(0),
    },
    Metric {
        name: "resident MiB full",
        shown: Shown::Median(1),
    },
    Metric {
        name: "emptied",
        shown: Shown::Median(1),
    },
    Metric {
        name: "emptied, trimmed",
        shown: Shown::Median(1),
    },
    Metric {
        name: "held MiB emptied",
        shown: Shown::Median(1),
    },
    Metric {
        name: "entries (mean)",
        shown: Shown::Median(0),
    },
    Metric {
        name: "held MiB early",
        shown: Shown::Median(0),
    },
    Metric {
        name: "held MiB at end",
        shown: Shown::Median(0),
    },
    Metric {
        name: "resident MiB early",
        shown: Shown::Median(0),
    },
    Metric {
        name: "resident MiB at end",
        shown: Shown::Median(0),
    },
    Metric {
        name: "resident growth %",
        shown: Shown::Worst(0),
    },
    Metric {
        name: "inserts",
        shown: Shown::InFileOnly,
    },
];

/// Figures of a child, by metric.
type Figures = Vec<(String, f64)>;

/// Runs both kinds.
pub fn run(setup: &Setup, report: &mut Report) {
    let count = setup.size(1_000_000, 300_000);
    for (expiring, bounded) in [
        (Expiring::Never, true),
        (Expiring::Write, true),
        (Expiring::Write, false),
    ] {
        let mut names = Names(Vec::new());
        peers::each::<u64, u64>(&mut names);
        let entrants = names
            .0
            .into_iter()
            .map(|card| {
                child_of(
                    card,
                    vec![
                        "entries".into(),
                        card.name.into(),
                        flag(expiring).into(),
                        if bounded { "bounded" } else { "unbounded" }.into(),
                        count.to_string(),
                    ],
                )
            })
            .collect();
        let heading = Heading {
            workload: "memory",
            variant: if bounded {
                expiring.label().into()
            } else {
                UNBOUNDED.into()
            },
            about: format!(
                "u64 -> u64, {count} entries inserted, then all removed; each peer in its own process"
            ),
        };
        contest(setup, report, &heading, 1, entrants);
    }
    churn_only(setup, report);
}

fn churn_only(setup: &Setup, report: &mut Report) {
    let seconds = setup.size(3600, 900);
    let heading = Heading {
        workload: "memory",
        variant: "churn".into(),
        about: format!(
            "{seconds} s of virtual time (early: after a sixth), {} inserts a second living 1 to 120 s, a tenth invalidated, a tenth extended by reads; \
             no peer's clock can be turned like that",
            churn::RATE
        ),
    };
    let card = Card {
        name: "wheelhouse",
        role: Role::Subject,
    };
    contest(
        setup,
        report,
        &heading,
        1,
        vec![child_of(card, vec!["churn".into(), seconds.to_string()])],
    );
}

struct Names(Vec<Card>);

impl<K: Key, V: Value> Visit<K, V> for Names {
    fn meet<P: Peer<K, V>>(&mut self) {
        self.0.push(P::CARD);
    }
}

fn flag(expiring: Expiring) -> &'static str {
    if expiring == Expiring::Never {
        "never"
    } else {
        "write"
    }
}

fn child_of<'a>(card: Card, arguments: Vec<String>) -> Contestant<'a> {
    Contestant {
        card,
        run: Box::new(move |_| child(&arguments)),
    }
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
    let outcome = match arguments[..] {
        ["entries", peer, flag, bound, count] => {
            let expiring = if flag == "never" {
                Expiring::Never
            } else {
                Expiring::Write
            };
            entries::measure(
                peer,
                expiring,
                bound == "bounded",
                count.parse().unwrap_or(0),
            )
        }
        ["churn", seconds] => churn::measure(seconds.parse().unwrap_or(0)),
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
