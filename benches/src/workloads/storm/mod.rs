//! A million entries due within two seconds.
//!
//! Twice: *quiet*, where nobody calls the cache, shows how late removals are and what they cost in CPU time; *busy*, where one caller
//! reads and replaces other entries at a steady pace meanwhile, shows what the caller feels. The rows "no cache" are the same caller
//! calling nothing, or spending the time of an insert while another thread is at work: what the machine itself does to it. That thread
//! tells for how long it was off its processor: so long a wait for a lock may be, whatever cache it is in.
//!
//! The clock starts when all entries are in and the cache has settled. Lateness is the time of the notification less the deadline.
//! CPU per entry is the CPU time of the process, less the caller's, over the entries notified; in the busy case the cache's own work
//! for the caller's replacements is in it too.

mod caller;
mod listener;
mod nothing;
mod round;

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use self::{
    nothing::{Busy, Nothing},
    round::{Storm, round},
};
use crate::{
    contest::{Contestant, Heading, Metric, Shown, contest},
    peer::{Card, Peer, Plan, Problem, Role},
    peers::{Moka, QuickCacheDeadline, Stretto, Wheelhouse},
    report::{Curve, Report},
    setup::Setup,
    tail,
};

/// Nobody calls.
pub const QUIET: &str = "quiet";
/// One caller.
pub const BUSY: &str = "busy";
/// Share of the entries whose expiry was notified.
pub const NOTIFIED: Metric = Metric {
    name: "notified %",
    shown: Shown::Median(0),
};
/// Lateness against the deadline.
pub const LATE_P50: Metric = Metric {
    name: "late p50 ms",
    shown: Shown::Median(0),
};
/// As [`LATE_P50`].
pub const LATE_P99: Metric = Metric {
    name: "late p99 ms",
    shown: Shown::Median(0),
};
/// As [`LATE_P50`].
pub const LATE_MAX: Metric = Metric {
    name: "late max ms",
    shown: Shown::Worst(0),
};
/// CPU time for each entry notified.
pub const CPU: Metric = Metric {
    name: "CPU ns/entry",
    shown: Shown::Median(0),
};
/// Longest call of `run_pending_tasks`, where somebody makes them.
pub const PASS: Metric = Metric {
    name: "longest pass ms",
    shown: Shown::Worst(0),
};
/// Longest single call, `get` or `insert`.
pub const PAUSE: Metric = Metric {
    name: "longest call us",
    shown: Shown::Worst(0),
};
/// p99.99 of single calls, the worse of `get` and `insert`.
pub const P9999: Metric = Metric {
    name: "p99.99 us",
    shown: Shown::Median(0),
};

/// For how long a thread beside the caller was off its processor at most, where that is watched.
pub const OFF: Metric = Metric {
    name: "other thread off us",
    shown: Shown::Worst(0),
};

type Built<P> = fn(&Plan<u64, u64>) -> Result<P, Problem>;
/// Latencies by peer and operation, over all rounds.
type Curves = RefCell<BTreeMap<(&'static str, &'static str), Histogram<u64>>>;

const MOKA_DRIVEN: &str = "moka, driven every 10 ms";
const FINE: &str = "wheelhouse, 16.8 ms buckets";

/// Runs both storms.
pub fn run(setup: &Setup, report: &mut Report) {
    // Each takes seconds whatever the machine; three rounds give a median.
    let rounds = if setup.quick { 1 } else { setup.rounds.min(3) };
    let storm = Storm {
        entries: setup.size(1_000_000, 300_000) as u64,
        window: setup.size(2_000_000_000, 1_000_000_000) as u64,
        lead: setup.size(1_500_000_000, 500_000_000) as u64,
        driven: false,
        called: false,
    };
    let curves = Curves::default();
    let heading = |variant: &str, what: &str| Heading {
        workload: "storm",
        variant: variant.into(),
        about: format!(
            "{} entries due within {} s; {what}",
            storm.entries,
            storm.window / 1_000_000_000
        ),
    };
    let quiet = heading(QUIET, "nobody calls meanwhile");
    contest(
        setup,
        report,
        &quiet,
        rounds,
        quiet_entrants(setup.quick, storm, &curves),
    );
    let busy = heading(
        BUSY,
        "one caller alternates get and insert, one call every 5 us, on 10,922 other entries",
    );
    let called = Storm {
        called: true,
        ..storm
    };
    contest(
        setup,
        report,
        &busy,
        rounds,
        busy_entrants(setup.quick, called, &curves),
    );
    add_curves(report, curves);
}

fn quiet_entrants(quick: bool, storm: Storm, curves: &Curves) -> Vec<Contestant<'_>> {
    let driven = Storm {
        driven: true,
        ..storm
    };
    let mut entrants = vec![
        subject("wheelhouse", storm, Wheelhouse::build, curves),
        peer("moka, nobody calls", storm, Moka::build, curves),
    ];
    if !quick {
        entrants.push(subject(FINE, storm, fine, curves));
        entrants.push(peer(MOKA_DRIVEN, driven, Moka::build, curves));
    }
    entrants
}

fn busy_entrants(quick: bool, storm: Storm, curves: &Curves) -> Vec<Contestant<'_>> {
    let driven = Storm {
        driven: true,
        ..storm
    };
    let mut entrants = vec![
        subject("wheelhouse", storm, Wheelhouse::build, curves),
        peer(MOKA_DRIVEN, driven, Moka::build, curves),
        entrant(Nothing::CARD, storm, Nothing::build, curves),
        entrant(Busy::CARD, storm, Busy::build, curves),
    ];
    if !quick {
        entrants.push(subject(FINE, storm, fine, curves));
        entrants.push(peer("moka", storm, Moka::build, curves));
        entrants.push(peer(
            "quick_cache+deadline",
            storm,
            QuickCacheDeadline::<u64, u64, quanta::Instant>::build,
            curves,
        ));
        entrants.push(peer(
            "quick_cache+Instant",
            storm,
            QuickCacheDeadline::<u64, u64, std::time::Instant>::build,
            curves,
        ));
        entrants.push(peer("stretto", storm, Stretto::build, curves));
    }
    entrants
}

fn subject<'a>(
    name: &'static str,
    storm: Storm,
    build: Built<Wheelhouse<u64, u64>>,
    curves: &'a Curves,
) -> Contestant<'a> {
    entrant(
        Card {
            name,
            role: Role::Subject,
        },
        storm,
        build,
        curves,
    )
}

fn peer<'a, P: Peer<u64, u64>>(
    name: &'static str,
    storm: Storm,
    build: Built<P>,
    curves: &'a Curves,
) -> Contestant<'a> {
    entrant(
        Card {
            name,
            role: Role::Cache,
        },
        storm,
        build,
        curves,
    )
}

fn entrant<'a, P: Peer<u64, u64>>(
    card: Card,
    storm: Storm,
    build: Built<P>,
    curves: &'a Curves,
) -> Contestant<'a> {
    let run = move |_| {
        let mut storm = storm;
        for _ in 0..5 {
            match round(storm, card.role, build)? {
                Some((readings, calls)) => {
                    if let Some(calls) = calls {
                        calls.add_to(card.name, &mut curves.borrow_mut());
                    }
                    return Ok(readings);
                }
                None => storm.lead *= 2,
            }
        }
        Err(Problem::Wrong(
            "the entries could not be inserted before they were due".into(),
        ))
    };
    Contestant {
        card,
        run: Box::new(run),
    }
}

/// wheelhouse with buckets of 2^24 ns: the lateness is the user's choice.
fn fine(plan: &Plan<u64, u64>) -> Result<Wheelhouse<u64, u64>, Problem> {
    Ok(Wheelhouse::with(plan, |builder| {
        builder.expiry_resolution(Duration::from_nanos(1 << 24))
    }))
}

fn add_curves(report: &mut Report, curves: Curves) {
    for ((peer, operation), histogram) in curves.into_inner() {
        let micros = |(percentile, nanos)| (percentile, nanos / 1e3);
        report.curves.push(Curve {
            workload: "storm".into(),
            variant: format!("{operation} during a mass expiry, us"),
            peer: peer.into(),
            points: tail::points(&histogram).into_iter().map(micros).collect(),
        });
    }
}
