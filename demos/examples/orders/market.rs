//! What happens: orders placed and payments tried, the same in every run, in order of time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mixed::share;

/// What a run in real time plays. The same plan gives the same events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) orders: u32,
    pub(crate) seconds: u64,
}

impl Plan {
    pub(crate) fn events(&self) -> Vec<Event> {
        events(self.orders, Duration::from_secs(self.seconds))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) placed: Duration,
    pub(crate) time_to_pay: Duration,
}

impl Order {
    pub(crate) fn due(&self) -> Duration {
        self.placed + self.time_to_pay
    }
}

pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Place(Order),
    /// A customer tries to pay an order that was due, or will be, at `due`.
    Pay {
        due: Duration,
    },
}

pub(crate) fn events(orders: u32, end: Duration) -> Vec<Event> {
    let mut events = Vec::with_capacity(2 * orders as usize);
    for number in 0..orders {
        let order = order(number, end);
        events.push(Event {
            at: order.placed,
            number,
            kind: Kind::Place(order),
        });
        if let Some(at) = payment(number, &order) {
            events.push(Event {
                at,
                number,
                kind: Kind::Pay { due: order.due() },
            });
        }
    }
    // Stable, so that an order is placed before it is paid at the same nanosecond.
    events.sort_by_key(|event| event.at);
    events
}

fn order(number: u32, end: Duration) -> Order {
    let half = end / 2;
    // Shops differ: a ticket is held for minutes, a table for hours, a sofa for a day; no two
    // orders wait for the same time.
    let (least, spread) = match share(number.into(), 1) {
        ..0.5 => (half / 144, half / 72),
        0.5..0.8 => (half / 48, half / 12),
        _ => (half / 12, half * 9 / 10),
    };
    Order {
        placed: half.mul_f64(share(number.into(), 2)),
        time_to_pay: least + spread.mul_f64(share(number.into(), 3)),
    }
}

/// When the customer tries to pay, if ever.
fn payment(number: u32, order: &Order) -> Option<Duration> {
    let nanosecond = Duration::from_nanos(1);
    match share(number.into(), 4) {
        ..0.60 => Some(order.placed + order.time_to_pay.mul_f64(share(number.into(), 5))),
        0.60..0.62 => Some(order.due() - nanosecond),
        0.62..0.64 => Some(order.due()),
        0.64..0.70 => Some(order.due() + order.time_to_pay.mul_f64(share(number.into(), 5)) / 100),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_are_due_and_all_events_sorted_before_the_end() {
        let end = Duration::from_secs(48 * 3600);
        let events = events(10_000, end);
        assert!(events.is_sorted_by_key(|event| event.at));
        let mut placed = 0;
        for event in &events {
            assert!(event.at <= end);
            if let Kind::Place(order) = event.kind {
                placed += 1;
                assert!(order.due() < end && !order.time_to_pay.is_zero());
            }
        }
        assert_eq!(placed, 10_000);
    }
}
