//! Loads: one run of user code at a time makes the value of a key; other calls wait for its
//! outcome.
//!
//! All methods go one way. The call *claims* its key. If it leads a load, it *runs* its code, with
//! no lock and no pin, and *ends* the load by what that has made. Else it *waits* for the load of
//! another call. `DESIGN.md` draws each step. Methods of `Cache` and of `LoadingCache`, of threads
//! and of tasks, differ in what they claim for and in what they make of the end.
//!
//! # Questions and answers
//!
//! In the order of the way:
//!
//! | type | the question that it answers | asked by |
//! |---|---|---|
//! | `Want` | which outcomes of another call's run does this call accept? | `Load::end`, for each call that waits |
//! | [`Runs`] | where does its own code run: here, or in a task or on a reload thread? | [`Claimant::begin`] |
//! | [`Replaces`] | over which live entry may its own code run? | `Begin::apply` |
//! | `Decision`, `Tried` | does a change go on, or again? | each transaction |
//! | `Begun` | what has the transaction done: does the call lead, or wait? | [`Claimant::begin`] |
//! | `Verdict` | what is a call told that waits? | `Claimant::poll_claim` |
//! | [`Claim`] | what has the call got: a value, a failure, or the guard of its own load? | the methods |
//! | `Phase` | is a leader at work? | each change of a load |
//! | `Ran` | has the call's own code run? | the methods |
//! | `Made` | what has that made? | `conclude` |
//! | `Condition` | may the value be stored? | [`Guard::fill`] |
//! | `Outcome` | what do the calls hear that wait? | `Load::end` |
//! | `Commit` | was its write made? | the methods |
//!
//! What a load is, and which calls wait for it, stands below the map (`flight`). Here `claim`,
//! `wait` and `guard` have its begin, the waits for it and its end; `run` what all methods share.

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
pub(crate) use claim::{Claim, Claimant, Replaces, Runs};
pub(crate) use guard::{Guard, OwnedGuard, ToCache};
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
