//! The loads for which calls wait, in the order in which they become overdue.

use super::load::Load;
use crate::sync::{Mutex, Ordering};
use crate::time::{self, NEVER};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// By the moment, as its distance from cache time 0, which a clock that runs backwards may pass
/// (time 1); and by the load's address. Weak: a load that has ended may stand here until its
/// moment.
type ByMoment<K, V> = BTreeMap<(i64, usize), Weak<Load<K, V>>>;

/// Of one cache with a `load_timeout`.
pub(crate) struct Timeouts<K, V> {
    /// How old a load may become before another one may replace it.
    pub(crate) most: Duration,
    loads: Mutex<ByMoment<K, V>>,
}

/// The place of a load that becomes overdue at `due`.
fn place<K, V>(load: &Arc<Load<K, V>>, due: u64) -> (i64, usize) {
    (due as i64, Arc::as_ptr(load).addr())
}

impl<K, V> Timeouts<K, V> {
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            most,
            loads: Mutex::new(BTreeMap::new()),
        }
    }

    /// A load for which calls wait becomes overdue at `due`.
    pub(crate) fn list(&self, load: &Arc<Load<K, V>>, due: u64) {
        let mut loads = self.loads.lock();
        let former = load.listed.swap(due, Ordering::Relaxed);
        if former != due {
            if former != NEVER {
                loads.remove(&place(load, former));
            }
            loads.insert(place(load, due), Arc::downgrade(load));
        }
    }

    /// Seemingly no call waits for a load any more.
    pub(crate) fn remove(&self, load: &Arc<Load<K, V>>) {
        // Most loads were never listed.
        if load.listed.load(Ordering::Relaxed) == NEVER {
            return;
        }
        let mut loads = self.loads.lock();
        // A call joins before it lists the load: the lock shows one that has listed it just now.
        if load.has_waiters() {
            return;
        }
        let former = load.listed.swap(NEVER, Ordering::Relaxed);
        if former != NEVER {
            loads.remove(&place(load, former));
        }
    }

    /// Takes out the loads that are overdue at `now`; says when the next one becomes overdue.
    pub(crate) fn take_overdue(&self, now: u64) -> (Vec<Arc<Load<K, V>>>, Option<u64>) {
        let mut overdue = Vec::new();
        let mut loads = self.loads.lock();
        while let Some(first) = loads.first_entry() {
            let due = first.key().0 as u64;
            if !time::is_due(now, due) {
                return (overdue, Some(due));
            }
            if let Some(load) = first.remove().upgrade() {
                load.listed.store(NEVER, Ordering::Relaxed);
                overdue.push(load);
            }
        }
        (overdue, None)
    }
}

#[cfg(all(test, not(wheelhouse_loom), not(wheelhouse_shuttle)))]
mod tests;
