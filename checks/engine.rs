//! The invariants of map, wheel and size policy against each other, as assertions.

use super::pass::Plan;
use super::{Engine, Part};
use crate::eviction::{Eviction, OUT};
use crate::list::{List, TIMER};
use crate::map::Walk;
use crate::node::{EntryPtr, NO_BUCKET, NodePtr, NodeState};
use crate::time::NEVER;

impl<K, V> Engine<K, V> {
    /// No thread can run a pass until the result is dropped.
    #[cfg(test)]
    pub(crate) fn hold_passes(&self) -> impl Sized + '_ {
        let held: Vec<_> = self.parts.iter().map(|part| part.state.lock()).collect();
        held
    }

    /// Asserts what holds between two calls of a cache that no other thread uses: each part by
    /// itself, and that map, wheel and size policy know the same entries.
    ///
    /// First drains the waiting writes, by one pass without a budget, which expires entries only if
    /// the cache is over its bound.
    pub(crate) fn check_invariants(&self) {
        let plan = Plan {
            budget: usize::MAX,
            ..Plan::CATCH_UP
        };
        for part in &self.parts {
            self.pass(&mut part.state.lock(), self.plan_of_part(plan));
        }
        self.evict_from_heaviest(plan, &mut None, usize::MAX);
        self.map.check_invariants();
        let mut all = 0;
        for (number, part) in self.parts.iter().enumerate() {
            all += self.check_part(number, part);
        }
        if let Some(max) = self.max_capacity() {
            assert!(all <= max, "over the bound after passes without a budget");
        }
    }

    /// Returns what its entries weigh in the size policy.
    fn check_part(&self, number: usize, part: &Part<K, V>) -> u64 {
        let state = part.state.lock();
        state.wheel.check_invariants();
        if let Some(eviction) = &state.eviction {
            eviction.check_invariants();
        }
        let is_empty = state.gathered.is_empty()
            && state.batch.is_empty()
            && state.of_tables.is_empty()
            && state.read.is_empty();
        assert!(is_empty, "a pass empties its buffers");

        let (mut timed, mut weight) = (0, 0);
        self.each_node(|node| {
            if self.number_of_part(node.shard()) != number {
                return;
            }
            assert_eq!(node.state(), NodeState::InMap);
            let (entry, deadline) = (node.entry(), node.deadline());
            assert_eq!(entry.node(), node, "an entry names another node");
            assert_eq!(
                entry.bucket_id.get() != NO_BUCKET,
                deadline != NEVER,
                "an entry with the deadline {deadline:#x} in bucket {}",
                entry.bucket_id.get()
            );
            if entry.bucket_id.get() != NO_BUCKET {
                timed += 1;
                check_neighbours(entry);
            }
            if state.eviction.is_some() {
                assert_ne!(
                    entry.queue_id.get(),
                    OUT,
                    "an entry that the size policy does not know"
                );
                weight += u64::from(node.weight());
            }
        });
        assert_eq!(
            state.wheel.len(),
            timed,
            "entries in the wheel against those in the map"
        );
        let Some(known) = state.eviction.as_ref().map(Eviction::weight) else {
            return 0;
        };
        assert_eq!(
            known, weight,
            "weight in the size policy against that in the map"
        );
        known
    }

    pub(super) fn each_node(&self, mut look: impl FnMut(NodePtr<K, V>)) {
        let pin = self.pin();
        let (mut walk, mut nodes) = (Walk::default(), Vec::new());
        while self.map.next_group(&mut walk, &pin, &mut nodes) {
            nodes.iter().copied().for_each(&mut look);
        }
    }
}

/// The neighbours of an entry in the wheel are entries of the map, too, and know that they are
/// linked.
fn check_neighbours<K, V>(entry: EntryPtr<K, V>) {
    let of = |entry: EntryPtr<K, V>| (entry.node().state(), entry.bucket_id.get());
    if let Some(prev) = List::<K, V, TIMER>::prev(entry) {
        assert_eq!(of(prev), (NodeState::InMap, entry.bucket_id.get()));
        assert!(List::<K, V, TIMER>::next(prev) == Some(entry));
    }
    if let Some(next) = List::<K, V, TIMER>::next(entry) {
        assert_eq!(of(next), (NodeState::InMap, entry.bucket_id.get()));
        assert!(List::<K, V, TIMER>::prev(next) == Some(entry));
    }
}
