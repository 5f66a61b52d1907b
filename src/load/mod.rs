//! Loads: one run of user code at a time makes the value of a key; other calls wait for its
//! outcome.
//!
//! # One guard
//!
//! A call that misses [*claims*](claim) the key. In one hold of the shard's lock the claim confirms
//! that the key is absent or due, and joins the key's current load or lists a new one. The answer
//! is the key's value, or the [`guard`] of the load; a call that joins waits, and then claims
//! again. The call that has the guard runs the user's code, with no lock and no pin, and ends the
//! guard by what the code has made: `fill`, `fail`, `keep`, or `remove`. Dropping a guard hands the
//! key on to the call that has waited longest. [`get_with`], [`entry`], [`bulk`] and [`lease`] are
//! a few lines each over this; so are `loading_cache` and its reloads ([`reload`]).
//!
//! # Files
//!
//! | file | content |
//! |------|---------|
//! | [`state`], [`table`] | below the map: one load and its waiters; the loads of a shard |
//! | [`claim`], [`wait`], [`guard`] | the begin of a load, the waits for it, and its end |
//! | [`run`] | what is the same for all methods, of threads and of tasks |
//! | [`get_with`], [`entry`], [`bulk`], [`lease`] | the methods of `Cache` |
//! | [`reload`] | loads over live entries, in the background |
//!
//! # The states of a load
//!
//! | event | Led: a guard is out | Offered: a waiter was told to lead | Ended |
//! |-------|------|---------|------|
//! | a call claims the key | joins | joins | a new load |
//! | `fill` | the value is stored and published; a waiter that wants a turn is told to lead (Offered), else Ended | – | – |
//! | `fail`, `keep`, `remove`, drop | published to the waiters that accept it; the first of the others is told to lead (Offered), else Ended | – | – |
//! | the waiter claims again | – | Led | – |
//! | the waiter leaves | – | as a drop of the guard | – |
//! | an explicit write | no longer current; waiters for a turn look again | Ended: all look again | – |
//! | it is overdue, a call claims | a new load; all look again | a new load; all look again | – |
//!
//! Beside its state, a load is *current* until a write revokes it, a newer load replaces it, or its
//! last run has ended. Only a current load stores its value, takes new waiters, or gets another
//! leader. When the run of a load that is no longer current ends, waiters that do not accept its
//! outcome look the key up again.
//!
//! # What becomes of a waiter
//!
//! | a waiter of | accepts | else, if the load is current |
//! |---------|---------|------------------------------|
//! | `get_with`, `lease` | a value | leads in its turn |
//! | `optionally_get_with`, `get_all_with` | a value, or that there is none | leads in its turn |
//! | `try_get_with` | a value, or an error of its type | leads in its turn |
//! | a compute | nothing: it wants a turn | leads in its turn |
//! | `get_all_with` while it has other keys to load or to wait for | a value, or that there is none | looks again |
//! | a refresh, whose future may not be polled for long | a value, or that there is none, or an error of its type | looks again |
//!
//! # Invariants
//!
//! 1. A load is known by its address, never by its key.
//! 2. A load is current only while it stands in the table of its key's shard. It becomes current,
//!    and ceases to be, in a hold of that shard's lock, so at most one load of a key is current.
//! 3. While a load is current, no other explicit write of its key happens: an explicit write
//!    revokes the load in the same critical section of the shard's lock.
//! 4. A load has one leader at most. When a leader has ended, the longest-waiting waiter leads
//!    next, as long as the load is current.
//! 5. The lock of a load's state is taken inside a shard's lock, never around it. No waker is
//!    called and no key or value is cloned, compared or dropped under either.
//! 6. A load that a write revokes while a run of it is at work stays in the table of its shard
//!    until that run ends. So its waiters can be woken when it becomes overdue.
//! 7. A load is listed before its leader's code reads anything (map 3).

mod bulk;
mod claim;
mod entry;
mod get_with;
mod guard;
mod key;
mod lease;
mod reload;
mod run;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod wait;

pub use entry::{EntrySelector, RefEntrySelector};
pub use key::ToKey;
pub use lease::{Filled, Lease, Leased};

pub(crate) use bulk::{CallGuards, Keys, load_together};
pub(crate) use claim::{Claim, Claimant, Over, Request};
pub(crate) use guard::{CallGuard, Ending, Guard, Home, Keyless, OwnedGuard};
pub(crate) use run::{error_of, fallible, lead};

use std::hash::{BuildHasher, Hash};

// Short names for the bounds that loads need on a cache's types. They are public only because
// public traits name them.

/// A key that can be loaded.
pub trait CacheKey: Hash + Eq + Clone + Send + Sync + 'static {}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> CacheKey for K {}

/// A value that can be loaded.
pub trait CacheValue: Clone + Send + Sync + 'static {}

impl<V: Clone + Send + Sync + 'static> CacheValue for V {}

/// A hasher of a cache that loads.
pub trait CacheHasher: BuildHasher + Send + Sync + 'static {}

impl<S: BuildHasher + Send + Sync + 'static> CacheHasher for S {}
