//! wheelhouse's wheel, and the slab that its nodes live in.

use wheelhouse::parts;

use super::Timers;
use crate::peer::Card;

/// Nanoseconds of a millisecond.
const NANOS: u64 = 1_000_000;

pub(super) struct Wheel(parts::Timers);

impl Timers for Wheel {
    const CARD: Card = Card::subject("wheelhouse");

    type Handle = u32;

    fn new(_timers: usize) -> Self {
        Self(parts::Timers::new())
    }

    #[inline]
    fn start(&mut self, _id: u32, due: u64) -> u32 {
        self.0.start(due * NANOS)
    }

    #[inline]
    fn cancel(&mut self, handle: u32) {
        self.0.cancel(handle);
    }

    fn advance(&mut self, now: u64) -> u64 {
        let mut fired = 0;
        self.0.advance(now * NANOS, |_| fired += 1);
        fired
    }
}
