//! The wheel by itself: its arithmetic, the failures of other wheels, and random programs against
//! an oracle.

mod arithmetic;
mod failures;
mod random;
mod steps;

use super::level::Spans;
use super::oracle::Nodes;
use super::{NodePtr, Wheel};
use crate::time::{self, NEVER};

/// Times at which the clock of a test may start: around each value where a wrapping or a signed
/// comparison could go wrong, and at the reserved deadline.
const ORIGINS: [u64; 12] = [
    0,
    1,
    1 << 20,
    (1 << 32) - 1,
    i64::MAX as u64 - 70,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 12_345,
    NEVER - 1_000_003,
    NEVER,
    u64::MAX - 70,
    u64::MAX,
];

/// log2 of the finest span in most tests: 1,024 ns.
const SHIFT: u32 = 10;

/// The finest span in most tests.
const SPAN: u64 = 1 << SHIFT;

/// Spans of the five levels in most tests.
const SPANS: [u64; 5] = [SPAN, SPAN << 6, SPAN << 12, SPAN << 17, SPAN << 19];

/// A wheel and the nodes linked in it.
struct Rig {
    wheel: Wheel<u64, u64>,
    nodes: Nodes,
}

impl Rig {
    fn at(now: u64) -> Self {
        Self::with_shift(now, SHIFT)
    }

    fn with_shift(now: u64, shift: u32) -> Self {
        Self {
            wheel: Wheel::new(now, Spans::with_shift(shift)),
            nodes: Nodes::default(),
        }
    }

    /// Schedules a new node for `delay` from the wheel's now, or 1 ns beside the reserved value; a
    /// negative one is late.
    fn schedule_in(&mut self, delay: i64) -> NodePtr<u64, u64> {
        let deadline = self.wheel.now().wrapping_add_signed(delay);
        if deadline == NEVER {
            return self.schedule_in(delay + if delay > 0 { 1 } else { -1 });
        }
        self.schedule_at(deadline)
    }

    fn schedule_at(&mut self, deadline: u64) -> NodePtr<u64, u64> {
        let node = self.nodes.make(deadline);
        self.wheel.schedule(node);
        node
    }

    /// All that is due at `now`, as it comes.
    fn drain(&mut self, now: u64) -> Vec<NodePtr<u64, u64>> {
        let mut budget = usize::MAX;
        let due: Vec<_> = std::iter::from_fn(|| self.wheel.next_due(now, &mut budget)).collect();
        for node in &due {
            assert!(time::is_due(now, node.deadline()), "handed out early");
        }
        self.wheel.check_invariants();
        self.wheel.check_promptness();
        assert!(!self.wheel.has_work());
        due
    }

    /// Follows the next deadlines until a node is found; when that was, from `start`, and how many
    /// visits it took.
    fn run_to_first(&mut self, start: u64) -> (u64, u32) {
        for visits in 1.. {
            let next = self.wheel.next_visit().expect("a node is linked");
            let due = self.drain(next);
            if !due.is_empty() {
                return (next.wrapping_sub(start), visits);
            }
        }
        unreachable!()
    }
}
