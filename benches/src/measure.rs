//! Runs a piece of work on pinned workers and times it.

use std::{sync::Barrier, thread};

use crate::{
    clock,
    contest::{NS_PER_OP, OTHER_NS_PER_OP, Reading},
    cpu,
    setup::Setup,
};

/// Time of one piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Core time per operation: elapsed time, times the cores that could work, over all operations. With no more workers than cores
    /// it is what one worker sees.
    pub wall: f64,
    /// CPU time of the workers per operation; threads that a cache runs by itself are not in it.
    pub cpu: f64,
}

impl Timing {
    /// As readings of a contest: elapsed time, or CPU time where that was asked for, and the other one for the file.
    pub fn readings(self, setup: &Setup, threads: usize) -> [Reading; 2] {
        let (ranked, other) = if setup.cpu {
            (self.cpu, self.wall)
        } else {
            (self.wall, self.cpu)
        };
        [
            Reading::new(threads, NS_PER_OP, ranked),
            Reading::new(threads, OTHER_NS_PER_OP, other),
        ]
    }
}

struct Lap {
    began: u64,
    ended: u64,
    cpu: std::time::Duration,
    sum: u64,
}

/// Runs `run` on `threads` pinned workers at once, `operations` operations each, after an unmeasured `warm`. Each is given its worker's
/// number. Also returns the sum of what the workers returned.
pub fn timed(
    threads: usize,
    operations: usize,
    warm: impl Fn(usize) + Sync,
    run: impl Fn(usize) -> u64 + Sync,
) -> (Timing, u64) {
    let start = Barrier::new(threads);
    let laps: Vec<Lap> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let (start, warm, run) = (&start, &warm, &run);
                scope.spawn(move || {
                    cpu::pin(worker);
                    warm(worker);
                    start.wait();
                    let cpu = cpu::thread_time();
                    let began = clock::nanos();
                    let sum = run(worker);
                    let ended = clock::nanos();
                    Lap {
                        began,
                        ended,
                        cpu: cpu::thread_time() - cpu,
                        sum,
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let began = laps.iter().map(|lap| lap.began).min().unwrap_or(0);
    let ended = laps.iter().map(|lap| lap.ended).max().unwrap_or(0);
    let total = (threads * operations) as f64;
    let wall = (ended - began) as f64 * threads.min(cpu::count()) as f64 / total;
    let cpu = laps
        .iter()
        .map(|lap| lap.cpu.as_nanos() as f64)
        .sum::<f64>()
        / total;
    (Timing { wall, cpu }, laps.iter().map(|lap| lap.sum).sum())
}

/// Nanoseconds per operation of `run` on the calling thread, elapsed or of CPU time as asked for, and what it returned.
pub fn timed_here<T>(cpu: bool, operations: usize, run: impl FnOnce() -> T) -> (f64, T) {
    let now = || {
        if cpu {
            cpu::thread_time().as_nanos() as u64
        } else {
            clock::nanos()
        }
    };
    let began = now();
    let returned = run();
    ((now() - began) as f64 / operations as f64, returned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_runs_once_and_its_answer_is_counted() {
        let (timing, sum) = timed(3, 10, |_| (), |worker| worker as u64 + 1);
        assert_eq!(sum, 6);
        assert!(timing.wall > 0.0);
    }
}
