//! A picture of the wheel as lines of text.

use std::time::Duration;

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(crate) struct Frame {
    next_work: Option<Duration>,
    levels: Vec<Level>,
}

struct Level {
    span: Duration,
    hand: usize,
    lens: Vec<usize>,
}

impl Frame {
    /// A frame of the levels of a wheel: of each the width of its buckets, the one in hand, and how
    /// many entries each holds.
    pub(crate) fn new(
        next_work: Option<Duration>,
        levels: Vec<(Duration, usize, Vec<usize>)>,
    ) -> Self {
        let level = |(span, hand, lens)| Level { span, hand, lens };
        Self {
            next_work,
            levels: levels.into_iter().map(level).collect(),
        }
    }

    /// Entries linked in all buckets.
    pub(crate) fn entries(&self) -> u64 {
        self.levels
            .iter()
            .map(|level| level.lens.iter().sum::<usize>() as u64)
            .sum()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let next = self.next_work.map_or_else(
            || "no work to come".to_owned(),
            |next| format!("next work in {}", span(next)),
        );
        let mut lines = vec![next];
        for (number, level) in self.levels.iter().enumerate() {
            lines.extend(level.lines(number));
        }
        lines
    }
}

impl Level {
    fn lines(&self, number: usize) -> [String; 3] {
        let entries: usize = self.lens.iter().sum();
        let fullest = self.lens.iter().copied().max().unwrap_or(0);
        let bars: String = self.lens.iter().map(|&len| bar(len, fullest)).collect();
        [
            format!(
                "level {number}: {} x {}, {entries} entries, {fullest} in the fullest bucket",
                self.lens.len(),
                span(self.span)
            ),
            format!("  |{bars}|"),
            format!("   {}^", " ".repeat(self.hand)),
        ]
    }
}

/// Height on a logarithmic scale, so that a lone entry is seen beside a full bucket.
fn bar(len: usize, fullest: usize) -> char {
    if len == 0 {
        return BARS[0];
    }
    let height = (1.0 + len as f64).ln() / (1.0 + fullest as f64).ln();
    BARS[((8.0 * height).round() as usize).clamp(1, 8)]
}

/// A duration in its natural unit.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let (value, unit) = match seconds {
        ..1.0 => (1000.0 * seconds, "ms"),
        1.0..60.0 => (seconds, "s"),
        60.0..3600.0 => (seconds / 60.0, "min"),
        3600.0..86_400.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "d"),
    };
    format!("{value:.2} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame() {
        let frame = Frame {
            next_work: Some(Duration::from_millis(1500)),
            levels: vec![Level {
                span: Duration::from_secs(90),
                hand: 2,
                lens: vec![0, 1, 100, 7],
            }],
        };
        assert_eq!(frame.entries(), 108);
        assert_eq!(
            frame.lines(),
            [
                "next work in 1.50 s",
                "level 0: 4 x 1.50 min, 108 entries, 100 in the fullest bucket",
                "  | ▁█▄|",
                "     ^",
            ]
        );
    }

    #[test]
    fn nothing_scheduled() {
        let frame = Frame {
            next_work: None,
            levels: Vec::new(),
        };
        assert_eq!(frame.lines(), ["no work to come"]);
    }

    #[test]
    fn every_entry_shows_and_the_fullest_is_full() {
        assert_eq!(bar(0, 1_000_000), ' ');
        assert_eq!(bar(1, 1_000_000), '▁');
        assert_eq!(bar(1, 1), '█');
        assert_eq!(bar(1_000_000, 1_000_000), '█');
    }
}
