//! The two lists.

use super::{Check, Figure, Of};
use crate::{
    contest::{Metric, NS_PER_OP},
    peer::Expiring::{Access, Create, Never, Write},
    workloads::{
        memory::{LIVE, UNBOUNDED, USABLE},
        storm, timers,
    },
};

const US: &str = "wheelhouse";
/// The same with an idle limit in place of a policy.
const IDLE: &str = "wheelhouse, idle limit";
const MOKA: &str = "moka";
const QUICK: &str = "quick_cache";
const BY_HAND: &str = "quick_cache+deadline";
/// The same by the standard library's clock.
const BY_STD: &str = "quick_cache+Instant";
/// What the machine does to a caller whose calls take as long and do nothing.
const MACHINE: &str = "no cache, 400 ns a call";

/// Peers that the bars name, and the row that shows the machine's own pauses.
pub const PEERS: &[&str] = &[
    US,
    IDLE,
    MOKA,
    QUICK,
    BY_HAND,
    BY_STD,
    "tokio DelayQueue",
    MACHINE,
];

const fn speed(
    workload: &'static str,
    variant: &'static str,
    threads: usize,
    peer: &'static str,
) -> Figure {
    Figure {
        workload,
        variant,
        threads,
        metric: NS_PER_OP,
        peer,
    }
}

const fn of_storm(variant: &'static str, metric: Metric, peer: &'static str) -> Figure {
    Figure {
        workload: "storm",
        variant,
        threads: 1,
        metric,
        peer,
    }
}

const fn check(what: &'static str, of: Of, limit: f64) -> Check {
    Check {
        what,
        of,
        limit: Some(limit),
    }
}

const fn shown(what: &'static str, of: Of) -> Check {
    Check {
        what,
        of,
        limit: None,
    }
}

/// Shorthand for the variants' names.
struct Names {
    never: &'static str,
    create: &'static str,
    write: &'static str,
    access: &'static str,
}

fn names() -> Names {
    Names {
        never: Never.label(),
        create: Create.label(),
        write: Write.label(),
        access: Access.label(),
    }
}

/// The figures that a first version must show.
pub fn first_version() -> Vec<Check> {
    let Names {
        never,
        create,
        write,
        ..
    } = names();
    let hit = |threads| speed("hit-zipf", create, threads, US);
    let resolution = wheelhouse_resolution_ms();
    let mut checks = vec![
        check(
            "hit with per-entry expiry, 1 thread / quick_cache without",
            Of::Ratio(hit(1), speed("hit-zipf", never, 1, QUICK)),
            1.3,
        ),
        check(
            "hit with per-entry expiry, 2 threads / own 1 thread",
            Of::Ratio(hit(2), hit(1)),
            1.2,
        ),
    ];
    for (workload, to_moka, to_by_hand) in [
        (
            "grow",
            "insert of new keys / moka",
            "insert of new keys / quick_cache with a hand-made deadline",
        ),
        (
            "replace",
            "replace / moka",
            "replace / quick_cache with a hand-made deadline",
        ),
        (
            "cancel",
            "insert + invalidate / moka",
            "insert + invalidate / quick_cache with a hand-made deadline",
        ),
    ] {
        checks.push(shown(
            to_moka,
            Of::Ratio(
                speed(workload, write, 1, US),
                speed(workload, write, 1, MOKA),
            ),
        ));
        checks.push(shown(
            to_by_hand,
            Of::Ratio(
                speed(workload, write, 1, US),
                speed(workload, write, 1, BY_HAND),
            ),
        ));
    }
    checks.extend([
        shown(
            "storm: notified, % (anything but 100 fails the run)",
            Of::Value(of_storm(storm::QUIET, storm::NOTIFIED, US), "%"),
        ),
        check(
            "storm: lateness p99, at most resolution + 50 ms",
            Of::Highest(of_storm(storm::QUIET, storm::LATE_P99, US), "ms"),
            resolution + 50.0,
        ),
        check(
            "storm: longest pause of a caller, at most 1 ms",
            Of::Highest(of_storm(storm::BUSY, storm::PAUSE, US), "us"),
            1000.0,
        ),
        shown(
            "  the machine's own longest pause (calls that do nothing, a thread at work beside)",
            Of::Highest(of_storm(storm::BUSY, storm::PAUSE, MACHINE), "us"),
        ),
        check(
            "storm: p99.99 of a caller, at most 20 us",
            Of::Value(of_storm(storm::BUSY, storm::P9999, US), "us"),
            20.0,
        ),
        shown(
            "  the machine's own p99.99 (calls that do nothing, a thread at work beside)",
            Of::Value(of_storm(storm::BUSY, storm::P9999, MACHINE), "us"),
        ),
        check(
            "bytes per u64 -> u64 entry with expiry, at most 112",
            Of::Value(bytes(), "B"),
            112.0,
        ),
        shown(
            "  the same without a bound on the entries",
            Of::Value(unbounded_bytes(), "B"),
        ),
    ]);
    checks
}

/// The bars of a release.
pub fn release() -> Vec<Check> {
    let Names {
        never,
        create,
        write,
        access,
    } = names();
    let hit = |threads| speed("hit-zipf", create, threads, US);
    let quick = |workload| speed(workload, never, 1, QUICK);
    let pair = |variant, peer| Figure {
        workload: "timers",
        variant,
        threads: 1,
        metric: timers::PAIR,
        peer,
    };
    let mut checks = vec![
        check(
            "hit with expiry, 1 thread / quick_cache without",
            Of::Ratio(hit(1), quick("hit-zipf")),
            1.0,
        ),
        check(
            "hit with expiry, 1 thread / moka",
            Of::Ratio(hit(1), speed("hit-zipf", create, 1, MOKA)),
            0.12,
        ),
        check(
            "hit with expiry, 2 threads / quick_cache without",
            Of::Ratio(hit(2), speed("hit-zipf", never, 2, QUICK)),
            0.5,
        ),
        check(
            "hit with expiry, 2 threads / own 1 thread",
            Of::Ratio(hit(2), hit(1)),
            1.15,
        ),
        check(
            "hit with expiry that reads extend / own hit without",
            Of::Ratio(speed("hit-zipf", access, 1, US), hit(1)),
            1.3,
        ),
        shown(
            "  by an idle limit: no user code, so one reading of the clock",
            Of::Ratio(speed("hit-zipf", access, 1, IDLE), hit(1)),
        ),
        check(
            "one hot key, 2 threads / own 1 thread",
            Of::Ratio(
                speed("hit-one", create, 2, US),
                speed("hit-one", create, 1, US),
            ),
            1.2,
        ),
        check(
            "hit, uniform / quick_cache without expiry",
            Of::Ratio(speed("hit-uniform", create, 1, US), quick("hit-uniform")),
            1.4,
        ),
        shown(
            "hit, uniform / quick_cache with a hand-made deadline (about 0.4)",
            Of::Ratio(
                speed("hit-uniform", create, 1, US),
                speed("hit-uniform", create, 1, BY_HAND),
            ),
        ),
        shown(
            "  by the standard library's clock",
            Of::Ratio(
                speed("hit-uniform", create, 1, US),
                speed("hit-uniform", create, 1, BY_STD),
            ),
        ),
    ];
    checks.extend(writes_beside_those_by_hand());
    checks.extend([
        check(
            "insert + invalidate / moka",
            Of::Ratio(
                speed("cancel", write, 1, US),
                speed("cancel", write, 1, MOKA),
            ),
            0.08,
        ),
        check(
            "mass expiry: p99.99 of a caller",
            Of::Value(of_storm(storm::BUSY, storm::P9999, US), "us"),
            10.0,
        ),
        shown(
            "  the machine's own (calls that do nothing, a thread at work beside)",
            Of::Value(of_storm(storm::BUSY, storm::P9999, MACHINE), "us"),
        ),
        check(
            "mass expiry: longest pause of a caller",
            Of::Highest(of_storm(storm::BUSY, storm::PAUSE, US), "us"),
            1000.0,
        ),
        shown(
            "  the machine's own (calls that do nothing, a thread at work beside)",
            Of::Highest(of_storm(storm::BUSY, storm::PAUSE, MACHINE), "us"),
        ),
        check(
            "storm: CPU per expired entry, listener included",
            Of::Value(of_storm(storm::QUIET, storm::CPU, US), "ns"),
            200.0,
        ),
        check(
            "wheel alone: start + cancel / DelayQueue, 100k",
            Of::Ratio(
                pair("100k timers", US),
                pair("100k timers", "tokio DelayQueue"),
            ),
            0.5,
        ),
        check(
            "wheel alone: start + cancel / DelayQueue, 1M",
            Of::Ratio(pair("1M timers", US), pair("1M timers", "tokio DelayQueue")),
            0.5,
        ),
        shown(
            "wheel alone: start + cancel, 6M / own 100k (flat)",
            Of::Ratio(pair("6M timers", US), pair("100k timers", US)),
        ),
        check(
            "memory: bytes per entry, expiry on",
            Of::Value(unbounded_bytes(), "B"),
            96.0,
        ),
        check(
            "memory: bytes per entry, expiry and a bound on",
            Of::Value(bytes(), "B"),
            112.0,
        ),
        check(
            "memory: allocations per entry",
            Of::Value(
                Figure {
                    workload: "memory",
                    variant: write,
                    threads: 1,
                    metric: LIVE,
                    peer: US,
                },
                "",
            ),
            // One each, or fewer: a chunk holds many nodes.
            1.0,
        ),
    ]);
    checks
}

/// What writes and mixes cost beside a hand-made deadline, by either clock.
fn writes_beside_those_by_hand() -> Vec<Check> {
    let write = names().write;
    let mut checks = Vec::new();
    for (workload, what, limit) in [
        (
            "replace",
            "replace / quick_cache with a hand-made deadline",
            1.3,
        ),
        ("mix", "75/25 mix / the same", 0.7),
        ("evict", "get-then-insert at capacity / the same", 1.0),
        ("grow", "insert of new keys / the same", 1.0),
        ("cancel", "insert + invalidate / the same", 1.3),
    ] {
        let beside = |peer| {
            Of::Ratio(
                speed(workload, write, 1, US),
                speed(workload, write, 1, peer),
            )
        };
        checks.push(check(what, beside(BY_HAND), limit));
        checks.push(check(
            "  by the standard library's clock",
            beside(BY_STD),
            limit,
        ));
    }
    checks
}

fn unbounded_bytes() -> Figure {
    Figure {
        variant: UNBOUNDED,
        ..bytes()
    }
}

fn bytes() -> Figure {
    Figure {
        workload: "memory",
        variant: Write.label(),
        threads: 1,
        metric: USABLE,
        peer: US,
    }
}

fn wheelhouse_resolution_ms() -> f64 {
    let cache: wheelhouse::Cache<u64, u64> = wheelhouse::Cache::builder()
        .scheduler(wheelhouse::Scheduler::disabled())
        .build();
    cache.policy().expiry_resolution().as_secs_f64() * 1e3
}
