//! Runs a piece of work on pinned workers and times it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Barrier, Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    clock,
    contest::{NS_PER_OP, OTHER_NS_PER_OP, PACE, Reading},
    cpu,
    peer::Problem,
    setup::Setup,
    yardstick::{Ruler, Yardstick},
};

/// Time of one piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Core time per operation: elapsed time, times the cores that could work, over all operations. With no more workers than cores
    /// it is what one worker sees.
    pub wall: f64,
    /// CPU time of the workers per operation; threads that a cache runs by itself are not in it.
    pub cpu: f64,
    /// How much longer the yardstick was than its shortest, before or after, on any worker's core.
    pub pace: f64,
}

impl Timing {
    /// As readings of a contest: elapsed time, or CPU time where that was asked for, and the rest for the file.
    pub fn readings(self, setup: &Setup, threads: usize) -> [Reading; 3] {
        let (ranked, other) = if setup.cpu {
            (self.cpu, self.wall)
        } else {
            (self.wall, self.cpu)
        };
        [
            Reading::new(threads, NS_PER_OP, ranked),
            Reading::new(threads, OTHER_NS_PER_OP, other),
            Reading::new(threads, PACE, self.pace),
        ]
    }
}

/// A piece of work for some workers at once.
pub struct Work<P, W, R> {
    /// How many workers.
    pub threads: usize,
    /// Operations of each.
    pub operations: usize,
    /// Makes what they work on, anew for each try.
    pub prepare: P,
    /// What a worker, given its number, does before the clock starts.
    pub warm: W,
    /// What is timed; the answers of all workers are summed up.
    pub run: R,
}

/// The work, done.
pub struct Done<T> {
    /// How long it took.
    pub timing: Timing,
    /// Sum of the workers' answers.
    pub sum: u64,
    /// What they worked on.
    pub on: T,
}

/// Times a piece of work on pinned workers, on quiet cores as far as `yardstick` sees to it.
pub fn timed<T: Sync>(
    yardstick: &Yardstick,
    mut work: Work<
        impl FnMut() -> Result<T, Problem>,
        impl Fn(&T, usize) + Sync,
        impl Fn(&T, usize) -> u64 + Sync,
    >,
) -> Result<Done<T>, Problem> {
    let (done, _) = yardstick.best_of(|wait| {
        let on = (work.prepare)()?;
        let worker = Worker {
            meet: &Barrier::new(work.threads),
            alone: &Mutex::new(()),
            ruler: yardstick.ruler(),
            wait,
        };
        let laps = worker.all(work.threads, &|n| (work.warm)(&on, n), &|n| {
            (work.run)(&on, n)
        });
        let timing = timing(&laps, work.operations);
        let sum = laps.iter().map(|lap| lap.sum).sum();
        Ok((Done { timing, sum, on }, timing.pace))
    })?;
    Ok(done)
}

struct Lap {
    began: u64,
    ended: u64,
    cpu: Duration,
    pace: f64,
    sum: u64,
}

#[derive(Clone, Copy)]
struct Worker<'a> {
    /// Before the clock starts, and after it has stopped.
    meet: &'a Barrier,
    /// Yardsticks are laid one after the other: what is seen on a core is what strangers do there.
    alone: &'a Mutex<()>,
    ruler: Ruler<'a>,
    wait: Duration,
}

impl<'a> Worker<'a> {
    fn all(
        self,
        threads: usize,
        warm: &(impl Fn(usize) + Sync),
        run: &(impl Fn(usize) -> u64 + Sync),
    ) -> Vec<Lap> {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|number| scope.spawn(move || self.lap(number, warm, run)))
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        })
    }

    fn lap(self, number: usize, warm: impl Fn(usize), run: impl Fn(usize) -> u64) -> Lap {
        // A peer that panics must not leave the other workers waiting.
        let caught = |work: &dyn Fn() -> u64| catch_unwind(AssertUnwindSafe(work));
        cpu::pin(number);
        self.one_by_one(|ruler| ruler.wait(self.wait));
        let warmed = caught(&|| {
            warm(number);
            0
        });
        let before = self.one_by_one(Ruler::lay);
        self.meet.wait();
        let cpu = cpu::thread_time();
        let began = clock::nanos();
        let answer = caught(&|| run(number));
        let ended = clock::nanos();
        let cpu = cpu::thread_time() - cpu;
        self.meet.wait();
        let after = self.one_by_one(Ruler::lay);
        let sum = warmed
            .and(answer)
            .unwrap_or_else(|panic| resume_unwind(panic));
        Lap {
            began,
            ended,
            cpu,
            pace: before.max(after),
            sum,
        }
    }

    fn one_by_one<T>(self, look: impl FnOnce(Ruler<'a>) -> T) -> T {
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        look(self.ruler)
    }
}

fn timing(laps: &[Lap], operations: usize) -> Timing {
    let began = laps.iter().map(|lap| lap.began).min().unwrap_or(0);
    let ended = laps.iter().map(|lap| lap.ended).max().unwrap_or(0);
    let threads = laps.len();
    let total = (threads * operations) as f64;
    let cpu: Duration = laps.iter().map(|lap| lap.cpu).sum();
    Timing {
        wall: (ended - began) as f64 * threads.min(cpu::count()) as f64 / total,
        cpu: cpu.as_nanos() as f64 / total,
        pace: laps.iter().map(|lap| lap.pace).fold(1.0, f64::max),
    }
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
    use std::cell::Cell;

    #[test]
    fn every_worker_runs_once_and_its_answer_is_counted() {
        let prepared = Cell::new(0);
        let work = Work {
            threads: 3,
            operations: 10,
            prepare: || {
                prepared.set(prepared.get() + 1);
                Ok(prepared.get())
            },
            warm: |_: &u64, _: usize| (),
            run: |on: &u64, worker: usize| on + worker as u64,
        };
        let done = timed(&Yardstick::new(Duration::ZERO), work).unwrap();
        assert_eq!((done.sum, done.on), (6, 1));
        assert!(done.timing.wall > 0.0);
    }

    #[test]
    #[should_panic(expected = "a peer's fault")]
    fn a_worker_that_panics_holds_up_no_other() {
        let work = Work {
            threads: 2,
            operations: 1,
            prepare: || Ok(()),
            warm: |_: &(), _: usize| (),
            run: |_: &(), worker: usize| {
                assert!(worker == 0, "a peer's fault");
                0
            },
        };
        let _ = timed(&Yardstick::new(Duration::ZERO), work);
    }

    #[test]
    fn a_failed_preparation_is_the_answer() {
        let work = Work {
            threads: 1,
            operations: 1,
            prepare: || Err::<(), _>(Problem::Unsupported("none")),
            warm: |_: &(), _: usize| (),
            run: |_: &(), _: usize| 0,
        };
        assert!(timed(&Yardstick::new(Duration::ZERO), work).is_err());
    }
}
