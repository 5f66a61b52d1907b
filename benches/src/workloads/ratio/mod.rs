//! Hit ratios: requests replayed by one thread that reads and inserts on a miss. Real traces, and
//! requests for values that expire, in virtual time.
//! Each insert is followed by all the maintenance that it calls for, so no cache is ever beyond its
//! bound. Beside the caches stand exact LRU and a cache that knows the future.

mod caches;
mod limits;
mod requests;
mod sizes;

use self::{
    caches::CACHES,
    requests::{Requests, Trace},
    sizes::Question,
};
use crate::report::table;
use crate::workloads::prelude::*;

/// Requests of a trace below which it is a sample of a format and not a workload.
const TOO_SHORT: usize = 1_000;
/// Requests of a trace above which a quick run leaves it out.
const TOO_LONG: usize = 200_000;

/// Replays all traces at the sizes of the table, then values that expire.
pub(super) fn run(bench: Bench<'_>) {
    let begin = bench.report.borrow().tables.len();
    replay_traces(bench, Question::Table);
    expiring(Bench {
        name: "ratio-lives",
        ..bench
    });
    print!("{}", table::of_all(&bench.report.borrow().tables[begin..]));
}

/// Replays the traces of the table at sizes that give a curve.
pub(super) fn curves(bench: Bench<'_>) {
    replay_traces(bench, Question::Curve);
}

/// Replays the traces of the table with small caches.
pub(super) fn small(bench: Bench<'_>) {
    let begin = bench.report.borrow().tables.len();
    replay_traces(bench, Question::Small);
    // Traces are replayed one after the other; the tables are by size.
    bench.report.borrow_mut().tables[begin..].sort_by_key(|table| sizes::small_place(&table.about));
    print!("{}", table::of_all(&bench.report.borrow().tables[begin..]));
}

const EXPIRING: &str = "Hits in percent of the requests where values expire, by workload and entries \
    allowed. Lives are a second to an hour, uniform in their logarithm (the trace at its own times, \
    Zipf 0.99 over 200,000 keys at 1,000 requests a second), or half a second for each of 500 hot \
    keys, to which every second request goes, beside 10,000 keys that live for an hour";

/// Replays requests for values that expire.
fn expiring(bench: Bench<'_>) {
    let zipf = requests::zipf(bench.size(2_000_000, 200_000));
    let hot = requests::short_lived(bench.size(1_000_000, 100_000));
    let found = requests::find(&bench.traces).unwrap_or_default();
    let timed = found.iter().find(|(name, _)| name == "cloudphysics");
    let trace = timed.and_then(|(_, path)| Trace::read(path).ok());
    let play = |name, requests: &Requests, sizes: [usize; 2]| {
        for size in sizes {
            replay(bench, (name, EXPIRING), Question::Table, requests, size);
        }
    };
    let name = bench.name;
    match trace.and_then(requests::of_trace) {
        Some(trace) => play("cloudphysics", &trace, [5_000, 20_000]),
        None => println!("\n{name}: no trace with times, so made-up requests only"),
    }
    play("Zipf", &zipf, [5_000, 20_000]);
    play("short-lived hot keys", &hot, [1_000, 5_000]);
}

/// Replays every trace for the table, and only those of the list for the other questions.
fn replay_traces(bench: Bench<'_>, question: Question) {
    let workload = bench.name;
    let mut found = match requests::find(&bench.traces) {
        Ok(found) => found,
        Err(why) => {
            println!("\n{workload}: skipped: {why}; name a file or a folder with --traces");
            return;
        }
    };
    found.sort_by_key(|(name, _)| sizes::place(name).unwrap_or(usize::MAX));
    for (name, path) in &found {
        bench.step(&format!("{workload}, {name}: reading"));
        let trace = match Trace::read(path) {
            Ok(trace) => trace,
            Err(why) => {
                println!("{workload}: {} left out: {why}", path.display());
                continue;
            }
        };
        if trace.keys.len() < TOO_SHORT || (bench.quick && trace.keys.len() > TOO_LONG) {
            continue;
        }
        let sizes = sizes::of(name, trace.distinct, question);
        let requests = Requests::without_deadlines(trace.keys);
        for (about, size) in sizes {
            replay(bench, (name, about), question, &requests, size);
        }
    }
}

/// Replays requests at one size with every cache, or for a curve with those that have one.
fn replay(
    bench: Bench<'_>,
    (name, about): (&str, &str),
    question: Question,
    requests: &Requests,
    size: usize,
) {
    let mut contest = bench.contest(format!("{name}, {size}"), about);
    contest.table.is_line = true;
    for entrant in &CACHES {
        if question == Question::Curve && !entrant.curve {
            continue;
        }
        contest.add(entrant.card, move || {
            let hits = (entrant.play)(requests, size)?;
            let percent = 100.0 * hits as f64 / requests.keys.len() as f64;
            Ok(vec![HIT_PERCENT.of(percent)])
        });
    }
    bench.run(bench.rounds.unwrap_or(1), [contest]);
}
