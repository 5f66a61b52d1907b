//! wheelhouse beside its peers: same process, same keys, same values, same run.
//!
//! How a figure comes about: [`keys`] draws the key streams before anything is timed; a [`workloads`] file is written once over the
//! trait [`peer::Peer`] and compiled for each cache in [`peers`]; [`contest`] lets the caches take turns in every round; [`yardstick`] tells
//! whether the machine did something else meanwhile, [`relay`] how far apart the workers' cores were; [`report`]
//! turns the rounds into medians, spreads and ratios. [`figures`] holds the bars and says which were met.

pub mod alloc;
pub mod clock;
pub mod contest;
pub mod cpu;
pub mod figures;
pub mod floors;
pub mod keys;
pub mod machine;
pub mod measure;
pub mod peer;
pub mod peers;
pub mod relay;
pub mod report;
pub mod setup;
pub mod tail;
pub mod traces;
pub mod workloads;
pub mod yardstick;
