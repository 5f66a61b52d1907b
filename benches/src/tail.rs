//! Latencies of single calls and lateness of single removals: what an average hides.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;

/// A histogram of nanoseconds up to a minute, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// Records, taking what is out of range for the nearest value in range.
pub fn record(histogram: &mut Histogram<u64>, nanos: u64) {
    histogram.saturating_record(nanos.max(1));
}

/// Percentiles for a curve: half of what is left each time, as far as there are samples.
pub fn points(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut left = 0.5;
    while left * histogram.len() as f64 >= 1.0 {
        points.push((
            100.0 * (1.0 - left),
            histogram.value_at_quantile(1.0 - left) as f64,
        ));
        left /= 2.0;
    }
    points.push((100.0, histogram.max() as f64));
    points
}

const STEPS: u64 = 32;

/// A histogram that any thread may record in without a lock: 32 steps to each power of two, so at most 3 % off.
pub struct Shared {
    cells: Vec<AtomicU64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            cells: (0..64 * STEPS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Shared {
    /// Counts one value.
    pub fn record(&self, value: u64) {
        self.cells[cell(value)].fetch_add(1, Relaxed);
    }

    /// The value that a share `quantile` of all records does not exceed, rounded up to its step; `None` if there are none.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let counts: Vec<u64> = self.cells.iter().map(|cell| cell.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let wanted = ((total as f64 * quantile).ceil() as u64).max(1);
        let mut passed = 0;
        let index = counts.iter().position(|count| {
            passed += count;
            passed >= wanted
        })?;
        Some(last_of(index))
    }
}

/// Values below 32 have a cell each; above, the five bits after the leading one choose the step.
fn cell(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = u64::from(63 - value.leading_zeros());
    let step = (value >> (power - 5)) - STEPS;
    ((power - 4) * STEPS + step) as usize
}

/// The highest value of a cell.
fn last_of(index: usize) -> u64 {
    let (row, step) = (index as u64 / STEPS, index as u64 % STEPS);
    if row == 0 {
        step
    } else {
        ((STEPS + step + 1) << (row - 1)) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_holds_its_values_and_no_others() {
        for value in (0..5000)
            .chain((10..62).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]))
        {
            let index = cell(value);
            assert!(value <= last_of(index), "{value} above cell {index}");
            assert!(
                index == 0 || value > last_of(index - 1),
                "{value} below cell {index}"
            );
            assert!(
                (last_of(index) - value) as f64 <= value as f64 / 31.0,
                "{value} in a wide cell {index}"
            );
        }
    }

    #[test]
    fn quantiles_of_a_known_set() {
        let shared = Shared::default();
        assert_eq!(shared.quantile(0.5), None);
        for value in 1..=1000 {
            shared.record(value);
        }
        for (quantile, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = shared.quantile(quantile).unwrap();
            assert!(
                found >= exact && found <= exact + exact / 16,
                "{quantile}: {found}"
            );
        }
    }
}
