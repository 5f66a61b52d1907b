//! The book of all orders: how each ended, and every rule that was broken.

use std::sync::Mutex;
use std::time::Duration;

use crate::quantiles::Quantiles;

pub(crate) enum End {
    Closed { due: Duration, now: Duration },
    Paid,
}

/// Complaints shown in full; the rest is counted.
const SHOWN: usize = 10;

pub(crate) struct Book(Mutex<Pages>);

struct Pages {
    ends: Vec<u8>,
    lateness: Vec<Duration>,
    paid: usize,
    payments_taken: usize,
    payments_refused: usize,
    complaints: Vec<String>,
}

impl Book {
    pub(crate) fn new(orders: u32) -> Self {
        Self(Mutex::new(Pages {
            ends: vec![0; orders as usize],
            lateness: Vec::new(),
            paid: 0,
            payments_taken: 0,
            payments_refused: 0,
            complaints: Vec::new(),
        }))
    }

    /// The listener heard that an order left the cache.
    pub(crate) fn end(&self, number: u32, end: End) {
        let mut pages = self.0.lock().unwrap();
        pages.ends[number as usize] = pages.ends[number as usize].saturating_add(1);
        match end {
            End::Paid => pages.paid += 1,
            End::Closed { due, now } if now < due => {
                pages
                    .complaints
                    .push(format!("order {number} closed {:?} too early", due - now));
            }
            End::Closed { due, now } => pages.lateness.push(now - due),
        }
    }

    /// A payment was tried, and the cache took it or did not.
    pub(crate) fn payment(&self, number: u32, taken: bool, at: Duration, due: Duration) {
        let mut pages = self.0.lock().unwrap();
        if taken {
            pages.payments_taken += 1;
        } else {
            pages.payments_refused += 1;
        }
        if taken != (at < due) {
            let outcome = if taken { "taken" } else { "refused" };
            pages.complaints.push(format!(
                "order {number}: payment at {at:?}, due {due:?}, was {outcome}"
            ));
        }
    }

    pub(crate) fn complain(&self, complaint: String) {
        self.0.lock().unwrap().complaints.push(complaint);
    }

    /// Prints the table; the answer is whether all rules were kept.
    pub(crate) fn print_and_check(&self, patience: Duration, left_over: u64) -> bool {
        let mut pages = self.0.lock().unwrap();
        let pages = &mut *pages;
        let lateness = Quantiles::of(std::mem::take(&mut pages.lateness));
        let never = pages.ends.iter().filter(|&&ends| ends == 0).count();
        let often = pages.ends.iter().filter(|&&ends| ends > 1).count();

        for (wrong, rule) in [
            (never > 0, format!("{never} orders never ended")),
            (often > 0, format!("{often} orders ended more than once")),
            (
                left_over > 0,
                format!("{left_over} orders are still in the cache"),
            ),
            (
                pages.paid != pages.payments_taken,
                format!(
                    "{} payments taken, but {} heard of",
                    pages.payments_taken, pages.paid
                ),
            ),
            (
                lateness.max() > patience,
                format!(
                    "an order closed {:?} late, at most {patience:?} is allowed",
                    lateness.max()
                ),
            ),
        ] {
            if wrong {
                pages.complaints.push(rule);
            }
        }

        println!(
            "closed unpaid                       {}",
            pages.ends.len() - never - pages.paid
        );
        println!("paid in time, so cancelled          {}", pages.paid);
        println!(
            "payments that came too late         {}",
            pages.payments_refused
        );
        let [p50, p99, max] =
            [lateness.at(0.5), lateness.at(0.99), lateness.max()].map(|late| late.as_secs_f64());
        println!(
            "lateness of closing p50 / p99 / max {p50:.3} / {p99:.3} / {max:.3} s (allowed {:.3} s)",
            patience.as_secs_f64()
        );
        println!(
            "rules broken                        {}",
            pages.complaints.len()
        );
        for complaint in pages.complaints.iter().take(SHOWN) {
            println!("  {complaint}");
        }
        pages.complaints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_clean_book() {
        let book = Book::new(2);
        book.payment(0, true, S, 2 * S);
        book.end(0, End::Paid);
        book.end(
            1,
            End::Closed {
                due: 3 * S,
                now: 4 * S,
            },
        );
        assert!(book.print_and_check(S, 0));
    }

    #[test]
    fn each_rule_is_noticed() {
        let broken = |breaking: fn(&Book)| {
            let book = Book::new(1);
            breaking(&book);
            !book.print_and_check(S, 0)
        };
        assert!(broken(|_| ()));
        assert!(broken(
            |book| book.end(0, End::Closed { due: 2 * S, now: S })
        ));
        assert!(broken(
            |book| book.end(0, End::Closed { due: S, now: 3 * S })
        ));
        assert!(broken(|book| {
            book.end(0, End::Closed { due: S, now: S });
            book.end(0, End::Closed { due: S, now: S });
        }));
        // Taken at the very deadline.
        assert!(broken(|book| {
            book.end(0, End::Paid);
            book.payment(0, true, S, S);
        }));
        // Paid without anyone having paid.
        assert!(broken(|book| book.end(0, End::Paid)));
    }
}
