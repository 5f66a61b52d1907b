//! The events that callers leave for the maintenance pass: write events, which are never lost, and
//! read events, which may be.
//!
//! | event | meaning | lost? | stored in |
//! |-------|---------|-------|-----------|
//! | [`WriteEvent`] | the map has changed | never | the shard's [`Batch`], under its lock |
//! | a node in a read ring | it was read | if the ring is full or contended | [`rings`](read) |
//!
//! A write event is pushed under the lock that orders the writes of its shard. So a batch holds the
//! events of each key in the order in which they happened.

pub(crate) mod read;
pub(crate) mod write;

pub(crate) use write::{Batch, WriteEvent};
