//! What takes a look inside: a coarse time that is set by hand, the shard of a key.

mod coarse;
#[cfg(not(wheelhouse_shuttle))]
mod one_shard;
