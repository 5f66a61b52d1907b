//! At which sizes a trace is replayed.

use std::num::NonZeroUsize;

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

/// The place of a trace in the first table; `None` if it belongs to the second.
pub(super) fn place(trace: &str) -> Option<usize> {
    REFERENCE.iter().position(|(name, _)| *name == trace)
}

/// The sizes for a trace of so many different keys.
pub(super) fn of(trace: &str, distinct: usize) -> Vec<NonZeroUsize> {
    let sizes = match place(trace) {
        Some(place) => REFERENCE[place].1.to_vec(),
        None => HUNDREDTHS
            .map(|hundredths| distinct * hundredths / 100)
            .to_vec(),
    };
    sizes.into_iter().filter_map(NonZeroUsize::new).collect()
}

/// Sizes for a curve: from a 64th of the keys, doubling, to half of them.
pub(super) fn doubling(distinct: usize) -> Vec<NonZeroUsize> {
    let sizes = (1..=6).rev().map(|halvings| distinct >> halvings);
    sizes.filter_map(NonZeroUsize::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_trace_gets_sizes_by_its_keys() {
        let sizes: Vec<usize> = of("mine", 1_000).into_iter().map(usize::from).collect();
        assert_eq!(sizes, [20, 50, 100, 200]);
        assert_eq!(of("tiny", 5), [NonZeroUsize::MIN]);
        assert_eq!(of("P3", 5).len(), 2);
        let sizes: Vec<usize> = doubling(1_000).into_iter().map(usize::from).collect();
        assert_eq!(sizes, [15, 31, 62, 125, 250, 500]);
    }
}
