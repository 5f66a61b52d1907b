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

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use self::{
    nothing::{Busy, Nothing},
    round::{Storm, round},
};
use crate::{
    contest::{Contest, Contestant, contests},
    figure::{Heading, Metric},
    peer::{Card, Peer, Plan, Problem, Role},
    peers::{Moka, QuickCacheDeadline, QuickCacheQueue, Stretto, Wheelhouse},
    report::{Curve, Report},
    setup::Setup,
    tail,
};

/// Name of the workload.
pub const NAME: &str = "storm";
/// Without a caller.
pub const QUIET: &str = "quiet";
/// With one caller.
pub const BUSY: &str = "busy";
/// Share of the entries whose expiry was notified.
pub const NOTIFIED: Metric = Metric::median("notified %");
/// Lateness against the deadline.
pub const LATE_P50: Metric = Metric::median("late p50 ms");
/// As [`LATE_P50`].
pub const LATE_P99: Metric = Metric::median("late p99 ms");
/// As [`LATE_P50`].
pub const LATE_MAX: Metric = Metric::worst("late max ms");
/// CPU time for each entry notified.
pub const CPU: Metric = Metric::median("CPU ns/entry");
/// Longest call of `run_pending_tasks`, where a thread makes them.
pub const PASS: Metric = Metric::worst("longest pass ms");
/// Longest single call, `get` or `insert`.
pub const PAUSE: Metric = Metric::worst("longest call us");
/// p99.99 of single calls, the worse of `get` and `insert`.
pub const P9999: Metric = Metric::median("p99.99 us");

type Built<P> = fn(&Plan<u64, u64>) -> Result<P, Problem>;
/// Latencies by peer and operation, over all rounds.
type Curves = RefCell<BTreeMap<(&'static str, &'static str), Histogram<u64>>>;

const MOKA_DRIVEN: &str = "moka, driven every 10 ms";
const FINE: &str = "wheelhouse, 16.8 ms buckets";
type ByInstant = QuickCacheDeadline<u64, u64, std::time::Instant>;
type ByQuanta = QuickCacheDeadline<u64, u64, quanta::Instant>;
type Ordinary = Wheelhouse<u64, u64>;
type Queue = QuickCacheQueue<u64, u64>;

/// Runs both storms.
pub fn run(setup: &Setup, report: &mut Report) {
    // Each takes seconds, whatever the machine.
    let rounds = setup.rounds.min(if setup.quick { 1 } else { 2 });
    let storm = Storm {
        entries: setup.size(1_000_000, 300_000) as u64,
        window: setup.size(2_000_000_000, 1_000_000_000) as u64,
        lead: setup.size(1_500_000_000, 500_000_000) as u64,
        driven: false,
        called: false,
    };
    let driven = Storm {
        driven: true,
        ..storm
    };
    let curves = Curves::default();
    let (subject, cache) = (Role::Subject, Role::Cache);
    let mut quiet = vec![
        entrant("wheelhouse", subject, storm, Ordinary::build, &curves),
        entrant("moka, not driven", cache, storm, Moka::build, &curves),
    ];
    if !setup.quick {
        quiet.extend([
            entrant(FINE, subject, storm, fine, &curves),
            entrant(MOKA_DRIVEN, cache, driven, Moka::build, &curves),
            entrant(Queue::CARD.name, cache, storm, Queue::build, &curves),
        ]);
    }
    let about = format!(
        "{} entries due within {} s",
        storm.entries,
        storm.window / 1_000_000_000
    );
    let quiet = Contest {
        heading: Heading::new(NAME, QUIET, format!("{about}; no call meanwhile")),
        contestants: quiet,
    };

    let (storm, driven) = (called(storm), called(driven));
    let floor = Role::Floor;
    let mut busy = vec![
        entrant("wheelhouse", subject, storm, Ordinary::build, &curves),
        entrant(MOKA_DRIVEN, cache, driven, Moka::build, &curves),
        entrant(Nothing::CARD.name, floor, storm, Nothing::build, &curves),
        entrant(Busy::CARD.name, floor, storm, Busy::build, &curves),
    ];
    if !setup.quick {
        busy.extend([
            entrant(FINE, subject, storm, fine, &curves),
            entrant("moka", cache, storm, Moka::build, &curves),
            entrant(Queue::CARD.name, cache, storm, Queue::build, &curves),
            entrant(ByQuanta::CARD.name, cache, storm, ByQuanta::build, &curves),
            entrant(
                ByInstant::CARD.name,
                cache,
                storm,
                ByInstant::build,
                &curves,
            ),
            entrant("stretto", cache, storm, Stretto::build, &curves),
        ]);
    }
    let caller = "one caller alternates get and insert, one call every 5 us, on 10,922 others";
    let busy = Contest {
        heading: Heading::new(NAME, BUSY, format!("{about}; {caller}")),
        contestants: busy,
    };
    contests(setup, report, rounds, vec![quiet]);
    contests(setup, report, rounds, vec![busy]);
    for ((operation, peer), histogram) in curves.into_inner() {
        let points = tail::points(&histogram).into_iter();
        report.curves.push(Curve {
            title: format!("{operation} during a mass expiry, us"),
            peer: peer.into(),
            points: points
                .map(|(percentile, nanos)| (percentile, nanos / 1e3))
                .collect(),
        });
    }
}

fn called(storm: Storm) -> Storm {
    Storm {
        called: true,
        ..storm
    }
}

fn entrant<'a, P: Peer<u64, u64>>(
    name: &'static str,
    role: Role,
    storm: Storm,
    build: Built<P>,
    curves: &'a Curves,
) -> Contestant<'a> {
    Contestant::new(Card { name, role }, move || {
        let mut storm = storm;
        for _ in 0..5 {
            if let Some((readings, calls)) = round(storm, role, build)? {
                let calls = calls.iter();
                for (operation, seen) in
                    calls.flat_map(|c| [("get", &c.get), ("insert", &c.insert)])
                {
                    let mut curves = curves.borrow_mut();
                    let curve = curves.entry((operation, name));
                    *curve.or_insert_with(tail::histogram) += seen;
                }
                return Ok(readings);
            }
            storm.lead *= 2;
        }
        Err(Problem::Wrong(
            "too slow to take the entries before they were due".into(),
        ))
    })
}

/// wheelhouse with buckets of 2^24 ns: the lateness is the user's choice.
fn fine(plan: &Plan<u64, u64>) -> Result<Wheelhouse<u64, u64>, Problem> {
    Wheelhouse::with(plan, |builder| {
        builder.expiry_resolution(Duration::from_nanos(1 << 24))
    })
}
