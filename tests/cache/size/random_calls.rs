//! Random sequences of operations on a cache near its bound, compared with a sequential ledger.

#[path = "../../support/ledger.rs"]
mod ledger;

use std::time::Duration;

use ledger::{KEYS, Op, compare};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wheelhouse::EvictionPolicy;

use crate::support::cases;

const MAX: u64 = u32::MAX as u64;

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 1..5u32,
        2 => Just(0),
        2 => 5..200u32,
        1 => select(vec![u32::MAX, u32::MAX - 1, 1 << 31]),
    ]
}

fn bound() -> impl Strategy<Value = u64> {
    select(vec![0, 1, 10, 40, 300, 2_000, MAX, 3 * MAX, u64::MAX])
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        3 => (0..2_000u64).prop_map(Duration::from_millis),
        1 => (0..300u64).prop_map(Duration::from_secs),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    prop_oneof![
        8 => (key(), weight()).prop_map(|(key, weight)| Op::Insert(key, weight)),
        6 => (key(), weight(), span()).prop_map(|(key, weight, life)| Op::InsertWithTtl(key, weight, life)),
        8 => key().prop_map(Op::Get),
        2 => key().prop_map(Op::Remove),
        3 => span().prop_map(Op::Advance),
        2 => Just(Op::Settle),
        1 => prop_oneof![1 => Just(Op::Clear), 2 => bound().prop_map(Op::SetMax)],
    ]
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn the_default_policy_agrees_with_the_model(max in bound(), ops in vec(op(), 1..200)) {
        compare(EvictionPolicy::Adaptive, max, &ops).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn lru_agrees_with_the_model(max in bound(), ops in vec(op(), 1..200)) {
        compare(EvictionPolicy::Lru, max, &ops).map_err(TestCaseError::fail)?;
    }
}
