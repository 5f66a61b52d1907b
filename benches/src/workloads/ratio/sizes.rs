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

/// Sizes of any other trace: hundredths of its keys.
const HUNDREDTHS: [usize; 4] = [2, 5, 10, 20];

/// The row of a trace in the table of the traces in the list; `None` if the trace is not in the
/// list.
pub(super) fn place(trace: &str) -> Option<usize> {
    REFERENCE.iter().position(|(name, _)| *name == trace)
}

/// The sizes for a trace with this many different keys, and what the table of them shows. For a
/// curve they double from a 64th of the keys up to half of them.
pub(super) fn of(trace: &str, distinct: usize, curve: bool) -> (&'static str, Vec<usize>) {
    let (about, mut sizes) = match (place(trace), curve) {
        (Some(_), true) => (
            "Hits in percent of the requests, over the size of the cache",
            [64, 32, 16, 8, 4, 2].map(|part| distinct / part).to_vec(),
        ),
        (Some(place), false) => (
            "Hits in percent of the requests, by trace and entries allowed",
            REFERENCE[place].1.to_vec(),
        ),
        (None, true) => ("", Vec::new()),
        (None, false) => (
            "The same for traces that are not in the list of sizes",
            HUNDREDTHS.map(|size| distinct * size / 100).to_vec(),
        ),
    };
    sizes.retain(|&size| size > 0);
    (about, sizes)
}
