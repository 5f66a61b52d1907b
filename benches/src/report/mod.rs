//! What was measured, by round, and what follows from it.

pub mod grid;
pub mod plot;
pub mod results;
pub mod table;

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    figure::{Heading, Outcome, Problem, Reading, Shown, Verdict},
    machine::Machine,
    peer::{Card, Role},
};

/// All figures of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Where it was measured.
    pub machine: Machine,
    /// The command line.
    pub command: String,
    /// The headings, in order.
    pub contests: Vec<Heading>,
    /// One row per peer, number of workers and metric.
    pub rows: Vec<Row>,
    /// Peers without a figure, and why.
    pub missing: Vec<Missing>,
    /// Values at percentiles, for the plots.
    pub curves: Vec<Curve>,
    /// The bars, where they were asked for.
    pub verdicts: Vec<Verdict>,
    /// The JSON file that is written after each contest, if one was asked for.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// One figure, all its rounds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub variant: String,
    pub threads: usize,
    pub metric: String,
    pub shown: Shown,
    pub peer: String,
    pub role: Role,
    pub rounds: Vec<f64>,
}

/// A peer without a figure.
#[derive(Debug, Serialize, Deserialize)]
pub struct Missing {
    pub workload: String,
    pub variant: String,
    pub peer: String,
    pub why: String,
    /// Whether that is a wrong answer, not a missing feature.
    pub failed: bool,
    pub role: Role,
}

/// Values at percentiles of one peer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Curve {
    pub title: String,
    pub peer: String,
    /// Percentile and value.
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// Adds one round of one peer: its figures, or why it has none.
    pub fn add(&mut self, heading: &Heading, card: Card, outcome: Outcome) {
        if !self.contests.contains(heading) {
            self.contests.push(heading.clone());
        }
        let (why, failed) = match outcome {
            Ok(readings) => {
                return readings
                    .iter()
                    .for_each(|one| self.add_one(heading, card, one));
            }
            Err(Problem::Unsupported(why)) => (why.to_owned(), false),
            Err(Problem::Wrong(why)) => (why, true),
        };
        self.missing.push(Missing {
            workload: heading.workload.clone(),
            variant: heading.variant.clone(),
            peer: card.name.into(),
            why,
            failed,
            role: card.role,
        });
    }

    fn add_one(&mut self, heading: &Heading, card: Card, reading: &Reading) {
        let (workload, variant, peer) = (&heading.workload, &heading.variant, card.name);
        let (threads, metric) = (reading.threads, reading.metric);
        let mut rows = self.rows.iter_mut();
        let is_it =
            |row: &&mut Row| row.is_of(workload, variant) && row.is_at(threads, metric.name, peer);
        if let Some(row) = rows.find(is_it) {
            return row.rounds.push(reading.value);
        }
        self.rows.push(Row {
            workload: workload.clone(),
            variant: variant.clone(),
            threads,
            metric: metric.name.into(),
            shown: metric.shown,
            peer: peer.into(),
            role: card.role,
            rounds: vec![reading.value],
        });
    }

    /// Whether a workload has been run.
    pub fn has(&self, workload: &str) -> bool {
        self.contests.iter().any(|had| had.workload == workload)
    }

    /// Rows of one contest.
    pub fn rows_of<'a>(&'a self, heading: &'a Heading) -> impl Iterator<Item = &'a Row> {
        let rows = self.rows.iter();
        rows.filter(|row| row.is_of(&heading.workload, &heading.variant))
    }

    /// One row, if it was measured.
    pub fn row(
        &self,
        workload: &str,
        variant: &str,
        threads: usize,
        metric: &str,
        peer: &str,
    ) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.is_of(workload, variant) && row.is_at(threads, metric, peer))
    }

    /// Wrong answers and panics.
    pub fn failures(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(|missing| missing.failed)
    }

    /// Writes what there is to the JSON file, if one was asked for, so that an interrupted run
    /// leaves its figures.
    pub fn save_so_far(&self) {
        if let Err(error) = self.save() {
            eprintln!("cannot write the JSON file: {error}");
        }
    }

    /// Writes the JSON file, if one was asked for.
    pub fn save(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => fs::write(file, serde_json::to_string_pretty(self)?),
            None => Ok(()),
        }
    }
}

impl Row {
    /// Whether it is of this contest.
    fn is_of(&self, workload: &str, variant: &str) -> bool {
        self.workload == workload && self.variant == variant
    }

    /// Whether it is this figure of its contest.
    fn is_at(&self, threads: usize, metric: &str, peer: &str) -> bool {
        self.threads == threads && self.metric == metric && self.peer == peer
    }

    /// The median of the rounds.
    pub fn median(&self) -> f64 {
        let mut rounds = self.rounds.clone();
        rounds.sort_unstable_by(f64::total_cmp);
        let (below, above) = ((rounds.len() - 1) / 2, rounds.len() / 2);
        (rounds[below] + rounds[above]) / 2.0
    }

    /// The lowest round.
    pub fn low(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The highest round.
    pub fn high(&self) -> f64 {
        let rounds = self.rounds.iter().copied();
        rounds.fold(f64::NEG_INFINITY, f64::max)
    }
}
