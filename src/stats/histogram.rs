//! A histogram of durations, fine enough for quantiles.
//!
//! # How it works
//!
//! The histogram is log-linear: each power of two nanoseconds is cut into [`PARTS`] equal buckets,
//! and each duration below `PARTS` has a bucket of its own. So a bucket is at most an eighth of its
//! lower edge wide. A quantile is answered with the bucket's upper edge, so it is too high by at
//! most an eighth.
//!
//! # Invariants
//!
//! 1. The buckets lie in order of their durations and cover every `u64`.
//!
//! # Cost
//!
//! 4 KiB. To record takes a few instructions on one word.

/// Buckets for each power of two.
const PARTS: u64 = 8;
const PART_BITS: u32 = PARTS.ilog2();
/// One bucket for each duration below `PARTS`, `PARTS` buckets for each power of two above.
pub(super) const BUCKETS: usize = ((64 - PART_BITS as usize) + 1) * PARTS as usize;

/// A duration in nanoseconds that at least the fraction `quantile` of the durations counted did not
/// exceed. `None` if none was counted, or if `quantile` is not a number.
pub(super) fn quantile(counts: &[u64], quantile: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    if total == 0 || quantile.is_nan() {
        return None;
    }
    // A cast from a float saturates; rounding could exceed `total`.
    let rank = ((quantile.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total);
    let mut below = 0;
    let bucket = counts.iter().position(|count| {
        below += count;
        below >= rank
    })?;
    Some(upper_edge(bucket))
}

/// How many durations were shorter than `nanos`, a power of two and so the edge of a bucket.
pub(super) fn shorter_than(counts: &[u64], nanos: u64) -> u64 {
    debug_assert!(nanos.is_power_of_two());
    counts.iter().take(bucket_of(nanos)).sum()
}

/// The bucket that counts a duration.
pub(super) fn bucket_of(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    // The highest bit gives the power of two, the next bits the part.
    let shift = nanos.ilog2() - PART_BITS;
    let part = (nanos >> shift) - PARTS;
    (u64::from(shift + 1) * PARTS + part) as usize
}

/// The longest duration that a bucket counts.
fn upper_edge(bucket: usize) -> u64 {
    let row = bucket as u64 / PARTS;
    let part = bucket as u64 % PARTS;
    if row == 0 {
        return part;
    }
    let shift = row - 1;
    let lower = (PARTS + part) << shift;
    lower + ((1 << shift) - 1)
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests;
