//! The drain status: who has to run a pass, and whether somebody does.
//!
//! | state | means | `require` | `begin` | `end` |
//! |-------|-------|-----------|---------|-------|
//! | Idle | nothing is asked for | → Required, the caller should run | → Running | – |
//! | Required | a pass is asked for, nobody runs yet | stays, the caller should run | → Running | – |
//! | Running | a pass runs; what is asked for now it may miss | → RunningRequired, the runner will know | – | → Idle |
//! | RunningRequired | a pass runs and another is asked for | stays | – | → Required: whoever asks next runs |
//!
//! `begin` and `end` are called by the holder of the maintenance lock only, so there is one runner
//! at a time. A runner does not go round again by itself: a caller's pass must stay short, and a
//! scheduler's run is requested for by every write that needs one (`waking`). Required keeps the
//! request until the next writer meets it.
//!
//! # Invariant
//!
//! 1. A `require` that happens after a pass began is followed by an `end` that answers "again", or
//!    finds Idle or Required and tells its caller to run: it is never lost between the two.
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

    /// Asks for a pass; true if the caller should try to run it.
    ///
    /// AcqRel: what the caller did before lies before the pass that answers (partner: `begin`,
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

    /// A pass begins.
    pub(crate) fn begin(&self) {
        // A swap, not a store: it reads the last `require`, so the pass sees what that caller did
        // (partner: `require`).
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// The pass has ended; true if another was asked for meanwhile.
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
    fn the_table_holds() {
        let status = Status::new();
        assert!(status.require(), "idle: run");
        assert!(status.require(), "required, nobody runs: run");
        status.begin();
        assert!(!status.require(), "running: the runner will know");
        assert!(!status.require());
        assert!(status.end(), "asked again");
        status.begin();
        assert!(!status.end());
        status.begin();
        assert!(!status.end(), "begun from idle");
    }
}
