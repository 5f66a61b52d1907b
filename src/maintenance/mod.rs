//! Maintenance: the work on a cache that its operations leave for later.
//!
//! Writes change the map at once and leave an event in their shard's batch. A *pass* applies the
//! events to the timer wheel and to the size policy, removes entries that are due and victims of
//! the size policy, collects notifications for the listener, and frees memory.
//!
//! # How a pass works
//!
//! A pass holds the maintenance lock and works against a budget ([`plan`]). In order
//! ([`pass`]):
//!
//! 1. *start drain*: if the grace period of what was retired is over, this pass begins a drain
//!    ([`freeing`]);
//! 2. *drain*: the read rings go to the size policy, and the batches of the shards, in turn, to the
//!    wheel and the size policy;
//! 3. *expire*: what the wheel finds due leaves the map as `Expired`;
//! 4. *evict*: while the cache is over its bound, what else is due leaves, then the victims of the
//!    size policy;
//! 5. *seal*: a grace period begins for what has left; notifications are posted.
//!
//! A pass stops where its budget ends, and the next one continues from there. Listeners, and the
//! destructors of keys and values, run after the lock was released.
//!
//! # Which threads run passes
//!
//! - The scheduler thread ([`MaintenanceView::run_due`](root::MaintenanceView::run_due)) and
//!   `run_pending_tasks` ([`MaintenanceView::finish`](root::MaintenanceView::finish)), many passes
//!   in a row ([`runs`]).
//! - A writer whose batch has reached the soft limit runs one small pass, unless another thread
//!   holds the lock ([`writers`]).
//! - If too many events or unfreed values wait, a writer waits for a pass, or runs one
//!   ([`backlog`]).
//! - Where no thread wakes the cache (`Scheduler::disabled`), callers also remove what is due, a
//!   few entries at a time.
//!
//! # Invariants
//!
//! 1. The wheel, the size policy, and the entries change under the maintenance lock only.
//! 2. The events of a shard are applied in the order in which they were pushed. A batch that was
//!    taken is applied whole before the lock is released.
//! 3. A node is retired when three things have happened: it has left the map; it has left the wheel
//!    and the queues, or another node has taken over its entry; and the listener was called for it.
//!    It is freed after a grace period that is followed by a complete drain of all rings and all
//!    batches. A batch may name a node that a pass has removed meanwhile (`Rescheduled`), a ring
//!    any node.
//! 4. A node is Dead exactly from the moment at which a pass has unlinked its entry everywhere, and
//!    Succeeded from the moment at which another node has its entry.
//! 5. A pass runs no user code but the ticker's. If that panics, the pass continues with the last
//!    time it knows, leaves everything whole, and resumes the panic at its end.
//!
//! # Cost
//!
//! A unit of the budget costs one to three cache misses. The budget bounds how long the lock is
//! held.

mod backlog;
#[cfg(any(test, fuzzing))]
#[path = "../../checks/maintenance.rs"]
mod check;
mod close;
mod delivery;
mod free;
mod freeing;
mod goal;
mod limits;
mod outcome;
mod pass;
mod plan;
mod root;
mod runs;
mod state;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod tidy;
mod waking;
mod walk;
mod watchdog;
mod writers;

pub(crate) use outcome::WriteOutcome;
pub(crate) use root::{Maintenance, Setup};
