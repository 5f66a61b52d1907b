//! The anchor of the clock: readings by the processor's counter against threads that renew it.
//!
//! The other models run on tickers. So the anchor is compiled here once more, from its file, on
//! loom's atomics. Time passes at each look at the clock or the counter, in the order in which loom
//! runs the threads: the clock and the counter are no memory, so all threads agree on them.

use super::explore;
use anchor::{Anchor, FRESH};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::atomic;

mod anchor_parts {
    pub(super) use super::super::late::{AtomicBool, AtomicI64, AtomicU64};
    pub(super) use crate::time::saturating_nanos;
}

#[path = "../../src/time/counter.rs"]
#[expect(dead_code, reason = "the models have a clock of their own")]
mod anchor;

/// What a reading may lag, as in the tests of the anchor.
const LAG: u64 = FRESH * 7 / 5;
/// The anchor's rate: nanoseconds for 2^32 units of the counter, halved. A unit takes half a
/// nanosecond.
const RATE: u64 = 1 << 30;

/// An anchor, and the moment, in nanoseconds. The moment is no atomic of loom: see the module.
struct Machine {
    anchor: Anchor,
    moment: atomic::AtomicU64,
}

impl Machine {
    /// A machine whose anchor was just taken.
    fn new() -> Self {
        let machine = Self {
            anchor: Anchor::new(),
            moment: atomic::AtomicU64::new(1 << 30),
        };
        machine.anchor.rate.store(RATE, Ordering::Relaxed);
        machine.renew();
        machine
    }

    /// Lets time pass.
    fn pass(&self, nanos: u64) -> u64 {
        nanos + self.moment.fetch_add(nanos, atomic::Ordering::SeqCst)
    }

    fn clock(&self) -> u64 {
        self.pass(10)
    }

    fn counter(&self) -> u64 {
        2 * self.clock()
    }

    fn renew(&self) -> u64 {
        self.anchor.renew_by(|| self.counter(), || self.clock())
    }

    /// Reads the clock as a cache does, and checks the reading.
    fn read(&self) -> u64 {
        let began = self.clock();
        let shown = match self.anchor.read(|| self.counter()) {
            Some(shown) => shown,
            None => self.renew(),
        };
        let now = self.clock();
        assert!(shown <= now, "{shown} passes {now}");
        assert!(began <= shown + LAG, "{shown} at {began}");
        shown
    }
}

#[test]
fn a_reading_against_a_renewal_does_not_pass_the_clock_lags_little_and_never_goes_back() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        let told = Arc::new(AtomicU64::new(0));
        let (theirs, their_told) = (Arc::clone(&machine), Arc::clone(&told));
        let reader = thread::spawn(move || {
            let first = theirs.read();
            let heard = their_told.load(Ordering::Acquire);
            let second = theirs.read();
            assert!(second >= first, "{second} after {first}");
            assert!(second >= heard, "{second} after hearing {heard}");
        });
        machine.pass(8 * FRESH);
        told.store(machine.read(), Ordering::Release);
        reader.join().unwrap();
    });
}

#[test]
fn two_renewals_at_a_time_leave_readings_that_never_go_back() {
    explore(|| {
        let machine = Arc::new(Machine::new());
        machine.pass(8 * FRESH);
        let theirs = Arc::clone(&machine);
        let other = thread::spawn(move || theirs.read());
        let own = machine.read();
        let other = other.join().unwrap();
        let last = machine.read();
        assert!(last >= own.max(other), "{last} after {own} and {other}");
    });
}
