//! The default clock: the processor's time stamp counter where that runs at a constant rate, the
//! system's monotonic clock elsewhere.
//!
//! # How it works
//!
//! quanta decides which of the two it is, and measures the rate of the counter. The counter of an
//! x86-64 processor is then read here without quanta ([`Direct`]), since a reading by quanta is a
//! call and a branch. The rate is kept as a fraction of 2^64, so the upper half of one product is
//! the time.
//!
//! This is the only module that names quanta.
#![allow(unsafe_code)]

use super::discipline::{Discipline, Readings};
use std::sync::OnceLock;
use std::time::Instant;

/// A clock that starts at 0 when it is made. A clone shows the same time.
#[derive(Clone)]
pub(super) struct Counter {
    clock: quanta::Clock,
    /// The reading when the clock was made, in ticks.
    origin: u64,
}

impl Counter {
    fn first() -> Self {
        let clock = quanta::Clock::new();
        // After the calibration.
        let origin = clock.raw();
        Self { clock, origin }
    }

    /// A counter that starts now, the discipline of all counters of the process, and what its
    /// counter shows now.
    pub(super) fn start() -> (Self, &'static Discipline, u64) {
        static PROCESS: OnceLock<(Counter, Discipline)> = OnceLock::new();
        let (first, discipline) = PROCESS.get_or_init(|| {
            let counter = Self::first();
            let base = Instant::now();
            let readings = Machine {
                direct: counter.direct(),
                counter: counter.clone(),
                base,
            };
            (counter, Discipline::new(base, Box::new(readings)))
        });
        let clock = first.clock.clone();
        let origin = clock.raw();
        let shown = first.at(origin);
        (Self { clock, origin }, discipline, shown)
    }

    /// Nanoseconds since it was made; 0 for an earlier reading, which another core's counter may
    /// return.
    pub(super) fn now(&self) -> u64 {
        self.at(self.clock.raw())
    }

    /// The value of [`now`](Self::now) at this reading.
    fn at(&self, raw: u64) -> u64 {
        self.clock.delta_as_nanos(self.origin, raw)
    }

    /// The same clock, read without quanta where that is possible.
    pub(super) fn direct(&self) -> Direct {
        if shows_counter(&self.clock) {
            // Of 2^40 ticks. A tick of a nanosecond or more cannot be kept as a rate; no such
            // processor is known.
            let nanos = self.clock.delta_as_nanos(0, 1 << 40);
            Direct {
                origin: self.origin,
                rate: if nanos < 1 << 40 { nanos << 24 } else { 0 },
            }
        } else {
            Direct::NONE
        }
    }
}

/// The processor's counter, if it is a clock.
#[derive(Clone, Copy)]
pub(super) struct Direct {
    origin: u64,
    /// Nanoseconds in a tick, as a fraction of 2^64; 0 where the counter is no clock.
    rate: u64,
}

impl Direct {
    pub(super) const NONE: Self = Self { origin: 0, rate: 0 };

    /// Whether the processor's counter is a clock.
    pub(super) fn is_clock(self) -> bool {
        self.rate != 0
    }

    /// Nanoseconds since the [`Counter`] was made, 0 for an earlier reading; `None` where the
    /// processor's counter is no clock.
    #[inline]
    pub(super) fn now(self) -> Option<u64> {
        if self.rate == 0 {
            return None;
        }
        let ticks = read().saturating_sub(self.origin);
        Some(((u128::from(ticks) * u128::from(self.rate)) >> 64) as u64)
    }
}

/// The two clocks of the machine that the discipline compares.
struct Machine {
    direct: Direct,
    counter: Counter,
    base: Instant,
}

impl Readings for Machine {
    fn counter(&self) -> u64 {
        self.direct.now().unwrap_or_else(|| self.counter.now())
    }

    fn program(&self) -> u64 {
        super::saturating_nanos(self.base.elapsed())
    }
}

/// Whether the clock's raw readings are the processor's counter.
fn shows_counter(clock: &quanta::Clock) -> bool {
    // The counter never goes back on one core. So a raw reading that lies between two readings of
    // the counter is the counter's, unless the thread changes to a core whose counter differs. The
    // readings of any other clock are many powers of ten away.
    cfg!(target_arch = "x86_64")
        && (0..3).any(|_| {
            let before = read();
            let raw = clock.raw();
            before <= raw && raw <= read() && before > 0
        })
}

/// The processor's time stamp counter.
#[cfg(target_arch = "x86_64")]
#[inline]
fn read() -> u64 {
    // SAFETY: every x86-64 processor has this instruction, and it changes only two registers. Where
    // a system forbids it to programs, quanta has ended the process before, since quanta reads the
    // counter in the same way.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn read() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direct_reading_is_quantas() {
        let (counter, _, _) = Counter::start();
        let direct = counter.direct();
        for _ in 0..1_000 {
            let before = counter.now();
            let Some(now) = direct.now() else { return };
            let after = counter.now();
            // The two round differently, by a part in 2^32 at most.
            assert!(
                now + 2 >= before && now <= after + 2,
                "{before} {now} {after}"
            );
        }
    }

    #[test]
    fn a_clock_that_is_not_the_counter_is_known() {
        let (mocked, _control) = quanta::Clock::mock();
        assert!(!shows_counter(&mocked));
    }
}
