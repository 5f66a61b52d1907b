//! Threads that use a cache at full speed. A test that measures what full speed leads to, or that
//! works for a fixed time, has all processors to itself, so these tests have a program of their
//! own. Those that do a fixed amount of work run beside each other.

mod balance;
mod cost_of_loads;
mod excess_at_full_speed;
mod excess_between_passes;
mod order_of_notifications;
mod panics;
mod stalled_maintenance;
mod stress;
#[path = "../support/mod.rs"]
mod support;
mod table_growth;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

/// Events in a shard's batch at which its writers wait for maintenance.
const BATCH_HARD_LIMIT: u64 = 1_024;

fn cores() -> usize {
    thread::available_parallelism().map_or(4, usize::from)
}

/// How many shards a large cache has: one for each of sixteen parts, if the tests run with so many
/// (`ci/parts.sh`).
fn shards() -> u64 {
    let least = if cfg!(wheelhouse_parts) { 16 } else { 1 };
    (4 * cores()).next_power_of_two().clamp(least, 1024) as u64
}

static PROCESSORS: RwLock<()> = RwLock::new(());

/// Held by a test that needs all processors.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESSORS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test whose work and bounds are the same on a busy machine.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    PROCESSORS.read().unwrap_or_else(PoisonError::into_inner)
}
