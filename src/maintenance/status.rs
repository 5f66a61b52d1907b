//! The drain status: whether a pass is requested, and whether one is running.
//!
//! | state | meaning | `require` | `begin` | `end` |
//! |-------|---------|-----------|---------|-------|
//! | Idle | no request | → Required, true | → Running | – |
//! | Required | a pass is requested, none runs | stays, true | → Running | – |
//! | Running | a pass runs | → RunningRequired, false | – | → Idle, false |
//! | RunningRequired | a pass runs, another is requested | stays, false | – | → Required, true |
//!
//! A running pass may miss what a thread did that requested a pass after this one began. So
//! RunningRequired leads to another pass. `require` returns whether its caller should run a pass,
//! `end` whether another was requested.
//!
//! Only the holder of the maintenance lock calls `begin` and `end`, so one pass runs at a time. A
//! pass does not repeat itself: a caller's pass must stay short, and each write that needs a
//! scheduler's run requests one (`waking`). The state Required keeps the request until the next
//! writer meets it.
//!
//! # Invariant
//!
//! 1. A `require` that happens after a pass began is never lost: it is followed by an `end` that
//!    answers "again", or it finds Idle or Required and tells its caller to run.
//!
//! Origin: the drain status of Caffeine, with the same four states.

use crate::sync::{AtomicU8, Ordering};

const IDLE: u8 = 0;
const REQUIRED: u8 = 1;
const RUNNING: u8 = 2;
const RUNNING_REQUIRED: u8 = 3;

/// The status; the only owner of its atomic.
#[derive(Debug)]
pub(crate) struct Status(AtomicU8);

impl Status {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(IDLE))
    }

    /// Requests a pass; true if the caller should try to run it.
    ///
    /// AcqRel: what the caller did before happens before the pass that answers (partner: `begin`,
    /// `end`).
    pub(crate) fn require(&self) -> bool {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let (next, run) = match seen {
                IDLE => (REQUIRED, true),
                RUNNING => (RUNNING_REQUIRED, false),
                REQUIRED => return true,
                _ => return false,
            };
            match self
                .0
                .compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return run,
                Err(now) => seen = now,
            }
        }
    }

    /// Marks that a pass begins.
    pub(crate) fn begin(&self) {
        // A swap, not a store: it reads the last `require`, so the pass sees what that caller did
        // (partner: `require`).
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// Marks that the pass has ended; true if another was requested meanwhile.
    pub(crate) fn end(&self) -> bool {
        match self
            .0
            .compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => false,
            Err(seen) => {
                debug_assert_eq!(seen, RUNNING_REQUIRED, "a pass ended that did not run");
                self.0.store(REQUIRED, Ordering::Release);
                true
            }
        }
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_transition_is_that_of_the_table() {
        let status = Status::new();
        assert!(status.require(), "idle: run");
        assert!(status.require(), "required, no pass runs: run");
        status.begin();
        assert!(!status.require(), "running: the runner sees the request");
        assert!(!status.require());
        assert!(status.end(), "asked again");
        status.begin();
        assert!(!status.end());
        status.begin();
        assert!(!status.end(), "begun from idle");
    }
}
