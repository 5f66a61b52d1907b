//! The workloads by name.

mod arcs;
mod cancel;
mod evict;
mod grow;
mod hit;
pub mod memory;
mod mix;
pub(crate) mod race;
pub mod ratio;
mod replace;
pub mod storm;
mod strings;
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
        run: hit::zipf,
    },
    Workload {
        name: "hit-unbounded",
        about: "the same without a bound",
        run: hit::unbounded,
    },
    Workload {
        name: "hit-uniform",
        about: "every read hits; 1M keys, all equally likely",
        run: hit::uniform,
    },
    Workload {
        name: "hit-one",
        about: "every read hits one hot key",
        run: hit::one,
    },
    Workload {
        name: "replace",
        about: "replaces existing keys; 10,922 keys, Zipf 0.99",
        run: replace::run,
    },
    Workload {
        name: "mix",
        about: "75 % reads, 25 % replacements; 10,922 keys, Zipf 0.99",
        run: mix::run,
    },
    Workload {
        name: "evict",
        about: "get, then insert on a miss; 100k entries allowed, 1M keys, Zipf 0.99",
        run: evict::run,
    },
    Workload {
        name: "ratio",
        about: "hit ratios on real traces, beside LRU and the clairvoyant optimum",
        run: ratio::run,
    },
    Workload {
        name: "ratio-curves",
        about: "hit ratios over the size of the cache, for a plot; some minutes, so only when asked for by name",
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
        about: "the same in a cache whose entries have all left twenty times; some minutes, so only when asked for by name",
        run: cancel::aged,
    },
    Workload {
        name: cancel::ANY,
        about: "the same, but any entry leaves in place of the oldest; some minutes, so only when asked for by name",
        run: cancel::any,
    },
    Workload {
        name: "strings",
        about: "every read hits; keys are strings of 29 bytes",
        run: strings::run,
    },
    Workload {
        name: "arcs-clone",
        about: "every read hits and clones an Arc out",
        run: arcs::clone,
    },
    Workload {
        name: "arcs-look",
        about: "every read hits and looks at the value in place where the peer can",
        run: arcs::look,
    },
    Workload {
        name: "storm",
        about: "1M entries due within two seconds: lateness, pauses of a caller, CPU time",
        run: storm::run,
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
