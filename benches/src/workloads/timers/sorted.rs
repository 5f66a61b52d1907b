//! The two structures of the standard library: a heap, whose cancelled timers stay until their time
//! comes, and a sorted map.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

use super::Timers;
use crate::peer::Card;

/// A binary heap and a mark for each timer cancelled.
pub(super) struct Heap {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    cancelled: Vec<bool>,
}

impl Timers for Heap {
    const CARD: Card = Card::cache("BinaryHeap, lazy cancel");

    type Handle = u32;

    fn new(timers: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(timers),
            cancelled: Vec::with_capacity(timers),
        }
    }

    #[inline]
    fn start(&mut self, id: u32, due: u64) -> u32 {
        self.heap.push(Reverse((due, id)));
        if self.cancelled.len() <= id as usize {
            self.cancelled.resize(id as usize + 1, false);
        }
        id
    }

    #[inline]
    fn cancel(&mut self, handle: u32) {
        self.cancelled[handle as usize] = true;
    }

    fn advance(&mut self, now: u64) -> u64 {
        let mut fired = 0;
        while let Some(&Reverse((due, id))) = self.heap.peek() {
            if due > now {
                break;
            }
            self.heap.pop();
            fired += u64::from(!self.cancelled[id as usize]);
        }
        fired
    }
}

/// A B-tree ordered by deadline.
pub(super) struct Tree(BTreeSet<(u64, u32)>);

impl Timers for Tree {
    const CARD: Card = Card::cache("BTreeSet");

    type Handle = (u64, u32);

    fn new(_: usize) -> Self {
        Self(BTreeSet::new())
    }

    #[inline]
    fn start(&mut self, id: u32, due: u64) -> (u64, u32) {
        self.0.insert((due, id));
        (due, id)
    }

    #[inline]
    fn cancel(&mut self, handle: (u64, u32)) {
        self.0.remove(&handle);
    }

    fn advance(&mut self, now: u64) -> u64 {
        let mut fired = 0;
        while self.0.first().is_some_and(|(due, _)| *due <= now) {
            self.0.pop_first();
            fired += 1;
        }
        fired
    }
}
