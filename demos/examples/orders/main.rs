//! Delayed tasks: an order that is not paid in time is closed, and paying it cancels the task.
//!
//! A million orders, each with its own time to pay, are placed over half of 48 hours of virtual
//! time. Some customers pay in time, some too late, some at the very last or very first wrong
//! nanosecond, many never. The cache is the timer: the key is the order's number, the expiry its
//! delay, `remove` the cancellation, and the listener closes what expired.
//!
//! Run: `cargo run --release -p wheelhouse-examples --example orders`, shorter: `-- --orders
//! 50000`.
//!
//! Expect: some seconds of work, then a table. Every order must end exactly once, closed or paid; a
//! payment must be taken if it comes before the deadline and refused if not; no order may be closed
//! early, nor later than the resolution of the wheel and the step of the clock together allow. The
//! exit status is 1 if anything was wrong.

mod book;
mod market;
#[path = "../../../examples/common/mixed.rs"]
mod mixed;
#[path = "../../../examples/common/quantiles.rs"]
mod quantiles;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use wheelhouse::{Cache, ManualTicker, RemovalCause, Ticker, expiry};

use book::{Book, End};
use market::{Event, Kind, Order};

/// Orders that are closed when they are not paid in time
#[derive(Parser)]
struct Args {
    /// How many orders
    #[arg(long, short, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    orders: u32,
    /// Virtual hours; orders are placed during the first half, and none waits for more than the
    /// second
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    hours: u64,
    /// Virtual time between two maintenance passes, in milliseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    step_ms: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let end = Duration::from_secs(3600 * args.hours);
    let step = Duration::from_millis(args.step_ms);
    let events = market::events(args.orders, end);

    let started = Instant::now();
    let book = Arc::new(Book::new(args.orders));
    let ticker = ManualTicker::new();
    let orders = order_cache(&ticker, &book);
    let mut clock = Clock { ticker, step };
    for event in &events {
        clock.run_until(event.at, &orders);
        apply(event, &orders, &book);
    }
    clock.run_until(end, &orders);
    orders.run_pending_tasks();

    // One step for the pass that comes next, one bucket for the wheel.
    let patience = step + orders.policy().expiry_resolution();
    println!(
        "{} orders over {} h of virtual time, played in {:.2} s ({} placed or paid, a pass every {} ms of virtual time)",
        args.orders,
        args.hours,
        started.elapsed().as_secs_f64(),
        events.len(),
        args.step_ms,
    );
    let right = book.print_and_check(patience, orders.entry_count());
    if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn order_cache(ticker: &ManualTicker, book: &Arc<Book>) -> Cache<u32, Order> {
    let (now, book) = (ticker.clone(), Arc::clone(book));
    Cache::builder()
        .name("orders")
        .expire_after(expiry::creating(|_number: &u32, order: &Order| {
            Some(order.time_to_pay)
        }))
        .removal_listener(move |&number: &u32, order: &Order, cause: RemovalCause| {
            let now = Duration::from_nanos(now.nanos());
            match cause {
                RemovalCause::Expired => book.end(
                    number,
                    End::Closed {
                        due: order.due(),
                        now,
                    },
                ),
                RemovalCause::Explicit => book.end(number, End::Paid),
                cause => book.complain(format!("order {number} left with the cause {cause:?}")),
            }
        })
        // A manual clock has no thread to wake up: the passes below do all the work.
        .ticker(ticker.clone())
        .build()
}

fn apply(event: &Event, orders: &Cache<u32, Order>, book: &Book) {
    match event.kind {
        Kind::Place(order) => orders.insert(event.number, order),
        Kind::Pay { due } => {
            let taken = orders.remove(&event.number);
            book.payment(event.number, taken.is_some(), event.at, due);
        }
    }
}

/// Moves the virtual time, and lets the cache work at every full step on the way.
struct Clock {
    ticker: ManualTicker,
    step: Duration,
}

impl Clock {
    fn run_until(&mut self, then: Duration, orders: &Cache<u32, Order>) {
        let mut now = Duration::from_nanos(self.ticker.nanos());
        while now < then {
            let into_step = Duration::from_nanos((now.as_nanos() % self.step.as_nanos()) as u64);
            let next = then.min(now + self.step - into_step);
            self.ticker.advance(next - now);
            if next.as_nanos().is_multiple_of(self.step.as_nanos()) {
                orders.run_pending_tasks();
            }
            now = next;
        }
    }
}
