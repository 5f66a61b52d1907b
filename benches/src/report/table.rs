//! Tables, as Markdown that a terminal shows as well.

use std::iter;

use super::{
    Report, Row,
    grid::{grid, number},
};
use crate::{
    figure::{HIT_PERCENT, Heading, Shown, Verdict},
    peer::Role,
};

/// The cache that this package is about.
const SUBJECT: &str = "wheelhouse";

/// The table of one contest, with a line for each peer: wheelhouse first, floors last.
pub fn of(report: &Report, heading: &Heading) -> String {
    let rows: Vec<&Row> = report.rows_of(heading).collect();
    let (mut peers, mut columns) = (Vec::new(), Vec::new());
    for row in &rows {
        let (is_floor, is_other) = (row.role == Role::Floor, !row.peer.starts_with(SUBJECT));
        add_new(&mut peers, (is_floor, is_other, &*row.peer));
        add_new(&mut columns, (row.threads, &*row.metric, row.shown));
    }
    peers.sort_by_key(|(floor, other, _)| (*floor, *other));
    let several = columns.iter().any(|(threads, ..)| *threads != 1);
    let mut titles = vec![String::new()];
    let mut lines: Vec<_> = peers
        .iter()
        .map(|(.., peer)| vec![String::from(*peer)])
        .collect();
    for (threads, metric, shown) in columns {
        titles.push(match (several, threads) {
            (false, _) => metric.to_owned(),
            (true, 1) => format!("{metric}, 1 thread"),
            (true, _) => format!("{metric}, {threads} threads"),
        });
        if shown == Shown::Ranked {
            titles.push("to best".into());
        }
        let is_of = |row: &&&Row| row.threads == threads && row.metric == metric;
        let column: Vec<&Row> = rows.iter().filter(is_of).copied().collect();
        let caches = column.iter().filter(|row| row.role == Role::Cache);
        let best = caches.map(|row| row.median()).reduce(f64::min);
        for ((.., peer), line) in iter::zip(&peers, &mut lines) {
            let row = column.iter().find(|row| row.peer == *peer);
            match shown {
                Shown::Median => line.push(cell(row.map(|row| row.median()), number)),
                Shown::Worst => line.push(cell(row.map(|row| row.high()), number)),
                Shown::Ranked => {
                    let best = best.filter(|best| *best > 0.0);
                    let to_best = row.zip(best).map(|(row, best)| row.median() / best);
                    line.push(cell(row, |row| spread(row)));
                    line.push(cell(to_best, |ratio| format!("{ratio:.2}")));
                }
            }
        }
    }
    let (workload, variant, about) = (&heading.workload, &heading.variant, &heading.about);
    let mut text = format!("\n### {workload}: {variant}\n\n{about}.\n\n");
    if !peers.is_empty() {
        text += &grid(&titles, &lines);
    }
    text + &missing(report, heading)
}

fn add_new<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}

/// The table of contests that are a line each: hits in percent, with a column for each peer.
pub fn of_lines(report: &Report, headings: &[&Heading]) -> String {
    let Some(first) = headings.first() else {
        return String::new();
    };
    let mut peers: Vec<(&str, Role)> = Vec::new();
    for row in headings.iter().flat_map(|heading| report.rows_of(heading)) {
        add_new(&mut peers, (&*row.peer, row.role));
    }
    let mut titles = vec![String::new()];
    titles.extend(peers.iter().map(|(peer, _)| (*peer).to_owned()));
    titles.extend(["best peer".into(), "wheelhouse to it".into()]);
    let line = |name: String, hits: &[Option<f64>]| {
        let of_caches = iter::zip(&peers, hits).filter(|((_, role), _)| *role == Role::Cache);
        let best = of_caches.filter_map(|(_, hits)| *hits).reduce(f64::max);
        let subject = peers.iter().position(|(peer, _)| *peer == SUBJECT);
        let gap = subject.and_then(|own| Some(hits[own]? - best?));
        let mut cells = vec![name];
        for hits in hits.iter().chain([&best]) {
            cells.push(cell(*hits, |hits| format!("{hits:.2}")));
        }
        cells.push(cell(gap, |gap| format!("{gap:+.2}")));
        cells
    };
    let mut lines = Vec::new();
    let mut sums = vec![Some(0.0); peers.len()];
    for heading in headings {
        let (workload, variant) = (&heading.workload, &heading.variant);
        let row = |peer| report.row(workload, variant, 1, HIT_PERCENT.name, peer);
        let hits = peers.iter().map(|(peer, _)| row(peer).map(Row::median));
        let hits: Vec<Option<f64>> = hits.collect();
        for (sum, hits) in iter::zip(&mut sums, &hits) {
            *sum = sum.zip(*hits).map(|(sum, hits)| sum + hits);
        }
        lines.push(line(variant.clone(), &hits));
    }
    let count = headings.len();
    if count > 1 {
        let mean = |sum: &Option<f64>| sum.map(|sum| sum / count as f64);
        let means: Vec<Option<f64>> = sums.iter().map(mean).collect();
        lines.push(line(format!("mean of {count} lines"), &means));
    }
    let mut text = format!("\n### {}\n\n{}.\n\n", first.workload, first.about);
    text += &grid(&titles, &lines);
    let missing = headings.iter().map(|heading| missing(report, heading));
    text + &missing.collect::<String>()
}

/// The table of bars.
pub fn of_bars(verdicts: &[Verdict]) -> String {
    let titles = ["", "measured", "bar", "", "from"].map(String::from);
    let lines = verdicts.iter().map(|verdict| {
        let met = match verdict.met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None if verdict.value.is_none() => "no data",
            None => "shown",
        };
        vec![
            verdict.what.clone(),
            cell(verdict.value, number),
            cell(verdict.limit, |limit| format!("<= {}", number(limit))),
            met.into(),
            verdict.detail.clone(),
        ]
    });
    let lines: Vec<_> = lines.collect();
    format!("\n### Bars\n\n{}", grid(&titles, &lines))
}

/// Which peers have no figures, and why.
fn missing(report: &Report, heading: &Heading) -> String {
    let (workload, variant) = (&heading.workload, &heading.variant);
    let (mut text, mut absent) = (String::new(), Vec::<(&str, String)>::new());
    for missing in &report.missing {
        if missing.workload != *workload || missing.variant != *variant {
            continue;
        }
        let (peer, why) = (&missing.peer, &*missing.why);
        if missing.failed {
            text += &format!("\nFAILED {peer}: {why}\n");
        } else if let Some((_, peers)) = absent.iter_mut().find(|(known, _)| *known == why) {
            *peers += &format!(", {peer}");
        } else {
            absent.push((why, peer.clone()));
        }
    }
    for (why, peers) in absent {
        text += &format!("\nNot in this table ({why}): {peers}.\n");
    }
    text
}

fn spread(row: &Row) -> String {
    let [low, median, high] = [row.low(), row.median(), row.high()].map(number);
    match row.rounds.len() {
        1 => median,
        _ => format!("{median} ({low}-{high})"),
    }
}

fn cell<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or("-".into(), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{figure::NS_PER_OP, peer::Card};

    fn cells(text: &str, first: &str) -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(first)).unwrap();
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn a_table_has_medians_spreads_and_ratios_to_the_best_cache() {
        let heading = Heading::new("w", "v", "About it");
        let mut report = Report::default();
        let values = [
            ("wheelhouse", Role::Subject, &[5.0, 1.0, 3.0][..]),
            ("peer", Role::Cache, &[6.0, 6.0, 9.0]),
            ("map", Role::Floor, &[0.5]),
        ];
        for (name, role, rounds) in values {
            for &value in rounds {
                let reading = NS_PER_OP.of(value);
                report.add(&heading, Card { name, role }, Ok(vec![reading]));
            }
        }
        let text = of(&report, &heading);
        assert_eq!(cells(&text, "| wheel")[2..4], ["3.00 (1.00-5.00)", "0.50"]);
        assert_eq!(cells(&text, "| peer")[2..4], ["6.00 (6.00-9.00)", "1.00"]);
        assert_eq!(cells(&text, "| map")[2..4], ["0.50", "0.08"]);
    }

    #[test]
    fn the_gap_is_to_the_best_cache_and_not_to_a_limit() {
        let mut report = Report::default();
        let headings = ["2 entries", "4 entries"].map(|variant| Heading {
            is_line: true,
            ..Heading::new("ratio", variant, "About it")
        });
        for (heading, more) in iter::zip(&headings, [2.0, 4.0]) {
            for (name, role, hits) in [
                (SUBJECT, Role::Subject, 50.0),
                ("moka", Role::Cache, 47.5),
                ("optimum", Role::Floor, 90.0),
            ] {
                let reading = HIT_PERCENT.of(hits + more);
                report.add(heading, Card { name, role }, Ok(vec![reading]));
            }
        }
        let text = of_lines(&report, &headings.each_ref());
        let mean = cells(&text, "| mean of 2 lines");
        assert_eq!(mean[2..7], ["53.00", "50.50", "93.00", "50.50", "+2.50"]);
    }
}
