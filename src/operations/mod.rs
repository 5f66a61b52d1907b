//! The operations of a cache, on the state that all its handles share.
//!
//! | file | content |
//! |------|---------|
//! | [`core`] | the shared state, and references to it that are no handle |
//! | [`lookup`] | the flow of all look-ups; [`many`]: batches of them |
//! | [`find`] | the live entry of a key, and a reference to it under a pin |
//! | [`extend`] | deadlines that move: by reads, or by hand |
//! | [`transact`] | the one transaction on the entry of a key |
//! | [`mod@write`] | inserting; whether a write may be made; when its value becomes stale |
//! | [`remove`] | taking entries out |
//! | [`restore`] | putting entries of a snapshot back |
//! | [`lifetimes`] | the policy and the limits of a cache; the lifetime of a value that comes in |
//!
//! An operation walks from here to the map and from there to the node. It leaves an event in a
//! buffer, and now and then does a little maintenance.

mod core;
pub(crate) mod extend;
mod find;
mod lifetimes;
mod lookup;
mod many;
pub(crate) mod remove;
pub(crate) mod restore;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod transact;
pub(crate) mod write;

pub(crate) use self::core::{Core, ForgetFailure, Visit, WeakHandle, Weigher};
pub use find::EntryRef;
pub(crate) use lifetimes::{FromLoad, LifetimeSource, Lifetimes, Limits};
pub(crate) use lookup::{Cloned, Lookup, Referenced, Timed};
pub(crate) use restore::Kept;
pub(crate) use transact::{Change, Hold};
pub(crate) use write::{Condition, NextRefresh, set_refresh};
