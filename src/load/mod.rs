//! Loads: one run of user code at a time makes the value of a key; other calls wait for its
//! outcome.
//!
//! # The way of a miss
//!
//! What `get_with` does after a look-up that has found nothing:
//!
//! 1. [`get_with`] makes a `Claimant`: the call, with its key and what it wants of the key.
//! 2. This [*claims*](claim) the key, by one transaction. Either the key has a value by now; or the
//!    call leads a new load, and has its [`guard`]; or it joins the key's current load.
//! 3. A call that joins [waits](wait) for its verdict: an outcome that it accepts, the lead, or to
//!    claim again.
//! 4. The call that leads [runs](run) its closure, with no lock and no pin.
//! 5. It ends the guard by what that has made: `fill` stores a value and gives it to the calls that
//!    wait; else it is `fail`, `keep` or `remove`. Dropping a guard hands the key on to the call
//!    that has waited longest.
//!
//! [`entry`], [`bulk`] and [`lease`] are thin over the same steps; so is `loading_cache`. What a load is, and which calls wait for it, stands below the map
//! (`flight`).
//!
//! # Files
//!
//! | file | content |
//! |------|---------|
//! | [`claim`], [`wait`], [`guard`] | the begin of a load, the waits for it, and its end |
//! | [`run`] | what is the same for all methods, of threads and of tasks |
//! | [`get_with`], [`entry`], [`bulk`], [`lease`] | the methods of `Cache` |
//! | [`reload`] | what is special about a load over a live entry, in the background |

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
