//! The bodies of the fuzz targets that use private parts: they run programs, decoded from bytes, on
//! a part and on a simple model. `src/lib.rs` includes them with `--cfg fuzzing` only; every string
//! of bytes is a program.

mod buffers;
mod list;
mod map;
mod policy;
mod script;

pub use buffers::buffers_against_queues;
pub use list::list_against_deques;
pub use map::map_against_sorted_map;
pub use policy::policy_against_map;

use crate::cache::Cache;
use crate::wheel::oracle;

/// Runs a program of wheel operations, decoded from `data`, beside a sorted map, and panics where
/// they differ.
pub fn wheel_against_oracle(data: &[u8]) {
    oracle::run(data);
}

impl<K, V, S> Cache<K, V, S> {
    /// Drains the waiting writes, then asserts the invariants of map, wheel and size policy, each
    /// and against each other.
    ///
    /// Call it only on a cache that no other thread uses.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.engine().check_invariants();
    }
}
