//! SVG plots: what a hit costs, hit ratios over sizes, latencies over percentiles, and, from the
//! figures of the simulator in `benches/coherence`, throughput over cores.

use std::{error::Error, fs, path::Path};

use plotters::{
    element::DashedPathElement,
    prelude::*,
    style::full_palette::{BLUE, BROWN, CYAN, GREEN, GREY, LIME, ORANGE, PINK, PURPLE, RED},
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Report, Row, Table, table::number};
use crate::{
    figure::{HIT_PERCENT, NS_PER_OP},
    peer::{Expiring, Role},
};

type Drawn = Result<(), Box<dyn Error>>;

/// As many as there are lines in the fullest plot.
const COLOURS: [RGBColor; 9] = [BLUE, RED, GREEN, PURPLE, ORANGE, CYAN, PINK, BROWN, LIME];
/// The peers that have a colour of their own, the same in every plot.
const COLOURED: [&str; 9] = [
    "wheelhouse",
    "moka",
    "quick_cache",
    "quick_cache+DelayQueue",
    "quick_cache+Instant",
    "quick_cache+deadline",
    "fibre_cache",
    "mini-moka",
    "foyer-memory, LFU",
];
const FONT: &str = "sans-serif";

/// The series of a plot of latencies, in the order of its legend: the caches that remove entries
/// when they are due, and what the machine does to a caller that has no cache. More lines than
/// these hide one another; the tables have all.
const LATENCIES: [Series; 5] = [
    Series::solid("wheelhouse"),
    Series::solid("moka"),
    Series::dashed("moka, driven every 10 ms", RED),
    Series::solid("quick_cache+DelayQueue"),
    Series::dashed("no cache", GREY),
];
/// At most this many lines in the plot of throughput.
const MOST_SERIES: usize = 6;

/// How a peer is drawn: no two series of a plot have both the colour and the line in common.
#[derive(Clone, Copy)]
struct Series {
    peer: &'static str,
    line: Line,
}

#[derive(Clone, Copy)]
enum Line {
    /// In the colour that the peer has in every plot.
    Solid,
    Dashed(RGBColor),
}

impl Series {
    const fn solid(peer: &'static str) -> Self {
        Self {
            peer,
            line: Line::Solid,
        }
    }

    const fn dashed(peer: &'static str, colour: RGBColor) -> Self {
        Self {
            peer,
            line: Line::Dashed(colour),
        }
    }
}

/// The colour of a peer; grey for one that has none of its own.
fn colour_of(peer: &str) -> RGBColor {
    let place = COLOURED.iter().position(|coloured| *coloured == peer);
    place.map_or(GREY, |place| COLOURS[place])
}

/// A tick, which the axis computes: without the noise of that computation.
fn tick(value: f64, decimals: i32) -> String {
    let scale = 10_f64.powi(decimals);
    format!("{}", (value * scale).round() / scale)
}

/// Writes every plot for which there are figures.
pub fn write_all(report: &Report, folder: &Path) -> Drawn {
    fs::create_dir_all(folder)?;
    hit_cost(report, &folder.join("hit-cost.svg"))?;
    hit_ratios(report, &folder.join("hit-ratios.svg"))?;
    let mut titles: Vec<&str> = report.curves.iter().map(|curve| &*curve.title).collect();
    titles.sort_unstable();
    titles.dedup();
    for title in titles {
        let name = title.replace([',', ' '], "-").replace("--", "-");
        latencies(report, title, &folder.join(name + ".svg"))?;
    }
    Ok(())
}

/// The cost of a hit beside the peers: the picture of the README. A bar for each peer that gives
/// every entry a deadline of its own, on one thread or as few as there were.
fn hit_cost(report: &Report, file: &Path) -> Drawn {
    let is_it =
        |table: &&Table| table.workload == "hit-zipf" && table.variant == Expiring::Create.label();
    let tables = report.tables.iter().filter(is_it);
    let rows = tables.flat_map(|table| &table.rows);
    let threads = rows.clone().map(|row| row.threads).min().unwrap_or(1);
    let is_meant = |row: &&Row| {
        let (peer, role) = (row.card.name, row.card.role);
        let fits = role == Role::Cache && peer != "mini-moka" || peer == "wheelhouse";
        fits && row.threads == threads && row.metric == NS_PER_OP
    };
    let bars = rows.filter(is_meant);
    let mut bars: Vec<_> = bars.map(|row| (row.card.name, row.median())).collect();
    let Some(longest) = bars.iter().map(|bar| bar.1).reduce(f64::max) else {
        return Ok(());
    };
    bars.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let (left, width, bar) = (190, 720, 26);
    let area = SVGBackend::new(file, (width, 50 + bar * bars.len() as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let style = |anchor| {
        let font = (FONT, 16).into_font().color(&BLACK);
        font.pos(Pos::new(anchor, VPos::Center))
    };
    let title = "One hit, each entry with a deadline of its own: nanoseconds";
    let title = match threads {
        1 => format!("{title}, one thread"),
        _ => format!("{title}, {threads} threads"),
    };
    area.draw(&Text::new(title, (12, 20), style(HPos::Left)))?;
    for (index, (peer, nanos)) in bars.iter().enumerate() {
        let top = 40 + bar as i32 * index as i32;
        let middle = top + bar as i32 / 2;
        let end = left + (nanos / longest * f64::from(width as i32 - left - 70)) as i32;
        let colour = colour_of(peer);
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
    let (what, unit) = title.rsplit_once(", ").unwrap_or((title, ""));
    let unit = if unit == "us" { "µs" } else { unit };
    let curve_of = |peer: &str| {
        let mut curves = report.curves.iter();
        curves.find(|curve| curve.title == title && curve.peer == peer)
    };
    let drawn = LATENCIES.iter().filter_map(|series| {
        let curve = curve_of(series.peer)?;
        Some((series, &curve.points))
    });
    let nines = |percentile: f64| 1.0 / (1.0 - percentile.min(99.99999) / 100.0);
    let points = drawn.clone().flat_map(|(_, points)| points);
    let most = points.clone().map(|point| point.1).fold(1.0, f64::max);
    let last = points.map(|point| nines(point.0)).fold(10.0, f64::max);
    let area = SVGBackend::new(file, (900, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(what, (FONT, 18))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(76)
        .build_cartesian_2d((1.0..last).log_scale(), (0.01..most).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile of the calls")
        .y_desc(unit)
        .axis_desc_style((FONT, 15))
        .x_label_formatter(&|nines| format!("{} %", tick(100.0 * (1.0 - 1.0 / nines), 5)))
        .y_label_formatter(&|value| tick(*value, 2))
        .draw()?;
    for (series, points) in drawn {
        let points = points.iter();
        let points = points.map(|&(percentile, value)| (nines(percentile), value.max(0.01)));
        match series.line {
            Line::Solid => {
                let style = colour_of(series.peer).stroke_width(2);
                chart
                    .draw_series(LineSeries::new(points, style))?
                    .label(series.peer)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            }
            Line::Dashed(colour) => {
                let style = colour.stroke_width(2);
                chart
                    .draw_series(DashedLineSeries::new(points, 6, 4, style))?
                    .label(series.peer)
                    .legend(move |(x, y)| {
                        DashedPathElement::new([(x, y), (x + 18, y)], 6, 4, style)
                    });
            }
        }
    }
    draw_legend(&mut chart)?;
    area.present()?;
    Ok(())
}

/// The names of the series, in the upper left corner.
fn draw_legend<'a, D, C>(
    chart: &mut ChartContext<'a, D, C>,
) -> Result<(), DrawingAreaErrorKind<D::ErrorType>>
where
    D: DrawingBackend + 'a,
    C: CoordTranslate,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 14))
        .draw()
}

/// A run of the simulator: a line of what `simulate.py run … --out FILE` writes.
#[derive(Debug, serde::Deserialize)]
struct Simulated {
    cache: String,
    work: String,
    /// Cores.
    n: u32,
    /// Millions of operations a second; none if the simulator did not come to an end.
    mops: Option<f64>,
}

/// Throughput over cores, both axes logarithmic, as the simulator of cache coherence computes it:
/// a plot for each workload of the file. Returns their number.
pub fn scaling(lines: &str, folder: &Path) -> Result<usize, Box<dyn Error>> {
    let runs: Vec<Simulated> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let mut works: Vec<&str> = runs.iter().map(|run| &*run.work).collect();
    works.sort_unstable();
    works.dedup();
    fs::create_dir_all(folder)?;
    for work in &works {
        let runs = runs.iter().filter(|run| run.work == *work);
        throughput(work, runs, &folder.join(format!("scaling-{work}.svg")))?;
    }
    Ok(works.len())
}

fn throughput<'a>(
    work: &str,
    runs: impl Iterator<Item = &'a Simulated> + Clone,
    file: &Path,
) -> Drawn {
    let mut caches: Vec<&str> = Vec::new();
    for run in runs.clone() {
        if !caches.contains(&&*run.cache) {
            caches.push(&run.cache);
        }
    }
    caches.truncate(MOST_SERIES);
    let points_of = |cache: &str| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for run in runs.clone().filter(|run| run.cache == cache) {
            if let Some(mops) = run.mops {
                points.push((f64::from(run.n), mops));
            }
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let what = match work {
        "evict" => "get, insert on a miss",
        "zipf" => "hits",
        other => other,
    };
    let shown = runs.clone().filter_map(|run| run.mops);
    let least = shown.clone().fold(1.0, f64::min);
    let most = shown.fold(1.0, f64::max);
    let cores = runs.clone().map(|run| run.n).max().unwrap_or(1);
    let area = SVGBackend::new(file, (900, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(
            format!("{what}, simulated: a computed machine, no measurement"),
            (FONT, 18),
        )
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(76)
        .build_cartesian_2d(
            (1.0..f64::from(cores.max(2))).log_scale().base(2.0),
            (least..most * 1.2).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("cores")
        .y_desc("millions of operations a second")
        .axis_desc_style((FONT, 15))
        .x_label_formatter(&|cores| tick(*cores, 0))
        .y_label_formatter(&|mops| tick(*mops, 2))
        .draw()?;
    for cache in caches {
        // The simulator's name for it is shorter.
        let peer = if cache == "fibre" {
            "fibre_cache"
        } else {
            cache
        };
        let style = colour_of(peer).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points_of(cache), style).point_size(3))?
            .label(peer)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    draw_legend(&mut chart)?;
    area.present()?;
    Ok(())
}

/// Hits over the size of the cache, from a panel for each trace, three abreast, with one legend for
/// all. The last curve is a limit, and grey; the other limit is left out.
fn hit_ratios(report: &Report, file: &Path) -> Drawn {
    fn trace_of(table: &Table) -> &str {
        table.variant.split(',').next().unwrap_or_default()
    }
    let tables = report.tables.iter();
    let tables: Vec<&Table> = tables
        .filter(|table| table.workload == "ratio-curves")
        .collect();
    let panels = tables.chunk_by(|one, next| trace_of(one) == trace_of(next));
    let panels: Vec<&[&Table]> = panels.collect();
    if panels.is_empty() {
        return Ok(());
    }
    let rows = panels.len().div_ceil(3);
    let area = SVGBackend::new(file, (960, 56 + 220 * rows as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(56);
    let title = "hits, percent of the requests, over the size of the cache, percent of the keys";
    head.draw(&Text::new(title, (12, 8), (FONT, 15)))?;
    for (lines, area) in panels.into_iter().zip(body.split_evenly((rows, 3))) {
        let mut chart = ChartBuilder::on(&area)
            .caption(trace_of(lines[0]), (FONT, 13))
            .margin(8)
            .x_label_area_size(18)
            .y_label_area_size(28)
            .build_cartesian_2d(0.0..lines.len() as f64 - 1.0, 0.0..100.0)?;
        // Sizes double up to half of the keys.
        let size = |step: &f64| format!("{:.1}", 100.0 * 0.5_f64.powf(lines.len() as f64 - step));
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.1))
            .x_labels(lines.len())
            .y_labels(5)
            .label_style((FONT, 10))
            .x_label_formatter(&size)
            .y_label_formatter(&|percent| format!("{percent:.0}"))
            .draw()?;
        let drawn = lines[0].rows.iter().map(|row| row.card.name);
        let drawn: Vec<&str> = drawn.filter(|peer| *peer != "exact LRU").collect();
        // The first curve last, so that no other hides it.
        for (index, peer) in drawn.iter().enumerate().rev() {
            let style = match index {
                0 => COLOURS[0].stroke_width(2),
                last if last + 1 == drawn.len() => GREY.stroke_width(1),
                _ => colour_of(peer).stroke_width(1),
            };
            let points = lines.iter().zip(0..).filter_map(|(line, step)| {
                let row = line.row(1, HIT_PERCENT.name, peer)?;
                Some((f64::from(step), row.median()))
            });
            chart.draw_series(LineSeries::new(points, style))?;
            let x = 12 + 125 * index as i32;
            head.draw(&PathElement::new([(x, 40), (x + 18, 40)], style))?;
            head.draw(&Text::new(*peer, (x + 22, 34), (FONT, 11)))?;
        }
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Curve;

    fn folder(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("wheelhouse-plots-{}-{name}", std::process::id()))
    }

    #[test]
    fn each_line_of_a_plot_of_latencies_differs_from_the_others() {
        let looks = LATENCIES.map(|series| match series.line {
            Line::Solid => (colour_of(series.peer), false),
            Line::Dashed(colour) => (colour, true),
        });
        for (at, look) in looks.iter().enumerate() {
            assert!(!looks[..at].contains(look), "{}", LATENCIES[at].peer);
        }
    }

    #[test]
    fn a_plot_of_latencies_names_axes_and_draws_the_chosen_peers_only() {
        let curve = |peer: &str| Curve {
            title: "get, us".into(),
            peer: peer.into(),
            points: vec![(0.0, 0.1), (50.0, 0.2), (99.0, 30.0)],
        };
        let report = Report {
            curves: ["wheelhouse", "moka", "no cache", "another"]
                .map(curve)
                .into(),
            ..Report::default()
        };
        let folder = folder("latencies");
        write_all(&report, &folder).unwrap();
        let svg = fs::read_to_string(folder.join("get-us.svg")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for text in ["percentile of the calls", "µs", "wheelhouse", "no cache"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("another"));
    }

    #[test]
    fn each_line_of_a_plot_of_throughput_has_a_colour_of_its_own() {
        let lines = ["wheelhouse", "quick_cache", "moka", "mini-moka", "fibre"].map(|cache| {
            [1, 8].map(|n| {
                format!(r#"{{"cache": "{cache}", "work": "evict", "n": {n}, "mops": {n}.5}}"#)
            })
        });
        let folder = folder("colours");
        assert_eq!(scaling(&lines.concat().join("\n"), &folder).unwrap(), 1);
        let svg = fs::read_to_string(folder.join("scaling-evict.svg")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let mut colours: Vec<&str> = svg
            .split("<polyline")
            .skip(1)
            .filter(|line| line.contains("stroke-width=\"2\""))
            .filter_map(|line| line.split("stroke=\"").nth(1)?.split('"').next())
            .collect();
        colours.sort_unstable();
        colours.dedup();
        // Five lines; the axes are black.
        colours.retain(|colour| *colour != "#000000");
        assert_eq!(colours.len(), 5, "{colours:?}");
    }

    #[test]
    fn a_plot_of_throughput_says_that_it_is_simulated() {
        let lines = [1, 8, 64].map(|n| {
            format!(
                r#"{{"cache": "wheelhouse", "work": "zipf", "n": {n}, "mops": {n}.5, "ops": 1}}"#
            )
        });
        let folder = folder("scaling");
        assert_eq!(scaling(&lines.join("\n"), &folder).unwrap(), 1);
        let svg = fs::read_to_string(folder.join("scaling-zipf.svg")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for text in ["simulated", "cores", "wheelhouse"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
