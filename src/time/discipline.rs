//! The discipline of the default clock: it keeps the counter in step with the program's time.
//!
//! # How it works
//!
//! The counter runs at a fixed nominal rate, which was measured for some hundred microseconds at
//! the start of the process and is off by some parts per million. Cache time is that counter. A
//! correction changes the conversion of cache time into the program's time, once for all caches of
//! the process.
//!
//! A correction reads the counter and `Instant::now()` as a [`Pair`]. It then moves policy instants
//! to the program's time, and learns two rates: the `slope`, between the last two pairs, by which
//! policy instants continue until the next correction; and the `rate`, over minutes, by which
//! durations are converted. The slope follows the program's clock where the system slews it. The
//! rate does not, since a deadline far away outlives the slew.
//!
//! Corrections need no thread. An operation that has to convert, and finds the current segment
//! older than [`PERIOD`], makes one first. While no operation converts, none is needed.
//!
//! # What is promised
//!
//! 1. A policy instant differs from `Instant::now()` by less than 50 microseconds, if the rate of
//!    the program's clock changes by less than 1,000 parts per million at a time. Three errors add
//!    up: the drift within [`GREATEST_AGE`], the width of a pair, and [`MARGIN`].
//! 2. A correction goes no further than its pair proves. Where policy instants are behind, they
//!    step forward; where they are ahead, they stand still until the program's time has come.
//! 3. The rate is measured over at least half of the time since the first pair, up to
//!    [`RATE_WINDOW`]. A duration is converted with an error of less than 1 part per million from
//!    the tenth second on, if the program's clock runs evenly.
//! 4. A jump of one of the two clocks does not change the measured rate.
//!
//! # Cost
//!
//! Some dozen readings of the clocks for the whole process, in each [`PERIOD`] in which a cache
//! converts times.

use super::segment::{MARGIN, Published, Segment};
use super::view::{Rate, View};
use crate::sync::{Mutex, MutexGuard};
use std::fmt;
use std::thread;
use std::time::Instant;

/// The age of a segment from which on a conversion corrects it first: 17 ms.
const PERIOD: u64 = 1 << 24;
/// The greatest age at which a segment is used, while another thread corrects it. Where the
/// program's clock changes by 1,000 parts per million, a segment is off by a thousandth of its age.
const GREATEST_AGE: u64 = 2 * PERIOD;
/// How often a thread checks for that correction before it continues without it.
const CORRECTION_CHECKS: u32 = if cfg!(wheelhouse_loom) { 1 } else { 256 };

/// How long the rate is measured: 137 s. Over a shorter time, a small slew of the program's clock
/// would shift deadlines far away.
const RATE_WINDOW: u64 = 1 << 37;
/// How long the first rate, which the counter came with, was measured.
const FIRST_RATE_SPAN: u64 = 5_000_000;
/// How long the rate must have been measured after a jump to replace the rate from before it.
const MIN_SPAN_AFTER_JUMP: u64 = 1 << 34;
/// A change of the slope that no ordinary slew makes: 977 parts per million. Operating systems
/// slew by up to 500.
const SLEW_LIMIT: Rate = Rate::fraction(10);
/// Up to this span such a change is a hard slew, which the slope follows, and above it a jump.
const MAX_SLEW_SPAN: u64 = 1 << 29;

/// A reading of the counter and a reading of the program's time, taken at the same moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// The counter, in its nominal nanoseconds.
    pub(super) counter: u64,
    /// Nanoseconds since the base of the process.
    pub(super) program: u64,
    /// How long the readings took: they belong to the same moment within half of this.
    pub(super) width: u64,
}

/// The two clocks that a pair is read from.
pub(super) trait Readings: Send + Sync {
    /// The counter, in its nominal nanoseconds.
    fn counter(&self) -> u64;
    /// The program's time in nanoseconds since the base of the process.
    fn program(&self) -> u64;
}

impl Pair {
    /// The best of several: at least 4, at most `most`.
    ///
    /// `None` if the counter has gone back each time.
    fn read(readings: &dyn Readings, most: u32) -> Option<Self> {
        /// A pair of this width needs no more tries.
        const GOOD_WIDTH: u64 = 250;
        let mut best: Option<Self> = None;
        for tries in 1..=most {
            let before = readings.counter();
            let program = readings.program();
            let width = readings.counter().wrapping_sub(before);
            if width as i64 >= 0 && best.is_none_or(|best| width < best.width) {
                best = Some(Self {
                    counter: before.wrapping_add(width / 2),
                    program,
                    width,
                });
            }
            if tries >= 4 && best.is_some_and(|best| best.width <= GOOD_WIDTH) {
                break;
            }
        }
        best
    }

    /// The rate between two pairs. `None` if a clock has gone back, or if the pairs are too wide
    /// for a precision of one part in `2^precision`.
    fn rate_since(&self, former: &Self, precision: u32) -> Option<Rate> {
        let counter = self.counter.checked_sub(former.counter)?;
        let program = self.program.checked_sub(former.program)?;
        if self.width.saturating_add(former.width) > counter >> precision {
            return None;
        }
        Some(Rate::measured(program, counter))
    }
}

/// The discipline of a process, or of a test.
pub(super) struct Discipline {
    base: Instant,
    published: Published,
    evidence: Mutex<Evidence>,
    readings: Box<dyn Readings>,
}

impl Discipline {
    /// Starts at the program's time. `base` is the instant from which the program's time counts.
    pub(super) fn new(base: Instant, readings: Box<dyn Readings>) -> Self {
        // The first pair is evidence for as long as the process lives, so it takes this many tries.
        let first = Pair::read(&*readings, 64).unwrap_or_else(|| Pair {
            counter: readings.counter(),
            program: readings.program(),
            width: u64::MAX,
        });
        Self {
            base,
            published: Published::new(Segment {
                from: first.counter,
                start: first.counter,
                value: first.program,
                slope: Rate::ONE,
                rate: Rate::ONE,
                pace: Rate::ONE,
            }),
            evidence: Mutex::new(Evidence::new(first)),
            readings,
        }
    }

    pub(super) fn base(&self) -> Instant {
        self.base
    }

    /// The view for a reading of the counter that was taken just before, if no correction is due
    /// or under way. Its points of cache time are points of the counter, less `origin`.
    #[inline(always)]
    pub(super) fn view_at_once(&self, now: u64, origin: u64) -> Option<View> {
        let counter = now.wrapping_add(origin);
        let segment = self.published.load_at_once()?;
        // Also where the reading lies a period before the segment: the counter has gone back.
        if is_old(&segment, counter, PERIOD) {
            return None;
        }
        Some(self.view_by(&segment, counter))
    }

    /// The view once a correction was made, by this thread or by another.
    pub(super) fn view_after_correction(&self, now: u64, origin: u64) -> View {
        let segment = self.corrected();
        self.view_by(&segment, now.wrapping_add(origin))
    }

    #[inline(always)]
    fn view_by(&self, segment: &Segment, counter: u64) -> View {
        View {
            base: self.base,
            policy_nanos: segment.policy_instant(counter) as i64,
            rate: segment.rate,
            pace: segment.pace,
        }
    }

    /// The segment after a correction, by this thread or by another that is at it.
    #[cold]
    #[inline(never)]
    fn corrected(&self) -> Segment {
        for look in 0.. {
            if let Some(evidence) = self.evidence.try_lock() {
                self.correct(evidence);
            }
            let (segment, overrun) = self.published.load();
            // Here the counter, since the reading may be much older than the segment.
            let usable = !is_old(&segment, self.readings.counter(), GREATEST_AGE);
            if usable || overrun {
                return segment;
            }
            // The thread that corrects has been suspended, or exists only in the parent process of
            // this one.
            if look >= CORRECTION_CHECKS {
                self.published.overrun();
            } else {
                thread::yield_now();
            }
        }
        unreachable!("the loop has no end")
    }

    fn correct(&self, mut evidence: MutexGuard<'_, Evidence>) {
        let (segment, _) = self.published.load();
        if !is_old(&segment, self.readings.counter(), PERIOD) {
            // Another thread has done it.
            return;
        }
        let Some(pair) = Pair::read(&*self.readings, 16) else {
            return;
        };
        evidence.add(pair);
        // If a reader calls it off, the next conversion does it.
        self.published.replace(|segment, overrun| {
            let at = self.readings.counter().wrapping_add(MARGIN);
            evidence.next(&segment, overrun, at)
        });
    }
}

impl fmt::Debug for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segment = self.published.load().0;
        f.debug_struct("Discipline")
            .field("segment", &segment)
            .finish()
    }
}

/// Whether a segment is older than `age` at a reading of the counter, or was made more than `age`
/// after it.
#[inline]
fn is_old(segment: &Segment, counter: u64, age: u64) -> bool {
    counter.wrapping_sub(segment.from).wrapping_add(age) > 2 * age
}

/// The values that the discipline has computed from the pairs.
#[derive(Debug)]
struct Evidence {
    /// The last pair: policy instants continue from here.
    last: Pair,
    /// The last pair that was narrow enough to measure the slope.
    slope_since: Pair,
    slope: Rate,
    /// The pair since which the rate is being measured anew.
    rate_since: Pair,
    rate: Rate,
    /// Over how long `rate` was measured.
    rate_span: u64,
}

impl Evidence {
    fn new(first: Pair) -> Self {
        Self {
            last: first,
            slope_since: first,
            slope: Rate::ONE,
            rate_since: first,
            rate: Rate::ONE,
            rate_span: FIRST_RATE_SPAN,
        }
    }

    /// Learns from a pair.
    fn add(&mut self, pair: Pair) {
        self.last = pair;
        let span = pair.counter.wrapping_sub(self.slope_since.counter);
        if pair.counter < self.slope_since.counter || pair.program < self.slope_since.program {
            self.start_anew(pair);
        } else if let Some(slope) = pair.rate_since(&self.slope_since, 15) {
            let changed = slope.differs_from(self.slope, SLEW_LIMIT);
            if changed {
                self.start_anew(pair);
            }
            let jumped = changed && span > MAX_SLEW_SPAN || slope.is_extreme();
            self.slope = if jumped { self.rate } else { slope };
            self.slope_since = pair;
        }
        self.measure(pair);
    }

    /// Takes over the rate since `rate_since` once its span is twice that of the present rate. So
    /// durations are converted at one rate for as long as possible: the time left of a new entry
    /// never exceeds its lifetime.
    fn measure(&mut self, pair: Pair) {
        let span = pair.counter.wrapping_sub(self.rate_since.counter);
        let precision = if span < 1 << 30 { 16 } else { 21 };
        if span < 2 * self.rate_span {
            return;
        }
        let Some(rate) = pair.rate_since(&self.rate_since, precision) else {
            return;
        };
        if rate.is_extreme() {
            self.start_anew(pair);
            return;
        }
        (self.rate, self.rate_span) = (rate, span);
        if span >= RATE_WINDOW {
            (self.rate_since, self.rate_span) = (pair, RATE_WINDOW / 2);
        }
    }

    /// After a jump: forgets the measurements from before it.
    fn start_anew(&mut self, pair: Pair) {
        self.slope_since = pair;
        self.rate_since = pair;
        self.rate_span = self.rate_span.min(MIN_SPAN_AFTER_JUMP);
    }

    /// The segment that follows the present one from `at` on.
    fn next(&self, present: &Segment, overrun: bool, at: u64) -> Segment {
        // The last point that a reader can have used by then. If the counter has gone back, only
        // the greatest age limits it.
        let age = at.wrapping_sub(present.from);
        let went_back = age as i64 <= 0;
        let furthest = if overrun && !went_back {
            at
        } else {
            present.from.wrapping_add(age.min(GREATEST_AGE))
        };
        let policy_nanos = present.policy_instant(furthest);
        let distance = at.wrapping_sub(self.last.counter) as i64;
        let program = self
            .last
            .program
            .wrapping_add(self.slope.of_signed(distance) as u64);
        // No further than the pair proves.
        let error = program.wrapping_sub(policy_nanos) as i64;
        let unsure = (self.last.width / 2).min(i64::MAX as u64) as i64;
        let error = error - error.clamp(-unsure, unsure);
        let ahead = error.min(0).unsigned_abs();
        Segment {
            from: at,
            start: at.wrapping_add(self.slope.inverse().of(ahead)),
            value: policy_nanos.wrapping_add(error.max(0) as u64),
            slope: self.slope,
            rate: self.rate,
            pace: self.rate.inverse(),
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
