//! Clocks: by a ticker, by the machine, and by an exact and a coarse clock that a test supplies.

use super::coarse::{Coarse, Machine, SLACK};
use super::{
    Clock, ManualTicker, ONE_MOMENT, PROCESS, Ticker, at_one_moment, counter, is_due,
    saturating_nanos,
};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The two clocks of a test.
#[derive(Clone, Copy)]
pub(crate) struct Clocks(&'static Machine);

thread_local! {
    static CURRENT: Cell<Option<Clocks>> = const { Cell::new(None) };
}

/// The clocks that caches which are built by this thread use.
pub(super) fn current() -> Option<Clocks> {
    CURRENT.get()
}

impl Clocks {
    /// Both show `at`. They stay for the whole process, as a machine does; a list keeps them, so
    /// that they are no leak.
    pub(crate) fn new(at: u64) -> Self {
        static ALL: Mutex<Vec<&Machine>> = Mutex::new(Vec::new());
        let machine: &'static Machine = Box::leak(Box::new(Machine::scripted(at)));
        ALL.lock().unwrap().push(machine);
        Self(machine)
    }

    /// Runs `build`, whose caches use these clocks.
    pub(crate) fn build<R>(self, build: impl FnOnce() -> R) -> R {
        CURRENT.set(Some(self));
        let built = build();
        CURRENT.set(None);
        built
    }

    /// Moves the exact clock; the coarse one then lags by `lag`.
    pub(crate) fn set(self, exact: u64, lag: i64) {
        let [its_exact, its_coarse] = self.0.script.as_ref().unwrap();
        its_exact.store(exact, Ordering::Relaxed);
        its_coarse.store(exact.wrapping_sub(lag as u64), Ordering::Relaxed);
    }

    /// Whether look-ups still ask the coarse clock.
    pub(crate) fn are_trusted(self) -> bool {
        self.0.is_trusted()
    }

    pub(super) fn clock(self) -> Clock {
        let (base, coarse) = Coarse::start(self.0);
        Clock {
            coarse,
            ticker: Some(Box::new(self)),
            origin: self.nanos(),
            base,
        }
    }
}

/// The exact clock.
impl Ticker for Clocks {
    fn nanos(&self) -> u64 {
        self.0.monotonic()
    }
}

const SECOND: u64 = 1_000_000_000;
const START: u64 = 77 * SECOND;

/// A number that looks random, by the generator `splitmix64`.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[test]
fn within_the_promise_the_pre_check_judges_as_the_exact_clock() {
    let mut state = 1;
    let (mut spared, rounds) = (0, 1_000_000);
    for start in [START, u64::MAX - SECOND] {
        let clocks = Clocks::new(start);
        let clock = clocks.clock();
        for _ in 0..rounds / 2 {
            let now = random(&mut state) % (1 << (random(&mut state) % 50));
            // Half of the promise: beyond it, the next exact reading gives the clock up.
            let lag = random(&mut state) % (SLACK / 2);
            let distance = (random(&mut state) >> (12 + random(&mut state) % 50)) as i64;
            let distance = if random(&mut state) % 2 == 0 {
                distance
            } else {
                -distance
            };
            let deadline = now.wrapping_add_signed(distance);
            clocks.set(start.wrapping_add(now), lag as i64);
            let judged_at = clock.now_to_judge(deadline);
            assert_eq!(
                is_due(judged_at, deadline),
                is_due(now, deadline),
                "{now} {deadline} {lag}"
            );
            assert!(judged_at.wrapping_sub(now) <= SLACK, "{now} {judged_at}");
            spared += u32::from(judged_at != now);
        }
        assert!(clocks.are_trusted());
    }
    assert!(spared > rounds / 10, "the pre-check decided {spared} times");
}

#[test]
fn a_value_whose_deadline_has_come_is_not_live_at_any_lag_below_the_slack() {
    let clocks = Clocks::new(START);
    let clock = clocks.clock();
    for lag in [0, 1, SLACK / 2, SLACK / 2 + 1, SLACK - 1] {
        for deadline in [SECOND, SECOND - 1, SECOND - SLACK / 2, SECOND - SLACK, 1] {
            clocks.set(START + SECOND, lag as i64);
            // Without an exact reading before: nothing has found the lag.
            let bound = clock.upper_bound().expect("trusted");
            assert!(is_due(bound, deadline), "lag {lag}, deadline {deadline}");
        }
    }
}

#[test]
fn a_clock_that_lags_too_much_is_given_up_for_good() {
    let clocks = Clocks::new(START);
    let clock = clocks.clock();
    clocks.set(START + SECOND, SLACK as i64 / 2);
    assert_eq!(clock.now(), SECOND);
    assert!(
        clocks.are_trusted(),
        "half of the slack is within the promise"
    );
    clocks.set(START + 2 * SECOND, SLACK as i64 / 2 + 1);
    assert_eq!(clock.now(), 2 * SECOND);
    assert!(!clocks.are_trusted());
    clocks.set(START + 3 * SECOND, 0);
    assert_eq!(clock.now_to_judge(9 * SECOND), 3 * SECOND);
    let other = clocks.clock();
    clocks.set(START + 4 * SECOND, 0);
    assert_eq!(other.now_to_judge(9 * SECOND), SECOND, "the whole process");
}

#[test]
fn a_clock_that_stands_still_is_found_by_the_exact_readings() {
    let clocks = Clocks::new(START);
    let clock = clocks.clock();
    let step = SLACK / 8;
    for round in 0..100 {
        let now = round * step;
        clocks.set(START + now, now as i64);
        let written = clock.now();
        assert_eq!(written, now);
        for deadline in [now.saturating_sub(SLACK), now - now % SLACK, now, now + 1] {
            let judged_at = clock.now_to_judge(deadline);
            assert_eq!(
                is_due(judged_at, deadline),
                is_due(now, deadline),
                "round {round}"
            );
        }
    }
    assert!(!clocks.are_trusted());
}

#[test]
fn a_clock_that_steps_forward_spares_nothing_and_one_that_steps_back_is_given_up() {
    let clocks = Clocks::new(START);
    let clock = clocks.clock();
    clocks.set(START + SECOND, -(9 * SECOND as i64));
    assert_eq!(clock.now_to_judge(5 * SECOND), SECOND);
    assert!(clocks.are_trusted());
    clocks.set(START + 2 * SECOND, 30 * SECOND as i64);
    clock.now();
    assert!(!clocks.are_trusted());
}

#[test]
fn readings_of_one_moment_are_taken_again_if_the_process_was_stopped_between_them() {
    // The process is stopped in each of the first tries: before or after the second clock is read.
    let stop = Duration::from_secs(5);
    for (before, after) in [(stop, Duration::ZERO), (Duration::ZERO, stop)] {
        let real = Cell::new(Duration::from_secs(1));
        let pass = |by: Duration| real.set(real.get() + by);
        let stops = Cell::new(3);
        let inner = || {
            let stopped = stops.get() > 0;
            stops.set(stops.get() - i32::from(stopped));
            pass(if stopped { before } else { Duration::ZERO });
            let read = real.get();
            pass(if stopped {
                after
            } else {
                Duration::from_micros(2)
            });
            read
        };
        let (before, read, after) = at_one_moment(|| real.get(), inner, |from, to| to - from);
        assert_eq!((before, stops.get()), (read, 0));
        assert!(after - before <= ONE_MOMENT);
    }
    // A machine that stops each time: the readings show it.
    let real = Cell::new(Duration::ZERO);
    let inner = || real.set(real.get() + stop);
    let (before, (), after) = at_one_moment(|| real.get(), inner, |from, to| to - from);
    assert_eq!(after - before, stop);
}

/// On the clocks of the machine that runs the test, whether or not the coarse one is cheap there:
/// under a sanitizer it is not.
#[test]
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
fn the_coarse_clock_of_the_system_keeps_the_promise() {
    static TRUSTED: Machine = Machine::trusted();
    let began = Instant::now();
    let (base, coarse) = Coarse::start(&TRUSTED);
    // If the thread was suspended during the start, the slack is longer by so much.
    let slack = SLACK + saturating_nanos(began.elapsed());
    let origin = saturating_nanos(base - PROCESS.start());
    let clock = Clock {
        coarse,
        ticker: None,
        origin,
        base,
    };
    let mut asked = 0;
    for _ in 0..200_000 {
        let before = PROCESS.now(true).wrapping_sub(origin);
        let bound = clock.upper_bound();
        // This reading compares the clocks. If the machine stood still, it gives the coarse one up.
        let after = clock.now();
        let Some(bound) = bound else {
            continue;
        };
        assert!(bound >= before, "{bound} is before {before}");
        assert!(bound <= after + slack, "{bound} is long after {after}");
        asked += 1;
    }
    assert!(asked > 0, "the coarse clock was given up");
}

#[test]
fn a_custom_clock_starts_at_zero_and_crosses_the_wrap() {
    let ticker = ManualTicker::starting_at(u64::MAX - 1);
    let clock = Clock::custom(Box::new(ticker.clone()));
    assert_eq!(clock.now(), 0);
    ticker.advance(Duration::from_secs(5));
    assert_eq!(clock.now(), 5 * SECOND);
}

#[test]
fn instants_differ_by_cache_time_on_both_sides_of_the_origin() {
    let clock = Clock::custom(Box::new(ManualTicker::new()));
    let later = clock.instant(3 * SECOND);
    assert_eq!(later - clock.instant(SECOND), Duration::from_secs(2));
    assert_eq!(
        later - clock.instant(SECOND.wrapping_neg()),
        Duration::from_secs(4)
    );
    // However far, it answers.
    clock.instant(i64::MAX as u64);
    clock.instant(1 << 63);
}

#[test]
fn the_default_clock_is_the_programs() {
    let clock = Clock::process();
    // A reading lags a little, so the first may lie before the base: modulo 2^64.
    let mut last = clock.now();
    for _ in 0..10_000 {
        let before = Instant::now();
        let now = clock.now();
        let after = Instant::now();
        let told = clock.instant(now);
        assert!(
            before <= told + Duration::from_nanos(counter::FRESH) && told <= after,
            "{told:?}"
        );
        assert!(now.wrapping_sub(last) as i64 >= 0, "{now} after {last}");
        last = now;
    }
}
