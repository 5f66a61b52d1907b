//! Entry points for the fuzz targets, which live in a package of their own. They run programs,
//! decoded from bytes, on private parts and on a simple model. Compiled with `--cfg fuzzing` only;
//! every string of bytes is a program.

mod buffers;
mod list;
mod map;
mod policy;
mod script;

pub use crate::wheel::fuzzing::wheel_against_oracle;
pub use buffers::buffers_against_queues;
pub use list::list_against_deques;
pub use map::map_against_sorted_map;
pub use policy::policy_against_map;

use crate::cache::Cache;

impl<K, V, S> Cache<K, V, S> {
    /// Drains the waiting writes, then asserts the invariants of map, wheel and size policy, each
    /// and against each other.
    ///
    /// Call it only on a cache that no other thread uses.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        self.core.maintenance.check_invariants(&self.core.shared);
    }
}
