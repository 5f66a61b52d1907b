//! Grids of cells as Markdown, and numbers in them.

use std::iter;

/// A Markdown table whose columns are aligned: the first to the left, the others to the right.
pub fn grid(titles: &[String], lines: &[Vec<String>]) -> String {
    let mut widths = vec![3; titles.len()];
    for cells in lines.iter().map(Vec::as_slice).chain([titles]) {
        for (width, cell) in iter::zip(&mut widths, cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    let rule = |(column, width): (usize, &usize)| match column {
        0 => "-".repeat(*width),
        _ => "-".repeat(width - 1) + ":",
    };
    let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
    let mut text = String::new();
    for cells in [titles, &rules]
        .into_iter()
        .chain(lines.iter().map(Vec::as_slice))
    {
        for (column, (cell, &width)) in iter::zip(cells, &widths).enumerate() {
            text += &match column {
                0 => format!("| {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            };
        }
        text.push('\n');
    }
    text
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
