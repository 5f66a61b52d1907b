//! The pass: follows the map's changes, expires, evicts, gathers notifications, frees.
//!
//! # How it works
//!
//! A pass holds the maintenance lock and works against a budget. In order:
//!
//! 1. *turn* — have readers let go of what was retired? then this pass begins a sweep (reclaim);
//! 2. *drain* the read rings into the size policy, and shards' batches into wheel and size policy,
//!    going round the shards;
//! 3. *advance* the wheel: what is due leaves the map as `Expired`;
//! 4. *evict* while the cache is over its bound: what else is due, then what is about to be, then
//!    the size policy's victims;
//! 5. *seal* what has left, so that it can be freed after a grace period; post notifications.
//!
//! It stops where the budget ends and goes on from there the next time. Listeners, and the
//! destructors of keys and values, run after the lock was released.
//!
//! # Who runs it
//!
//! The scheduler's run ([`Maintenance::run_due`]), `run_pending_tasks` ([`Maintenance::finish`]),
//! and writers whose shard has gathered `enough` events: those make one small pass if nobody else
//! is at it. A writer whose batch has reached its `limit` waits for the lock, at most one pass
//! long. Where nobody wakes (`Scheduler::disabled`), writers also do due expiry, a bit at a time.
//!
//! # Invariants
//!
//! 1. Wheel, size policy, and entries change under the maintenance lock only.
//! 2. Events of a shard are applied in the order in which they were pushed, and a batch that was
//!    taken is applied whole before the lock is released.
//! 3. A node goes to `retired` after it left the map, and wheel and queues or its entry, and was
//!    delivered. It is freed after a grace period, followed by a complete drain of all rings and
//!    all batches: a batch may name a node that the pass itself has taken out meanwhile
//!    (`Rescheduled`), a ring any node.
//! 4. A node is Dead exactly from the moment the pass has unlinked its entry everywhere, Succeeded
//!    from that at which another sits there.
//! 5. A pass runs no user code but the ticker's, and that may panic: the pass then goes on by the
//!    last time it knows, leaves everything whole, and hands the panic on at its end.
//!
//! # Cost
//!
//! About 20 to 100 ns a unit of budget, depending on what the processor's caches hold.

mod absent;
mod backlog;
#[cfg(any(test, fuzzing))]
mod check;
mod close;
mod delivery;
mod freeing;
mod goal;
mod pass;
mod plan;
mod runs;
mod state;
mod status;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod waking;
mod writers;

use crate::buffer::read::ReadBuffer;
use crate::eviction::Eviction;
use crate::listener::Listener;
use crate::node::NodePtr;
use crate::notify::Notifier;
use crate::reclaim::Pin;
use crate::scheduler::{NotifierThread, Waker};
use crate::shared::Shared;
use crate::stats::{Counters, Stats};
use crate::sync::Mutex;
use crate::wheel::{Level, Spans};
use backlog::Backlog;
use plan::Plan;
use state::State;
use status::Status;
use std::time::Duration;
use waking::Waking;

/// Budget of a pass that a caller of the cache runs, beyond the events of its own shard: for other
/// shards' events, too.
const CALLER_BUDGET: usize = 16;

/// The same in a bounded cache. With less, more removals would wait in batches, while their weight
/// still forces evictions.
const BOUNDED_CALLER_BUDGET: usize = 32;

/// Budget of a pass of a run. It bounds how long a writer waits for the maintenance lock.
const RUN_BUDGET: usize = 256;

/// So many events in a shard's batch make the writer run a pass.
const BATCH_SOFT_LIMIT: usize = 24;

/// So many events in a shard's batch make the writer wait for a pass.
const BATCH_HARD_LIMIT: usize = 1024;

/// What a write leaves behind, as far as waking is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOutcome {
    /// Which shard was written to, and how many events wait there.
    pub(crate) shard: usize,
    pub(crate) pending: usize,
    /// The deadline that came in, or `NEVER`.
    pub(crate) deadline: u64,
    /// Cache time of the write, if it was read.
    pub(crate) now: Option<u64>,
    /// Whether something left.
    pub(crate) left: bool,
}

/// The settings that maintenance needs.
pub(crate) struct Setup<K, V> {
    pub(crate) resolution: Duration,
    pub(crate) listener: Option<Listener<K, V>>,
    /// Whether entries have weights of their own.
    pub(crate) weighed: bool,
    pub(crate) waker: Waker,
}

/// Keeps the wheel, the size policy, the listener and the memory in step with the map.
pub(crate) struct Maintenance<K, V> {
    /// The read rings of a bounded cache.
    reads: Option<ReadBuffer<K, V>>,
    /// Events in a batch that make the writer run a pass: [`BATCH_SOFT_LIMIT`], or less.
    batch_soft_limit: usize,
    caller_budget: usize,
    spans: Spans,
    status: Status,
    backlog: Backlog,
    /// Behind the maintenance lock.
    state: Mutex<State<K, V>>,
    notifier: Notifier<K, V>,
    waking: Waking,
    notifier_thread: NotifierThread,
}

impl<K, V> Maintenance<K, V> {
    pub(crate) fn new(shared: &Shared<K, V>, setup: Setup<K, V>) -> Self {
        let bounded = shared.max_capacity();
        let eviction = bounded.map(|max| Eviction::new(shared.eviction_policy, max, setup.weighed));
        Self {
            reads: bounded.map(|_| ReadBuffer::new(crate::stripe::stripes(1))),
            batch_soft_limit: batch_soft_limit(bounded, shared.map.shards()),
            caller_budget: bounded.map_or(CALLER_BUDGET, |_| BOUNDED_CALLER_BUDGET),
            spans: Spans::new(setup.resolution),
            status: Status::new(),
            backlog: Backlog::new(shared.map.shards()),
            state: Mutex::new(State::new(setup.resolution, eviction)),
            notifier: Notifier::new(setup.listener),
            waking: Waking::new(setup.waker),
            notifier_thread: NotifierThread::new(),
        }
    }

    /// Notes that an entry was read, as far as the size policy wants to know.
    #[inline]
    pub(crate) fn note_read(&self, node: NodePtr<K, V>, pin: &Pin) {
        if let Some(reads) = &self.reads
            && reads.should_record(node)
        {
            self.offer_read(reads, node, pin);
        }
    }

    /// Whether [`note_read`](Self::note_read) has something to note.
    #[inline]
    pub(crate) fn should_record(&self, node: NodePtr<K, V>) -> bool {
        self.reads
            .as_ref()
            .is_some_and(|reads| reads.should_record(node))
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

    /// The wheel's time and levels as they stand.
    pub(crate) fn wheel_levels(&self) -> (u64, Vec<Level>) {
        let state = self.state.lock();
        (state.wheel.now(), state.wheel.levels().collect())
    }

    /// What was counted so far: nothing, unless statistics are recorded.
    pub(crate) fn stats(&self, shared: &Shared<K, V>) -> Stats {
        let counted = |counters: &Counters| counters.snapshot(self.notifier.listener_panics());
        shared
            .counters
            .as_deref()
            .map_or_else(Stats::default, counted)
    }

    pub(crate) fn resolution(&self) -> Duration {
        self.spans.resolution()
    }
}

/// How many events in a batch make its writer run a pass: fewer in a small cache, so that it stays
/// near its bound.
fn batch_soft_limit(max_capacity: Option<u64>, shards: usize) -> usize {
    let share = max_capacity.unwrap_or(u64::MAX) / (shards as u64 * 8);
    usize::try_from(share).map_or(BATCH_SOFT_LIMIT, |share| share.clamp(1, BATCH_SOFT_LIMIT))
}

impl<K, V> std::fmt::Debug for Maintenance<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maintenance")
            .field("status", &self.status)
            .field("notifier", &self.notifier)
            .field("waking", &self.waking)
            .finish()
    }
}
