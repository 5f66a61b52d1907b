//! The discipline of the clock: a thread that computes policy instants against one that corrects
//! the clock.
//!
//! The counter of a model is a word that every reading advances. Readings order the accesses around
//! them, as they do where all processors read one clock: a store before a reading is seen by a
//! thread that reads a later value.

use super::explore;
use crate::time::segment::{Published, Segment};
use crate::time::view::Rate;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// The greatest age at which the model's readers use a segment.
const GREATEST_AGE: u64 = 1_500;

struct Model {
    counter: AtomicU64,
    published: Published,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            counter: AtomicU64::new(0),
            published: Published::new(segment(0, 0, true)),
        })
    }

    /// Reads the counter, which advances by this much since the last reading by any thread.
    fn read(&self, after: u64) -> u64 {
        self.counter.fetch_add(after, Ordering::AcqRel) + after
    }

    /// The policy instant for a reading.
    fn instant(&self, after: u64) -> u64 {
        let now = self.read(after);
        loop {
            let (segment, overrun) = self.published.load();
            assert_whole(&segment);
            if overrun || now.saturating_sub(segment.from) <= GREATEST_AGE {
                return segment.policy_instant(now);
            }
            self.published.overrun();
        }
    }

    /// Continues from the policy instant at `at`, with the other slope.
    fn next(present: Segment, overrun: bool, at: u64) -> Segment {
        assert_whole(&present);
        let furthest = if overrun {
            at
        } else {
            at.min(present.from + GREATEST_AGE)
        };
        segment(at, present.policy_instant(furthest), present.slope == SLOW)
    }

    fn correct(&self) -> bool {
        self.published.replace(|present, overrun| {
            let at = self.read(1);
            Self::next(present, overrun, at)
        })
    }
}

const FAST: Rate = Rate::fraction(2);
const SLOW: Rate = Rate::ONE;

fn segment(at: u64, value: u64, fast: bool) -> Segment {
    Segment {
        from: at,
        start: at,
        value,
        slope: if fast { FAST } else { SLOW },
        rate: Rate::of_bits(at),
        pace: Rate::of_bits(value),
    }
}

/// Whether all words belong to one segment.
fn assert_whole(segment: &Segment) {
    let Segment {
        from, start, value, ..
    } = *segment;
    assert_eq!((start, segment.rate), (from, Rate::of_bits(from)));
    assert_eq!(segment.pace, Rate::of_bits(value));
}

/// The reader's three readings. Either the time between two of them is long enough to show a slope,
/// or it is almost zero.
fn read_thrice(model: &Model, long: u64) {
    let first = model.instant(long);
    let second = model.instant(1);
    let third = model.instant(1);
    assert!(first <= second && second <= third);
}

#[test]
fn a_reader_against_a_correction_gets_no_earlier_instant() {
    explore(|| {
        let model = Model::new();
        let theirs = Arc::clone(&model);
        let reader = thread::spawn(move || read_thrice(&theirs, 1_000));
        model.correct();
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_against_two_corrections_gets_no_earlier_instant() {
    explore(|| {
        let model = Model::new();
        let theirs = Arc::clone(&model);
        let reader = thread::spawn(move || {
            let first = theirs.instant(1_000);
            assert!(first <= theirs.instant(1));
        });
        model.correct();
        model.correct();
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_of_an_old_segment_marks_it_first() {
    explore(|| {
        let model = Model::new();
        let theirs = Arc::clone(&model);
        let reader = thread::spawn(move || {
            let first = theirs.instant(2_000);
            assert!(first <= theirs.instant(1));
        });
        model.correct();
        reader.join().unwrap();
    });
}

/// Shows that the models above can fail.
#[test]
#[should_panic(expected = "first <= ")]
fn a_correction_that_reads_the_counter_too_early_gives_earlier_instants() {
    explore(|| {
        let model = Model::new();
        let theirs = Arc::clone(&model);
        let reader = thread::spawn(move || read_thrice(&theirs, 1_000));
        let at = model.read(1);
        model
            .published
            .replace(|present, overrun| Model::next(present, overrun, at));
        reader.join().unwrap();
    });
}
