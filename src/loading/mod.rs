//! The calls that load: one closure at a time for each key, whatever the method.
//!
//! # How it works
//!
//! A call that finds no live entry [`begin`]s: in one hold of the shard's lock it confirms that the
//! key is absent or due, and either joins the key's current load or lists one of its own. A leader
//! runs the user's code with no lock and no pin ([`run`] for threads, [`poll`] for tasks), then
//! [`commit`]s: in one hold of the shard's lock the value is stored if the load is still current.
//! Then the outcome is published and waiters wake. A waiter takes its value from the load.
//!
//! [`get_with`], [`bulk`], [`entry`], [`compute`] and [`lease`] are the public methods; all of them
//! go this one way. Loads that last for too long are [`overdue`]. The state of a load, and the
//! invariants that hold across all of this, are in `load`.
//!
//! # Reloads
//!
//! A cache that reloads entries before they are due uses the same way: [`Core::begin_reload`] lists
//! a load over a live entry, or says that the key has a load or no live entry. The [`Lead`] that it
//! returns is the right to reload: [`Lead::commit`] stores a value unless an explicit write came
//! since, and dropping the lead gives the right back. A miss that comes meanwhile joins it.
//!
//! [`Core::begin_reload`]: crate::cache::Core::begin_reload

mod begin;
mod bulk;
mod commit;
mod compute;
mod conditional;
mod entry;
mod get_with;
mod key;
mod lease;
mod overdue;
mod poll;
mod run;

pub use entry::{EntrySelector, RefEntrySelector};
pub use lease::{Filled, Lease, Leased};

#[allow(unused_imports, reason = "the entrance for a cache that reloads")]
pub(crate) use commit::{Committed, Lead};
