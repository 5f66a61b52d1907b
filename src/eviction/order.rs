//! The order in which a policy evicts: [`Lirs`] or [`Lru`], behind one set of methods.

use super::lirs::Lirs;
use super::lru::Lru;
use super::queue::Weighed;
use super::{EvictionPolicy, TINY};
use crate::node::EntryPtr;

/// The nodes that may be victims, in the order of the policy.
pub(super) enum Order<K, V> {
    Lirs(Box<Lirs<K, V>>),
    Lru(Lru<K, V>),
}

impl<K, V> Order<K, V> {
    pub(super) fn new(policy: EvictionPolicy, max: u64, seed: u64) -> Self {
        match policy {
            EvictionPolicy::Adaptive if max > TINY => Self::Lirs(Box::new(Lirs::new(max, seed))),
            EvictionPolicy::Adaptive | EvictionPolicy::Lru => Self::Lru(Lru::new()),
        }
    }

    /// Whether it is the exact order of use.
    #[inline]
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Self::Lru(_))
    }

    #[inline]
    pub(super) fn admit(&mut self, entry: EntryPtr<K, V>) {
        match self {
            Self::Lirs(lirs) => lirs.admit(entry),
            Self::Lru(lru) => lru.admit(entry),
        }
    }

    /// Prefetches what [`admit`](Self::admit) will look up.
    #[inline]
    pub(super) fn prefetch(&self, entry: EntryPtr<K, V>) {
        if let Self::Lirs(lirs) = self {
            lirs.prefetch(entry);
        }
    }

    #[inline]
    pub(super) fn reweigh(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        match self {
            Self::Lirs(lirs) => lirs.reweigh(entry, weight),
            Self::Lru(lru) => lru.reweigh(entry, weight),
        }
    }

    #[inline]
    pub(super) fn accessed(&mut self, entry: EntryPtr<K, V>) {
        match self {
            Self::Lirs(lirs) => lirs.accessed(entry),
            Self::Lru(lru) => lru.accessed(entry),
        }
    }

    /// Takes an entry out. `evicted` says whether it goes because it was the victim.
    #[inline]
    pub(super) fn removed(&mut self, entry: EntryPtr<K, V>, evicted: bool) {
        match self {
            Self::Lirs(lirs) => lirs.removed(entry, evicted),
            Self::Lru(lru) => lru.removed(entry),
        }
    }

    /// Takes an entry out that is past its deadline.
    #[inline]
    pub(super) fn expired(&mut self, entry: EntryPtr<K, V>) {
        match self {
            Self::Lirs(lirs) => lirs.expired(entry),
            Self::Lru(lru) => lru.removed(entry),
        }
    }

    /// The entry to evict first.
    #[inline]
    pub(super) fn victim(&self) -> Option<EntryPtr<K, V>> {
        match self {
            Self::Lirs(lirs) => lirs.victim(),
            Self::Lru(lru) => lru.victim(),
        }
    }

    #[inline]
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Lirs(lirs) => lirs.weight(),
            Self::Lru(lru) => lru.weight(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Lirs(lirs) => lirs.len(),
            Self::Lru(lru) => lru.len(),
        }
    }

    /// Follows a change of the bound.
    pub(super) fn set_max(&mut self, max: u64) {
        if let Self::Lirs(lirs) = self {
            lirs.set_max(max);
        }
    }

    /// Moves the few entries of a tiny adaptive cache into the order of a large one.
    pub(super) fn become_adaptive(&mut self, max: u64, seed: u64) {
        if let Self::Lru(lru) = self {
            let mut lirs = Box::new(Lirs::new(max, seed));
            while let Some(oldest) = lru.victim() {
                lru.removed(oldest);
                lirs.admit(oldest);
            }
            *self = Self::Lirs(lirs);
        }
    }

    /// Moves the entries that are heavier than `limit` into the other queue.
    pub(super) fn split_heavier(&mut self, limit: u64, other: &mut Weighed<K, V>) {
        match self {
            Self::Lirs(lirs) => lirs.split_heavier(limit, other),
            Self::Lru(lru) => lru.split_heavier(limit, other),
        }
    }

    /// The queues, from the coldest to the hottest.
    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut Weighed<K, V>> {
        let (one, three) = match self {
            Self::Lirs(lirs) => (None, Some(lirs.queues())),
            Self::Lru(lru) => (Some(lru.queue()), None),
        };
        one.into_iter().chain(three.into_iter().flatten())
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self, weights: std::ops::RangeInclusive<u64>) {
        match self {
            Self::Lirs(lirs) => lirs.check_invariants(weights),
            Self::Lru(lru) => lru.check_invariants(weights),
        }
    }
}
