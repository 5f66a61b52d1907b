//! wheelhouse beside its peers: same process, same keys, same values, same run.
//!
//! How a figure comes about: [`keys`] draws the key streams before anything is timed. A file in
//! [`workloads`] is written once over the trait [`peer::Peer`] and compiled for each cache in
//! [`peers`]. [`contest`] lets the caches take turns in every round, [`measure`] times one turn,
//! and [`report`] turns the rounds into medians, spreads and ratios. [`bars`] says what was met.

pub mod alloc;
pub mod bars;
pub mod clock;
pub mod contest;
pub mod cpu;
pub mod figure;
pub mod keys;
pub mod machine;
pub mod measure;
pub mod peer;
pub mod peers;
pub mod report;
pub mod setup;
pub mod tail;
pub mod workloads;
