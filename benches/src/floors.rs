//! What the machine asks for the parts that no cache does without: figures of two machines can only be held against each other beside these.
//! One processor has twice as fast locked instructions as the next, and as slow a counter.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use serde::Serialize;

use crate::{cpu, measure::timed_here, peers::Hasher};

/// Nanoseconds of each part on one core, repeated without a pause.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Floors {
    /// Reading the time stamp counter, or what quanta reads in its place.
    pub counter: f64,
    /// `std::time::Instant::now`.
    pub instant: f64,
    /// An exchange on a line of one's own: what a pin costs at least, and half of a lock.
    pub exchange: f64,
    /// Hashing a `u64`.
    pub hash: f64,
}

const OPERATIONS: usize = 20_000;
/// The shortest of so many counts: what others do on the core only adds.
const TRIES: usize = 25;

impl Floors {
    /// Those of the last core.
    pub fn here() -> Self {
        // A thread of its own, so that it can be pinned without pinning what comes later.
        std::thread::scope(|scope| {
            let measure = || {
                cpu::pin(0);
                let (clock, hasher, word) =
                    (quanta::Clock::new(), Hasher::new(), AtomicU64::new(0));
                Self {
                    counter: shortest(|_| clock.raw()),
                    instant: shortest(|_| Instant::now()),
                    exchange: shortest(|n| word.swap(n, Ordering::SeqCst)),
                    hash: shortest(|n| hasher.hash_one(n)),
                }
            };
            scope.spawn(measure).join().unwrap_or_default()
        })
    }
}

fn shortest<T>(part: impl Fn(u64) -> T) -> f64 {
    let count = |_| {
        let run = || {
            for n in 0..OPERATIONS as u64 {
                black_box(part(black_box(n)));
            }
        };
        timed_here(false, OPERATIONS, run).0
    };
    (0..TRIES).map(count).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_takes_time() {
        let Floors {
            counter,
            instant,
            exchange,
            hash,
        } = Floors::here();
        for part in [counter, instant, exchange, hash] {
            assert!(part > 0.0 && part < 1e6, "{part} ns");
        }
    }
}
