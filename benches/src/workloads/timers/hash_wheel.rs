//! `hierarchical_hash_wheel_timer`: four wheels of 256 buckets, ticks of 1 ms, cancelling through a
//! hash map.

use std::time::Duration;

use hierarchical_hash_wheel_timer::{
    IdOnlyTimerEntry,
    wheels::{Skip, cancellable::QuadWheelWithOverflow},
};

use super::Timers;
use crate::peer::Card;

/// The wheel and its time.
pub(super) struct HashWheel {
    wheel: QuadWheelWithOverflow<IdOnlyTimerEntry<u32>>,
    now: u64,
}

impl Timers for HashWheel {
    const CARD: Card = Card::cache("hierarchical_hash_wheel");

    type Handle = u32;

    fn new(_: usize) -> Self {
        Self {
            wheel: QuadWheelWithOverflow::new(),
            now: 0,
        }
    }

    #[inline]
    fn start(&mut self, id: u32, due: u64) -> u32 {
        let entry = IdOnlyTimerEntry {
            id,
            delay: Duration::from_millis(due - self.now),
        };
        assert!(
            self.wheel.insert(entry).is_ok(),
            "timer {id} was due before it was started"
        );
        id
    }

    #[inline]
    fn cancel(&mut self, handle: u32) {
        assert!(
            self.wheel.cancel(&handle).is_ok(),
            "timer {handle} is not there"
        );
    }

    fn advance(&mut self, now: u64) -> u64 {
        let mut fired = 0;
        while self.now < now {
            match self.wheel.can_skip() {
                Skip::Empty => self.now = now,
                Skip::Millis(free) => {
                    let skipped = u64::from(free).min(now - self.now);
                    self.wheel.skip(skipped as u32);
                    self.now += skipped;
                }
                Skip::None => {
                    fired += self.wheel.tick().len() as u64;
                    self.now += 1;
                }
            }
        }
        fired
    }
}
