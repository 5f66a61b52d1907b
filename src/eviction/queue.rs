//! A queue of the size policy: an intrusive list that knows the weight of its entries.
//!
//! The front is the oldest end, the back the newest. While an entry is linked here, its `queue_id`
//! is the number of this queue; after [`unlink`](WeighedQueue::unlink) it is [`OUT`].
//!
//! # Invariants
//!
//! 1. An entry is in a queue if and only if its `queue_id` is that queue's number (so list 1
//!    holds).
//! 2. `weight` is the sum of the weights of the entries, each of which is at least 1.
//! 3. `cursor` is an entry of this queue, or `None`. A walk visits every entry that is here as it
//!    comes to this queue, and stays: an entry moves only to the newest end, which the walk reaches
//!    last. The number of visits is bounded, so the walk ends though writers add entries.

use crate::list::{List, QUEUE};
use crate::node::EntryPtr;

/// `queue_id` of an entry that is in no queue and not known to the policy.
pub(crate) const OUT: u8 = 0;
/// `queue_id` of a known entry that weighs nothing: in no queue, never a victim.
pub(super) const WEIGHTLESS: u8 = 1;
/// `queue_id` of an entry heavier than the maximum: the next victim.
pub(super) const OVERWEIGHT: u8 = 2;
/// The first `queue_id` that a policy may give a meaning.
pub(super) const FIRST_FREE: u8 = 3;

pub(super) struct WeighedQueue<K, V> {
    pub(super) list: List<K, V, QUEUE>,
    /// The entry that a walk visits next (queue 3).
    cursor: Option<EntryPtr<K, V>>,
    /// Whether the walk has come to this queue.
    is_entered: bool,
    /// How many visits the walk may still make here.
    ahead: usize,
    pub(super) weight: u64,
    pub(super) queue_id: u8,
}

impl<K, V> WeighedQueue<K, V> {
    /// A queue whose entries carry `queue_id`, a number no other queue of the policy has.
    pub(super) const fn new(queue_id: u8) -> Self {
        Self {
            list: List::new(),
            cursor: None,
            is_entered: false,
            ahead: 0,
            weight: 0,
            queue_id,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn oldest(&self) -> Option<EntryPtr<K, V>> {
        self.list.front()
    }

    pub(super) fn push_newest(&mut self, entry: EntryPtr<K, V>) {
        debug_assert_eq!(entry.queue_id.get(), OUT, "linked into a second queue");
        entry.queue_id.set(self.queue_id);
        self.weight += u64::from(entry.policy().weight.get());
        self.list.push_back(entry);
    }

    pub(super) fn unlink(&mut self, entry: EntryPtr<K, V>) {
        debug_assert_eq!(
            entry.queue_id.get(),
            self.queue_id,
            "unlinked from a queue it is not in"
        );
        let was_oldest = self.list.front() == Some(entry);
        self.skip_cursor(entry);
        self.list.unlink(entry);
        self.weight -= u64::from(entry.policy().weight.get());
        entry.queue_id.set(OUT);
        if was_oldest {
            self.prefetch_second();
        }
    }

    /// Prefetches the node of the second oldest entry and the entry behind it: when the oldest
    /// entry leaves, the next mostly follows soon.
    fn prefetch_second(&self) {
        let Some(oldest) = self.list.front() else {
            return;
        };
        let Some(second) = List::<K, V, QUEUE>::next(oldest) else {
            return;
        };
        // Its state changes, its hash is read.
        second.node().prefetch_hot_to_write();
        second.node().prefetch_side();
        if let Some(third) = List::<K, V, QUEUE>::next(second) {
            third.prefetch(true);
        }
    }

    pub(super) fn move_to_newest(&mut self, entry: EntryPtr<K, V>) {
        if self.list.back() != Some(entry) {
            self.skip_cursor(entry);
            self.list.unlink(entry);
            self.list.push_back(entry);
        }
    }

    /// If the cursor of a walk is at `entry`, which is about to move, moves the cursor to the next
    /// entry.
    #[inline]
    fn skip_cursor(&mut self, entry: EntryPtr<K, V>) {
        if self.cursor == Some(entry) {
            self.cursor = List::<K, V, QUEUE>::next(entry);
        }
    }

    /// Begins a walk from the oldest entry to the newest, of at most `most` visits. It replaces one
    /// that was under way.
    pub(super) fn begin_walk(&mut self, most: usize) {
        self.is_entered = false;
        self.ahead = most;
    }

    /// Goes on with the walk for at most `most` entries; returns how many it visited, fewer than
    /// `most` only at the end. An entry that is used during the walk may be visited twice.
    pub(super) fn walk(&mut self, most: usize, visit: &mut impl FnMut(EntryPtr<K, V>)) -> usize {
        if !std::mem::replace(&mut self.is_entered, true) {
            self.cursor = self.list.front();
        }
        let mut visited = 0;
        while visited < most.min(self.ahead) {
            let Some(entry) = self.cursor else { break };
            self.cursor = List::<K, V, QUEUE>::next(entry);
            visited += 1;
            visit(entry);
        }
        self.ahead -= visited;
        visited
    }

    /// Changes the weight of an entry that is linked here.
    pub(super) fn reweigh(&mut self, entry: EntryPtr<K, V>, weight: u32) {
        self.weight = self.weight - u64::from(entry.policy().weight.get()) + u64::from(weight);
        entry.policy().weight.set(weight);
    }

    /// Moves every entry whose weight `leaves` to `other`. Visits the whole queue.
    pub(super) fn split(&mut self, other: &mut Self, leaves: impl Fn(u64) -> bool) {
        let mut at = self.list.front();
        while let Some(entry) = at {
            at = List::<K, V, QUEUE>::next(entry);
            if leaves(u64::from(entry.policy().weight.get())) {
                self.unlink(entry);
                other.push_newest(entry);
            }
        }
    }
}
