//! Tables for a terminal.

use std::{collections::BTreeMap, fmt::Write};

use super::{Report, Row};
use crate::{
    contest::{Heading, Metric, Shown},
    peer::Role,
    peers::NOTES,
    relay::Common,
};

/// How many ranked columns stand side by side before the table is broken.
const ABREAST: usize = 3;
const MOKA: &str = "moka";

/// The table of one contest.
pub fn of(report: &Report, heading: &Heading) -> String {
    let rows: Vec<&Row> = report.rows_of(heading.workload, &heading.variant).collect();
    let peers = peers_in_order(&rows);
    let best = report.best_of(heading.workload, &heading.variant);
    let table = Table { rows, peers, best };
    let mut text = format!(
        "\n{} / {}\n  {}\n",
        heading.workload, heading.variant, heading.about
    );
    let columns = table.columns();
    let ranked: Vec<Column> = columns
        .iter()
        .copied()
        .filter(|(_, metric)| metric.shown == Shown::Ranked)
        .collect();
    for block in ranked.chunks(ABREAST) {
        table.write_ranked(&mut text, block);
    }
    for block in 0..=u8::MAX {
        let of_block = |shown| shown == Shown::Median(block) || shown == Shown::Worst(block);
        let plain: Vec<Column> = columns
            .iter()
            .copied()
            .filter(|(_, metric)| of_block(metric.shown))
            .collect();
        if plain.is_empty() {
            break;
        }
        table.write_plain(&mut text, &plain);
    }
    write_missing(&mut text, report, heading);
    text
}

/// How far apart the workers' cores were, below the tables of what was run together.
pub fn of_distances(apart: &BTreeMap<usize, Common>) -> String {
    apart.iter().fold(String::new(), |mut text, (threads, common)| {
        let Common { nanos, laps, of } = common;
        let _ = writeln!(
            text,
            "\n  {threads} threads: {nanos:.0} ns from core to core in {laps} of {of} laps: the most, of the quiet ones if there were any"
        );
        text
    })
}

/// What to know about the peers beside their figures.
pub fn notes() -> String {
    NOTES
        .iter()
        .fold(String::from("\nNotes\n"), |mut text, (peer, note)| {
            let _ = writeln!(text, "  {peer}: {note}");
            text
        })
}

/// Number of workers and metric.
type Column = (usize, Metric);

struct Table<'a> {
    rows: Vec<&'a Row>,
    peers: Vec<&'a str>,
    best: BTreeMap<(usize, String), f64>,
}

/// wheelhouse first, floors last.
fn peers_in_order<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut peers: Vec<(bool, &str)> = Vec::new();
    for row in rows {
        let entry = (row.role == Role::Floor, row.peer.as_str());
        if !peers.contains(&entry) {
            peers.push(entry);
        }
    }
    peers.sort_by_key(|(floor, peer)| (*floor, !peer.starts_with("wheelhouse")));
    peers.into_iter().map(|(_, peer)| peer).collect()
}

impl Table<'_> {
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for row in &self.rows {
            if !columns.contains(&(row.threads, row.kind)) {
                columns.push((row.threads, row.kind));
            }
        }
        columns
    }

    fn row(&self, peer: &str, (threads, metric): Column) -> Option<&Row> {
        self.rows
            .iter()
            .copied()
            .find(|row| row.peer == peer && row.threads == threads && row.kind == metric)
    }

    fn write_ranked(&self, text: &mut String, columns: &[Column]) {
        let beside_moka = self.peers.contains(&MOKA);
        let moka = |cell: String| {
            if beside_moka {
                format!(" {cell:>6}")
            } else {
                String::new()
            }
        };
        let several = self.columns().iter().any(|(threads, _)| *threads != 1);
        let mut titles = format!("  {:<28}", "");
        let mut names = titles.clone();
        for (threads, metric) in columns {
            let title = match (several, threads) {
                (false, _) => metric.name.to_owned(),
                (true, 1) => format!("{}, 1 thread", metric.name),
                (true, _) => format!("{}, {threads} threads", metric.name),
            };
            let under = format!(
                "  {:>8} {:>15}{} {:>6}",
                "median",
                "low-high",
                moka("/moka".into()),
                "/best"
            );
            let _ = write!(titles, "  {title:<0$}", under.len() - 2);
            names.push_str(&under);
        }
        let _ = writeln!(text, "{}\n{names}", titles.trim_end());
        for peer in &self.peers {
            let mut line = format!("  {peer:<28}");
            for &column in columns {
                let Some(row) = self.row(peer, column) else {
                    let _ = write!(
                        line,
                        "  {:>8} {:>15}{} {:>6}",
                        "-",
                        "",
                        moka(String::new()),
                        ""
                    );
                    continue;
                };
                let to_moka = ratio(row.median, self.row(MOKA, column).map(|moka| moka.median));
                let best = self
                    .best
                    .get(&(column.0, column.1.name.to_owned()))
                    .copied();
                let range = format!("{}-{}", number(row.low), number(row.high));
                let (median, to_best) = (row.shown(), ratio(row.median, best));
                let _ = write!(
                    line,
                    "  {median:>8} {range:>15}{} {to_best:>6}",
                    moka(to_moka)
                );
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }

    fn write_plain(&self, text: &mut String, columns: &[Column]) {
        let several = columns.iter().any(|(threads, _)| *threads != columns[0].0);
        let titles: Vec<String> = columns
            .iter()
            .map(|(threads, metric)| {
                if several {
                    format!("{} {threads}t", metric.name)
                } else {
                    metric.name.to_owned()
                }
            })
            .collect();
        let _ = write!(text, "  {:<28}", "");
        for title in &titles {
            let _ = write!(text, "  {title:>8}");
        }
        text.push('\n');
        for peer in &self.peers {
            let _ = write!(text, "  {peer:<28}");
            for (&column, title) in columns.iter().zip(&titles) {
                let worst = matches!(column.1.shown, Shown::Worst(_));
                let cell = self.row(peer, column).map_or("-".into(), |row| {
                    number(if worst { row.high } else { row.median })
                });
                let _ = write!(text, "  {cell:>0$}", title.chars().count().max(8));
            }
            text.push('\n');
        }
    }
}

fn write_missing(text: &mut String, report: &Report, heading: &Heading) {
    let mut absent: Vec<(&str, Vec<&str>)> = Vec::new();
    for missing in report.missing_of(heading) {
        if missing.failed {
            let _ = writeln!(text, "  FAILED {}: {}", missing.peer, missing.why);
        } else if let Some((_, peers)) = absent.iter_mut().find(|(why, _)| *why == missing.why) {
            peers.push(&missing.peer);
        } else {
            absent.push((&missing.why, vec![&missing.peer]));
        }
    }
    for (why, peers) in absent {
        let _ = writeln!(text, "  not here ({why}): {}", peers.join(", "));
    }
}

fn ratio(value: f64, to: Option<f64>) -> String {
    to.filter(|to| *to > 0.0)
        .map_or("-".into(), |to| format!("{:.2}", value / to))
}

/// Three significant digits, no exponent.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.1 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        size if size < 100_000.0 => format!("{value:.0}"),
        size if size < 100_000_000.0 => format!("{:.1}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(0.0123), "0.012");
        assert_eq!(number(1.239), "1.24");
        assert_eq!(number(12.39), "12.4");
        assert_eq!(number(1239.4), "1239");
        assert_eq!(number(123_900.0), "123.9k");
    }
}
