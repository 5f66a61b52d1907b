//! What the examples of this package and the benchmarks share: the reader of access traces.

pub mod trace;
