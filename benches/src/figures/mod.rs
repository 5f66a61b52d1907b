//! The bars: which ratio of which figures must not exceed what.
//!
//! `figures` is the short list that a first version must show, `bars` the long list that a release is held to. Both run only the
//! workloads that they need, with only the peers that they name.

mod lists;

use serde::Serialize;

pub use self::lists::{PEERS, first_version, release};
use crate::{
    contest::Metric,
    report::{Report, Row, table::number},
    setup::Setup,
    workloads,
};

/// One figure of a report.
#[derive(Clone, Copy, Debug)]
struct Figure {
    workload: &'static str,
    variant: &'static str,
    threads: usize,
    metric: Metric,
    peer: &'static str,
}

/// What a bar is about.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// The figure itself, in this unit.
    Value(Figure, &'static str),
    /// The highest round of a figure.
    Highest(Figure, &'static str),
    /// One figure over another.
    Ratio(Figure, Figure),
}

/// One line of a list.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    what: &'static str,
    of: Of,
    /// `None`: to be reported, nothing is demanded.
    limit: Option<f64>,
}

/// How a bar came out.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub what: String,
    pub value: Option<f64>,
    pub limit: Option<f64>,
    /// `None` where nothing is demanded or nothing was measured.
    pub met: Option<bool>,
    pub detail: String,
}

/// Runs the workloads that `checks` need and that have not been run.
pub fn run_needed(checks: &[Check], setup: &Setup, report: &mut Report) {
    for workload in workloads::ALL {
        let had = report
            .contests
            .iter()
            .any(|contest| contest.workload == workload.name);
        if !had
            && checks
                .iter()
                .any(|check| check.needs().any(|needed| needed == workload.name))
        {
            (workload.run)(setup, report);
        }
    }
}

/// Holds `checks` against a report.
pub fn judge(checks: &[Check], report: &Report) -> Vec<Verdict> {
    checks.iter().map(|check| check.judge(report)).collect()
}

/// For a terminal.
pub fn print(title: &str, verdicts: &[Verdict]) {
    println!("\n{title}");
    println!(
        "  {:<64} {:>9} {:>9}  {:<8} from",
        "", "measured", "bar", ""
    );
    for verdict in verdicts {
        let value = verdict.value.map_or("-".into(), number);
        let limit = verdict
            .limit
            .map_or("-".into(), |limit| format!("<= {}", number(limit)));
        let met = match verdict.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None if verdict.value.is_none() => "no data",
            None => "shown",
        };
        println!(
            "  {:<64} {value:>9} {limit:>9}  {met:<8} {}",
            verdict.what, verdict.detail
        );
    }
}

impl Check {
    fn needs(&self) -> impl Iterator<Item = &'static str> {
        let (one, other) = match self.of {
            Of::Value(figure, _) | Of::Highest(figure, _) => (figure.workload, None),
            Of::Ratio(over, under) => (over.workload, Some(under.workload)),
        };
        std::iter::once(one).chain(other)
    }

    fn judge(&self, report: &Report) -> Verdict {
        let (value, detail) = match self.of {
            Of::Value(figure, unit) => (figure.row(report).map(|row| row.median), unit.to_owned()),
            Of::Highest(figure, unit) => (
                figure.row(report).map(|row| row.high),
                format!("{unit}, highest round"),
            ),
            Of::Ratio(over, under) => match (over.row(report), under.row(report)) {
                (Some(over), Some(under)) => (
                    Some(over.median / under.median),
                    format!("{} / {}", over.shown(), under.shown()),
                ),
                _ => (None, String::new()),
            },
        };
        let met = self.limit.zip(value).map(|(limit, value)| value <= limit);
        Verdict {
            what: self.what.into(),
            value,
            limit: self.limit,
            met,
            detail,
        }
    }
}

impl Figure {
    fn row<'a>(&self, report: &'a Report) -> Option<&'a Row> {
        report.row(
            self.workload,
            self.variant,
            self.threads,
            self.metric.name,
            self.peer,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contest::{Heading, NS_PER_OP, Reading},
        peer::{
            Card,
            Expiring::{Create, Never},
            Role,
        },
    };

    #[test]
    fn every_bar_names_a_workload_and_a_peer_that_exist() {
        for check in first_version().iter().chain(&release()) {
            for needed in check.needs() {
                assert!(
                    workloads::ALL
                        .iter()
                        .any(|workload| workload.name == needed),
                    "{needed}"
                );
            }
            let figures = match check.of {
                Of::Value(figure, _) | Of::Highest(figure, _) => vec![figure],
                Of::Ratio(over, under) => vec![over, under],
            };
            for figure in figures {
                assert!(PEERS.contains(&figure.peer), "{}", figure.peer);
            }
        }
    }

    #[test]
    fn a_ratio_is_held_against_its_bar() {
        let mut report = Report::default();
        let heading = |variant: &str| Heading {
            workload: "hit-zipf",
            variant: variant.into(),
            about: String::new(),
        };
        let mut add = |variant: &str, peer, value| {
            report.add(
                &heading(variant),
                Card {
                    name: peer,
                    role: Role::Cache,
                },
                &[Reading::new(1, NS_PER_OP, value)],
            );
        };
        add(Create.label(), "wheelhouse", 12.0);
        add(Never.label(), "quick_cache", 10.0);
        let verdicts = judge(&first_version()[..1], &report);
        assert_eq!(verdicts[0].met, Some(true));
        assert_eq!(judge(&release()[..1], &report)[0].met, Some(false));
        assert_eq!(judge(&release()[1..2], &report)[0].met, None);
    }
}
