//! The workloads by name.

mod cancel;
mod evict;
mod grow;
mod load;
pub mod many_caches;
pub mod memory;
pub(crate) mod race;
pub mod ratio;
mod refresh;
pub mod sleepers;
pub mod small;
mod snapshot;
mod steady;
pub mod storm;
pub mod timers;

use crate::{report::Report, setup::Setup};

/// A workload as the command line knows it.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Runs it, prints its tables and adds them to the report.
    pub run: fn(&Setup, &mut Report),
}

/// Those that `all` leaves out, since they take long; run when asked for by name.
pub const LONG: &[&str] = &[ratio::CURVES, cancel::AGED, cancel::ANY];

/// All workloads, in the order in which `all` runs them.
pub const ALL: &[Workload] = &[
    Workload {
        name: "hit-zipf",
        about: "every read hits; 10,922 keys, Zipf 0.99, bounded caches",
        run: steady::hit_zipf,
    },
    Workload {
        name: "hit-unbounded",
        about: "the same without a bound",
        run: steady::hit_unbounded,
    },
    Workload {
        name: "hit-uniform",
        about: "every read hits; 1M keys, all equally likely",
        run: steady::hit_uniform,
    },
    Workload {
        name: "hit-one",
        about: "every read hits one hot key",
        run: steady::hit_one,
    },
    Workload {
        name: "replace",
        about: "replaces existing keys; 10,922 keys, Zipf 0.99",
        run: steady::replace,
    },
    Workload {
        name: "mix",
        about: "75 % reads, 25 % replacements; 10,922 keys, Zipf 0.99",
        run: steady::mix,
    },
    Workload {
        name: "evict",
        about: "get, then insert on a miss; 100k entries allowed, 1M keys, Zipf 0.99",
        run: evict::run,
    },
    Workload {
        name: ratio::NAME,
        about: "hit ratios on real traces, and where values expire, beside exact LRU and the optimum",
        run: ratio::run,
    },
    Workload {
        name: ratio::CURVES,
        about: "hit ratios over the size of the cache, for a plot; only by name",
        run: ratio::curves,
    },
    Workload {
        name: "grow",
        about: "inserts new keys, from empty to 1M",
        run: grow::run,
    },
    Workload {
        name: "cancel",
        about: "insert and invalidate with 100k entries alive: a timer's start and cancel",
        run: cancel::run,
    },
    Workload {
        name: cancel::AGED,
        about: "the same in a cache whose entries have all left twenty times; only by name",
        run: cancel::aged,
    },
    Workload {
        name: cancel::ANY,
        about: "the same, but any entry leaves in place of the oldest; only by name",
        run: cancel::any,
    },
    Workload {
        name: "strings",
        about: "every read hits; keys are strings of 29 bytes",
        run: steady::strings,
    },
    Workload {
        name: "arcs-clone",
        about: "every read hits and clones an Arc out",
        run: steady::arcs_clone,
    },
    Workload {
        name: "arcs-look",
        about: "every read hits and reads the value in place where the peer can",
        run: steady::arcs_look,
    },
    Workload {
        name: small::NAME,
        about: "small caches under several threads: beyond the bound, values alive, throughput",
        run: small::run,
    },
    Workload {
        name: many_caches::NAME,
        about: "get in turns over 10 to 4,000 caches in one thread; a first insert",
        run: many_caches::run,
    },
    Workload {
        name: sleepers::NAME,
        about: "hits beside 0, 64 and 512 sleeping threads that once used the cache",
        run: sleepers::run,
    },
    Workload {
        name: storm::NAME,
        about: "1M entries due within two seconds: lateness, pauses of a caller, CPU time",
        run: storm::run,
    },
    Workload {
        name: load::NAME,
        about: "get_with: hits, misses that load, herds on one cold key; computes",
        run: load::run,
    },
    Workload {
        name: refresh::NAME,
        about: "a loading cache: fresh and stale hits, and a backend that takes 5 ms",
        run: refresh::run,
    },
    Workload {
        name: snapshot::NAME,
        about: "a million entries saved and restored, and what a reader feels meanwhile",
        run: snapshot::run,
    },
    Workload {
        name: "timers",
        about: "the wheel beside other timer structures: start, cancel, advance",
        run: timers::run,
    },
    Workload {
        name: "memory",
        about: "bytes and allocations per entry, resident size, an hour of churn",
        run: memory::run,
    },
];
