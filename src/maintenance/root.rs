//! The maintenance of one cache, and the borrow of it by which its methods run.

use super::backlog::Backlog;
use super::limits::{BOUNDED_CALLER_BUDGET, CALLER_BUDGET, batch_soft_limit};
use super::state::State;
use super::waking::Waking;
use crate::eviction::Eviction;
use crate::listener::Listener;
use crate::node::NodePtr;
use crate::notify::Notifier;
use crate::process::Process;
use crate::reclaim::Pin;
use crate::scheduler::{Delivery, Waker};
use crate::shared::Shared;
use crate::stats::Stats;
use crate::sync::{AtomicU32, Mutex};
use crate::wheel::Spans;
use crate::wheel_snapshot::LevelSnapshot;
use std::time::Duration;

/// The settings that maintenance needs.
pub(crate) struct Setup<K, V> {
    pub(crate) resolution: Duration,
    pub(crate) listener: Option<Listener<K, V>>,
    pub(crate) delivery: Delivery,
    /// Whether entries have weights of their own.
    pub(crate) weighed: bool,
    pub(crate) waker: Waker,
}

/// Keeps the wheel, the size policy, the listener and the memory in step with the map. Calls write
/// to it, so it stands on other cache lines than the state that calls only read.
#[repr(align(64))]
pub(crate) struct Maintenance<K, V> {
    pub(super) is_bounded: bool,
    /// Whether a call that removes an entry returns after the listener has heard of it.
    pub(super) tells_callers: bool,
    /// Events in a batch that make the writer run a pass: at most `limits::BATCH_SOFT_LIMIT`.
    pub(super) batch_soft_limit: usize,
    pub(super) caller_budget: usize,
    pub(super) spans: Spans,
    pub(super) backlog: Backlog,
    /// Behind the maintenance lock.
    pub(super) state: Mutex<State<K, V>>,
    pub(super) notifier: Notifier<K, V>,
    pub(super) delivery: Delivery,
    pub(super) waking: Waking,
    /// Operations of callers while the cache was untidy.
    pub(super) operations: AtomicU32,
    /// Held by a walk through the size policy: there is one cursor.
    pub(super) walks: Mutex<()>,
    /// The process that built the cache.
    pub(super) process: Process,
}

impl<K, V> Maintenance<K, V> {
    pub(crate) fn new(shared: &Shared<K, V>, setup: Setup<K, V>) -> Self {
        let bounded = shared.max_capacity();
        let spans = Spans::new(setup.resolution);
        let eviction = bounded.map(|max| Eviction::new(shared.eviction_policy, max, setup.weighed));
        Self {
            is_bounded: bounded.is_some(),
            tells_callers: setup.listener.is_some() && matches!(setup.delivery, Delivery::Caller),
            batch_soft_limit: batch_soft_limit(bounded, shared.map.shards()),
            caller_budget: bounded.map_or(CALLER_BUDGET, |_| BOUNDED_CALLER_BUDGET),
            spans,
            backlog: Backlog::new(shared.map.shards()),
            state: Mutex::new(State::new(spans, eviction)),
            notifier: Notifier::new(setup.listener),
            delivery: setup.delivery,
            waking: Waking::new(setup.waker),
            operations: AtomicU32::new(0),
            walks: Mutex::new(()),
            process: Process::current(),
        }
    }

    /// Panics in a child made by `fork`: what this gives access to needs locks and threads.
    #[inline]
    pub(crate) fn view<'a>(&'a self, shared: &'a Shared<K, V>) -> MaintenanceView<'a, K, V> {
        self.process.check();
        MaintenanceView {
            maintenance: self,
            shared,
        }
    }

    /// Asks for a run at `moment` at the latest.
    pub(crate) fn request_run_by(&self, moment: u64, now: u64) {
        self.waking.request_by(moment, now);
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
        self.process.check();
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
    pub(crate) fn wheel_levels(&self) -> (u64, Vec<LevelSnapshot>) {
        self.process.check();
        let state = self.state.lock();
        (state.wheel.now(), state.wheel.levels().collect())
    }

    /// The counts so far; all zero unless statistics are recorded.
    pub(crate) fn stats(&self, shared: &Shared<K, V>) -> Stats {
        let panics = self.notifier.listener_panics();
        let counters = shared.counters.as_deref();
        counters.map_or_else(Stats::default, |counters| Stats::of(counters, panics))
    }

    pub(crate) fn resolution(&self) -> Duration {
        self.spans.resolution()
    }
}

/// A borrow of `Maintenance` and `Shared`. Its methods do the maintenance: runs, and help by
/// callers.
pub(crate) struct MaintenanceView<'a, K, V> {
    pub(super) maintenance: &'a Maintenance<K, V>,
    pub(super) shared: &'a Shared<K, V>,
}

impl<K, V> Clone for MaintenanceView<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for MaintenanceView<'_, K, V> {}
