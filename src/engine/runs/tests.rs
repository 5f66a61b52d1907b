use super::*;
use crate::{Cache, ManualTicker};
use std::time::Duration;

#[test]
fn no_run_ends_before_each_shard_was_drained() {
    let mut goal = Goal::new(10, 4);
    for drained in 10..14 {
        assert!(!goal.reached_at(drained, 1_000, 0, || unreachable!("asked too early")));
    }
    assert!(goal.reached_at(14, 0, 0, || 0));
}

#[test]
fn no_run_ends_before_the_tables_have_moved_what_was_known() {
    let mut goal = Goal::new(0, 4);
    assert!(!goal.reached_at(5, 0, 0, || RESIZE_UNITS + 1));
    assert!(!goal.reached_at(5 + 7, 1_000, 0, || unreachable!("asked twice")));
    assert!(goal.reached_at(5 + 8, 0, 0, || unreachable!("asked twice")));
}

#[test]
fn a_run_does_the_work_that_existed_at_its_start_and_no_later_work() {
    for (left, work) in [(1, 2), (100, 200)] {
        let mut goal = Goal::new(0, 1);
        assert!(!goal.reached_at(0, 5, left, || 0));
        assert!(!goal.reached_at(1, 7, left, || 0));
        assert!(!goal.reached_at(1, 7 + work - 1, 9_000, || 0));
        assert!(goal.reached_at(1, 7 + work, 9_000, || 0));
    }
}

#[test]
fn a_run_ends_if_other_threads_have_done_its_work() {
    let mut goal = Goal::new(0, 1);
    assert!(!goal.reached_at(1, 7, 100, || 0));
    assert!(!goal.reached_at(9, 7, 1, || 0));
    assert!(goal.reached_at(10, 7, 0, || 0));
}

#[test]
fn the_work_left_is_what_the_plan_would_do() {
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .max_capacity(1_000)
        .weigher(|_, &weight| weight)
        .build();
    (0..100).for_each(|key| cache.insert_with_ttl(key, 10, Duration::from_secs(1)));
    cache.run_pending_tasks();
    clock.advance(Duration::from_secs(10));
    let engine = cache.engine();
    let left = |plan| {
        let mut state = engine.parts[0].state.lock();
        let now = engine.clock.now();
        state.wheel.advance(now);
        state.left(plan)
    };
    assert_eq!(left(Plan::RUN), 100);
    assert!(engine.set_max_capacity(970));
    assert_eq!(left(Plan::RUN), 130);
    assert!(engine.set_max_capacity(10));
    // At most as many as there are.
    assert_eq!(left(Plan::RUN), 200);
    let neither = Plan {
        expires: false,
        evict: Evict::Nothing,
        ..Plan::RUN
    };
    assert_eq!(left(neither), 0);
}
