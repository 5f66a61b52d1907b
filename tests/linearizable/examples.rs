//! Tests of the checker: histories that have an order, histories that have none, and the search
//! compared with all permutations.

use proptest::prelude::*;

use crate::linear::check::{check, readings};
use crate::linear::history::{Advance, Answer, Call, History, Op, Outcome, Value};
use crate::linear::spec::{Rules, State};
use crate::support::cases;

const BARE: Rules = Rules {
    policy: false,
    time_to_live: None,
    time_to_idle: None,
};
const LIVE_TEN: Rules = Rules {
    time_to_live: Some(10),
    ..BARE
};
const IDLE_TEN: Rules = Rules {
    time_to_idle: Some(10),
    ..BARE
};
const POLICY: Rules = Rules {
    policy: true,
    ..BARE
};

const fn insert(id: u32) -> Op {
    Op::Insert(Value::plain(id))
}

const HIT: fn(u32) -> Outcome = |id| Outcome::Found(Some(id));
const MISS: Outcome = Outcome::Found(None);
const YES: Outcome = Outcome::Said(true);
const NO: Outcome = Outcome::Said(false);
use Outcome::Done;

/// Builds a history whose clock readings follow from the stamps.
struct Story(History);

fn story(rules: Rules) -> Story {
    Story(History {
        rules,
        ..History::default()
    })
}

impl Story {
    /// A call for key 0 from one stamp to another.
    fn call(self, from: u64, to: u64, op: Op, outcome: Outcome) -> Story {
        self.call_for(0, from, to, op, outcome)
    }

    /// A call for a key. Add moves of the clock before the calls that they concern.
    fn call_for(mut self, key: u8, from: u64, to: u64, op: Op, outcome: Outcome) -> Story {
        let before = self.0.advances.iter().rev().find(|move_| move_.at < from);
        self.0.calls.push(Call {
            thread: 0,
            key,
            op,
            outcome,
            from,
            to,
            clock: before.map_or(0, |move_| move_.now),
        });
        self
    }

    fn clock(mut self, at: u64, now: u64) -> Story {
        self.0.advances.push(Advance { at, now });
        self
    }

    #[track_caller]
    fn accepted(self) {
        if let Err(refusal) = check(&self.0) {
            panic!("{refusal}");
        }
    }

    #[track_caller]
    fn refused(self) {
        assert!(check(&self.0).is_err(), "accepted:\n{}", self.0);
    }
}

#[test]
fn a_stale_read_is_refused() {
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 3, insert(2), Done)
        .call(4, 5, Op::Get, HIT(1))
        .refused();
}

#[test]
fn a_read_that_overlaps_a_write_may_see_either() {
    for seen in [1, 2] {
        story(BARE)
            .call(0, 1, insert(1), Done)
            .call(2, 5, insert(2), Done)
            .call(3, 4, Op::Get, HIT(seen))
            .accepted();
    }
}

#[test]
fn two_reads_may_not_see_a_write_come_and_go() {
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 9, insert(2), Done)
        .call(3, 4, Op::Get, HIT(2))
        .call(5, 6, Op::Get, HIT(1))
        .refused();
}

#[test]
fn a_lost_write_is_refused() {
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 3, Op::Get, MISS)
        .refused();
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 3, Op::Invalidate, Done)
        .call(4, 5, insert(2), Done)
        .call(6, 7, Op::Contains, NO)
        .refused();
}

#[test]
fn a_miss_while_one_value_replaces_another_is_refused() {
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 5, insert(2), Done)
        .call(3, 4, Op::Get, MISS)
        .refused();
}

#[test]
fn a_removed_value_is_not_seen_again() {
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 3, Op::Remove, HIT(1))
        .call(4, 5, Op::Get, HIT(1))
        .refused();
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 3, Op::Invalidate, Done)
        .call(4, 5, Op::Contains, YES)
        .refused();
}

#[test]
fn one_value_is_removed_once() {
    let both = |second| {
        story(BARE)
            .call(0, 1, insert(1), Done)
            .call(2, 5, Op::Remove, HIT(1))
            .call(3, 4, Op::Remove, second)
    };
    both(HIT(1)).refused();
    both(MISS).accepted();
}

#[test]
fn an_expired_value_is_refused_from_its_deadline_on() {
    let read = |now, outcome| {
        story(LIVE_TEN)
            .call(0, 1, insert(1), Done)
            .clock(2, now)
            .call(3, 4, Op::Get, outcome)
    };
    read(9, HIT(1)).accepted();
    read(9, MISS).refused();
    read(10, MISS).accepted();
    read(10, HIT(1)).refused();
    story(LIVE_TEN)
        .call(0, 1, insert(1), Done)
        .clock(2, 10)
        .call(3, 4, Op::Remove, HIT(1))
        .refused();
}

#[test]
fn an_expired_key_does_not_come_back() {
    story(LIVE_TEN)
        .call(0, 1, insert(1), Done)
        .clock(2, 10)
        .call(3, 4, Op::SetExpiry(Some(10)), YES)
        .refused();
    // One call sees it expired while another extends it.
    story(BARE)
        .call(0, 1, Op::InsertWithTtl(Value::plain(1), 10), Done)
        .clock(3, 10)
        .call(2, 7, Op::SetExpiry(Some(100)), YES)
        .call(4, 5, Op::Get, MISS)
        .call(8, 9, Op::Get, HIT(1))
        .refused();
    // No call has seen it expired.
    story(BARE)
        .call(0, 1, Op::InsertWithTtl(Value::plain(1), 10), Done)
        .clock(3, 10)
        .call(2, 7, Op::SetExpiry(Some(100)), YES)
        .call(8, 9, Op::Get, HIT(1))
        .accepted();
}

#[test]
fn a_lifetime_counts_from_a_reading_inside_the_call() {
    // From the call's beginning, from its end.
    for (now, outcome) in [(12, HIT(1)), (12, MISS), (14, HIT(1)), (15, MISS)] {
        story(LIVE_TEN)
            .clock(0, 2)
            .clock(2, 5)
            .clock(4, now)
            .call(1, 3, insert(1), Done)
            .call(5, 6, Op::Get, outcome)
            .accepted();
    }
    // From before the call, from after it.
    for (now, outcome) in [(11, MISS), (15, HIT(1))] {
        story(LIVE_TEN)
            .clock(0, 2)
            .clock(2, 5)
            .clock(4, now)
            .call(1, 3, insert(1), Done)
            .call(5, 6, Op::Get, outcome)
            .refused();
    }
}

#[test]
fn a_reading_may_be_older_than_what_others_have_seen() {
    // The write reads the clock at 0, then stands still; another call still sees the old value at
    // 10; then the write is done, and its value is already expired.
    story(BARE)
        .call(0, 1, insert(1), Done)
        .clock(3, 10)
        .call(2, 6, Op::InsertWithTtl(Value::plain(2), 5), Done)
        .call(4, 5, Op::Get, HIT(1))
        .call(7, 8, Op::Get, MISS)
        .accepted();
}

#[test]
fn reads_extend_under_an_idle_limit_only() {
    let twice = |rules, outcome| {
        story(rules)
            .clock(2, 9)
            .clock(5, 18)
            .call(0, 1, insert(1), Done)
            .call(3, 4, Op::Get, HIT(1))
            .call(6, 7, Op::Get, outcome)
    };
    twice(IDLE_TEN, HIT(1)).accepted();
    twice(IDLE_TEN, MISS).refused();
    twice(LIVE_TEN, HIT(1)).refused();
    twice(LIVE_TEN, MISS).accepted();
    // A read that leaves no trace extends nothing.
    story(IDLE_TEN)
        .clock(2, 9)
        .clock(5, 18)
        .call(0, 1, insert(1), Done)
        .call(3, 4, Op::Contains, YES)
        .call(6, 7, Op::Get, HIT(1))
        .refused();
}

#[test]
fn with_a_policy_the_values_give_the_lifetimes() {
    let value = |id, on_update| Value {
        id,
        on_create: Answer::After(10),
        on_update,
        on_read: Answer::Keep,
    };
    let updated = |on_update, now, outcome| {
        story(POLICY)
            .clock(2, 5)
            .clock(6, now)
            .call(0, 1, Op::Insert(value(1, Answer::Keep)), Done)
            .call(3, 4, Op::Insert(value(2, on_update)), Done)
            .call(7, 8, Op::Get, outcome)
    };
    updated(Answer::Keep, 9, HIT(2)).accepted();
    updated(Answer::Keep, 10, HIT(2)).refused();
    updated(Answer::Never, 1_000, HIT(2)).accepted();
    updated(Answer::After(20), 24, HIT(2)).accepted();
    updated(Answer::After(20), 25, HIT(2)).refused();
    updated(Answer::After(20), 25, MISS).accepted();
}

#[test]
fn a_read_that_a_new_value_overtakes_may_leave_the_deadline() {
    let value = |id| Value {
        id,
        on_create: Answer::After(10),
        on_update: Answer::Keep,
        on_read: Answer::After(100),
    };
    // The new value keeps the present deadline: ten from the beginning, or a hundred from the read.
    let then = |write_from, outcome| {
        story(POLICY)
            .call(0, 1, Op::Insert(value(1)), Done)
            .call(2, 4, Op::Get, HIT(1))
            .call(write_from, 6, Op::Insert(value(2)), Done)
            .clock(7, 20)
            .call(8, 9, Op::Get, outcome)
    };
    then(3, HIT(2)).accepted();
    then(3, MISS).accepted();
    then(5, HIT(2)).accepted();
    then(5, MISS).refused();
}

#[test]
fn set_expiry_is_false_for_an_absent_key_only() {
    story(BARE)
        .call(0, 1, Op::SetExpiry(None), NO)
        .call(2, 3, insert(1), Done)
        .call(4, 5, Op::SetExpiry(None), YES)
        .accepted();
    story(BARE)
        .call(0, 1, insert(1), Done)
        .call(2, 3, Op::SetExpiry(None), NO)
        .refused();
    story(BARE).call(0, 1, Op::SetExpiry(None), YES).refused();
}

#[test]
fn keys_share_the_clock_and_nothing_else() {
    story(LIVE_TEN)
        .clock(4, 10)
        .call_for(1, 0, 1, insert(1), Done)
        .call_for(2, 2, 3, insert(2), Done)
        .call_for(1, 5, 6, Op::Get, MISS)
        .call_for(2, 7, 8, Op::Get, MISS)
        .accepted();
    story(LIVE_TEN)
        .clock(4, 10)
        .call_for(1, 0, 1, insert(1), Done)
        .call_for(2, 2, 3, insert(2), Done)
        .call_for(1, 5, 6, Op::Get, MISS)
        .call_for(2, 7, 8, Op::Get, HIT(2))
        .refused();
}

/// All orders, one after the other; each is judged as a whole.
fn some_permutation_fits(history: &History) -> bool {
    fn permute(history: &History, order: &mut Vec<usize>, left: &mut Vec<usize>) -> bool {
        if left.is_empty() {
            return fits(history, order);
        }
        for at in 0..left.len() {
            let item = left.remove(at);
            order.push(item);
            let found = permute(history, order, left);
            order.pop();
            left.insert(at, item);
            if found {
                return true;
            }
        }
        false
    }
    permute(
        history,
        &mut Vec::new(),
        &mut (0..history.calls.len()).collect(),
    )
}

/// Whether the calls in this order return what they did, with the moves of the clock inserted
/// wherever they may be.
fn fits(history: &History, order: &[usize]) -> bool {
    let calls: Vec<&Call> = order.iter().map(|&at| &history.calls[at]).collect();
    for (at, call) in calls.iter().enumerate() {
        if calls[at..].iter().any(|later| later.to < call.from) {
            return false;
        }
    }
    // Each state with the number of moves made so far.
    let mut states = vec![(State::at(0), 0)];
    for (at, call) in calls.iter().enumerate() {
        let mut nexts = Vec::new();
        for &(state, moved) in &states {
            let mut now = (state, moved);
            loop {
                let behind = history.advances[..now.1].iter().all(|a| a.at < call.to);
                let ahead = history.advances[now.1..].iter().all(|a| {
                    a.at > call.from && calls[..at].iter().all(|earlier| a.at > earlier.from)
                });
                if behind && ahead {
                    let readings = readings(history, call, now.0.clock);
                    nexts.extend(
                        history
                            .rules
                            .step(now.0, call, &readings, &history.beside(call))
                            .into_iter()
                            .map(|state| (state, now.1)),
                    );
                }
                let Some(advance) = history.advances.get(now.1) else {
                    break;
                };
                now = (now.0.advanced(advance.now), now.1 + 1);
            }
        }
        states = nexts;
    }
    !states.is_empty()
}

/// Small random histories, right or wrong: stamps are a random arrangement, answers are guessed
/// among few.
fn small() -> impl Strategy<Value = History> {
    let rules = prop_oneof![Just(BARE), Just(LIVE_TEN), Just(IDLE_TEN)];
    let call = prop_oneof![
        3 => prop_oneof![Just(MISS), (0..3u32).prop_map(HIT)].prop_map(|found| (Op::Get, found)),
        1 => any::<bool>().prop_map(|said| (Op::Contains, Outcome::Said(said))),
        3 => (0..3u32).prop_map(|id| (insert(id), Done)),
        2 => (0..3u32, 0..12u64)
            .prop_map(|(id, life)| (Op::InsertWithTtl(Value::plain(id), life), Done)),
        1 => (proptest::option::of(0..12u64), any::<bool>())
            .prop_map(|(life, said)| (Op::SetExpiry(life), Outcome::Said(said))),
        1 => prop_oneof![Just(MISS), (0..3u32).prop_map(HIT)].prop_map(|found| (Op::Remove, found)),
    ];
    let stamps = Just((0..13u64).collect::<Vec<_>>()).prop_shuffle();
    (
        rules,
        proptest::collection::vec(call, 1..6),
        stamps,
        0..4usize,
    )
        .prop_map(|(rules, calls, stamps, moves)| {
            let (moves, stamps) = stamps.split_at(moves);
            let mut moves = moves.to_vec();
            moves.sort_unstable();
            let mut made = story(rules);
            for (at, stamp) in moves.into_iter().enumerate() {
                made = made.clock(stamp, (at as u64 + 1) * 6);
            }
            for ((op, outcome), pair) in calls.into_iter().zip(stamps.chunks_exact(2)) {
                made = made.call(pair[0].min(pair[1]), pair[0].max(pair[1]), op, outcome);
            }
            made.0
        })
}

proptest! {
    #![proptest_config(cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000)
    ))]

    #[test]
    fn the_search_finds_an_order_exactly_if_some_permutation_fits(history in small()) {
        let found = check(&history);
        prop_assert_eq!(found.is_ok(), some_permutation_fits(&history), "{}", history);
    }
}
