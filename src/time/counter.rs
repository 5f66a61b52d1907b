//! The program's monotonic clock, read by the processor's counter.
//!
//! `Instant::now()` takes about as long as the rest of a look-up, the counter a third of that.
//! Where the kernel derives the monotonic clock from this counter, a reading is an *anchor* plus
//! the time by the counter since. An anchor is a call of `Instant::now()`, at most [`FRESH`] old.
//! Elsewhere, each reading calls `Instant::now()`.
//!
//! The counter's rate is measured once, over [`FRESH`], when the process builds its first cache. It
//! is then *halved*. So its error (an eighth at most), and changes of the kernel's rate (by a tenth
//! at most), cannot make a reading too great.
//!
//! # Invariants
//!
//! DESIGN.md ("What is the time?") has the proofs.
//!
//! 1. A reading does not pass `Instant::now()`.
//! 2. It lags by less than [`FRESH`], and by half of that as a rule.
//! 3. It never goes back, in a thread or from one thread to another that it has told something. A
//!    reading that does not wait for the loads before it ([`now`](Anchor::now) without
//!    `after_loads`) keeps this for its own thread only.
//!
//! If the counter steps, as on a machine that was suspended, no anchor is fresh any more. If it
//! stepped back, it lies far below the end of an anchor that was published before. If it stepped
//! forward, readings by the old `offset` would pass `Instant::now()`. The next anchor shows either,
//! and the process uses `Instant::now()` from then on.

use super::anchor_parts::{AtomicBool, AtomicI64, AtomicU64, saturating_nanos};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How long an anchor is used: 33 µs.
pub(super) const FRESH: u64 = 1 << 15;
/// For how long of that, at its end, one thread renews it while the others still use it. Otherwise
/// all threads that read the clock would renew it at the same moment, on one cache line.
const EARLY: u64 = FRESH / 4;
/// More than the counter moves while an anchor is fresh.
const FAR: u64 = 1 << 20;
/// Of `until`: the counter is given up. It is far from each counter, so no anchor is fresh.
const GIVEN_UP: u64 = u64::MAX;

/// The latest anchor.
#[repr(align(64))]
pub(super) struct Anchor {
    /// The counter from which the anchor is to be renewed, [`EARLY`] before it is no longer fresh;
    /// 0 if there is none. It only grows.
    ///
    /// Release, partner: the acquire in [`read`](Self::read), which then loads an `offset` that is
    /// as new.
    until: AtomicU64,
    /// In nanoseconds. It only grows.
    offset: AtomicI64,
    /// Nanoseconds for 2^32 units of the counter, halved; 0 if the counter is not used. It changes
    /// at most once, before the first anchor is published.
    pub(super) rate: AtomicU64,
    /// Whether a thread renews the anchor before its end. Relaxed: a hint, which spares the other
    /// threads the same work.
    renewing: AtomicBool,
    /// The instant 0, and the rate: each call that asks for the instant stores it.
    start: OnceLock<(Instant, u64)>,
}

/// The anchor of this process.
pub(super) static PROCESS: Anchor = Anchor::new();

impl Anchor {
    pub(super) const fn new() -> Self {
        Self {
            until: AtomicU64::new(0),
            offset: AtomicI64::new(i64::MIN),
            rate: AtomicU64::new(0),
            renewing: AtomicBool::new(false),
            start: OnceLock::new(),
        }
    }

    /// The instant 0. The first call measures the rate of the counter, which takes about
    /// [`FRESH`].
    pub(super) fn start(&self) -> Instant {
        let &(start, rate) = self.start.get_or_init(|| {
            let start = Instant::now();
            let mut measured = None;
            if system::drives_the_clock() {
                // Again if the thread was suspended.
                measured =
                    (0..32).find_map(|_| rate(|| system::counter(true), || nanos_since(start)));
            }
            (start, measured.unwrap_or(0))
        });
        // Seldom: many threads come here at a time, and each store would take the line from all.
        if self.rate.load(Ordering::Relaxed) != rate {
            self.rate.store(rate, Ordering::Relaxed);
        }
        start
    }

    /// Now, in nanoseconds. If not `after_loads`, the moment may lie before the latest loads of
    /// this thread, by as much as the processor executes ahead; that costs half as much.
    #[inline]
    pub(super) fn now(&self, after_loads: bool) -> u64 {
        self.read(|| system::counter(after_loads))
            .unwrap_or_else(|| self.renew())
    }

    /// A reading by the anchor, if it need not be renewed.
    #[inline]
    pub(super) fn read(&self, counter: impl FnOnce() -> u64) -> Option<u64> {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return None;
        }
        let counter = counter();
        let rate = self.rate.load(Ordering::Relaxed);
        if until.wrapping_sub(counter) > FAR {
            return None;
        }
        Some((self.offset.load(Ordering::Relaxed) + scaled(counter, rate)) as u64)
    }

    /// A reading where the anchor is to be renewed, or is no longer fresh.
    #[cold]
    #[inline(never)]
    fn renew(&self) -> u64 {
        let start = self.start();
        self.renew_by(|| system::counter(true), || nanos_since(start))
    }

    /// If no other thread renews the anchor, this one does. Otherwise a reading by the present
    /// anchor while that is fresh. If it is not, the other thread is held up.
    pub(super) fn renew_by(&self, counter: impl Fn() -> u64, clock: impl Fn() -> u64) -> u64 {
        // A load first, since many threads come here at a time.
        let renews =
            !self.renewing.load(Ordering::Relaxed) && !self.renewing.swap(true, Ordering::Relaxed);
        if renews {
            let now = self.take(counter, clock);
            self.renewing.store(false, Ordering::Relaxed);
            return now;
        }
        match self.read_late(&counter) {
            Some(now) => now,
            None => self.take(counter, clock),
        }
    }

    /// A reading by the anchor, if it is fresh. Loads in the order of [`read`](Self::read).
    fn read_late(&self, counter: impl Fn() -> u64) -> Option<u64> {
        let until = self.until.load(Ordering::Acquire);
        let counter = counter();
        let rate = self.rate.load(Ordering::Relaxed);
        if until == 0 || until == GIVEN_UP || rate == 0 {
            return None;
        }
        let is_fresh =
            counter.wrapping_sub(until) < units(EARLY, rate) || until.wrapping_sub(counter) <= FAR;
        let shown = self.offset.load(Ordering::Relaxed) + scaled(counter, rate);
        if is_fresh { Some(shown as u64) } else { None }
    }

    /// Reads the clock, and publishes an anchor if the counter is used.
    pub(super) fn take(&self, counter: impl Fn() -> u64, clock: impl Fn() -> u64) -> u64 {
        let rate = self.rate.load(Ordering::Relaxed);
        // Loaded before the counter is read, so it cannot be far above a counter that never steps.
        let until = self.until.load(Ordering::Acquire);
        if rate == 0 || until == GIVEN_UP {
            return clock();
        }
        // In this order: the thread may be suspended in between.
        let before = counter();
        let nanos = clock();
        let after = counter();
        let renewed_from = before.saturating_add(units(FRESH - EARLY, rate));
        let shown = scaled(after, rate);
        let offset = nanos as i64 - shown;
        let stepped = until.saturating_sub(after) > FAR || {
            // A greater one: another thread has taken a newer anchor, or the counter stepped.
            let former = self.offset.fetch_max(offset, Ordering::Relaxed);
            former > offset && former + shown > clock() as i64
        };
        let end = if stepped { GIVEN_UP } else { renewed_from };
        self.until.fetch_max(end, Ordering::Release);
        nanos
    }
}

/// The units of the counter in so many nanoseconds, by the rate that is halved.
fn units(nanos: u64, rate: u64) -> u64 {
    ((nanos / 2) << 32) / rate
}

fn nanos_since(start: Instant) -> u64 {
    saturating_nanos(start.elapsed())
}

/// The time that the counter shows, in nanoseconds.
#[inline]
fn scaled(counter: u64, rate: u64) -> i64 {
    ((u128::from(counter) * u128::from(rate)) >> 32) as i64
}

/// The rate of the counter, halved. None if the counter steps or stands still, or if the thread was
/// suspended.
fn rate(counter: impl Fn() -> u64, clock: impl Fn() -> u64) -> Option<u64> {
    let reading = || (counter(), clock(), counter());
    let first = reading();
    // By the counter also, in case the clock stands still.
    let last = std::iter::repeat_with(reading)
        .find(|last| last.1 - first.1 >= FRESH || last.2.wrapping_sub(first.0) > FAR)?;
    let most = last.2.wrapping_sub(first.0);
    let least = last.0.wrapping_sub(first.2);
    if most > FAR || most.wrapping_sub(least) > most / 8 {
        return None;
    }
    ((last.1 - first.1) << 32).checked_div(2 * most)
}

/// The virtual counter of the simulator in `benches/coherence`: a call that its plugin answers.
#[cfg(wheelhouse_simulated)]
#[allow(unsafe_code)]
mod system {
    pub(super) fn drives_the_clock() -> bool {
        true
    }

    #[inline]
    pub(super) fn counter(_: bool) -> u64 {
        unsafe extern "C" {
            fn syscall(number: std::ffi::c_long, at: *mut u64) -> std::ffi::c_long;
        }
        let mut shown = 0;
        // SAFETY: no call of the system has this number; the plugin writes the counter to the
        // variable, which lives until the call has returned.
        unsafe { syscall(7010, &mut shown) };
        shown
    }
}

/// The time-stamp counter.
#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(miri),
    not(wheelhouse_simulated)
))]
#[allow(unsafe_code)]
mod system {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};

    /// Whether the kernel derives the monotonic clock from the counter; it has then found that the
    /// counter runs at one rate and shows the same on all cores.
    pub(super) fn drives_the_clock() -> bool {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        std::fs::read(source).is_ok_and(|name| name.trim_ascii() == b"tsc")
    }

    /// The counter, perhaps after the loads before the call are done.
    #[inline]
    pub(super) fn counter(after_loads: bool) -> u64 {
        // SAFETY: each x86-64 processor has the two instructions. A program may execute the second
        // one where `Instant::now()` does: the callers ask `drives_the_clock` first. That the first
        // one orders the second one is no matter of memory safety. On AMD, it does only where the
        // bit 1 of the register DE_CFG is set; Linux sets it.
        unsafe {
            if after_loads {
                _mm_lfence();
            }
            _rdtsc()
        }
    }
}

/// Elsewhere, `Instant::now()` is read.
#[cfg(not(any(
    wheelhouse_simulated,
    all(target_arch = "x86_64", target_os = "linux", not(miri))
)))]
mod system {
    pub(super) fn drives_the_clock() -> bool {
        false
    }

    pub(super) fn counter(_: bool) -> u64 {
        0
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
