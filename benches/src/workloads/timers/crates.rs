//! Timer structures of other crates.

use std::{future::poll_fn, task::Poll};

use hierarchical_hash_wheel_timer::{
    IdOnlyTimerEntry,
    wheels::{Skip, cancellable::QuadWheelWithOverflow},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::unconstrained,
    time::{Duration, Instant, advance},
};
use tokio_util::time::{DelayQueue, delay_queue::Key};

use super::Timers;
use crate::peer::Card;

/// tokio's `DelayQueue` on a paused clock, and the runtime whose clock it reads.
pub(super) struct Delayed {
    queue: DelayQueue<u32>,
    start: Instant,
    now: u64,
    runtime: Runtime,
}

impl Timers for Delayed {
    const CARD: Card = Card::cache("tokio DelayQueue");

    type Handle = Key;

    fn new(timers: usize) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime needs no resources");
        let (queue, start) =
            runtime.block_on(async { (DelayQueue::with_capacity(timers), Instant::now()) });
        Self {
            queue,
            start,
            now: 0,
            runtime,
        }
    }

    #[inline]
    fn start(&mut self, id: u32, due: u64) -> Key {
        // Only a timer that becomes the nearest touches the runtime.
        let _within = self.runtime.enter();
        self.queue
            .insert_at(id, self.start + Duration::from_millis(due))
    }

    #[inline]
    fn cancel(&mut self, handle: Key) {
        self.queue.remove(&handle);
    }

    fn advance(&mut self, now: u64) -> u64 {
        let step = Duration::from_millis(now - self.now);
        self.now = now;
        let queue = &mut self.queue;
        // Without `unconstrained` tokio would make the queue pretend to be empty after some timers,
        // so that other tasks get their turn.
        let expired = unconstrained(poll_fn(|context| {
            let mut fired = 0;
            while let Poll::Ready(Some(_)) = queue.poll_expired(context) {
                fired += 1;
            }
            Poll::Ready(fired)
        }));
        self.runtime.block_on(async {
            advance(step).await;
            expired.await
        })
    }
}

/// `hierarchical_hash_wheel_timer`: four wheels of 256 buckets, ticks of 1 ms, cancelling through a
/// hash map.
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
        let inserted = self.wheel.insert(entry);
        assert!(inserted.is_ok(), "timer {id} was due before it was started");
        id
    }

    #[inline]
    fn cancel(&mut self, handle: u32) {
        let cancelled = self.wheel.cancel(&handle);
        assert!(cancelled.is_ok(), "timer {handle} is not there");
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
