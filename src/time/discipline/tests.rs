//! The discipline in virtual time: a counter and a program's clock whose rates a test sets.

use super::*;
use crate::random::Dice;
use std::sync::Arc;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

const MICROSECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// What the contract allows between a policy instant and the program's time.
const AGREEMENT: u64 = 50 * MICROSECOND;

/// Two clocks that run in one true time, at rates in parts per billion beside it.
#[derive(Clone, Debug)]
struct Script {
    dice: Dice,
    truth: u64,
    counter: u64,
    counter_ppb: i64,
    counter_rest: i64,
    program: u64,
    program_ppb: i64,
    program_rest: i64,
}

impl Script {
    fn pass(&mut self, nanos: u64) {
        fn advance(clock: &mut u64, rest: &mut i64, nanos: u64, ppb: i64) {
            let gained = i128::from(nanos) * i128::from(ppb) + i128::from(*rest);
            *rest = gained.rem_euclid(1_000_000_000) as i64;
            let gained = gained.div_euclid(1_000_000_000) as i64;
            *clock = clock.wrapping_add(nanos).wrapping_add_signed(gained);
        }
        self.truth += nanos;
        advance(
            &mut self.counter,
            &mut self.counter_rest,
            nanos,
            self.counter_ppb,
        );
        advance(
            &mut self.program,
            &mut self.program_rest,
            nanos,
            self.program_ppb,
        );
    }

    /// Between 0 and `below`.
    fn roll(&mut self, below: u64) -> u64 {
        self.dice.below(below)
    }
}

/// The script as the discipline reads it: each reading takes its time, now and then a long one.
#[derive(Clone, Debug)]
struct Clocks(Arc<StdMutex<Script>>);

impl Readings for Clocks {
    fn counter(&self) -> u64 {
        let mut script = self.0.lock().unwrap();
        let takes = 10 + script.roll(30);
        script.pass(takes);
        script.counter
    }

    fn program(&self) -> u64 {
        let mut script = self.0.lock().unwrap();
        let takes = 10 + script.roll(30);
        script.pass(takes);
        let program = script.program;
        // The thread is suspended.
        let takes = match script.roll(40) {
            0 => script.roll(2_000_000),
            _ => script.roll(30),
        };
        script.pass(takes);
        program
    }
}

struct Rig {
    clocks: Clocks,
    discipline: Discipline,
    /// The last policy instant.
    last: u64,
}

/// The view of a reading, as a clock asks for it.
fn convert(discipline: &Discipline, now: u64) -> View {
    let view = discipline.view_at_once(now, 0);
    view.unwrap_or_else(|| discipline.view_after_correction(now, 0))
}

impl Rig {
    fn new(counter_ppb: i64) -> Self {
        Self::starting_at(5, counter_ppb)
    }

    fn starting_at(counter: u64, counter_ppb: i64) -> Self {
        let clocks = Clocks(Arc::new(StdMutex::new(Script {
            dice: Dice::new(1),
            truth: 0,
            counter,
            counter_ppb,
            counter_rest: 0,
            program: 77,
            program_ppb: 0,
            program_rest: 0,
        })));
        let discipline = Discipline::new(Instant::now(), Box::new(clocks.clone()));
        Self {
            clocks,
            discipline,
            last: 0,
        }
    }

    fn script<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.clocks.0.lock().unwrap())
    }

    fn pass(&self, nanos: u64) {
        self.script(|script| script.pass(nanos));
    }

    /// A conversion as an operation makes it: a reading and its view. No policy instant goes back.
    #[track_caller]
    fn view(&mut self) -> (View, u64) {
        let now = self.clocks.counter();
        let view = convert(&self.discipline, now);
        let policy_nanos = view.policy_nanos as u64;
        assert!(
            policy_nanos >= self.last,
            "{policy_nanos} after {}",
            self.last
        );
        self.last = policy_nanos;
        (view, now)
    }

    /// By how much a policy instant is ahead of the program's time, when it is told.
    #[track_caller]
    fn disagreement(&mut self) -> i64 {
        let policy_nanos = self.view().0.policy_nanos;
        policy_nanos - self.script(|script| script.program) as i64
    }

    #[track_caller]
    fn agrees(&mut self) {
        // The correction itself may be delayed by a suspended thread, as any call may.
        let before = self.script(|script| script.program);
        let policy_nanos = self.view().0.policy_nanos as u64;
        let after = self.script(|script| script.program);
        assert!(
            policy_nanos + AGREEMENT >= before && policy_nanos <= after + AGREEMENT,
            "policy instant {policy_nanos} between {before} and {after}"
        );
    }

    /// Lets time pass in steps of any length up to `longest`, and checks at each.
    #[track_caller]
    fn live(&mut self, nanos: u64, longest: u64) {
        let until = self.script(|script| script.truth) + nanos;
        while self.script(|script| script.truth) < until {
            let step = self.script(|script| {
                let scale = script.roll(20);
                (1 + script.roll(longest)) >> scale
            });
            self.pass(step);
            self.agrees();
        }
    }

    /// Gives a deadline in `lifetime`; returns by how much of the program's time it is met late.
    fn lateness(&mut self, lifetime: u64) -> i64 {
        let (view, now) = self.view();
        let deadline = view.deadline_after(now, Duration::from_nanos(lifetime));
        let mut ahead = self.script(|script| Script {
            counter: script.counter,
            ..script.clone()
        });
        let policy_nanos = view.policy_nanos;
        // Close to it in one step, then by halves.
        while (deadline.wrapping_sub(ahead.counter) as i64) > 0 {
            ahead.pass((deadline.wrapping_sub(ahead.counter) / 2).max(1));
        }
        ahead.program as i64 - policy_nanos - lifetime as i64
    }

    #[track_caller]
    fn meets_deadlines(&mut self) {
        for lifetime in [1, 1_000_000, SECOND, 3_600 * SECOND, DAY, 30 * DAY] {
            let late = self.lateness(lifetime).unsigned_abs();
            let allowed = AGREEMENT + lifetime / 1_000_000;
            assert!(late <= allowed, "{lifetime} met {late} ns off");
        }
    }
}

const RATES: [i64; 7] = [0, 20_000, -20_000, 123_456, -123_456, 500_000, -500_000];

#[test]
fn policy_instants_agree_with_the_program_time_from_the_start() {
    for ppb in RATES {
        let mut rig = Rig::new(ppb);
        rig.live(2 * SECOND, SECOND / 100);
        rig.live(300 * SECOND, SECOND);
    }
}

#[test]
fn policy_instants_agree_through_thirty_days() {
    for ppb in RATES {
        let mut rig = Rig::new(ppb);
        rig.live(DAY, 600 * SECOND);
        rig.live(29 * DAY, 20_000 * SECOND);
        rig.meets_deadlines();
    }
}

#[test]
fn deadlines_are_met_from_the_tenth_second_on() {
    for ppb in RATES {
        let mut busy = Rig::new(ppb);
        busy.live(10 * SECOND, SECOND / 10);
        busy.meets_deadlines();
        busy.live(1_000 * SECOND, 10 * SECOND);
        busy.meets_deadlines();
        // No cache has converted anything yet.
        let mut idle = Rig::new(ppb);
        idle.pass(10 * SECOND);
        idle.meets_deadlines();
    }
}

#[test]
fn a_slewed_clock_is_followed() {
    for ppb in RATES {
        let mut rig = Rig::new(ppb);
        rig.live(20 * SECOND, SECOND);
        for slew in [500_000, -400_000, 0, 80_000, -500_000, 0] {
            rig.script(|script| script.program_ppb = slew);
            rig.live(5 * SECOND, SECOND / 10);
            rig.live(60 * SECOND, 10 * SECOND);
        }
        // And after it the rate is soon what it was.
        rig.live(300 * SECOND, SECOND);
        rig.meets_deadlines();
    }
}

#[test]
fn a_hard_slew_leaves_the_rate_alone() {
    let mut rig = Rig::new(15_000);
    rig.live(60 * SECOND, SECOND);
    // As hard as chrony slews by default, to make good a quarter of a second.
    rig.script(|script| script.program_ppb = 83_333_000);
    let until = rig.script(|script| script.truth) + 3 * SECOND;
    while rig.script(|script| script.truth) < until {
        rig.pass(SECOND / 100);
        rig.disagreement();
    }
    // It is followed after a step or two.
    assert!(rig.disagreement().unsigned_abs() <= AGREEMENT);
    rig.script(|script| script.program_ppb = 0);
    rig.pass(SECOND / 100);
    rig.disagreement();
    rig.pass(SECOND / 10);
    rig.disagreement();
    rig.meets_deadlines();
}

/// A machine that was suspended, where the counter stands still meanwhile.
#[test]
fn a_jump_of_the_program_time_is_followed_at_once() {
    for jump in [SECOND / 2, 10 * SECOND, DAY] {
        let mut rig = Rig::new(-20_000);
        rig.live(60 * SECOND, SECOND);
        rig.script(|script| script.program += jump);
        rig.pass(2 * PERIOD);
        rig.agrees();
        rig.live(10 * SECOND, SECOND);
        rig.meets_deadlines();
    }
}

/// A machine that was suspended, where the counter continues and the program's time does not.
#[test]
fn a_jump_of_the_counter_does_not_move_the_policy_instant() {
    for jump in [2 * SECOND, 10 * SECOND, DAY] {
        let mut rig = Rig::new(20_000);
        rig.live(60 * SECOND, SECOND);
        rig.script(|script| script.counter += jump);
        // Ahead by the greatest age at most, and by nothing once that time has passed.
        let ahead = rig.disagreement();
        assert!(ahead <= GREATEST_AGE as i64 + AGREEMENT as i64, "{ahead}");
        rig.pass(GREATEST_AGE);
        rig.agrees();
        rig.live(10 * SECOND, SECOND);
        rig.meets_deadlines();
    }
}

#[test]
fn a_small_jump_of_the_counter_makes_told_instants_wait() {
    let mut rig = Rig::new(20_000);
    rig.live(60 * SECOND, SECOND);
    rig.pass(PERIOD);
    rig.view();
    rig.script(|script| script.counter += SECOND / 100);
    // Within the period of a segment it cannot be known.
    assert!(rig.disagreement() > 9_000_000);
    rig.pass(PERIOD);
    let stands = rig.view().0.policy_nanos;
    rig.pass(SECOND / 10);
    rig.agrees();
    assert!(rig.view().0.policy_nanos > stands);
    rig.live(SECOND, SECOND / 100);
    rig.meets_deadlines();
}

#[test]
fn a_counter_that_goes_back_causes_no_panic() {
    for back in [MICROSECOND, SECOND / 2, 20 * SECOND, DAY] {
        let mut rig = Rig::starting_at(30 * DAY, 0);
        rig.live(60 * SECOND, SECOND);
        rig.script(|script| script.counter -= back);
        rig.view();
        rig.pass(3 * SECOND);
        rig.agrees();
        rig.live(10 * SECOND, SECOND);
        rig.meets_deadlines();
    }
}

#[test]
fn a_counter_may_wrap() {
    let mut rig = Rig::starting_at(u64::MAX - 40 * SECOND, 20_000);
    rig.live(100 * SECOND, SECOND);
}

#[test]
fn readers_do_not_wait_for_a_suspended_corrector() {
    let mut rig = Rig::new(0);
    rig.live(20 * SECOND, SECOND);
    let discipline = &rig.discipline;
    let clocks = rig.clocks.clone();
    let held = discipline.evidence.lock();
    clocks.0.lock().unwrap().pass(100 * SECOND);
    // From the old segment, which is good enough.
    let policy_nanos = convert(discipline, clocks.counter()).policy_nanos as u64;
    let program = clocks.0.lock().unwrap().program;
    assert!(
        policy_nanos.abs_diff(program) < SECOND / 1_000,
        "{policy_nanos} {program}"
    );
    drop(held);
    rig.last = policy_nanos;
    rig.live(20 * SECOND, SECOND);
}

#[test]
fn a_segment_is_corrected_once_a_period() {
    let mut rig = Rig::new(20_000);
    rig.pass(PERIOD + MARGIN);
    rig.view();
    let first = rig.discipline.published.load();
    rig.pass(PERIOD / 2);
    rig.view();
    assert_eq!(rig.discipline.published.load(), first);
    rig.pass(PERIOD / 2 + MARGIN);
    rig.view();
    assert_ne!(rig.discipline.published.load(), first);
}

#[test]
fn steps_are_small_while_the_clocks_run_evenly() {
    let mut rig = Rig::new(20_000);
    rig.live(SECOND, SECOND / 10);
    for _ in 0..1_000 {
        rig.pass(PERIOD);
        let now = rig.clocks.counter();
        let former = rig.discipline.published.load().0;
        convert(&rig.discipline, now);
        let present = rig.discipline.published.load().0;
        let step = present
            .policy_instant(present.from)
            .abs_diff(former.policy_instant(present.from));
        assert!(step <= MICROSECOND, "a step of {step} ns");
        assert!(present.start - present.from <= MICROSECOND);
    }
}

#[test]
fn the_greatest_lifetimes_overflow_nothing() {
    for ppb in RATES {
        let mut rig = Rig::new(ppb);
        rig.live(20 * SECOND, SECOND);
        let (view, now) = rig.view();
        for lifetime in [Duration::MAX, Duration::from_nanos(1 << 62)] {
            let deadline = view.deadline_after(now, lifetime);
            assert!(deadline.wrapping_sub(now) <= 1 << 62);
            let left = view.time_left(now, deadline).unwrap();
            assert!(left <= Duration::from_nanos(1 << 62));
            assert!(left >= Duration::from_nanos((1 << 62) - (1 << 52)));
        }
        let longest = i64::MAX as u64;
        assert!(view.span(longest) >= Duration::from_nanos(longest - (longest >> 10)));
    }
}

#[test]
fn the_time_left_is_at_most_the_lifetime_and_never_zero() {
    for ppb in RATES {
        let mut rig = Rig::new(ppb);
        rig.live(20 * SECOND, SECOND);
        let (view, now) = rig.view();
        for lifetime in (0..=40)
            .map(|power| 3_u64.pow(power))
            .filter(|&l| l < 1 << 62)
        {
            let lifetime = Duration::from_nanos(lifetime);
            let deadline = view.deadline_after(now, lifetime);
            let left = view.time_left(now, deadline).unwrap();
            assert!(left <= lifetime, "{left:?} of {lifetime:?}");
            let lost = lifetime - left;
            assert!(
                lost <= Duration::from_nanos(2) + lifetime / (1 << 30),
                "{lost:?} of {lifetime:?}"
            );
        }
        // Rounded up, to whole nanoseconds of the program's time.
        let least = view.time_left(now, now + 1).unwrap().as_nanos();
        assert!((1..=2).contains(&least));
    }
}

#[test]
fn rates_are_measured_inverted_and_cut_over_any_span() {
    for span in [1_u64, 9, 15, 1 << 15, SECOND, DAY, u64::MAX >> 2] {
        let measured = |program| Rate::measured(program, span);
        assert_eq!(measured(span), Rate::ONE);
        for extreme in [0, span / 2, span.saturating_add(span / 8 + 1), u64::MAX] {
            assert!(measured(extreme).is_extreme(), "{extreme} in {span}");
        }
        let (near, less) = (span + span / 1_000, span - span / 1_000);
        for program in [near, less] {
            let rate = measured(program);
            assert!(!rate.is_extreme());
            let there = rate.of(span);
            assert!(there.abs_diff(program) <= 1, "{there} for {program}");
            let back = rate.inverse().of(there);
            assert!(
                (span.saturating_sub(2)..=span).contains(&back),
                "{back} for {span}"
            );
        }
    }
}
