//! The operations of a cache, on the state that all its handles share.
//!
//! | file | content |
//! |------|---------|
//! | [`core`] | the shared state |
//! | [`handle`] | the handles, and which one is the last |
//! | [`lookup`] | the flow of all look-ups; [`many`]: batches of them |
//! | [`find`] | the live entry of a key |
//! | [`entry_ref`] | an entry under the pin of its look-up |
//! | [`extend`] | reads that move a deadline |
//! | [`transact`] | the one transaction on the entry of a key |
//! | [`mod@write`] | inserting, and deadlines set by hand |
//! | [`answer`] | the lifetime of the value that a write stores |
//! | [`condition`] | whether a write may be made |
//! | [`remove`] | taking entries out |
//! | [`restore`] | putting entries of a snapshot back |
//! | [`refresh`] | when an entry becomes stale |
//! | [`loads`] | the view for calls that load; loads that last for too long |
//! | [`lifetimes`] | the policy and the limits of a cache |
//!
//! An operation walks from here to the map and from there to the node. It leaves an event in a
//! buffer, and now and then does a little maintenance.

mod answer;
mod condition;
mod core;
mod entry_ref;
mod extend;
mod find;
mod handle;
mod lifetimes;
mod loads;
mod lookup;
mod many;
mod refresh;
pub(crate) mod remove;
pub(crate) mod restore;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod transact;
pub(crate) mod write;

pub(crate) use self::core::{Core, Weigher};
pub(crate) use condition::{Check, OnlyOver, WriteCondition, Written};
pub use entry_ref::EntryRef;
pub(crate) use handle::{Handle, Visit, WeakHandle};
pub(crate) use lifetimes::{FromLoad, LifetimeSource, Lifetimes, Limits};
pub(crate) use loads::LoadView;
pub(crate) use lookup::{Cloned, Contained, Lookup, Referenced, Timed};
pub(crate) use refresh::{NextRefresh, set_refresh};
pub(crate) use restore::Remaining;
pub(crate) use transact::{Change, Hold};
