//! The workloads by name.

mod cancel;
mod evict;
mod grow;
mod load;
pub mod memory;
mod prelude;
mod race;
mod ratio;
mod refresh;
mod snapshot;
mod steady;
mod storm;
mod timers;

use std::{cell::RefCell, time::Instant};

#[cfg(test)]
pub(crate) use self::race::plan;
use crate::{contest::Bench, report::Report, setup::Setup};

/// A workload as the command line knows it: its name, what it measures, and what runs it, prints
/// its tables and adds them to the report.
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    run: fn(Bench<'_>),
}

/// Those that `all` leaves out, since they take long; run when asked for by name.
pub const LONG: &[&str] = &["ratio-curves"];

impl Workload {
    /// Runs it, and logs how long that took.
    pub fn run(&self, setup: &Setup, report: &RefCell<Report>) {
        let (name, began) = (self.name, Instant::now());
        (self.run)(Bench {
            name,
            setup,
            report,
        });
        eprintln!("{name} took {:.1} s", began.elapsed().as_secs_f64());
    }
}

macro_rules! workloads {
    ($($name:literal, $run:path: $about:literal;)+) => {
        &[$(Workload { name: $name, about: $about, run: $run }),+]
    };
}

/// All workloads, in the order in which `all` runs them.
pub const ALL: &[Workload] = workloads! {
    "hit-zipf", steady::hit_zipf: "every read hits; 10,922 keys, Zipf 0.99, bounded caches";
    "hit-1k", steady::hit_1k: "every read hits; 1,000 keys, all equally likely";
    "hit-100k", steady::hit_100k: "every read hits; 100k keys, all equally likely";
    "hit-uniform", steady::hit_uniform: "every read hits; 1M keys, all equally likely";
    "hit-one", steady::hit_one: "every read hits one hot key";
    "replace", steady::replace: "replaces existing keys; 10,922 keys, Zipf 0.99";
    "mix", steady::mix: "75 % reads, 25 % replacements; 10,922 keys, Zipf 0.99";
    "evict", evict::run: "get, then insert on a miss; 100k entries allowed, 1M keys, Zipf 0.99";
    "ratio", ratio::run:
        "hit ratios on real traces, and where values expire, beside exact LRU and the optimum";
    "ratio-curves", ratio::curves: "hit ratios over the size of the cache, for a plot; only by name";
    "ratio-small", ratio::small: "hit ratios of caches of 8 to 256 entries on real traces";
    "grow", grow::run: "inserts new keys, from empty to 1M";
    "cancel", cancel::run:
        "insert and invalidate with 100k entries alive: a timer's start and cancel";
    "storm", storm::run:
        "1M entries due within two seconds: lateness, pauses of a caller, CPU time";
    "load", load::run: "get_with: hits, misses that load, herds on one cold key; computes";
    "refresh", refresh::run:
        "a loading cache: fresh and stale hits, and a backend that takes 5 ms";
    "snapshot", snapshot::run:
        "a million entries saved and restored, and what a reader feels meanwhile";
    "timers", timers::run: "the wheel beside other timer structures: start, cancel, advance";
    "memory", memory::run: "bytes and allocations per entry, resident size, an hour of churn";
};
