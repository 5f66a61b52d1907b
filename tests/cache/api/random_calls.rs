//! Random sequences of operations have the same results on a cache and on the model.

#[path = "../../support/model/mod.rs"]
mod model;

use std::time::Duration;

use model::bytes::{Bytes, even, odd};
use model::subject::compare;
use model::{Answer, Op, Settings, Value};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::cases;

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        2 => Just(Answer::Keep),
        1 => Just(Answer::Never),
        4 => any::<u8>().prop_map(|choice| Answer::After(odd(choice))),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    (0..1_000u32, answer(), answer(), answer()).prop_map(|(id, on_create, on_update, on_read)| {
        Value {
            id,
            on_create,
            on_update,
            on_read,
        }
    })
}

fn key() -> impl Strategy<Value = u8> {
    0..12u8
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| Op::Insert(key, value)),
        3 => (key(), value(), any::<u8>()).prop_map(|(key, value, life)| Op::InsertWithTtl(key, value, odd(life))),
        4 => key().prop_map(Op::Get),
        2 => (key(), 0..40u8).prop_map(|(first, count)| Op::GetMany(first, count)),
        2 => key().prop_map(Op::GetRef),
        2 => key().prop_map(Op::Peek),
        1 => key().prop_map(Op::Contains),
        2 => (key(), proptest::option::of(any::<u8>())).prop_map(|(key, life)| Op::SetExpiry(key, life.map(odd))),
        1 => key().prop_map(Op::Invalidate),
        1 => key().prop_map(Op::Remove),
        1 => prop_oneof![1 => Just(Op::InvalidateAll), 3 => (2..7u32).prop_map(Op::Retain)],
        1 => Just(Op::Iterate),
        6 => any::<u8>().prop_map(|step| Op::Advance(even(step))),
        3 => Just(Op::RunPendingTasks),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let near =
        |edge: u64| (1_000..1u64 << 45).prop_map(move |before: u64| edge.wrapping_sub(before));
    let origin = prop_oneof![
        Just(0u64),
        near(u64::MAX),
        near(i64::MAX as u64),
        any::<u64>()
    ];
    (origin, prop_oneof![3 => Just(30), 1 => 16..40u32]).prop_map(|(origin, resolution)| Settings {
        origin,
        resolution,
        policy: true,
        time_to_live: None,
        time_to_idle: None,
    })
}

fn limit() -> impl Strategy<Value = Option<Duration>> {
    proptest::option::weighted(0.7, any::<u8>().prop_map(even))
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn with_a_policy(settings in settings(), ops in vec(op(), 1..150)) {
        compare(settings, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn with_only_deadlines_set_by_hand(settings in settings(), ops in vec(op(), 1..150)) {
        compare(Settings { policy: false, ..settings }, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn with_limits_for_all_entries(
        settings in settings(),
        policy in any::<bool>(),
        (time_to_live, time_to_idle) in (limit(), limit()),
        ops in vec(op(), 1..150),
    ) {
        let settings = Settings { policy, time_to_live, time_to_idle, ..settings };
        compare(settings, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn out_of_any_bytes(bytes in vec(any::<u8>(), 0..2_000)) {
        let mut bytes = Bytes(&bytes);
        if let Some(settings) = bytes.settings() {
            let ops: Vec<Op> = std::iter::from_fn(|| bytes.op()).collect();
            compare(settings, &ops).map_err(TestCaseError::fail)?;
        }
    }
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn over_long_runs(settings in settings(), ops in vec(op(), 1_500..2_000)) {
        compare(settings, &ops).map_err(TestCaseError::fail)?;
    }
}
