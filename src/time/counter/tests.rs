use super::*;
use crate::time::tests::random;
use std::cell::Cell;
use std::time::Duration;

/// What a reading may lag: less than the 50 µs that the documentation promises.
const LAG: u64 = FRESH * 7 / 5;

/// A counter and a clock of a test. The clock's rate changes by a tenth of the nominal one.
struct Machine {
    anchor: Anchor,
    counter: Cell<u64>,
    nanos: Cell<f64>,
    /// Nanoseconds per unit.
    rate: Cell<f64>,
    random: Cell<u64>,
    /// The greatest reading, and the number of those by the anchor.
    last: Cell<u64>,
    by_anchor: Cell<u64>,
    /// How many threads are suspended.
    suspended: Cell<u64>,
}

impl Machine {
    fn below(&self, most: u64) -> u64 {
        let mut state = self.random.get();
        let value = random(&mut state) % most;
        self.random.set(state);
        value
    }

    fn pass(&self, most: u64) {
        let units = self.below(most);
        self.counter.set(self.counter.get() + units);
        (self.nanos).set(self.nanos.get() + units as f64 * self.rate.get());
        if self.below(64) == 0 {
            let change = self.below(200) as f64 / 1_000.0 - 0.1;
            self.rate.set((1.0 + change) / 2.6);
        }
    }

    fn nanos(&self) -> u64 {
        self.nanos.get() as u64
    }

    /// Passes a moment, in which other threads may take readings.
    fn suspend(&self) {
        self.pass(500);
        if self.suspended.get() < 3 && self.below(16) == 0 {
            self.suspended.set(self.suspended.get() + 1);
            for _ in 0..self.below(8) {
                self.pass(80_000);
                self.check_reading();
            }
            self.suspended.set(self.suspended.get() - 1);
        }
    }

    fn check_reading(&self) {
        let (began, last) = (self.nanos(), self.last.get());
        let counter = || {
            self.suspend();
            let counter = self.counter.get();
            self.suspend();
            counter
        };
        let clock = || {
            self.suspend();
            self.nanos()
        };
        let by_anchor = self.anchor.read(counter);
        (self.by_anchor).set(self.by_anchor.get() + u64::from(by_anchor.is_some()));
        let shown = by_anchor.unwrap_or_else(|| self.anchor.renew_by(counter, clock));
        let now = self.nanos();
        assert!(shown <= now, "{shown} passes {now}");
        assert!(began <= shown + LAG, "{shown} at {began}");
        assert!(shown >= last, "{shown} after {last}");
        self.last.set(self.last.get().max(shown));
    }
}

#[test]
fn readings_never_pass_the_clock_never_go_back_and_lag_by_less_than_promised() {
    for seed in 0..50 {
        let machine = Machine {
            anchor: Anchor::new(),
            counter: Cell::new(1 << 40),
            nanos: Cell::new(0.0),
            rate: Cell::new(1.0 / 2.6),
            random: Cell::new(seed),
            last: Cell::new(0),
            by_anchor: Cell::new(0),
            suspended: Cell::new(0),
        };
        let counter = || {
            machine.pass(300);
            machine.counter.get()
        };
        let rate = rate(counter, || machine.nanos()).unwrap();
        machine.anchor.rate.store(rate, Ordering::Relaxed);
        for _ in 0..20_000 {
            machine.pass(40_000);
            machine.check_reading();
        }
        let by_anchor = machine.by_anchor.get();
        assert!(by_anchor > 5_000, "seed {seed}: {by_anchor}");
        let until = machine.anchor.until.load(Ordering::Relaxed);
        assert_ne!(until, GIVEN_UP, "seed {seed}");
    }
}

/// An anchor with half of the rate 1/2, taken at the clock 2,000,000 and the counter 4,000,000.
fn taken() -> Anchor {
    let anchor = Anchor::new();
    anchor.rate.store(1 << 30, Ordering::Relaxed);
    take(&anchor, [4_000_000, 4_000_000], 2_000_000);
    assert_eq!(anchor.read(|| 4_000_400), Some(2_000_100));
    anchor
}

/// Takes an anchor between two counters.
fn take(anchor: &Anchor, counters: [u64; 2], nanos: u64) {
    let calls = Cell::new(0);
    anchor.take(|| counters[calls.replace(calls.get() + 1)], || nanos);
}

fn is_given_up(anchor: &Anchor) -> bool {
    anchor.until.load(Ordering::Relaxed) == GIVEN_UP
}

#[test]
fn a_thread_suspended_beside_the_clock_publishes_no_fresh_anchor() {
    let anchor = taken();
    // 10 ms between the clock and the counter.
    take(&anchor, [40_000_000, 60_000_000], 20_000_000);
    assert_eq!(anchor.read(|| 60_000_100), None);
    assert!(!is_given_up(&anchor));
}

#[test]
fn a_counter_that_steps_is_not_used_with_an_old_anchor() {
    let anchor = taken();
    assert_eq!(anchor.read(|| 100), None);
    assert_eq!(anchor.read(|| 9_200_000), None);

    // Forward, then back.
    for counter in [9_000_000_000, 100] {
        let anchor = taken();
        // In the middle of a thread that has not seen the step.
        let clock = || {
            take(&anchor, [counter, counter], 2_100_000);
            assert!(is_given_up(&anchor), "{counter}");
            2_100_000
        };
        anchor.take(|| 4_200_000, clock);
        assert!(is_given_up(&anchor), "{counter}");
        assert_eq!(anchor.read(|| 4_200_000), None);
    }
}

#[test]
fn a_reading_beside_a_step_is_by_the_old_anchor() {
    for counter in [9_000_000_000, 100] {
        let anchor = taken();
        let shown = anchor.read(|| {
            take(&anchor, [counter, counter], 2_100_000);
            4_000_400
        });
        assert_eq!(shown, Some(2_000_100), "{counter}");
    }
}

#[test]
fn a_rate_is_measured_over_a_short_time_without_a_step() {
    // A call of the clock takes so many nanoseconds; the counter follows from the clock.
    let measured = |call: u64, units: &dyn Fn(u64) -> u64| {
        let now = Cell::new(0);
        let clock = || {
            now.set(now.get() + call);
            now.get()
        };
        rate(|| units(now.get()), clock)
    };
    let half = measured(2_000, &|now| now * 2).unwrap();
    assert!(half <= 1 << 30 && half > (1 << 30) * 7 / 8, "{half}");
    // Suspended in a reading.
    assert_eq!(measured(20_000, &|now| now * 2), None);
    // An hour by the counter alone; a counter that is reset; one that stands still.
    let step = |now, units| now * 2 + u64::from(now > 20_000) * units;
    assert_eq!(measured(2_000, &|now| step(now, 7_200_000_000_000)), None);
    let reset = |now| step(now, 0_u64.wrapping_sub(1 << 50));
    assert_eq!(
        measured(2_000, &|now| reset(now).wrapping_add(1 << 50)),
        None
    );
    assert_eq!(measured(2_000, &|_| 5), None);
    // The clock stands still.
    let counter = Cell::new(0);
    let passing = || counter.replace(counter.get() + 50);
    assert_eq!(rate(passing, || 7), None);
}

#[test]
fn the_counter_of_the_system_is_used_where_it_drives_the_clock() {
    let anchor = Anchor::new();
    let start = anchor.start();
    let clock = || crate::time::saturating_nanos(start.elapsed());
    let mut last = 0;
    while start.elapsed() < Duration::from_millis(50) {
        let before = clock();
        let shown = anchor.now(true).max(anchor.now(false));
        let now = clock();
        assert!(last <= shown && shown <= now, "{last} {shown} {now}");
        assert!(before <= shown + LAG, "{shown} at {before}");
        last = shown;
    }
    let used = anchor.until.load(Ordering::Relaxed) != 0;
    assert_eq!(used, system::drives_the_clock());
}
