//! What was measured, by round, and what follows from it.

pub mod plot;
pub mod summary;
pub mod table;

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    figure::{Metric, Outcome, Problem, Verdict},
    peer::Card,
};

/// All figures of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub machine: String,
    pub command: String,
    pub tables: Vec<Table>,
    /// Values at percentiles, for the plots.
    pub curves: Vec<Curve>,
    /// The bars, where they were asked for.
    pub verdicts: Vec<Verdict>,
    /// The JSON file that is written after each contest, if one was asked for.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// One comparison.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// Name on the command line.
    pub workload: String,
    /// Which expiry, which size.
    pub variant: String,
    /// One line for the reader.
    pub about: String,
    /// Whether this is one line of a table that has a column for each peer. Lines of the same
    /// workload and text share such a table. Otherwise the table has a line for each peer.
    pub is_line: bool,
    /// One for each peer, number of workers and metric.
    pub rows: Vec<Row>,
    /// Peers without figures, and why.
    pub missing: Vec<(Card, Problem)>,
}

/// One figure, all its rounds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    pub card: Card,
    pub threads: usize,
    pub metric: Metric,
    pub rounds: Vec<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Curve {
    pub title: String,
    pub peer: String,
    /// Percentile and value.
    pub points: Vec<(f64, f64)>,
}

impl Report {
    pub fn row(
        &self,
        workload: &str,
        variant: &str,
        threads: usize,
        metric: &str,
        peer: &str,
    ) -> Option<&Row> {
        let mut tables = self.tables.iter();
        let is_it = |table: &&Table| table.workload == workload && table.variant == variant;
        tables.find(is_it)?.row(threads, metric, peer)
    }

    /// Wrong answers and panics: in which table, of which peer, and what.
    pub fn failures(&self) -> impl Iterator<Item = (&Table, &Card, &str)> {
        self.tables.iter().flat_map(|table| {
            let missing = table.missing.iter();
            missing.filter_map(move |(card, problem)| match problem {
                Problem::Wrong(why) => Some((table, card, &**why)),
                Problem::Unsupported(_) => None,
            })
        })
    }

    /// The names of all peers that were asked to take part, some more than once.
    pub fn peers(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().flat_map(|table| {
            let measured = table.rows.iter().map(|row| row.card.name);
            measured.chain(table.missing.iter().map(|(card, _)| card.name))
        })
    }

    /// Writes the JSON file, if one was asked for.
    pub fn save(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => fs::write(file, serde_json::to_string_pretty(self)?),
            None => Ok(()),
        }
    }
}

impl Table {
    pub fn new(workload: &str, variant: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            workload: workload.into(),
            variant: variant.into(),
            about: about.into(),
            ..Self::default()
        }
    }

    /// As the tables are headed.
    pub fn title(&self) -> String {
        format!("{}: {}", self.workload, self.variant)
    }

    /// Adds one round of one peer: its figures, or why it has none.
    pub fn add(&mut self, card: Card, outcome: Outcome) {
        let readings = match outcome {
            Ok(readings) => readings,
            Err(problem) => return self.missing.push((card, problem)),
        };
        for reading in readings {
            let (threads, metric) = (reading.threads, reading.metric);
            let mut rows = self.rows.iter_mut();
            match rows.find(|row| row.is(threads, metric.name, card.name)) {
                Some(row) => row.rounds.push(reading.value),
                None => self.rows.push(Row {
                    card,
                    threads,
                    metric,
                    rounds: vec![reading.value],
                }),
            }
        }
    }

    pub fn row(&self, threads: usize, metric: &str, peer: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.is(threads, metric, peer))
    }
}

impl Row {
    fn is(&self, threads: usize, metric: &str, peer: &str) -> bool {
        self.threads == threads && self.metric.name == metric && self.card.name == peer
    }

    pub fn median(&self) -> f64 {
        let mut rounds = self.rounds.clone();
        rounds.sort_unstable_by(f64::total_cmp);
        let (below, above) = ((rounds.len() - 1) / 2, rounds.len() / 2);
        (rounds[below] + rounds[above]) / 2.0
    }

    pub fn low(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn high(&self) -> f64 {
        let rounds = self.rounds.iter().copied();
        rounds.fold(f64::NEG_INFINITY, f64::max)
    }
}
