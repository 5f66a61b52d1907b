//! SVG plots: what a hit costs, hit ratios over sizes, latencies over percentiles.

use std::{error::Error, fs, path::Path};

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Report, grid::number};
use crate::{
    figure::{Heading, NS_PER_OP},
    peer::{Expiring, Role},
};

type Drawn = Result<(), Box<dyn Error>>;

/// As many as there are lines in the fullest plot.
const COLOURS: [RGBColor; 9] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
    RGBColor(227, 119, 194),
    RGBColor(140, 86, 75),
    RGBColor(188, 189, 34),
];
const GREY: RGBColor = RGBColor(160, 160, 160);
const FONT: &str = "sans-serif";

/// Writes every plot for which there are figures; the curves of hit ratios are drawn by
/// [`panels`].
pub fn write_all(report: &Report, folder: &Path) -> Drawn {
    fs::create_dir_all(folder)?;
    hit_cost(report, &folder.join("hit-cost.svg"))?;
    let mut titles: Vec<&str> = report.curves.iter().map(|curve| &*curve.title).collect();
    titles.sort_unstable();
    titles.dedup();
    for title in titles {
        latencies(report, title, &folder.join(file_name(title)))?;
    }
    Ok(())
}

fn file_name(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").to_ascii_lowercase() + ".svg"
}

/// The cost of a hit beside the peers: the picture of the README. A bar for each peer that gives
/// every entry a deadline of its own, on one thread or as few as there were.
fn hit_cost(report: &Report, file: &Path) -> Drawn {
    let is_meant =
        |peer: &str, role: Role| role == Role::Cache && peer != "mini-moka" || peer == "wheelhouse";
    let heading = Heading::new("hit-zipf", Expiring::Create.label(), "");
    let rows = || report.rows_of(&heading);
    let threads = rows().map(|row| row.threads).min().unwrap_or(1);
    let mut bars: Vec<(&str, f64)> = rows()
        .filter(|row| row.threads == threads && row.metric == NS_PER_OP.name)
        .filter(|row| is_meant(&row.peer, row.role))
        .map(|row| (&*row.peer, row.median()))
        .collect();
    if bars.is_empty() {
        return Ok(());
    }
    bars.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let (left, width, bar) = (190, 720, 26);
    let longest = bars.last().map_or(1.0, |(_, nanos)| *nanos);
    let area = SVGBackend::new(file, (width, 50 + bar * bars.len() as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let style = |anchor| {
        let font = (FONT, 16).into_font().color(&BLACK);
        font.pos(Pos::new(anchor, VPos::Center))
    };
    let title = match threads {
        1 => "One hit, each entry with a deadline of its own: nanoseconds, one thread".into(),
        _ => format!("Hits with a deadline for each entry: nanoseconds, {threads} threads"),
    };
    area.draw(&Text::new(title, (12, 20), style(HPos::Left)))?;
    for (index, (peer, nanos)) in bars.iter().enumerate() {
        let top = 40 + bar as i32 * index as i32;
        let middle = top + bar as i32 / 2;
        let end = left + (nanos / longest * f64::from(width as i32 - left - 70)) as i32;
        let colour = [GREY, COLOURS[0]][usize::from(*peer == "wheelhouse")];
        area.draw(&Text::new(*peer, (left - 8, middle), style(HPos::Right)))?;
        let corners = [(left, top + 3), (end.max(left + 1), top + bar as i32 - 3)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        let figure = number(*nanos);
        area.draw(&Text::new(figure, (end + 8, middle), style(HPos::Left)))?;
    }
    area.present()?;
    Ok(())
}

/// Values over percentiles, both axes logarithmic.
fn latencies(report: &Report, title: &str, file: &Path) -> Drawn {
    let curves = report.curves.iter().filter(|curve| curve.title == title);
    let nines = |percentile: f64| 1.0 / (1.0 - percentile.min(99.99999) / 100.0);
    let points = curves.clone().flat_map(|curve| &curve.points);
    let most = points.clone().map(|point| point.1).fold(1.0, f64::max);
    let last = points.map(|point| nines(point.0)).fold(10.0, f64::max);
    let area = SVGBackend::new(file, (900, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(60)
        .build_cartesian_2d((1.0..last).log_scale(), (0.01..most).log_scale())?;
    chart
        .configure_mesh()
        .x_label_formatter(&|nines| format!("{} %", 100.0 * (1.0 - 1.0 / nines)))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (curve, &colour) in curves.zip(COLOURS.iter().cycle()) {
        let points = curve.points.iter();
        let points = points.map(|&(percentile, value)| (nines(percentile), value.max(0.01)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(curve.peer.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}

/// One panel of curves.
pub struct Panel {
    /// What it is of.
    pub title: String,
    /// Labels of the steps of the horizontal axis.
    pub steps: Vec<String>,
    /// Name of each curve, and its values in percent, one for each step.
    pub curves: Vec<(String, Vec<f64>)>,
}

/// Draws panels into one file, three abreast, with one legend for all. The last curve is a limit,
/// and grey.
pub fn panels(title: &str, panels: &[Panel], file: &Path) -> Drawn {
    let rows = panels.len().div_ceil(3);
    let area = SVGBackend::new(file, (960, 56 + 220 * rows as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(56);
    head.draw(&Text::new(title, (12, 8), (FONT, 15)))?;
    let style = |index: usize, of: usize| match index {
        0 => COLOURS[0].stroke_width(2),
        last if last + 1 == of => GREY.stroke_width(1),
        index => COLOURS[index % COLOURS.len()].stroke_width(1),
    };
    for (panel, area) in panels.iter().zip(body.split_evenly((rows, 3))) {
        let count = panel.curves.len();
        let mut chart = ChartBuilder::on(&area)
            .caption(&panel.title, (FONT, 13))
            .margin(8)
            .x_label_area_size(18)
            .y_label_area_size(28)
            .build_cartesian_2d(0.0..panel.steps.len() as f64 - 1.0, 0.0..100.0)?;
        let label = |step: &f64| panel.steps.get(*step as usize).cloned().unwrap_or_default();
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.1))
            .x_labels(panel.steps.len())
            .y_labels(5)
            .label_style((FONT, 10))
            .x_label_formatter(&label)
            .y_label_formatter(&|percent| format!("{percent:.0}"))
            .draw()?;
        // The first curve last, so that no other hides it.
        for (index, (name, values)) in panel.curves.iter().enumerate().rev() {
            let points = values.iter().enumerate();
            let points = points.map(|(step, percent)| (step as f64, *percent));
            chart.draw_series(LineSeries::new(points, style(index, count)))?;
            let x = 12 + 125 * index as i32;
            let sample = [(x, 40), (x + 18, 40)];
            head.draw(&PathElement::new(sample, style(index, count)))?;
            head.draw(&Text::new(name.clone(), (x + 22, 34), (FONT, 11)))?;
        }
    }
    area.present()?;
    Ok(())
}
