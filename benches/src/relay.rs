//! Tells how far apart cores are: how long a cache line takes from one to the next.
//!
//! Workers that write to the same lines wait for them, and how long depends on where their cores are: 14 ns if these are two halves of one,
//! 30 if they share a cache, 150 and more if they do not. A virtual core is now here, now there; so between two laps, or within one, that may
//! change, and with it the time of every cache that workers share, by a factor of two or three. No other figure of the system shows it.
//!
//! So before and after each lap the workers hand a baton round. Laps in which it took about as long can be compared
//! ([`Common`]).

use std::{
    hint,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::clock;

/// Two times within this factor of each other are those of cores equally far apart.
pub(crate) const ALIKE: f64 = 1.5;
/// Tries, of which the shortest counts: in others a worker may have been off its core.
const TRIES: usize = 5;
/// Rounds of a try.
const ROUNDS: usize = 50;

/// The baton of one lap, handed round by so many workers.
#[derive(Debug)]
pub struct Relay {
    workers: usize,
    baton: Line,
}

/// A cache line of its own, and the one that may be fetched along with it.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicUsize);

impl Relay {
    /// A baton for so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            baton: Line(AtomicUsize::new(0)),
        }
    }

    /// Nanoseconds from one worker to the next. All of them call it together, awake, each with its number, for the `time`th time counted
    /// from 0.
    pub fn run(&self, number: usize, time: usize) -> f64 {
        let one = |attempt: usize| {
            let began = clock::nanos();
            for round in 0..ROUNDS {
                let before = (time * TRIES + attempt) * ROUNDS + round;
                let mine = before * self.workers + number;
                // Relaxed: the baton is all there is to see.
                while self.baton.0.load(Ordering::Relaxed) != mine {
                    hint::spin_loop();
                }
                self.baton.0.store(mine + 1, Ordering::Relaxed);
            }
            (clock::nanos() - began) as f64 / (ROUNDS * self.workers) as f64
        };
        (0..TRIES).map(one).fold(f64::INFINITY, f64::min)
    }
}

/// How far apart the cores were in most laps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Common {
    /// Nanoseconds.
    pub nanos: f64,
    /// In how many laps they were so.
    pub laps: usize,
    /// Of so many.
    pub of: usize,
}

impl Common {
    /// Of these laps; `None` if there are none.
    pub fn of(laps: &[f64]) -> Option<Self> {
        let like = |nanos: f64| laps.iter().filter(|&&other| alike(nanos, other)).count();
        // Of several that as many are like, the one in their middle.
        let most = laps.iter().map(|&nanos| like(nanos)).max()?;
        let mut common: Vec<f64> = laps
            .iter()
            .copied()
            .filter(|&nanos| like(nanos) == most)
            .collect();
        common.sort_unstable_by(f64::total_cmp);
        Some(Self {
            nanos: common[common.len() / 2],
            laps: most,
            of: laps.len(),
        })
    }

    /// Whether they were so in a lap.
    pub fn is_like(&self, nanos: f64) -> bool {
        alike(self.nanos, nanos)
    }
}

fn alike(one: f64, other: f64) -> bool {
    one.max(other) <= one.min(other) * ALIKE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu;
    use std::thread;

    #[test]
    fn the_baton_goes_round_and_round() {
        // More workers than cores would wait for each other's time slices.
        for workers in 1..=cpu::count().min(3) {
            let relay = &Relay::new(workers);
            thread::scope(|scope| {
                for number in 0..workers {
                    scope.spawn(move || {
                        for time in 0..3 {
                            let nanos = relay.run(number, time);
                            assert!(nanos > 0.0 && nanos.is_finite());
                        }
                    });
                }
            });
            let handed = relay.baton.0.load(Ordering::Relaxed);
            assert_eq!(handed, 3 * TRIES * ROUNDS * workers);
        }
    }

    #[test]
    fn the_common_distance_is_that_of_most_laps() {
        assert_eq!(Common::of(&[]), None);
        let common = Common::of(&[33.0, 150.0, 31.0, 14.0, 160.0, 155.0]).unwrap();
        assert_eq!((common.nanos, common.laps, common.of), (155.0, 3, 6));
        assert!(common.is_like(120.0) && !common.is_like(33.0) && !common.is_like(300.0));
        assert_eq!(Common::of(&[14.0, 33.0, 31.0]).unwrap().nanos, 33.0);
    }
}
