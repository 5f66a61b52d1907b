//! Each failure of another wheel or cache that concerns a wheel, as a test that would show it here.

use super::{ORIGINS, Rig, SPAN, SPANS};
use crate::node::NO_BUCKET;
use crate::time::{MAX_LIFETIME_NANOS, NEVER};
use crate::wheel::oracle::want;

#[test]
fn the_top_level_does_not_hide_short_timers_after_a_full_turn() {
    for origin in ORIGINS {
        let mut rig = Rig::at(origin);
        let far = rig.schedule_in(40 * SPANS[4] as i64);
        // Several turns of all levels go by before the short one comes.
        let start = origin.wrapping_add(9 * SPANS[4] + 5);
        assert!(rig.drain(start).is_empty());
        let short = rig.schedule_in(3 * SPAN as i64);
        let (after, visits) = rig.run_to_first(start);
        assert!((3 * SPAN..4 * SPAN).contains(&after) && visits <= 2);
        assert_eq!(short.entry().bucket_id.get(), NO_BUCKET);
        assert_ne!(far.entry().bucket_id.get(), NO_BUCKET);
    }
}

#[test]
fn no_level_past_the_end_for_the_farthest_deadlines() {
    for origin in ORIGINS {
        for shift in [0, 16, 30, 43] {
            for delay in [
                MAX_LIFETIME_NANOS,
                MAX_LIFETIME_NANOS + 1,
                i64::MAX as u64 - 1,
                i64::MAX as u64,
            ] {
                let mut rig = Rig::with_shift(origin, shift);
                let node = rig.schedule_in(delay as i64);
                assert_ne!(node.entry().bucket_id.get(), NO_BUCKET);
                let next = rig.wheel.next_visit().expect("a node is linked");
                assert!(next.wrapping_sub(origin) <= 1 << 62);
            }
        }
    }
}

#[test]
fn the_current_bucket_is_visited_when_its_tick_ends_not_a_turn_later() {
    for origin in ORIGINS {
        for delay in 1..=64 {
            // Spans of 32 ns: every moment of two ticks.
            let mut rig = Rig::with_shift(origin, 5);
            rig.schedule_in(delay as i64);
            let (after, visits) = rig.run_to_first(origin);
            assert_eq!(visits, 1);
            assert!((delay..delay + 32).contains(&after), "{delay}: {after}");
        }
    }
}

#[test]
fn a_timer_beside_each_span_is_not_late_by_a_coarse_one() {
    for origin in ORIGINS {
        for span in SPANS {
            for turns in [1, 4, 32, 63, 64] {
                for edge in [-(SPAN as i64), -1, 0, 1, SPAN as i64] {
                    let delay = (span * turns).wrapping_add_signed(edge).max(1);
                    let mut rig = Rig::at(origin);
                    rig.schedule_in(delay as i64);
                    let (after, visits) = rig.run_to_first(origin);
                    assert!((delay..delay + SPAN).contains(&after), "{delay}: {after}");
                    // One each for the levels, and one for each turn of the farthest.
                    assert!(u64::from(visits) <= 5 + delay / SPANS[4]);
                }
            }
        }
    }
}

#[test]
fn a_jump_longer_than_a_turn_visits_every_bucket_once() {
    for jump in [
        SPANS[1] + 1,
        2 * SPANS[1],
        SPANS[2] + SPANS[1],
        SPANS[3] * 5,
        SPANS[4] * 3 + 1,
        1 << 61,
    ] {
        for origin in ORIGINS {
            let mut rig = Rig::at(origin);
            // One node or more in every bucket that can hold one.
            let mut delays: Vec<u64> = (1..=64).map(|tick| tick * SPAN).collect();
            delays.extend((1..=64).map(|tick| tick * SPANS[1]));
            delays.extend((1..=32).map(|tick| tick * SPANS[2]));
            delays.extend((1..=6).map(|tick| tick * SPANS[3]));
            for &delay in &delays {
                rig.schedule_in(delay as i64);
            }
            let due = delays.iter().filter(|&&delay| delay <= jump).count();
            let now = origin.wrapping_add(jump);
            rig.wheel.sweep(now);
            let mut budget = 3 * delays.len();
            let mut found = 0;
            while rig.wheel.next_due(now, &mut budget).is_some() {
                found += 1;
            }
            assert_eq!(found, due, "a jump of {jump} from {origin}");
            // Each node was taken out once, not once for each tick that was passed.
            assert!(3 * delays.len() - budget <= delays.len());
            rig.wheel.check_invariants();
        }
    }
}

#[test]
fn far_timers_never_fire_early() {
    // Placed by the level whose ticks are near, a timer of just under a turn would share the tick
    // of now.
    for origin in ORIGINS {
        for level in 1..5 {
            let mut rig = Rig::at(origin);
            let into_the_tick = SPANS[level] - 1 - (origin & (SPANS[level] - 1));
            let start = origin.wrapping_add(into_the_tick);
            rig.wheel.advance(start);
            let turn = if level == 4 {
                SPANS[4]
            } else {
                SPANS[level] * [64, 64, 32, 4][level]
            };
            let node = rig.schedule_in(turn as i64 - 1);
            while let Some(next) = rig.wheel.next_visit() {
                // Just before each moment of work there is none, and nothing is found before the
                // deadline.
                assert!(rig.drain(next.wrapping_sub(1)).is_empty());
                if !rig.drain(next).is_empty() {
                    assert!(next.wrapping_sub(start) >= turn - 1);
                    assert_eq!(node.entry().bucket_id.get(), NO_BUCKET);
                }
            }
        }
    }
}

#[test]
fn nothing_left_or_less_than_nothing_is_found_at_once() {
    for origin in ORIGINS {
        for late in [0, 1, SPAN, SPANS[1] + 1, SPANS[4] * 7, MAX_LIFETIME_NANOS] {
            let mut rig = Rig::at(origin);
            let ahead = rig.schedule_in(SPAN as i64 * 2);
            let node = rig.schedule_in(-(late as i64));
            assert_eq!(rig.wheel.next_visit(), Some(origin));
            assert_eq!(rig.drain(origin), [node]);
            assert_ne!(ahead.entry().bucket_id.get(), NO_BUCKET);
        }
    }
}

#[test]
fn a_node_filed_again_in_the_bucket_in_hand_does_not_keep_the_drain_going() {
    let mut rig = Rig::at(0);
    // The farthest bucket, to which its nodes return at each of its ticks.
    for _ in 0..10 {
        rig.schedule_in(SPANS[4] as i64 * 100);
    }
    let mut budget = 1_000;
    assert_eq!(rig.wheel.next_due(SPANS[4], &mut budget), None);
    assert_eq!(budget, 990);
    // The bucket under the hand of the finest level, by reads that extend by exactly one turn.
    let nodes: Vec<_> = (0..10).map(|_| rig.schedule_in(SPAN as i64)).collect();
    let now = rig.wheel.now() + SPAN;
    for &node in &nodes {
        want(node, node.deadline() + SPAN * 64);
    }
    let bucket_id = nodes[0].entry().bucket_id.get();
    assert_eq!(rig.wheel.next_due(now, &mut budget), None);
    assert_eq!(budget, 980);
    assert!(
        nodes
            .iter()
            .all(|node| node.entry().bucket_id.get() == bucket_id)
    );
    rig.wheel.check_invariants();
}

#[test]
fn a_deadline_of_now_does_not_panic_at_any_resolution() {
    for origin in ORIGINS {
        for shift in 0..=43 {
            let mut rig = Rig::with_shift(origin, shift);
            let node = rig.schedule_in(0);
            assert_eq!(rig.drain(origin), [node]);
            assert_eq!(rig.wheel.next_visit(), None);
        }
    }
}

#[test]
fn a_node_whose_deadline_became_never_is_not_left_linked() {
    let mut rig = Rig::at(7);
    let told = rig.schedule_in(SPANS[2] as i64 * 3);
    let met = rig.schedule_in(SPANS[2] as i64 * 3);
    let swept = rig.schedule_in(5);
    for node in [told, met, swept] {
        want(node, NEVER);
    }
    rig.wheel.reschedule(told);
    assert_eq!(told.entry().bucket_id.get(), NO_BUCKET);
    assert_eq!(rig.wheel.len(), 2);
    rig.wheel.sweep(12);
    assert!(rig.drain(12).is_empty());
    assert_eq!(swept.entry().bucket_id.get(), NO_BUCKET);
    // The other is met when its bucket cascades, and is neither handed out nor filed again.
    assert!(rig.drain(SPANS[2] * 4).is_empty());
    assert_eq!(met.entry().bucket_id.get(), NO_BUCKET);
    assert!(rig.wheel.is_empty());
    // Unlinking what is not linked is nothing: the event may still be under way.
    rig.wheel.reschedule(met);
    rig.wheel.deschedule(met);
    assert!(rig.wheel.is_empty());
}

#[test]
fn no_deadline_is_not_taken_for_a_deadline_that_is_due() {
    for now in [NEVER - 1, NEVER, NEVER + 1, NEVER.wrapping_add(1 << 62), 0] {
        let mut rig = Rig::at(now);
        let never = rig.schedule_at(NEVER);
        assert_eq!(never.entry().bucket_id.get(), NO_BUCKET);
        assert_eq!(rig.wheel.next_visit(), None);
        rig.wheel.reschedule(never);
        rig.wheel.sweep(now);
        assert!(rig.drain(now).is_empty());
        // Deadlines beside the reserved value are deadlines.
        if now == NEVER {
            let before = rig.schedule_at(NEVER - 1);
            let after = rig.schedule_at(NEVER + 1);
            assert_eq!(rig.drain(now), [before]);
            rig.wheel.sweep(now + 1);
            assert_eq!(rig.drain(now + 1), [after]);
        }
    }
}

#[test]
fn a_clock_that_shows_the_reserved_value_goes_on_forward() {
    let mut rig = Rig::at(NEVER);
    let near = rig.schedule_in(SPAN as i64);
    let far = rig.schedule_in(SPANS[1] as i64 * 2);
    assert_eq!(rig.drain(NEVER + 2 * SPAN), [near]);
    assert_eq!(rig.drain(NEVER + 3 * SPANS[1]), [far]);
}

#[test]
fn a_deadline_moved_earlier_moves_the_next_visit() {
    for origin in ORIGINS {
        let mut rig = Rig::at(origin);
        let node = rig.schedule_in(SPANS[3] as i64);
        for delay in [SPANS[2], SPANS[1], 5 * SPAN, SPAN, 2, 1] {
            want(node, origin.wrapping_add(delay));
            rig.wheel.reschedule(node);
            let next = rig.wheel.next_visit().expect("a node is linked");
            let latest = rig.wheel.flush_time(node.deadline());
            assert!(next.wrapping_sub(origin) <= latest.wrapping_sub(origin));
        }
        want(node, origin.wrapping_sub(1));
        rig.wheel.reschedule(node);
        assert_eq!(rig.wheel.next_visit(), Some(origin));
        assert_eq!(rig.drain(origin), [node]);
    }
}

#[test]
fn an_occupied_current_bucket_does_not_hide_a_nearer_one() {
    for origin in [0, 1 << 40, 0u64.wrapping_sub(SPANS[2])] {
        let mut rig = Rig::at(origin);
        // One entry in level 2, then a nearer one in level 1, which must be visited first.
        let second = SPANS[1];
        let late = rig.schedule_in(70 * second as i64);
        assert_eq!(rig.wheel.next_visit(), Some(origin.wrapping_add(SPANS[2])));
        let near = rig.schedule_in(3 * second as i64 + 10);
        assert_eq!(
            rig.wheel.next_visit(),
            Some(origin.wrapping_add(3 * second))
        );
        // The one in the current bucket of the finest level comes first, then the coarser at its
        // begin, not at its end.
        let current = rig.schedule_in(1);
        assert_eq!(rig.wheel.next_visit(), Some(origin.wrapping_add(SPAN)));
        rig.wheel.deschedule(current);
        assert!(rig.drain(origin.wrapping_add(3 * second)).is_empty());
        assert_eq!(rig.drain(origin.wrapping_add(3 * second + SPAN)), [near]);
        assert_ne!(late.entry().bucket_id.get(), NO_BUCKET);
    }
}

#[test]
fn an_empty_wheel_has_no_next_visit() {
    let mut rig = Rig::at(0);
    assert_eq!(rig.wheel.next_visit(), None);
    for delay in [0, 1, SPAN, SPANS[1], SPANS[4] * 2] {
        let node = rig.schedule_in(delay as i64);
        assert!(rig.wheel.next_visit().is_some());
        rig.wheel.deschedule(node);
        assert_eq!(rig.wheel.next_visit(), None);
        assert!(!rig.wheel.has_work());
    }
}

#[test]
fn a_clock_may_cross_zero_and_the_sign_start_lowest_and_stand_just_before_the_end() {
    for origin in [
        0,
        u64::MAX,
        u64::MAX - SPANS[4],
        i64::MAX as u64,
        (1 << 63) - SPANS[4],
        1 << 63,
    ] {
        for jump in [SPAN, SPANS[1], SPANS[2], SPANS[3], SPANS[4]] {
            let mut rig = Rig::at(origin);
            let near = rig.schedule_in(jump as i64);
            let far = rig.schedule_in(jump as i64 * 20);
            assert!(rig.drain(origin.wrapping_add(jump - 1)).is_empty());
            assert_eq!(rig.drain(origin.wrapping_add(jump + SPAN)), [near]);
            assert!(rig.drain(origin.wrapping_add(20 * jump - 1)).is_empty());
            assert_eq!(rig.drain(origin.wrapping_add(20 * jump + SPAN)), [far]);
        }
    }
}

#[test]
fn a_clock_may_jump_by_years() {
    const YEAR: u64 = 31_556_952_000_000_000;
    for origin in ORIGINS {
        let mut rig = Rig::with_shift(origin, 30);
        let due: Vec<_> = (0..200)
            .map(|n| rig.schedule_in(n * 1_000_000_000_000))
            .collect();
        let later = rig.schedule_in(140 * YEAR as i64);
        let found = rig.drain(origin.wrapping_add(100 * YEAR));
        assert_eq!(found.len(), due.len());
        assert!(rig.drain(origin.wrapping_add(140 * YEAR - 1)).is_empty());
        assert_eq!(rig.drain(origin.wrapping_add(141 * YEAR)), [later]);
    }
}

#[test]
fn a_step_of_two_to_the_32_ticks_is_not_narrowed_to_nothing() {
    for origin in ORIGINS {
        let mut rig = Rig::at(origin);
        let near = rig.schedule_in(3 * SPAN as i64);
        assert_eq!(rig.drain(origin.wrapping_add(SPAN << 32)), [near]);
        let far = rig.schedule_in((SPAN << 32) as i64 + 1);
        assert!(rig.drain(origin.wrapping_add(SPAN << 33)).is_empty());
        assert_eq!(rig.drain(origin.wrapping_add((SPAN << 33) + SPAN)), [far]);
    }
}

#[test]
fn a_caller_that_stops_in_mid_bucket_strands_nothing() {
    let mut rig = Rig::at(0);
    for _ in 0..10 {
        rig.schedule_in(SPAN as i64);
    }
    let now = SPAN;
    for taken in 1..=10 {
        // A panic in the caller's code after each node: the next pass continues where this one was
        // thrown out.
        let wheel = std::panic::AssertUnwindSafe(&mut rig.wheel);
        let thrown = std::panic::catch_unwind(move || {
            let wheel = wheel;
            let mut budget = 100;
            let node = wheel.0.next_due(now, &mut budget);
            std::panic::resume_unwind(Box::new(node.is_some()));
        });
        assert_eq!(thrown.unwrap_err().downcast_ref(), Some(&true));
        rig.wheel.check_invariants();
        assert_eq!(rig.wheel.len(), 10 - taken);
    }
    assert!(!rig.wheel.has_work());
}

#[test]
fn a_callback_may_unlink_move_and_replace_what_is_about_to_be_visited() {
    let mut rig = Rig::at(0);
    let nodes: Vec<_> = (0..8).map(|_| rig.schedule_in(SPAN as i64)).collect();
    let mut budget = 100;
    let first = rig.wheel.next_due(SPAN, &mut budget);
    assert_eq!(first, Some(nodes[0]));
    // The next, the last of the bucket, and one in between.
    rig.wheel.deschedule(nodes[1]);
    rig.wheel.deschedule(nodes[7]);
    want(nodes[3], SPAN * 9);
    rig.wheel.reschedule(nodes[3]);
    let heir = rig.nodes.succeed(nodes[4], SPAN);
    rig.wheel.reschedule(heir);
    let put_back = nodes[0];
    want(put_back, SPAN * 64);
    rig.wheel.schedule(put_back);
    rig.wheel.check_invariants();
    let found: Vec<_> = std::iter::from_fn(|| rig.wheel.next_due(SPAN, &mut budget)).collect();
    assert_eq!(found.len(), 4);
    assert!(
        [nodes[2], nodes[5], nodes[6], heir]
            .iter()
            .all(|node| found.contains(node))
    );
    assert_eq!(rig.drain(SPAN * 9), [nodes[3]]);
    assert_eq!(rig.drain(SPAN * 64), [put_back]);
    assert!(rig.wheel.is_empty());
}

#[test]
fn any_number_due_at_once_is_taken_in_bounded_portions() {
    let mut rig = Rig::at(0);
    for n in 0..5_000 {
        rig.schedule_in(1 + n % (3 * SPANS[2] as i64));
    }
    let now = SPANS[3];
    let (mut found, mut calls) = (0, 0);
    while found < 5_000 {
        let mut budget = 64;
        while rig.wheel.next_due(now, &mut budget).is_some() {
            found += 1;
        }
        calls += 1;
        assert!(found == 5_000 || budget == 0);
        assert_eq!(rig.wheel.next_visit().is_some(), found < 5_000);
        assert!(calls <= 5_000 / 64 + 1);
    }
    // Cascades count as well: nodes that are not due use up the budget as those that are.
    for _ in 0..100 {
        rig.schedule_in(SPANS[1] as i64 * 2);
    }
    let mut budget = 30;
    let begin = now + SPANS[1] * 2 - SPAN;
    assert_eq!(
        rig.wheel
            .next_due(begin.max(now + SPANS[1] * 2), &mut budget)
            .map(|_| ()),
        Some(())
    );
    rig.wheel.check_invariants();
    let mut rig = Rig::at(0);
    for _ in 0..100 {
        rig.schedule_in(SPANS[1] as i64 * 2 + 5 * SPAN as i64);
    }
    for left in [70, 40, 10] {
        let mut budget = 30;
        assert_eq!(rig.wheel.next_due(SPANS[1] * 2, &mut budget), None);
        assert_eq!(budget, 0);
        assert!(rig.wheel.has_work());
        assert_eq!(
            rig.wheel.next_visit(),
            Some(SPANS[1] * 2),
            "{left} are left"
        );
        rig.wheel.check_invariants();
    }
    let mut budget = 30;
    assert_eq!(rig.wheel.next_due(SPANS[1] * 2, &mut budget), None);
    assert_eq!(budget, 20);
    assert!(!rig.wheel.has_work());
}

#[test]
fn an_extension_by_a_reader_is_found_without_an_event() {
    for origin in ORIGINS {
        let mut rig = Rig::at(origin);
        let node = rig.schedule_in(SPAN as i64);
        for beat in 1..=300 {
            want(node, origin.wrapping_add((beat + 1) * SPAN));
            assert!(
                rig.drain(origin.wrapping_add(beat * SPAN)).is_empty(),
                "beat {beat}"
            );
        }
        assert_eq!(rig.drain(origin.wrapping_add(302 * SPAN)), [node]);
    }
}
