//! The arithmetic of the wheel: five levels of buckets, and the moment at which each bucket is
//! visited.
//!
//! # How it works
//!
//! A level cuts time into *ticks* of `2^shift` ns, its *span*. Tick `T` covers the moments `T·span
//! ..= (T+1)·span - 1` and belongs to bucket `T mod len`. The bucket of the tick that contains
//! *now* is the level's *hand*.
//!
//! A deadline `d` that lies after `now` is filed under the last moment before it, `e = d - 1 >=
//! now`, in the finest level whose hand is less than one turn from `e`, *counted in ticks of that
//! level*:
//!
//! | level | buckets | span (default)  | holds ticks, counted from the hand | visited when |
//! |-------|---------|-----------------|------------------------------------|--------------|
//! | 0     | 64      | 2^30 (1.07 s)   | 0 to 63  | the tick has ended: *flushed*  |
//! | 1     | 64      | 2^36 (1.15 min) | 1 to 63  | the tick begins: *cascaded*    |
//! | 2     | 32      | 2^42 (1.22 h)   | 1 to 31  | the tick begins                |
//! | 3     | 4       | 2^47 (1.63 d)   | 1 to 3   | the tick begins                |
//! | 4     | 1       | 2^49 (6.52 d)   | 1 and up | the next tick begins           |
//!
//! # Why this is exact
//!
//! Write `t_l(x)` for the tick of `x` in level `l`, and `len_l` for its number of buckets. One turn
//! of a level is one tick of the level above, so `t_(l+1)(x) = t_l(x) div len_l` up to level 3.
//!
//! - *No entry lands under the hand of an upper level.* `d` comes to level `l + 1` only if
//!   `t_l(e) - t_l(now) >= len_l`, and then `t_(l+1)(e) - t_(l+1)(now) >= 1`.
//! - *No entry is filed a turn too late or too early.* A level holds fewer than `len_l` different
//!   ticks (level 0: exactly 64), so a bucket holds one tick at a time. Level 4 holds all other
//!   entries, and its one bucket is visited at each of its ticks.
//! - *A cascade comes before the deadline*: the tick of `e` begins at or before `e`, and `e < d`.
//!   When the tick begins, the difference in that level is 0, so the entry moves to a finer level;
//!   from level 4 it may return to level 4.
//! - *A bucket of level 0 is flushed at the deadline or less than one span later*: the tick of `e`
//!   ends at the first multiple of the span that is at or after `d`. All entries of the bucket are
//!   due then, and a deadline that is a multiple is met exactly.
//!
//! # The clock wraps
//!
//! Every difference is taken on nanoseconds, in wrapping arithmetic, and shifted afterwards: the
//! number of ticks from `a` to `b` is `(b - (a rounded down)) >> shift`. Tick *numbers* wrap at
//! `2^(64 - shift)`, and shifting them first would need a mask. The widest shift of all is 62, so
//! the rounding loses less than 2^62 and the sum of the rounding and of a distance below 2^63 fits
//! in 64 bits.
//!
//! Cost: a few shifts and comparisons for each function here.

use crate::time;
use std::time::Duration;

/// Number of levels.
pub(crate) const LEVELS: usize = 5;

/// The level for deadlines that are too far away for the others.
const FARTHEST: usize = LEVELS - 1;

/// Buckets of each level: powers of two.
pub(crate) const BUCKETS_PER_LEVEL: [u32; LEVELS] = [64, 64, 32, 4, 1];

/// By how many bits the span of a level is wider than that of the finest. Up to level 3 one turn of
/// a level is one tick of the next.
const ABOVE: [u32; LEVELS] = [0, 6, 12, 17, 19];

/// Number of the first bucket of each level; the buckets of all levels are numbered in one
/// sequence.
const FIRST: [u8; LEVELS] = [0, 64, 128, 160, 164];

/// Number of the bucket that belongs to no level: it holds entries that were already due when they
/// were linked.
pub(crate) const LATE: u8 = 165;

/// Number of buckets in all.
pub(crate) const BUCKETS: usize = 166;

/// log2 of the finest resolution that the builder allows.
const FINEST_SHIFT: u32 = 16;

/// log2 of the widest resolution: the span of the farthest level is then 2^62 ns, the longest
/// lifetime.
const WIDEST_SHIFT: u32 = 62 - ABOVE[FARTHEST];

/// The finest resolution.
pub(crate) const FINEST: Duration = Duration::from_nanos(1 << FINEST_SHIFT);

/// The widest resolution, 2^43 ns (2.4 hours).
pub(crate) const WIDEST: Duration = Duration::from_nanos(1 << WIDEST_SHIFT);

/// The spans of all levels, which follow from that of the finest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// log2 of the finest span in nanoseconds.
    finest_shift: u32,
}

impl Spans {
    /// The spans for a resolution, which is rounded up to a power of two nanoseconds and kept
    /// within [`FINEST`] and [`WIDEST`].
    pub(crate) fn new(resolution: Duration) -> Self {
        let nanos = time::saturating_nanos(resolution.clamp(FINEST, WIDEST));
        Self {
            finest_shift: nanos.next_power_of_two().ilog2(),
        }
    }

    /// The span of the finest level: a removal is late by less than this.
    pub(crate) fn resolution(self) -> Duration {
        self.span(0)
    }

    /// The width of a bucket of this level.
    pub(crate) fn span(self, level: usize) -> Duration {
        Duration::from_nanos(1 << self.shift(level))
    }

    #[inline]
    fn shift(self, level: usize) -> u32 {
        self.finest_shift + ABOVE[level]
    }

    /// The bucket of this level, counted within the level, whose tick holds `now`.
    #[inline]
    pub(crate) fn hand(self, level: usize, now: u64) -> u32 {
        (now >> self.shift(level)) as u32 & (BUCKETS_PER_LEVEL[level] - 1)
    }

    /// Whether two moments share a tick of the finest level, hence of all.
    #[inline]
    pub(crate) fn same_tick(self, a: u64, b: u64) -> bool {
        (a ^ b) >> self.finest_shift == 0
    }

    /// The number of the bucket for a deadline other than `NEVER`, as filed at `now`.
    #[inline]
    pub(crate) fn bucket_id(self, now: u64, deadline: u64) -> u8 {
        if time::has_come(now, deadline) {
            return LATE;
        }
        let last = deadline.wrapping_sub(1);
        for level in 0..FARTHEST {
            let shift = self.shift(level);
            if ticks(now, last, shift) < u64::from(BUCKETS_PER_LEVEL[level]) {
                return FIRST[level] + self.hand(level, last) as u8;
            }
        }
        FIRST[FARTHEST]
    }

    /// When the first of the occupied buckets of a level is visited, if the clock shows `now` and
    /// advances: always after `now`, by at most one turn. `occupied` has a bit for each index and
    /// is not 0.
    #[inline]
    pub(crate) fn first_visit(self, level: usize, occupied: u64, now: u64) -> u64 {
        let start = (self.hand(level, now) + lead(level)) & (BUCKETS_PER_LEVEL[level] - 1);
        let turned =
            (u128::from(occupied) | u128::from(occupied) << BUCKETS_PER_LEVEL[level]) >> start;
        self.tick_after(level, turned.trailing_zeros(), now)
    }

    /// The moment at which the present tick and `ahead` more have ended, and the next one begins.
    #[inline]
    fn tick_after(self, level: usize, ahead: u32, now: u64) -> u64 {
        let shift = self.shift(level);
        round_down(now, shift).wrapping_add((u64::from(ahead) + 1) << shift)
    }

    /// The buckets of a level, one bit each, to visit when the clock advances from `then` to `now`:
    /// each once, even if the jump is longer than a turn.
    pub(crate) fn passed(self, level: usize, then: u64, now: u64) -> u64 {
        let start = self.hand(level, then) + lead(level);
        buckets_from(level, start, ticks(then, now, self.shift(level)))
    }

    /// The buckets of a level, one bit each, whose entries are linked again when the clock goes
    /// back from `then` to `now`: their tick is now a turn or more away. The farthest level holds
    /// any distance.
    pub(crate) fn withdrawn(self, level: usize, then: u64, now: u64) -> u64 {
        if level == FARTHEST {
            return 0;
        }
        let start = self.hand(level, now);
        buckets_from(level, start, ticks(now, then, self.shift(level)))
    }

    /// The latest moment at which an entry with this deadline (not `NEVER`) is flushed, as filed at
    /// `now`. That is `now` if it is due, else the end of its finest tick: the deadline, rounded up
    /// to a multiple of the resolution.
    #[inline]
    pub(crate) fn flush_time(self, now: u64, deadline: u64) -> u64 {
        if time::has_come(now, deadline) {
            now
        } else {
            round_down(deadline.wrapping_sub(1), self.finest_shift)
                .wrapping_add(1 << self.finest_shift)
        }
    }
}

/// Where the visits of a level begin, counted from the hand. The finest level visits a bucket when
/// its tick has ended, the others when it begins.
#[inline]
const fn lead(level: usize) -> u32 {
    (level != 0) as u32
}

/// The tick boundary at or before `moment`.
#[inline]
const fn round_down(moment: u64, shift: u32) -> u64 {
    moment & (u64::MAX << shift)
}

/// How many tick boundaries lie after `from` and at or before `to`, which is not before `from`.
#[inline]
const fn ticks(from: u64, to: u64, shift: u32) -> u64 {
    to.wrapping_sub(round_down(from, shift)) >> shift
}

/// All buckets of a level, one bit each.
#[inline]
const fn full(level: usize) -> u64 {
    u64::MAX >> (64 - BUCKETS_PER_LEVEL[level])
}

/// `count` buckets of a level from `start` on (below twice its length), one bit each.
fn buckets_from(level: usize, start: u32, count: u64) -> u64 {
    let len = BUCKETS_PER_LEVEL[level];
    if count >= u64::from(len) {
        return full(level);
    }
    let line = ((1u128 << count) - 1) << (start & (len - 1));
    (line | line >> len) as u64 & full(level)
}

/// A set of buckets of all levels.
///
/// One word each for the levels 0 and 1; the other levels and the late bucket share the third.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketSet([u64; 3]);

impl BucketSet {
    #[inline]
    pub(crate) fn contains(&self, bucket_id: u8) -> bool {
        self.0[usize::from(bucket_id >> 6)] >> (bucket_id & 63) & 1 == 1
    }

    #[inline]
    pub(crate) fn insert(&mut self, bucket_id: u8) {
        self.0[usize::from(bucket_id >> 6)] |= 1 << (bucket_id & 63);
    }

    #[inline]
    pub(crate) fn remove(&mut self, bucket_id: u8) {
        self.0[usize::from(bucket_id >> 6)] &= !(1 << (bucket_id & 63));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 3]
    }

    /// The buckets of one level, one bit for each index.
    #[inline]
    pub(crate) fn of_level(&self, level: usize) -> u64 {
        let first = FIRST[level];
        self.0[usize::from(first >> 6)] >> (first & 63) & full(level)
    }

    /// The first member at or after `from`, else the first one from 0.
    #[inline]
    pub(crate) fn next_from(&self, from: u8) -> Option<u8> {
        let word = usize::from(from >> 6);
        let rest = self.0[word] & (u64::MAX << (from & 63));
        if rest != 0 {
            return Some((from & !63) + rest.trailing_zeros() as u8);
        }
        [(word + 1) % 3, (word + 2) % 3, word]
            .into_iter()
            .find(|&word| self.0[word] != 0)
            .map(|word| word as u8 * 64 + self.0[word].trailing_zeros() as u8)
    }
}

/// The number of the bucket at `index` of a level.
#[inline]
pub(crate) const fn bucket_id_of(level: usize, index: u32) -> u8 {
    FIRST[level] + index as u8
}

// The invariants of this module: `checks/level.rs`, at the root of the repository.
#[cfg(any(test, fuzzing))]
#[path = "../../checks/level.rs"]
mod check;
#[cfg(any(test, fuzzing))]
pub(crate) use check::level_of;
