//! How far a pass goes.

use super::limits::RUN_BUDGET;

/// Whether a pass searches the wheel's current bucket, whose tick has not ended, for entries that
/// are due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sweep {
    No,
    IfCheap,
    Yes,
}

/// The kinds of work of one pass, and the amount of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) budget: usize,
    /// The shard of the writer that runs the pass; `None` for a run.
    pub(super) own: Option<usize>,
    /// Whether batches are drained.
    pub(super) drain: bool,
    /// Whether due entries are removed.
    pub(super) expire: bool,
    /// Whether victims are removed.
    pub(super) evict: bool,
    /// Whether the pass moves units of tables that grow or shrink.
    pub(super) resize: bool,
    pub(super) sweep: Sweep,
    /// Whether a grace period begins for however few items.
    pub(super) seal: bool,
    /// Whether each entry may report its next read again, whatever has happened since it reported
    /// the last.
    pub(super) renew: bool,
}

impl Plan {
    /// A pass of a run.
    pub(super) const RUN: Self = Self {
        budget: RUN_BUDGET,
        own: None,
        drain: true,
        expire: true,
        evict: true,
        resize: true,
        sweep: Sweep::No,
        seal: true,
        renew: true,
    };

    /// A pass that frees memory.
    pub(super) const RECLAIM: Self = Self {
        expire: false,
        ..Self::RUN
    };

    /// A pass of a writer that waits until memory is freed.
    pub(super) const AWAIT_RECLAIM: Self = Self {
        resize: false,
        renew: false,
        ..Self::RECLAIM
    };

    /// A pass of a writer to the shard.
    pub(super) fn help(shard: usize, budget: usize, expire: bool) -> Self {
        Self {
            budget,
            own: Some(shard),
            expire,
            resize: false,
            seal: false,
            renew: false,
            ..Self::RUN
        }
    }

    /// A pass after this one that drains nothing more.
    pub(super) fn without_drain(self) -> Self {
        Self {
            budget: RUN_BUDGET,
            drain: false,
            ..self
        }
    }
}
