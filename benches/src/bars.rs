//! The bars: which figure, or which ratio of two figures, must not exceed what. `bars` on the command
//! line runs only the workloads that they need, with only the peers that they name.

use crate::{
    figure::{Metric, NS_PER_OP, Verdict},
    peer::Expiring::{Access, Create, Never, Write},
    report::{Report, Row, table::number},
    setup::Setup,
    workloads::{
        self, many_caches,
        memory::{LIVE, UNBOUNDED, USABLE},
        sleepers, small, storm, timers,
    },
};

/// wheelhouse with an ordinary policy, as a user writes it.
const US: &str = "wheelhouse";
/// With the ready policy `expiry::creating`.
const READY: &str = "wheelhouse, creating";
const AS_TOLD: &str = "wheelhouse, reads as told";
const WRITES_ONLY: &str = "wheelhouse, writes_only";
const IDLE: &str = "wheelhouse, idle limit";
const MOKA: &str = "moka";
const QUICK: &str = "quick_cache";
/// A deadline by hand, which is neither removed on time nor told.
const BY_HAND: &str = "quick_cache+deadline";
const BY_STD: &str = "quick_cache+Instant";
/// Equal promises by hand.
const EQUAL: &str = "quick_cache+DelayQueue";
const DELAY_QUEUE: &str = "tokio DelayQueue";
/// What the machine does to a caller whose calls take as long and do nothing.
const MACHINE: &str = "no cache, 400 ns a call";

/// Peers that the bars name.
pub const PEERS: &[&str] = &[
    US,
    READY,
    AS_TOLD,
    WRITES_ONLY,
    IDLE,
    MOKA,
    QUICK,
    BY_HAND,
    BY_STD,
    EQUAL,
    DELAY_QUEUE,
    MACHINE,
];

/// One figure of a report.
#[derive(Clone, Debug)]
struct Figure {
    workload: &'static str,
    variant: String,
    threads: usize,
    metric: Metric,
    peer: &'static str,
}

impl Figure {
    fn row<'a>(&self, report: &'a Report) -> Option<&'a Row> {
        let Self {
            workload,
            variant,
            threads,
            metric,
            peer,
        } = self;
        report.row(workload, variant, *threads, metric.name, peer)
    }
}

/// What a bar is about.
#[derive(Clone, Debug)]
enum Of {
    /// The median of a figure, in this unit.
    Median(Figure, &'static str),
    /// The highest round of a figure.
    Highest(Figure, &'static str),
    /// One median over another.
    Ratio(Figure, Figure),
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    what: String,
    of: Of,
    /// `None`: to be shown, nothing is demanded.
    limit: Option<f64>,
}

/// Runs the workloads that the bars need and that have not been run.
pub fn run_needed(bars: &[Bar], setup: &Setup, report: &mut Report) {
    for workload in workloads::ALL {
        let is_needed = bars
            .iter()
            .flat_map(Bar::figures)
            .any(|f| f.workload == workload.name);
        if is_needed && !report.has(workload.name) {
            (workload.run)(setup, report);
        }
    }
}

/// Compares the bars with a report.
pub fn judge(bars: &[Bar], report: &Report) -> Vec<Verdict> {
    bars.iter().map(|bar| bar.judge(report)).collect()
}

impl Bar {
    fn figures(&self) -> Vec<&Figure> {
        match &self.of {
            Of::Median(figure, _) | Of::Highest(figure, _) => vec![figure],
            Of::Ratio(over, under) => vec![over, under],
        }
    }

    fn judge(&self, report: &Report) -> Verdict {
        let median = |figure: &Figure| figure.row(report).map(Row::median);
        let (value, detail) = match &self.of {
            Of::Median(figure, unit) => (median(figure), (*unit).to_owned()),
            Of::Highest(figure, unit) => {
                let highest = figure.row(report).map(Row::high);
                (highest, format!("{unit}, highest round"))
            }
            Of::Ratio(over, under) => match median(over).zip(median(under)) {
                Some((over, under)) => (
                    Some(over / under),
                    format!("{} / {}", number(over), number(under)),
                ),
                None => (None, String::new()),
            },
        };
        Verdict {
            what: self.what.clone(),
            value,
            limit: self.limit,
            detail,
        }
    }
}

fn figure(
    workload: &'static str,
    variant: &str,
    threads: usize,
    metric: Metric,
    peer: &'static str,
) -> Figure {
    Figure {
        workload,
        variant: variant.into(),
        threads,
        metric,
        peer,
    }
}

/// Time of an operation.
fn time(workload: &'static str, variant: &str, threads: usize, peer: &'static str) -> Figure {
    figure(workload, variant, threads, NS_PER_OP, peer)
}

fn ratio(
    what: impl Into<String>,
    over: Figure,
    under: Figure,
    limit: impl Into<Option<f64>>,
) -> Bar {
    Bar {
        what: what.into(),
        of: Of::Ratio(over, under),
        limit: limit.into(),
    }
}

fn median(
    what: impl Into<String>,
    figure: Figure,
    unit: &'static str,
    limit: impl Into<Option<f64>>,
) -> Bar {
    Bar {
        what: what.into(),
        of: Of::Median(figure, unit),
        limit: limit.into(),
    }
}

fn highest(what: &str, figure: Figure, unit: &'static str, limit: impl Into<Option<f64>>) -> Bar {
    Bar {
        what: what.into(),
        of: Of::Highest(figure, unit),
        limit: limit.into(),
    }
}

/// All bars.
pub fn all() -> Vec<Bar> {
    [
        policies(),
        reads(),
        writes(),
        equal_promises(),
        bounds(),
        storms(),
        wheel(),
        memory(),
    ]
    .concat()
}

/// What an ordinary policy costs, over a ready one.
fn policies() -> Vec<Bar> {
    let (create, access) = (Create.label(), Access.label());
    let hit = |peer| time("hit-zipf", create, 1, peer);
    let extends = |peer| time("hit-zipf", access, 1, peer);
    vec![
        ratio(
            "hit, a policy with create only / ready policy",
            hit(US),
            hit(READY),
            1.6,
        ),
        ratio(
            "hit, a policy that returns what it is told / ready",
            hit(AS_TOLD),
            hit(READY),
            1.6,
        ),
        ratio(
            "hit, any policy under `writes_only` / ready",
            hit(WRITES_ONLY),
            hit(READY),
            1.05,
        ),
        ratio(
            "hit, a policy that extends on every read / ready",
            extends(US),
            hit(READY),
            2.0,
        ),
        ratio(
            "- the same by an idle limit",
            extends(IDLE),
            hit(READY),
            None,
        ),
    ]
}

fn reads() -> Vec<Bar> {
    let (never, create) = (Never.label(), Create.label());
    let hit = |threads| time("hit-zipf", create, threads, READY);
    let quick = |threads| time("hit-zipf", never, threads, QUICK);
    let one = |threads| time("hit-one", create, threads, US);
    let uniform = |peer| time("hit-uniform", create, 1, peer);
    let sleep = |(_, metric)| figure(sleepers::NAME, create, 1, metric, US);
    let gets = |(_, metric)| figure(many_caches::NAME, many_caches::VARIANT, 1, metric, US);
    let moka = time("hit-zipf", create, 1, MOKA);
    let without = time("hit-uniform", never, 1, QUICK);
    vec![
        ratio(
            "hit with expiry, ready policy / quick_cache without",
            hit(1),
            quick(1),
            1.0,
        ),
        ratio("- 2 threads", hit(2), quick(2), 0.5),
        ratio("- 2 threads / own 1 thread", hit(2), hit(1), 1.15),
        ratio(
            "hit with expiry / moka",
            time("hit-zipf", create, 1, US),
            moka,
            0.12,
        ),
        ratio("one hot key, 2 threads / own 1 thread", one(2), one(1), 1.2),
        ratio(
            "hit, uniform, ready policy / quick_cache without",
            uniform(READY),
            without,
            1.4,
        ),
        ratio(
            "- / quick_cache with a deadline by hand",
            uniform(US),
            uniform(BY_HAND),
            None,
        ),
        ratio(
            "- / the same with `Instant`",
            uniform(US),
            uniform(BY_STD),
            None,
        ),
        ratio(
            "hit beside 512 sleeping threads / none",
            sleep(sleepers::HITS[2]),
            sleep(sleepers::HITS[0]),
            None,
        ),
        ratio(
            "get in turns over 4,000 caches / over 10",
            gets(many_caches::GETS[3]),
            gets(many_caches::GETS[0]),
            3.0,
        ),
    ]
}

/// Writes beside a deadline by hand, by either clock.
fn writes() -> Vec<Bar> {
    let write = Write.label();
    let mut bars = Vec::new();
    for (workload, what, limit) in [
        (
            "replace",
            "replace / quick_cache with a deadline by hand",
            1.3,
        ),
        ("mix", "75/25 mix / the same", 0.7),
        ("evict", "get, then insert on a miss / the same", 1.0),
        ("grow", "insert of new keys / the same", 1.0),
        ("cancel", "insert and invalidate / the same", 1.3),
    ] {
        let figure = |peer| time(workload, write, 1, peer);
        bars.push(ratio(what, figure(US), figure(BY_HAND), limit));
        bars.push(ratio("- with `Instant`", figure(US), figure(BY_STD), limit));
    }
    let cancel = |peer| time("cancel", write, 1, peer);
    bars.push(ratio(
        "insert and invalidate / moka",
        cancel(US),
        cancel(MOKA),
        0.08,
    ));
    bars
}

/// Every row of the first table, beside a peer with equal promises.
fn equal_promises() -> Vec<Bar> {
    let (create, write) = (Create.label(), Write.label());
    let rows = [
        ("hit-zipf", create, 1, "hit"),
        ("hit-zipf", create, 2, "hit, 2 threads"),
        ("hit-uniform", create, 1, "hit, uniform"),
        ("mix", write, 1, "75/25 mix"),
        ("evict", write, 1, "get, then insert on a miss"),
        ("grow", write, 1, "insert of new keys"),
        ("replace", write, 1, "replace"),
        ("cancel", write, 1, "insert and invalidate"),
    ];
    let bar = |(workload, variant, threads, what)| {
        let of = |peer| time(workload, variant, threads, peer);
        ratio(
            format!("{what} / equal promises by hand"),
            of(US),
            of(EQUAL),
            0.8,
        )
    };
    let mut bars = Vec::from(rows.map(bar));
    let bytes = |peer| figure("memory", write, 1, USABLE, peer);
    bars.push(ratio(
        "bytes an entry / equal promises by hand",
        bytes(US),
        bytes(EQUAL),
        0.8,
    ));
    bars
}

/// Small caches stay near their bound.
fn bounds() -> Vec<Bar> {
    let of_load = |load: small::Load| {
        let capacity = load.capacity as f64;
        let of = |metric| figure(small::NAME, &load.label(), 1, metric, US);
        let what = |what: &str| format!("{}: {what}", load.label());
        [
            median(
                what("over, median"),
                of(small::OVER_MEDIAN),
                "entries",
                0.02 * capacity + 64.0,
            ),
            highest(
                &what("over, max"),
                of(small::OVER_MAX),
                "entries",
                0.25 * capacity + 256.0,
            ),
            median(
                what("alive, median"),
                of(small::ALIVE_MEDIAN),
                "values",
                1.25 * capacity + 1024.0,
            ),
            highest(&what("alive, max"), of(small::ALIVE_MAX), "values", None),
        ]
    };
    small::LOADS.into_iter().flat_map(of_load).collect()
}

fn storms() -> Vec<Bar> {
    let quiet = |metric| figure(storm::NAME, storm::QUIET, 1, metric, US);
    let busy = |metric, peer| figure(storm::NAME, storm::BUSY, 1, metric, peer);
    let cache: wheelhouse::Cache<u64, u64> = wheelhouse::Cache::builder()
        .scheduler(wheelhouse::Scheduler::disabled())
        .build();
    let resolution = cache.policy().expiry_resolution().as_secs_f64() * 1e3;
    let machine = "- the machine's own (calls that do nothing)";
    vec![
        median(
            "storm: notified (anything but 100 fails the run)",
            quiet(storm::NOTIFIED),
            "%",
            None,
        ),
        highest(
            "storm: lateness p99, resolution + 50 ms",
            quiet(storm::LATE_P99),
            "ms",
            resolution + 50.0,
        ),
        median(
            "storm: CPU per expired entry, listener included",
            quiet(storm::CPU),
            "ns",
            200.0,
        ),
        median(
            "storm: p99.99 of a caller",
            busy(storm::P9999, US),
            "us",
            10.0,
        ),
        median(machine, busy(storm::P9999, MACHINE), "us", None),
        highest(
            "storm: longest pause of a caller",
            busy(storm::PAUSE, US),
            "us",
            1000.0,
        ),
        highest(machine, busy(storm::PAUSE, MACHINE), "us", None),
    ]
}

fn wheel() -> Vec<Bar> {
    let pair = |timers, peer| figure("timers", &timers::variant(timers), 1, timers::PAIR, peer);
    let beside = |timers| (pair(timers, US), pair(timers, DELAY_QUEUE));
    let (small, large) = (beside(100_000), beside(1_000_000));
    let flat = pair(6_000_000, US);
    vec![
        ratio(
            "wheel alone: start + cancel / DelayQueue, 100k",
            small.0.clone(),
            small.1,
            0.5,
        ),
        ratio(
            "wheel alone: start + cancel / DelayQueue, 1M",
            large.0,
            large.1,
            0.5,
        ),
        ratio(
            "wheel alone: start + cancel, 6M / own 100k",
            flat,
            small.0,
            None,
        ),
    ]
}

fn memory() -> Vec<Bar> {
    let of = |variant, metric| figure("memory", variant, 1, metric, US);
    vec![
        median(
            "bytes an entry, expiry on",
            of(UNBOUNDED, USABLE),
            "B",
            96.0,
        ),
        median(
            "bytes an entry, expiry and a bound on",
            of(Write.label(), USABLE),
            "B",
            112.0,
        ),
        median("allocations per entry", of(Write.label(), LIVE), "", 1.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        figure::{Heading, Reading},
        peer::{Card, Role},
    };

    #[test]
    fn every_bar_names_a_workload_and_a_peer_that_exist() {
        for figure in all().iter().flat_map(Bar::figures) {
            let mut workloads = workloads::ALL.iter();
            assert!(
                workloads.any(|known| known.name == figure.workload),
                "{figure:?}"
            );
            assert!(PEERS.contains(&figure.peer), "{}", figure.peer);
        }
    }

    #[test]
    fn a_ratio_is_compared_with_its_bar() {
        let mut report = Report::default();
        let mut add = |name, value| {
            let heading = Heading::new("hit-zipf", Create.label(), "");
            let role = Role::Subject;
            let reading = Reading::new(1, NS_PER_OP, value);
            report.add(&heading, Card { name, role }, &[reading]);
        };
        add(US, 15.0);
        add(READY, 10.0);
        add(AS_TOLD, 17.0);
        let verdicts = judge(&all()[..3], &report);
        let met: Vec<_> = verdicts.iter().map(Verdict::met).collect();
        assert_eq!(met, [Some(true), Some(false), None]);
    }
}
