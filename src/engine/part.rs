//! A part of a cache: what follows the entries of some shards, behind a lock of its own.

use super::delivery::Notification;
use super::freeing::Freeing;
use super::writers::BATCH_HARD_LIMIT;
use crate::buffer::{FIRST_STAMP, ReadBuffer, Renewals};
use crate::eviction::Eviction;
use crate::map::{Batch, TableMemory};
use crate::node::NodePtr;
use crate::stripe::Padded;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::time::NEVER;
use crate::wheel::{Spans, Wheel};

/// See the module docs. Passes write to it, so it stands on other cache lines than what calls only
/// read.
///
/// Beside the state stands what the part *publishes*: what threads may know of it without its lock.
/// All but `freed` is written where there are several parts only, by the holder of the lock.
/// Relaxed, but for `freed`: a pass judges by what it happens to see, and a later pass corrects it.
pub(super) struct Part<K, V> {
    /// Behind the maintenance lock, on cache lines of its own.
    pub(super) state: Padded<Mutex<State<K, V>>>,
    /// The weight of the entries that the size policy knows.
    pub(super) weight: AtomicU64,
    /// When the wheel has work next, or `NEVER`.
    pub(super) next_visit: AtomicU64,
    /// How many items were retired.
    pub(super) retired: AtomicU64,
    /// How many removed items are freed.
    pub(super) freed: AtomicU64,
}

impl<K, V> Part<K, V> {
    pub(super) fn new(state: State<K, V>) -> Self {
        Self {
            state: Padded(Mutex::new(state)),
            weight: AtomicU64::new(0),
            next_visit: AtomicU64::new(NEVER),
            retired: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }
}

/// The state that the maintenance lock protects.
pub(super) struct State<K, V> {
    /// The number of the part.
    pub(super) part: usize,
    pub(super) wheel: Wheel<K, V>,
    pub(super) eviction: Option<Eviction<K, V>>,
    pub(super) freeing: Freeing<K, V>,
    /// Notifications that the pass has collected. This and the next three are the buffers of a
    /// pass: they are empty between passes, and keep their capacity.
    pub(super) gathered: Vec<Notification<K, V>>,
    /// The batch of the shard that is drained.
    pub(super) batch: Batch<K, V>,
    /// The memory that has left the table of that shard.
    pub(super) of_tables: Vec<TableMemory<K, V>>,
    /// The reads of the ring that is drained.
    pub(super) read: Vec<NodePtr<K, V>>,
    /// The shard whose batch is drained next.
    pub(super) cursor: usize,
    /// How many batches were drained in turn since the cache was built.
    pub(super) drained: u64,
    /// How many nodes were taken from the wheel, and victims tried, since the cache was built.
    pub(super) done: u64,
    /// When the stamp of the read rings is renewed.
    pub(super) renewals: Renewals,
    /// That stamp when the part last renewed it, or found it renewed by another part.
    pub(super) stamp: u8,
    /// When the wheel's current bucket was last swept.
    pub(super) swept_at: u64,
    /// How many passes have come since the last one that drained all shards alike.
    pub(super) passes_of_writers: u32,
}

impl<K, V> State<K, V> {
    pub(super) fn new(
        part: usize,
        spans: Spans,
        eviction: Option<Eviction<K, V>>,
        freeing: Freeing<K, V>,
    ) -> Self {
        Self {
            part,
            // Cache time begins at 0.
            wheel: Wheel::new(0, spans),
            eviction,
            freeing,
            gathered: Vec::new(),
            batch: Batch::new(),
            of_tables: Vec::new(),
            read: Vec::new(),
            cursor: part,
            drained: 0,
            done: 0,
            renewals: Renewals::default(),
            stamp: FIRST_STAMP,
            swept_at: 0,
            passes_of_writers: 0,
        }
    }

    /// Drains the read rings of the part into the size policy.
    pub(super) fn take_reads(&mut self, reads: &ReadBuffer<K, V>) {
        let Some(eviction) = &mut self.eviction else {
            return;
        };
        let complete = reads.drain(self.part, &mut self.read, |nodes| {
            eviction.accessed_all(nodes);
            self.renewals.reads += nodes.len();
        });
        self.freeing.rings_drained |= complete;
        if self.renewals.are_due_by_reads(eviction.len()) {
            self.renew(reads);
        }
    }

    /// Renews the stamp of the read rings, unless another part has done so since this one last did:
    /// then all parts together renew it as often as one would.
    pub(super) fn renew(&mut self, reads: &ReadBuffer<K, V>) {
        if reads.stamp() == self.stamp {
            reads.renew();
        }
        self.stamp = reads.stamp();
    }

    /// Follows a new bound of the cache.
    pub(super) fn set_max(&mut self, max: u64) {
        if let Some(eviction) = &mut self.eviction {
            eviction.set_max(max);
        }
    }

    /// By how much the weight of the part's drained entries is over what it may be.
    pub(super) fn excess(&self) -> u64 {
        self.eviction.as_ref().map_or(0, Eviction::excess)
    }

    /// Whether the weight is over the bound by more than the part's share of a full batch of the
    /// heaviest entries.
    pub(super) fn is_far_over(&self, parts: usize) -> bool {
        let share = (BATCH_HARD_LIMIT / parts) as u64;
        match &self.eviction {
            Some(eviction) => eviction.excess() / share > u64::from(eviction.heaviest()),
            None => false,
        }
    }

    /// Takes a node that left the map out of the wheel and of the size policy.
    pub(super) fn unlink(&mut self, node: NodePtr<K, V>) {
        self.wheel.deschedule(node);
        if let Some(eviction) = &mut self.eviction {
            eviction.removed(node);
        }
    }
}
