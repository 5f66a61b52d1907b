//! A cache used as a timer beside timer structures, on one thread.
//!
//! All carry a number and hand out a handle. In a cache `insert_with_ttl` starts a timer,
//! `invalidate` cancels it, a manual clock and `run_pending_tasks` advance it. Map, hashing,
//! reclamation and the listener are in its figures.

mod others;
mod ours;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::{
    others::{Delayed, HashWheel, Heap, Tree},
    ours::WholeCache,
};
use crate::workloads::prelude::*;

/// One timer structure. Times are milliseconds since it was made.
trait Timers {
    const CARD: Card;

    /// What cancels a timer.
    type Handle: Copy;

    fn new(timers: usize) -> Self;

    /// Starts timer `id`, due at `due`. No timer is started after time has gone on.
    fn start(&mut self, id: u32, due: u64) -> Self::Handle;

    fn cancel(&mut self, handle: Self::Handle);

    /// Finishes work that was put off.
    fn settle(&mut self) {}

    /// Lets time continue; returns how many timers fired.
    fn advance(&mut self, from: u64, to: u64) -> u64;
}

/// An hour, ms.
const HOUR: u64 = 3_600_000;
/// Time continues by a second at a time.
const STEP: u64 = 1_000;

pub(super) fn run(bench: Bench<'_>) {
    let sizes: &[usize] = match bench.quick {
        true => &[100_000, 400_000],
        false => &[100_000, 1_000_000, 6_000_000],
    };
    for &timers in sizes {
        // Six million timers take most of a minute for one round of all.
        let (variant, rounds) = match timers {
            ..1_000_000 => (format!("{}k timers", timers / 1_000), usize::MAX),
            1_000_000 => ("1M timers".into(), 2),
            _ => (format!("{}M timers", timers / 1_000_000), 1),
        };
        let about = format!(
            "{timers} timers due within an hour; then each of {} starts cancels another (time of \
             the pair); then an hour in steps of 1 s",
            pairs(timers)
        );
        let (cpu, dues) = (bench.cpu, &dues(timers));
        let mut contest = bench.contest(variant, about);
        macro_rules! enter {
            ($($structure:ty),+) => {$(
                contest.add(<$structure>::CARD, move || {
                    on_a_core(|| round::<$structure>(cpu, dues, timers))
                });
            )+};
        }
        enter!(WholeCache, Delayed, HashWheel, Heap, Tree);
        bench.run(bench.rounds().min(rounds), [contest]);
    }
}

/// For each timer ever started, when it is due.
fn dues(timers: usize) -> Vec<u64> {
    let mut random = StdRng::seed_from_u64(0x5EED_2001);
    let due = |_| random.random_range(1..=HOUR);
    (0..timers + pairs(timers)).map(due).collect()
}

fn pairs(timers: usize) -> usize {
    timers.clamp(400_000, 1_000_000)
}

fn round<T: Timers>(cpu: bool, dues: &[u64], timers: usize) -> Outcome {
    let mut structure = T::new(timers);
    let (first, others) = dues.split_at(timers);
    let start = || start_all(&mut structure, first);
    let (started, mut handles) = timed_here(cpu, timers, start);
    let pair = || pair_all(&mut structure, others, timers, &mut handles);
    let (paired, ()) = timed_here(cpu, others.len(), pair);
    let (fired, count) = timed_here(cpu, timers, || advance_all(&mut structure));
    expect("timers fired", count, timers as u64)?;
    Ok(vec![
        Metric::ranked("start ns").of(started),
        Metric::ranked("start+cancel ns").of(paired),
        Metric::ranked("fire ns").of(fired),
    ])
}

#[inline(never)]
fn start_all<T: Timers>(structure: &mut T, dues: &[u64]) -> Vec<T::Handle> {
    let start = |(&due, id)| structure.start(id, due);
    let handles = dues.iter().zip(0..).map(start).collect();
    structure.settle();
    handles
}

/// Each start takes the place of the timer that has been alive longest.
#[inline(never)]
fn pair_all<T: Timers>(structure: &mut T, dues: &[u64], first: usize, handles: &mut [T::Handle]) {
    let alive = handles.len();
    let mut oldest = 0;
    for (&due, id) in dues.iter().zip(first as u32..) {
        let handle = structure.start(id, due);
        structure.cancel(std::mem::replace(&mut handles[oldest], handle));
        oldest = if oldest + 1 == alive { 0 } else { oldest + 1 };
    }
    structure.settle();
}

/// An hour and a few seconds: the last deadlines, rounded up to the coarsest tick among the
/// structures.
#[inline(never)]
fn advance_all<T: Timers>(structure: &mut T) -> u64 {
    let steps = (0..HOUR + 5_000).step_by(STEP as usize);
    steps.map(|from| structure.advance(from, from + STEP)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fires_what_is_due_and_not_what_was_cancelled<T: Timers>() {
        let mut structure = T::new(4);
        let first = structure.start(0, 10_000);
        structure.start(1, 10_000);
        structure.start(2, 20_000);
        structure.cancel(first);
        for id in 3..5_003 {
            structure.start(id, HOUR);
        }
        structure.settle();
        assert_eq!(structure.advance(0, 9_000), 0);
        assert_eq!(structure.advance(9_000, 15_000), 1);
        assert_eq!(structure.advance(15_000, 25_000), 1);
        assert_eq!(structure.advance(25_000, HOUR - 10_000), 0);
        assert_eq!(structure.advance(HOUR - 10_000, HOUR + 10_000), 5_000);
    }

    #[test]
    fn all_structures_agree() {
        fires_what_is_due_and_not_what_was_cancelled::<WholeCache>();
        fires_what_is_due_and_not_what_was_cancelled::<Delayed>();
        fires_what_is_due_and_not_what_was_cancelled::<HashWheel>();
        fires_what_is_due_and_not_what_was_cancelled::<Heap>();
        fires_what_is_due_and_not_what_was_cancelled::<Tree>();
    }
}
