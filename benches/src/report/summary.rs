//! One screen of a run: the figures that a user asks for first, beside the closest peers.

use super::{
    Report, Row, Table,
    table::{grid, number, wrapped},
};
use crate::figure::{HIT_PERCENT, NS_PER_OP};

/// A peer's rounds differ by more than this on a machine that was not quiet.
const QUIET_SPREAD: f64 = 1.15;

/// The columns.
const PEERS: [&str; 7] = [
    "wheelhouse",
    "moka",
    "quick_cache+deadline",
    "quick_cache+Instant",
    "quick_cache+DelayQueue",
    "fibre_cache",
    "wheelhouse, recent time",
];

const CREATED: &str = "per-entry expiry";
const WRITTEN: &str = "per-entry expiry, set by each write";

/// A row of the summary, and the table of the report that it comes from.
struct Line {
    about: &'static str,
    workload: &'static str,
    variant: &'static str,
    threads: usize,
    metric: &'static str,
}

const fn line(
    about: &'static str,
    workload: &'static str,
    variant: &'static str,
    threads: usize,
) -> Line {
    let metric = NS_PER_OP.name;
    Line {
        about,
        workload,
        variant,
        threads,
        metric,
    }
}

const LINES: [Line; 14] = [
    line("hit, 1,000 entries", "hit-1k", CREATED, 1),
    line("hit, 11,000 entries", "hit-zipf", CREATED, 1),
    line("- two threads", "hit-zipf", CREATED, 2),
    line("hit, 100,000 entries", "hit-100k", CREATED, 1),
    line("hit, a million entries", "hit-uniform", CREATED, 1),
    line("replace", "replace", WRITTEN, 1),
    line("- two threads", "replace", WRITTEN, 2),
    line("three reads to one replacement", "mix", WRITTEN, 1),
    line("- two threads", "mix", WRITTEN, 2),
    line("look up, insert if absent", "evict", WRITTEN, 1),
    line("- two threads", "evict", WRITTEN, 2),
    line("insert a new key", "grow", WRITTEN, 1),
    line("insert one, invalidate the oldest", "cancel", WRITTEN, 1),
    Line {
        about: "bytes for each entry",
        workload: "memory",
        variant: WRITTEN,
        threads: 1,
        metric: "B/entry",
    },
];

/// The summary as Markdown: what a repository keeps of a run.
pub fn markdown(report: &Report) -> String {
    let mut titles = vec![String::new()];
    titles.extend(PEERS.map(String::from));
    let rows: Vec<Vec<String>> = LINES.iter().map(|line| line.cells(report)).collect();
    let text = format!(
        "# Results\n\nWritten by `{}`, which writes all its tables to `target/wheelhouse-bench`. \
         What the figures mean stands in [README.md](README.md).\n\n{}\nNanoseconds per \
         operation, `u64` to `u64`, each entry with a deadline of its own: medians of rounds. A \
         figure with `~` is from one round, or its rounds differ by more than 15 %: take it as a \
         ratio within its row. The forms of quick_cache keep a deadline in the value: by quanta's \
         clock, by `Instant`, and with a thread that removes on time.\n\n{}{}",
        report.command,
        report.machine,
        grid(&titles, &rows),
        hit_ratios(report)
    );
    text.lines().map(wrapped).collect()
}

impl Line {
    fn cells(&self, report: &Report) -> Vec<String> {
        let mut cells = vec![self.about.to_owned()];
        for peer in PEERS {
            let row = report.row(self.workload, self.variant, self.threads, self.metric, peer);
            cells.push(match row {
                Some(row) => cell(row),
                None => "-".to_owned(),
            });
        }
        cells
    }
}

fn cell(row: &Row) -> String {
    let median = number(row.median());
    let is_quiet = row.rounds.len() > 1 && row.high() <= row.low() * QUIET_SPREAD;
    // Sizes are exact.
    if is_quiet || row.metric != NS_PER_OP {
        median
    } else {
        format!("~{median}")
    }
}

/// The mean over all replayed traces, for each cache that replayed all of them: at the sizes of the
/// table, and for each size of a small cache.
fn hit_ratios(report: &Report) -> String {
    let tables = |workload| {
        let tables = report.tables.iter();
        tables.filter(move |table: &&Table| table.workload == workload)
    };
    let all: Vec<_> = tables("ratio").collect();
    if all.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\nHit ratios in percent, the mean of {} replays of real traces: {}.\n\n",
        all.len(),
        means(&all)
    );
    let small: Vec<_> = tables("ratio-small").collect();
    for of_size in small.chunk_by(|a, b| a.about == b.about) {
        let (_, size) = of_size[0].variant.rsplit_once(", ").expect("trace, size");
        text += &format!(
            "- caches of {size} entries, {} traces: {}\n",
            of_size.len(),
            means(of_size)
        );
    }
    text
}

/// The means over these tables, for each cache that has a row in all of them.
fn means(tables: &[&Table]) -> String {
    let mut means = Vec::new();
    for card in tables[0].rows.iter().map(|row| row.card) {
        let mut sum = 0.0;
        let mut count = 0;
        for table in tables {
            if let Some(row) = table.row(1, HIT_PERCENT.name, card.name) {
                sum += row.median();
                count += 1;
            }
        }
        if count == tables.len() {
            means.push(format!("{} {:.2}", card.name, sum / count as f64));
        }
    }
    means.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{peer::Card, report::Table};

    #[test]
    fn a_figure_whose_rounds_differ_is_marked() {
        let mut table = Table::new("hit-1k", CREATED, "");
        for (peer, rounds) in [("wheelhouse", [10.0, 11.0]), ("moka", [100.0, 120.0])] {
            for round in rounds {
                table.add(Card::cache(peer), Ok(vec![NS_PER_OP.of(round)]));
            }
        }
        let report = Report {
            tables: vec![table],
            ..Report::default()
        };
        assert_eq!(LINES[0].cells(&report)[1..4], ["10.5", "~110", "-"]);
        let text = markdown(&report);
        assert!(
            text.lines()
                .all(|line| line.starts_with('|') || line.len() <= 100)
        );
        assert!(text.lines().count() < 50, "one screen");
    }
}
