//! The order in which a policy evicts, behind one set of methods.

use super::lirs::Lirs;
use super::queue::{FIRST_FREE, WeighedQueue};
use crate::node::EntryPtr;

/// The nodes that may be victims, in the order of the policy.
pub(super) enum Order<K, V> {
    Adaptive(Box<Lirs<K, V>>),
    /// Least recently used: every use moves an entry to the newest end; the oldest goes first.
    ///
    /// It is predictable, and the right choice if only recency matters. It remembers nothing of
    /// what it evicted. So one pass over more keys than fit evicts all others, and a loop over
    /// slightly more keys than fit never hits. Cost: a use relinks the entry, which touches its two
    /// neighbours.
    Lru(WeighedQueue<K, V>),
}

impl<K, V> Order<K, V> {
    pub(super) fn adaptive(max: u64, seed: u64) -> Self {
        Self::Adaptive(Box::new(Lirs::new(max, seed)))
    }

    pub(super) const fn lru() -> Self {
        Self::Lru(WeighedQueue::new(FIRST_FREE))
    }

    /// Whether it is the exact order of use.
    #[inline]
    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Self::Lru(_))
    }

    #[inline]
    pub(super) fn admit(&mut self, entry: EntryPtr<K, V>) {
        match self {
            Self::Adaptive(lirs) => lirs.admit(entry),
            Self::Lru(queue) => queue.push_newest(entry),
        }
    }

    /// Prefetches what [`admit`](Self::admit) will look up.
    #[inline]
    pub(super) fn prefetch(&self, entry: EntryPtr<K, V>) {
        if let Self::Adaptive(lirs) = self {
            lirs.prefetch(entry);
        }
    }

    #[inline]
    pub(super) fn reweigh(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        match self {
            Self::Adaptive(lirs) => lirs.reweigh(entry, weight),
            Self::Lru(queue) => queue.reweigh(entry, weight),
        }
    }

    #[inline]
    pub(super) fn accessed(&mut self, entry: EntryPtr<K, V>) {
        match self {
            Self::Adaptive(lirs) => lirs.accessed(entry),
            Self::Lru(queue) => queue.move_to_newest(entry),
        }
    }

    /// Takes an entry out. `evicted` says whether it goes because it was the victim.
    #[inline]
    pub(super) fn removed(&mut self, entry: EntryPtr<K, V>, evicted: bool) {
        match self {
            Self::Adaptive(lirs) => lirs.removed(entry, evicted),
            Self::Lru(queue) => queue.unlink(entry),
        }
    }

    /// Takes an entry out that is past its deadline.
    #[inline]
    pub(super) fn expired(&mut self, entry: EntryPtr<K, V>) {
        match self {
            Self::Adaptive(lirs) => lirs.expired(entry),
            Self::Lru(queue) => queue.unlink(entry),
        }
    }

    /// The entry to evict first.
    #[inline]
    pub(super) fn victim(&self) -> Option<EntryPtr<K, V>> {
        match self {
            Self::Adaptive(lirs) => lirs.victim(),
            Self::Lru(queue) => queue.oldest(),
        }
    }

    #[inline]
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Adaptive(lirs) => lirs.weight(),
            Self::Lru(queue) => queue.weight(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Adaptive(lirs) => lirs.len(),
            Self::Lru(queue) => queue.len(),
        }
    }

    /// Follows a change of the bound.
    pub(super) fn set_max(&mut self, max: u64) {
        if let Self::Adaptive(lirs) = self {
            lirs.set_max(max);
        }
    }

    /// Moves the few entries of a tiny adaptive cache into the order of a large one.
    pub(super) fn become_adaptive(&mut self, max: u64, seed: u64) {
        if let Self::Lru(queue) = self {
            let mut lirs = Box::new(Lirs::new(max, seed));
            while let Some(oldest) = queue.oldest() {
                queue.unlink(oldest);
                lirs.admit(oldest);
            }
            *self = Self::Adaptive(lirs);
        }
    }

    /// Moves the entries that are heavier than `limit` into the other queue.
    pub(super) fn split_heavier(&mut self, limit: u64, other: &mut WeighedQueue<K, V>) {
        self.queues()
            .for_each(|queue| queue.split(other, |weight| weight > limit));
        if let Self::Adaptive(lirs) = self {
            lirs.fill_tail();
        }
    }

    /// The queues, from the one that is evicted from first to the one that is evicted from last.
    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut WeighedQueue<K, V>> {
        let (one, three) = match self {
            Self::Adaptive(lirs) => (None, Some(lirs.queues())),
            Self::Lru(queue) => (Some(queue), None),
        };
        one.into_iter().chain(three.into_iter().flatten())
    }
}
