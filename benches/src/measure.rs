//! Runs a piece of work on pinned workers and times it.

use std::{
    hint,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    clock, cpu,
    figure::{NS_PER_OP, Reading},
};

/// A piece of work for some workers at once.
pub struct Work<W, R> {
    /// How many workers.
    pub threads: usize,
    /// Operations of each worker.
    pub operations: usize,
    /// Whether to count CPU time of the workers in place of elapsed time.
    pub cpu: bool,
    /// What a worker, given its number, does before the clock starts.
    pub warm: W,
    /// What is timed, given the worker's number; the answers of all are added up.
    pub run: R,
}

/// The work, done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    threads: usize,
    /// Core time per operation: elapsed time, times the cores that could work, over all operations.
    /// With no more workers than cores it is what one worker sees.
    pub nanos: f64,
    /// Sum of the workers' answers.
    pub sum: u64,
}

impl Done {
    /// The time, as a reading of a contest.
    pub fn reading(&self) -> Reading {
        Reading::new(self.threads, NS_PER_OP, self.nanos)
    }
}

/// Times a piece of work on pinned workers.
pub fn timed(work: &Work<impl Fn(usize) + Sync, impl Fn(usize) -> u64 + Sync>) -> Done {
    let threads = work.threads;
    let start = Start {
        threads,
        asleep: Barrier::new(threads),
        awake: AtomicUsize::new(0),
    };
    let laps: Vec<Lap> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let start = &start;
                scope.spawn(move || lap(work, number, start))
            })
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|lap| lap.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let began = laps.iter().map(|lap| lap.began).min().unwrap_or(0);
    let ended = laps.iter().map(|lap| lap.ended).max().unwrap_or(0);
    let used: Duration = laps.iter().map(|lap| lap.cpu).sum();
    let spent = if work.cpu {
        used.as_nanos() as f64
    } else {
        (ended - began) as f64 * threads.min(cpu::count()) as f64
    };
    Done {
        threads,
        nanos: spent / (threads * work.operations) as f64,
        sum: laps.iter().map(|lap| lap.sum).sum(),
    }
}

/// What one worker did.
struct Lap {
    began: u64,
    ended: u64,
    cpu: Duration,
    sum: u64,
}

/// Starts all workers at the same moment, awake: threads that slept wake up one after the other.
struct Start {
    threads: usize,
    asleep: Barrier,
    awake: AtomicUsize,
}

impl Start {
    fn wait(&self) {
        self.asleep.wait();
        // Nothing else is published here.
        self.awake.fetch_add(1, Ordering::Relaxed);
        while self.awake.load(Ordering::Relaxed) < self.threads {
            if self.threads > cpu::count() {
                thread::yield_now();
            }
            hint::spin_loop();
        }
    }
}

fn lap(work: &Work<impl Fn(usize), impl Fn(usize) -> u64>, number: usize, start: &Start) -> Lap {
    cpu::pin(number);
    // A peer that panics must not leave the other workers waiting.
    let warm = catch_unwind(AssertUnwindSafe(|| (work.warm)(number)));
    start.wait();
    warm.unwrap_or_else(|panic| resume_unwind(panic));
    let cpu = cpu::thread_time();
    let began = clock::nanos();
    let sum = (work.run)(number);
    Lap {
        began,
        ended: clock::nanos(),
        cpu: cpu::thread_time() - cpu,
        sum,
    }
}

/// Nanoseconds per operation of `run` on the calling thread, elapsed or of CPU time as asked for,
/// and what it returned.
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

/// Runs `body` on a thread of its own that is pinned to the last core, so that the calling thread
/// stays free to run anywhere.
pub fn on_a_core<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let pinned = || {
            cpu::pin(0);
            body()
        };
        let ended = scope.spawn(pinned).join();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work<R: Fn(usize) -> u64>(threads: usize, run: R) -> Work<impl Fn(usize), R> {
        Work {
            threads,
            operations: 10,
            cpu: false,
            warm: |_| (),
            run,
        }
    }

    #[test]
    fn every_worker_runs_once_and_its_answer_is_counted() {
        let done = timed(&work(3, |worker| 10 + worker as u64));
        assert_eq!(done.sum, 33);
        assert!(done.nanos > 0.0);
    }

    #[test]
    #[should_panic(expected = "a peer's fault")]
    fn a_worker_that_panics_holds_up_no_other() {
        timed(&work(2, |worker| {
            assert!(worker == 0, "a peer's fault");
            0
        }));
    }
}
