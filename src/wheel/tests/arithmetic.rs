//! The pure arithmetic, exhaustively where small spans allow it, and by every pair of tick edges
//! where not.

use super::ORIGINS;
use crate::hash::Dice;
use crate::time::MAX_LIFETIME_NANOS;
use crate::wheel::level::{
    BUCKETS, BUCKETS_PER_LEVEL, BucketSet, FINEST, LATE, LEVELS, Spans, WIDEST, bucket_id_of,
    level_of,
};
use std::time::Duration;

/// Follows a deadline from placement over every cascade to its flush, each visit on time.
///
/// Asserts on the way: no visit before now or after the flush; no cascade at or after the deadline;
/// never the bucket under the hand of levels 1 to 3; each cascade leads to a finer level, or from
/// the farthest to itself.
fn follow(spans: Spans, now: u64, deadline: u64) {
    let distance = deadline.wrapping_sub(now);
    assert!(distance > 0 && distance < 1 << 63);
    let flush = spans.flush_time(now, deadline).wrapping_sub(now);
    assert!(flush >= distance && u128::from(flush - distance) < spans.resolution().as_nanos());

    let mut at = now;
    let mut last_level = LEVELS;
    loop {
        let bucket_id = spans.bucket_id(at, deadline);
        let (level, index) = level_of(bucket_id).expect("a deadline ahead is not late");
        assert!(level < last_level || (level, last_level) == (LEVELS - 1, LEVELS - 1));
        if level > 0 && level < LEVELS - 1 {
            assert_ne!(
                index,
                spans.hand(level, at),
                "under the hand of level {level}"
            );
        }
        let visit = spans.visit(level, index, at);
        let passed = at.wrapping_sub(now);
        let until = visit.wrapping_sub(now);
        assert!(until > passed, "a visit in the past");
        assert_eq!(spans.first_visit(level, 1 << index, at), visit);
        // The visit happens exactly then, not a moment before.
        let before = visit.wrapping_sub(1);
        assert_eq!(spans.passed(level, at, before) >> index & 1, 0);
        assert_eq!(spans.passed(level, at, visit) >> index & 1, 1);
        if level == 0 {
            assert_eq!(until, flush, "flushed at the end of the tick");
            return;
        }
        assert!(until < distance, "cascaded before the deadline");
        at = visit;
        last_level = level;
    }
}

#[test]
fn every_deadline_within_a_turn_of_the_second_level_from_every_moment_of_a_turn_of_the_first() {
    // Spans of 1, 64, 4,096 … ns; two ns for the finest in the second run, so that ticks have an
    // inside.
    for (shift, moments, distances) in [(0, 64..130, 1..4_300), (1, 0..130, 1..600)] {
        let spans = Spans::with_shift(shift);
        for origin in [0, u64::MAX - 8_000, (1 << 63) - 8_000] {
            for moment in moments.clone() {
                let now = moment + origin;
                for distance in distances.clone() {
                    follow(spans, now, now.wrapping_add(distance));
                }
            }
        }
    }
}

#[test]
fn every_pair_of_ticks_of_every_level_with_the_moments_beside_their_edges() {
    for shift in [0, 30, 43] {
        let spans = Spans::with_shift(shift);
        for (level, len) in BUCKETS_PER_LEVEL.into_iter().enumerate() {
            let (span, len) = (spans.span(level).as_nanos() as u64, u64::from(len));
            // One turn from a boundary that all levels share, at several times of the clock.
            for base in [0, 1 << 63, 0u64.wrapping_sub(span.wrapping_mul(len))] {
                for tick in 0..len {
                    for ahead in 0..=2 * len + 1 {
                        for (off, edge) in
                            [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (-1, 1), (1, -1)]
                        {
                            let now = base
                                .wrapping_add(tick.wrapping_mul(span))
                                .wrapping_add_signed(off);
                            let distance = u128::from(ahead) * u128::from(span);
                            let Ok(distance) = u64::try_from(distance) else {
                                continue;
                            };
                            let distance = distance.wrapping_add_signed(edge);
                            if (1..=MAX_LIFETIME_NANOS + 1).contains(&distance) {
                                follow(spans, now, now.wrapping_add(distance));
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_longest_lifetime_at_every_resolution_from_every_origin() {
    for shift in 0..=43 {
        let spans = Spans::with_shift(shift);
        for now in ORIGINS {
            // Beyond the longest lifetime too: a wheel whose time lags sees deadlines farther away.
            for distance in [MAX_LIFETIME_NANOS, MAX_LIFETIME_NANOS + 1, i64::MAX as u64] {
                let deadline = now.wrapping_add(distance);
                let bucket_id = spans.bucket_id(now, deadline);
                let (level, index) = level_of(bucket_id).expect("not late");
                let until = spans.visit(level, index, now).wrapping_sub(now);
                assert!(until > 0 && until <= 1 << 62);
                if shift < 43 {
                    assert_eq!(level, LEVELS - 1);
                }
            }
        }
    }
}

#[test]
fn due_is_late_from_every_origin() {
    for shift in [0, 16, 30, 43] {
        let spans = Spans::with_shift(shift);
        for now in ORIGINS {
            for late in [
                0,
                1,
                (1 << shift) - 1,
                1 << shift,
                MAX_LIFETIME_NANOS,
                i64::MAX as u64,
            ] {
                let deadline = now.wrapping_sub(late);
                assert_eq!(spans.bucket_id(now, deadline), LATE);
                assert_eq!(spans.flush_time(now, deadline), now);
            }
            assert_ne!(spans.bucket_id(now, now.wrapping_add(1)), LATE);
        }
    }
}

#[test]
fn a_multiple_of_the_resolution_is_met_exactly() {
    let spans = Spans::with_shift(16);
    for tick in [1u64, 2, 63, 64, 65, 4_096, 1 << 40] {
        assert_eq!(spans.flush_time(5, tick << 16), tick << 16);
        assert_eq!(spans.flush_time(5, (tick << 16) + 1), (tick + 1) << 16);
    }
}

/// Which indexes a clock visits on its way, by walking over every tick.
fn walk(spans: Spans, level: usize, then: u64, ticks: u64) -> u64 {
    let span = spans.span(level).as_nanos() as u64;
    (0..ticks).fold(0, |visited, tick| {
        let ended = then.wrapping_add(tick.wrapping_mul(span));
        let begun = ended.wrapping_add(span);
        let moment = if level == 0 { ended } else { begun };
        visited | 1 << spans.hand(level, moment)
    })
}

#[test]
fn passed_and_withdrawn_are_what_a_walk_over_the_ticks_finds() {
    for shift in [0, 3, 30, 43] {
        let spans = Spans::with_shift(shift);
        for (level, len) in BUCKETS_PER_LEVEL.into_iter().enumerate() {
            let (span, len) = (spans.span(level).as_nanos() as u64, u64::from(len));
            let turns = if shift == 43 { 1 } else { 2 };
            for start in 0..=len {
                for count in 0..turns * len {
                    // From a moment inside a tick to the end of another.
                    let then = start
                        .wrapping_mul(span)
                        .wrapping_sub(span.wrapping_mul(17))
                        .wrapping_add(span / 3);
                    let now = then
                        .wrapping_add(count * span)
                        .wrapping_add(span - 1 - span / 3);
                    assert_eq!(
                        spans.passed(level, then, now),
                        walk(spans, level, then, count)
                    );

                    // And back: each bucket that may hold a tick which is now a turn or more away.
                    let expected = if level == LEVELS - 1 {
                        0
                    } else {
                        (0..count).fold(0, |gone, tick| {
                            let far = then.wrapping_add((len + tick).wrapping_mul(span));
                            gone | 1 << spans.hand(level, far)
                        })
                    };
                    assert_eq!(spans.withdrawn(level, now, then), expected);
                }
            }
        }
    }
}

#[test]
fn the_first_visit_is_the_least_of_all_visits() {
    let spans = Spans::with_shift(4);
    let mut dice = Dice::new(7);
    for (level, len) in BUCKETS_PER_LEVEL.into_iter().enumerate() {
        for _ in 0..2_000 {
            let now = dice.roll();
            let full = u64::MAX >> (64 - len);
            let occupied = (dice.roll() & dice.roll() & full) | 1 << (dice.roll() % u64::from(len));
            let least = (0..len)
                .filter(|index| occupied >> index & 1 == 1)
                .map(|index| spans.visit(level, index, now).wrapping_sub(now))
                .min();
            let first = spans.first_visit(level, occupied, now).wrapping_sub(now);
            assert_eq!(Some(first), least);
        }
    }
}

#[test]
fn places_number_the_buckets_without_gap_or_overlap() {
    let mut next = 0;
    for (level, len) in BUCKETS_PER_LEVEL.into_iter().enumerate() {
        for index in 0..len {
            assert_eq!(bucket_id_of(level, index), next);
            assert_eq!(level_of(next), Some((level, index)));
            next += 1;
        }
    }
    assert_eq!(next, LATE);
    assert_eq!(level_of(LATE), None);
    assert_eq!(usize::from(LATE) + 1, BUCKETS);
}

#[test]
fn a_set_of_places_is_walked_round_from_anywhere() {
    let mut dice = Dice::new(11);
    for _ in 0..300 {
        let mut bucket_ids = BucketSet::default();
        let mut members = std::collections::BTreeSet::new();
        for _ in 0..dice.roll() % 6 {
            let bucket_id = (dice.roll() % BUCKETS as u64) as u8;
            bucket_ids.insert(bucket_id);
            members.insert(bucket_id);
        }
        assert_eq!(bucket_ids.is_empty(), members.is_empty());
        for from in 0..=BUCKETS as u8 {
            let expected = members.range(from..).next().or(members.first()).copied();
            assert_eq!(bucket_ids.next_from(from), expected);
        }
        for bucket_id in 0..BUCKETS as u8 {
            assert_eq!(bucket_ids.contains(bucket_id), members.contains(&bucket_id));
            if let Some((level, index)) = level_of(bucket_id) {
                assert_eq!(
                    bucket_ids.of_level(level) >> index & 1 == 1,
                    members.contains(&bucket_id)
                );
            }
        }
        for bucket_id in members {
            bucket_ids.remove(bucket_id);
        }
        assert!(bucket_ids.is_empty());
    }
}

#[test]
fn a_resolution_is_rounded_up_to_a_power_of_two_within_its_limits() {
    let resolution = |nanos| Spans::new(Duration::from_nanos(nanos)).resolution();
    assert_eq!(resolution(1 << 30), Duration::from_nanos(1 << 30));
    assert_eq!(resolution((1 << 30) + 1), Duration::from_nanos(1 << 31));
    assert_eq!(resolution((1 << 30) - 1), Duration::from_nanos(1 << 30));
    assert_eq!(resolution(0), FINEST);
    assert_eq!(Spans::new(Duration::MAX).resolution(), WIDEST);
    let default = Spans::new(Duration::from_nanos(1 << 30));
    let shifts = [30, 36, 42, 47, 49];
    for (level, shift) in shifts.into_iter().enumerate() {
        assert_eq!(default.span(level), Duration::from_nanos(1 << shift));
    }
    // The widest shift of all: a boundary and a distance below 2^63 still add up within 64 bits.
    assert_eq!(
        Spans::new(WIDEST).span(LEVELS - 1),
        Duration::from_nanos(1 << 62)
    );
}
