//! Lets the peers take turns: in each round every peer runs once, and each round begins with another peer, so that what the machine does
//! meanwhile falls on all alike.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    peer::{Card, Problem},
    report::{Report, table},
    setup::Setup,
};

/// One kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// As the tables call it, unit included.
    pub name: &'static str,
    /// What the tables do with it.
    pub shown: Shown,
}

/// What the tables do with a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// With spread and ratios; lower is better.
    Ranked,
    /// As a plain column of this block: the median of the rounds.
    Median(u8),
    /// As a plain column of this block: the highest of the rounds.
    Worst(u8),
    /// In the JSON only.
    InFileOnly,
}

/// Time of one operation.
pub const NS_PER_OP: Metric = Metric {
    name: "ns/op",
    shown: Shown::Ranked,
};
/// Of elapsed and CPU time the one that is not ranked.
pub const OTHER_NS_PER_OP: Metric = Metric {
    name: "other ns/op",
    shown: Shown::InFileOnly,
};
/// Share of reads that found their key.
pub const HIT_PERCENT: Metric = Metric {
    name: "hit %",
    shown: Shown::Median(0),
};

/// One figure of one round.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Number of workers.
    pub threads: usize,
    /// What was measured.
    pub metric: Metric,
    /// The figure.
    pub value: f64,
}

impl Reading {
    /// A figure measured with `threads` workers.
    pub fn new(threads: usize, metric: Metric, value: f64) -> Self {
        Self {
            threads,
            metric,
            value,
        }
    }
}

/// What one round of one peer gives.
pub type Outcome = Result<Vec<Reading>, Problem>;

/// One peer and how to run it; given the number of the round.
pub struct Contestant<'a> {
    /// Name and rank.
    pub card: Card,
    /// Runs one round.
    pub run: Box<dyn FnMut(usize) -> Outcome + 'a>,
}

/// What is being compared.
#[derive(Clone, Debug)]
pub struct Heading {
    /// Name on the command line.
    pub workload: &'static str,
    /// Which expiry, which size.
    pub variant: String,
    /// One line for the reader.
    pub about: String,
}

/// Runs a contest, prints its table and adds it to the report.
pub fn contest(
    setup: &Setup,
    report: &mut Report,
    heading: &Heading,
    rounds: usize,
    contestants: Vec<Contestant<'_>>,
) {
    let mut contestants: Vec<_> = contestants
        .into_iter()
        .filter(|contestant| setup.wants(contestant.card.name))
        .collect();
    setup.stage(format!("{}, {}", heading.workload, heading.variant));
    for round in 0..rounds {
        let count = contestants.len();
        let mut leaving = Vec::new();
        for turn in 0..count {
            let index = (turn + round) % count;
            let contestant = &mut contestants[index];
            setup.step(&format!(
                "round {} of {rounds}, {}",
                round + 1,
                contestant.card.name
            ));
            match outcome(contestant, round) {
                Ok(readings) => report.add(heading, contestant.card, &readings),
                Err(problem) => {
                    report.add_problem(heading, contestant.card, problem);
                    leaving.push(index);
                }
            }
        }
        leaving.sort_unstable();
        for index in leaving.into_iter().rev() {
            contestants.remove(index);
        }
    }
    setup.clear();
    print!("{}", table::of(report, heading));
    report.save_so_far();
}

/// A peer that panics has failed its round, not the run.
fn outcome(contestant: &mut Contestant<'_>, round: usize) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| (contestant.run)(round))).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Problem::Wrong(format!("panicked: {what}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Role;

    #[test]
    fn peers_take_turns_and_a_failed_one_leaves() {
        let setup = Setup::new(true, 3, vec![1], Vec::new());
        let order = std::cell::RefCell::new(Vec::new());
        let order_of = &order;
        let good = |name: &'static str| Contestant {
            card: Card {
                name,
                role: Role::Cache,
            },
            run: Box::new(move |round| {
                order_of.borrow_mut().push(name);
                Ok(vec![Reading::new(1, NS_PER_OP, round as f64)])
            }),
        };
        let bad = Contestant {
            card: Card {
                name: "c",
                role: Role::Cache,
            },
            run: Box::new(|_| panic!("out of order")),
        };
        let heading = Heading {
            workload: "test",
            variant: "turns".into(),
            about: String::new(),
        };
        let mut report = Report::default();
        contest(
            &setup,
            &mut report,
            &heading,
            3,
            vec![good("a"), good("b"), bad],
        );
        assert_eq!(*order.borrow(), ["a", "b", "b", "a", "a", "b"]);
        assert_eq!(
            report.median("test", "turns", 1, NS_PER_OP.name, "b"),
            Some(1.0)
        );
        assert_eq!(report.failures().count(), 1);
    }
}
