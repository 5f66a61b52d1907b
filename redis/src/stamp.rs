//! Which entries may be served: one number, compared on every hit.
//!
//! Each entry carries the stamp that was current just before its request was written. The current
//! stamp is even while the near cache serves and odd while it does not. An entry may be served if
//! its stamp equals the current one. So everything that is stored stops being served in one store:
//! nothing has to be found and removed first. What must not be served any more is removed later, by
//! a task that has the time.
//!
//! Invariants:
//!
//! 1. The stamp only grows.
//! 2. An entry has the stamp that its reader loaded *before* the reader took the connection, and
//!    that stamp was even. So an entry whose reply came over an old connection has an old stamp.
//! 3. A call that began when the stamp was `b` accepts only values whose stamps are at least `b`.
//! 4. Only the holder of the line's lock moves the stamp (`line.rs`), before it releases the lock
//!    with the state that goes with the new stamp.

use std::sync::atomic::{AtomicU64, Ordering};

/// The current stamp.
#[derive(Debug)]
pub(crate) struct Stamp(AtomicU64);

impl Stamp {
    /// Serves nothing.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    // Acquire: partner of the Release in `stop`, `serve_anew` and `outdate`.
    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn serves(stamp: u64) -> bool {
        stamp % 2 == 0
    }

    /// Nothing is served from now on.
    pub(crate) fn stop(&self) {
        self.step(|stamp| stamp + 1 + stamp % 2);
    }

    /// Entries loaded from now on are served, and older ones are not.
    pub(crate) fn serve_anew(&self) {
        self.step(|stamp| stamp + 2 - stamp % 2);
    }

    /// Entries that are stored now are no longer served. Whether newer entries are served does not
    /// change.
    pub(crate) fn outdate(&self) {
        self.step(|stamp| stamp + 2);
    }

    fn step(&self, next: impl Fn(u64) -> u64) {
        // AcqRel: a store or a removal before the step is seen by a reader of the new stamp.
        let moved = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |stamp| {
                Some(next(stamp))
            });
        debug_assert!(moved.is_ok(), "the closure always answers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_forward_and_has_the_right_parity() {
        let stamp = Stamp::new();
        let mut last = stamp.load();
        assert!(!Stamp::serves(last));
        type Step = (fn(&Stamp), bool);
        let steps: [Step; 7] = [
            (Stamp::serve_anew, true),
            (Stamp::serve_anew, true),
            (Stamp::outdate, true),
            (Stamp::stop, false),
            (Stamp::stop, false),
            (Stamp::outdate, false),
            (Stamp::serve_anew, true),
        ];
        for (index, (step, serves)) in steps.into_iter().enumerate() {
            step(&stamp);
            assert!(stamp.load() > last, "step {index} went back");
            assert_eq!(Stamp::serves(stamp.load()), serves, "step {index}");
            last = stamp.load();
        }
    }
}
