//! What a measurement gives: kinds of figures, single readings, verdicts.

use serde::{Deserialize, Deserializer, Serialize};

/// Text of the program, or of a file or child process that was read.
pub(crate) type Text = &'static str;

/// A text that was read. It lives as long as the program: there are few.
pub(crate) fn leaked<'a, D: Deserializer<'a>>(text: D) -> Result<Text, D::Error> {
    Ok(String::deserialize(text)?.leak())
}

/// One kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// As the tables call it, unit included.
    #[serde(deserialize_with = "leaked")]
    pub name: Text,
    /// What the tables do with it.
    pub shown: Shown,
}

/// What the tables do with a metric.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Shown {
    /// With spread and ratios; lower is better.
    Ranked,
    /// As a plain column: the median of the rounds.
    Median,
    /// As a plain column: the highest of the rounds.
    Worst,
}

impl Metric {
    const fn new(name: Text, shown: Shown) -> Self {
        Self { name, shown }
    }

    pub const fn ranked(name: Text) -> Self {
        Self::new(name, Shown::Ranked)
    }

    pub const fn median(name: Text) -> Self {
        Self::new(name, Shown::Median)
    }

    pub const fn worst(name: Text) -> Self {
        Self::new(name, Shown::Worst)
    }

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

pub const NS_PER_OP: Metric = Metric::ranked("ns/op");
/// Share of reads that found their key.
pub const HIT_PERCENT: Metric = Metric::median("hit %");

/// One figure of one round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reading {
    pub threads: usize,
    pub metric: Metric,
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

/// Ends a function with a wrong answer of the peer, unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::figure::Problem::Wrong(format!($($why)+)));
        }
    };
}
pub(crate) use ensure;

/// How a bar came out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
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
