//! The bars: figures, and ratios of two figures, each with the limit that it must not exceed. They
//! stand in `bars.md`. `bars` on the command line runs only the workloads that they need, with only
//! the peers that they name.

use std::collections::BTreeSet;

use crate::{
    figure::{NS_PER_OP, Verdict},
    report::{Report, Row, table::number},
};

const TABLE: &str = include_str!("../bars.md");

/// The name of one figure of a report.
#[derive(Clone, Copy, Debug)]
struct Figure {
    workload: &'static str,
    variant: &'static str,
    peer: &'static str,
    metric: &'static str,
    threads: usize,
}

impl Figure {
    /// `workload; variant; peer; metric; threads`, of which the last two may be left out.
    fn parse(text: &'static str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        Some(Self {
            workload: parts.next().filter(|name| !name.is_empty())?,
            variant: parts.next()?,
            peer: parts.next()?,
            metric: parts.next().unwrap_or(NS_PER_OP.name),
            threads: parts.next().unwrap_or("1").parse().ok()?,
        })
    }
}

#[derive(Clone, Debug)]
pub struct Bar {
    what: &'static str,
    /// `None`: to be shown, nothing is demanded.
    limit: Option<f64>,
    /// Whether the highest round counts in place of the median.
    highest: bool,
    /// One, or two whose ratio is meant.
    figures: Vec<Figure>,
}

/// All bars, in the order of the table.
pub fn all() -> Vec<Bar> {
    let lines = TABLE.lines().filter(|line| line.starts_with("| "));
    lines.skip(1).map(bar).collect()
}

fn bar(line: &'static str) -> Bar {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, what, limit, of, figure, over, _] = cells[..] else {
        panic!("bars.md: not five cells: {line}");
    };
    Bar {
        what,
        limit: limit.parse().ok(),
        highest: of == "highest",
        figures: [figure, over]
            .into_iter()
            .filter_map(Figure::parse)
            .collect(),
    }
}

pub fn peers(bars: &[Bar]) -> Vec<String> {
    let peers = bars.iter().flat_map(|bar| &bar.figures);
    let peers: BTreeSet<&str> = peers.map(|figure| figure.peer).collect();
    peers.into_iter().map(str::to_owned).collect()
}

pub fn need(bars: &[Bar], workload: &str) -> bool {
    let mut figures = bars.iter().flat_map(|bar| &bar.figures);
    figures.any(|figure| figure.workload == workload)
}

pub fn judge(bars: &[Bar], report: &Report) -> Vec<Verdict> {
    bars.iter().map(|bar| bar.judge(report)).collect()
}

impl Bar {
    fn judge(&self, report: &Report) -> Verdict {
        let of_rounds = if self.highest { Row::high } else { Row::median };
        let value = |of: &Figure| {
            let row = report.row(of.workload, of.variant, of.threads, of.metric, of.peer);
            row.map(of_rounds)
        };
        let values: Vec<Option<f64>> = self.figures.iter().map(value).collect();
        let (value, detail) = match values[..] {
            [own] if self.highest => (own, "highest round".to_owned()),
            [own] => (own, String::new()),
            [Some(own), Some(over)] => {
                let both = format!("{} / {}", number(own), number(over));
                (Some(own / over), both)
            }
            _ => (None, String::new()),
        };
        Verdict {
            what: self.what.to_owned(),
            value,
            limit: self.limit,
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{peer::Card, report::Table, workloads};

    #[test]
    fn every_bar_names_a_workload_that_exists() {
        let bars = all();
        assert!(bars.len() > 50, "{} bars", bars.len());
        for bar in &bars {
            assert!(!bar.figures.is_empty(), "{bar:?}");
            for figure in &bar.figures {
                let is_known = workloads::ALL
                    .iter()
                    .any(|known| known.name == figure.workload);
                assert!(is_known, "{figure:?}");
            }
        }
        assert!(bars.iter().filter(|bar| bar.limit.is_some()).count() > 40);
    }

    #[test]
    fn a_ratio_is_compared_with_its_bar() {
        let bars = all();
        let first = bars[0].figures[0];
        let mut table = Table::new(first.workload, first.variant, "");
        for (figure, value) in [
            (first, 15.0),
            (bars[0].figures[1], 10.0),
            (bars[1].figures[0], 170.0),
        ] {
            let (of, first) = (
                (figure.workload, figure.variant),
                (first.workload, first.variant),
            );
            assert_eq!(of, first);
            table.add(Card::subject(figure.peer), Ok(vec![NS_PER_OP.of(value)]));
        }
        let mut report = Report::default();
        report.tables.push(table);
        let verdicts = judge(&bars[..3], &report);
        let met: Vec<_> = verdicts.iter().map(Verdict::met).collect();
        assert_eq!(met, [Some(true), Some(false), None]);
    }
}
