//! Private parts of the cache, one by one, for the benchmarks of this repository, which live in a
//! package of their own. Compiled under `cfg(wheelhouse_parts)` only, and no part of the public
//! contract: any version may change it.
//!
//! Each type here owns the nodes that its part links, so its calls are safe in any order. None is
//! meant for several threads.

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
