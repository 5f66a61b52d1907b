//! A million entries due within two seconds.
//!
//! Twice: *quiet*, where no call is made meanwhile, shows how late removals are and what they cost
//! in CPU time; *busy*, where one caller reads and replaces other entries at a steady pace
//! meanwhile, shows what the caller feels. The rows "no cache" are the same caller calling nothing,
//! or spending the time of an insert: what the machine itself does to it.
//!
//! The clock starts when all entries are in and the cache has settled. Lateness is the time of the
//! notification less the deadline. CPU per entry is the CPU time of the process, less the caller's,
//! over the entries notified; in the busy case it includes the cache's own work for the caller's
//! replacements.

mod caller;
mod nothing;
mod round;

use std::{cell::RefCell, collections::BTreeMap};

use self::{
    nothing::{Busy, Nothing},
    round::{Storm, round},
};
use crate::workloads::prelude::*;
use crate::{
    peers::{Moka, QuickCacheDeadline, QuickCacheQueue, Stretto, Wheelhouse},
    report::Curve,
};

/// Share of the entries whose expiry was notified.
const NOTIFIED: Metric = Metric::median("notified %");
/// Lateness against the deadline, and its quantiles.
const LATE: [(Metric, f64); 3] = [
    (Metric::median("late p50 ms"), 0.5),
    (Metric::median("late p99 ms"), 0.99),
    (Metric::worst("late max ms"), 1.0),
];
/// CPU time for each entry notified.
const CPU: Metric = Metric::median("CPU ns/entry");
/// Longest call of `run_pending_tasks`, where a thread makes them.
const PASS: Metric = Metric::worst("longest pass ms");

type Built<P> = fn(&Plan) -> Result<P, Problem>;
/// Latencies by peer and operation, over all rounds.
type Curves = RefCell<BTreeMap<(&'static str, &'static str), Histogram<u64>>>;

const FINE: Card = Card::subject("wheelhouse, 16.8 ms buckets");
const DRIVEN: Card = Card::cache("moka, driven every 10 ms");
const NOT_DRIVEN: Card = Card::cache("moka, not driven");
type ByInstant = QuickCacheDeadline<u64, u64, std::time::Instant>;
type ByQuanta = QuickCacheDeadline<u64, u64, quanta::Instant>;
type Queue = QuickCacheQueue<u64, u64>;

/// Runs both storms.
pub(super) fn run(bench: Bench<'_>) {
    // Each takes seconds, whatever the machine.
    let rounds = bench.rounds().min(bench.size(2, 1));
    let storm = Storm {
        entries: bench.size(1_000_000, 300_000) as u64,
        window: bench.size(2_000_000_000, 1_000_000_000) as u64,
        lead: bench.size(1_500_000_000, 500_000_000) as u64,
        driven: false,
        called: false,
    };
    let window = storm.window / 1_000_000_000;
    let about = format!("{} entries due within {window} s", storm.entries);
    let curves = Curves::default();
    // Each peer with its own type and card; those after the semicolon not in a quick run.
    macro_rules! storm {
        ($variant:literal, $called:literal, $meanwhile:expr,
         $($card:expr, $build:expr),+; $($card2:expr, $build2:expr),+) => {{
            let storm = Storm { called: $called, ..storm };
            let mut contest = bench.contest($variant, format!("{about}; {}", $meanwhile));
            $(enter(&mut contest, $card, storm, $build, &curves);)+
            if !bench.quick {
                $(enter(&mut contest, $card2, storm, $build2, &curves);)+
            }
            bench.run(rounds, [contest]);
        }};
    }
    storm!(
        "quiet", false, "no call meanwhile",
        Wheelhouse::<u64, u64>::CARD, <Wheelhouse as Peer>::build,
        NOT_DRIVEN, <Moka as Peer>::build;
        FINE, fine, DRIVEN, <Moka as Peer>::build, Queue::CARD, Queue::build
    );
    storm!(
        "busy", true, "one caller alternates get and insert, one call every 5 us, on 10,922 others",
        Wheelhouse::<u64, u64>::CARD, <Wheelhouse as Peer>::build,
        DRIVEN, <Moka as Peer>::build,
        Nothing::CARD, Nothing::build, Busy::CARD, Busy::build;
        FINE, fine, <Moka as Peer>::CARD, <Moka as Peer>::build, Queue::CARD, Queue::build,
        ByQuanta::CARD, ByQuanta::build, ByInstant::CARD, ByInstant::build,
        Stretto::<u64, u64>::CARD, <Stretto<u64, u64> as Peer>::build
    );
    for ((operation, peer), histogram) in curves.into_inner() {
        let points = tail::points(&histogram).into_iter();
        let points = points.map(|(percentile, nanos)| (percentile, nanos / 1e3));
        bench.report.borrow_mut().curves.push(Curve {
            title: format!("{operation} during a mass expiry, us"),
            peer: peer.into(),
            points: points.collect(),
        });
    }
}

fn enter<'a, P: Peer>(
    contest: &mut Contest<'a>,
    card: Card,
    storm: Storm,
    build: Built<P>,
    curves: &'a Curves,
) {
    let driven = card.name == DRIVEN.name;
    let run = move || -> Outcome {
        let mut storm = Storm { driven, ..storm };
        for _ in 0..5 {
            let Some((readings, calls)) = round(storm, card.role, build)? else {
                storm.lead *= 2;
                continue;
            };
            let seen = calls.map(|calls| [("get", calls.get), ("insert", calls.insert)]);
            for (operation, seen) in seen.into_iter().flatten() {
                let mut curves = curves.borrow_mut();
                let curve = curves.entry((operation, card.name));
                *curve.or_insert_with(tail::histogram) += seen;
            }
            return Ok(readings);
        }
        let why = "too slow to take the entries before they were due";
        Err(Problem::Wrong(why.into()))
    };
    contest.add(card, run);
}

/// wheelhouse with buckets of 2^24 ns: the lateness is the user's choice.
fn fine(plan: &Plan) -> Result<Wheelhouse, Problem> {
    Wheelhouse::with(plan, |builder| {
        builder.expiry_resolution(Duration::from_nanos(1 << 24))
    })
}
