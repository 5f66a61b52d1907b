//! Walks through the entries of the size policy, from the first victim to the last, in small steps.
//!
//! A walk goes through one queue after the other. The length of a queue when the walk comes there
//! bounds its visits, so it ends however much writers add meanwhile. Between two steps the policy
//! may change: an entry that moves to another queue may be visited twice or not at all. So a walk
//! gives an order, and its caller learns elsewhere, from the map, which entries there are.

use super::Eviction;
use super::queue::WeighedQueue;
use crate::node::EntryPtr;

/// A walk: how far it has come.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The queue that it is in, in the order of [`Eviction::queues`].
    queue: usize,
    /// Whether it has begun in that queue.
    entered: bool,
}

impl<K, V> Eviction<K, V> {
    fn queues(&mut self) -> impl Iterator<Item = &mut WeighedQueue<K, V>> {
        std::iter::once(&mut self.overweight).chain(self.order.queues())
    }

    /// Visits at most `most` further entries; false at the end of the walk. One walk at a time.
    pub(crate) fn walk(
        &mut self,
        walk: &mut Walk,
        most: usize,
        mut visit: impl FnMut(EntryPtr<K, V>),
    ) -> bool {
        let mut left = most;
        for queue in self.queues().skip(walk.queue) {
            if !std::mem::replace(&mut walk.entered, true) {
                queue.begin_walk();
            }
            left -= queue.walk(left, &mut visit);
            if left == 0 {
                return true;
            }
            walk.queue += 1;
            walk.entered = false;
        }
        false
    }
}
