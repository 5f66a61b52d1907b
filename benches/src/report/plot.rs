//! SVG plots: bars for each contest, curves for latencies.

use std::{error::Error, fs, path::Path};

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Curve, Report, Row, ratio_plot, table::number};
use crate::{contest::Shown, peer::Role};

pub(super) type Drawn = Result<(), Box<dyn Error>>;

const WIDTH: u32 = 900;
const LEFT: i32 = 210;
const BAR: i32 = 16;
const SHADES: [RGBColor; 4] = [
    RGBColor(31, 119, 180),
    RGBColor(114, 158, 206),
    RGBColor(174, 199, 232),
    RGBColor(210, 222, 240),
];
/// As many as there are lines in the fullest plot, and one to spare.
pub(super) const LINES: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(227, 119, 194),
    RGBColor(140, 86, 75),
];

/// Writes one SVG file for each contest with ranked figures and one for each family of curves.
pub fn write_all(report: &Report, folder: &Path) -> Drawn {
    fs::create_dir_all(folder)?;
    for contest in &report.contests {
        let rows: Vec<&Row> = report
            .rows_of(&contest.workload, &contest.variant)
            .filter(|row| row.kind.shown == Shown::Ranked)
            .collect();
        if !rows.is_empty() {
            let title = format!("{} / {}", contest.workload, contest.variant);
            bars(
                &rows,
                &title,
                &contest.about,
                &folder.join(file_name(&title)),
            )?;
        }
    }
    let mut variants: Vec<&str> = report
        .curves
        .iter()
        .map(|curve| curve.variant.as_str())
        .collect();
    variants.dedup();
    variants.sort_unstable();
    variants.dedup();
    for variant in variants {
        let curves: Vec<&Curve> = report
            .curves
            .iter()
            .filter(|curve| curve.variant == variant)
            .collect();
        lines(&curves, variant, &folder.join(file_name(variant)))?;
    }
    if !report.ratios.is_empty() {
        ratio_plot::write(report, &folder.join("hit-ratios.svg"))?;
    }
    Ok(())
}

fn file_name(title: &str) -> String {
    let mut name: String = title
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    format!("{name}.svg")
}

/// Horizontal bars, one group per peer, one bar per column of the table; a thin line from lowest to highest round. The scale is linear
/// and ends at eight times the second lowest bar of a peer; longer bars are cut and say so.
fn bars(rows: &[&Row], title: &str, about: &str, file: &Path) -> Drawn {
    let mut columns: Vec<(usize, &str)> = Vec::new();
    let mut peers: Vec<&str> = Vec::new();
    for row in rows {
        if !columns.contains(&(row.threads, row.metric.as_str())) {
            columns.push((row.threads, &row.metric));
        }
        if !peers.contains(&row.peer.as_str()) {
            peers.push(&row.peer);
        }
    }
    let group = BAR * columns.len() as i32 + 10;
    let height = 90 + group * peers.len() as i32;
    let area = SVGBackend::new(file, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    write(&area, title, (12, 10), 18, &BLACK, HPos::Left)?;
    write(&area, about, (12, 34), 11, &BLACK, HPos::Left)?;
    for (index, (threads, metric)) in columns.iter().enumerate() {
        let at = (12 + 200 * index as i32, 52);
        area.draw(&Rectangle::new(
            [at, (at.0 + 10, at.1 + 10)],
            shade(index).filled(),
        ))?;
        let unit = if *threads == 1 { "thread" } else { "threads" };
        write(
            &area,
            &format!("{metric}, {threads} {unit}"),
            (at.0 + 15, at.1),
            11,
            &BLACK,
            HPos::Left,
        )?;
    }
    let longest = end_of_scale(rows);
    let room = f64::from(WIDTH as i32 - LEFT - 110);
    let x = |value: f64| LEFT + (value.min(longest) / longest * room) as i32;
    for (place, peer) in peers.iter().enumerate() {
        let top = 78 + place as i32 * group;
        write(
            &area,
            peer,
            (LEFT - 8, top + (group - 22) / 2),
            12,
            &BLACK,
            HPos::Right,
        )?;
        for (index, column) in columns.iter().enumerate() {
            let Some(row) = rows
                .iter()
                .find(|row| row.peer == *peer && (row.threads, row.metric.as_str()) == *column)
            else {
                continue;
            };
            let y = top + index as i32 * BAR;
            let colour = if row.role == Role::Floor {
                RGBColor(190, 190, 190)
            } else {
                shade(index)
            };
            area.draw(&Rectangle::new(
                [(LEFT, y), (x(row.median), y + BAR - 3)],
                colour.filled(),
            ))?;
            let middle = y + (BAR - 3) / 2;
            area.draw(&PathElement::new(
                [(x(row.low), middle), (x(row.high), middle)],
                BLACK,
            ))?;
            let cut = if row.median > longest { " (cut)" } else { "" };
            let label = format!("{}{cut}", number(row.median));
            write(
                &area,
                &label,
                (x(row.high.max(row.median)) + 6, y + 1),
                11,
                &BLACK,
                HPos::Left,
            )?;
        }
    }
    area.present()?;
    Ok(())
}

/// Where the scale of the bars ends.
fn end_of_scale(rows: &[&Row]) -> f64 {
    let all = rows.iter().map(|row| row.median).fold(0.0, f64::max);
    let of_peers = rows.iter().filter(|row| row.role == Role::Cache);
    let mut medians: Vec<f64> = of_peers.map(|row| row.median).collect();
    medians.sort_unstable_by(f64::total_cmp);
    let second = medians.get(1).or(medians.first());
    second
        .map_or(all, |second| all.min(second * 8.0))
        .max(f64::MIN_POSITIVE)
}

fn shade(index: usize) -> RGBColor {
    SHADES[index % SHADES.len()]
}

fn write(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    text: &str,
    at: (i32, i32),
    size: i32,
    colour: &RGBColor,
    side: HPos,
) -> Drawn {
    let style = TextStyle::from(("sans-serif", size).into_font())
        .color(colour)
        .pos(Pos::new(side, VPos::Top));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

/// Latency over percentile: each step to the right leaves half as many calls.
fn lines(curves: &[&Curve], title: &str, file: &Path) -> Drawn {
    let step = |percentile: f64| {
        if percentile >= 100.0 {
            None
        } else {
            Some(-(1.0 - percentile / 100.0).log2())
        }
    };
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let last = all()
        .filter_map(|(percentile, _)| step(*percentile))
        .fold(1.0, f64::max)
        + 1.0;
    let lowest = all()
        .map(|(_, value)| *value)
        .fold(f64::MAX, f64::min)
        .max(0.001);
    let highest = all()
        .map(|(_, value)| *value)
        .fold(0.0, f64::max)
        .max(lowest * 10.0);

    let area = SVGBackend::new(file, (WIDTH, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(1.0..last, (lowest..highest).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile of calls; the last point is the longest call")
        .x_labels(8)
        .x_label_formatter(&|steps| format!("{:.4}", 100.0 * (1.0 - (-steps).exp2())))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (curve, colour) in curves.iter().zip(LINES.iter().cycle()) {
        let points = curve
            .points
            .iter()
            .map(|(percentile, value)| (step(*percentile).unwrap_or(last), value.max(lowest)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(curve.peer.clone())
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(180, 180, 180))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contest::{Heading, NS_PER_OP, Reading},
        peer::Card,
    };

    #[test]
    fn the_scale_ends_by_the_peers() {
        let end = |bars: &[(&'static str, Role, f64)]| {
            let heading = Heading {
                workload: "w",
                variant: "v".into(),
                about: String::new(),
            };
            let mut report = Report::default();
            for &(name, role, value) in bars {
                let reading = Reading::new(1, NS_PER_OP, value);
                report.add(&heading, Card { name, role }, &[reading]);
            }
            end_of_scale(&report.rows.iter().collect::<Vec<_>>())
        };
        let subject = ("a", Role::Subject, 1.0);
        assert_eq!(end(&[subject]), 1.0);
        assert_eq!(end(&[subject, ("b", Role::Cache, 3.0)]), 3.0);
        let peers = [
            subject,
            ("b", Role::Cache, 3.0),
            ("c", Role::Cache, 4.0),
            ("d", Role::Cache, 99.0),
            ("e", Role::Floor, 0.5),
        ];
        assert_eq!(end(&peers), 32.0);
    }

    #[test]
    fn no_two_lines_have_one_colour() {
        for (at, colour) in LINES.iter().enumerate() {
            assert!(!LINES[..at].contains(colour));
        }
    }
}
