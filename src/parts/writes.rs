//! The batch of write events.

use super::nodes::Nodes;
use crate::buffer::{Batch, WriteEvent};
use crate::sync::ShortMutex;

/// The events that a write leaves for the pass, without the map.
#[allow(missing_debug_implementations)]
pub struct Writes {
    nodes: Nodes,
    waiting: ShortMutex<Batch<u32, ()>>,
    taken: Batch<u32, ()>,
}

impl Writes {
    /// Events of `count` entries.
    pub fn new(count: u32) -> Self {
        Self {
            nodes: Nodes::idle(count),
            waiting: ShortMutex::new(Batch::new()),
            taken: Batch::new(),
        }
    }

    /// Notes that the entry of this number, taken modulo their count, came in: under a lock, as a
    /// writer holds its shard's.
    #[inline]
    pub fn push(&mut self, number: u32) {
        if let Some(node) = self.nodes.cycled(number) {
            self.waiting.lock().push(WriteEvent::Added(node));
        }
    }

    /// Takes all events over, as the pass does, and goes through them; how many there were.
    #[inline]
    pub fn drain(&mut self) -> usize {
        std::mem::swap(&mut *self.waiting.lock(), &mut self.taken);
        self.taken.drain(..).count()
    }
}
