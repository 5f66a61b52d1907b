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

#[cfg(any(test, fuzzing))]
mod check;
mod goal;
mod pass;
mod runs;
mod status;
#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
mod waking;

use crate::buffer::Batch;
use crate::buffer::read::ReadBuffer;
use crate::eviction::Eviction;
use crate::listener::Listener;
use crate::map::{Garbage, TablePart};
use crate::node::NodePtr;
use crate::notify::{Notification, Notifier};
use crate::reclaim::{Pin, Retired};
use crate::scheduler::{Task, Waker};
use crate::shared::Shared;
use crate::stats::{Counters, Stats};
use crate::sync::Mutex;
use crate::wheel::{Level, Spans, Wheel};
use status::Status;
use std::any::Any;
use std::sync::{OnceLock, Weak};
use std::time::Duration;
use waking::Waking;

/// Budget of a pass that a caller of the cache runs, beyond what its own shard has gathered. For
/// other shards' events, too.
const CALLER_BUDGET: usize = 16;
/// The same in a bounded cache: with less, more removals would wait in batches while their weight
/// still makes others go.
const BOUNDED_CALLER_BUDGET: usize = 32;
/// Budget of a pass of the scheduler or of `run_pending_tasks`: how long a waiting writer may have
/// to wait.
const RUN_BUDGET: usize = 256;
/// Events in a shard's batch that make its writer run a small pass.
const ENOUGH: usize = 24;
/// Events in a shard's batch that make its writer wait for the maintenance lock.
const LIMIT: usize = 1024;
/// How much has to be retired to be worth a grace period of its own while there is traffic: so many
/// nodes, or an array of so many buckets.
const WORTH_A_GRACE: usize = 128;
/// Undelivered notifications that make a writer deliver some if nobody else ever does.
const UNDELIVERED: u64 = 1024;
/// How often a scheduler's run comes back for memory that cannot be freed yet, since a reader holds
/// it or is in the midst of an offer, before it leaves it to the next write. Counted anew for each
/// grace period.
const PATIENCE: u32 = 8;

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
    /// Whether reads may move a deadline.
    pub(crate) reads_extend: bool,
    pub(crate) listener: Option<Listener<K, V>>,
    /// Whether entries have weights of their own.
    pub(crate) weighed: bool,
    pub(crate) waker: Waker,
}

/// What is done to the map behind its callers' backs.
pub(crate) struct Maintenance<K, V> {
    reads: Option<ReadBuffer<K, V>>,
    /// Events in a batch that make its writer help.
    enough: usize,
    caller_budget: usize,
    spans: Spans,
    reads_extend: bool,
    status: Status,
    state: Mutex<State<K, V>>,
    notifier: Notifier<K, V>,
    waking: Waking,
    /// Delivers where the scheduler's thread is shared with other caches; made at first need.
    courier: OnceLock<Waker>,
    me: OnceLock<Weak<dyn Task>>,
}

/// What the maintenance lock protects.
struct State<K, V> {
    wheel: Wheel<K, V>,
    eviction: Option<Eviction<K, V>>,
    retired: Retired<Garbage<K, V>>,
    gathered: Vec<Notification<K, V>>,
    /// Empty between uses; keeps its room.
    batch: Batch<K, V>,
    parts: Vec<TablePart<K, V>>,
    taken: Vec<NodePtr<K, V>>,
    /// The shard whose batch is taken next, and how many were, in turn, since the cache was built.
    cursor: usize,
    drained: u64,
    /// Nodes taken from the wheel and victims tried since the cache was built.
    done: u64,
    /// Whether the pass in hand has brought the wheel's time up to date.
    hand_set: bool,
    /// Whether the pass in hand has left a table between two arrays.
    resizing: bool,
    /// What the ticker panicked with in the pass in hand.
    ticker_panic: Option<Box<dyn Any + Send>>,
    /// Events that the pass in hand has applied: as many evictions may be due.
    applied: usize,
    /// Entries that the pass in hand has let in, or found heavier than before: others may have to
    /// go for them.
    admitted: usize,
    /// As many as `admitted` since the read rings' stamp was renewed, or events applied where the
    /// exact order of use counts.
    unstamped: usize,
    /// Shards to be drained until the sweep is complete, and whether the rings were.
    unswept: usize,
    rings_swept: bool,
    /// When the current bucket was last swept.
    swept_at: u64,
    /// Runs in a row that left memory unfreed, since the last grace period began.
    waited: u32,
}

/// Whether a pass looks into the wheel's current bucket.
#[derive(Clone, Copy, Debug)]
enum Sweep {
    No,
    IfCheap,
    Yes,
}

/// How far a pass goes.
#[derive(Clone, Copy)]
struct Plan {
    budget: usize,
    /// The shard to begin with.
    own: Option<usize>,
    /// Whether batches are taken in.
    drain: bool,
    /// Whether due entries are removed.
    expire: bool,
    /// Whether victims are removed.
    evict: bool,
    /// Whether tables that grow or shrink are helped to come to an end of it.
    resize: bool,
    /// Whether to find what is due at exactly this moment, though its tick has not ended.
    sweep: Sweep,
    /// Begin a grace period for however little there is.
    seal: bool,
}

impl Plan {
    /// A pass of a run.
    const RUN: Self = Self {
        budget: RUN_BUDGET,
        own: None,
        drain: true,
        expire: true,
        evict: true,
        resize: true,
        sweep: Sweep::No,
        seal: true,
    };

    /// A pass after this one that takes nothing more in.
    fn repaying(self) -> Self {
        Self {
            budget: RUN_BUDGET,
            drain: false,
            ..self
        }
    }
}

impl<K, V> Maintenance<K, V> {
    pub(crate) fn new(shared: &Shared<K, V>, setup: Setup<K, V>) -> Self {
        let bounded = shared.max_capacity();
        Self {
            reads: bounded.map(|_| ReadBuffer::new(crate::stripe::stripes(1))),
            enough: bounded.map_or(ENOUGH, |max| enough(max, shared.map.shards())),
            caller_budget: bounded.map_or(CALLER_BUDGET, |_| BOUNDED_CALLER_BUDGET),
            spans: Spans::new(setup.resolution),
            reads_extend: setup.reads_extend,
            status: Status::new(),
            state: Mutex::new(State {
                // Cache time begins at 0.
                wheel: Wheel::new(0, setup.resolution),
                eviction: bounded
                    .map(|max| Eviction::new(shared.eviction_policy, max, setup.weighed)),
                retired: Retired::new(),
                gathered: Vec::new(),
                batch: Batch::new(),
                parts: Vec::new(),
                taken: Vec::new(),
                cursor: 0,
                drained: 0,
                done: 0,
                hand_set: false,
                resizing: false,
                ticker_panic: None,
                applied: 0,
                admitted: 0,
                unstamped: 0,
                unswept: 0,
                rings_swept: true,
                swept_at: 0,
                waited: 0,
            }),
            notifier: Notifier::new(setup.listener),
            waking: Waking::new(setup.waker),
            courier: OnceLock::new(),
            me: OnceLock::new(),
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

/// How many events in a batch make its writer help: fewer in a small cache, so that it stays near
/// its bound.
fn enough(max_capacity: u64, shards: usize) -> usize {
    let share = max_capacity / (shards as u64 * 8);
    usize::try_from(share).map_or(ENOUGH, |share| share.clamp(1, ENOUGH))
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
