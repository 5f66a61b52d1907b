//! Exact quantiles of a set of durations: all samples are kept and sorted once.

use std::time::Duration;

pub(crate) struct Quantiles(Vec<Duration>);

impl Quantiles {
    pub(crate) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        Self(samples)
    }

    /// The smallest sample that is not below a share `q` of all, by the nearest-rank rule; zero
    /// without samples.
    pub(crate) fn at(&self, q: f64) -> Duration {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        let index = rank.clamp(1, self.0.len().max(1)) - 1;
        self.0.get(index).copied().unwrap_or_default()
    }

    pub(crate) fn max(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank() {
        let hundred = Quantiles::of((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!(hundred.at(0.5), Duration::from_millis(50));
        assert_eq!(hundred.at(0.99), Duration::from_millis(99));
        assert_eq!(hundred.at(0.0), Duration::from_millis(1));
        assert_eq!(hundred.max(), Duration::from_millis(100));
    }

    #[test]
    fn no_samples() {
        let none = Quantiles::of(Vec::new());
        assert_eq!(none.at(0.99), Duration::ZERO);
        assert_eq!(none.max(), Duration::ZERO);
    }
}
