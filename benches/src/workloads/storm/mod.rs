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
mod round;

use std::{cell::RefCell, collections::BTreeMap};

use self::{
    caller::Nothing,
    round::{Storm, round},
};
use crate::report::Curve;
use crate::workloads::prelude::*;

/// Latencies by operation and peer, over all rounds.
type Curves = RefCell<BTreeMap<(&'static str, &'static str), Histogram<u64>>>;

const DRIVEN: Card = Card::cache("moka, driven every 10 ms");
const NOT_DRIVEN: Card = Card::cache("moka, not driven");
type ByInstant = QuickCacheDeadline<u64, u64, std::time::Instant>;
type ByQuanta = QuickCacheDeadline<u64, u64, quanta::Instant>;
type Queue = QuickCacheQueue<u64, u64>;
/// The lateness is the user's choice.
type Fine = Wheelhouse<u64, u64, FINE>;

/// A storm, and a contest of the peers that it is to pass over.
struct Peers<'a>(Storm, Contest<'a>, &'a Curves);

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
    let peers = |variant: &str, called, meanwhile: &str| {
        let contest = bench.contest(variant, format!("{about}; {meanwhile}"));
        Peers(Storm { called, ..storm }, contest, &curves)
    };
    let mut quiet = peers("quiet", false, "no call meanwhile")
        .peer::<Wheelhouse>()
        .with::<Moka>(NOT_DRIVEN);
    let caller = "one caller alternates get and insert, one call every 5 us, on 10,922 others";
    let mut busy = peers("busy", true, caller)
        .peer::<Wheelhouse>()
        .with::<Moka>(DRIVEN)
        .peer::<Nothing<0>>()
        .with::<Nothing<400>>(Card::floor("no cache, 400 ns a call"));
    if !bench.quick {
        quiet = quiet.peer::<Fine>().with::<Moka>(DRIVEN).peer::<Queue>();
        busy = busy
            .peer::<Fine>()
            .peer::<Moka>()
            .peer::<Queue>()
            .peer::<ByQuanta>()
            .peer::<ByInstant>();
    }
    bench.run(rounds, [quiet.1]);
    bench.run(rounds, [busy.1]);
    for ((operation, peer), histogram) in curves.take() {
        let points = tail::points(&histogram).into_iter();
        let points = points.map(|(percentile, nanos)| (percentile, nanos / 1e3));
        bench.report.borrow_mut().curves.push(Curve {
            title: format!("{operation} during a mass expiry, us"),
            peer: peer.into(),
            points: points.collect(),
        });
    }
}

impl Peers<'_> {
    fn peer<P: Peer>(self) -> Self {
        self.with::<P>(P::CARD)
    }

    /// With one more peer, by another name.
    fn with<P: Peer>(mut self, card: Card) -> Self {
        let Self(mut storm, _, curves) = self;
        storm.driven = card == DRIVEN;
        self.1.add(card, move || -> Outcome {
            for lead in (0..5).map(|doublings| storm.lead << doublings) {
                let storm = Storm { lead, ..storm };
                let Some((readings, calls)) = round::<P>(storm, card.role)? else {
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
        });
        self
    }
}
