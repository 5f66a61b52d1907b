//! Loads: one run of user code at a time makes the value of a key; other calls wait for its
//! outcome.
//!
//! # One guard
//!
//! A call that misses [*claims*](claim) the key. In one hold of the shard's lock the claim confirms
//! that the key is absent or due, and joins the key's current load or lists a new one. The answer
//! is the key's value, or the [`guard`] of the load; a call that joins waits for its verdict: an
//! outcome that it accepts, the lead, or to claim again. The call that has the guard runs the
//! user's code, with no lock and no pin, and ends the guard by what the code has made: `fill`,
//! `fail`, `keep`, or `remove`. Dropping a guard hands the key on to the call that has waited
//! longest. [`get_with`], [`entry`], [`bulk`] and [`lease`] are thin over this; so are
//! `loading_cache` and its reloads ([`reload`]).
//!
//! What a load is, and which calls wait for it, stands below the map (`flight`).
//!
//! # The way of a miss
//!
//! What `get_with` does after a look-up that has found nothing, in order:
//!
//! 1. [`get_with`] makes a `Claimant`: the call, with its key and what it wants of the key.
//! 2. `Claimant::run_here` ([`run`]) calls `Claimant::begin` ([`claim`]), one transaction. Either
//!    the call leads from now on, and has a `Guard`; or the key has a value; or the call has joined
//!    the load of another call.
//! 3. A call that has joined waits: `Claimant::poll_claim` acts on the verdict for which
//!    `poll_verdict` waits ([`wait`]). Mostly that is a value.
//! 4. The call that leads runs its closure. What that has made is a `Made`.
//! 5. `conclude` ends the load by it: a value goes to `Guard::fill` ([`guard`]). This stores it by
//!    one transaction, `Engine::write`, and gives it to the calls that wait.
//!
//! A task takes the same way with `Claimant::run` in place of `run_here`.
//!
//! # Files
//!
//! | file | content |
//! |------|---------|
//! | [`claim`], [`wait`], [`guard`] | the begin of a load, the waits for it, and its end |
//! | [`run`] | what is the same for all methods, of threads and of tasks |
//! | [`get_with`], [`entry`], [`bulk`], [`lease`] | the methods of `Cache` |
//! | [`reload`] | loads over live entries, in the background |

mod bulk;
mod claim;
mod entry;
mod get_with;
mod guard;
mod key;
mod lease;
mod reload;
mod run;
pub(crate) mod wait;

pub use entry::{EntrySelector, RefEntrySelector};
pub use key::ToKey;
pub use lease::{Filled, Lease, Leased};

pub(crate) use bulk::{CallGuards, Keys, load_together};
pub(crate) use claim::{Claim, Claimant, Replaces, Request};
pub(crate) use guard::{CallGuard, Guard, OwnedGuard, ToCache};
pub(crate) use run::{error_of, fallible, lead};

use std::hash::Hash;

// Short names for the bounds that loads need on a cache's types. They are public only because
// public traits name them.

/// A key that can be loaded.
pub trait CacheKey: Hash + Eq + Clone + Send + Sync + 'static {}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> CacheKey for K {}

/// A value that can be loaded.
pub trait CacheValue: Clone + Send + Sync + 'static {}

impl<V: Clone + Send + Sync + 'static> CacheValue for V {}
