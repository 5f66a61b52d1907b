//! Maintenance: the work on a cache that its operations leave for later.
//!
//! Writes change the map at once and leave an event in their shard's batch. A *pass* applies the
//! events to the timer wheel and to the size policy, removes entries that are due and victims of
//! the size policy, collects notifications for the listener, and frees memory.
//!
//! # How a pass works
//!
//! A pass holds the maintenance lock and works against a budget ([`plan`]). In order
//! ([`pass`]):
//!
//! 1. *start sweep*: if the grace period of what was retired is over, this pass begins a sweep
//!    ([`freeing`]);
//! 2. *drain*: the read rings go to the size policy, and the batches of the shards, in turn, to the
//!    wheel and the size policy;
//! 3. *expire*: what the wheel finds due leaves the map as `Expired`;
//! 4. *evict*: while the cache is over its bound, what else is due leaves, then the victims of the
//!    size policy;
//! 5. *seal*: a grace period begins for what has left; notifications are posted.
//!
//! A pass stops where its budget ends, and the next one goes on from there. Listeners, and the
//! destructors of keys and values, run after the lock was released.
//!
//! # Which threads run passes
//!
//! - The scheduler thread ([`Runs::run_due`](runs::Runs::run_due)) and `run_pending_tasks`
//!   ([`Runs::finish`](runs::Runs::finish)), many passes in a row ([`runs`]).
//! - A writer whose batch has reached the soft limit runs one small pass, unless another thread
//!   holds the lock ([`writers`]).
//! - If too many events or unfreed values wait, a writer waits for a pass, or runs one
//!   ([`backlog`]).
//! - Where no thread wakes the cache (`Scheduler::disabled`), callers also remove what is due, a
//!   few entries at a time.
//!
//! # Invariants
//!
//! 1. The wheel, the size policy, and the entries change under the maintenance lock only.
//! 2. The events of a shard are applied in the order in which they were pushed. A batch that was
//!    taken is applied whole before the lock is released.
//! 3. A node is retired when three things have happened: it has left the map; it has left the wheel
//!    and the queues, or another node has taken over its entry; and the listener was called for it.
//!    It is freed after a grace period that is followed by a complete drain of all rings and all
//!    batches. A batch may name a node that a pass has removed meanwhile (`Rescheduled`), a ring
//!    any node.
//! 4. A node is Dead exactly from the moment at which a pass has unlinked its entry everywhere, and
//!    Succeeded from the moment at which another node has its entry.
//! 5. A pass runs no user code but the ticker's. If that panics, the pass goes on with the last
//!    time it knows, leaves everything whole, and resumes the panic at its end.
//!
//! # Cost
//!
//! A unit of the budget costs one to three cache misses. The budget bounds how long the lock is
//! held.

mod absent;
mod backlog;
mod by_use;
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

use crate::eviction::Eviction;
use crate::listener::Listener;
use crate::map::Shard;
use crate::node::NodePtr;
use crate::reclaim::Pin;
use crate::scheduler::Waker;
use crate::shared::Shared;
use crate::stats::Stats;
use crate::sync::Mutex;
use crate::time::NEVER;
use crate::wheel::{Level, Spans};
use backlog::Backlog;
use delivery::Delivery;
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

/// This many events in a shard's batch make the writer run a pass.
const BATCH_SOFT_LIMIT: usize = 24;

/// The soft limits of all shards add up to at most 1/16 of the bound. Batches are mostly far from
/// full, so what waits in them is less than 2 percent of the bound.
const SOFT_LIMITS_PER_BOUND: u64 = 16;

/// This many events in a shard's batch make the writer wait for a pass.
const BATCH_HARD_LIMIT: usize = 1024;

/// What maintenance needs to know of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOutcome {
    /// Which shard was written to.
    pub(crate) shard: usize,
    /// How many events wait in that shard's batch.
    pub(crate) pending: usize,
    /// The deadline that came in, or `NEVER`.
    pub(crate) deadline: u64,
    /// Cache time of the write, if it was read.
    pub(crate) now: Option<u64>,
    /// How many nodes left the map.
    // As wide as the others: a copy of the padding behind a `bool` takes four more instructions.
    pub(crate) left: usize,
}

impl WriteOutcome {
    /// The outcome of a change of one entry: `deadline` came in at `now`, if the clock was read.
    #[inline]
    pub(crate) fn of_change<K, V>(
        shard: &Shard<'_, K, V>,
        deadline: u64,
        now: Option<u64>,
    ) -> Self {
        Self {
            shard: shard.number(),
            pending: shard.pending(),
            deadline,
            now,
            left: 0,
        }
    }

    /// When the entry that was written is flushed if it stays, and the time of the write.
    #[inline(always)]
    fn flush(&self, spans: &Spans) -> Option<(u64, u64)> {
        let now = self.now.filter(|_| self.deadline != NEVER)?;
        Some((spans.flush_time(self.deadline, now), now))
    }

    /// The outcome of removals, the last one at `now` if the clock was read for it.
    #[inline]
    pub(crate) fn of_removal<K, V>(shard: &Shard<'_, K, V>, now: Option<u64>) -> Self {
        Self {
            left: 1,
            ..Self::of_change(shard, NEVER, now)
        }
    }
}

/// The settings that maintenance needs.
pub(crate) struct Setup<K, V> {
    pub(crate) resolution: Duration,
    pub(crate) listener: Option<Listener<K, V>>,
    /// Whether entries have weights of their own.
    pub(crate) weighed: bool,
    pub(crate) waker: Waker,
}

/// Keeps the wheel, the size policy, the listener and the memory in step with the map. Calls write
/// it: on other cache lines than what they only read.
#[repr(align(64))]
pub(crate) struct Maintenance<K, V> {
    is_bounded: bool,
    /// Events in a batch that make the writer run a pass: [`BATCH_SOFT_LIMIT`], or less.
    batch_soft_limit: usize,
    caller_budget: usize,
    spans: Spans,
    status: Status,
    backlog: Backlog,
    /// Behind the maintenance lock.
    state: Mutex<State<K, V>>,
    pub(crate) delivery: Delivery<K, V>,
    waking: Waking,
    /// Held by a walk through the size policy: there is one cursor.
    walks: Mutex<()>,
}

impl<K, V> Maintenance<K, V> {
    pub(crate) fn new(shared: &Shared<K, V>, setup: Setup<K, V>) -> Self {
        let bounded = shared.max_capacity();
        let eviction = bounded.map(|max| Eviction::new(shared.eviction_policy, max, setup.weighed));
        Self {
            is_bounded: bounded.is_some(),
            batch_soft_limit: batch_soft_limit(bounded, shared.map.shards()),
            caller_budget: bounded.map_or(CALLER_BUDGET, |_| BOUNDED_CALLER_BUDGET),
            spans: Spans::new(setup.resolution),
            status: Status::new(),
            backlog: Backlog::new(shared.map.shards()),
            state: Mutex::new(State::new(setup.resolution, eviction)),
            delivery: Delivery::new(setup.listener),
            waking: Waking::new(setup.waker),
            walks: Mutex::new(()),
        }
    }

    /// Notes that an entry was read, as far as the size policy wants to know.
    #[inline]
    pub(crate) fn note_read(&self, shared: &Shared<K, V>, node: NodePtr<K, V>, pin: &Pin) {
        if let Some(reads) = &shared.reads
            && reads.should_record(node)
        {
            self.offer_read(reads, node, pin);
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

    /// The wheel's time and levels as they stand.
    pub(crate) fn wheel_levels(&self) -> (u64, Vec<Level>) {
        let state = self.state.lock();
        (state.wheel.now(), state.wheel.levels().collect())
    }

    /// What was counted so far: nothing, unless statistics are recorded.
    pub(crate) fn stats(&self, shared: &Shared<K, V>) -> Stats {
        let panics = self.delivery.notifier.listener_panics();
        let counters = shared.counters.as_deref();
        counters.map_or_else(Stats::default, |counters| Stats::of(counters, panics))
    }

    pub(crate) fn resolution(&self) -> Duration {
        self.spans.resolution()
    }
}

/// How many events in a batch make its writer run a pass: fewer where the cache has few entries for
/// each shard, so that it stays near its bound.
fn batch_soft_limit(max_capacity: Option<u64>, shards: usize) -> usize {
    let share = max_capacity.unwrap_or(u64::MAX) / (shards as u64 * SOFT_LIMITS_PER_BOUND);
    usize::try_from(share).map_or(BATCH_SOFT_LIMIT, |share| share.clamp(1, BATCH_SOFT_LIMIT))
}
