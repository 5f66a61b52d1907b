//! Frees what is ready, with no lock held.
//!
//! Which thread frees:
//!
//! - a run, after each of its passes;
//! - a writer, after each pass that it runs, about as many items as that pass has applied events;
//! - a writer that waits until fewer values are unfreed ([`MaintenanceView::await_reclaim`]).

use super::backlog::Backlog;
use super::freeing::MAX_GRACE_WAIT;
use super::limits::RUN_BUDGET;
use super::plan::Plan;
use super::root::MaintenanceView;
use super::runs::SHORTEST_NAP;
use crate::listener::inside_listener;
use crate::map::Garbage;
use crate::reclaim::{self, Ready};
use crate::sync::{nap, yield_now};
use std::time::Instant;

/// How often a writer that waits for a grace period yields its processor before it takes naps.
const YIELDS_BEFORE_NAPS: usize = 64;

impl<K, V> MaintenanceView<'_, K, V> {
    /// Runs the destructors of what is ready, and gives its memory back. With no lock held.
    pub(super) fn free(self, mut ready: Ready<Garbage<K, V>>) {
        if ready.is_empty() {
            return;
        }
        let items = ready.len();
        let shared = self.shared;
        shared.map.take_back(ready.free(|| shared.map.returning()));
        self.maintenance.backlog.note_freed(items);
        // The emptied containers are not worth a wait.
        if let Some(mut state) = self.maintenance.state.try_lock() {
            state.freeing.retired.reuse(ready);
        }
    }

    /// If more removed values are unfreed than the limit allows, a writer waits until there are
    /// fewer, and frees some of them itself.
    ///
    /// Does nothing inside a destructor or a listener, or if the thread is pinned: it would wait
    /// for itself. Not for a grace period for which a writer has waited in vain.
    #[inline]
    pub(super) fn await_reclaim(self) {
        let bound = self.shared.max_capacity();
        let most = bound.map_or(usize::MAX, Backlog::max_unfreed);
        if self.maintenance.backlog.unfreed() > most
            && !reclaim::is_freeing()
            && !inside_listener()
            && !self.shared.domain.is_pinned()
        {
            self.await_unfreed(most);
        }
    }

    #[cold]
    fn await_unfreed(self, most: usize) {
        let maintenance = self.maintenance;
        let began = Instant::now();
        let mut yields = 0;
        while maintenance.backlog.unfreed() > most {
            if yields < YIELDS_BEFORE_NAPS {
                yields += 1;
                // Lets other threads run, among them one that was preempted while it held a pin.
                yield_now();
            } else {
                nap(SHORTEST_NAP);
            }
            let Some(mut state) = maintenance.state.try_lock() else {
                if began.elapsed() > MAX_GRACE_WAIT {
                    return;
                }
                continue;
            };
            if state.freeing.wait_expired {
                return;
            }
            maintenance
                .pass(self.shared, &mut state, Plan::AWAIT_RECLAIM)
                .run();
            let ready = state.freeing.retired.take_ready(RUN_BUDGET);
            if ready.is_empty() && began.elapsed() > state.freeing.grace_wait {
                state.freeing.give_up();
                return;
            }
            drop(state);
            self.free(ready);
        }
    }
}
