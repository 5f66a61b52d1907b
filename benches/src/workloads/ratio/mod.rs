//! Hit ratios: real traces, replayed by one thread that reads and inserts on a miss.
//!
//! The caches run as their users run them: nobody calls for maintenance between two requests, so what a cache puts off is part of its
//! result. wheelhouse has no scheduler here, because its timing would make the result depend on the machine's load; its callers do the
//! work, and a replay differs from the next only by the random keys of the hashers and of the policy. `--rounds` shows by how much.
//!
//! Beside the caches stand exact LRU and the clairvoyant optimum.

mod caches;
mod limits;
mod sizes;

use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    contest::{HIT_PERCENT, Heading, Metric, Reading, Shown},
    peer::{Card, Problem, Role},
    report::{
        Report,
        ratio::{self, Line},
    },
    setup::Setup,
    traces::{self, Found, Trace},
};

use caches::{CACHES, Entrant};

/// Name of the table on the command line.
pub const NAME: &str = "ratio";
/// Name of the curves.
pub const CURVES: &str = "ratio-curves";
/// A cache that gives up the least recently used entry.
pub const LRU: Card = Card {
    name: "exact LRU",
    role: Role::Floor,
};
/// A cache that knows the future.
pub const OPTIMUM: Card = Card {
    name: "optimum",
    role: Role::Floor,
};
/// Entries held beyond the bound, percent of it, on average.
pub const OVER_MEAN: Metric = Metric {
    name: "over the bound, mean %",
    shown: Shown::InFileOnly,
};
/// As [`OVER_MEAN`], the most that was seen.
pub const OVER_MOST: Metric = Metric {
    name: "over the bound, most %",
    shown: Shown::InFileOnly,
};
/// Requests of a trace below which it is a sample of a format and not a load.
const TOO_SHORT: usize = 1_000;
/// Requests of a trace above which a quick run leaves it out.
const TOO_LONG: usize = 200_000;

/// Replays all traces at the sizes of the table, and prints it.
pub fn run(setup: &Setup, report: &mut Report) {
    let lines = replay_all(setup, report, NAME, sizes::of, |_| true);
    if !lines.is_empty() {
        print!("{}", ratio::table(report, &lines));
    }
}

/// Replays the traces that the table's mean is taken of, at sizes that give a curve; `--svg` draws them.
pub fn curves(setup: &Setup, report: &mut Report) {
    let sizes = |name: &str, distinct| match sizes::place(name) {
        Some(_) => sizes::doubling(distinct),
        None => Vec::new(),
    };
    report.ratios = replay_all(setup, report, CURVES, sizes, |entrant| entrant.curve);
}

/// Replays every trace, at the sizes that are given for it, with the caches that take part.
fn replay_all(
    setup: &Setup,
    report: &mut Report,
    workload: &'static str,
    sizes_of: impl Fn(&str, usize) -> Vec<NonZeroUsize>,
    takes_part: impl Fn(&Entrant) -> bool,
) -> Vec<Line> {
    let mut found = match traces::find(&setup.traces) {
        Ok(found) => found,
        Err(why) => {
            println!("\n{workload}: skipped: {why}");
            return Vec::new();
        }
    };
    found.sort_by_key(|found| sizes::place(&found.name).unwrap_or(usize::MAX));
    let entrants: Vec<Entrant> = CACHES
        .into_iter()
        .filter(|entrant| takes_part(entrant) && setup.wants(entrant.card.name))
        .collect();
    let mut lines = Vec::new();
    for (index, Found { name, path }) in found.iter().enumerate() {
        setup.stage(format!(
            "{workload}, trace {} of {}",
            index + 1,
            found.len()
        ));
        setup.step(&format!("{name}, reading"));
        let trace = match Trace::read(path) {
            Ok(trace) => trace,
            Err(why) => {
                setup.clear();
                println!("{workload}: {} left out: {why}", path.display());
                continue;
            }
        };
        if trace.keys.len() < TOO_SHORT || (setup.quick && trace.keys.len() > TOO_LONG) {
            continue;
        }
        for size in sizes_of(name, trace.distinct) {
            let line = Line {
                trace: name.clone(),
                size: size.get(),
                reference: sizes::place(name).is_some(),
            };
            let heading = Heading {
                workload,
                variant: line.variant(),
                about: format!(
                    "{} requests for {} keys, room for {size}; get, then insert on a miss",
                    trace.keys.len(),
                    trace.distinct
                ),
            };
            replay(setup, report, &heading, &entrants, &trace.keys, size);
            lines.push(line);
        }
        report.save_so_far();
    }
    setup.clear();
    lines
}

/// Replays one trace at one size with every cache that takes part.
fn replay(
    setup: &Setup,
    report: &mut Report,
    heading: &Heading,
    entrants: &[Entrant],
    keys: &[u64],
    size: NonZeroUsize,
) {
    let percent = |part: f64, whole: usize| 100.0 * part / whole as f64;
    for entrant in entrants {
        setup.step(&format!("{}, {}", heading.variant, entrant.card.name));
        for _ in 0..setup.replays {
            // A peer that panics has lost this line, not the run.
            let played = catch_unwind(AssertUnwindSafe(|| (entrant.play)(keys, size)))
                .unwrap_or_else(|_| Err(Problem::Wrong("panicked".into())));
            match played {
                Ok(played) => {
                    let mut readings = vec![Reading::new(
                        1,
                        HIT_PERCENT,
                        percent(played.hits as f64, keys.len()),
                    )];
                    if let Some((mean, most)) = played.over {
                        readings.push(Reading::new(1, OVER_MEAN, percent(mean, size.get())));
                        readings.push(Reading::new(1, OVER_MOST, percent(most as f64, size.get())));
                    }
                    report.add(heading, entrant.card, &readings);
                }
                Err(problem) => {
                    report.add_problem(heading, entrant.card, problem);
                    break;
                }
            }
        }
    }
    for (card, hits) in [
        (LRU, limits::lru as fn(&[u64], NonZeroUsize) -> u64),
        (OPTIMUM, limits::optimum),
    ] {
        if setup.wants(card.name) {
            setup.step(&format!("{}, {}", heading.variant, card.name));
            let ratio = percent(hits(keys, size) as f64, keys.len());
            report.add(heading, card, &[Reading::new(1, HIT_PERCENT, ratio)]);
        }
    }
}
