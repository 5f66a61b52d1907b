//! The mapping from the counter to the program's time, and how it is published to all threads.
//!
//! # How it works
//!
//! A [`Segment`] maps readings of the counter to policy instants: a straight line that starts at
//! `start`. Before its start it stands still at `value`. A correction replaces the segment by the
//! next one. The next one starts at the value that the former has at that moment, or later.
//!
//! [`Published`] holds the current segment in one of two slots, and a state word that names the
//! slot. A correction is in three steps: the writer marks the state as pending, reads the counter,
//! and writes the next segment into the other slot; then it publishes that slot by a
//! compare-exchange. A reader that meets the pending mark waits for a moment. If the writer does
//! not finish by then, since the system has suspended its thread, the reader calls the correction
//! off: it takes the mark away, and the writer's compare-exchange fails. So no reader waits for a
//! suspended thread.
//!
//! # Invariants
//!
//! 1. A reader never sees words of two segments. A slot is written only while the state names the
//!    other one, and a reader accepts what it has read only if the state is unchanged after that.
//! 2. Policy instants never go back in one thread, as long as the counter does not. The thread
//!    reads the counter first and the segment second. Assume that a segment tells a thread `F(c)`,
//!    and that the next segment starts at `a`. When the thread accepted the segment, no correction
//!    was pending. The writer reads the counter after it has set the mark, and adds [`MARGIN`]: so
//!    `c <= a`, and the next segment starts at `F(a) >= F(c)` or later and never falls. The same
//!    holds for each later segment.
//! 3. At most one thread makes a correction (the caller of [`Published::replace`] holds a lock).
//!
//! Invariant 2 needs two things. All processors must read the counter as one clock. The readers of
//! a segment that has become old, and the writer that replaces it, must use it with the same bound:
//! [`OVERRUN`] is for this, see [`Published::overrun`].

use super::view::Rate;
use crate::sync::{AtomicU64, Ordering, fence};

/// How far a processor may execute the reading of the counter and its neighbours out of order, in
/// nanoseconds, with much to spare.
pub(crate) const MARGIN: u64 = 1 << 10;

/// How often a reader checks a pending correction again before it cancels it. A correction takes
/// less time than this, unless the system suspends its thread.
const PENDING_CHECKS: u32 = if cfg!(wheelhouse_loom) { 0 } else { 64 };

/// In the state: a writer is about to publish the other slot.
const CORRECTING: u64 = 1;
/// In the state: the slot of the current segment.
const SLOT: u64 = 2;
/// In the state: readers use the current segment without a bound on its age.
const OVERRUN: u64 = 4;
/// In the state: the increment of each change, so that no state value occurs twice.
const VERSION: u64 = 8;

/// A straight line from the counter to the program's time. Both are in nanoseconds; the counter's
/// are nominal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The counter when the segment was made: its age counts from here.
    pub(crate) from: u64,
    /// Where the line starts. At `from`, or later where policy instants wait for the program's
    /// time.
    pub(crate) start: u64,
    /// The policy instant at `start` and before it, in nanoseconds since the base of the process.
    pub(crate) value: u64,
    /// The slope of the line.
    pub(crate) slope: Rate,
    /// The rate at which durations are converted, and its inverse.
    pub(crate) rate: Rate,
    pub(crate) pace: Rate,
}

impl Segment {
    /// The policy instant of a reading.
    #[inline]
    pub(crate) fn policy_instant(&self, counter: u64) -> u64 {
        // A reading before the start stands at the value.
        let distance = (counter.wrapping_sub(self.start) as i64).max(0) as u64;
        self.value.wrapping_add(self.slope.of(distance))
    }

    fn to_words(self) -> [u64; WORDS] {
        [
            self.from,
            self.start,
            self.value,
            self.slope.to_bits(),
            self.rate.to_bits(),
            self.pace.to_bits(),
        ]
    }

    #[inline]
    fn of_words([from, start, value, slope, rate, pace]: [u64; WORDS]) -> Self {
        Self {
            from,
            start,
            value,
            slope: Rate::of_bits(slope),
            rate: Rate::of_bits(rate),
            pace: Rate::of_bits(pace),
        }
    }
}

const WORDS: usize = 6;

/// The current segment, for all threads.
// Aligned so that the state and the first slot share a cache line, and no other data is in it.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Published {
    state: AtomicU64,
    slots: [[AtomicU64; WORDS]; 2],
}

impl Published {
    pub(crate) fn new(first: Segment) -> Self {
        let slot = || first.to_words().map(AtomicU64::new);
        Self {
            state: AtomicU64::new(0),
            slots: [slot(), slot()],
        }
    }

    /// The current segment, for readings that the caller took before; `None` if a correction is
    /// under way.
    #[inline(always)]
    pub(crate) fn load_at_once(&self) -> Option<Segment> {
        // Acquire pairs with the release of the compare-exchange that published the slot.
        let state = self.state.load(Ordering::Acquire);
        if state & CORRECTING != 0 {
            return None;
        }
        let slot = &self.slots[usize::from(state & SLOT != 0)];
        let words = std::array::from_fn(|word| slot[word].load(Ordering::Relaxed));
        // Pairs with the fence in `replace`: if one of these words is of a later segment, the state
        // is seen to have changed.
        fence(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) == state).then(|| Segment::of_words(words))
    }

    /// The current segment, for readings that the caller took before; and whether readers use it
    /// without a bound on its age.
    pub(crate) fn load(&self) -> (Segment, bool) {
        let (segment, state) = self.load_with_state();
        (segment, state & OVERRUN != 0)
    }

    fn load_with_state(&self) -> (Segment, u64) {
        let mut checks = 0;
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & CORRECTING != 0 {
                self.wait_or_call_off(state, &mut checks);
            } else if let Some(segment) = self.load_at_once()
                && self.state.load(Ordering::Relaxed) == state
            {
                return (segment, state);
            }
        }
    }

    /// Publishes the segment that `next` makes, which is given the current one and whether readers
    /// use it without a bound; false if a reader has called that off.
    ///
    /// `next` reads the counter. The caller sees to it that only one thread is here.
    pub(crate) fn replace(&self, next: impl FnOnce(Segment, bool) -> Segment) -> bool {
        let (current, state) = self.load_with_state();
        let correcting = state | CORRECTING;
        // Fails if a reader has set `OVERRUN` since; no other change is possible here.
        if !self.exchange(state, correcting) {
            return false;
        }
        // All threads see the mark before the counter is read (segment 2), and before they can see
        // a word of the new segment: pairs with the fence in `load_at_once`.
        fence(Ordering::SeqCst);
        let next = next(current, state & OVERRUN != 0);
        let slot = &self.slots[usize::from(state & SLOT == 0)];
        for (word, value) in slot.iter().zip(next.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        let published = ((state ^ SLOT) & !OVERRUN).wrapping_add(VERSION);
        self.exchange(correcting, published)
    }

    /// Lets the readers of the current segment use it without a bound on its age, until the next
    /// correction.
    ///
    /// A thread that corrects assumes that no reader was told more than the segment says at the
    /// greatest age at which readers may use it. Readers that use an older segment, because it
    /// cannot be corrected, must call this first.
    #[cold]
    pub(crate) fn overrun(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state & OVERRUN == 0 {
            let overrun = ((state | OVERRUN) & !CORRECTING).wrapping_add(VERSION);
            // If it fails, the caller loads the state again.
            self.exchange(state, overrun);
        }
    }

    #[cold]
    fn wait_or_call_off(&self, state: u64, checks: &mut u32) {
        if *checks < PENDING_CHECKS {
            *checks += 1;
            std::hint::spin_loop();
        } else {
            self.exchange(state, (state & !CORRECTING).wrapping_add(VERSION));
        }
    }

    /// Release for the words of a slot; acquire so that what follows is not done before it.
    fn exchange(&self, from: u64, to: u64) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}
