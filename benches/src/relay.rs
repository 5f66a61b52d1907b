//! Tells how far apart cores are: how long a cache line takes from one to the next.
//!
//! Workers that write to the same lines wait for them, and how long depends on where their cores are. On an AMD EPYC it is 14 ns if these are two
//! halves of one, 32 if they share a cache, 155 if they do not. A virtual core is now here, now there; so between two laps, or within one, that
//! may change, and with it the time of every cache that workers share, by a factor of two or three. No other figure of the system shows it.
//!
//! So before and after each lap of several workers, each with a core of its own, they hand a baton round. Laps in which it took about as long can
//! be compared ([`Common`]). Of three workers and more this is the mean of the ways from each to the next, so of many it hides one that moved.

use std::{
    hint,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::clock;

/// Two times within this factor of each other are those of cores equally far apart.
pub(crate) const ALIKE: f64 = 1.5;
/// Tries, of which the shortest counts: in others a worker may have been off its core.
const TRIES: usize = 5;
/// Rounds of a try.
const ROUNDS: usize = 50;
/// Looks between two yields of one who waits: longer than any way from core to core takes.
const PATIENT: u32 = 10_000;

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

    /// Nanoseconds from one worker to the next. All of them call it together, awake, each with its number; `turn` counts these calls, from 0.
    pub fn run(&self, number: usize, turn: usize) -> f64 {
        let one = |attempt: usize| {
            let began = clock::nanos();
            for round in 0..ROUNDS {
                let before = (turn * TRIES + attempt) * ROUNDS + round;
                let mine = before * self.workers + number;
                // Relaxed: the baton is all there is to see.
                let mut looks = 0_u32;
                while self.baton.0.load(Ordering::Relaxed) != mine {
                    hint::spin_loop();
                    looks += 1;
                    // Where a worker could not be pinned, it may wait for the very core that this one has.
                    if looks.is_multiple_of(PATIENT) {
                        thread::yield_now();
                    }
                }
                self.baton.0.store(mine + 1, Ordering::Relaxed);
            }
            (clock::nanos() - began) as f64 / (ROUNDS * self.workers) as f64
        };
        (0..TRIES).map(one).fold(f64::INFINITY, f64::min)
    }
}

/// How far apart the cores were in the most laps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Common {
    /// Nanoseconds.
    pub nanos: f64,
    /// In how many of the laps that count, or of all if none does, they were so.
    pub laps: usize,
    /// Of so many, those that do not count included.
    pub of: usize,
}

impl Common {
    /// Of laps, each with whether it counts; if none does, of all. `None` if there are none.
    pub fn of(laps: &[(f64, bool)]) -> Option<Self> {
        let any = laps.iter().any(|(_, counts)| *counts);
        let counting: Vec<f64> = (laps.iter())
            .filter(|(_, counts)| *counts || !any)
            .map(|(nanos, _)| *nanos)
            .collect();
        let like = |nanos: f64| {
            counting
                .iter()
                .filter(|&&other| alike(nanos, other))
                .count()
        };
        let most = counting.iter().map(|&nanos| like(nanos)).max()?;
        // Of those with the most like them the one in the middle. Where two distances are equally common, that is mostly the greater.
        let mut common: Vec<f64> = (counting.iter().copied())
            .filter(|&nanos| like(nanos) == most)
            .collect();
        common.sort_unstable_by(f64::total_cmp);
        let nanos = common[common.len() / 2];
        Some(Self {
            nanos,
            laps: like(nanos),
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

    #[test]
    fn the_baton_goes_round_and_round() {
        // More workers than cores would wait for each other's time slices.
        for workers in 1..=cpu::count().min(3) {
            let relay = &Relay::new(workers);
            thread::scope(|scope| {
                for number in 0..workers {
                    scope.spawn(move || {
                        for turn in 0..3 {
                            let nanos = relay.run(number, turn);
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
        let of = |laps: &[f64]| {
            let laps: Vec<_> = laps.iter().map(|&nanos| (nanos, true)).collect();
            Common::of(&laps)
        };
        assert_eq!(of(&[]), None);
        let common = of(&[33.0, 150.0, 31.0, 14.0, 160.0, 155.0]).unwrap();
        assert_eq!((common.nanos, common.laps, common.of), (155.0, 3, 6));
        assert!(common.is_like(120.0) && !common.is_like(33.0) && !common.is_like(300.0));
        assert_eq!(of(&[14.0, 33.0, 31.0]).unwrap().nanos, 33.0);
        assert_eq!(of(&[33.0, 155.0]).unwrap().nanos, 155.0);
        let counting = [(33.0, false), (31.0, false), (155.0, true)];
        let common = Common::of(&counting).unwrap();
        assert_eq!((common.nanos, common.laps, common.of), (155.0, 1, 3));
        assert_eq!(Common::of(&counting[..2]).unwrap().laps, 2);
    }
}
