//! Loads: one run of user code at a time makes the value of a key; other calls wait for its
//! outcome.
//!
//! All methods go one way. The call *claims* its key. If it leads a load, it *runs* its code, with
//! no lock and no pin, and *ends* the load by what that has made. Else it *waits* for the load of
//! another call. `DESIGN.md` draws each step, and has the question that each type answers.
//!
//! What a load is, and which calls wait for it, stands below the map (`flight`). Here `claim`,
//! `wait` and `guard` have its begin, the waits for it and its end; `run` what all methods share.

mod bulk;
mod claim;
mod entry;
mod get_with;
mod guard;
mod key;
mod lease;
mod reload;
mod run;
pub(crate) mod wait;

pub use entry::{EntrySelector, RefEntrySelector};
pub use key::ToKey;
pub use lease::{Filled, Lease, Leased};

pub(crate) use bulk::{CallGuards, Keys, load_together};
pub(crate) use claim::{Claim, Claimant, May, Replaces};
pub(crate) use guard::{Guard, OwnedGuard, ToCache};
pub(crate) use run::{error_of, fallible, lead, settled};

/// What loads need of keys and of values alike: a short name of these bounds. It is public only
/// because bounds of public traits name it.
pub trait Loadable: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Loadable for T {}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
