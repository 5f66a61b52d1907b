//! The default clock: the processor's time stamp counter where it runs at a constant rate, the system's monotonic clock elsewhere.
//!
//! # How it works
//!
//! quanta decides which of the two it is, and measures the counter's rate. Where it is the counter of an x86-64 processor it is read here
//! directly: through quanta's door a reading is a call and a choice, which costs a hit 2 ns of some 20. The rate is taken over as
//! a fraction of 2^40.
//!
//! This is the one module that names quanta.
#![allow(unsafe_code)]

/// A clock that starts at 0 when it is made.
pub(super) struct Counter {
    clock: quanta::Clock,
    /// What the clock showed when it was made, in ticks.
    origin: u64,
    /// Nanoseconds in 2^40 ticks of the counter; 0 where it is not read directly.
    rate: u64,
}

impl Counter {
    pub(super) fn new() -> Self {
        let clock = quanta::Clock::new();
        // After the calibration.
        let origin = clock.raw();
        let rate = if shows_counter(&clock) {
            clock.delta_as_nanos(0, 1 << 40)
        } else {
            0
        };
        Self {
            clock,
            origin,
            rate,
        }
    }

    /// Nanoseconds since it was made; 0 for readings before that, from the counter of another core.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        if self.rate == 0 {
            return self.clock.delta_as_nanos(self.origin, self.clock.raw());
        }
        let ticks = read().saturating_sub(self.origin);
        // Wide: in 64 bits the product would overflow within minutes.
        ((u128::from(ticks) * u128::from(self.rate)) >> 40) as u64
    }
}

/// Whether the clock's raw readings are the processor's counter.
fn shows_counter(clock: &quanta::Clock) -> bool {
    // The counter never goes back on one core, so a reading of the clock between two of its own is one of it, unless the thread
    // changes cores among counters that differ. Any other clock is some fifteen powers of ten away, or stands still.
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
    // SAFETY: every x86-64 processor has the instruction, and it changes nothing but two registers. Where a system forbids it to
    // programs, quanta, which reads it the same way, has ended the process before.
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
        for _ in 0..1_000 {
            let before = counter
                .clock
                .delta_as_nanos(counter.origin, counter.clock.raw());
            let now = counter.now();
            let after = counter
                .clock
                .delta_as_nanos(counter.origin, counter.clock.raw());
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
