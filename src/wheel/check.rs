//! The invariants of the wheel as assertions; their numbers are those of the parent module.

use super::Wheel;
use super::level::{self, LEVELS};
use crate::node::{Life, SeatPtr};
use crate::time;

impl<K, V> Wheel<K, V> {
    /// Number of nodes linked.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// By when an entry with this deadline (not `NEVER`) is removed at the latest if the wheel is advanced in time.
    pub(crate) fn flush_time(&self, deadline: u64) -> u64 {
        self.spans.flush_time(deadline, self.now)
    }

    /// Asserts what holds at every moment: invariants 1 to 3.
    pub(crate) fn check_invariants(&self) {
        let Some(buckets) = &self.buckets else {
            assert_eq!(self.len, 0, "nodes without buckets");
            return;
        };
        let mut len = 0;
        for (place, bucket) in (0..).zip(&buckets.by_place) {
            bucket.seats.check_invariants();
            len += bucket.seats.len();
            assert_eq!(
                self.occupied.contains(place),
                !bucket.seats.is_empty(),
                "occupied bit of bucket {place}"
            );
            assert_eq!(
                self.ripe.contains(place),
                bucket.ripe_end.is_some(),
                "ripe bit of bucket {place}"
            );
            for seat in bucket.seats.iter() {
                assert_eq!(seat.place(), place, "a seat's place is not its bucket");
                assert_eq!(seat.node().seat(), seat, "a node in a seat of another");
            }
            if let Some(end) = bucket.ripe_end {
                assert!(
                    bucket.seats.iter().any(|seat| seat == end),
                    "the ripe end is not in its bucket"
                );
            }
            match level::level_of(place) {
                None => assert_eq!(
                    bucket.seats.is_empty(),
                    bucket.ripe_end.is_none(),
                    "the overdue are not ripe"
                ),
                Some((level, index)) => assert!(
                    level == 0
                        || level + 1 == LEVELS
                        || index != self.spans.hand(level, self.now)
                        || bucket.ripe_end == bucket.seats.back(),
                    "unripe nodes under the hand of level {level}"
                ),
            }
        }
        assert_eq!(self.len, len, "length");
        assert_eq!(self.is_empty(), self.next_deadline().is_none());
    }

    /// Asserts invariants 4 and 5, for a caller who knows that no deadline of a live node moved earlier without a
    /// `reschedule`.
    pub(crate) fn check_promptness(&self) {
        let Some(buckets) = &self.buckets else {
            return;
        };
        for (place, bucket) in (0..).zip(&buckets.by_place) {
            let Some((level, index)) = level::level_of(place) else {
                continue;
            };
            let visit = self.spans.visit(level, index, self.now);
            assert!(!level::has_passed(self.now, visit), "a visit in the past");
            let mut seats = bucket.seats.iter();
            if let Some(end) = bucket.ripe_end {
                seats.find(|&seat| seat == end);
            }
            for node in seats.map(SeatPtr::node) {
                let deadline = node.deadline();
                // Who replaces or expires a node moves its deadline into the past; its descheduling is under way.
                if deadline == time::NEVER || node.life() != Life::Live {
                    continue;
                }
                // Not `flush_time`: seen from a now that is past the deadline that would be now.
                let until_flush = deadline.wrapping_sub(visit) as i64;
                let span = self.spans.span(0).as_nanos() as i64;
                assert!(
                    until_flush > -span,
                    "a node in bucket {index} of level {level} is visited {} ns late",
                    -until_flush
                );
                if level == 0 {
                    let bound = buckets.earliest[index as usize];
                    assert!(
                        deadline.wrapping_sub(bound) as i64 >= 0,
                        "the bound of bucket {index} is later than a deadline in it"
                    );
                }
            }
        }
    }
}
