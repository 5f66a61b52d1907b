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
//! go this one way. The state of a load, and the invariants that hold across all of this, are in
//! `load`.
//!
//! # Reloads
//!
//! A cache that reloads entries before they are due uses the same way: [`LoadView::begin_reload`]
//! lists a load over a stale entry, or says that the key has a load or no such entry. The [`Right`]
//! that it returns is the right to reload, as a value that keeps no cache alive: [`Right::finish`]
//! commits the outcome unless an explicit write came since, and dropping the right counts as a
//! failure. A miss that comes meanwhile joins the reload.
//!
//! [`LoadView::begin_reload`]: crate::operations::LoadView::begin_reload

mod begin;
mod bounds;
mod bulk;
mod commit;
mod compute;
mod conditional;
mod entry;
mod form;
mod get_with;
mod got;
mod key;
mod lease;
mod poll;
mod reload;
mod run;
mod seek;

pub use entry::{EntrySelector, RefEntrySelector};
pub use lease::{Filled, Lease, Leased};

pub(crate) use begin::{LoadRequest, Role};
pub(crate) use bounds::{CacheHasher, CacheKey, CacheValue};
pub(crate) use bulk::{Keys, wrong_number_of_values};
pub(crate) use commit::Lead;
pub(crate) use form::{error_of, fallible};
pub(crate) use got::Got;
pub(crate) use key::ByRef;
pub(crate) use poll::Loading;
pub(crate) use reload::{ReloadResult, Right, leave, pass_on};
pub(crate) use run::{End, Made};
pub(crate) use seek::RoleSearch;
