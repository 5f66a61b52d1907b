//! What one call does: succession, sweeps, steps of the clock, pictures.

use super::{ORIGINS, Rig, SPAN, SPANS};
use crate::node::NO_BUCKET;
use crate::time::NEVER;
use crate::wheel::{LEVELS, Wheel};
use std::time::Duration;

#[test]
fn a_successor_keeps_the_position_in_the_same_bucket_only() {
    let mut rig = Rig::at(0);
    let first = rig.schedule_in(5 * SPAN as i64);
    let old = rig.schedule_in(5 * SPAN as i64);
    let last = rig.schedule_in(5 * SPAN as i64);
    let same = rig.nodes.succeed(old, 5 * SPAN - 1);
    rig.wheel.reschedule(same);
    assert_eq!(same.entry().bucket_id.get(), first.entry().bucket_id.get());
    let other = rig.nodes.succeed(first, 9 * SPAN);
    rig.wheel.reschedule(other);
    assert_ne!(other.entry().bucket_id.get(), same.entry().bucket_id.get());
    assert_eq!(rig.wheel.len(), 3);
    assert_eq!(rig.drain(5 * SPAN), [same, last]);
    assert_eq!(rig.drain(9 * SPAN), [other]);
}

#[test]
fn a_node_whose_new_deadline_belongs_in_its_bucket_keeps_its_position() {
    let mut rig = Rig::at(0);
    let nodes: Vec<_> = (0..3).map(|_| rig.schedule_in(5 * SPAN as i64)).collect();
    assert!(nodes[0].move_deadline(5 * SPAN, 5 * SPAN - 1).is_ok());
    rig.wheel.reschedule(nodes[0]);
    assert_eq!(rig.drain(5 * SPAN), nodes);
}

#[test]
fn a_successor_without_deadline_unlinks_and_one_of_an_unlinked_node_links() {
    let mut rig = Rig::at(0);
    let old = rig.schedule_in(SPAN as i64);
    let never = rig.nodes.succeed(old, NEVER);
    rig.wheel.reschedule(never);
    assert!(rig.wheel.is_empty());
    assert_eq!(never.entry().bucket_id.get(), NO_BUCKET);
    let heir = rig.nodes.succeed(never, SPAN);
    rig.wheel.reschedule(heir);
    assert_eq!(rig.drain(SPAN), [heir]);
}

#[test]
fn a_successor_of_the_last_pending_node_is_pending() {
    let mut rig = Rig::at(0);
    let nodes: Vec<_> = (0..3).map(|_| rig.schedule_in(SPAN as i64)).collect();
    let mut budget = 1;
    assert_eq!(rig.wheel.next_due(SPAN, &mut budget), Some(nodes[0]));
    // The new deadline is one turn later, in the same bucket: the wheel takes the successor out
    // with the pending nodes and links it again.
    let heir = rig.nodes.succeed(nodes[2], SPAN * 65);
    rig.wheel.reschedule(heir);
    rig.wheel.check_invariants();
    assert_eq!(rig.drain(SPAN), [nodes[1]]);
    assert_eq!(rig.drain(SPAN * 65), [heir]);
}

#[test]
fn the_last_pending_node_may_leave() {
    let mut rig = Rig::at(0);
    let nodes: Vec<_> = (0..3).map(|_| rig.schedule_in(SPAN as i64)).collect();
    rig.wheel.advance(SPAN);
    assert!(rig.wheel.has_work());
    // Behind the pending ones one of a later turn, which must not become pending.
    let later = rig.schedule_at(SPAN * 65);
    for (left, &node) in nodes.iter().enumerate().rev() {
        rig.wheel.deschedule(node);
        rig.wheel.check_invariants();
        assert_eq!(rig.wheel.has_work(), left > 0);
    }
    assert_eq!(rig.wheel.next_visit(), Some(SPAN * 65));
    assert_eq!(rig.drain(SPAN * 65), [later]);
}

#[test]
fn a_bucket_becomes_pending_again_before_its_first_drain_has_ended() {
    let mut rig = Rig::at(0);
    for _ in 0..4 {
        rig.schedule_in(SPAN as i64);
    }
    let mut budget = 1;
    assert!(rig.wheel.next_due(SPAN, &mut budget).is_some());
    let later = rig.schedule_at(SPAN * 65);
    assert_eq!(rig.drain(SPAN * 65).len(), 4);
    assert_eq!(later.entry().bucket_id.get(), NO_BUCKET);
}

#[test]
fn an_advance_finds_what_is_due_when_the_tick_ends_and_a_sweep_at_once() {
    for origin in ORIGINS {
        for delay in [1, 2, SPAN / 2, SPAN - 1, SPAN, SPAN + 1, SPANS[1] + 3] {
            let mut rig = Rig::at(origin);
            let node = rig.schedule_in(delay as i64);
            let other = rig.schedule_in(delay as i64 + 1);
            let before = origin.wrapping_add(delay - 1);
            rig.wheel.sweep(before);
            assert!(rig.drain(before).is_empty());
            let now = origin.wrapping_add(delay);
            rig.wheel.sweep(now);
            assert_eq!(rig.drain(now), [node]);
            rig.wheel.sweep(now.wrapping_add(1));
            assert_eq!(rig.drain(now.wrapping_add(1)), [other]);
        }
    }
}

#[test]
fn a_sweep_is_as_long_as_the_bucket_of_the_present_tick() {
    let mut rig = Rig::at(0);
    assert_eq!(rig.wheel.sweep_len(0), 0);
    for _ in 0..5 {
        rig.schedule_in(SPAN as i64 / 2);
    }
    rig.schedule_in(3 * SPAN as i64);
    assert_eq!(rig.wheel.sweep_len(0), 5);
    assert_eq!(rig.wheel.sweep_len(SPAN), 0);
}

#[test]
fn a_sweep_with_nothing_due_costs_nothing() {
    let mut rig = Rig::at(0);
    for n in 0..100 {
        rig.schedule_in(500 + n);
    }
    let mut budget = 1_000;
    let mut sweep = |rig: &mut Rig, now, expected: (usize, usize)| {
        let before = budget;
        rig.wheel.sweep(now);
        let mut found = 0;
        while rig.wheel.next_due(now, &mut budget).is_some() {
            found += 1;
        }
        rig.wheel.check_invariants();
        rig.wheel.check_promptness();
        assert_eq!((found, before - budget), expected, "at {now}");
    };
    sweep(&mut rig, 499, (0, 0));
    sweep(&mut rig, 500, (1, 100));
    // The bound is exact again after a sweep.
    sweep(&mut rig, 500, (0, 0));
    sweep(&mut rig, 502, (2, 99));
    sweep(&mut rig, 502, (0, 0));
    sweep(&mut rig, 599, (97, 97));
    sweep(&mut rig, 1_000, (0, 0));
}

#[test]
fn a_sweep_that_is_cut_short_goes_on_with_the_rest() {
    let mut rig = Rig::at(0);
    for n in 0..50 {
        rig.schedule_in(100 + n % 2 * 100);
    }
    let mut found = 0;
    for _ in 0..20 {
        rig.wheel.sweep(150);
        let mut budget = 3;
        while rig.wheel.next_due(150, &mut budget).is_some() {
            found += 1;
        }
        rig.wheel.check_invariants();
    }
    assert_eq!(found, 25);
    rig.wheel.sweep(200);
    assert_eq!(rig.drain(200).len(), 25);
}

#[test]
fn a_step_back_within_a_tick_costs_nothing_and_removes_nothing_early() {
    for origin in ORIGINS {
        let tick = origin & !(SPAN - 1);
        let mut rig = Rig::at(tick.wrapping_add(500));
        for delay in 1..100 {
            rig.schedule_in(delay);
        }
        rig.wheel.advance(tick.wrapping_add(10));
        assert!(!rig.wheel.has_work());
        rig.wheel.sweep(tick.wrapping_add(500));
        assert!(rig.drain(tick.wrapping_add(500)).is_empty());
        rig.wheel.sweep(tick.wrapping_add(510));
        assert_eq!(rig.drain(tick.wrapping_add(510)).len(), 10);
    }
}

#[test]
fn no_timer_waits_for_a_clock_that_ran_back_to_catch_up() {
    for origin in ORIGINS {
        for back in [
            1,
            SPAN,
            3 * SPAN + 7,
            SPANS[1],
            5 * SPANS[2],
            SPANS[3] * 2,
            SPANS[4] * 9,
            1 << 60,
        ] {
            let mut rig = Rig::at(origin);
            let delays = [
                1,
                SPAN,
                63 * SPAN,
                SPANS[1],
                SPANS[2],
                SPANS[3],
                SPANS[4],
                SPANS[4] * 3,
            ];
            for delay in delays {
                rig.schedule_in(delay as i64);
            }
            let earlier = origin.wrapping_sub(back);
            assert!(
                rig.drain(earlier).is_empty(),
                "nothing is due {back} ns earlier"
            );
            assert_eq!(rig.wheel.now(), earlier);
            assert_eq!(rig.wheel.len(), delays.len());
            // What is scheduled now is found by the clock as it is now.
            let near = rig.schedule_in(2 * SPAN as i64);
            let found = rig.drain(earlier.wrapping_add(3 * SPAN));
            assert!(found.contains(&near));
            // And all others in time.
            for delay in delays {
                let latest = origin.wrapping_add(delay + SPAN);
                rig.drain(latest);
                let gone = delays.iter().filter(|&&other| other <= delay).count();
                assert!(
                    rig.wheel.len() <= delays.len() - gone,
                    "{back} back, {delay} on"
                );
            }
        }
    }
}

#[test]
fn a_clock_that_wavers_over_a_boundary_does_little_and_loses_nothing() {
    for boundary in [0, 1 << 63, SPANS[4] * 3] {
        let mut rig = Rig::at(boundary);
        let crowd = 100;
        for _ in 0..crowd {
            rig.schedule_in(SPANS[4] as i64 * 50);
            rig.schedule_in(SPANS[1] as i64 * 7);
        }
        let mut budget = 10 * crowd;
        for _ in 0..50 {
            assert_eq!(
                rig.wheel.next_due(boundary.wrapping_sub(1), &mut budget),
                None
            );
            rig.wheel.check_invariants();
            rig.wheel.check_promptness();
            assert_eq!(rig.wheel.next_due(boundary, &mut budget), None);
        }
        // The farthest bucket is looked at when its tick begins, which it does each time; the
        // nearer one is left alone.
        assert!(10 * crowd - budget <= 50 * crowd);
        assert_eq!(rig.wheel.len(), 2 * crowd);
    }
}

#[test]
fn however_fast_late_nodes_come_the_others_have_their_turn() {
    let mut rig = Rig::at(0);
    let waiting = rig.schedule_in(SPANS[1] as i64 + 9 * SPAN as i64);
    let now = SPANS[1] + 9 * SPAN;
    for _ in 0..3 {
        rig.schedule_in(0);
    }
    // Every pass may take one node, and finds two more late.
    for passes in 0.. {
        assert!(passes < 10, "passed over");
        let mut budget = 1;
        if rig.wheel.next_due(now, &mut budget) == Some(waiting) {
            break;
        }
        rig.schedule_in(0);
        rig.schedule_in(0);
    }
    // And they have theirs.
    let linked = rig.wheel.len();
    assert_eq!(rig.drain(now).len(), linked);
}

#[test]
fn a_picture_shows_each_node_where_it_hangs() {
    let mut rig = Rig::at(5 * SPAN);
    rig.schedule_in(SPAN as i64 * 3);
    rig.schedule_in(SPAN as i64 * 3);
    rig.schedule_in(SPANS[1] as i64 * 2);
    rig.schedule_in(-1);
    rig.schedule_in(SPANS[4] as i64 * 2);
    let lens = [0, 1, 2, 3, 4].map(|level| rig.wheel.lens(level));
    assert_eq!(lens.each_ref().map(Vec::len), [64, 64, 32, 4, 1]);
    for (level, span) in SPANS.into_iter().enumerate() {
        assert_eq!(rig.wheel.spans.span(level), Duration::from_nanos(span));
    }
    assert_eq!(rig.wheel.hand(0), 5);
    assert_eq!(lens[0][7], 2);
    assert_eq!(lens[0][5], 1, "the late one is shown under the hand");
    assert_eq!(lens[1][2], 1);
    assert_eq!(lens[4], [1]);
}

#[test]
fn a_wheel_without_deadlines_allocates_nothing() {
    let mut wheel: Wheel<u64, u64> =
        Wheel::new(0, super::super::Spans::new(Duration::from_nanos(1 << 30)));
    wheel.advance(1 << 50);
    wheel.sweep(1 << 51);
    let mut budget = 1;
    assert_eq!(wheel.next_due(1 << 52, &mut budget), None);
    assert_eq!(
        (0..LEVELS)
            .map(|level| wheel.lens(level).len())
            .sum::<usize>(),
        165
    );
    assert!(wheel.buckets.is_none());
}
