//! Every operation, on a key that is absent, present or expired, with a panic in each of its
//! callbacks: the panic reaches the caller, and everything is as before: the age, the weight, the
//! next wake-up and the statistics.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::support::spark::{self, Deed, Kind, Sparky, Spread, key, sparky, value};
use crate::support::{hide_scripted_panics, secs};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced, Size};
use wheelhouse::{ManualTicker, Stats};

const ABSENT: u32 = 1;
const PRESENT: u32 = 2;
const EXPIRED: u32 = 3;

type Operation = (&'static str, fn(&Sparky, u32));

const OPERATIONS: [Operation; 11] = [
    ("insert", |cache, on| cache.insert(key(on), value())),
    ("insert_with_ttl", |cache, on| {
        cache.insert_with_ttl(key(on), value(), secs(5));
    }),
    ("get", |cache, on| drop(cache.get(&key(on)))),
    ("get_ref", |cache, on| drop(cache.get_ref(&key(on)))),
    ("get_many", |cache, on| drop(cache.get_many(&[key(on)]))),
    ("peek_ref", |cache, on| drop(cache.peek_ref(&key(on)))),
    ("contains_key", |cache, on| {
        _ = cache.contains_key(&key(on));
    }),
    ("set_expiry", |cache, on| {
        cache.set_expiry(&key(on), Some(secs(7)));
    }),
    ("invalidate", |cache, on| cache.invalidate(&key(on))),
    ("remove", |cache, on| drop(cache.remove(&key(on)))),
    ("weight_of", |cache, on| {
        _ = cache.policy().weight_of(&key(on));
    }),
];

const CALLBACKS: [Kind; 8] = [
    Kind::Create,
    Kind::Update,
    Kind::Read,
    Kind::Weigh,
    Kind::BuildHasher,
    Kind::Hash,
    Kind::Eq,
    Kind::Clone,
];

/// One key in each state, and some others in the same table. The expired one was not removed yet.
fn prepared(spread: Spread) -> (Sparky, ManualTicker) {
    let (cache, clock) = sparky(spread, Some(1_000), true);
    cache.insert_with_ttl(key(EXPIRED), value(), secs(50));
    cache.insert_with_ttl(key(PRESENT), value(), secs(100));
    for other in 4..20 {
        cache.insert(key(other), value());
        cache.set_expiry(&key(other), Some(secs(200)));
    }
    cache.run_pending_tasks();
    clock.advance(secs(50));
    spark::take_left();
    (cache, clock)
}

/// For each key the value, the time left and the age.
type Entries = BTreeMap<u32, (u32, Option<Duration>, Duration)>;

/// All visible state of the cache.
#[derive(Debug, PartialEq)]
struct Sight {
    entries: Entries,
    count_and_weight: (u64, u64),
    next: Option<Duration>,
    look_ups: (u64, u64),
    writes: (u64, u64),
    removals: [u64; 4],
}

fn sight(cache: &Sparky) -> Sight {
    let entry = |entry: wheelhouse::EntryRef<'_, spark::Key, spark::Value>| {
        let shown = (entry.serial, entry.time_left(), entry.age());
        (entry.key().0, shown)
    };
    let stats: Stats = cache.stats();
    Sight {
        entries: cache.iter().map(entry).collect(),
        count_and_weight: (cache.entry_count(), cache.weighted_size()),
        next: cache.next_maintenance_in(),
        look_ups: (stats.hits(), stats.misses()),
        writes: (stats.insertions(), stats.updates()),
        removals: [Expired, Explicit, Replaced, Size].map(|cause| stats.removals(cause)),
    }
}

/// Whether the operation, done on the key, made call number `at` of the callback, which then
/// panics.
fn panics(operation: Operation, on: u32, kind: Kind, at: u32, spread: Spread) -> bool {
    let (name, call) = operation;
    let what = format!("{name} on {on}, {kind:?} number {at}, {spread:?}");
    let alive = spark::alive();
    let (cache, clock) = prepared(spread);
    let before = sight(&cache);
    spark::arm(kind, Deed::Panic, at);
    let outcome = catch_unwind(AssertUnwindSafe(|| call(&cache, on)));
    let came = !spark::disarm();
    assert_eq!(
        outcome.is_err(),
        came,
        "{what}: whether the panic reaches the caller"
    );
    if came {
        let mut after = sight(&cache);
        if kind == Kind::Clone {
            // The read came before the clone: it counts, and may have moved the deadline.
            after.look_ups = before.look_ups;
            after.next = before.next;
            for (key, shown) in &mut after.entries {
                if let Some((_, left, _)) = before.entries.get(key) {
                    shown.1 = *left;
                }
            }
        }
        assert_eq!(after, before, "{what}: changed the cache");
        assert!(
            spark::take_left().is_empty(),
            "{what}: a removal was delivered"
        );
    }
    // The same operation once more, and every other call on that key, works.
    call(&cache, on);
    cache.insert_with_ttl(key(on), value(), secs(1));
    let found = cache.get(&key(on)).map(|found| found.serial);
    assert_eq!(found, Some(spark::next_serial() - 1), "{what}");
    drop(cache.remove(&key(on)));
    assert!(!cache.contains_key(&key(on)), "{what}");
    clock.advance(secs(1_000));
    cache.run_pending_tasks();
    assert_eq!(
        (cache.entry_count(), cache.weighted_size()),
        (0, 0),
        "{what}"
    );
    drop(cache);
    spark::take_left();
    assert_eq!(spark::alive(), alive, "{what}: keys and values leaked");
    came
}

#[test]
fn a_panic_in_any_callback_of_any_operation_leaves_all_as_it_was() {
    hide_scripted_panics();
    let mut met = BTreeMap::new();
    for operation in OPERATIONS {
        for on in [ABSENT, PRESENT, EXPIRED] {
            for kind in CALLBACKS {
                for spread in [Spread::Well, Spread::AllEqual] {
                    let calls = (1..=3).take_while(|&at| panics(operation, on, kind, at, spread));
                    *met.entry((operation.0, format!("{kind:?}"))).or_insert(0) += calls.count();
                }
            }
        }
    }
    // Each callback was called where expected, so that the test tests something.
    let met = |operation, kind: Kind| met[&(operation, format!("{kind:?}"))] > 0;
    for (operation, _) in OPERATIONS {
        assert!(
            met(operation, Kind::Hash) && met(operation, Kind::Eq),
            "{operation}"
        );
        assert!(met(operation, Kind::BuildHasher), "{operation}");
        let writes = operation.starts_with("insert");
        assert_eq!(met(operation, Kind::Weigh), writes, "{operation}");
        let asks = operation == "insert";
        assert_eq!(met(operation, Kind::Create), asks, "{operation}");
        assert_eq!(met(operation, Kind::Update), asks, "{operation}");
        let reads = ["get", "get_ref", "get_many"].contains(&operation);
        assert_eq!(met(operation, Kind::Read), reads, "{operation}");
        let clones = ["get", "get_many", "remove"].contains(&operation);
        assert_eq!(met(operation, Kind::Clone), clones, "{operation}");
    }
}
