//! What a measurement gives: kinds of figures, single readings, headings, verdicts.

use serde::{Deserialize, Deserializer, Serialize};

/// Text of the program, or of a child process.
type Text = &'static str;

/// One kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// As the tables call it, unit included.
    #[serde(deserialize_with = "leaked")]
    pub name: Text,
    /// What the tables do with it.
    pub shown: Shown,
}

/// What the tables do with a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shown {
    /// With spread and ratios; lower is better.
    Ranked,
    /// As a plain column: the median of the rounds.
    Median,
    /// As a plain column: the highest of the rounds.
    Worst,
}

/// A text of a child process. It lives as long as the program: there are few.
fn leaked<'a, D: Deserializer<'a>>(text: D) -> Result<Text, D::Error> {
    Ok(String::deserialize(text)?.leak())
}

impl Metric {
    const fn new(name: &'static str, shown: Shown) -> Self {
        Self { name, shown }
    }

    /// A figure that is compared; lower is better.
    pub const fn ranked(name: &'static str) -> Self {
        Self::new(name, Shown::Ranked)
    }

    /// A figure of which the tables show the median.
    pub const fn median(name: &'static str) -> Self {
        Self::new(name, Shown::Median)
    }

    /// A figure of which the tables show the highest.
    pub const fn worst(name: &'static str) -> Self {
        Self::new(name, Shown::Worst)
    }

    /// A figure of this kind, of one worker.
    pub fn of(self, value: f64) -> Reading {
        self.by(1, value)
    }

    /// A figure of this kind, measured with `threads` workers.
    pub fn by(self, threads: usize, value: f64) -> Reading {
        Reading {
            threads,
            metric: self,
            value,
        }
    }
}

/// Time of one operation.
pub const NS_PER_OP: Metric = Metric::ranked("ns/op");
/// Share of reads that found their key.
pub const HIT_PERCENT: Metric = Metric::median("hit %");

/// One figure of one round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// Number of workers.
    pub threads: usize,
    /// What was measured.
    pub metric: Metric,
    /// The figure.
    pub value: f64,
}

/// Why there is no figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Problem {
    /// The peer has no such feature.
    Unsupported(#[serde(deserialize_with = "leaked")] Text),
    /// The peer gave a wrong answer.
    Wrong(String),
}

/// What one round of one peer gives.
pub type Outcome = Result<Vec<Reading>, Problem>;

/// What is being compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    /// Name on the command line.
    pub workload: String,
    /// Which expiry, which size.
    pub variant: String,
    /// One line for the reader.
    pub about: String,
    /// Whether this is one line of a table that has a column for each peer. Headings of the same
    /// workload and text then share a table. Otherwise the table has a line for each peer.
    pub is_line: bool,
}

impl Heading {
    /// A heading of a table of its own.
    pub fn new(workload: &str, variant: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            workload: workload.into(),
            variant: variant.into(),
            about: about.into(),
            is_line: false,
        }
    }
}

/// How a bar came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// The bar.
    pub what: String,
    /// The figure, if it was measured.
    pub value: Option<f64>,
    /// The most that it may be; `None` where nothing is demanded.
    pub limit: Option<f64>,
    /// What it was made of, or its unit.
    pub detail: String,
}

impl Verdict {
    /// Whether the bar was met; `None` where nothing is demanded or nothing was measured.
    pub fn met(&self) -> Option<bool> {
        Some(self.value? <= self.limit?)
    }
}
