//! The workloads by name.

mod cancel;
mod evict;
mod grow;
mod load;
pub mod many_caches;
pub mod memory;
mod prelude;
pub(crate) mod race;
pub mod ratio;
mod refresh;
pub mod sleepers;
pub mod small;
mod snapshot;
mod steady;
pub mod storm;
pub mod timers;

use std::time::Instant;

use crate::{report::Report, setup::Setup};

/// A workload as the command line knows it.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Runs it, prints its tables and adds them to the report.
    run: fn(&Setup, &mut Report),
}

/// Those that `all` leaves out, since they take long; run when asked for by name.
pub const LONG: &[&str] = &[ratio::CURVES, cancel::AGED, cancel::ANY];

impl Workload {
    /// Runs it, unless it has been run, and logs how long that took.
    pub fn run_once(&self, setup: &Setup, report: &mut Report) {
        if !report.has(self.name) {
            let began = Instant::now();
            (self.run)(setup, report);
            setup.clear();
            eprintln!("{} took {:.1} s", self.name, began.elapsed().as_secs_f64());
        }
    }
}

const fn of(name: &'static str, about: &'static str, run: fn(&Setup, &mut Report)) -> Workload {
    Workload { name, about, run }
}

/// All workloads, in the order in which `all` runs them.
pub const ALL: &[Workload] = &[
    of(
        "hit-zipf",
        "every read hits; 10,922 keys, Zipf 0.99, bounded caches",
        steady::hit_zipf,
    ),
    of(
        "hit-unbounded",
        "the same without a bound",
        steady::hit_unbounded,
    ),
    of(
        "hit-uniform",
        "every read hits; 1M keys, all equally likely",
        steady::hit_uniform,
    ),
    of("hit-one", "every read hits one hot key", steady::hit_one),
    of(
        "replace",
        "replaces existing keys; 10,922 keys, Zipf 0.99",
        steady::replace,
    ),
    of(
        "mix",
        "75 % reads, 25 % replacements; 10,922 keys, Zipf 0.99",
        steady::mix,
    ),
    of(
        "evict",
        "get, then insert on a miss; 100k entries allowed, 1M keys, Zipf 0.99",
        evict::run,
    ),
    of(
        ratio::NAME,
        "hit ratios on real traces, and where values expire, beside exact LRU and the optimum",
        ratio::run,
    ),
    of(
        ratio::CURVES,
        "hit ratios over the size of the cache, for a plot; only by name",
        ratio::curves,
    ),
    of("grow", "inserts new keys, from empty to 1M", grow::run),
    of(
        "cancel",
        "insert and invalidate with 100k entries alive: a timer's start and cancel",
        cancel::run,
    ),
    of(
        cancel::AGED,
        "the same in a cache whose entries have all left twenty times; only by name",
        cancel::aged,
    ),
    of(
        cancel::ANY,
        "the same, but any entry leaves in place of the oldest; only by name",
        cancel::any,
    ),
    of(
        "strings",
        "every read hits; keys are strings of 29 bytes",
        steady::strings,
    ),
    of(
        "arcs-clone",
        "every read hits and clones an Arc out",
        steady::arcs_clone,
    ),
    of(
        "arcs-look",
        "every read hits and reads the value in place where the peer can",
        steady::arcs_look,
    ),
    of(
        small::NAME,
        "small caches under several threads: beyond the bound, values alive, throughput",
        small::run,
    ),
    of(
        many_caches::NAME,
        "get in turns over 10 to 4,000 caches in one thread; a first insert",
        many_caches::run,
    ),
    of(
        sleepers::NAME,
        "hits beside 0, 64 and 512 sleeping threads that once used the cache",
        sleepers::run,
    ),
    of(
        storm::NAME,
        "1M entries due within two seconds: lateness, pauses of a caller, CPU time",
        storm::run,
    ),
    of(
        load::NAME,
        "get_with: hits, misses that load, herds on one cold key; computes",
        load::run,
    ),
    of(
        refresh::NAME,
        "a loading cache: fresh and stale hits, and a backend that takes 5 ms",
        refresh::run,
    ),
    of(
        snapshot::NAME,
        "a million entries saved and restored, and what a reader feels meanwhile",
        snapshot::run,
    ),
    of(
        "timers",
        "the wheel beside other timer structures: start, cancel, advance",
        timers::run,
    ),
    of(
        "memory",
        "bytes and allocations per entry, resident size, an hour of churn",
        memory::run,
    ),
];
