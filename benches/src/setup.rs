//! What one run was asked for.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::builder::RangedU64ValueParser;

use crate::{clock, cpu};

/// Where figures go that are not to be committed.
const SCRATCH: &str = "target/wheelhouse-bench";

fn within(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

/// Settings of a run, as the command line gives them.
#[derive(Debug, Default, clap::Args)]
pub struct Setup {
    /// smaller sets, fewer operations, two rounds: a check that all works, not a measurement
    #[arg(long)]
    pub quick: bool,

    /// rounds of each contest [default: 5, quick: 2, ratio: 1]; long contests take fewer
    #[arg(long, value_parser = within(1000))]
    pub rounds: Option<usize>,

    /// numbers of workers [default: 1, 2, all cores, twice all cores; quick: 1, 2]
    #[arg(long, value_delimiter = ',', value_parser = within(1024))]
    pub threads: Vec<usize>,

    /// run only these peers: the name in the tables, or its part before a comma or a blank; between
    /// two peers write a comma without a blank
    #[arg(long, value_name = "PEERS")]
    pub only: Vec<String>,

    /// traces for ratio, files or folders [default: ../shared/data/traces]
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    pub traces: Vec<PathBuf>,

    /// count the CPU time of the workers instead of elapsed time: for a machine that is not quiet.
    /// What a cache does on threads of its own is not in it
    #[arg(long)]
    pub cpu: bool,

    /// write all figures, each round of them, to this file
    /// [default for all: target/wheelhouse-bench/figures.json]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// write the tables as Markdown to this file
    /// [default for all: target/wheelhouse-bench/RESULTS.md]
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,

    /// write one screen of the figures as Markdown to this file [default for all:
    /// benches/RESULTS.md; for a quick run target/wheelhouse-bench/SUMMARY.md]
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,

    /// write plots into this folder [default for all: benches/plots; for a quick run
    /// target/wheelhouse-bench]
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,

    /// How long one peer may run in one variant of a workload before it takes no further rounds.
    #[arg(skip)]
    pub patience: Option<Duration>,
}

impl Setup {
    /// Names the files that were not named, for a run that writes all of them.
    pub fn name_files(&mut self) {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let scratch = Path::new(SCRATCH);
        let (summary, plots) = if self.quick {
            (scratch.join("SUMMARY.md"), scratch.to_owned())
        } else {
            (package.join("RESULTS.md"), package.join("plots"))
        };
        self.json.get_or_insert(scratch.join("figures.json"));
        self.results.get_or_insert(scratch.join("RESULTS.md"));
        self.summary.get_or_insert(summary);
        self.svg.get_or_insert(plots);
    }

    /// `full`, or `quick` in a quick run.
    pub fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Rounds of every contest but the long ones.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(self.size(5, 2))
    }

    /// The asked numbers of workers, ascending.
    pub fn all_threads(&self) -> Vec<usize> {
        let cores = cpu::count();
        let asked = match &self.threads[..] {
            [] if self.quick => &[1, 2][..],
            [] => &[1, 2, cores, cores * 2],
            asked => asked,
        };
        let ascending: BTreeSet<usize> = asked.iter().copied().collect();
        ascending.into_iter().collect()
    }

    /// The asked numbers of workers that do not exceed the cores.
    pub fn threads_within_cores(&self) -> Vec<usize> {
        let all = self.all_threads().into_iter();
        all.filter(|&threads| threads <= cpu::count()).collect()
    }

    /// The largest asked number of workers.
    pub fn most_threads(&self) -> usize {
        self.all_threads().last().copied().unwrap_or(1)
    }

    /// The peers in `only`, apart at each comma that no blank follows: names have commas, too.
    pub fn asked_peers(&self) -> Vec<String> {
        let within = self.only.join(",").replace(", ", "\n");
        let names = within.split(',').filter(|name| !name.is_empty());
        names.map(|name| name.replace('\n', ", ")).collect()
    }

    /// Whether `peer` takes part.
    pub fn wants(&self, peer: &str) -> bool {
        let asked = self.asked_peers();
        asked.is_empty() || asked.iter().any(|asked| is_meant(asked, peer))
    }

    /// Says where the run is.
    pub fn step(&self, step: &str) {
        let seconds = clock::nanos() / 1_000_000_000;
        eprintln!("{:2}:{:02} {step}", seconds / 60, seconds % 60);
    }
}

/// Whether `peer` is asked for by `asked`: its name in full, or up to a comma or a blank.
pub fn is_meant(asked: &str, peer: &str) -> bool {
    let rest = peer.strip_prefix(asked);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_chosen_by_name_or_by_its_beginning() {
        let mut setup = Setup::default();
        assert!(setup.wants("moka"));
        let only = ["moka,wheelhouse, idle limit", "papaya,"];
        setup.only = only.map(String::from).to_vec();
        let asked = ["moka", "wheelhouse, idle limit", "papaya"];
        assert_eq!(setup.asked_peers(), asked);
        assert!(setup.wants("moka") && setup.wants("moka, driven every 10 ms"));
        assert!(!setup.wants("mini-moka") && !setup.wants("mokaccino"));
        assert!(!setup.wants("wheelhouse") && setup.wants("wheelhouse, idle limit"));
    }
}
