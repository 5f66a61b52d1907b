//! Threads that use a cache at full speed. A test that takes all processors runs alone, so these
//! tests have a program of their own. Those that work on one thread run beside each other.

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

/// Held by a test that takes all processors.
fn alone() -> RwLockWriteGuard<'static, ()> {
    PROCESSORS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that works on one thread.
fn on_one_processor() -> RwLockReadGuard<'static, ()> {
    PROCESSORS.read().unwrap_or_else(PoisonError::into_inner)
}
