//! What tests ask of the geometry of the wheel.

use super::{BUCKETS, BUCKETS_PER_LEVEL, FIRST, Spans, WIDEST_SHIFT};

impl Spans {
    /// The spans for a finest span of `2^shift` ns, down to 1 ns: small enough for tests to visit
    /// every moment of some turns.
    pub(crate) fn with_shift(shift: u32) -> Self {
        assert!(shift <= WIDEST_SHIFT);
        Self { shift }
    }
}

/// Level and index of a bucket by its number; `None` for the overdue bucket.
pub(crate) fn level_of(bucket_id: u8) -> Option<(usize, u32)> {
    assert!(
        usize::from(bucket_id) < BUCKETS,
        "there is no bucket {bucket_id}"
    );
    let level = FIRST.iter().rposition(|&first| first <= bucket_id)?;
    let index = u32::from(bucket_id - FIRST[level]);
    (index < BUCKETS_PER_LEVEL[level]).then_some((level, index))
}
