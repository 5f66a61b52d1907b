//! The state that the maintenance lock protects.

use super::freeing::Freeing;
use super::limits::BATCH_HARD_LIMIT;
use crate::buffer::Batch;
use crate::buffer::read::ReadBuffer;
use crate::eviction::Eviction;
use crate::map::TablePart;
use crate::node::NodePtr;
use crate::notify::Notification;
use crate::wheel::{Spans, Wheel};

/// See the module docs.
pub(super) struct State<K, V> {
    pub(super) wheel: Wheel<K, V>,
    pub(super) eviction: Option<Eviction<K, V>>,
    pub(super) freeing: Freeing<K, V>,
    pub(super) scratch: Scratch<K, V>,
    /// The shard whose batch is drained next.
    pub(super) cursor: usize,
    /// How many batches were drained in turn since the cache was built.
    pub(super) drained: u64,
    /// How many nodes were taken from the wheel, and victims tried, since the cache was built.
    pub(super) done: u64,
    /// The number of entries admitted since the stamp of the read rings was renewed; see
    /// [`Pass::renew_reads`](super::pass::Pass).
    pub(super) admitted_since_stamp: usize,
    /// When the wheel's current bucket was last swept.
    pub(super) swept_at: u64,
}

/// The buffers of a pass. They are empty between passes, and keep their capacity.
pub(super) struct Scratch<K, V> {
    /// Notifications that the pass has collected.
    pub(super) gathered: Vec<Notification<K, V>>,
    /// The batch of the shard that is drained.
    pub(super) batch: Batch<K, V>,
    /// The memory that has left the table of that shard.
    pub(super) parts: Vec<TablePart<K, V>>,
    /// The reads of the ring that is drained.
    pub(super) read: Vec<NodePtr<K, V>>,
}

impl<K, V> Scratch<K, V> {
    fn new() -> Self {
        Self {
            gathered: Vec::new(),
            batch: Batch::new(),
            parts: Vec::new(),
            read: Vec::new(),
        }
    }
}

impl<K, V> State<K, V> {
    pub(super) fn new(spans: Spans, eviction: Option<Eviction<K, V>>) -> Self {
        Self {
            // Cache time begins at 0.
            wheel: Wheel::new(0, spans),
            eviction,
            freeing: Freeing::new(),
            scratch: Scratch::new(),
            cursor: 0,
            drained: 0,
            done: 0,
            admitted_since_stamp: 0,
            swept_at: 0,
        }
    }

    /// Drains the read rings into the size policy.
    pub(super) fn take_reads(&mut self, reads: Option<&ReadBuffer<K, V>>) {
        let (Some(reads), Some(eviction)) = (reads, &mut self.eviction) else {
            return;
        };
        let complete = reads.drain(&mut self.scratch.read, |nodes| eviction.accessed_all(nodes));
        self.freeing.rings_drained |= complete;
    }

    pub(super) fn is_over(&self) -> bool {
        self.eviction.as_ref().is_some_and(Eviction::is_over)
    }

    /// By how much the weight of the drained entries is over the bound.
    pub(super) fn excess(&self) -> u64 {
        self.eviction.as_ref().map_or(0, Eviction::excess)
    }

    /// Whether the weight is over the bound by more than a full batch of the heaviest entries.
    pub(super) fn is_far_over(&self) -> bool {
        self.eviction.as_ref().is_some_and(|eviction| {
            eviction.excess() / BATCH_HARD_LIMIT as u64 > u64::from(eviction.heaviest())
        })
    }

    /// Takes a node that left the map out of the wheel and of the size policy.
    pub(super) fn unlink(&mut self, node: NodePtr<K, V>) {
        self.wheel.deschedule(node);
        if let Some(eviction) = &mut self.eviction {
            eviction.removed(node);
        }
    }
}
