//! The invariants of the wheel as assertions; their numbers are those of the parent module.

use super::Wheel;
use super::level::{self, LEVELS};
use crate::node::{EntryPtr, NodeState};
use crate::time;

impl<K, V> Wheel<K, V> {
    /// Number of nodes linked.
    pub(crate) fn len(&self) -> usize {
        let buckets = self.buckets.iter().flat_map(|buckets| buckets.iter());
        buckets.map(|bucket| bucket.entries.len()).sum()
    }

    /// The latest moment at which an entry with this deadline (not `NEVER`) is removed if the wheel
    /// is advanced in time.
    pub(crate) fn flush_time(&self, deadline: u64) -> u64 {
        self.spans.flush_time(self.now, deadline)
    }

    /// Asserts the invariants that hold at every moment: 1 to 3.
    pub(crate) fn check_invariants(&self) {
        let Some(buckets) = &self.buckets else {
            assert!(self.is_empty(), "nodes without buckets");
            return;
        };
        for (bucket_id, bucket) in (0..).zip(buckets.iter()) {
            bucket.entries.check_invariants();
            assert_eq!(
                self.occupied.contains(bucket_id),
                !bucket.entries.is_empty(),
                "occupied bit of bucket {bucket_id}"
            );
            assert_eq!(
                self.pending.contains(bucket_id),
                bucket.pending_end.is_some(),
                "pending bit of bucket {bucket_id}"
            );
            for entry in bucket.entries.iter() {
                assert_eq!(
                    entry.bucket_id.get(),
                    bucket_id,
                    "an entry's bucket_id is not its bucket"
                );
                assert_eq!(entry.node().entry(), entry, "a node in an entry of another");
            }
            if let Some(end) = bucket.pending_end {
                assert!(
                    bucket.entries.iter().any(|entry| entry == end),
                    "the pending end is not in its bucket"
                );
            }
            match level::level_of(bucket_id) {
                None => assert_eq!(
                    bucket.entries.is_empty(),
                    bucket.pending_end.is_none(),
                    "the late bucket is not pending"
                ),
                Some((level, index)) => assert!(
                    level == 0
                        || level + 1 == LEVELS
                        || index != self.spans.hand(level, self.now)
                        || bucket.pending_end == bucket.entries.back(),
                    "nodes under the hand of level {level} that are not pending"
                ),
            }
        }
        assert_eq!(self.is_empty(), self.next_visit().is_none());
    }

    /// Asserts invariants 4 and 5. The caller knows that no deadline of a live node moved earlier
    /// without a `reschedule`.
    pub(crate) fn check_promptness(&self) {
        let Some(buckets) = &self.buckets else {
            return;
        };
        for (bucket_id, bucket) in (0..).zip(buckets.iter()) {
            let Some((level, index)) = level::level_of(bucket_id) else {
                continue;
            };
            let visit = self.spans.visit(level, index, self.now);
            assert!(!time::has_come(self.now, visit), "a visit in the past");
            let mut entries = bucket.entries.iter();
            if let Some(end) = bucket.pending_end {
                entries.find(|&entry| entry == end);
            }
            for node in entries.map(EntryPtr::node) {
                let deadline = node.deadline();
                // A writer that replaces or expires a node moves its deadline into the past; it
                // will deschedule the node next.
                if deadline == time::NEVER || node.state() != NodeState::InMap {
                    continue;
                }
                // Not `flush_time`: for a deadline in the past it answers `now`.
                let until_flush = deadline.wrapping_sub(visit) as i64;
                let span = self.spans.span(0).as_nanos() as i64;
                assert!(
                    until_flush > -span,
                    "a node in bucket {index} of level {level} is visited {} ns late",
                    -until_flush
                );
                if level == 0 {
                    assert!(
                        deadline.wrapping_sub(bucket.earliest) as i64 >= 0,
                        "the bound of bucket {index} is later than a deadline in it"
                    );
                }
            }
        }
    }
}
