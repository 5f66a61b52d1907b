//! Checks by callers for a scheduler thread or a listener thread that is missing or stuck.
//!
//! A cache relies on the scheduler thread and on the listener threads. A child made by `fork` has
//! neither. A destructor or a ticker of another cache may hold up the scheduler thread. Writers,
//! and readers that meet an entry that is due, check for both now and then ([`Waking`]): in a new
//! process they request a run, which starts a new thread; if the thread is late by far, they run a
//! pass themselves.
//!
//! [`Waking`]: super::waking::Waking

use super::plan::Plan;
use super::root::MaintenanceView;
use super::writers::UserCode;

impl<K, V> MaintenanceView<'_, K, V> {
    /// Checks for the threads if it is time to, and does a part of their work if need be.
    #[inline]
    pub(super) fn check_threads(self, now: u64, allowed: UserCode) {
        let waking = &self.maintenance.waking;
        if waking.needs_check(now) && !waking.check(now) && allowed >= UserCode::Destructors {
            self.run_for_stuck_thread();
        }
    }

    /// One pass in place of the scheduler thread. Not if that thread, or another, holds the
    /// maintenance lock: callers hardly ever wait for it here.
    #[cold]
    fn run_for_stuck_thread(self) {
        if self.maintenance.state.try_lock().is_some() {
            self.run_pass(Plan::RUN, |_| ());
        }
        if self.maintenance.has_listener() {
            self.offer_delivery();
        }
    }
}
