//! placeholder

mod bulk;
mod claim;
mod compute;
pub(crate) mod cycle;
mod entry;
mod form;
mod future;
mod get_with;
mod guard;
mod key;
mod lease;
mod reload;
pub(crate) mod state;
pub(crate) mod table;

pub use entry::{EntrySelector, RefEntrySelector};
pub use lease::{Filled, Lease, Leased};

pub(crate) use bulk::{Keys, wrong_number_of_values};
pub(crate) use claim::{Claim, Claimant, Request};
pub(crate) use form::{Run, conclude, error_of, fallible};
pub(crate) use guard::{CallGuard, Guard, OwnedGuard, Seen};
pub(crate) use key::{ByRef, CacheHasher, CacheKey, CacheValue};
