//! Loads under way: what a load is, which calls wait for it, and which loads the keys of a shard
//! have. Below the map: a write finds the load of its key in the hold of the lock that makes it.
//!
//! | file | content |
//! |------|---------|
//! | `load` | one load: its leader, its phase, its end |
//! | `waiters` | the calls that wait for it, and what they were told |
//! | `turns` | whose turn comes next, of the calls that want to run their own code |
//! | `table` | the current loads of a shard |
//! | `timeouts` | the loads for which calls wait, by the moment at which they become overdue |
//!
//! # The states of a load
//!
//! | what happens | Led: a guard is out | Offered: a waiter was offered the lead | Ended |
//! |-------|------|---------|------|
//! | a call claims the key | joins | joins; or it is a compute, and passes another one whose thread sleeps: Led | a new load |
//! | `fill` | the value is stored and published; a waiter that wants a turn is offered the lead (Offered), else Ended | – | – |
//! | `fail`, `keep`, `remove`, drop | published to the waiters that accept it; the first of the others is offered the lead (Offered), else Ended | – | – |
//! | the waiter claims again | – | Led; if it meets a due entry, that leaves first, as by an explicit write | – |
//! | the waiter leaves | – | as a drop of the guard | – |
//! | an explicit write | no longer current; the first waiter for a turn looks again | Ended: all look again | – |
//! | it is overdue, a call claims | a new load; all look again | a new load; all look again | – |
//!
//! Of the waiters for a turn, one at a time looks again (`turns`). A refresh does not look again
//! when a new load takes the place of an overdue one: it is moved there.
//!
//! Beside its state, a load is *current* until a write revokes it, a newer load replaces it, or its
//! last run has made its write or ended without one. Only a current load stores its value, takes
//! new waiters, or gets another leader. When the run of a load that is no longer current ends,
//! waiters that do not accept its outcome look the key up again.
//!
//! # Invariants
//!
//! 1. A load is known by its address, never by its key.
//! 2. A load is current only while it stands in the table of its key's shard. It becomes current,
//!    and ceases to be, in a hold of that shard's lock, so at most one load of a key is current.
//! 3. While a load is current, no other explicit write of its key happens: an explicit write
//!    revokes the load in the same critical section of the shard's lock.
//! 4. A load has one leader at most. When a leader has ended, the longest-waiting waiter leads
//!    next, as long as the load is current. Among computes, one whose thread is awake may come
//!    before those that sleep, a bounded number of times.
//! 5. The lock of a load's state is taken inside a shard's lock, never around it. No waker is
//!    called and no key or value is cloned, compared or dropped under either.
//! 6. A load is listed before its leader's code reads anything (map 3).

mod load;
mod table;
mod timeouts;
mod turns;
mod waiters;

pub(crate) use load::{AfterRun, Load, Outcome, RevokedBy, Verdict, Want};
pub(crate) use table::{FIRST_PLACE, Loads, RevokedLoads};
pub(crate) use timeouts::Timeouts;
pub(crate) use turns::MOST_SPIN;
