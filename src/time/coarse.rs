//! The coarse clock of the operating system: the program's monotonic clock as of the last timer
//! interrupt.
//!
//! A reading costs a few loads. It reads no counter of the processor, which would wait for the
//! loads before it. So a look-up asks it first. If the deadline lies after the reading plus
//! [`SLACK`], the entry is live for certain, as long as the clock lags by less than the slack.
//!
//! # Invariants
//!
//! 1. The coarse clock has the origin and the rate of `Instant`: [`Coarse::start`] relates the two
//!    by readings of one moment, and the relation holds for good. If it finds no such readings, the
//!    cache does not use the coarse clock.
//! 2. It lags by less than [`SLACK`]. Its step is at most a tenth of that. Now and then, a thread
//!    that takes an exact reading anyway compares the two ([`Coarse::check`]). If the lag exceeds
//!    half of the slack, the process uses exact readings from then on. A clock that stands still is
//!    found in the same way. Until such a lag is found, an idle limit may come early by the half
//!    of the slack; no look-up returns an entry that is due.
//! 3. It is used only if a reading is cheap. The first cache of the process measures that.

use super::{ONE_MOMENT, at_one_moment, instants_apart};
// Of the standard library also under loom: models run on tickers.
use crate::atomic64::AtomicU64;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How far a coarse reading is trusted to lag: 100 ms. The largest lag of a clock with steps of
/// 4 ms on busy cores was a tenth of this.
pub(super) const SLACK: u64 = 100_000_000;
/// The time between two comparisons of a clock's readings: 17 ms, so that a lag is met between half
/// of the slack and the whole.
const CHECK_INTERVAL: u64 = 1 << 24;

/// Not measured yet.
const UNKNOWN: u8 = 0;
const TRUSTED: u8 = 1;
/// Not cheap, or it lagged once.
const GIVEN_UP: u8 = 2;

/// The monotonic clock and the coarse clock of a machine.
pub(super) struct Machine {
    /// Relaxed: a look-up that misses the latest state is as one made before.
    state: AtomicU8,
    /// The two clocks of a test, in nanoseconds.
    #[cfg(test)]
    pub(super) script: Option<[AtomicU64; 2]>,
}

/// The machine of this process.
pub(super) static MACHINE: Machine = Machine::new(UNKNOWN);
/// For a cache that never asks the coarse clock: on a ticker, or where that is given up.
static NONE: Machine = Machine::new(GIVEN_UP);

/// The coarse clock in the time of a cache.
// A hit reads the first two fields.
#[repr(C)]
pub(super) struct Coarse {
    machine: &'static Machine,
    /// The coarse reading at cache time 0 or just before, less the slack.
    origin: u64,
    /// The cache time of the next comparison. Relaxed: one too many does no harm.
    check_at: AtomicU64,
}

impl Coarse {
    /// The coarse clock for a cache whose time begins with the instant that is returned.
    pub(super) fn start(machine: &'static Machine) -> (Instant, Self) {
        if machine.state.load(Ordering::Relaxed) == UNKNOWN {
            let state = if machine.is_cheap() {
                TRUSTED
            } else {
                GIVEN_UP
            };
            // The states ascend: another thread may have given it up meanwhile.
            machine.state.fetch_max(state, Ordering::Relaxed);
        }
        // The instant first: what passes until the second reading makes the slack shorter.
        let (start, shown, after) =
            at_one_moment(Instant::now, || machine.monotonic(), instants_apart);
        let is_used = instants_apart(start, after) <= ONE_MOMENT && machine.is_trusted();
        let coarse = Self {
            machine: if is_used { machine } else { &NONE },
            origin: shown.wrapping_sub(SLACK),
            check_at: AtomicU64::new(0),
        };
        (start, coarse)
    }

    /// For a clock that no look-up asks.
    pub(super) fn unused() -> Self {
        Self {
            machine: &NONE,
            origin: 0,
            check_at: AtomicU64::new(0),
        }
    }

    /// A moment that is not before now, and at most [`SLACK`] after it. None if the coarse clock is
    /// given up.
    #[inline]
    pub(super) fn upper_bound(&self) -> Option<u64> {
        if !self.is_trusted() {
            return None;
        }
        Some(self.machine.coarse().wrapping_sub(self.origin))
    }

    /// Whether look-ups have asked this clock, or do so.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        !ptr::eq(self.machine, &NONE)
    }

    /// Whether look-ups ask this clock.
    #[inline]
    pub(super) fn is_trusted(&self) -> bool {
        self.machine.is_trusted()
    }

    /// Compares the coarse clock with an exact reading that was taken just before, if it is time
    /// to.
    #[inline]
    pub(super) fn check(&self, now: u64) {
        if super::has_come(now, self.check_at.load(Ordering::Relaxed)) {
            self.compare(now);
        }
    }

    #[cold]
    fn compare(&self, now: u64) {
        let next = now.wrapping_add(CHECK_INTERVAL);
        self.check_at.store(next, Ordering::Relaxed);
        // Taken after the exact reading: a thread that is suspended in between finds the lag
        // smaller than it is, never larger.
        let Some(bound) = self.upper_bound() else {
            return;
        };
        let spare = bound.wrapping_sub(now) as i64;
        if spare < SLACK as i64 / 2 {
            self.machine.state.store(GIVEN_UP, Ordering::Relaxed);
        }
    }
}

impl Machine {
    const fn new(state: u8) -> Self {
        Self {
            state: AtomicU8::new(state),
            #[cfg(test)]
            script: None,
        }
    }

    /// Whether the coarse clock has short steps, and a reading costs less than a system call. Takes
    /// some microseconds.
    fn is_cheap(&self) -> bool {
        const CALLS: u32 = 16;
        const CHEAP: Duration = Duration::from_nanos(50);
        #[cfg(test)]
        if self.script.is_some() {
            return true;
        }
        match system::tick() {
            Some(tick) if tick <= SLACK / 10 => {}
            _ => return false,
        }
        (0..4).any(|_| {
            let began = Instant::now();
            (0..CALLS).for_each(|_| _ = black_box(system::coarse()));
            began.elapsed() <= CHEAP * CALLS
        })
    }

    /// Whether look-ups ask the coarse clock.
    #[inline]
    pub(super) fn is_trusted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == TRUSTED
    }

    /// A machine whose coarse clock is trusted from the start.
    #[cfg(test)]
    pub(super) const fn trusted() -> Self {
        Self::new(TRUSTED)
    }

    pub(super) fn monotonic(&self) -> u64 {
        #[cfg(test)]
        if let Some([exact, _]) = &self.script {
            return exact.load(Ordering::Relaxed);
        }
        system::monotonic()
    }

    /// The machine of a test. Its clocks show this moment.
    #[cfg(test)]
    pub(super) const fn scripted(at: u64) -> Self {
        Self {
            state: AtomicU8::new(UNKNOWN),
            script: Some([AtomicU64::new(at), AtomicU64::new(at)]),
        }
    }

    #[inline]
    fn coarse(&self) -> u64 {
        #[cfg(test)]
        if let Some([_, coarse]) = &self.script {
            return coarse.load(Ordering::Relaxed);
        }
        system::coarse()
    }
}

/// The clocks of the operating system, in nanoseconds of one origin.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

    /// The clock behind `Instant`.
    pub(super) fn monotonic() -> u64 {
        nanos(clock_gettime(ClockId::Monotonic))
    }

    /// The clock behind `Instant`, as of the last timer interrupt.
    #[inline]
    pub(super) fn coarse() -> u64 {
        nanos(clock_gettime(ClockId::MonotonicCoarse))
    }

    /// The length of a step, if the system has a coarse clock.
    pub(super) fn tick() -> Option<u64> {
        Some(nanos(clock_getres(ClockId::MonotonicCoarse)))
    }

    #[inline]
    fn nanos(time: Timespec) -> u64 {
        (time.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(time.tv_nsec as u64)
    }
}

/// Other systems have no such clock, or none that is known to agree with `Instant`.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    pub(super) fn monotonic() -> u64 {
        0
    }

    pub(super) fn coarse() -> u64 {
        0
    }

    pub(super) fn tick() -> Option<u64> {
        None
    }
}
