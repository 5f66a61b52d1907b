//! The timer wheel, with the slab that its nodes live in.

use super::nodes::Nodes;
use crate::node::Columns;
use crate::time;
use crate::wheel::{Spans, Wheel};
use std::time::Duration;

/// Timers in a wheel: what a cache does for deadlines, without the cache. Times are nanoseconds.
#[allow(missing_debug_implementations)]
pub struct Timers {
    nodes: Nodes,
    wheel: Wheel<u32, ()>,
}

impl Timers {
    /// An empty wheel that stands at 0, with buckets of a cache's default width.
    pub fn new() -> Self {
        Self {
            nodes: Nodes::new(Columns::default()),
            wheel: Wheel::new(0, Spans::new(Duration::from_secs(1))),
        }
    }

    /// Starts a timer and gives it a number, perhaps that of an earlier one which is gone.
    #[inline]
    pub fn start(&mut self, deadline: u64) -> u32 {
        // The one value that means "never" ends a nanosecond late.
        let deadline = if deadline == time::NEVER {
            deadline.wrapping_add(1)
        } else {
            deadline
        };
        let node = self.nodes.make(0, deadline);
        self.wheel.schedule(node);
        *node.key()
    }

    /// Cancels the timer of this number; false if there is none.
    #[inline]
    pub fn cancel(&mut self, number: u32) -> bool {
        let Some(node) = self.nodes.get(number) else {
            return false;
        };
        self.wheel.deschedule(node);
        self.nodes.free(node);
        true
    }

    /// Advances to `now` and calls `fired` with the number of each timer whose tick is over.
    pub fn advance(&mut self, now: u64, mut fired: impl FnMut(u32)) {
        let mut budget = usize::MAX;
        while let Some(node) = self.wheel.next_due(now, &mut budget) {
            fired(*node.key());
            self.nodes.free(node);
        }
    }
}

impl Default for Timers {
    fn default() -> Self {
        Self::new()
    }
}
