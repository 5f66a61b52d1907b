//! What one run was asked for.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    io::{IsTerminal, Write, stderr},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Settings of a run, and its progress line.
#[derive(Debug)]
pub struct Setup {
    /// Smaller sets, fewer operations, fewer rounds.
    pub quick: bool,
    /// Rounds of every contest but the long ones.
    pub rounds: usize,
    /// Numbers of workers, ascending.
    pub threads: Vec<usize>,
    /// Times are CPU time of the workers, not elapsed time.
    pub cpu: bool,
    /// Peers to run; empty for all.
    pub only: Vec<String>,
    /// How often each trace is replayed.
    pub replays: usize,
    /// Files and folders of traces; empty for the default folder.
    pub traces: Vec<PathBuf>,
    /// Folder for plots, if any are wanted.
    pub plots: Option<PathBuf>,
    /// How long one peer may run in one variant of a workload before it takes no further rounds.
    pub patience: Option<Duration>,
    /// The names in `only` that some peer had.
    met: RefCell<BTreeSet<String>>,
    started: Instant,
    /// Columns of the progress line that is shown.
    width: Cell<usize>,
}

impl Setup {
    /// A run of `rounds` rounds over `threads` numbers of workers.
    pub fn new(quick: bool, rounds: usize, threads: Vec<usize>, only: Vec<String>) -> Self {
        Self {
            quick,
            cpu: false,
            rounds,
            threads,
            only,
            replays: 1,
            traces: Vec::new(),
            plots: None,
            patience: None,
            met: RefCell::default(),
            started: Instant::now(),
            width: Cell::new(0),
        }
    }

    /// `full`, or `quick` in a quick run.
    pub fn size(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// The asked numbers of workers that do not exceed the cores.
    pub fn threads_within_cores(&self) -> Vec<usize> {
        let cores = crate::cpu::count();
        self.threads
            .iter()
            .copied()
            .filter(|&threads| threads <= cores)
            .collect()
    }

    /// The largest asked number of workers.
    pub fn most_threads(&self) -> usize {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    /// Whether `peer` takes part: named in full, or up to a comma or a blank.
    pub fn wants(&self, peer: &str) -> bool {
        let is_meant = |only: &String| {
            peer.strip_prefix(only.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([',', ' ']))
        };
        let mut meant = self.only.iter().filter(|only| is_meant(only)).peekable();
        let wanted = self.only.is_empty() || meant.peek().is_some();
        self.met.borrow_mut().extend(meant.cloned());
        wanted
    }

    /// The names in `only` that no peer had so far.
    pub fn unmet(&self) -> Vec<&str> {
        let met = self.met.borrow();
        let unmet = self.only.iter().filter(|only| !met.contains(*only));
        unmet.map(String::as_str).collect()
    }

    /// Shows where the run is.
    pub fn step(&self, step: &str) {
        let seconds = self.started.elapsed().as_secs();
        let line = format!("{:2}:{:02} {step}", seconds / 60, seconds % 60);
        let width = self
            .width
            .replace(line.chars().count())
            .max(line.chars().count());
        if stderr().is_terminal() {
            eprint!("\r{line:<width$}");
        } else {
            eprintln!("{line}");
        }
        // A progress line that cannot be shown is no reason to stop measuring.
        let _ = stderr().flush();
    }

    /// Clears the progress line, so that a table can follow.
    pub fn clear(&self) {
        let width = self.width.replace(0);
        if stderr().is_terminal() {
            eprint!("\r{:width$}\r", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_chosen_by_name_or_by_its_beginning() {
        let only = |names: &[&str]| {
            let names = names.iter().map(|name| name.to_string()).collect();
            Setup::new(true, 1, vec![1], names)
        };
        assert!(only(&[]).wants("moka"));
        let setup = only(&["moka", "wheelhouse, idle limit", "no such peer"]);
        assert_eq!(
            setup.unmet(),
            ["moka", "wheelhouse, idle limit", "no such peer"]
        );
        assert!(setup.wants("moka") && setup.wants("moka, driven every 10 ms"));
        assert!(!setup.wants("mini-moka") && !setup.wants("mokaccino"));
        assert!(!setup.wants("wheelhouse") && setup.wants("wheelhouse, idle limit"));
        assert_eq!(setup.unmet(), ["no such peer"]);
    }
}
