//! Threads that use a cache at full speed. Each test takes all processors, so these tests have a
//! program of their own and run one after the other.

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

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
