//! Hit ratios: requests replayed by one thread that reads and inserts on a miss. Real traces, and
//! requests for values that expire, in virtual time.
//!
//! No cache is ever beyond its bound: each insert is followed by all the maintenance that it calls
//! for. A replay differs from the next only by the random keys of hashers and policies; `--rounds`
//! shows by how much. Beside the caches stand exact LRU and a cache that knows the future.

mod caches;
mod limits;
mod requests;
mod sizes;

use crate::workloads::prelude::*;
use crate::{
    report::{
        Report,
        plot::{self, Panel},
        table,
    },
    traces::{self, Found, Trace},
};

use caches::{CACHES, Entrant};
use requests::Requests;

/// Name of the table of values that expire.
const LIVES: &str = "ratio-lives";

/// Caches that no user can have, and their hits.
type Limit = (Card, fn(&Requests, NonZeroUsize) -> u64);
const LIMITS: [Limit; 2] = [
    (Card::floor("exact LRU"), limits::lru),
    (Card::floor("optimum"), limits::optimum),
];

/// Requests of a trace below which it is a sample of a format and not a load.
const TOO_SHORT: usize = 1_000;
/// Requests of a trace above which a quick run leaves it out.
const TOO_LONG: usize = 200_000;

/// Replays all traces at the sizes of the table, then values that expire.
pub(super) fn run(bench: Bench<'_>) {
    let about = |name: &str| match sizes::place(name) {
        Some(_) => "Hits in percent of the requests, by trace and entries allowed",
        None => "The same for traces that are not in the list of sizes",
    };
    let mut lines = replay_traces(bench, about, sizes::of, |_| true);
    let lives = Bench {
        name: LIVES,
        ..bench
    };
    for (name, requests, sizes) in expiring(bench.setup) {
        for size in sizes.into_iter().filter_map(NonZeroUsize::new) {
            lines.push(replay(lives, (name, EXPIRING), &CACHES, &requests, size));
        }
    }
    while let Some(first) = lines.first().cloned() {
        let is_same =
            |line: &&Heading| line.workload == first.workload && line.about == first.about;
        let table: Vec<&Heading> = lines.iter().filter(is_same).collect();
        print!("{}", table::of_lines(&bench.report.borrow(), &table));
        lines.retain(|line| !is_same(&line));
    }
}

const EXPIRING: &str = "Hits in percent of the requests where values expire, by load and entries \
    allowed. Lives are a second to an hour, uniform in their logarithm (the trace at its own times, \
    Zipf 0.99 over 200,000 keys at 1,000 requests a second), or half a second for each of 500 hot \
    keys, to which every second request goes, beside 10,000 keys that live for an hour";

/// The loads of values that expire: name, requests, entries allowed.
fn expiring(setup: &Setup) -> Vec<(&'static str, Requests, [usize; 2])> {
    let zipf = requests::zipf(setup.size(2_000_000, 200_000));
    let hot = requests::short_lived(setup.size(1_000_000, 100_000));
    let mut loads = vec![
        ("Zipf", zipf, [5_000, 20_000]),
        ("short-lived hot keys", hot, [1_000, 5_000]),
    ];
    let found = traces::find(&setup.traces).unwrap_or_default();
    let timed = found.iter().find(|found| found.name == "cloudphysics");
    let trace = timed.and_then(|found| Trace::read(&found.path).ok());
    match trace.and_then(requests::of_trace) {
        Some(requests) => loads.insert(0, ("cloudphysics", requests, [5_000, 20_000])),
        None => println!("\n{LIVES}: no trace with times, so made-up requests only"),
    }
    loads
}

/// Replays the traces of the table at sizes that give a curve, and draws them.
pub(super) fn curves(bench: Bench<'_>) {
    let sizes = |name: &str, distinct| match sizes::place(name) {
        Some(_) => sizes::doubling(distinct),
        None => Vec::new(),
    };
    let about = |_: &str| "Hits in percent of the requests, over the size of the cache";
    let lines = replay_traces(bench, about, sizes, |entrant| entrant.curve);
    let (Some(folder), false) = (&bench.svg, lines.is_empty()) else {
        return;
    };
    let drawn = lines.chunk_by(|one, other| trace_of(one) == trace_of(other));
    let panels: Vec<Panel> = drawn
        .map(|lines| panel(&bench.report.borrow(), lines))
        .collect();
    let title = "hits, percent of the requests, over the size of the cache, percent of the keys";
    if let Err(error) = plot::panels(title, &panels, &folder.join("hit-ratios.svg")) {
        eprintln!("cannot draw the curves: {error}");
    }
}

fn trace_of(heading: &Heading) -> &str {
    heading.variant.split(',').next().unwrap_or_default()
}

fn panel(report: &Report, lines: &[Heading]) -> Panel {
    let caches = CACHES.iter().filter(|entrant| entrant.curve);
    let cards = caches.map(|entrant| entrant.card).chain([LIMITS[1].0]);
    let curve = |card: Card| {
        let row = |line: &Heading| {
            report.row(
                &line.workload,
                &line.variant,
                1,
                HIT_PERCENT.name,
                card.name,
            )
        };
        let values = lines.iter().filter_map(|line| Some(row(line)?.median()));
        (card.name.to_owned(), values.collect())
    };
    // Sizes double up to half of the keys.
    let steps = (1..=lines.len() as i32).rev();
    let label = |halvings| format!("{:.1}", 100.0 * 0.5_f64.powi(halvings));
    Panel {
        title: trace_of(&lines[0]).to_owned(),
        steps: steps.map(label).collect(),
        curves: cards.map(curve).collect(),
    }
}

/// Replays every trace, at the sizes that are given for it, with the caches that take part.
fn replay_traces(
    bench: Bench<'_>,
    about: impl Fn(&str) -> &'static str,
    sizes_of: impl Fn(&str, usize) -> Vec<NonZeroUsize>,
    takes_part: impl Fn(&Entrant) -> bool,
) -> Vec<Heading> {
    let workload = bench.name;
    let mut found = match traces::find(&bench.traces) {
        Ok(found) => found,
        Err(why) => {
            println!("\n{workload}: skipped: {why}; name a file or a folder with --traces");
            return Vec::new();
        }
    };
    found.sort_by_key(|found| sizes::place(&found.name).unwrap_or(usize::MAX));
    let entrants: Vec<Entrant> = CACHES.into_iter().filter(takes_part).collect();
    let mut lines = Vec::new();
    for Found { name, path } in &found {
        bench.step(&format!("{workload}, {name}: reading"));
        let trace = match Trace::read(path) {
            Ok(trace) => trace,
            Err(why) => {
                bench.clear();
                println!("{workload}: {} left out: {why}", path.display());
                continue;
            }
        };
        if trace.keys.len() < TOO_SHORT || (bench.quick && trace.keys.len() > TOO_LONG) {
            continue;
        }
        let sizes = sizes_of(name, trace.distinct);
        let requests = Requests::without_deadlines(trace.keys);
        for size in sizes {
            lines.push(replay(
                bench,
                (name, about(name)),
                &entrants,
                &requests,
                size,
            ));
        }
    }
    bench.clear();
    lines
}

/// Replays requests at one size with every cache that takes part.
fn replay(
    bench: Bench<'_>,
    (name, about): (&str, &str),
    entrants: &[Entrant],
    requests: &Requests,
    size: NonZeroUsize,
) -> Heading {
    let percent = |hits: u64| {
        let percent = 100.0 * hits as f64 / requests.keys.len() as f64;
        Ok(vec![HIT_PERCENT.of(percent)])
    };
    let mut contest = bench.contest(format!("{name}, {size}"), about);
    contest.heading.is_line = true;
    for entrant in entrants {
        contest.add(entrant.card, move || {
            percent((entrant.play)(requests, size)?)
        });
    }
    for (card, hits) in LIMITS {
        contest.add(card, move || percent(hits(requests, size)));
    }
    let heading = contest.heading.clone();
    bench.run(bench.rounds.unwrap_or(1), [contest]);
    heading
}
