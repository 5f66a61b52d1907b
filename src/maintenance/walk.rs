//! The order in which the size policy would evict entries, for snapshots and views.

use super::plan::Plan;
use super::root::MaintenanceView;
use crate::eviction::Walk;
use crate::node::EntryPtr;
use crate::sync::unlock_fairly;

/// Entries visited under one hold of the maintenance lock.
const ENTRIES_PER_HOLD: usize = 512;

impl<K, V> MaintenanceView<'_, K, V> {
    /// Visits at most `most` entries that the size policy knows, from the first victim to the last;
    /// none in a cache without a bound. The lock is given up after some hundred entries, so the
    /// policy changes meanwhile: an entry may be visited twice or not at all. `visit` runs under
    /// the lock and must not run user code. Walks take turns.
    pub(crate) fn walk_by_eviction(self, most: usize, mut visit: impl FnMut(EntryPtr<K, V>)) {
        // Drain the buffers first, so that the order is up to date. Do this before locking `walks`:
        // it runs destructors, and a destructor may begin a walk.
        self.run_all(Plan {
            expire: false,
            seal: false,
            ..Plan::RUN
        });
        let _turn = self.maintenance.walks.lock();
        let mut state = self.maintenance.state.lock();
        let (mut walk, mut left) = (Walk::default(), most);
        while left > 0
            && let Some(eviction) = &mut state.eviction
            && eviction.walk(&mut walk, left.min(ENTRIES_PER_HOLD), &mut visit)
        {
            left = left.saturating_sub(ENTRIES_PER_HOLD);
            unlock_fairly(state);
            state = self.maintenance.state.lock();
        }
    }
}
