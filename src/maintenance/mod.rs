//! Maintenance: the work on a cache that its operations leave for later.
//!
//! Writes change the map at once and leave an event in their shard's batch. A *pass* applies the
//! events to the timer wheel and to the size policy, removes entries that are due and victims of
//! the size policy, collects notifications for the listener, and frees memory.
//!
//! # How a pass works
//!
//! A pass holds the maintenance lock and works against a budget ([`Plan`]). In order
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
//! - The scheduler thread ([`MaintenanceView::run_due`]) and `run_pending_tasks`
//!   ([`MaintenanceView::finish`]), many passes in a row ([`runs`]).
//! - A writer whose batch has reached the soft limit runs one small pass, unless another thread
//!   holds the lock ([`writers`]).
//! - If too many events or unfreed values wait, a writer waits for a pass, or runs one.
//! - Where no thread wakes the cache (`Scheduler::disabled`), callers also remove what is due, a
//!   few entries at a time.
//!
//! # The end of a cache
//!
//! Threads that work on a cache without a handle reach it through a gate (`scheduler/gate.rs`). The
//! drop of the last handle closes it to all but threads that deliver, and waits until the others
//! have left: a run ends after its pass. The dropping thread applies what was written by then, and
//! waits until the thread that the mode of delivery names has called the listener for the rest
//! ([`MaintenanceView::tell_rest`]). Then it owns the cache alone, and frees everything
//! ([`Maintenance::close`]).
//!
//! A thread that is itself at work on a cache, or inside a listener, does not wait. The last thread
//! to end its work on this cache does all this in its place, or a shared thread.
//!
//! # Invariants
//!
//! 1. The wheel, the size policy, and the entries change under the maintenance lock only.
//! 2. The events of a shard are applied in the order in which they were pushed. A batch that was
//!    taken is applied whole before the lock is released.
//! 3. A node is retired when three things have happened: it has left the map; it has left the wheel
//!    and the queues, or another node has taken over its entry; and the listener was called for it.
//!    It is freed after a grace period that is followed by a complete drain of all rings and all
//!    batches. Until then, a batch may still hold the event `Rescheduled` of a node that a pass has
//!    removed, and a ring may hold a read of any removed node.
//! 4. A node is Dead exactly from the moment at which a pass has unlinked its entry everywhere, and
//!    Succeeded from the moment at which another node has its entry.
//! 5. A pass runs no user code but the ticker's. If that panics, the pass continues with the last
//!    time it knows, leaves everything whole, and resumes the panic at its end.
//!
//! # Cost
//!
//! A unit of the budget costs one to three cache misses. The budget bounds how long the lock is
//! held.

// The invariants of this module: `checks/maintenance.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../checks/maintenance.rs"]
mod check;
mod delivery;
mod freeing;
mod pass;
mod runs;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod waking;
mod writers;

use crate::buffer::ReadBuffer;
use crate::contain::contain;
use crate::eviction::Eviction;
use crate::listener::Listener;
use crate::map::{Batch, Garbage, TablePart};
use crate::node::{EntryPtr, NodePtr};
use crate::notify::{Notification, Notifier};
use crate::reclaim::Pin;
use crate::scheduler::{Delivery, Waker};
use crate::shared::Shared;
use crate::stats::Stats;
use crate::sync::{AtomicU32, AtomicUsize, Mutex, unlock_fairly};
use crate::wheel::{Level, Spans, Wheel};
use freeing::Freeing;
use pass::Plan;
use std::time::Duration;
use waking::Waking;
pub(crate) use writers::WriteOutcome;
use writers::{BATCH_HARD_LIMIT, BOUNDED_CALLER_BUDGET, CALLER_BUDGET, batch_soft_limit};

/// Keeps the wheel, the size policy, the listener and the memory in step with the map. Calls write
/// to it, so it stands on other cache lines than the state that calls only read.
#[repr(align(64))]
pub(crate) struct Maintenance<K, V> {
    is_bounded: bool,
    /// Events in a batch that make the writer run a pass: at most `writers::BATCH_SOFT_LIMIT`.
    batch_soft_limit: usize,
    caller_budget: usize,
    pub(crate) spans: Spans,
    /// How many removed items are freed.
    freed: AtomicUsize,
    /// Behind the maintenance lock.
    state: Mutex<State<K, V>>,
    notifier: Notifier<K, V>,
    /// Which thread calls the listener, if there is one.
    pub(crate) delivery: Option<Delivery>,
    pub(crate) waking: Waking,
    /// How many removals have found nothing where no thread wakes the cache.
    vain_removals: AtomicU32,
    /// Held by a walk through the size policy: there is one cursor.
    walks: Mutex<()>,
}

impl<K, V> Maintenance<K, V> {
    pub(crate) fn new(
        shared: &Shared<K, V>,
        resolution: Duration,
        listener: Option<Listener<K, V>>,
        delivery: Delivery,
        waker: Waker,
    ) -> Self {
        let bounded = shared.max_capacity();
        let tells_callers = listener.is_some() && delivery == Delivery::Caller;
        let spans = Spans::new(resolution);
        let eviction = bounded.map(|max| Eviction::new(shared.eviction_policy, max));
        Self {
            is_bounded: bounded.is_some(),
            batch_soft_limit: if tells_callers && bounded.is_some() {
                // Each insert evicts for itself: so the listener hears of a victim at once.
                1
            } else {
                batch_soft_limit(bounded, shared.map.shards())
            },
            caller_budget: bounded.map_or(CALLER_BUDGET, |_| BOUNDED_CALLER_BUDGET),
            spans,
            freed: AtomicUsize::new(0),
            state: Mutex::new(State::new(spans, eviction)),
            delivery: listener.is_some().then_some(delivery),
            notifier: Notifier::new(listener),
            waking: Waking::new(waker),
            vain_removals: AtomicU32::new(0),
            walks: Mutex::new(()),
        }
    }

    #[inline]
    pub(crate) fn view<'a>(&'a self, shared: &'a Shared<K, V>) -> MaintenanceView<'a, K, V> {
        MaintenanceView {
            maintenance: self,
            shared,
        }
    }

    /// Notes that an entry was read, as far as the size policy wants to know.
    #[inline]
    pub(crate) fn note_read(&self, shared: &Shared<K, V>, node: NodePtr<K, V>, pin: &Pin) {
        if shared.reads.should_record(node) {
            self.offer_read(&shared.reads, node, pin);
        }
    }

    /// Moves the bound; false if the cache was built without one.
    pub(crate) fn set_max_capacity(&self, shared: &Shared<K, V>, max: u64) -> bool {
        if shared.max_capacity().is_none() {
            return false;
        }
        let mut state = self.state.lock();
        shared.set_max_capacity(max);
        if let Some(eviction) = &mut state.eviction {
            eviction.set_max(max);
        }
        drop(state);
        self.waking.request_soon(&shared.clock);
        true
    }

    /// The wheel's levels as they stand.
    pub(crate) fn wheel_levels(&self) -> Vec<Level> {
        self.state.lock().wheel.levels().collect()
    }

    /// The counts so far; all zero unless statistics are recorded.
    pub(crate) fn stats(&self, shared: &Shared<K, V>) -> Stats {
        let panics = self.notifier.listener_panics();
        let counters = shared.counters.as_deref();
        counters.map_or_else(Stats::default, |counters| Stats::of(counters, panics))
    }

    /// The cache is dropped: delivers the notifications for what was removed before, and frees
    /// everything.
    pub(crate) fn close(&mut self, shared: &mut Shared<K, V>) {
        // Where no other thread has delivered the rest.
        self.view(shared).drain_last();
        self.view(shared).deliver_here();
        let state = self.state.get_mut();
        // Nodes whose key and value have no destructor are freed with the memory of the slabs.
        shared.map.take_apart(|node| {
            if Garbage::<K, V>::RUNS_USER_CODE {
                state.freeing.retire(Garbage::Node(node));
            }
        });
        let all = state.freeing.take_all();
        self.view(shared).free(all);
        self.waking.waker.end();
    }
}

/// A borrow of `Maintenance` and `Shared`. Its methods do the maintenance: runs, and help by
/// callers.
pub(crate) struct MaintenanceView<'a, K, V> {
    maintenance: &'a Maintenance<K, V>,
    shared: &'a Shared<K, V>,
}

/// Entries visited under one hold of the maintenance lock.
const ENTRIES_PER_HOLD: usize = 512;

impl<K, V> MaintenanceView<'_, K, V> {
    /// After the last handle was dropped: applies what was written before. True if notifications
    /// wait.
    fn drain_last(&self) -> bool {
        // Entries still stored are dropped without notification, those over the bound too.
        let drain = Plan {
            evict: false,
            ..Plan::CATCH_UP
        };
        // A ticker that panics has been reported and must not keep the rest from being freed.
        while contain(|| self.run_pass(drain, |_| ())).is_none_or(|left| left.is_some()) {}
        self.maintenance.notifier.waiting() > 0
    }

    /// Drains the buffers, so that the size policy knows all uses and entries. Runs destructors, so
    /// the caller holds no pin.
    pub(crate) fn bring_up_to_date(&self) {
        self.run_all(Plan::CATCH_UP);
    }

    /// Visits at most `most` entries that the size policy knows, from the first victim to the last;
    /// none in a cache without a bound. The lock is given up after some hundred entries, so the
    /// policy changes meanwhile: an entry may be visited twice or not at all. `visit` runs under
    /// the lock and must not run user code. Walks take turns.
    pub(crate) fn walk_by_eviction(&self, most: usize, mut visit: impl FnMut(EntryPtr<K, V>)) {
        let _turn = self.maintenance.walks.lock();
        let mut state = self.maintenance.state.lock();
        if let Some(eviction) = &mut state.eviction {
            eviction.begin_walk();
        }
        let mut left = most;
        while left > 0 {
            let Some(eviction) = &mut state.eviction else {
                break;
            };
            if !eviction.walk(left.min(ENTRIES_PER_HOLD), &mut visit) {
                break;
            }
            left = left.saturating_sub(ENTRIES_PER_HOLD);
            unlock_fairly(state);
            state = self.maintenance.state.lock();
        }
    }
}

/// The state that the maintenance lock protects.
struct State<K, V> {
    wheel: Wheel<K, V>,
    eviction: Option<Eviction<K, V>>,
    freeing: Freeing<K, V>,
    /// Notifications that the pass has collected. This and the next three are the buffers of a
    /// pass: they are empty between passes, and keep their capacity.
    gathered: Vec<Notification<K, V>>,
    /// The batch of the shard that is drained.
    batch: Batch<K, V>,
    /// The memory that has left the table of that shard.
    parts: Vec<TablePart<K, V>>,
    /// The reads of the ring that is drained.
    read: Vec<NodePtr<K, V>>,
    /// The shard whose batch is drained next.
    cursor: usize,
    /// How many batches were drained in turn since the cache was built.
    drained: u64,
    /// How many nodes were taken from the wheel, and victims tried, since the cache was built.
    done: u64,
    /// The number of entries admitted since the stamp of the read rings was renewed; see
    /// [`Pass::renew_reads`](pass::Pass).
    admitted_since_stamp: usize,
    /// When the wheel's current bucket was last swept.
    swept_at: u64,
}

impl<K, V> State<K, V> {
    fn new(spans: Spans, eviction: Option<Eviction<K, V>>) -> Self {
        Self {
            // Cache time begins at 0.
            wheel: Wheel::new(0, spans),
            eviction,
            freeing: Freeing::new(),
            gathered: Vec::new(),
            batch: Batch::new(),
            parts: Vec::new(),
            read: Vec::new(),
            cursor: 0,
            drained: 0,
            done: 0,
            admitted_since_stamp: 0,
            swept_at: 0,
        }
    }

    /// Drains the read rings into the size policy.
    fn take_reads(&mut self, reads: &ReadBuffer<K, V>) {
        let Some(eviction) = &mut self.eviction else {
            return;
        };
        let complete = reads.drain(&mut self.read, |nodes| eviction.accessed_all(nodes));
        self.freeing.rings_drained |= complete;
    }

    /// By how much the weight of the drained entries is over the bound.
    fn excess(&self) -> u64 {
        self.eviction.as_ref().map_or(0, Eviction::excess)
    }

    /// Whether the weight is over the bound by more than a full batch of the heaviest entries.
    fn is_far_over(&self) -> bool {
        self.eviction.as_ref().is_some_and(|eviction| {
            eviction.excess() / BATCH_HARD_LIMIT as u64 > u64::from(eviction.heaviest())
        })
    }

    /// Takes a node that left the map out of the wheel and of the size policy.
    fn unlink(&mut self, node: NodePtr<K, V>) {
        self.wheel.deschedule(node);
        if let Some(eviction) = &mut self.eviction {
            eviction.removed(node);
        }
    }
}
