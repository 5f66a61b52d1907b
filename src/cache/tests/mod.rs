//! What takes a look inside: a coarse time that is set by hand, the shard of a key, a table's chains, where nodes stand, which way a look-up
//! goes.

#[cfg(not(wheelhouse_shuttle))]
mod chains;
mod coarse;
#[cfg(not(any(fuzzing, wheelhouse_shuttle, wheelhouse_single)))]
mod memory_order;
#[cfg(not(wheelhouse_shuttle))]
mod one_shard;
#[cfg(not(wheelhouse_shuttle))]
mod swift;
