//! What tests ask of the geometry of the wheel.

use super::{BUCKETS, BUCKETS_PER_LEVEL, FIRST, Spans, WIDEST_SHIFT, lead};

impl Spans {
    /// The spans for a finest span of `2^shift` ns, down to 1 ns: small enough for tests to visit
    /// every moment of some turns.
    pub(crate) fn with_shift(shift: u32) -> Self {
        assert!(shift <= WIDEST_SHIFT);
        Self {
            finest_shift: shift,
        }
    }

    /// When the bucket at `index` of a level is visited next, worked out for it alone.
    pub(crate) fn visit(self, level: usize, index: u32, now: u64) -> u64 {
        let ahead = index.wrapping_sub(self.hand(level, now) + lead(level))
            & (BUCKETS_PER_LEVEL[level] - 1);
        self.tick_after(level, ahead, now)
    }
}

/// Level and index of a bucket by its number; `None` for the late bucket.
pub(crate) fn level_of(bucket_id: u8) -> Option<(usize, u32)> {
    assert!(
        usize::from(bucket_id) < BUCKETS,
        "there is no bucket {bucket_id}"
    );
    let level = FIRST.iter().rposition(|&first| first <= bucket_id)?;
    let index = u32::from(bucket_id - FIRST[level]);
    (index < BUCKETS_PER_LEVEL[level]).then_some((level, index))
}
