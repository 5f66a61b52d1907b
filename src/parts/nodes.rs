//! Nodes by number, for parts that know them by pointer.
#![allow(unsafe_code)]

use crate::node::{Columns, Emptied, NewNode, NodePtr, Slab, Times};
use crate::time;

/// How many slots go back to the slab at a time, as they do behind a pass.
const BATCH: usize = 64;

/// Nodes without a destructor, each under the number that is its key.
pub(super) struct Nodes {
    slab: Slab<u32, ()>,
    by_number: Vec<Option<NodePtr<u32, ()>>>,
    vacant: Vec<u32>,
    emptied: Emptied<u32, ()>,
    waiting: usize,
}

impl Nodes {
    pub(super) fn new(columns: Columns) -> Self {
        Self {
            slab: Slab::new(columns),
            by_number: Vec::new(),
            vacant: Vec::new(),
            emptied: Emptied::new(),
            waiting: 0,
        }
    }

    /// This many nodes that are not linked and have no deadline.
    pub(super) fn idle(count: u32) -> Self {
        let mut nodes = Self::new(Columns::default());
        for _ in 0..count {
            nodes.make(0, time::NEVER);
        }
        nodes
    }

    /// A node that is not linked; its key is its number.
    #[inline]
    pub(super) fn make(&mut self, hash: u64, deadline: u64) -> NodePtr<u32, ()> {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.by_number.push(None);
            u32::try_from(self.by_number.len() - 1).expect("fewer than 2^32 nodes")
        });
        let times = Times {
            deadline,
            ..Times::NONE
        };
        let node = self.slab.place(NewNode::new(number, (), hash, 1), times);
        self.by_number[number as usize] = Some(node);
        node
    }

    /// The node of a number, if it is there.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<NodePtr<u32, ()>> {
        *self.by_number.get(number as usize)?
    }

    /// The node of a number, taken modulo how many there have been.
    #[inline]
    pub(super) fn cycled(&self, number: u32) -> Option<NodePtr<u32, ()>> {
        self.get(number.checked_rem(self.by_number.len() as u32)?)
    }

    /// Frees a node that the part has let go.
    #[inline]
    pub(super) fn free(&mut self, node: NodePtr<u32, ()>) {
        let number = *node.key();
        self.by_number[number as usize] = None;
        self.vacant.push(number);
        // SAFETY: node 1: made by this slab and just forgotten here; the part that calls has
        // unlinked it, and runs on one thread. Nothing in it has a destructor.
        unsafe { self.emptied.push(node) }
        self.waiting += 1;
        if self.waiting == BATCH {
            self.waiting = 0;
            let emptied = std::mem::replace(&mut self.emptied, Emptied::new());
            drop(self.slab.take_back(emptied));
        }
    }
}
