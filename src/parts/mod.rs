//! Doors for the benchmarks of this repository, which live in a package of their own: private
//! parts, each by itself. Compiled with the feature `parts` only, and no part of the public
//! contract: any version may change it.
//!
//! Each door owns the nodes that its part hangs up, so that its calls are safe in any order. None
//! is meant for two threads.

mod map;
mod nodes;
mod order;
mod reads;
mod timers;
mod writes;

pub use map::Table;
pub use order::Order;
pub use reads::Reads;
pub use timers::Timers;
pub use writes::Writes;
