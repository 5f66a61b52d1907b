#![doc = include_str!("../README.md")]
#![doc = include_str!("callbacks.md")]
#![warn(unreachable_pub)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "wheelhouse needs a target with 64-bit pointers: its map keeps bits of a key's hash in the upper sixteen bits of a pointer"
);

// Data flows downwards, imports go one way: see DESIGN.md for the house plan.
mod builder;
mod cache;
mod entry_ref;
pub mod expiry;
mod hash;
mod iter;
pub mod listener;
mod policy;
mod scheduler;

mod maintenance;
mod notify;

mod buffer;
mod eviction;
mod map;
mod stats;
mod wheel;

mod contain;
mod list;
mod node;
mod reclaim;
mod stripe;
mod sync;
mod time;

#[cfg(all(test, wheelhouse_loom))]
mod tests;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;

#[cfg(feature = "parts")]
#[doc(hidden)]
pub mod parts;

pub use builder::{BuildError, CacheBuilder};
pub use cache::Cache;
pub use entry_ref::EntryRef;
pub use equivalent::Equivalent;
pub use eviction::EvictionPolicy;
pub use expiry::Expiry;
pub use hash::{DefaultHasher, RandomState};
pub use iter::Iter;
pub use listener::RemovalCause;
pub use policy::{LevelSnapshot, Policy, WheelSnapshot};
pub use scheduler::{Alarm, MaintenanceTask, Scheduler};
pub use stats::Stats;
pub use time::{ManualTicker, Ticker};
