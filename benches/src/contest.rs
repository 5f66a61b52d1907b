//! Lets the peers take turns: in each round every peer runs once, and each round begins with
//! another peer, so that what the machine does meanwhile falls on all alike.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use crate::{
    figure::{Heading, Outcome},
    peer::{Card, Problem},
    report::{Report, table},
    setup::Setup,
};

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
    /// A contest of no peers so far.
    pub fn new(workload: &str, variant: impl Into<String>, about: impl Into<String>) -> Self {
        let heading = Heading::new(workload, variant, about);
        Self {
            heading,
            contestants: Vec::new(),
        }
    }

    /// A contest that is a line of a table; see [`Heading::is_line`].
    pub fn line(workload: &str, variant: impl Into<String>, about: &str) -> Self {
        let mut contest = Self::new(workload, variant, about);
        contest.heading.is_line = true;
        contest
    }

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

/// Runs contests together, so that figures of one may be compared with figures of another: in each
/// round every contestant of each runs once. One that has used up the time of a contestant takes no
/// further rounds. Prints the tables and adds them to the report.
pub fn contests(setup: &Setup, report: &mut Report, rounds: usize, contests: Vec<Contest<'_>>) {
    let (headings, mut turns) = in_turns(setup, contests);
    for round in 1..=rounds {
        let first = (round - 1) % turns.len().max(1);
        let order = (first..turns.len()).chain(0..first);
        let mut leaving = Vec::new();
        for index in order {
            let (of, contestant) = &mut turns[index];
            let (heading, card) = (&headings[*of], contestant.card);
            let (workload, variant) = (&heading.workload, &heading.variant);
            setup.step(&format!(
                "{workload}, {variant}: round {round} of {rounds}, {}",
                card.name
            ));
            let began = Instant::now();
            match outcome(contestant) {
                Ok(readings) => report.add(heading, card, &readings),
                Err(problem) => {
                    report.add_problem(heading, card, problem);
                    leaving.push(index);
                    continue;
                }
            }
            contestant.spent += began.elapsed();
            let next = contestant.spent * (round as u32 + 1) / round as u32;
            if setup.patience.is_some_and(|patience| next > patience) {
                leaving.push(index);
            }
        }
        leaving.sort_unstable();
        for index in leaving.into_iter().rev() {
            turns.remove(index);
        }
    }
    setup.clear();
    for heading in headings.iter().filter(|heading| !heading.is_line) {
        print!("{}", table::of(report, heading));
    }
    report.save_so_far();
}

/// The headings, and the order of turns: a peer in all contests, then the next peer. Each turn has
/// the number of its heading.
fn in_turns<'a>(
    setup: &Setup,
    contests: Vec<Contest<'a>>,
) -> (Vec<Heading>, Vec<(usize, Contestant<'a>)>) {
    let (mut headings, mut turns) = (Vec::new(), Vec::new());
    for (of, contest) in contests.into_iter().enumerate() {
        headings.push(contest.heading);
        let mut wanted = contest.contestants;
        wanted.retain(|contestant| setup.wants(contestant.card.name));
        turns.extend(
            wanted
                .into_iter()
                .enumerate()
                .map(|(place, one)| (place, of, one)),
        );
    }
    turns.sort_by_key(|(place, of, _)| (*place, *of));
    let turns = turns.into_iter().map(|(_, of, one)| (of, one));
    (headings, turns.collect())
}

/// A peer that panics has failed its round, not the run.
fn outcome(contestant: &mut Contestant<'_>) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| (contestant.run)())).unwrap_or_else(|panic| {
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
    use std::cell::RefCell;

    use super::*;
    use crate::figure::NS_PER_OP;

    #[test]
    fn peers_take_turns_and_a_failed_one_leaves() {
        let setup = Setup::new(true, 3, vec![1], Vec::new());
        let order = RefCell::new(Vec::new());
        let order_of = &order;
        let good = |variant: &'static str, name: &'static str| {
            move || {
                let mut order = order_of.borrow_mut();
                order.push((variant, name));
                Ok(vec![NS_PER_OP.of(order.len() as f64)])
            }
        };
        let of = |variant: &'static str, names: &[&'static str]| {
            let mut contest = Contest::new("test", variant, "");
            names
                .iter()
                .for_each(|name| contest.add(Card::cache(name), good(variant, name)));
            contest
        };
        let bad = || panic!("out of order");
        let mut report = Report::default();
        let both = vec![
            of("x", &["a", "b"]).with(Card::cache("c"), bad),
            of("y", &["a"]),
        ];
        contests(&setup, &mut report, 3, both);
        let (xa, ya, xb) = (("x", "a"), ("y", "a"), ("x", "b"));
        assert_eq!(*order.borrow(), [xa, ya, xb, ya, xb, xa, xb, xa, ya]);
        let row = report.row("test", "x", 1, NS_PER_OP.name, "b").unwrap();
        assert_eq!(row.median(), 5.0);
        assert_eq!(report.failures().count(), 1);
    }
}
