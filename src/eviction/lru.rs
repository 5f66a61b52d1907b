//! Least recently used: one queue. Every use moves an entry to the newest end; the oldest goes
//! first.
//!
//! It is predictable, and the right choice if only recency matters. It remembers nothing of what it
//! evicted. So one pass over more keys than fit evicts all others, and a loop over slightly more
//! keys than fit never hits. Cost: a use relinks the entry, which touches its two neighbours.

use super::FIRST_FREE;
use super::queue::Weighed;
use crate::node::EntryPtr;

pub(super) struct Lru<K, V> {
    queue: Weighed<K, V>,
}

impl<K, V> Lru<K, V> {
    pub(super) const fn new() -> Self {
        Self {
            queue: Weighed::new(FIRST_FREE),
        }
    }

    pub(super) fn admit(&mut self, entry: EntryPtr<K, V>) {
        self.queue.push_newest(entry);
    }

    pub(super) fn reweigh(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        self.queue.reweigh(entry, weight);
    }

    pub(super) fn accessed(&mut self, entry: EntryPtr<K, V>) {
        self.queue.move_to_newest(entry);
    }

    pub(super) fn removed(&mut self, entry: EntryPtr<K, V>) {
        self.queue.unlink(entry);
    }

    pub(super) fn victim(&self) -> Option<EntryPtr<K, V>> {
        self.queue.oldest()
    }

    pub(super) fn queue(&mut self) -> &mut Weighed<K, V> {
        &mut self.queue
    }

    pub(super) fn weight(&self) -> u64 {
        self.queue.weight()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn split_heavier(&mut self, limit: u64, other: &mut Weighed<K, V>) {
        self.queue.split_heavier(limit, other);
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self, weights: std::ops::RangeInclusive<u64>) {
        self.queue.check_invariants(weights);
    }
}
