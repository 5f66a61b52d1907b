//! Runs a piece of work on pinned workers and times it.

use std::{
    hint,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    clock,
    contest::{APART, NS_PER_OP, OTHER_NS_PER_OP, PACE, Reading, WHOLE_NS_PER_OP},
    cpu,
    peer::Problem,
    relay::{ALIKE, Relay},
    setup::Setup,
    yardstick::{self, Ruler, Yardstick},
};

/// Time of one piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Core time per operation: elapsed time, times the cores that could work, over all operations. With no more workers than cores
    /// it is what one worker sees. Of the quiet slices, if there are enough of them.
    pub wall: f64,
    /// CPU time of the workers per operation, of the same slices; threads that a cache runs by itself are not in it.
    pub cpu: f64,
    /// `wall` of all slices, quiet or not.
    pub whole: f64,
    /// How much longer the yardstick was than its shortest, before or after, on any worker's core: beside the least quiet of the slices that
    /// count, or where too few were quiet, beside the least quiet of as many as would have had to be.
    /// And where the cores moved in the midst of the lap, how much farther apart they were on one side of it than on the other, if that is more.
    pub pace: f64,
    /// How far apart the workers' cores were, in nanoseconds, where each of several workers has one.
    pub apart: Option<f64>,
}

impl Timing {
    /// As readings of a contest: elapsed time, or CPU time where that was asked for, and the rest for the file.
    pub fn readings(self, setup: &Setup, threads: usize) -> Vec<Reading> {
        let (ranked, other) = if setup.cpu {
            (self.cpu, self.wall)
        } else {
            (self.wall, self.cpu)
        };
        let mut readings = vec![
            Reading::new(threads, NS_PER_OP, ranked),
            Reading::new(threads, OTHER_NS_PER_OP, other),
            Reading::new(threads, WHOLE_NS_PER_OP, self.whole),
            Reading::new(threads, PACE, self.pace),
        ];
        readings.extend(self.apart.map(|apart| Reading::new(threads, APART, apart)));
        readings
    }

    /// With how far apart the cores were before and after, as each worker saw it.
    fn with_distance(mut self, laps: &[Lap]) -> Self {
        let least = |nanos: &dyn Fn(&[f64; 2]) -> f64| {
            let seen = laps.iter().filter_map(|lap| lap.apart.as_ref());
            seen.map(nanos).min_by(f64::total_cmp)
        };
        if let (Some(before), Some(after)) =
            (least(&|[before, _]| *before), least(&|[_, after]| *after))
        {
            let (nearer, farther) = (before.min(after), before.max(after));
            if farther > nearer * ALIKE {
                self.pace = self.pace.max(farther / nearer);
            }
            self.apart = Some(farther);
        }
        self
    }

    /// The timing of a lap in slices. If so many of them were quiet, these count, else all.
    fn of(slices: &[Slice]) -> Self {
        assert!(!slices.is_empty(), "a lap has a slice at least");
        let mean = |slices: &mut dyn Iterator<Item = f64>| {
            let (count, sum) = slices.fold((0, 0.0), |(count, sum), one| (count + 1, sum + one));
            sum / f64::from(count)
        };
        let quiet = |slice: &&Slice| slice.pace <= yardstick::ALONE;
        let enough = slices.len().div_ceil(ENOUGH);
        let mut paces: Vec<f64> = slices.iter().map(|slice| slice.pace).collect();
        paces.sort_unstable_by(f64::total_cmp);
        let whole = mean(&mut slices.iter().map(|slice| slice.wall));
        if paces[enough - 1] <= yardstick::ALONE {
            let quiet = || slices.iter().filter(quiet);
            Self {
                wall: mean(&mut quiet().map(|slice| slice.wall)),
                cpu: mean(&mut quiet().map(|slice| slice.cpu)),
                whole,
                pace: quiet().map(|slice| slice.pace).fold(1.0, f64::max),
                apart: None,
            }
        } else {
            Self {
                wall: whole,
                cpu: mean(&mut slices.iter().map(|slice| slice.cpu)),
                whole,
                pace: paces[enough - 1],
                apart: None,
            }
        }
    }
}

/// Of so many slices one has to be quiet, for those that are to count alone.
const ENOUGH: usize = 8;

/// A piece of work for some workers at once.
pub struct Work<P, W, R> {
    /// How many workers.
    pub threads: usize,
    /// In how many slices of the same kind each worker does its part, with a look at the yardstick between two; so what disturbs
    /// one need not spoil all. In one go where there are more workers than cores: these are to meet as they happen to.
    pub slices: usize,
    /// Operations of each worker in a slice.
    pub operations: usize,
    /// Makes what they work on, anew for each try.
    pub prepare: P,
    /// What a worker, given its number, does before the clock starts.
    pub warm: W,
    /// What is timed, given the worker and the slice; the answers of all are summed up.
    pub run: R,
}

/// The part of a stream that belongs to a slice of so many operations; each worker goes round its stream.
pub fn piece<T>(stream: &[T], operations: usize, slice: usize) -> &[T] {
    let pieces = stream.len() / operations;
    &stream[slice % pieces * operations..][..operations]
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
        impl Fn(&T, usize, usize) -> u64 + Sync,
    >,
) -> Result<Done<T>, Problem> {
    let crowd = work.threads > cpu::count();
    let (goes, in_one) = if crowd {
        (1, work.slices)
    } else {
        (work.slices, 1)
    };
    let lap = |wait| {
        let on = (work.prepare)()?;
        let relay = (work.threads > 1 && !crowd).then(|| Relay::new(work.threads));
        let worker = Worker {
            goes,
            meet: &Barrier::new(work.threads),
            start: &Start::new(work.threads),
            relay: relay.as_ref(),
            alone: &Mutex::new(()),
            ruler: yardstick.ruler(),
            wait,
        };
        let laps = worker.all(work.threads, &|n| (work.warm)(&on, n), &|n, go| {
            (go * in_one..(go + 1) * in_one)
                .map(|slice| (work.run)(&on, n, slice))
                .sum()
        });
        let timing = Timing::of(&slices(&laps, in_one * work.operations)).with_distance(&laps);
        let sum = laps.iter().map(|lap| lap.sum).sum();
        Ok((Done { timing, sum, on }, timing.pace))
    };
    let (done, _) = if crowd {
        yardstick.just_once(lap)?
    } else {
        yardstick.best_of(lap)?
    };
    Ok(done)
}

/// What one worker did.
struct Lap {
    goes: Vec<Go>,
    /// How far apart the cores were, before and after.
    apart: Option<[f64; 2]>,
    sum: u64,
}

/// One worker's part of a slice.
#[derive(Clone, Copy)]
struct Go {
    began: u64,
    ended: u64,
    cpu: Duration,
    pace: f64,
}

/// All workers' parts of a slice together, per operation.
#[derive(Clone, Copy, Debug)]
struct Slice {
    wall: f64,
    cpu: f64,
    pace: f64,
}

/// Lets workers start at once who are awake all.
struct Start {
    threads: usize,
    arrived: AtomicUsize,
}

impl Start {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
        }
    }

    /// Waits until each worker has come for the `time`th time, counted from 0.
    fn wait(&self, time: usize) {
        // What the others did before is none of the worker's business.
        self.arrived.fetch_add(1, Ordering::Relaxed);
        while self.arrived.load(Ordering::Relaxed) < (time + 1) * self.threads {
            if self.threads > cpu::count() {
                thread::yield_now();
            }
            hint::spin_loop();
        }
    }
}

#[derive(Clone, Copy)]
struct Worker<'a> {
    goes: usize,
    /// Asleep, before the yardsticks are laid and after: or who waits would disturb who lays his.
    meet: &'a Barrier,
    /// Awake, before the clock starts: those who have slept wake up one after the other.
    start: &'a Start,
    /// Where each of several workers has a core.
    relay: Option<&'a Relay>,
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
        run: &(impl Fn(usize, usize) -> u64 + Sync),
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

    fn lap(self, number: usize, warm: impl Fn(usize), run: impl Fn(usize, usize) -> u64) -> Lap {
        // A peer that panics must not leave the other workers waiting.
        let caught = |work: &dyn Fn() -> u64| catch_unwind(AssertUnwindSafe(work));
        cpu::pin(number);
        self.one_by_one(|ruler| ruler.wait(self.wait));
        // Nobody looks at a core, here and below, while another worker is at work.
        self.meet.wait();
        let mut sum = caught(&|| {
            warm(number);
            0
        });
        self.meet.wait();
        let mut before = self.one_by_one(Ruler::lay);
        let apart_before = self.hand_round(number, 0);
        let mut goes = Vec::with_capacity(self.goes);
        for go in 0..self.goes {
            self.meet.wait();
            self.start.wait(go + 1);
            let cpu = cpu::thread_time();
            let began = clock::nanos();
            // Who has failed once just keeps the others company.
            let answer = if sum.is_ok() {
                caught(&|| run(number, go))
            } else {
                Ok(0)
            };
            let ended = clock::nanos();
            let cpu = cpu::thread_time() - cpu;
            self.meet.wait();
            let after = self.one_by_one(Ruler::lay);
            goes.push(Go {
                began,
                ended,
                cpu,
                pace: before.max(after),
            });
            before = after;
            sum = sum.and_then(|sum| Ok(sum + answer?));
        }
        let apart_after = self.hand_round(number, 1);
        let sum = sum.unwrap_or_else(|panic| resume_unwind(panic));
        Lap {
            goes,
            apart: apart_before.zip(apart_after).map(<[f64; 2]>::from),
            sum,
        }
    }

    /// How far apart the cores are: the first time before the first slice, the second time after the last.
    fn hand_round(self, number: usize, turn: usize) -> Option<f64> {
        self.meet.wait();
        // Between these two, each slice starts once.
        self.start.wait(turn * (self.goes + 1));
        self.relay.map(|relay| relay.run(number, turn))
    }

    fn one_by_one<T>(self, look: impl FnOnce(Ruler<'a>) -> T) -> T {
        let _alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        look(self.ruler)
    }
}

/// The slices of laps that began together, of so many operations of each worker.
fn slices(laps: &[Lap], operations: usize) -> Vec<Slice> {
    let goes = laps.iter().map(|lap| lap.goes.len()).min().unwrap_or(0);
    let threads = laps.len();
    let total = (threads * operations) as f64;
    let slice = |go: usize| {
        let goes = || laps.iter().map(|lap| lap.goes[go]);
        let began = goes().map(|go| go.began).min().unwrap_or(0);
        let ended = goes().map(|go| go.ended).max().unwrap_or(0);
        let cpu: Duration = goes().map(|go| go.cpu).sum();
        Slice {
            wall: (ended - began) as f64 * threads.min(cpu::count()) as f64 / total,
            cpu: cpu.as_nanos() as f64 / total,
            pace: goes().map(|go| go.pace).fold(1.0, f64::max),
        }
    };
    (0..goes).map(slice).collect()
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
    fn every_worker_runs_each_slice_once_and_its_answers_are_counted() {
        let prepared = Cell::new(0);
        let work = Work {
            threads: 3,
            slices: 4,
            operations: 10,
            prepare: || {
                prepared.set(prepared.get() + 1);
                Ok(prepared.get())
            },
            warm: |_: &u64, _: usize| (),
            run: |on: &u64, worker: usize, slice: usize| on + (100 * slice + worker) as u64,
        };
        let done = timed(&Yardstick::new(Duration::ZERO), work).unwrap();
        assert_eq!((done.sum, done.on), (12 + 1_800 + 12, 1));
        assert!(done.timing.wall > 0.0 && done.timing.whole > 0.0);
    }

    #[test]
    #[should_panic(expected = "a peer's fault")]
    fn a_worker_that_panics_holds_up_no_other() {
        let work = Work {
            threads: 2,
            slices: 3,
            operations: 1,
            prepare: || Ok(()),
            warm: |_: &(), _: usize| (),
            run: |_: &(), worker: usize, slice: usize| {
                assert!(worker == 0 || slice != 1, "a peer's fault");
                0
            },
        };
        let _ = timed(&Yardstick::new(Duration::ZERO), work);
    }

    #[test]
    fn a_failed_preparation_is_the_answer() {
        let work = Work {
            threads: 1,
            slices: 1,
            operations: 1,
            prepare: || Err::<(), _>(Problem::Unsupported("none")),
            warm: |_: &(), _: usize| (),
            run: |_: &(), _: usize, _: usize| 0,
        };
        assert!(timed(&Yardstick::new(Duration::ZERO), work).is_err());
    }

    fn timing(slices: &[(f64, f64)]) -> (f64, f64, f64) {
        let slices: Vec<_> = slices
            .iter()
            .map(|&(wall, pace)| Slice {
                wall,
                cpu: wall,
                pace,
            })
            .collect();
        let Timing {
            wall,
            cpu,
            whole,
            pace,
            apart,
        } = Timing::of(&slices);
        assert_eq!((wall, apart), (cpu, None));
        (wall, whole, pace)
    }

    #[test]
    fn quiet_slices_count_alone() {
        let slices = [(10.0, 1.0), (30.0, 1.5), (12.0, 1.05), (20.0, 1.11)];
        assert_eq!(timing(&slices), (11.0, 18.0, 1.05));
        assert_eq!(timing(&[(10.0, 1.1)]), (10.0, 10.0, 1.1));
    }

    #[test]
    fn where_too_few_are_quiet_all_count() {
        let mut slices = vec![(20.0, 1.5); 15];
        slices.push((4.0, 1.0));
        assert_eq!(timing(&slices), (19.0, 19.0, 1.5));
        // Though the mean would pass for quiet.
        slices[..15].fill((20.0, 1.105));
        assert_eq!(timing(&slices), (19.0, 19.0, 1.105));
        slices[0] = (4.0, 1.0);
        assert_eq!(timing(&slices).0, 4.0, "two of sixteen");
    }

    #[test]
    fn cores_that_move_in_the_midst_disturb_a_lap() {
        let lap = |before, after| Lap {
            goes: Vec::new(),
            apart: Some([before, after]),
            sum: 0,
        };
        let slices = [Slice {
            wall: 1.0,
            cpu: 1.0,
            pace: 1.02,
        }];
        let seen = |laps: &[Lap]| {
            let timing = Timing::of(&slices).with_distance(laps);
            (timing.pace, timing.apart)
        };
        assert_eq!(
            seen(&[lap(30.0, 32.0), lap(31.0, 44.0)]),
            (1.02, Some(32.0))
        );
        assert_eq!(
            seen(&[lap(30.0, 150.0), lap(31.0, 155.0)]),
            (5.0, Some(150.0))
        );
        assert_eq!(seen(&[]), (1.02, None));
    }

    #[test]
    fn workers_go_round_their_streams() {
        let stream = [0, 1, 2, 3, 4, 5, 6];
        let pieces: Vec<_> = (0..5).map(|slice| piece(&stream, 2, slice)).collect();
        assert_eq!(pieces, [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]);
    }
}
