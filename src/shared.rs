//! The state that every handle of a cache reads.
//!
//! A [`Shared`] owns the map, the clock, the domain of pins, the counters of the statistics, and
//! the settings that calls need. `Core` owns the `Shared` and, beside it, the `Maintenance`, whose
//! methods borrow the `Shared`: a call walks from the cache to the map and from there to the node,
//! never through maintenance.

use crate::buffer::ReadBuffer;
use crate::eviction::EvictionPolicy;
use crate::listener::RemovalCause;
use crate::map::Map;
use crate::node::NodePtr;
use crate::reclaim::{Domain, Pin};
use crate::stats::{Count, Counters};
use crate::sync::{AtomicU8, AtomicU64, Ordering};
use crate::time::Clock;
use std::sync::Arc;

/// See the module docs. Calls read it and seldom write it. The order of the fields matters: they
/// stand on the first cache lines of [`Core`], and a hit reads no field behind the first of the
/// clock.
///
/// [`Core`]: crate::operations::Core
#[repr(C)]
pub(crate) struct Shared<K, V> {
    pub(crate) domain: Domain,
    pub(crate) map: Map<K, V>,
    /// The read rings; none if the cache is not bounded.
    pub(crate) reads: ReadBuffer<K, V>,
    /// Why reads take the full path: [`SLOW_READS`], [`EXACT_READS`].
    pub(crate) detours: AtomicU8,
    /// Whether to mix the hashes, because the hasher may not use all bits.
    pub(crate) needs_mixing: bool,
    pub(crate) clock: Clock,
    /// Where statistics are recorded, if they are.
    pub(crate) counters: Option<Box<Counters>>,
    /// The bound on the weight of all entries. Changed under the maintenance lock only.
    pub(crate) bound: Option<AtomicU64>,
    pub(crate) eviction_policy: EvictionPolicy,
    pub(crate) name: Option<Arc<str>>,
    /// Whether a read may move a deadline: as `Lifetimes` says, for look-ups.
    pub(crate) reads_extend: bool,
}

/// A read asks the policy, needs the exact time, or is counted.
pub(crate) const SLOW_READS: u8 = 1;
/// A read needs the exact time, not only whether the entry is live.
pub(crate) const EXACT_READS: u8 = 2;

impl<K, V> Shared<K, V> {
    /// Where the last field that a hit reads begins.
    #[cfg(test)]
    pub(crate) const CLOCK: usize = std::mem::offset_of!(Self, clock);

    #[inline]
    pub(crate) fn pin(&self) -> Pin {
        self.domain.pin()
    }

    /// Whether there is one of these reasons for the full path.
    ///
    /// Relaxed: the full path is right for each look-up, and the fast one for a while longer.
    #[inline]
    pub(crate) fn has_detour(&self, reasons: u8) -> bool {
        self.detours.load(Ordering::Relaxed) & reasons != 0
    }

    /// Says whether there is this reason for the full path.
    ///
    /// Relaxed, as [`has_detour`](Self::has_detour).
    pub(crate) fn set_detour(&self, reason: u8, set: bool) {
        if set {
            self.detours.fetch_or(reason, Ordering::Relaxed);
        } else {
            self.detours.fetch_and(!reason, Ordering::Relaxed);
        }
    }

    /// The bound in force; `None` if the cache was built without one.
    ///
    /// Relaxed: the holder of the maintenance lock reads it exactly, all others approximately.
    #[inline]
    pub(crate) fn max_capacity(&self) -> Option<u64> {
        let bound = self.bound.as_ref()?;
        Some(bound.load(Ordering::Relaxed))
    }

    /// Moves the bound. For the holder of the maintenance lock.
    pub(crate) fn set_max_capacity(&self, max: u64) {
        if let Some(bound) = &self.bound {
            bound.store(max, Ordering::Relaxed);
        }
    }

    /// Whether an entry of this weight is heavier than the whole bound.
    #[inline]
    pub(crate) fn is_too_heavy(&self, weight: u32) -> bool {
        self.max_capacity()
            .is_some_and(|max| u64::from(weight) > max)
    }

    /// Counts a write: of a new key, or in place of a node that leaves for a cause.
    #[inline]
    pub(crate) fn note_written(&self, old: Option<(NodePtr<K, V>, RemovalCause)>) {
        let Some(counters) = &self.counters else {
            return;
        };
        match old {
            Some((_, RemovalCause::Replaced)) => counters.add(Count::Updates, 1),
            _ => counters.add(Count::Insertions, 1),
        }
        if let Some((node, cause)) = old {
            counters.removed(cause, node.weight());
        }
    }

    /// Counts a removal.
    #[inline]
    pub(crate) fn note_removed(&self, weight: impl FnOnce() -> u32, cause: RemovalCause) {
        if let Some(counters) = &self.counters {
            counters.removed(cause, weight());
        }
    }

    /// Counts an event, if statistics are recorded.
    #[inline]
    pub(crate) fn count(&self, what: Count) {
        if let Some(counters) = &self.counters {
            counters.add(what, 1);
        }
    }

    /// Whether the calling thread holds up the freeing of memory.
    #[cfg(test)]
    pub(crate) fn is_pinned(&self) -> bool {
        self.domain.is_pinned()
    }
}
