//! Delayed tasks: an order that is not paid in time is closed, and paying it cancels the task.
//!
//! The cache is the timer: the key is the order's number, the expiry its delay, `remove` the
//! cancellation, and the listener closes what expired.
//!
//! # In virtual time
//!
//! A million orders, each with its own time to pay, are placed over half of 48 hours of virtual
//! time. Some customers pay in time, some too late, some in the last nanosecond before the deadline
//! or exactly at the deadline, many never.
//!
//! Run: `cargo run --release -p wheelhouse-examples --example orders`, shorter: `-- --orders
//! 50000`.
//!
//! Expect: some seconds of work, then a table. Every order must end exactly once, closed or paid; a
//! payment must be taken if it comes before the deadline and refused if not; no order may be closed
//! early, nor later than the resolution of the wheel and the step of the clock together allow. The
//! exit status is 1 if anything was wrong.
//!
//! # With a state that survives: `--state FILE`
//!
//! In real time, and on disk: kill the program at any moment, start it again with the same command,
//! and it continues. A cache alone forgets everything; these files remember:
//!
//! * `FILE`: a snapshot of the cache, saved each second and on SIGINT or SIGTERM. It is written to
//!   a temporary file, synced, and renamed over the old one.
//! * `FILE.journal.N`: what has happened since snapshot `N`: orders placed, payments taken. A line
//!   is synced before its order counts as placed, or as paid.
//! * `FILE.book`: how each order ended, one synced line for each, never cut. At the start it is the
//!   truth about which orders have ended.
//!
//! A start reads the book, then the snapshot without the orders that have ended, then the journals
//! since. `Cache::restore` puts the orders back with what is left of their time; the listener is
//! called with `Expired` for those that fell due while the program was down, and so closes them at
//! once. `store.rs` says why no moment of a crash loses an order or ends it twice.
//!
//! Run: `… --example orders -- --state /tmp/orders.state`, kill it with `kill -9`, run it again.
//! One program at a time may use a state.
//!
//! Expect: a line each second, and at the end a table and a verdict over all runs together. The
//! exit status is 1 if a rule was broken, and 2 if the state cannot be used: the error says why,
//! and what to do.
//!
//! # Twenty kills: `--kills 20`
//!
//! Starts itself with a state, kills itself with SIGKILL at twenty random moments, stops itself
//! once with SIGTERM, starts again each time, and then checks the book against the receipts that
//! customers got: see `kills.rs`. `ci/orders.sh` runs this.

mod audit;
mod book;
mod clerk;
mod kills;
mod live;
mod log;
mod market;
#[path = "../../../examples/common/mixed.rs"]
mod mixed;
#[path = "../../../examples/common/quantiles.rs"]
mod quantiles;
mod state_file;
mod store;
mod virtual_time;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Orders that are closed when they are not paid in time
#[derive(Parser)]
struct Args {
    /// How many orders [default: 1000000 in virtual time, 5000 with --state or --kills]
    #[arg(long, short, value_parser = clap::value_parser!(u32).range(1..))]
    orders: Option<u32>,
    /// Virtual hours; orders are placed during the first half, and none waits for more than the
    /// second
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    hours: u64,
    /// Virtual time between two maintenance passes, in milliseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    step_ms: u64,
    /// Run in real time, keep the orders in this file, and continue from it if it is there
    #[arg(long, value_name = "FILE", group = "real_time", conflicts_with_all = ["hours", "step_ms"])]
    state: Option<PathBuf>,
    /// Seconds of the run with --state or --kills: orders are placed during the first half, and
    /// none waits for more than the second
    #[arg(long, default_value_t = 24, requires = "real_time",
        value_parser = clap::value_parser!(u64).range(2..=86_400))]
    seconds: u64,
    /// Where to write a receipt for each order placed and each payment taken
    #[arg(long, value_name = "FILE", requires = "state")]
    receipts: Option<PathBuf>,
    /// Run with a state of its own, killed and started again this many times, and check the book
    #[arg(long, value_name = "COUNT", group = "real_time", conflicts_with_all = ["hours", "step_ms"],
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: Option<u32>,
    /// The random moments of --kills; the same seed gives the same moments
    #[arg(long, requires = "kills")]
    seed: Option<u64>,
    /// An order may be closed this much later than it is due, or than the program was started again
    #[arg(long, default_value_t = 1000, requires = "real_time")]
    bound_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let plan = market::Plan {
        orders: args.orders.unwrap_or(5_000),
        seconds: args.seconds,
    };
    let bound = Duration::from_millis(args.bound_ms);
    if let Some(kills) = args.kills {
        return kills::run(&plan, kills, args.seed, bound);
    }
    if let Some(state) = &args.state {
        return live::run(&plan, state, args.receipts.as_deref(), bound);
    }
    virtual_time::run(
        args.orders.unwrap_or(1_000_000),
        Duration::from_secs(3600 * args.hours),
        Duration::from_millis(args.step_ms),
    )
}
