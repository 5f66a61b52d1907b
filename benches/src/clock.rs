//! One clock for deadlines, lateness and latencies: the time stamp counter through quanta, as
//! nanoseconds since its first use.

use std::sync::OnceLock;

static START: OnceLock<(quanta::Clock, u64)> = OnceLock::new();

/// Nanoseconds since this function was first called.
#[inline]
pub fn nanos() -> u64 {
    let (clock, origin) = START.get_or_init(|| {
        let clock = quanta::Clock::new();
        let origin = clock.raw();
        (clock, origin)
    });
    clock.delta_as_nanos(*origin, clock.raw())
}

/// Sleeps until [`nanos`] reads `due`; returns at once if it has passed.
pub fn sleep_until(due: u64) {
    let left = due.saturating_sub(nanos());
    if left > 0 {
        std::thread::sleep(std::time::Duration::from_nanos(left));
    }
}
