//! Checks by callers for a scheduler thread that is stuck.
//!
//! A destructor or a ticker of another cache may hold up the scheduler thread. Writers, and readers
//! that meet an entry that is due, check for that now and then ([`Waking`]): if the thread is late
//! by far, they run a pass themselves.
//!
//! [`Waking`]: super::waking::Waking

use super::plan::Plan;
use super::root::MaintenanceView;
use super::writers::UserCode;

impl<K, V> MaintenanceView<'_, K, V> {
    /// Checks the thread if it is time to, and does a part of its work if need be.
    #[inline]
    pub(super) fn check_thread(self, now: u64, allowed: UserCode) {
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
