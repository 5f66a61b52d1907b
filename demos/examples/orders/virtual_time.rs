//! The run in virtual time: two days pass in some seconds.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wheelhouse::{Cache, ManualTicker, RemovalCause, Ticker, expiry};

use crate::book::{Book, End};
use crate::market::{self, Event, Kind, Order};

/// Plays the whole market; an order is closed by a pass, every `step` of virtual time.
pub(crate) fn run(orders: u32, end: Duration, step: Duration) -> ExitCode {
    let events = market::events(orders, end);
    let started = Instant::now();
    let book = Arc::new(Book::new(orders));
    let ticker = ManualTicker::new();
    let cache = order_cache(&ticker, &book);
    let mut clock = Clock { ticker, step };
    for event in &events {
        clock.run_until(event.at, &cache);
        apply(event, &cache, &book);
    }
    clock.run_until(end, &cache);
    cache.run_pending_tasks();

    // One step for the pass that comes next, one bucket for the wheel.
    let patience = step + cache.policy().expiry_resolution();
    println!(
        "{orders} orders over {} h of virtual time, played in {:.2} s ({} placed or paid, a pass every {} ms of virtual time)",
        end.as_secs() / 3600,
        started.elapsed().as_secs_f64(),
        events.len(),
        step.as_millis(),
    );
    let right = book.print_and_check(patience, cache.entry_count());
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
