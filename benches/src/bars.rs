//! The bars: which figure, or which ratio of two figures, must not exceed what. They stand in
//! `bars.md`. `bars` on the command line runs only the workloads that they need, with only the
//! peers that they name.

use std::collections::BTreeSet;

use crate::{
    figure::{NS_PER_OP, Verdict},
    report::{Report, Row, grid::number},
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

    fn row<'a>(&self, report: &'a Report) -> Option<&'a Row> {
        let (workload, variant) = (self.workload, self.variant);
        report.row(workload, variant, self.threads, self.metric, self.peer)
    }
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    what: &'static str,
    /// `None`: to be shown, nothing is demanded.
    limit: Option<f64>,
    /// Whether the highest round counts in place of the median.
    highest: bool,
    figure: Figure,
    over: Option<Figure>,
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
        figure: Figure::parse(figure).unwrap_or_else(|| panic!("bars.md: no figure: {figure}")),
        over: Figure::parse(over),
    }
}

/// The peers that bars name.
pub fn peers(bars: &[Bar]) -> Vec<String> {
    let peers = bars.iter().flat_map(Bar::figures).map(|figure| figure.peer);
    let peers: BTreeSet<&str> = peers.collect();
    peers.into_iter().map(str::to_owned).collect()
}

/// Whether a bar needs figures of a workload.
pub fn need(bars: &[Bar], workload: &str) -> bool {
    let mut figures = bars.iter().flat_map(Bar::figures);
    figures.any(|figure| figure.workload == workload)
}

/// Compares the bars with a report.
pub fn judge(bars: &[Bar], report: &Report) -> Vec<Verdict> {
    bars.iter().map(|bar| bar.judge(report)).collect()
}

impl Bar {
    fn figures(&self) -> impl Iterator<Item = Figure> {
        [Some(self.figure), self.over].into_iter().flatten()
    }

    fn judge(&self, report: &Report) -> Verdict {
        let value = |figure: &Figure| match figure.row(report)? {
            row if self.highest => Some(row.high()),
            row => Some(row.median()),
        };
        let (own, over) = (value(&self.figure), self.over.as_ref().map(value));
        let (value, detail) = match (own, over) {
            (own, None) if self.highest => (own, "highest round".to_owned()),
            (Some(own), Some(Some(over))) => {
                let both = format!("{} / {}", number(own), number(over));
                (Some(own / over), both)
            }
            (own, over) => (own.filter(|_| over.is_none()), String::new()),
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
    use crate::{figure::Heading, peer::Card, workloads};

    #[test]
    fn every_bar_names_a_workload_that_exists() {
        let bars = all();
        assert!(bars.len() > 50, "{} bars", bars.len());
        for figure in bars.iter().flat_map(Bar::figures) {
            let mut workloads = workloads::ALL.iter();
            let exists = workloads.any(|known| known.name == figure.workload);
            assert!(exists, "{figure:?}");
        }
        let demanding = bars.iter().filter(|bar| bar.limit.is_some());
        assert!(demanding.count() > 40);
    }

    #[test]
    fn a_ratio_is_compared_with_its_bar() {
        let bars = all();
        let mut report = Report::default();
        for (figure, value) in [
            (bars[0].figure, 15.0),
            (bars[0].over.unwrap(), 10.0),
            (bars[1].figure, 17.0),
        ] {
            let heading = Heading::new(figure.workload, figure.variant, "");
            let card = Card::subject(figure.peer);
            report.add(&heading, card, Ok(vec![NS_PER_OP.of(value)]));
        }
        let verdicts = judge(&bars[..3], &report);
        let met: Vec<_> = verdicts.iter().map(Verdict::met).collect();
        assert_eq!(met, [Some(true), Some(false), None]);
    }
}
