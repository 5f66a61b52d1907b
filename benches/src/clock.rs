//! One clock for deadlines, lateness and latencies: the time stamp counter through quanta, as
//! nanoseconds since its first use.

use std::{sync::LazyLock, thread, time::Duration};

static START: LazyLock<(quanta::Clock, u64)> = LazyLock::new(|| {
    let clock = quanta::Clock::new();
    let origin = clock.raw();
    (clock, origin)
});

/// Nanoseconds since this function was first called.
#[inline]
pub fn nanos() -> u64 {
    let (clock, origin) = &*START;
    clock.delta_as_nanos(*origin, clock.raw())
}

/// Sleeps until [`nanos`] reads `due`; returns at once if it has passed.
pub fn sleep_until(due: u64) {
    thread::sleep(Duration::from_nanos(due.saturating_sub(nanos())));
}
