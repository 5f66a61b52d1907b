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
/// Time of one operation in all slices of a lap, whether these were quiet or not.
pub const WHOLE_NS_PER_OP: Metric = Metric {
    name: "ns/op, disturbed or not",
    shown: Shown::InFileOnly,
};
/// How much longer than its shortest the yardstick was beside what counts of the lap, or by what factor the distance of the workers' cores changed
/// during it, if by much.
pub const PACE: Metric = Metric {
    name: "pace",
    shown: Shown::InFileOnly,
};
/// How far apart the workers' cores were, where several worked: how long a cache line took from one to the next.
pub const APART: Metric = Metric {
    name: "ns from core to core",
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

/// Peers side by side.
pub struct Contest<'a> {
    /// What is being compared.
    pub heading: Heading,
    /// Who takes part.
    pub contestants: Vec<Contestant<'a>>,
}

/// Runs one contest, prints its table and adds it to the report.
pub fn contest(
    setup: &Setup,
    report: &mut Report,
    heading: &Heading,
    rounds: usize,
    contestants: Vec<Contestant<'_>>,
) {
    let heading = heading.clone();
    contests(
        setup,
        report,
        rounds,
        vec![Contest {
            heading,
            contestants,
        }],
    );
}

/// Runs contests together, so that figures of one may be held against figures of another: in each round every contestant of each runs once.
/// Prints their tables and adds them to the report.
pub fn contests(setup: &Setup, report: &mut Report, rounds: usize, contests: Vec<Contest<'_>>) {
    let (headings, mut turns) = in_turns(setup, contests);
    setup.yardstick.begin();
    for round in 0..rounds {
        let count = turns.len();
        let mut leaving = Vec::new();
        let late = round + LATE >= rounds;
        if late {
            // So far.
            report.mark_alike(&headings);
        }
        for turn in 0..count {
            let index = (turn + round) % count;
            let (of, contestant) = &mut turns[index];
            let heading = &headings[*of];
            setup.stage(format!("{}, {}", heading.workload, heading.variant));
            setup.step(&format!(
                "round {} of {rounds}, {}",
                round + 1,
                contestant.card.name
            ));
            // Who had one round that counts needs no other; and who waits at first may find that there is no need to, later.
            let spare = !late || report.is_done(heading, contestant.card);
            setup.yardstick.spare(spare);
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
            turns.remove(index);
        }
    }
    setup.yardstick.spare(false);
    setup.clear();
    let apart = report.mark_alike(&headings);
    for heading in &headings {
        print!("{}", table::of(report, heading));
    }
    print!("{}", table::of_distances(&apart));
    report.save_so_far();
}

/// In so many rounds at the end those are worth patience who had none that counts.
const LATE: usize = 2;

/// The headings, and who runs after whom: a peer in all contests, then the next peer. Each with the number of its heading.
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
        let one =
            |name: &'static str, run: Box<dyn FnMut(usize) -> Outcome + 'static>| Contestant {
                card: Card {
                    name,
                    role: Role::Cache,
                },
                run,
            };
        let good = |heading: &'static str, name: &'static str| {
            let mut good = one(name, Box::new(|_| Err(Problem::Unsupported(""))));
            good.run = Box::new(move |round| {
                order_of.borrow_mut().push((heading, name));
                Ok(vec![Reading::new(1, NS_PER_OP, round as f64)])
            });
            good
        };
        let of = |variant: &'static str, contestants| Contest {
            heading: Heading {
                workload: "test",
                variant: variant.into(),
                about: String::new(),
            },
            contestants,
        };
        let bad = one("c", Box::new(|_| panic!("out of order")));
        let mut report = Report::default();
        contests(
            &setup,
            &mut report,
            3,
            vec![
                of("x", vec![good("x", "a"), good("x", "b"), bad]),
                of("y", vec![good("y", "a")]),
            ],
        );
        let (xa, ya, xb) = (("x", "a"), ("y", "a"), ("x", "b"));
        assert_eq!(*order.borrow(), [xa, ya, xb, ya, xb, xa, xb, xa, ya]);
        assert_eq!(
            (report.row("test", "x", 1, NS_PER_OP.name, "b")).map(|row| row.median),
            Some(1.0)
        );
        assert_eq!(report.failures().count(), 1);
    }
}
