//! The default clock: the processor's time stamp counter where it runs at a constant rate, the
//! system's monotonic clock elsewhere.
//!
//! # How it works
//!
//! quanta decides which of the two it is, and measures the counter's rate. Where it is the counter
//! of an x86-64 processor it is read here directly ([`Direct`]): through quanta's door a reading is
//! a call and a choice, which costs a hit 2 ns. The rate is taken over as a fraction, so that the
//! upper half of one product is the time.
//!
//! This is the one module that names quanta.
#![allow(unsafe_code)]

/// A clock that starts at 0 when it is made; a clone shows the same.
#[derive(Clone)]
pub(super) struct Counter {
    clock: quanta::Clock,
    /// What the clock showed when it was made, in ticks.
    origin: u64,
}

impl Counter {
    pub(super) fn new() -> Self {
        let clock = quanta::Clock::new();
        // After the calibration.
        let origin = clock.raw();
        Self { clock, origin }
    }

    /// Nanoseconds since it was made; 0 for readings before that, from the counter of another core.
    pub(super) fn now(&self) -> u64 {
        self.clock.delta_as_nanos(self.origin, self.clock.raw())
    }

    /// The same clock, read without quanta where that is possible.
    pub(super) fn direct(&self) -> Direct {
        if shows_counter(&self.clock) {
            // In 2^40 ticks; ticks of a nanosecond and more are no rate, and no such processor is
            // known.
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

    /// Nanoseconds since the [`Counter`] was made, 0 before that; `None` where the counter is no
    /// clock.
    #[inline]
    pub(super) fn now(self) -> Option<u64> {
        if self.rate == 0 {
            return None;
        }
        let ticks = read().saturating_sub(self.origin);
        Some(((u128::from(ticks) * u128::from(self.rate)) >> 64) as u64)
    }
}

/// Whether the clock's raw readings are the processor's counter.
fn shows_counter(clock: &quanta::Clock) -> bool {
    // The counter never goes back on one core, so a reading of the clock between two of its own is
    // one of it, unless the thread changes cores among counters that differ. Any other clock is
    // some fifteen powers of ten away, or stands still.
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
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing but two registers.
    // Where a system forbids it to programs, quanta, which reads it the same way, has ended the
    // process before.
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
        let counter = Counter::new();
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
