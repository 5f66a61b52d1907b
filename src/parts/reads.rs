//! The rings of read events.

use super::nodes::Nodes;
use crate::buffer::read::ReadBuffer;
use crate::node::NodePtr;
use crate::reclaim::Domain;

/// The record of a hit in a bounded cache, without the cache.
#[allow(missing_debug_implementations)]
pub struct Reads {
    nodes: Nodes,
    rings: ReadBuffer<u32, ()>,
    domain: Domain,
    taken: Vec<NodePtr<u32, ()>>,
}

impl Reads {
    /// Events of `count` entries, in `stripes` rings, a power of two.
    pub fn new(count: u32, stripes: usize) -> Self {
        Self {
            nodes: Nodes::idle(count),
            rings: ReadBuffer::new(stripes),
            domain: Domain::new(),
            taken: Vec::new(),
        }
    }

    /// Offers a read of the entry of this number (modulo the count), whether or not it would be
    /// recorded.
    #[inline]
    pub fn offer(&mut self, number: u32) {
        if let Some(node) = self.nodes.cycled(number) {
            let pin = self.domain.pin();
            _ = self.rings.offer(node, &pin);
        }
    }

    /// Whether a read of this entry would be told.
    #[inline]
    pub fn should_record(&self, number: u32) -> bool {
        let node = self.nodes.cycled(number);
        node.is_some_and(|node| self.rings.should_record(node))
    }

    /// Takes all events out; how many there were. Then the next read of every entry is recorded.
    #[inline]
    pub fn drain(&mut self) -> usize {
        let mut taken = 0;
        self.rings
            .drain(&mut self.taken, |nodes| taken += nodes.len());
        self.rings.renew();
        taken
    }
}
