//! Tells whether a core was ours alone: a piece of arithmetic that always takes the same time, unless somebody slows the core down.
//!
//! A virtual core often is half of a real one, and what runs on the other half, which no figure of this system shows, makes ours up to
//! 1.7 times slower, for milliseconds or minutes. Medians of few rounds then say who met which phase. So the yardstick is laid
//! before and after each lap; a lap between two short ones counts, another is run again, as long as there is patience left. It judges a lap by
//! something that no cache has a part in, but for threads of its own: the README beside this package says what follows from that.
//! Memory that is shared with others it does not see. Laps of which each part is like the others are cut into slices with a yardstick
//! between two ([`measure`](crate::measure)).

use std::{
    cell::Cell,
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::clock;

/// A core is ours alone if the yardstick takes no longer than this, of the shortest time seen.
pub(crate) const ALONE: f64 = 1.1;
/// Tries for one lap.
const TRIES: usize = 5;
/// The longest wait for one lap.
const WAIT: Duration = Duration::from_secs(1);
/// Between two looks while waiting.
const NAP: Duration = Duration::from_millis(5);
/// Steps of the arithmetic: some 30 us.
const STEPS: u64 = 30_000;

/// The arithmetic, the shortest time it took, and how long laps may still be put off and repeated.
#[derive(Debug)]
pub struct Yardstick {
    /// Nanoseconds.
    shortest: AtomicU64,
    /// For each contest, and what is left for this one.
    patience: Duration,
    left: Cell<Duration>,
    /// Whether what is left is to be kept for other laps.
    spared: Cell<bool>,
    laps: Cell<Count>,
}

/// How many laps there were.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// That count.
    pub all: usize,
    /// Of these, beside others' work, or on cores that moved.
    pub disturbed: usize,
}

impl Yardstick {
    /// One that repeats and waits for `patience` in each contest.
    pub fn new(patience: Duration) -> Self {
        let new = Self {
            shortest: AtomicU64::new(u64::MAX),
            patience,
            left: Cell::new(patience),
            spared: Cell::new(false),
            laps: Cell::default(),
        };
        for _ in 0..300 {
            new.lay();
        }
        new
    }

    /// A contest begins: patience is as it was at first.
    pub fn begin(&self) {
        self.left.set(self.patience);
    }

    /// Whether the laps that follow are worth no patience.
    pub fn spare(&self, spared: bool) {
        self.spared.set(spared);
    }

    fn left(&self) -> Duration {
        if self.spared.get() {
            Duration::ZERO
        } else {
            self.left.get()
        }
    }

    /// The core under the calling thread now, without patience, for workers.
    pub fn ruler(&self) -> Ruler<'_> {
        Ruler {
            shortest: &self.shortest,
        }
    }

    fn lay(&self) -> f64 {
        self.ruler().lay()
    }

    /// The least disturbed of some runs of `lap`, which says by how much it was: it is run once, and again while it was disturbed and
    /// patience lasts. `lap` is told how long it may wait for a quiet core.
    pub fn best_of<T, E>(
        &self,
        mut lap: impl FnMut(Duration) -> Result<(T, f64), E>,
    ) -> Result<(T, f64), E> {
        let mut best: Option<(T, f64)> = None;
        for _ in 0..TRIES {
            let began = Instant::now();
            let (found, pace) = lap(self.left().min(WAIT))?;
            // A first try is no loss of time, however long it takes, but for its waiting.
            if !self.spared.get() && (best.is_some() || pace > ALONE) {
                let left = self.left.get().saturating_sub(began.elapsed());
                self.left.set(left);
            }
            if best.as_ref().is_none_or(|(_, known)| pace < *known) {
                best = Some((found, pace));
            }
            if pace <= ALONE || self.left().is_zero() {
                break;
            }
        }
        let best = best.expect("there is at least one try");
        let Count { all, disturbed } = self.laps.get();
        self.laps.set(Count {
            all: all + 1,
            disturbed: disturbed + usize::from(best.1 > ALONE),
        });
        Ok(best)
    }

    /// One run of `lap`, which spends no patience: of more workers than there are cores, one is nearly always beside another.
    pub fn just_once<T, E>(
        &self,
        lap: impl FnMut(Duration) -> Result<(T, f64), E>,
    ) -> Result<(T, f64), E> {
        let spared = self.spared.replace(true);
        let run = self.best_of(lap);
        self.spared.set(spared);
        run
    }

    /// The laps so far.
    pub fn laps(&self) -> Count {
        self.laps.get()
    }
}

/// A yardstick in a worker's hand.
#[derive(Clone, Copy, Debug)]
pub struct Ruler<'a> {
    shortest: &'a AtomicU64,
}

impl Ruler<'_> {
    /// How many times the shortest time seen the arithmetic takes on this core now; 1 if nobody else is at work on it.
    pub fn lay(self) -> f64 {
        let began = clock::nanos();
        black_box(arithmetic(black_box(STEPS)));
        let took = (clock::nanos() - began).max(1);
        // Relaxed: a number by itself.
        let shortest = self.shortest.fetch_min(took, Ordering::Relaxed).min(took);
        took as f64 / shortest as f64
    }

    /// Waits until this core is quiet, for so long at most.
    pub fn wait(self, longest: Duration) {
        let began = Instant::now();
        while self.lay() > ALONE && began.elapsed() < longest {
            thread::sleep(NAP);
        }
    }
}

/// Six chains of operations, which the core could do side by side: what its other half takes away is seen at once.
#[inline(never)]
fn arithmetic(steps: u64) -> u64 {
    let (mut a, mut b, mut c, mut d, mut e, mut f) = (1_u64, 2_u64, 3_u64, 4_u64, 5_u64, 6_u64);
    for step in 0..steps {
        a = a.wrapping_add(step) ^ black_box(3);
        b = b.wrapping_add(a);
        c ^= step << 1;
        d = d.wrapping_add(c >> 3);
        e = e.wrapping_mul(3) ^ step;
        f = f.wrapping_add(e);
    }
    a ^ b ^ c ^ d ^ e ^ f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(patience: Duration, paces: &[f64]) -> (f64, usize, Count) {
        let yardstick = Yardstick::new(patience);
        let tries = Cell::new(0);
        let lap = |_| {
            let pace = paces[tries.get()];
            tries.set(tries.get() + 1);
            Ok::<_, ()>((pace, pace))
        };
        let (found, _) = yardstick.best_of(lap).unwrap();
        (found, tries.get(), yardstick.laps())
    }

    #[test]
    fn a_quiet_lap_counts_and_a_disturbed_one_is_repeated() {
        let hour = Duration::from_secs(3600);
        let (found, tries, laps) = run(hour, &[1.05, 1.0]);
        assert_eq!((found, tries, laps.all, laps.disturbed), (1.05, 1, 1, 0));
        let (found, tries, laps) = run(hour, &[1.5, 1.0, 1.0]);
        assert_eq!((found, tries, laps.all, laps.disturbed), (1.0, 2, 1, 0));
    }

    #[test]
    fn the_least_disturbed_counts_where_all_were() {
        let (found, tries, laps) = run(Duration::from_secs(3600), &[1.5, 1.3, 1.4, 1.5, 1.5, 1.0]);
        assert_eq!((found, tries, laps.all, laps.disturbed), (1.3, 5, 1, 1));
    }

    #[test]
    fn without_patience_the_first_counts() {
        let (found, tries, laps) = run(Duration::ZERO, &[1.5, 1.0]);
        assert_eq!((found, tries, laps.all, laps.disturbed), (1.5, 1, 1, 1));
    }

    #[test]
    fn each_contest_has_patience_of_its_own() {
        let yardstick = Yardstick::new(Duration::from_millis(1));
        let tries = Cell::new(0);
        let lap = |_| {
            tries.set(tries.get() + 1);
            thread::sleep(Duration::from_millis(1));
            Ok::<_, ()>(((), 2.0))
        };
        for _ in 0..3 {
            yardstick.begin();
            yardstick.best_of(lap).unwrap();
            yardstick.best_of(lap).unwrap();
        }
        assert_eq!(tries.get(), 6, "all is used up by the first try");
        assert_eq!(yardstick.laps().disturbed, 6);
    }

    #[test]
    fn patience_that_is_spared_is_there_afterwards() {
        let yardstick = Yardstick::new(Duration::from_secs(3600));
        let tries = Cell::new(0);
        let lap = |wait: Duration| {
            tries.set(tries.get() + 1);
            Ok::<_, ()>((wait, 2.0))
        };
        yardstick.spare(true);
        assert_eq!(yardstick.best_of(lap).unwrap().0, Duration::ZERO);
        assert_eq!(tries.get(), 1);
        yardstick.spare(false);
        assert_eq!(yardstick.best_of(lap).unwrap().0, WAIT);
        assert_eq!(tries.get(), 1 + TRIES);
    }

    #[test]
    fn a_lap_that_is_run_just_once_spends_no_patience() {
        let hour = Duration::from_secs(3600);
        let yardstick = Yardstick::new(hour);
        let tries = Cell::new(0);
        let lap = |wait: Duration| {
            tries.set(tries.get() + 1);
            Ok::<_, ()>((wait, 2.0))
        };
        assert_eq!(yardstick.just_once(lap).unwrap().0, Duration::ZERO);
        assert_eq!((tries.get(), yardstick.left()), (1, hour));
        assert_eq!(yardstick.best_of(lap).unwrap().0, WAIT);
        assert_eq!(yardstick.laps().all, 2);
    }

    #[test]
    fn the_shortest_time_is_one() {
        let yardstick = Yardstick::new(Duration::ZERO);
        assert!((0..100).all(|_| yardstick.lay() >= 1.0));
    }
}
