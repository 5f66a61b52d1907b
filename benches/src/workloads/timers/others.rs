//! Timer structures of other crates, and two of the standard library: a heap, whose cancelled
//! timers stay until their time comes, and a sorted map.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    future::poll_fn,
    task::Poll,
};

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

    fn advance(&mut self, from: u64, to: u64) -> u64 {
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
            advance(Duration::from_millis(to - from)).await;
            expired.await
        })
    }
}

/// `hierarchical_hash_wheel_timer`: four wheels of 256 buckets, ticks of 1 ms, cancelling through a
/// hash map.
pub(super) struct HashWheel(QuadWheelWithOverflow<IdOnlyTimerEntry<u32>>);

impl Timers for HashWheel {
    const CARD: Card = Card::cache("hierarchical_hash_wheel");

    type Handle = u32;

    fn new(_: usize) -> Self {
        Self(QuadWheelWithOverflow::new())
    }

    #[inline]
    fn start(&mut self, id: u32, due: u64) -> u32 {
        let delay = Duration::from_millis(due);
        let inserted = self.0.insert(IdOnlyTimerEntry { id, delay });
        assert!(inserted.is_ok(), "timer {id} was due before it was started");
        id
    }

    #[inline]
    fn cancel(&mut self, handle: u32) {
        let cancelled = self.0.cancel(&handle);
        assert!(cancelled.is_ok(), "timer {handle} is not there");
    }

    fn advance(&mut self, from: u64, to: u64) -> u64 {
        let (mut now, mut fired) = (from, 0);
        while now < to {
            match self.0.can_skip() {
                Skip::Empty => now = to,
                Skip::Millis(free) => {
                    let skipped = u64::from(free).min(to - now);
                    self.0.skip(skipped as u32);
                    now += skipped;
                }
                Skip::None => {
                    fired += self.0.tick().len() as u64;
                    now += 1;
                }
            }
        }
        fired
    }
}

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

    fn advance(&mut self, _: u64, to: u64) -> u64 {
        let mut fired = 0;
        while let Some(&Reverse((due, id))) = self.heap.peek()
            && due <= to
        {
            self.heap.pop();
            fired += u64::from(!self.cancelled[id as usize]);
        }
        fired
    }
}

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

    fn advance(&mut self, _: u64, to: u64) -> u64 {
        let mut fired = 0;
        while self.0.first().is_some_and(|(due, _)| *due <= to) {
            self.0.pop_first();
            fired += 1;
        }
        fired
    }
}
