//! What a caller leaves for the maintenance pass: write events, which are never lost, and read
//! events, which may be.
//!
//! | event | says | lost? | kept in |
//! |-------|------|-------|---------|
//! | [`WriteEvent`] | the map was changed | never | the shard's [`Batch`], pushed under the shard's lock |
//! | a node in a read ring | it was read | when the ring is full or contended | striped [`rings`](read) |
//!
//! Because a write event is pushed under the same lock that orders the writes of a shard, a batch
//! holds the events of each key in the order in which they happened.

pub(crate) mod read;
pub(crate) mod write;

pub(crate) use write::{Batch, WriteEvent};
