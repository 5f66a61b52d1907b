//! A concurrent in-process cache in which every entry carries its own expiry: exact deadlines,
//! prompt removal, bounded pauses.
//!
//! ```
//! use std::time::Duration;
//! use wheelhouse::Cache;
//!
//! let sessions: Cache<String, u32> = Cache::new(10_000);
//! sessions.insert_with_ttl("ada".into(), 1815, Duration::from_secs(900));
//! assert_eq!(sessions.get("ada"), Some(1815));
//! ```
//!
//! A [`Cache`] is a handle: clone it to share it. [`Cache::builder`] returns a builder for all
//! settings.
//!
//! # How long entries live
//!
//! A lifetime comes from a policy, which asks the value: [`expiry`] has a table of the ready ones.
//! Or the caller gives it: [`insert_with_ttl`](Cache::insert_with_ttl),
//! [`insert_until`](Cache::insert_until), [`set_expiry`](Cache::set_expiry). Or one setting holds
//! for all entries: [`time_to_live`](CacheBuilder::time_to_live),
//! [`time_to_idle`](CacheBuilder::time_to_idle). If several apply, the earliest deadline counts. At
//! exactly its deadline an entry is expired: no look-up finds it, even if it was not removed yet.
//! [Recipes](https://github.com/wheelhouse-rs/wheelhouse/blob/main/docs/recipes.md) has programs
//! for sessions, tokens and more.
//!
//! # When entries are removed
//!
//! By default one thread for all caches of the process sleeps until the next deadline and removes
//! what is due. An entry is removed within [`expiry_resolution`](CacheBuilder::expiry_resolution)
//! after its deadline, plus the time to wake the thread and to remove the entries that are due
//! before it. The thread starts when there is work for it: at the latest with the first deadline.
//! It ends when the last cache is dropped. An event loop can take its place
//! ([`Scheduler::custom`]). With [`Scheduler::disabled`] only calls of the cache remove entries.
//! The cache calls a [removal listener](listener) exactly once for each removed key and value, with
//! the [`RemovalCause`].
//!
//! Build caches in the process that uses them: the threads of a cache do not survive a `fork`.
//!
//! # How many entries stay
//!
//! [`max_capacity`](CacheBuilder::max_capacity) bounds the number of entries, or their weight with
//! a [`weigher`](CacheBuilder::weigher). A full cache removes expired entries first; then the
//! [`EvictionPolicy`] chooses. Reads reach the policy through buffers that may drop some of them
//! where several threads read, so the order of use is then approximate. Deadlines are exact.
//!
//! # How to read
//!
//! | method | counts as a read | returns |
//! |---|---|---|
//! | [`get`](Cache::get) | yes | a clone |
//! | [`get_ref`](Cache::get_ref) | yes | an [`EntryRef`], which holds memory, and must not live over an `.await` |
//! | [`get_many`](Cache::get_many) | yes | clones for several keys, faster than one `get` after the other |
//! | [`peek_ref`](Cache::peek_ref), [`iter`](Cache::iter) | no | an [`EntryRef`] |
//! | [`contains_key`](Cache::contains_key) | no | whether the key has a live entry |
//!
//! # Loading
//!
//! A *load* makes the value of a key by your code; the call that runs the code *leads* it. One load
//! runs for a key at a time. A second one runs only if a write revoked the first, or
//! its `load_timeout` passed. Other calls that load the key wait for it and share its value,
//! whichever method they use. They share its failure if they are of the same kind and error type.
//! Computes (`and_*`) wait for it, and then run. All methods that load have a form for async code,
//! but for `lease_timeout`, on any runtime.
//!
//! ```
//! use wheelhouse::Cache;
//!
//! let squares: Cache<u64, u64> = Cache::new(100);
//! assert_eq!(squares.get_with(12, || 12 * 12), 144);
//! assert_eq!(squares.get_with(12, || unreachable!("a hit loads nothing")), 144);
//! let parsed = squares.try_get_with(13, || "169".parse::<u64>());
//! assert_eq!(parsed, Ok(169));
//! ```
//!
//! | you want | use |
//! |---|---|
//! | the value, loaded if the key is absent | [`get_with`](Cache::get_with), [`try_get_with`](Cache::try_get_with), [`get_all_with`](Cache::get_all_with) |
//! | to read, change and write in one step | [`entry`](Cache::entry) with `and_compute_with` |
//! | a *lease*: the right to load a key, which you can keep and pass on | [`lease`](Cache::lease) |
//! | a cache that loads and refreshes by itself | [`LoadingCache`] |
//!
//! A write of a key revokes the load of that key: the loaded value is not stored. The call that
//! loads and the calls that wait for it return the value that the key has then, or the loaded value
//! if the key has none. A load that would wait for itself panics.
//!
//! # Restarts
//!
//! [`snapshot`](Cache::snapshot) copies the entries with their remaining lifetimes, the hottest
//! first. [`restore`](Cache::restore) puts them into the cache of the next process.
//!
//! # Tests that need no sleep
//!
//! ```
//! use std::{sync::mpsc, time::Duration};
//! use wheelhouse::{Cache, ManualTicker, RemovalCause};
//!
//! let (clock, (heard, left)) = (ManualTicker::new(), mpsc::channel());
//! let cache: Cache<&str, u64> = Cache::builder()
//!     .ticker(clock.clone())
//!     .removal_listener(move |key: &&str, _: &u64, cause| heard.send((*key, cause)).unwrap())
//!     .build();
//! cache.insert_with_ttl("short", 1, Duration::from_secs(10));
//! clock.advance(Duration::from_nanos(9_999_999_999));
//! assert!(cache.contains_key("short"));
//! clock.advance(Duration::from_nanos(1));
//! assert!(!cache.contains_key("short"));
//! cache.run_pending_tasks();
//! assert_eq!(left.try_recv(), Ok(("short", RemovalCause::Expired)));
//! ```
//!
//! # Limits
//!
//! - The map keeps bits of a key's hash above the 48 bits of an address. If the allocator returns
//!   an address above 2^48, the call panics and changes nothing. In one rare case (an overflowed
//!   group of the table) the process aborts. The tagged addresses of Android on arm64 are
//!   supported. A pointer of 32 bits always fits.
//! - Keys and values lie in memory of the cache, in chunks. Put values of more than a few KiB into
//!   a `Box` or an `Arc`. Calls copy a value on the stack several times. On a thread with a stack
//!   of 2 MiB, keep to 256 KiB at most in an optimized build, and to 128 KiB in a build without
//!   optimization. That holds for `insert`, `get`, `get_with` and the computes alike.
//! - While an [`EntryRef`] exists, the cache frees none of the entries that it removes.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `serde` | `Serialize` and `Deserialize` for snapshots |
//! | `quanta` | `quanta::Clock` is a [`Ticker`], its mock included; so is quanta's recent time (`QuantaRecent`) |
//! | `portable-atomic` | targets whose processor has no atomics of 64 bits, such as armv5 and mips |
//! | `crossbeam-epoch` | that crate's memory reclamation in place of the built-in one |
#![doc = include_str!("callbacks.md")]
#![warn(unreachable_pub)]

// A module imports from earlier groups only (tests/source/imports.rs checks it). The order is also
// that of the documentation: the methods of `Cache` in `cache` come before those in `load`.
mod atomic64;
mod identity;

mod contain;
mod hash;

mod stripe;
mod time;

mod sync;

pub mod listener;
mod node;
mod reclaim;

pub mod expiry;
mod scheduler;

pub mod compute;
pub mod refresh;

mod buffer;
mod flight;
mod list;

mod eviction;
mod map;
mod stats;
mod wheel;

mod engine;

mod operations;

mod cache;

mod iter;
mod policy;

mod load;
mod snapshot;

mod loading_cache;

// What checks private parts from outside of `src`; no published build compiles it.
#[cfg(all(test, wheelhouse_loom))]
#[path = "../models/loom/mod.rs"]
mod loom_models;

#[cfg(fuzzing)]
#[doc(hidden)]
#[path = "../fuzz/private/mod.rs"]
pub mod fuzzing;

pub use cache::{BuildError, Cache, CacheBuilder};
pub use equivalent::Equivalent;
pub use eviction::EvictionPolicy;
pub use expiry::Expiry;
pub use hash::{DefaultHasher, RandomState};
pub use iter::Iter;
pub use listener::{Delivery, RemovalCause};
pub use load::{EntrySelector, Filled, Lease, Leased, RefEntrySelector, ToKey};
pub use loading_cache::{
    AsyncLoader, IntoLoading, LoadError, Loaded, Loader, LoadingBuilder, LoadingCache, Refreshing,
    Reloaded, async_loader_fn, loader_fn,
};
pub use operations::EntryRef;
pub use policy::Policy;
pub use refresh::Refresh;
pub use scheduler::{Alarm, MaintenanceTask, Scheduler};
pub use snapshot::{Downtime, Ended, Restore, Restored, SavedEntry, Snapshot};
pub use stats::{Stat, StatValue, Stats};
#[cfg(feature = "quanta")]
pub use time::QuantaRecent;
pub use time::{ManualTicker, Ticker, ticker_fn};

/// Runs the examples of this page as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod pages {}
