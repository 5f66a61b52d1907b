//! Random sequences of operations on a cache whose bound is in the way, beside a sequential ledger that knows everything but who is
//! chosen as a victim.
//!
//! What is checked: a look-up gives the newest value of its key or nothing, and nothing where the ledger has nothing. After
//! `run_pending_tasks`: each pair that went in is there or was told once, for the right cause; the weight is the sum of the weights that
//! are there and within the bound; and if all that was alive has fitted all the time, nobody had to go.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::record::Record;
use wheelhouse::RemovalCause::{self, Expired, Explicit, Replaced, Size};
use wheelhouse::{Cache, EvictionPolicy, ManualTicker};

const MAX: u64 = u32::MAX as u64;

/// A value is its number among all, and its weight.
type Value = (u32, u32);

#[derive(Clone, Debug)]
enum Op {
    Insert(u8, u32),
    InsertWithTtl(u8, u32, Duration),
    Get(u8),
    Remove(u8),
    Clear,
    Advance(Duration),
    SetMax(u64),
    Settle,
}

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
    let key = || 0..30u8;
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

#[derive(Clone, Copy)]
struct Entry {
    value: Value,
    deadline: Option<Duration>,
}

struct Ledger {
    max: u64,
    now: Duration,
    next: u32,
    /// What is in the cache, but for victims since the last settling.
    entries: BTreeMap<u8, Entry>,
    /// What must be told, whatever happens; and what has to go though it may be told as something else before.
    left: BTreeMap<u32, RemovalCause>,
    /// Whether there was ever more alive than fits, since the last settling.
    tight: bool,
}

impl Ledger {
    fn new(max: u64) -> Self {
        Self {
            max,
            now: Duration::ZERO,
            next: 0,
            entries: BTreeMap::new(),
            left: BTreeMap::new(),
            tight: false,
        }
    }

    fn weight(&self) -> u64 {
        let weights = self.entries.values().map(|entry| entry.value.1);
        weights.map(u64::from).sum()
    }

    fn leave(&mut self, key: u8, cause: RemovalCause) {
        if let Some(entry) = self.entries.remove(&key) {
            self.left.insert(entry.value.0, cause);
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        let due = |entry: &Entry| entry.deadline.is_some_and(|deadline| deadline <= now);
        let keys: Vec<u8> = self
            .entries
            .iter()
            .filter_map(|(key, entry)| due(entry).then_some(*key))
            .collect();
        for key in keys {
            self.leave(key, Expired);
        }
    }

    fn insert(&mut self, key: u8, weight: u32, life: Option<Duration>) -> Value {
        let value = (self.next, weight);
        self.next += 1;
        self.leave(key, Replaced);
        if u64::from(weight) > self.max {
            self.left.insert(value.0, Size);
        } else {
            let deadline = life.map(|life| self.now + life);
            self.entries.insert(key, Entry { value, deadline });
            self.expire();
        }
        self.tight |= self.weight() > self.max;
        value
    }
}

type Failed = Result<(), TestCaseError>;

fn same(policy: EvictionPolicy, max: u64, ops: &[Op]) -> Failed {
    let (clock, heard) = (ManualTicker::new(), Record::new());
    let cache: Cache<u8, Value> = Cache::builder()
        .max_capacity(max)
        .eviction_policy(policy)
        .ticker(clock.clone())
        .weigher(|_, value: &Value| value.1)
        .removal_listener(heard.listener())
        .build();
    let mut ledger = Ledger::new(max);
    for op in ops.iter().chain(&[Op::Settle, Op::Clear, Op::Settle]) {
        match *op {
            Op::Insert(key, weight) => cache.insert(key, ledger.insert(key, weight, None)),
            Op::InsertWithTtl(key, weight, life) => {
                cache.insert_with_ttl(key, ledger.insert(key, weight, Some(life)), life);
            }
            Op::Get(key) => {
                let known = ledger.entries.get(&key).map(|entry| entry.value);
                let found = cache.get(&key);
                let may_be_gone = ledger.tight && found.is_none();
                prop_assert!(may_be_gone || found == known, "{found:?}, not {known:?}");
            }
            Op::Remove(key) => {
                cache.invalidate(&key);
                ledger.leave(key, Explicit);
            }
            Op::Clear => {
                cache.invalidate_all();
                for key in 0..30 {
                    ledger.leave(key, Explicit);
                }
            }
            Op::Advance(step) => {
                clock.advance(step);
                ledger.now += step;
                ledger.expire();
            }
            Op::SetMax(max) => {
                cache.policy().set_max_capacity(max);
                ledger.max = max;
                ledger.tight |= ledger.weight() > max;
            }
            Op::Settle => settle(&cache, &mut ledger, &heard)?,
        }
    }
    prop_assert_eq!((cache.weighted_size(), cache.entry_count()), (0, 0));
    Ok(())
}

fn settle(cache: &Cache<u8, Value>, ledger: &mut Ledger, heard: &Record<u8, Value>) -> Failed {
    cache.run_pending_tasks();
    for (key, value, cause) in heard.take() {
        match ledger.left.remove(&value.0) {
            // A victim that the ledger saw leave in another way, later.
            Some(known) if cause == Size && known != Size => {
                prop_assert!(ledger.tight && value.1 > 0, "{value:?} left as {cause}");
            }
            Some(known) => prop_assert_eq!(cause, known, "{:?} of key {}", value, key),
            None => {
                let entry = ledger.entries.remove(&key);
                prop_assert_eq!(entry.map(|entry| entry.value), Some(value));
                prop_assert!(cause == Size && ledger.tight, "{value:?} left as {cause}");
                prop_assert!(value.1 > 0, "weight nothing is no victim");
            }
        }
    }
    prop_assert!(ledger.left.is_empty(), "untold: {:?}", ledger.left);
    let there: BTreeMap<u8, Value> = cache.iter().map(|entry| (*entry.key(), *entry)).collect();
    let known: BTreeMap<u8, Value> = ledger
        .entries
        .iter()
        .map(|(key, entry)| (*key, entry.value))
        .collect();
    prop_assert_eq!(&there, &known);
    prop_assert_eq!(cache.entry_count(), known.len() as u64);
    prop_assert_eq!(cache.weighted_size(), ledger.weight());
    prop_assert!(ledger.weight() <= ledger.max);
    ledger.tight = false;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn by_the_default_policy(max in bound(), ops in vec(op(), 1..200)) {
        same(EvictionPolicy::TinyLfu, max, &ops)?;
    }

    #[test]
    fn by_lru(max in bound(), ops in vec(op(), 1..200)) {
        same(EvictionPolicy::Lru, max, &ops)?;
    }
}
