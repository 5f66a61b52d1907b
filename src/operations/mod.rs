//! The operations of a cache: methods of its [`Engine`](crate::engine::Engine), which get the hash
//! of a key with it.
//!
//! | file | content |
//! |------|---------|
//! | [`find`] | the flow of all look-ups, and the reference that they return; [`many`]: batches |
//! | [`extend`] | deadlines that move: by reads, or by hand |
//! | [`transact`] | the one transaction on the entry of a key |
//! | [`mod@write`] | inserting; whether a write may be made; when its value becomes stale |
//! | [`remove`] | taking entries out |
//! | [`restore`] | putting entries of a snapshot back |
//!
//! An operation walks from here to the map and from there to the node. It leaves an event in a
//! buffer, and now and then does a little maintenance.

mod extend;
mod find;
mod many;
mod remove;
mod restore;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod transact;
mod write;

pub use find::EntryRef;
pub(crate) use transact::{Change, Decision, FoundLoads, Tried};
pub(crate) use write::{Condition, NextRefresh, Written, set_refresh};
