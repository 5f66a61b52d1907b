//! Lets the peers take turns: in each round every peer runs once, and each round begins with
//! another peer, so that other work of the machine affects all peers alike.

use std::{
    cell::RefCell,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use crate::{
    figure::{Outcome, Problem},
    peer::Card,
    report::{Report, Table, table},
    setup::Setup,
};

/// A workload that runs: its name, what the run was asked for, and the report that it adds to.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    pub name: &'static str,
    pub setup: &'a Setup,
    pub report: &'a RefCell<Report>,
}

impl Deref for Bench<'_> {
    type Target = Setup;

    fn deref(&self) -> &Setup {
        self.setup
    }
}

pub struct Contest<'a> {
    /// What is being compared, without figures so far.
    pub table: Table,
    pub contestants: Vec<Contestant<'a>>,
}

/// One peer and how to run a round of it.
pub struct Contestant<'a> {
    pub card: Card,
    pub run: Box<dyn FnMut() -> Outcome + 'a>,
    /// Time spent on all its rounds.
    spent: Duration,
    /// Whether it takes no further round.
    over: bool,
}

impl<'a> Contest<'a> {
    /// Adds a peer, run by `run`.
    pub fn add(&mut self, card: Card, run: impl FnMut() -> Outcome + 'a) {
        self.contestants.push(Contestant {
            card,
            run: Box::new(run),
            spent: Duration::ZERO,
            over: false,
        });
    }

    pub fn with(mut self, card: Card, run: impl FnMut() -> Outcome + 'a) -> Self {
        self.add(card, run);
        self
    }
}

impl Bench<'_> {
    /// A contest of no peers so far.
    pub fn contest<'c>(&self, variant: impl Into<String>, about: impl Into<String>) -> Contest<'c> {
        Contest {
            table: Table::new(self.name, variant, about),
            contestants: Vec::new(),
        }
    }

    /// Runs contests together, so that figures of one may be compared with figures of another: in
    /// each round every contestant of each runs once. One that has used up the time of a contestant
    /// takes no further rounds. Adds the tables to the report and prints them.
    pub fn run<'c>(&self, rounds: usize, contests: impl IntoIterator<Item = Contest<'c>>) {
        let begin = self.report.borrow().tables.len();
        let mut turns = Vec::new();
        for contest in contests {
            let mut wanted = contest.contestants;
            wanted.retain(|contestant| self.wants(contestant.card.name));
            if !wanted.is_empty() {
                let tables = &mut self.report.borrow_mut().tables;
                tables.push(contest.table);
                let of = tables.len() - 1;
                let places = wanted.into_iter().enumerate();
                turns.extend(places.map(|(place, one)| (place, of, one)));
            }
        }
        // A peer in all contests, then the next peer.
        turns.sort_by_key(|(place, of, _)| (*place, *of));
        for round in 1..=rounds as u32 {
            for (_, of, contestant) in &mut turns {
                let title = self.report.borrow().tables[*of].title();
                let peer = contestant.card.name;
                self.step(&format!("{title}: round {round} of {rounds}, {peer}"));
                let outcome = contestant.round(round, self.patience);
                self.report.borrow_mut().tables[*of].add(contestant.card, outcome);
            }
            turns.retain(|(.., contestant)| !contestant.over);
            let next = turns.len().min(1);
            turns.rotate_left(next);
        }
        let report = self.report.borrow();
        for table in report.tables[begin..].iter().filter(|table| !table.is_line) {
            print!("{}", table::of(table));
        }
        if let Err(error) = report.save() {
            eprintln!("cannot write the JSON file: {error}");
        }
    }
}

impl Contestant<'_> {
    /// Runs the next round. If the one after it would take more than a contestant may use, or
    /// if this one failed, it is the last.
    fn round(&mut self, round: u32, patience: Option<Duration>) -> Outcome {
        let began = Instant::now();
        // A peer that panics has failed its round, not the run.
        let outcome = catch_unwind(AssertUnwindSafe(&mut self.run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let what = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let what = what.unwrap_or("no message");
            Err(Problem::Wrong(format!("panicked: {what}")))
        });
        self.spent += began.elapsed();
        let next = self.spent * (round + 1) / round;
        self.over = outcome.is_err() || patience.is_some_and(|patience| next > patience);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::NS_PER_OP;

    #[test]
    fn peers_take_turns_and_a_failed_one_leaves() {
        let bench = Bench {
            name: "test",
            setup: &Setup::default(),
            report: &RefCell::default(),
        };
        let order = RefCell::new(Vec::new());
        let of = |variant: &'static str, names: &[&'static str]| {
            let contest = bench.contest(variant, "");
            names.iter().fold(contest, |contest, &name| {
                let order = &order;
                contest.with(Card::cache(name), move || {
                    order.borrow_mut().push((variant, name));
                    Ok(vec![NS_PER_OP.of(order.borrow().len() as f64)])
                })
            })
        };
        let bad = || panic!("out of order");
        let x = of("x", &["a", "b"]).with(Card::cache("c"), bad);
        bench.run(3, [x, of("y", &["a"])]);
        let (xa, ya, xb) = (("x", "a"), ("y", "a"), ("x", "b"));
        assert_eq!(*order.borrow(), [xa, ya, xb, ya, xb, xa, xb, xa, ya]);
        let report = bench.report.borrow();
        let row = report.row("test", "x", 1, NS_PER_OP.name, "b").unwrap();
        assert_eq!(row.median(), 5.0);
        assert_eq!(report.failures().count(), 1);
    }
}
