//! Curves of hit ratios: a panel for each trace, a line for each cache.

use std::path::Path;

use plotters::prelude::*;

use super::{
    Report,
    plot::{Drawn, LINES},
    ratio::Line,
};
use crate::{
    contest::HIT_PERCENT,
    peer::Role,
    workloads::ratio::{CURVES, OPTIMUM},
};

const ABREAST: usize = 3;
const PANEL: (u32, u32) = (320, 220);
const HEAD: u32 = 56;

/// Draws all panels into one file.
pub(super) fn write(report: &Report, file: &Path) -> Drawn {
    let mut panels: Vec<Vec<&Line>> = Vec::new();
    for line in &report.ratios {
        match panels.last_mut() {
            Some(panel) if panel[0].trace == line.trace => panel.push(line),
            _ => panels.push(vec![line]),
        }
    }
    let mut peers: Vec<(&str, Role)> = Vec::new();
    for row in report.rows.iter().filter(|row| row.workload == CURVES) {
        if !peers.iter().any(|(peer, _)| *peer == row.peer) {
            peers.push((&row.peer, row.role));
        }
    }
    let rows = panels.len().div_ceil(ABREAST);
    let size = (PANEL.0 * ABREAST as u32, PANEL.1 * rows as u32 + HEAD);
    let area = SVGBackend::new(file, size).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(HEAD);
    let title =
        "hits, percent of the requests, over the size of the cache, percent of the trace's keys";
    head.draw(&Text::new(title, (12, 8), ("sans-serif", 15)))?;
    for (index, (peer, _)) in peers.iter().enumerate() {
        let x = 12 + 125 * index as i32;
        head.draw(&PathElement::new(
            [(x, 40), (x + 18, 40)],
            style(index, peer),
        ))?;
        head.draw(&Text::new(
            (*peer).to_owned(),
            (x + 22, 34),
            ("sans-serif", 11),
        ))?;
    }
    for (panel, area) in panels.iter().zip(body.split_evenly((rows, ABREAST))) {
        let points = |peer: &str| -> Vec<(f64, f64)> {
            panel
                .iter()
                .enumerate()
                .filter_map(|(step, line)| {
                    let row = report.row(CURVES, &line.variant(), 1, HIT_PERCENT.name, peer)?;
                    let hits = row.median;
                    Some((step as f64, hits))
                })
                .collect()
        };
        let last = panel.len() as f64 - 1.0;
        let mut chart = ChartBuilder::on(&area)
            .caption(&panel[0].trace, ("sans-serif", 13))
            .margin(8)
            .x_label_area_size(18)
            .y_label_area_size(28)
            .build_cartesian_2d(0.0..last, 0.0..100.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.1))
            .x_labels(panel.len())
            .y_labels(5)
            .label_style(("sans-serif", 10))
            // Sizes double up to half of the keys.
            .x_label_formatter(&|step| format!("{:.1}", 50.0 / (last - step).exp2()))
            .y_label_formatter(&|percent| format!("{percent:.0}"))
            .draw()?;
        // The subject last, so that no line hides it.
        for (index, (peer, _)) in peers.iter().enumerate().rev() {
            chart.draw_series(LineSeries::new(points(peer), style(index, peer)))?;
        }
    }
    area.present()?;
    Ok(())
}

/// The optimum is grey, as the limit of all of them; the subject is thick.
fn style(index: usize, peer: &str) -> ShapeStyle {
    if peer == OPTIMUM.name {
        return RGBColor(190, 190, 190).stroke_width(1);
    }
    LINES[index % LINES.len()].stroke_width(if index == 0 { 2 } else { 1 })
}
