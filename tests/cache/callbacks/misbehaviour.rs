//! Callbacks that panic or call the cache at any of their calls, hashers that collide, keys whose
//! `Eq` is wrong, policies with inconsistent answers: the table "When callbacks misbehave" of the
//! crate's documentation, line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::support::spark::{self, Deed, KINDS, Kind, Says, Sparky, Spread, calmly, key, value};
use crate::support::{LONGEST, NS, OneHash, hide_scripted_panics, must_end, nanos, secs};
use wheelhouse::RemovalCause::{self, Expired};
use wheelhouse::{Cache, Expiry, ManualTicker, Scheduler};

/// The visible content of a cache: by key the number of its value and the time it has left.
type Content = BTreeMap<u32, (u32, Option<Duration>)>;

fn content(cache: &Sparky) -> Content {
    let entry = |entry: wheelhouse::EntryRef<'_, spark::Key, spark::Value>| {
        (entry.key().0, (entry.serial, entry.time_left()))
    };
    calmly(|| cache.iter().map(entry).collect())
}

/// The step that reads many keys: the keys read before a panic count as read.
const LOOKS_UP_MANY: u32 = 13;

/// One step of a program: of fourteen kinds, on thirteen keys.
fn step(cache: &Sparky, clock: &ManualTicker, n: u32, accepted: &mut BTreeSet<u32>) {
    let on = n * 5 % 13;
    let (key, serial) = (key(on), spark::next_serial());
    let look = || calmly(|| spark::key(on));
    match n % 14 {
        0 | 4 | 8 => {
            cache.insert(key, calmly(value));
            accepted.insert(serial);
        }
        1 => {
            cache.insert_with_ttl(key, calmly(value), secs(3));
            accepted.insert(serial);
        }
        2 | 6 => drop(cache.get(&key)),
        3 => drop(cache.get_ref(&key)),
        5 => drop(cache.peek_ref(&look())),
        7 => _ = cache.set_expiry(&key, Some(secs(u64::from(n % 4)))),
        9 => drop(cache.remove(&key)),
        10 => cache.invalidate(&key),
        11 => {
            cache.retain(|key, _| spark::keeps(key));
            calmly(|| clock.advance(Duration::from_millis(900)));
        }
        LOOKS_UP_MANY => {
            // More keys than it looks up at once.
            let keys: Vec<_> = calmly(|| (0..20).map(spark::key).collect());
            let values = cache.get_many(spark::hand_out(&keys));
            assert_eq!(values.len(), keys.len());
        }
        _ => {
            cache.run_pending_tasks();
            if n % 3 == 2 {
                cache.invalidate_all();
            }
        }
    }
}

/// Whether a panic in a callback of this kind reaches the caller of the cache, and then leaves
/// everything as it was.
fn reaches_the_caller(kind: Kind) -> bool {
    !matches!(kind, Kind::Listener | Kind::DropKey | Kind::DropValue)
}

/// The bound, and whether the policy answers reads.
type Setting = (Option<u64>, bool);

/// Runs the program; call number `at` of a kind misbehaves. True if there were fewer calls.
fn run(kind: Kind, deed: Deed, at: u32, spread: Spread, (capacity, reads): Setting) -> bool {
    let what = format!("{deed:?} in call {at} of {kind:?}, {spread:?}, {capacity:?}, {reads}");
    spark::take_left();
    let before = spark::alive();
    let first = spark::next_serial();
    let (cache, clock) = spark::sparky(spread, capacity, reads);
    if deed == Deed::CallTheCache {
        spark::lend(Some(cache.clone()));
    }
    let mut accepted = BTreeSet::new();
    spark::arm(kind, deed, at);
    let mut panics = 0;
    for n in 0..140 {
        // What the cache must contain after a panic in this step.
        let was = (deed == Deed::Panic && capacity.is_none() && spark::is_armed())
            .then(|| content(&cache));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            step(&cache, &clock, n, &mut accepted);
        }));
        if outcome.is_err() {
            panics += 1;
            assert!(
                reaches_the_caller(kind) || kind == Kind::DropKey,
                "{what}: reached the caller of step {n}"
            );
            // What `retain` removed before the panic stays removed; the caller drops the key of its
            // own call, whose destructor runs too late.
            if kind != Kind::Retain && kind != Kind::DropKey {
                if let Some(mut was) = was {
                    let mut is = content(&cache);
                    // A read has moved the deadline before it clones the value.
                    if reads && (n % 14 == LOOKS_UP_MANY || kind == Kind::Clone) {
                        let forget = |(_, left): &mut (u32, Option<Duration>)| *left = None;
                        was.values_mut().chain(is.values_mut()).for_each(forget);
                    }
                    assert_eq!(is, was, "{what}: step {n} changed the cache");
                }
            }
        }
    }
    let spent = !spark::disarm();
    assert!(panics <= 1, "{what}: {panics} panics");
    if spent && deed == Deed::Panic && reaches_the_caller(kind) {
        assert_eq!(panics, 1, "{what}: the panic was not counted");
    }
    if deed == Deed::CallTheCache {
        assert_eq!(panics, 0, "{what}: a call from inside panicked");
        spark::lend(None);
        // What the calls from inside inserted was accepted.
        accepted = (first..spark::next_serial()).collect();
    }
    settle(&cache, &clock, accepted, &what);
    let listener_panics = cache.stats().listener_panics();
    let expected = spent && deed == Deed::Panic && kind == Kind::Listener;
    assert_eq!(listener_panics, u64::from(expected), "{what}");
    drop(cache);
    assert_eq!(spark::alive(), before, "{what}: keys and values leaked");
    !spent
}

/// Without misbehaviour the cache works: every value that was inserted is stored or was delivered
/// once, and due entries are removed.
fn settle(cache: &Sparky, clock: &ManualTicker, accepted: BTreeSet<u32>, what: &str) {
    cache.run_pending_tasks();
    assert_eq!(content(cache).len() as u64, cache.entry_count(), "{what}");
    let present: BTreeSet<u32> = content(cache).values().map(|(serial, _)| *serial).collect();
    let left = spark::take_left();
    for (serial, causes) in &left {
        assert_eq!(causes.len(), 1, "{what}: value {serial} left as {causes:?}");
        assert!(
            !present.contains(serial),
            "{what}: {serial} left, and is still stored"
        );
    }
    let known: BTreeSet<u32> = present.into_iter().chain(left.into_keys()).collect();
    assert_eq!(
        known, accepted,
        "{what}: stored or delivered, against inserted"
    );

    let number = spark::next_serial();
    cache.insert_with_ttl(key(500), value(), secs(1));
    let found = cache.get(&key(500)).map(|found| found.serial);
    // A bounded cache may have evicted the new entry at once.
    let bounded = cache.policy().max_capacity().is_some();
    assert!(
        found == Some(number) || (bounded && found.is_none()),
        "{what}"
    );
    assert!(cache.remove(&key(500)).is_some() || bounded, "{what}");
    cache.insert_with_ttl(key(501), value(), secs(1));
    let timeless = content(cache)
        .values()
        .filter(|(_, left)| left.is_none())
        .count();
    clock.advance(secs(1_000));
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!(
        cache.entry_count(),
        timeless as u64,
        "{what}: expired entries stayed"
    );
    assert_eq!(cache.next_maintenance_in(), None, "{what}");
    let left = spark::take_left();
    assert!(
        left.values().all(|causes| causes.len() == 1),
        "{what}: {left:?}"
    );
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0, "{what}");
    spark::take_left();
}

/// Runs the program again and again, with the first, the second, … call misbehaving, until the
/// program ends before that call.
fn at_each_call(kind: Kind, deed: Deed) {
    hide_scripted_panics();
    for spread in [Spread::Well, Spread::AllEqual] {
        for setting in [(None, true), (None, false), (Some(6), true)] {
            let mut at = 1;
            while !run(kind, deed, at, spread, setting) {
                // Tests each of the first calls; of hundreds, some.
                at += 1 + at / 40;
            }
            assert!(
                at > 3
                    || (kind == Kind::Weigh && setting.0.is_none())
                    || (kind == Kind::Read && !setting.1)
                    || kind == Kind::Eq,
                "{kind:?} was called {at} times"
            );
        }
    }
}

#[test]
fn a_panic_in_any_call_of_any_callback_affects_only_that_call() {
    for kind in KINDS {
        at_each_call(kind, Deed::Panic);
    }
}

#[test]
fn any_call_of_any_callback_may_call_the_cache() {
    must_end(|| {
        for kind in KINDS {
            at_each_call(kind, Deed::CallTheCache);
        }
    });
}

/// Every inserted value is stored, or was delivered once; nothing leaks, however the keys hash and
/// compare.
fn accounts_balance(spread: Spread, says: Says) {
    let what = format!("{spread:?}, {says:?}");
    spark::take_left();
    let before = spark::alive();
    for capacity in [None, Some(20)] {
        let (cache, clock) = spark::sparky(spread, capacity, true);
        let mut accepted = BTreeSet::new();
        spark::says(says);
        for n in 0..1_000 {
            step(&cache, &clock, n, &mut accepted);
        }
        clock.advance(secs(100));
        cache.run_pending_tasks();
        let present: Vec<u32> = calmly(|| cache.iter().map(|entry| entry.serial).collect());
        cache.invalidate_all();
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        let left = spark::take_left();
        assert!(left.values().all(|causes| causes.len() == 1), "{what}");
        assert_eq!(
            left.into_keys().collect::<BTreeSet<_>>(),
            accepted,
            "{what}"
        );
        assert!(
            present.iter().all(|serial| accepted.contains(serial)),
            "{what}"
        );
        assert_eq!((cache.entry_count(), spark::alive()), (0, before), "{what}");
        spark::says(Says::Truth);
    }
}

#[test]
fn keys_with_a_wrong_eq_or_hash_lose_and_duplicate_no_value() {
    for says in [Says::Yes, Says::No, Says::Now(1), Says::Now(7), Says::Truth] {
        for spread in [Spread::Well, Spread::AllEqual, Spread::Never] {
            accounts_balance(spread, says);
        }
    }
}

#[test]
fn hashers_that_collide_make_it_slow_not_wrong() {
    let bits = [
        (0, 0),
        (1, 0),
        (1, 63),
        (3, 30),
        (4, 44),
        (6, 58),
        (8, 32),
        (16, 48),
        (12, 0),
    ];
    for (bits, from) in bits {
        let (cache, clock) = spark::sparky(Spread::Bits(bits, from), None, true);
        let mut model = BTreeMap::new();
        for n in 0..3_000u32 {
            let on = n * 7 % 400;
            match n % 5 {
                0..3 => {
                    model.insert(on, spark::next_serial());
                    cache.insert_with_ttl(key(on), value(), secs(100));
                }
                3 => {
                    let expected = model.remove(&on);
                    let found = cache.remove(&key(on)).map(|found| found.serial);
                    assert_eq!(found, expected, "{bits} bits from {from}");
                }
                _ => {
                    let found = cache.peek_ref(&key(on)).map(|found| found.serial);
                    assert_eq!(found, model.get(&on).copied(), "{bits} bits from {from}");
                }
            }
        }
        let shown: BTreeMap<u32, u32> = cache.iter().map(|e| (e.key().0, e.serial)).collect();
        assert_eq!(shown, model, "{bits} bits from {from}");
        clock.advance(secs(100));
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0);
    }
}

#[test]
fn however_many_keys_collide_a_write_needs_no_deeper_stack() {
    const KEYS: u32 = 2_400;
    let cache: Cache<u32, u32, OneHash> = Cache::builder()
        .scheduler(Scheduler::disabled())
        .hasher(OneHash)
        .build();
    let theirs = cache.clone();
    std::thread::Builder::new()
        .stack_size(192 << 10)
        .spawn(move || (0..KEYS).for_each(|key| theirs.insert(key, key)))
        .expect("a thread")
        .join()
        .expect("no panic");
    assert_eq!(cache.entry_count(), u64::from(KEYS));
    assert!((0..KEYS).all(|key| cache.get(&key) == Some(key)));
}

/// Returns its answers in turn, for any question.
struct InTurn(std::sync::Mutex<usize>, Vec<Option<Duration>>);

impl InTurn {
    fn next(&self) -> Option<Duration> {
        let mut turn = self.0.lock().unwrap();
        *turn += 1;
        self.1[*turn % self.1.len()]
    }
}

impl Expiry<u32, u32> for InTurn {
    fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
        self.next()
    }

    fn expire_after_update(
        &self,
        _: &u32,
        _: &u32,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.next()
    }

    fn expire_after_read(
        &self,
        _: &u32,
        _: &u32,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        self.next()
    }
}

#[test]
fn the_last_answer_of_a_policy_counts() {
    let huge = [LONGEST, LONGEST + NS, nanos(u64::MAX), Duration::MAX];
    let mut turns: Vec<Vec<Option<Duration>>> = vec![
        vec![None, Some(secs(1))],
        vec![Some(Duration::ZERO), None],
        vec![Some(NS), Some(Duration::ZERO), Some(NS)],
        vec![
            None,
            Some(Duration::ZERO),
            Some(NS),
            Some(Duration::MAX),
            Some(secs(1)),
        ],
    ];
    turns.extend(huge.map(|huge| vec![Some(huge), Some(NS), None]));
    for turn in turns {
        for origin in [0, u64::MAX - 5, i64::MAX as u64 - 3] {
            let clock = ManualTicker::starting_at(origin);
            let policy = InTurn(std::sync::Mutex::default(), turn.clone());
            let heard = crate::support::record::Record::<u32, u32>::new();
            let cache = Cache::builder()
                .ticker(clock.clone())
                .expire_after(policy)
                .removal_listener(heard.listener())
                .build();
            let mut asked = 0;
            for round in 0..60u32 {
                for key in 0..5 {
                    let before = cache.peek_ref(&key).is_some();
                    let reads = round % 3 > 0;
                    if reads && !before {
                        assert_eq!(cache.get(&key), None, "{turn:?}");
                        continue;
                    }
                    if reads {
                        assert!(cache.get(&key).is_some(), "{turn:?}");
                    } else {
                        cache.insert(key, round);
                    }
                    asked += 1;
                    let answer = turn[asked % turn.len()].map(|life| life.min(LONGEST));
                    let left = cache.peek_ref(&key).map(|entry| entry.time_left());
                    let expected = (answer != Some(Duration::ZERO)).then_some(answer);
                    assert_eq!(left, expected, "{turn:?} from {origin}, round {round}");
                }
                if round % 7 == 0 {
                    cache.run_pending_tasks();
                }
                if round % 5 == 0 {
                    clock.advance(NS);
                }
            }
            (0..5).for_each(|key| _ = cache.set_expiry(&key, Some(secs(1))));
            clock.advance(secs(1));
            cache.run_pending_tasks();
            assert_eq!(
                (cache.entry_count(), cache.next_maintenance_in()),
                (0, None)
            );
            let heard: Vec<RemovalCause> = heard.take().iter().map(|notice| notice.2).collect();
            assert!(heard.contains(&Expired), "{turn:?}: {heard:?}");
        }
    }
}

#[test]
fn a_panic_in_any_destructor_at_the_last_drop_leaks_nothing_else() {
    hide_scripted_panics();
    for kind in [Kind::DropKey, Kind::DropValue, Kind::Listener] {
        for (at, capacity) in (1..60).zip([None, Some(30)].into_iter().cycle()) {
            spark::take_left();
            let before = spark::alive();
            let (cache, _clock) = spark::sparky(Spread::Well, capacity, true);
            for n in 0..60 {
                cache.insert_with_ttl(key(n % 40), value(), secs(10));
            }
            spark::arm(kind, Deed::Panic, at);
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(cache)));
            spark::disarm();
            assert!(dropped.is_ok(), "{kind:?} {at}: the drop panicked");
            assert_eq!(spark::alive(), before, "{kind:?} {at}");
            let left = spark::take_left();
            assert!(left.len() >= 20, "the replaced ones are delivered");
            assert!(left.values().all(|causes| causes.len() == 1), "{left:?}");
        }
    }
}
