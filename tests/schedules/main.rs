//! Whole caches under controlled schedules: [shuttle](https://docs.rs/shuttle) decides at random,
//! at every access to an atomic or a lock of the crate, which thread runs next. `ci/shuttle.sh`
//! builds and runs it; an ordinary build contains no tests from here.
//!
//! # What this covers and what not
//!
//! - Each access through `src/sync/` is a switching point: map, shard locks, node, buffers, drain
//!   waking, notifications, pins and grace periods.
//! - All orderings count as sequentially consistent. The loom models test whether weaker ones
//!   suffice.
//! - No background thread, because it is a thread of the system. An `Alarm` replaces it.
//!
//! `WHEELHOUSE_SCHEDULES` sets how many schedules of each of two kinds a scenario runs. A failure
//! prints its schedule; `WHEELHOUSE_REPLAY` repeats it: `WHEELHOUSE_REPLAY=91… ci/shuttle.sh
//! name_of_the_test`.
#![cfg(wheelhouse_shuttle)]

mod answers;
#[path = "../support/linear/mod.rs"]
mod linear;
mod loading;
mod memory;
mod reloads;
mod removals;
#[path = "../support/mod.rs"]
mod support;
mod waking;

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use support::Dice;

/// Priority changes that a schedule of the second kind makes: it soon finds bugs that need an order
/// of only this many events.
const DEPTH: usize = 3;

/// Runs a scenario under many schedules.
fn explore(scenario: fn()) {
    explore_with(scenario, true);
}

/// The same for a scenario in which a thread waits with a timeout: here the thread polls, and by
/// priorities alone it could do so for ever.
fn explore_fairly(scenario: fn()) {
    explore_with(scenario, false);
}

fn explore_with(scenario: fn(), by_priority: bool) {
    if let Ok(schedule) = std::env::var("WHEELHOUSE_REPLAY") {
        shuttle::replay(scenario, &schedule);
        return;
    }
    let count = std::env::var("WHEELHOUSE_SCHEDULES").map_or(5_000, |n| n.parse().unwrap());
    let began = std::time::Instant::now();
    run(RandomScheduler::new(count), scenario);
    if by_priority {
        run(PctScheduler::new(DEPTH, count), scenario);
    }
    println!(
        "{} schedules in {:.1} s",
        count * (1 + usize::from(by_priority)),
        began.elapsed().as_secs_f64()
    );
}

fn run(scheduler: impl Scheduler + 'static, scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    // The module docs say that all orderings count as the strongest.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(scenario);
}

/// Random choices of a scenario: drawn from the schedule, so that a replay repeats them.
fn dice() -> Dice {
    Dice::new(shuttle::rand::thread_rng().gen_range(0..u64::MAX))
}
