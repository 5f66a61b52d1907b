//! The program's monotonic clock, read by the processor's counter.
//!
//! A call of `Instant::now()` waits for all instructions before it, and takes about as long as the
//! rest of a look-up. The counter alone costs a third of that. Where the kernel derives the
//! monotonic clock from this counter, a reading is an *anchor*, which is a call of
//! `Instant::now()` at most [`FRESH`] old, plus the time by the counter since. Elsewhere, and for
//! the first millisecond after the process has built its first cache, each reading calls
//! `Instant::now()`.
//!
//! The counter's rate is measured once and then *halved*. So its error, and changes of the kernel's
//! rate (by a tenth at most), cannot make a reading too great.
//!
//! # Why it is right
//!
//! An anchor `(n, c)` is an instant `n`, and a counter `c` that was read after it. A reading by it
//! at the counter `k` is `n + (k - c) * rate`, kept as `offset + k * rate`.
//!
//! 1. *A reading does not pass `Instant::now()`.* If `k >= c`, the clock was at `n` or later when
//!    the counter was at `c`, and has since run faster than `rate`. If `k < c`, another thread took
//!    the anchor meanwhile, and the reading is below its `n`.
//! 2. *It lags by less than [`FRESH`]*, and by half of that as a rule: an older anchor is not used.
//! 3. *It never goes back*, in a thread or from one thread to another that it has told something:
//!    `offset` never falls, what a thread has learnt is loaded before its counter is read, and a
//!    thread that takes an anchor publishes it before it answers. A reading that does not wait for
//!    the loads before it ([`now`](Anchor::now) without `after_loads`) keeps this for its own
//!    thread only: it may be before a reading of another thread, by as much as the processor
//!    executes ahead.
//!
//! If the counter steps (a machine that was suspended, or moved to another host), no anchor is
//! fresh any more. If it stepped forward, readings by the old `offset` would pass `Instant::now()`.
//! The next anchor shows that, and the process uses `Instant::now()` from then on.

// Of the standard library also under loom: models run on tickers.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an anchor is used: 33 µs.
pub(super) const FRESH: u64 = 1 << 15;
/// The rate is measured over at least this time: 1 ms.
const MEASURED: u64 = 1_000_000;
/// More than the counter moves while an anchor is fresh.
const FAR: u64 = 1 << 20;

/// Of `rate`: not measured yet.
const UNKNOWN: u64 = 0;
/// Of `rate`: the counter is not used.
const GIVEN_UP: u64 = u64::MAX;

/// The latest anchor.
#[repr(align(64))]
pub(super) struct Anchor {
    /// The counter up to which the anchor is fresh; 0 if there is none. It only grows.
    ///
    /// Release, partner: the acquire in [`read`](Self::read), which then loads an `offset` that is
    /// as new.
    until: AtomicU64,
    /// In nanoseconds. It only grows.
    offset: AtomicI64,
    /// Nanoseconds for 2^32 units of the counter, halved. It changes once, or twice if the counter
    /// is given up.
    rate: AtomicU64,
    /// The instant 0, and the counter just after it, if there is one to use.
    start: OnceLock<(Instant, Option<u64>)>,
}

/// The anchor of this process.
pub(super) static PROCESS: Anchor = Anchor::new();

impl Anchor {
    pub(super) const fn new() -> Self {
        Self {
            until: AtomicU64::new(0),
            offset: AtomicI64::new(i64::MIN),
            rate: AtomicU64::new(UNKNOWN),
            start: OnceLock::new(),
        }
    }

    /// The instant 0. The first call takes some microseconds.
    pub(super) fn start(&self) -> Instant {
        self.start.get_or_init(first).0
    }

    /// Now, in nanoseconds. If not `after_loads`, the moment may lie before the latest loads of
    /// this thread, by as much as the processor executes ahead; that costs half as much.
    #[inline]
    pub(super) fn now(&self, after_loads: bool) -> u64 {
        self.read(|| system::counter(after_loads))
            .unwrap_or_else(|| self.renew())
    }

    /// A reading by the anchor, if it is fresh.
    #[inline]
    fn read(&self, counter: impl FnOnce() -> u64) -> Option<u64> {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return None;
        }
        let counter = counter();
        let rate = self.rate.load(Ordering::Relaxed);
        (until.wrapping_sub(counter) <= FAR)
            .then(|| (self.offset.load(Ordering::Relaxed) + scaled(counter, rate)) as u64)
    }

    /// A reading of `Instant::now()`, which becomes the anchor.
    #[cold]
    #[inline(never)]
    fn renew(&self) -> u64 {
        let (start, first) = *self.start.get_or_init(first);
        let elapsed = || super::saturating_nanos(start.elapsed());
        let nanos = elapsed();
        if let Some(first) = first
            && self.rate.load(Ordering::Relaxed) != GIVEN_UP
        {
            self.take(nanos, system::counter(true), first, elapsed);
        }
        nanos
    }

    /// Takes the anchor of `nanos` and the counter, which was read after it. `first` was the
    /// counter at 0. `elapsed` is the clock.
    fn take(&self, nanos: u64, counter: u64, first: u64, elapsed: impl FnOnce() -> u64) {
        let mut rate = self.rate.load(Ordering::Relaxed);
        if rate == UNKNOWN {
            if nanos < MEASURED {
                return;
            }
            let units = u128::from(counter.wrapping_sub(first).max(1));
            let measured = ((u128::from(nanos) << 32) / units / 2).clamp(1, 1 << 40) as u64;
            rate = (self.rate)
                .compare_exchange(UNKNOWN, measured, Ordering::Relaxed, Ordering::Relaxed)
                .err()
                .unwrap_or(measured);
        }
        let offset = nanos as i64 - scaled(counter, rate);
        let former = self.offset.fetch_max(offset, Ordering::Relaxed);
        // Another thread has taken a newer anchor, or the counter stepped forward.
        if former > offset && former + scaled(counter, rate) > elapsed() as i64 {
            self.rate.store(GIVEN_UP, Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
            return;
        }
        // At half of the rate, so twice as many units.
        let units = ((FRESH / 2) << 32) / rate;
        let until = counter.saturating_add(units.min(FAR));
        self.until.fetch_max(until, Ordering::Release);
    }
}

/// The time that the counter shows, in nanoseconds.
#[inline]
fn scaled(counter: u64, rate: u64) -> i64 {
    ((u128::from(counter) * u128::from(rate)) >> 32) as i64
}

/// An instant, and the counter just after it, if it can be used.
fn first() -> (Instant, Option<u64>) {
    let is_usable = system::drives_the_clock();
    let pair = || (Instant::now(), is_usable.then(|| system::counter(true)));
    let mut pairs = (0..8).map(|_| pair());
    // A tenth of `MEASURED`.
    let narrow = pairs.find(|(start, _)| start.elapsed() <= Duration::from_micros(100));
    narrow.unwrap_or_else(|| (Instant::now(), None))
}

/// The time-stamp counter.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
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
        // one where `Instant::now()` does: the callers ask `drives_the_clock` first.
        unsafe {
            if after_loads {
                _mm_lfence();
            }
            _rdtsc()
        }
    }
}

/// Elsewhere, `Instant::now()` is read.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod system {
    pub(super) fn drives_the_clock() -> bool {
        false
    }

    pub(super) fn counter(_: bool) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::scripted::random;

    /// A counter and a clock of a test. The clock's rate changes by a tenth of the nominal one.
    struct Machine {
        counter: u64,
        nanos: f64,
        /// Nanoseconds per unit.
        rate: f64,
        random: u64,
    }

    impl Machine {
        fn pass(&mut self, most: u64) {
            let units = random(&mut self.random) % most;
            self.counter += units;
            self.nanos += units as f64 * self.rate;
            if random(&mut self.random).is_multiple_of(64) {
                let change = (random(&mut self.random) % 200) as f64 / 1_000.0 - 0.1;
                self.rate = (1.0 + change) / 2.6;
            }
        }

        fn nanos(&self) -> u64 {
            self.nanos as u64
        }
    }

    #[test]
    fn readings_never_pass_the_clock_never_go_back_and_lag_by_less_than_promised() {
        for seed in 0..50 {
            let anchor = Anchor::new();
            let first = 1 << 40;
            let mut machine = Machine {
                counter: first,
                nanos: 0.0,
                rate: 1.0 / 2.6,
                random: seed,
            };
            // Anchors that a slow thread has begun and not yet taken.
            let mut begun = None;
            let (mut last, mut by_anchor) = (0, 0);
            machine.pass(260_000);
            for _ in 0..20_000 {
                machine.pass(40_000);
                let shown = match anchor.read(|| machine.counter) {
                    Some(shown) => {
                        by_anchor += 1;
                        shown
                    }
                    None => {
                        let nanos = machine.nanos();
                        machine.pass(2_000);
                        let at = (nanos, machine.counter);
                        machine.pass(2_000);
                        let (nanos, counter) = match begun.take() {
                            None if random(&mut machine.random).is_multiple_of(4) => {
                                begun = Some(at);
                                continue;
                            }
                            Some(slow) => {
                                anchor.take(at.0, at.1, first, || machine.nanos());
                                slow
                            }
                            None => at,
                        };
                        anchor.take(nanos, counter, first, || machine.nanos());
                        at.0
                    }
                };
                let now = machine.nanos();
                assert!(shown <= now, "seed {seed}: {shown} passes {now}");
                assert!(
                    now - shown <= FRESH + 4_000,
                    "seed {seed}: {shown} at {now}"
                );
                assert!(shown >= last, "seed {seed}: {shown} after {last}");
                last = shown;
            }
            assert!(by_anchor > 5_000, "{by_anchor}");
        }
    }

    #[test]
    fn a_counter_that_steps_is_not_used_with_an_old_anchor() {
        let anchor = Anchor::new();
        anchor.take(2_000_000, 5_200_000, 0, || 2_000_100);
        assert_eq!(anchor.read(|| 5_200_000), Some(2_000_000));
        // Back, then far forward.
        assert_eq!(anchor.read(|| 100), None);
        assert_eq!(anchor.read(|| 9_200_000), None);
        // Back: the anchors from here on are never fresh.
        anchor.take(2_100_000, 100, 0, || 2_100_100);
        assert_eq!(anchor.read(|| 200), None);

        let anchor = Anchor::new();
        anchor.take(2_000_000, 5_200_000, 0, || 2_000_100);
        anchor.take(2_100_000, 9_000_000_000, 0, || 2_100_100);
        assert_eq!(anchor.read(|| 9_000_000_000), None);
        assert_eq!(anchor.rate.load(Ordering::Relaxed), GIVEN_UP);
    }

    #[test]
    fn the_counter_of_the_system_is_used_where_it_drives_the_clock() {
        let anchor = Anchor::new();
        let start = anchor.start();
        let (mut last, mut most) = (0, 0);
        while start.elapsed() < Duration::from_millis(50) {
            let shown = anchor.now(true).max(anchor.now(false));
            let now = crate::time::saturating_nanos(start.elapsed());
            assert!(last <= shown && shown <= now, "{last} {shown} {now}");
            (last, most) = (shown, most.max(now - shown));
        }
        let used = anchor.until.load(Ordering::Relaxed) != 0;
        assert_eq!(used, system::drives_the_clock(), "lag {most} ns");
    }
}
