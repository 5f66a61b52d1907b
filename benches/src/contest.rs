//! Lets the peers take turns: in each round every peer runs once, and each round begins with
//! another peer, so that what the machine does meanwhile falls on all alike.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    figure::{Heading, Outcome},
    peer::{Card, Problem},
    report::{Report, table},
    setup::Setup,
};

/// One peer and how to run it.
pub struct Contestant<'a> {
    /// Name and role.
    pub card: Card,
    /// Runs one round.
    pub run: Box<dyn FnMut() -> Outcome + 'a>,
}

impl<'a> Contestant<'a> {
    /// A peer, run by `run`.
    pub fn new(card: Card, run: impl FnMut() -> Outcome + 'a) -> Self {
        let run = Box::new(run);
        Self { card, run }
    }
}

/// Peers side by side.
pub struct Contest<'a> {
    /// What is being compared.
    pub heading: Heading,
    /// The peers that take part.
    pub contestants: Vec<Contestant<'a>>,
}

/// Runs contests together, so that figures of one may be compared with figures of another: in each
/// round every contestant of each runs once. Prints their tables and adds them to the report.
pub fn contests(setup: &Setup, report: &mut Report, rounds: usize, contests: Vec<Contest<'_>>) {
    let (headings, mut turns) = in_turns(setup, contests);
    for round in 0..rounds {
        let count = turns.len();
        let mut leaving = Vec::new();
        for turn in 0..count {
            let index = (turn + round) % count;
            let (of, contestant) = &mut turns[index];
            let heading = &headings[*of];
            setup.step(&format!(
                "{}, {}: round {} of {rounds}, {}",
                heading.workload,
                heading.variant,
                round + 1,
                contestant.card.name
            ));
            match outcome(contestant) {
                Ok(readings) => report.add(heading, contestant.card, &readings),
                Err(problem) => {
                    report.add_problem(heading, contestant.card, problem);
                    leaving.push(index);
                }
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
    let mut headings = Vec::new();
    let mut turns: Vec<(usize, usize, Contestant<'a>)> = Vec::new();
    for (of, contest) in contests.into_iter().enumerate() {
        headings.push(contest.heading);
        let wanted = contest
            .contestants
            .into_iter()
            .filter(|contestant| setup.wants(contestant.card.name));
        turns.extend(wanted.enumerate().map(|(place, one)| (place, of, one)));
    }
    turns.sort_by_key(|(place, of, _)| (*place, *of));
    let turns = turns.into_iter().map(|(_, of, one)| (of, one)).collect();
    (headings, turns)
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
    use crate::{
        figure::{NS_PER_OP, Reading},
        peer::Role,
    };

    #[test]
    fn peers_take_turns_and_a_failed_one_leaves() {
        let setup = Setup::new(true, 3, vec![1], Vec::new());
        let order = RefCell::new(Vec::new());
        let order_of = &order;
        let role = Role::Cache;
        let good = |heading: &'static str, name: &'static str| {
            Contestant::new(Card { name, role }, move || {
                let mut order = order_of.borrow_mut();
                order.push((heading, name));
                Ok(vec![Reading::new(1, NS_PER_OP, order.len() as f64)])
            })
        };
        let bad = Contestant::new(Card { name: "c", role }, || panic!("out of order"));
        let of = |variant: &str, contestants| Contest {
            heading: Heading::new("test", variant, ""),
            contestants,
        };
        let mut report = Report::default();
        let both = vec![
            of("x", vec![good("x", "a"), good("x", "b"), bad]),
            of("y", vec![good("y", "a")]),
        ];
        contests(&setup, &mut report, 3, both);
        let (xa, ya, xb) = (("x", "a"), ("y", "a"), ("x", "b"));
        assert_eq!(*order.borrow(), [xa, ya, xb, ya, xb, xa, xb, xa, ya]);
        let row = report.row("test", "x", 1, NS_PER_OP.name, "b").unwrap();
        assert_eq!(row.median(), 5.0);
        assert_eq!(report.failures().count(), 1);
    }
}
