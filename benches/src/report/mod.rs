//! What was measured, by round, and what follows from it.

pub mod plot;
pub mod ratio;
mod ratio_plot;
pub mod table;

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use serde::Serialize;

use crate::{
    contest::{APART, Heading, Metric, PACE, Reading, Shown},
    cpu,
    machine::Machine,
    peer::{Card, Problem, Role},
    relay::Common,
    yardstick,
};

/// All figures of a run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Where it was measured.
    pub machine: Machine,
    /// The command line.
    pub command: String,
    /// The headings, in order.
    pub contests: Vec<Titled>,
    /// One row per peer, number of workers and metric.
    pub rows: Vec<Row>,
    /// Who was missing, and why.
    pub missing: Vec<Missing>,
    /// Values at percentiles, for the plots.
    pub curves: Vec<Curve>,
    /// Traces and sizes of the hit ratios that are to be drawn.
    #[serde(skip)]
    pub ratios: Vec<ratio::Line>,
    /// The bars, where they were asked for.
    pub checks: Vec<crate::figures::Verdict>,
    #[serde(skip)]
    file: Option<PathBuf>,
}

/// A heading, as written to the JSON.
#[derive(Debug, Serialize)]
pub struct Titled {
    pub workload: String,
    pub variant: String,
    pub about: String,
}

/// One figure, all its rounds.
#[derive(Debug, Serialize)]
pub struct Row {
    pub workload: String,
    pub variant: String,
    pub threads: usize,
    pub metric: String,
    pub peer: String,
    #[serde(skip)]
    pub kind: Metric,
    #[serde(skip)]
    pub role: Role,
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: Vec<f64>,
    /// Which of the rounds were quiet, as far as anybody looked.
    pub quiet: Vec<bool>,
    /// Which of them ran on cores as far apart as the most did, as far as anybody looked; where they moved meanwhile, by the farther.
    pub alike: Vec<bool>,
}

/// A peer without a figure.
#[derive(Debug, Serialize)]
pub struct Missing {
    pub workload: String,
    pub variant: String,
    pub peer: String,
    pub why: String,
    /// Whether that is a wrong answer, not a missing feature.
    pub failed: bool,
    #[serde(skip)]
    pub role: Role,
}

/// Values at percentiles of one peer.
#[derive(Debug, Serialize)]
pub struct Curve {
    pub workload: String,
    pub variant: String,
    pub peer: String,
    /// Percentile and value.
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// A report that is written to `file` after each contest.
    pub fn new(machine: Machine, command: String, file: Option<PathBuf>) -> Self {
        Self {
            machine,
            command,
            file,
            ..Self::default()
        }
    }

    /// Adds one round of one peer.
    pub fn add(&mut self, heading: &Heading, card: Card, readings: &[Reading]) {
        self.announce(heading);
        for reading in readings {
            let quiet = is_quiet(readings, reading.threads);
            let known = self.rows.iter_mut().find(|row| {
                row.is_of(heading)
                    && row.threads == reading.threads
                    && row.metric == reading.metric.name
                    && row.peer == card.name
            });
            match known {
                Some(row) => row.push(reading.value, quiet),
                None => {
                    let mut row = Row {
                        workload: heading.workload.into(),
                        variant: heading.variant.clone(),
                        threads: reading.threads,
                        metric: reading.metric.name.into(),
                        peer: card.name.into(),
                        kind: reading.metric,
                        role: card.role,
                        median: 0.0,
                        low: 0.0,
                        high: 0.0,
                        rounds: Vec::new(),
                        quiet: Vec::new(),
                        alike: Vec::new(),
                    };
                    row.push(reading.value, quiet);
                    self.rows.push(row);
                }
            }
        }
    }

    /// Of contests that are run together: finds how far apart the workers' cores were in the most of their quiet rounds so far, by number of
    /// workers, and marks the rounds in which they were so.
    pub fn mark_alike(&mut self, headings: &[Heading]) -> BTreeMap<usize, Common> {
        let is_theirs = |row: &Row| headings.iter().any(|heading| row.is_of(heading));
        let mut laps: BTreeMap<usize, Vec<(f64, bool)>> = BTreeMap::new();
        let mut apart = BTreeMap::new();
        for row in (self.rows.iter()).filter(|row| row.kind == APART && is_theirs(row)) {
            let rounds = row.rounds.iter().copied();
            let marked = rounds.zip(row.quiet.iter().copied());
            laps.entry(row.threads).or_default().extend(marked);
            apart.insert(row.lap(), row.rounds.clone());
        }
        let common: BTreeMap<usize, Common> = (laps.into_iter())
            .filter_map(|(threads, laps)| Some((threads, Common::of(&laps)?)))
            .collect();
        for row in &mut self.rows {
            if let (Some(rounds), Some(common)) = (apart.get(&row.lap()), common.get(&row.threads))
            {
                row.alike = rounds.iter().map(|nanos| common.is_like(*nanos)).collect();
                row.sum_up();
            }
        }
        common
    }

    /// Notes that a peer has no figure.
    pub fn add_problem(&mut self, heading: &Heading, card: Card, problem: Problem) {
        self.announce(heading);
        let (why, failed) = match problem {
            Problem::Unsupported(why) => (why.to_owned(), false),
            Problem::Wrong(why) => (why, true),
        };
        self.missing.push(Missing {
            workload: heading.workload.into(),
            variant: heading.variant.clone(),
            peer: card.name.into(),
            why,
            failed,
            role: card.role,
        });
    }

    fn announce(&mut self, heading: &Heading) {
        if !self
            .contests
            .iter()
            .any(|known| known.workload == heading.workload && known.variant == heading.variant)
        {
            self.contests.push(Titled {
                workload: heading.workload.into(),
                variant: heading.variant.clone(),
                about: heading.about.clone(),
            });
        }
    }

    /// Rows of one contest.
    pub fn rows_of<'a>(
        &'a self,
        workload: &'a str,
        variant: &'a str,
    ) -> impl Iterator<Item = &'a Row> {
        self.rows
            .iter()
            .filter(move |row| row.workload == workload && row.variant == variant)
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
        self.rows
            .iter()
            .filter(|row| row.workload == workload && row.variant == variant)
            .find(|row| row.threads == threads && row.metric == metric && row.peer == peer)
    }

    /// Whether a peer had a round that counts with each number of workers, up to as many as there are cores: where workers share them, one is
    /// nearly always beside another.
    pub fn is_done(&self, heading: &Heading, card: Card) -> bool {
        let mut rows = (self.rows_of(heading.workload, &heading.variant))
            .filter(|row| row.peer == card.name && row.threads <= cpu::count())
            .peekable();
        rows.peek().is_some() && rows.all(Row::counts)
    }

    /// How many of the ranked figures had no round that counts.
    pub fn disturbed(&self) -> usize {
        let ranked = |row: &&Row| row.kind.shown == Shown::Ranked;
        (self.rows.iter().filter(ranked))
            .filter(|row| !row.counts())
            .count()
    }

    /// Who was missing from one contest.
    pub(crate) fn missing_of<'a>(
        &'a self,
        heading: &'a Heading,
    ) -> impl Iterator<Item = &'a Missing> {
        self.missing.iter().filter(|missing| {
            missing.workload == heading.workload && missing.variant == heading.variant
        })
    }

    /// Wrong answers and panics.
    pub fn failures(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(|missing| missing.failed)
    }

    /// Lowest median of the peers that are caches (or timers), by number of workers and metric; of those that had a round on cores as far apart
    /// as the most, if there are any: others may be lower for that alone.
    pub(crate) fn best_of(&self, workload: &str, variant: &str) -> BTreeMap<(usize, String), f64> {
        let mut best: BTreeMap<(usize, String), &Row> = BTreeMap::new();
        for row in self
            .rows_of(workload, variant)
            .filter(|row| row.role == Role::Cache)
        {
            let rank = |row: &Row| (!row.alike.contains(&true), row.median);
            best.entry((row.threads, row.metric.clone()))
                .and_modify(|known| {
                    if rank(row) < rank(known) {
                        *known = row;
                    }
                })
                .or_insert(row);
        }
        let median = |(column, row): ((usize, String), &Row)| (column, row.median);
        best.into_iter().map(median).collect()
    }

    /// Writes what there is to the JSON file, if one was asked for, so that an interrupted run leaves its figures.
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

/// Whether what was read with so many workers counts as quiet: so it does where nobody looked.
fn is_quiet(readings: &[Reading], threads: usize) -> bool {
    readings
        .iter()
        .filter(|reading| reading.threads == threads && reading.metric == PACE)
        .all(|pace| pace.value <= yardstick::ALONE)
}

impl Row {
    /// Whether it is of this contest.
    fn is_of(&self, heading: &Heading) -> bool {
        self.workload == heading.workload && self.variant == heading.variant
    }

    /// What it has in common with the other figures of the same laps.
    fn lap(&self) -> (String, String, String, usize) {
        let [workload, variant, peer] =
            [&self.workload, &self.variant, &self.peer].map(String::clone);
        (workload, variant, peer, self.threads)
    }

    /// Notes a round.
    fn push(&mut self, value: f64, quiet: bool) {
        self.rounds.push(value);
        self.quiet.push(quiet);
        self.alike.push(true);
        self.sum_up();
    }

    /// The median is that of the rounds that count; if there are none, of those on cores as far apart as the most, since that makes the greater
    /// difference; if there are none, of the quiet ones; else of all. The spread is that of all.
    fn sum_up(&mut self) {
        let rounds = || self.rounds.iter().zip(self.quiet.iter().zip(&self.alike));
        let of = |counts: &dyn Fn(bool, bool) -> bool| -> Vec<f64> {
            rounds()
                .filter(|(_, (quiet, alike))| counts(**quiet, **alike))
                .map(|(value, _)| *value)
                .collect()
        };
        let mut counting = [
            of(&|quiet, alike| quiet && alike),
            of(&|_, alike| alike),
            of(&|quiet, _| quiet),
            of(&|_, _| true),
        ]
        .into_iter()
        .find(|rounds| !rounds.is_empty())
        .unwrap_or_default();
        counting.sort_unstable_by(f64::total_cmp);
        let middle = counting.len() / 2;
        self.median = if counting.len() % 2 == 1 {
            counting[middle]
        } else {
            (counting[middle - 1] + counting[middle]) / 2.0
        };
        self.low = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        self.high = (self.rounds.iter().copied()).fold(f64::NEG_INFINITY, f64::max);
    }

    /// Whether any round counts: a quiet one, on cores as far apart as the most.
    pub fn counts(&self) -> bool {
        let mut rounds = self.quiet.iter().zip(&self.alike);
        rounds.any(|(quiet, alike)| *quiet && *alike)
    }

    /// The median as the tables show it: with a `~` if no round counts.
    pub fn shown(&self) -> String {
        let mark = if self.counts() { "" } else { "~" };
        table::number(self.median) + mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::NS_PER_OP;

    fn heading(variant: &str) -> Heading {
        Heading {
            workload: "w",
            variant: variant.into(),
            about: String::new(),
        }
    }

    /// A cache's.
    fn card(name: &'static str) -> Card {
        Card {
            name,
            role: Role::Cache,
        }
    }

    #[test]
    fn rounds_become_median_and_spread_and_floors_are_not_the_best() {
        let heading = heading("v");
        let mut report = Report::default();
        for value in [5.0, 1.0, 3.0] {
            report.add(
                &heading,
                Card {
                    name: "a",
                    role: Role::Cache,
                },
                &[Reading::new(1, NS_PER_OP, value)],
            );
        }
        report.add(
            &heading,
            Card {
                name: "floor",
                role: Role::Floor,
            },
            &[Reading::new(1, NS_PER_OP, 0.5)],
        );
        let row = report.rows_of("w", "v").next().unwrap();
        assert_eq!((row.low, row.median, row.high), (1.0, 3.0, 5.0));
        assert_eq!(report.best_of("w", "v")[&(1, "ns/op".to_owned())], 3.0);
    }

    #[test]
    fn rounds_on_cores_otherwise_apart_do_not_count() {
        let headings = [heading("v"), heading("u")];
        let mut report = Report::default();
        let mut add = |heading, name, value, apart| {
            let readings = [
                Reading::new(2, NS_PER_OP, value),
                Reading::new(2, APART, apart),
                Reading::new(1, NS_PER_OP, value),
            ];
            report.add(heading, card(name), &readings);
        };
        for (value, apart) in [(40.0, 33.0), (130.0, 155.0), (140.0, 150.0)] {
            add(&headings[0], "a", value, apart);
        }
        add(&headings[0], "b", 50.0, 31.0);
        add(&headings[1], "a", 150.0, 160.0);
        // Run by itself, before or after.
        let other = heading("other");
        add(&other, "a", 45.0, 33.0);
        let common = report.mark_alike(&headings);
        assert_eq!(
            (common[&2].nanos, common[&2].laps, common[&2].of),
            (155.0, 3, 5)
        );
        assert_eq!(common.len(), 1);
        let row = |variant, threads, peer| {
            let row = report.row("w", variant, threads, "ns/op", peer).unwrap();
            (row.median, row.shown())
        };
        assert_eq!(row("v", 2, "a").0, 135.0);
        assert_eq!(row("v", 1, "a").0, 130.0, "one worker is nowhere apart");
        assert_eq!(row("v", 2, "b"), (50.0, "50.0~".into()));
        assert_eq!(row("other", 2, "a"), (45.0, "45.0".into()));
        let best = report.best_of("w", "v");
        assert_eq!(
            best[&(2, "ns/op".into())],
            135.0,
            "b's laps were shorter otherwise"
        );
    }

    #[test]
    fn what_counts_where_no_round_is_both_quiet_and_alike() {
        let heading = heading("v");
        let mut report = Report::default();
        let mut add = |name, value, pace, apart| {
            let readings = [
                Reading::new(2, NS_PER_OP, value),
                Reading::new(2, PACE, pace),
                Reading::new(2, APART, apart),
            ];
            report.add(&heading, card(name), &readings);
        };
        for _ in 0..3 {
            add("most", 130.0, 1.0, 155.0);
            // Disturbed ones do not say what is common.
            add("loud", 50.0, 1.5, 33.0);
            add("loud", 50.0, 1.5, 33.0);
        }
        add("mixed", 40.0, 1.0, 33.0);
        add("mixed", 200.0, 1.5, 150.0);
        add("near", 41.0, 1.0, 33.0);
        add("near", 70.0, 1.5, 33.0);
        let common = report.mark_alike(std::slice::from_ref(&heading));
        assert_eq!(common[&2].nanos, 155.0);
        let row = |peer| report.row("w", "v", 2, "ns/op", peer).unwrap();
        assert_eq!(row("most").shown(), "130");
        assert_eq!(row("loud").shown(), "50.0~");
        assert_eq!(row("mixed").shown(), "200~", "as far apart before quiet");
        assert_eq!(row("near").shown(), "41.0~");
        let best = report.best_of("w", "v");
        assert_eq!(best[&(2, "ns/op".into())], 130.0, "not of nearer cores");
        // A disturbed one is too high, if anything.
        let readings = [
            Reading::new(2, NS_PER_OP, 120.0),
            Reading::new(2, PACE, 1.5),
            Reading::new(2, APART, 155.0),
        ];
        report.add(&heading, card("busy"), &readings);
        report.mark_alike(std::slice::from_ref(&heading));
        assert_eq!(report.best_of("w", "v")[&(2, "ns/op".into())], 120.0);
    }

    #[test]
    fn a_peer_is_done_when_it_had_a_quiet_round_with_each_number_of_workers() {
        let heading = heading("v");
        let mut report = Report::default();
        let cores = cpu::count();
        let mut add = |name, pace, beyond| {
            let readings = [
                Reading::new(cores, NS_PER_OP, 1.0),
                Reading::new(cores, PACE, pace),
                Reading::new(cores + 1, PACE, beyond),
            ];
            report.add(&heading, card(name), &readings);
            report.is_done(&heading, card("a"))
        };
        assert!(!add("b", 1.0, 1.0), "another's");
        assert!(!add("a", 1.5, 1.0));
        assert!(add("a", 1.0, 1.5), "whatever there is beyond");
        assert!(add("a", 1.5, 1.5));
        // Where nobody looks, nothing is waited for.
        report.add(&heading, card("c"), &[Reading::new(1, NS_PER_OP, 1.0)]);
        assert!(report.is_done(&heading, card("c")));
    }

    #[test]
    fn quiet_rounds_count_alone_and_a_figure_without_any_is_marked() {
        let heading = heading("v");
        let card = card("a");
        let mut report = Report::default();
        let mut add = |value, pace| {
            let readings = [
                Reading::new(1, NS_PER_OP, value),
                Reading::new(1, PACE, pace),
                Reading::new(2, NS_PER_OP, value),
            ];
            report.add(&heading, card, &readings);
            let row = |threads| report.row("w", "v", threads, "ns/op", "a").unwrap();
            (row(1).median, row(1).shown(), row(2).shown())
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(add(9.0, 1.5), (9.0, text("9.00~"), text("9.00")));
        assert_eq!(add(7.0, 1.4), (8.0, text("8.00~"), text("8.00")));
        assert_eq!(add(3.0, 1.1), (3.0, text("3.00"), text("7.00")));
        assert_eq!(add(5.0, 1.0), (4.0, text("4.00"), text("6.00")));
        let row = report.row("w", "v", 1, "ns/op", "a").unwrap();
        assert_eq!((row.low, row.high), (3.0, 9.0));
    }
}
