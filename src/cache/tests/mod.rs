//! What takes a look inside: a coarse time that is set by hand, the shard of a key, a table's
//! chains, which slots nodes take, which way a look-up goes.

#[cfg(not(wheelhouse_shuttle))]
mod chains;
mod coarse;
#[cfg(not(wheelhouse_shuttle))]
mod one_shard;
#[cfg(not(any(fuzzing, wheelhouse_shuttle)))]
mod refused_memory;
#[cfg(not(any(fuzzing, wheelhouse_shuttle, wheelhouse_single)))]
mod slot_order;
#[cfg(not(wheelhouse_shuttle))]
mod swift;
