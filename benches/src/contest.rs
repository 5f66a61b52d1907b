//! Lets the peers take turns: in each round every peer runs once, and each round begins with
//! another peer, so that what the machine does meanwhile falls on all alike.

use std::{
    cell::RefCell,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use crate::{
    figure::{Heading, Outcome, Problem},
    peer::Card,
    report::{Report, table},
    setup::Setup,
};

/// A workload that runs: its name, what the run was asked for, and the report that it adds to.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the run was asked for.
    pub setup: &'a Setup,
    /// What was measured so far.
    pub report: &'a RefCell<Report>,
}

impl Deref for Bench<'_> {
    type Target = Setup;

    fn deref(&self) -> &Setup {
        self.setup
    }
}

/// Peers side by side.
pub struct Contest<'a> {
    /// What is being compared.
    pub heading: Heading,
    contestants: Vec<Contestant<'a>>,
}

/// One peer and how to run a round of it.
struct Contestant<'a> {
    card: Card,
    run: Box<dyn FnMut() -> Outcome + 'a>,
    /// Time spent on all its rounds.
    spent: Duration,
}

impl<'a> Contest<'a> {
    /// Adds a peer, run by `run`.
    pub fn add(&mut self, card: Card, run: impl FnMut() -> Outcome + 'a) {
        let (run, spent) = (Box::new(run), Duration::ZERO);
        self.contestants.push(Contestant { card, run, spent });
    }

    /// With one more peer.
    pub fn with(mut self, card: Card, run: impl FnMut() -> Outcome + 'a) -> Self {
        self.add(card, run);
        self
    }
}

impl Bench<'_> {
    /// A contest of no peers so far.
    pub fn contest<'c>(&self, variant: impl Into<String>, about: impl Into<String>) -> Contest<'c> {
        Contest {
            heading: Heading::new(self.name, variant, about),
            contestants: Vec::new(),
        }
    }

    /// Runs contests together, so that figures of one may be compared with figures of another: in
    /// each round every contestant of each runs once. One that has used up the time of a contestant
    /// takes no further rounds. Prints the tables and adds them to the report.
    pub fn run<'c>(&self, rounds: usize, contests: impl IntoIterator<Item = Contest<'c>>) {
        let (headings, mut turns) = in_turns(self, contests);
        for round in 1..=rounds {
            let first = (round - 1) % turns.len().max(1);
            let order = (first..turns.len()).chain(0..first);
            let mut leaving = Vec::new();
            for index in order {
                let (of, contestant) = &mut turns[index];
                let (heading, card) = (&headings[*of], contestant.card);
                let (workload, variant, peer) = (&heading.workload, &heading.variant, card.name);
                self.step(&format!(
                    "{workload}, {variant}: round {round} of {rounds}, {peer}"
                ));
                let began = Instant::now();
                let outcome = outcome(contestant);
                contestant.spent += began.elapsed();
                let next = contestant.spent * (round as u32 + 1) / round as u32;
                if outcome.is_err() || self.patience.is_some_and(|patience| next > patience) {
                    leaving.push(index);
                }
                self.report.borrow_mut().add(heading, card, outcome);
            }
            leaving.sort_unstable();
            for index in leaving.into_iter().rev() {
                turns.remove(index);
            }
        }
        self.clear();
        let report = self.report.borrow();
        for heading in headings.iter().filter(|heading| !heading.is_line) {
            print!("{}", table::of(&report, heading));
        }
        report.save_so_far();
    }
}

/// The headings, and the order of turns: a peer in all contests, then the next peer. Each turn has
/// the number of its heading.
fn in_turns<'a>(
    setup: &Setup,
    contests: impl IntoIterator<Item = Contest<'a>>,
) -> (Vec<Heading>, Vec<(usize, Contestant<'a>)>) {
    let (mut headings, mut turns) = (Vec::new(), Vec::new());
    for (of, contest) in contests.into_iter().enumerate() {
        headings.push(contest.heading);
        let mut wanted = contest.contestants;
        wanted.retain(|contestant| setup.wants(contestant.card.name));
        let places = wanted.into_iter().enumerate();
        turns.extend(places.map(|(place, one)| (place, of, one)));
    }
    turns.sort_by_key(|(place, of, _)| (*place, *of));
    let turns = turns.into_iter().map(|(_, of, one)| (of, one));
    (headings, turns.collect())
}

/// A peer that panics has failed its round, not the run.
fn outcome(contestant: &mut Contestant<'_>) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| (contestant.run)())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let what = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let what = what.unwrap_or("no message");
        Err(Problem::Wrong(format!("panicked: {what}")))
    })
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
            let mut contest = bench.contest(variant, "");
            for &name in names {
                let order = &order;
                contest.add(Card::cache(name), move || {
                    let mut order = order.borrow_mut();
                    order.push((variant, name));
                    Ok(vec![NS_PER_OP.of(order.len() as f64)])
                });
            }
            contest
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
