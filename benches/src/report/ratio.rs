//! The table of hit ratios: a line for each trace and size, a column for each cache.

use std::fmt::Write;

use super::{Report, Row};
use crate::{
    contest::HIT_PERCENT,
    peer::Role,
    workloads::ratio::{NAME, OVER_MEAN, OVER_MOST},
};

const SUBJECT: &str = "wheelhouse";
/// The longest first word of a peer's name.
const COLUMN: usize = 12;

/// One trace at one size.
#[derive(Clone, Debug)]
pub struct Line {
    /// Name of the trace.
    pub trace: String,
    /// Entries allowed.
    pub size: usize,
    /// Whether it counts for the first mean.
    pub reference: bool,
}

impl Line {
    /// As the report calls it.
    pub fn variant(&self) -> String {
        format!("{}, {} entries", self.trace, self.size)
    }
}

/// The whole table.
pub fn table(report: &Report, lines: &[Line]) -> String {
    let columns = columns(report);
    if columns.is_empty() {
        return format!("\n{NAME}: nothing was replayed\n");
    }
    let own = columns.iter().position(|(peer, _)| *peer == SUBJECT);
    let mut text = format!("\n{NAME}: hits, percent of the requests; get, then insert on a miss\n");
    write_titles(&mut text, &columns);
    let (reference, further): (Vec<&Line>, Vec<&Line>) =
        lines.iter().partition(|line| line.reference);
    for part in [reference, further] {
        let mut sums = vec![0.0; columns.len()];
        let mut best_sum = 0.0;
        for line in &part {
            let values: Vec<Option<f64>> = columns
                .iter()
                .map(|(peer, _)| hits(report, line, peer))
                .collect();
            let best = best(&columns, &values);
            let gap = gap(own.and_then(|own| values[own]), best);
            write_line(
                &mut text,
                &line.trace,
                Some(line.size),
                &values,
                [best, gap],
            );
            for (sum, value) in sums.iter_mut().zip(&values) {
                *sum += value.unwrap_or(f64::NAN);
            }
            best_sum += best.unwrap_or(f64::NAN);
        }
        if !part.is_empty() {
            let mean = |sum: f64| (!sum.is_nan()).then(|| sum / part.len() as f64);
            let means: Vec<Option<f64>> = sums.into_iter().map(mean).collect();
            let best = mean(best_sum);
            let gap = gap(own.and_then(|own| means[own]), best);
            let name = format!("mean of {} lines", part.len());
            write_line(&mut text, &name, None, &means, [best, gap]);
        }
    }
    write_excess(&mut text, report, lines, &columns);
    for missing in report
        .missing
        .iter()
        .filter(|missing| missing.workload == NAME)
    {
        let _ = writeln!(
            text,
            "  {}: {}: {}",
            missing.variant, missing.peer, missing.why
        );
    }
    text
}

/// Peers in the order in which they were added, with their ranks.
fn columns(report: &Report) -> Vec<(&str, Role)> {
    let mut columns: Vec<(&str, Role)> = Vec::new();
    for row in report.rows.iter().filter(|row| row.workload == NAME) {
        if !columns.iter().any(|(peer, _)| *peer == row.peer) {
            columns.push((&row.peer, row.role));
        }
    }
    columns
}

fn hits(report: &Report, line: &Line, peer: &str) -> Option<f64> {
    report
        .row(NAME, &line.variant(), 1, HIT_PERCENT.name, peer)
        .map(|row| row.median)
}

fn best(columns: &[(&str, Role)], values: &[Option<f64>]) -> Option<f64> {
    columns
        .iter()
        .zip(values)
        .filter(|((_, role), _)| *role == Role::Cache)
        .filter_map(|(_, value)| *value)
        .reduce(f64::max)
}

/// Names of two words stand on two lines.
fn write_titles(text: &mut String, columns: &[(&str, Role)]) {
    let words = |peer: &str| {
        let (first, second) = peer.split_once([',', ' ']).unwrap_or((peer, ""));
        (first.to_owned(), second.trim().to_owned())
    };
    let mut titles: Vec<(String, String)> = columns.iter().map(|(peer, _)| words(peer)).collect();
    titles.push(("best".into(), "peer".into()));
    titles.push(("wheelhouse".into(), "to it".into()));
    let _ = write!(text, "  {:<20} {:>7}", "trace", "entries");
    for (first, _) in &titles {
        let _ = write!(text, " {first:>COLUMN$}");
    }
    let _ = write!(text, "\n  {:<28}", "");
    for (_, second) in &titles {
        let _ = write!(text, " {second:>COLUMN$}");
    }
    text.push('\n');
}

fn gap(own: Option<f64>, best: Option<f64>) -> Option<f64> {
    Some(own? - best?)
}

fn write_line(
    text: &mut String,
    name: &str,
    size: Option<usize>,
    values: &[Option<f64>],
    [best, gap]: [Option<f64>; 2],
) {
    let size = size.map(|size| size.to_string()).unwrap_or_default();
    let _ = write!(text, "  {name:<20} {size:>7}");
    for value in values.iter().chain([&best]) {
        let cell = value.map_or("-".into(), |value| format!("{value:.2}"));
        let _ = write!(text, " {cell:>COLUMN$}");
    }
    let gap = gap.map_or("-".into(), |gap| format!("{gap:+.2}"));
    let _ = writeln!(text, " {gap:>COLUMN$}");
}

/// How far each cache was over its bound: who keeps more hits more.
fn write_excess(text: &mut String, report: &Report, lines: &[Line], columns: &[(&str, Role)]) {
    for (peer, _) in columns {
        let all = |metric: &str| -> Vec<f64> {
            lines
                .iter()
                .filter_map(|line| {
                    let variant = line.variant();
                    report
                        .rows_of(NAME, &variant)
                        .find(|row: &&Row| row.metric == metric && row.peer == *peer)
                        .map(|row| row.high)
                })
                .collect()
        };
        let (mean, most) = (all(OVER_MEAN.name), all(OVER_MOST.name));
        if !mean.is_empty() {
            let _ = writeln!(
                text,
                "  {peer} held {:.2} % more entries than allowed on average, {:.1} % at most",
                mean.iter().sum::<f64>() / mean.len() as f64,
                most.iter().copied().fold(0.0, f64::max)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contest::{Heading, Reading},
        peer::Card,
    };

    #[test]
    fn the_gap_is_to_the_best_cache_and_not_to_a_limit() {
        let mut report = Report::default();
        let lines = [2, 4].map(|size| Line {
            trace: "loop".into(),
            size,
            reference: true,
        });
        for line in &lines {
            let heading = Heading {
                workload: NAME,
                variant: line.variant(),
                about: String::new(),
            };
            for (name, role, value) in [
                (SUBJECT, Role::Subject, 50.0),
                ("moka", Role::Cache, 47.5),
                ("optimum", Role::Floor, 90.0),
            ] {
                let value = value + line.size as f64;
                report.add(
                    &heading,
                    Card { name, role },
                    &[Reading::new(1, HIT_PERCENT, value)],
                );
            }
        }
        let text = table(&report, &lines);
        let mean = text
            .lines()
            .find(|line| line.contains("mean of 2"))
            .unwrap();
        let cells: Vec<&str> = mean.split_whitespace().skip(4).collect();
        assert_eq!(cells, ["53.00", "50.50", "93.00", "50.50", "+2.50"]);
    }
}
