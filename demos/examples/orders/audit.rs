//! The rules that the book has to keep, over all runs together.

use std::time::Duration;

use crate::log::{Line, What, between};
use crate::quantiles::Quantiles;

/// Complaints shown in full; the rest is counted.
const SHOWN: usize = 10;

pub(crate) struct Audit {
    orders: u32,
    paid: usize,
    closed: usize,
    bound: Duration,
    lateness: Vec<Duration>,
    complaints: Vec<String>,
}

impl Audit {
    /// Checks the book of ended orders. `base` tells from when on a closing counts as late: from
    /// the moment when the order was due, or when the program was started again; `None` if that is
    /// not known.
    pub(crate) fn of(
        book: &[Line],
        orders: u32,
        bound: Duration,
        base: impl Fn(&Line) -> Option<u64>,
    ) -> Self {
        let mut audit = Self {
            orders,
            paid: 0,
            closed: 0,
            bound,
            lateness: Vec::new(),
            complaints: Vec::new(),
        };
        let mut ends = vec![0_u32; orders as usize];
        for line in book {
            let number = line.number;
            match ends.get_mut(number as usize) {
                Some(ends) => *ends += 1,
                None => audit.complain(format!("order {number} ended, but was never placed")),
            }
            match line.what {
                What::Placed => audit.complain(format!("the book says order {number} was placed")),
                What::Paid => {
                    audit.paid += 1;
                    let late = between(line.due, line.at);
                    if late > bound {
                        audit.complain(format!("order {number} was paid {late:?} too late"));
                    }
                }
                What::Closed => {
                    audit.closed += 1;
                    if line.at < line.due {
                        let early = between(line.at, line.due);
                        audit.complain(format!("order {number} closed {early:?} early"));
                    }
                    if let Some(base) = base(line) {
                        let late = between(base, line.at);
                        audit.lateness.push(late);
                        if late > bound {
                            audit.complain(format!("order {number} closed {late:?} late"));
                        }
                    }
                }
            }
        }
        for (number, ends) in ends.iter().enumerate() {
            match ends {
                0 => audit.complain(format!("order {number} never ended")),
                1 => {}
                often => audit.complain(format!("order {number} ended {often} times")),
            }
        }
        audit
    }

    pub(crate) fn complain(&mut self, complaint: String) {
        self.complaints.push(complaint);
    }

    /// Prints the table and the verdict; the answer is whether all rules were kept.
    pub(crate) fn print(self) -> bool {
        let judged = self.lateness.len();
        let lateness = Quantiles::of(self.lateness);
        let [p50, p99, max] =
            [lateness.at(0.5), lateness.at(0.99), lateness.max()].map(|late| late.as_secs_f64());
        println!("orders                              {}", self.orders);
        println!("closed unpaid                       {}", self.closed);
        println!("paid in time, so cancelled          {}", self.paid);
        println!(
            "lateness of closing p50 / p99 / max {p50:.3} / {p99:.3} / {max:.3} s of {judged} \
             (allowed {:.3} s after the deadline or the start)",
            self.bound.as_secs_f64()
        );
        println!(
            "rules broken                        {}",
            self.complaints.len()
        );
        for complaint in self.complaints.iter().take(SHOWN) {
            println!("  {complaint}");
        }
        let right = self.complaints.is_empty();
        if right {
            println!("verdict: each order ended exactly once, none early, none late");
        } else {
            println!("verdict: WRONG");
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(what: What, number: u32, at: u64, due: u64) -> Line {
        Line {
            what,
            number,
            at,
            due,
        }
    }

    #[test]
    fn each_rule_is_noticed() {
        let bound = Duration::from_nanos(10);
        let right = |book: &[Line]| Audit::of(book, 2, bound, |line| Some(line.due)).print();
        let good = [
            line(What::Closed, 0, 100, 100),
            line(What::Paid, 1, 50, 100),
        ];
        assert!(right(&good));
        assert!(right(&[line(What::Closed, 0, 110, 100), good[1]]));
        for book in [
            vec![good[0]],
            vec![good[0], good[1], good[1]],
            vec![good[0], good[1], line(What::Closed, 1, 100, 100)],
            vec![good[0], good[1], line(What::Closed, 2, 100, 100)],
            vec![line(What::Closed, 0, 99, 100), good[1]],
            vec![line(What::Closed, 0, 111, 100), good[1]],
            vec![good[0], line(What::Paid, 1, 111, 100)],
            vec![good[0], line(What::Placed, 1, 50, 100)],
        ] {
            assert!(!right(&book), "{book:?}");
        }
    }
}
