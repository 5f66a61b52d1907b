//! Tests that read private state: the shard of a key, a table's chains,
//! the slots that nodes take, the path of a look-up.

#[cfg(not(wheelhouse_shuttle))]
mod chains;
#[cfg(not(wheelhouse_shuttle))]
mod coarse;
#[cfg(not(wheelhouse_shuttle))]
mod destructors;
#[cfg(not(wheelhouse_shuttle))]
mod fast_path;
#[cfg(not(wheelhouse_shuttle))]
mod one_shard;
#[cfg(not(any(fuzzing, wheelhouse_shuttle)))]
mod refused_memory;
#[cfg(not(wheelhouse_shuttle))]
mod replacement;
#[cfg(not(any(fuzzing, wheelhouse_shuttle, wheelhouse_single)))]
mod slot_order;
#[cfg(not(wheelhouse_shuttle))]
mod unheard;
