//! The invariants of the size policy, as assertions; their numbers are those of the files that
//! state them.

use super::Eviction;
use super::lirs::Lirs;
use super::queue::WeighedQueue;
use super::window::{LEAST_PART, SLACK, WindowSizer};
use std::ops::RangeInclusive;

impl<K, V> Eviction<K, V> {
    /// Asserts eviction 2, that overweight nodes are heavier than the maximum, and the invariants
    /// of the parts; visits all nodes in queues.
    pub(crate) fn check_invariants(&self) {
        self.overweight
            .check_invariants(self.max.saturating_add(1)..=u64::MAX);
        assert!(u64::from(self.heaviest) <= self.max || self.heaviest == 0);
        let weights = 1..=u64::from(self.heaviest);
        self.order.check_invariants(weights);
    }
}

impl<K, V> Lirs<K, V> {
    /// Asserts lirs 1 and 2, and the invariants of the parts.
    fn check_invariants(&self, weights: RangeInclusive<u64>) {
        for queue in [&self.window, &self.protected, &self.tail] {
            queue.check_invariants(weights.clone());
        }
        self.sizer.check_invariants();
        assert!(
            self.protected.len() == 0 || self.tail.len() > 0,
            "a protected queue of {} without a tail",
            self.protected.len()
        );
    }
}

impl<K, V> WeighedQueue<K, V> {
    /// Asserts queue 1 for the entries of this queue, queue 2, the invariants of the list, and that
    /// every weight is in `weights`.
    fn check_invariants(&self, weights: RangeInclusive<u64>) {
        self.list.check_invariants();
        let mut weight = 0;
        for entry in self.list.iter() {
            assert_eq!(
                entry.queue_id.get(),
                self.queue_id,
                "the queue_id of a linked entry"
            );
            let of_node = u64::from(entry.policy().weight.get());
            assert!(
                weights.contains(&of_node),
                "weight {of_node} in queue {}",
                self.queue_id
            );
            weight += of_node;
        }
        assert_eq!(self.weight, weight, "weight of queue {}", self.queue_id);
    }
}

impl WindowSizer {
    /// Asserts window 1 and 2.
    pub(super) fn check_invariants(&self) {
        assert!((LEAST_PART - SLACK..=1.0 - LEAST_PART + SLACK).contains(&self.raw_part));
        assert_eq!(self.part, self.raw_part.clamp(LEAST_PART, 1.0 - LEAST_PART));
        assert_eq!(self.window, self.weighed());
    }
}
