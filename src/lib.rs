#![doc = include_str!("../README.md")]
#![doc = include_str!("callbacks.md")]
#![warn(unreachable_pub)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "wheelhouse needs a target with 64-bit pointers: its map keeps bits of a key's hash in the upper sixteen bits of a pointer"
);

// Data flows downwards, and so do imports: a module names modules of later groups, none of its own
// group or of an earlier one. The first group alone is a knot: a cache hands out its builder,
// entries, iterator and policy, and each of these names the cache.
mod builder;
mod cache;
mod entry_ref;
mod iter;
mod loading;
mod policy;

mod wheel_snapshot;

mod maintenance;

mod eviction;
mod map;
mod notify;
mod stats;
mod wheel;

mod buffer;
mod list;
mod load;

pub mod expiry;
mod hash;
pub mod listener;
mod scheduler;
mod shared;

mod node;
mod reclaim;

mod contain;
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
pub use loading::{Filled, Lease, Leased};
pub use policy::Policy;
pub use scheduler::{Alarm, MaintenanceTask, Scheduler};
pub use stats::Stats;
pub use time::{ManualTicker, Ticker};
pub use wheel_snapshot::{LevelSnapshot, WheelSnapshot};
