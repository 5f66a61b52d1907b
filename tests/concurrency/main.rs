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

static PROCESSORS: RwLock<()> = RwLock::new(());

/// Held by a test that needs all processors.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESSORS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test whose work and bounds are the same on a busy machine.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    PROCESSORS.read().unwrap_or_else(PoisonError::into_inner)
}
