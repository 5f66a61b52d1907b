//! At which sizes a trace is replayed.

/// The sizes that are compared over time, and whose mean is taken.
const REFERENCE: &[(&str, &[usize])] = &[
    ("lirs-2_pools", &[500, 1_000]),
    ("lirs-cpp", &[500, 1_000]),
    ("lirs-cs", &[500, 1_000]),
    ("lirs-gli", &[500, 1_000]),
    ("lirs-loop", &[500, 1_000]),
    ("lirs-multi1", &[500, 1_000]),
    ("lirs-multi2", &[500, 1_000]),
    ("lirs-multi3", &[500, 1_000]),
    ("lirs-ps", &[500, 1_000]),
    ("lirs-sprite", &[500, 1_000]),
    ("web07", &[1_000, 5_000]),
    ("web12", &[1_000, 5_000]),
    ("OLTP", &[1_000, 5_000, 15_000]),
    ("P3", &[50_000, 200_000]),
    ("cloudphysics", &[5_000, 20_000]),
];

/// The sizes of small caches. Programs have many of these: one for each tenant, host or route.
const SMALL: &[(usize, &str)] = &[
    (
        8,
        "Hits in percent of the requests, by trace, with 8 entries",
    ),
    (
        16,
        "Hits in percent of the requests, by trace, with 16 entries",
    ),
    (
        32,
        "Hits in percent of the requests, by trace, with 32 entries",
    ),
    (
        64,
        "Hits in percent of the requests, by trace, with 64 entries",
    ),
    (
        128,
        "Hits in percent of the requests, by trace, with 128 entries",
    ),
    (
        256,
        "Hits in percent of the requests, by trace, with 256 entries",
    ),
];

/// Sizes of any other trace: hundredths of its keys.
const HUNDREDTHS: [usize; 4] = [2, 5, 10, 20];

/// The row of a trace in the table of the traces in the list; `None` if the trace is not in the
/// list.
pub(super) fn place(trace: &str) -> Option<usize> {
    REFERENCE.iter().position(|(name, _)| *name == trace)
}

/// The place of a table about small caches among them.
pub(super) fn small_place(about: &str) -> usize {
    let place = SMALL.iter().position(|&(_, of_size)| of_size == about);
    place.expect("a table about small caches")
}

/// What the replays of a trace are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// The table of the sizes that are compared over time.
    Table,
    /// A curve over the size: from a 64th of the keys up to half of them.
    Curve,
    /// Small caches, a table for each size.
    Small,
}

/// The sizes for a trace with this many different keys, each with what its table shows.
pub(super) fn of(trace: &str, distinct: usize, question: Question) -> Vec<(&'static str, usize)> {
    let about = |about, sizes: Vec<usize>| sizes.into_iter().map(|size| (about, size)).collect();
    let mut sizes: Vec<_> = match (place(trace), question) {
        (Some(_), Question::Small) => SMALL.iter().map(|&(size, about)| (about, size)).collect(),
        (Some(_), Question::Curve) => about(
            "Hits in percent of the requests, over the size of the cache",
            [64, 32, 16, 8, 4, 2].map(|part| distinct / part).to_vec(),
        ),
        (Some(place), Question::Table) => about(
            "Hits in percent of the requests, by trace and entries allowed",
            REFERENCE[place].1.to_vec(),
        ),
        (None, Question::Curve | Question::Small) => Vec::new(),
        (None, Question::Table) => about(
            "The same for traces that are not in the list of sizes",
            HUNDREDTHS.map(|size| distinct * size / 100).to_vec(),
        ),
    };
    sizes.retain(|&(_, size)| size > 0);
    sizes
}
