//! Latencies of single calls and lateness of single removals: what an average hides.

use hdrhistogram::{Histogram, iterators::IterationValue};

use crate::figure::{Metric, Reading};

/// A histogram of nanoseconds up to a minute, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// Records; what is out of range counts as the nearest value in range.
pub fn record(histogram: &mut Histogram<u64>, nanos: u64) {
    histogram.saturating_record(nanos.max(1));
}

/// Quantiles of a histogram as readings, in units of this many nanoseconds.
pub fn readings(seen: &Histogram<u64>, unit: f64, metrics: &[(Metric, f64)]) -> Vec<Reading> {
    let value = |quantile| seen.value_at_quantile(quantile) as f64 / unit;
    let readings = metrics
        .iter()
        .map(|(metric, quantile)| metric.of(value(*quantile)));
    readings.collect()
}

/// Percentiles for a curve and their values: half of what is left each time.
pub fn points(seen: &Histogram<u64>) -> Vec<(f64, f64)> {
    let steps = seen.iter_quantiles(1);
    let point = |step: IterationValue<u64>| {
        let percent = 100.0 * step.quantile_iterated_to();
        (percent, step.value_iterated_to() as f64)
    };
    steps.map(point).collect()
}
