//! Loads: one run of user code at a time makes the value of a key; others wait for its outcome.
//!
//! This folder is the part below the map: the state of one load ([`state`]), the loads of a shard
//! by their hashes ([`table`]), and the search for cycles of threads that would wait for each
//! other ([`cycle`]). The folder knows neither map nor cache. The calls that load are in `loading`.
//!
//! # Invariants
//!
//! 1. A load is known by its address, never by its key.
//! 2. A load stands in the table of its key's shard exactly while it is current. Both change in one
//!    hold of that shard's lock, so at most one load of a key is current.
//! 3. While a load is current, no other explicit write of its key happens: an explicit write
//!    revokes the load in the same critical section of the shard's lock.
//! 4. A load has one leader at most. When a leader has ended, the longest-waiting waiter leads
//!    next, as long as the load is current.
//! 5. The lock of a load's state is taken inside a shard's lock, never around it. No waker is
//!    called and no key or value is cloned, compared or dropped under either.
//! 6. A load that a write revokes while a run of it is at work stands among the revoked loads of
//!    its shard until that run ends. So its waiters can be woken when it becomes overdue.

mod cycle;
mod state;
mod table;

pub(crate) use cycle::{BlockingCall, WaitCycle, note_wait, thread_number, wait_in};
pub(crate) use state::{
    AfterCommit, Failure, Load, Outcome, RevokedBy, SharedValue, Ticket, Verdict, Want, wake_all,
};
pub(crate) use table::{Loads, SameHashLoads};
