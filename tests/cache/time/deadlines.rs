//! Deadlines are exact: when an entry expires, what moves a deadline, and what leaves it unchanged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::rig::{KEY, NEW, OLD, Rig};
use crate::support::script::{Answer, Asked};
use crate::support::{HOUR, LONGEST, NS, SPAN, nanos, secs};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced};
use wheelhouse::{Cache, Expiry, ManualTicker, Ticker};

#[test]
fn an_entry_expires_exactly_at_its_deadline() {
    let boundaries = [16, 30, 36, 42, 47, 49, 50, 55, 61, 62].map(|bits| 1u64 << bits);
    let lives = boundaries
        .iter()
        .flat_map(|&b| [b - 1, b, b + 1])
        .chain([1, 2, 999_999_937]);
    for life in lives.map(|n| nanos(n).min(LONGEST)) {
        let rig = Rig::new();
        rig.script.on_create(Answer::After(life));
        rig.cache.insert(KEY, NEW);
        rig.cache.run_pending_tasks();
        rig.clock.advance(life - NS);
        rig.cache.run_pending_tasks();
        assert_eq!(rig.left(), Some(Some(NS)), "{life:?}");
        assert_eq!(rig.cache.entry_count(), 1, "{life:?}");
        assert!(rig.cache.contains_key(&KEY));
        assert_eq!(rig.cache.iter().count(), 1);
        assert_eq!(rig.heard(), [], "{life:?}");

        rig.clock.advance(NS);
        assert_eq!(rig.cache.get(&KEY), None, "{life:?}");
        assert!(rig.cache.get_ref(&KEY).is_none());
        assert_eq!(rig.left(), None);
        assert!(!rig.cache.contains_key(&KEY));
        assert_eq!(rig.cache.iter().count(), 0);
        assert!(!rig.cache.set_expiry(&KEY, None));
        // An entry is due at its deadline, even if the bucket that holds it ends later.
        assert_eq!(rig.heard(), [(KEY, NEW, Expired)], "{life:?}");
        assert_eq!(rig.cache.entry_count(), 0);
    }
}

#[test]
fn one_nanosecond_before_the_deadline_every_read_hits() {
    let rig = Rig::new();
    rig.cache.insert(KEY, NEW);
    rig.clock.advance(secs(10) - NS);
    rig.script.on_read(Answer::Keep);
    assert_eq!(rig.cache.get(&KEY), Some(NEW));
    assert_eq!(
        rig.cache.get_ref(&KEY).map(|entry| entry.time_left()),
        Some(Some(NS))
    );
    assert!(rig.cache.set_expiry(&KEY, Some(NS)));
    assert_eq!(rig.cache.remove(&KEY), Some(NEW));
    assert_eq!(rig.heard(), [(KEY, NEW, Explicit)]);
}

#[test]
fn a_lifetime_of_zero_is_stored_but_never_visible() {
    let rig = Rig::new();
    rig.script.on_create(Answer::After(Duration::ZERO));
    rig.cache.insert(KEY, OLD);
    assert_eq!(rig.cache.get(&KEY), None);
    assert_eq!(rig.cache.iter().count(), 0);
    rig.cache.insert_with_ttl(KEY, NEW, Duration::ZERO);
    assert!(!rig.cache.contains_key(&KEY));
    assert_eq!(rig.heard(), [(KEY, OLD, Expired), (KEY, NEW, Expired)]);
    assert_eq!(rig.cache.entry_count(), 0);

    let rig = Rig::present();
    rig.script.on_update(Answer::After(Duration::ZERO));
    rig.cache.insert(KEY, NEW);
    assert!(!rig.cache.contains_key(&KEY));
    assert_eq!(rig.heard(), [(KEY, OLD, Replaced), (KEY, NEW, Expired)]);

    let rig = Rig::present();
    assert!(rig.cache.set_expiry(&KEY, Some(Duration::ZERO)));
    assert!(!rig.cache.contains_key(&KEY));
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);

    // The read that makes the entry expire still returns its value.
    let rig = Rig::present();
    rig.script.on_read(Answer::After(Duration::ZERO));
    assert_eq!(rig.cache.get(&KEY), Some(OLD));
    assert_eq!(rig.cache.get(&KEY), None);
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
}

#[test]
fn none_never_expires() {
    let rig = Rig::new();
    rig.script.on_create(Answer::Never);
    rig.cache.insert(KEY, OLD);
    for _ in 0..6 {
        rig.clock.advance(LONGEST);
        rig.cache.run_pending_tasks();
        assert_eq!(rig.left(), Some(None));
    }
    rig.script.on_read(Answer::Keep);
    assert_eq!(rig.cache.get(&KEY), Some(OLD));
    assert!(matches!(
        rig.script.asked()[..],
        [Asked::Create { .. }, Asked::Read { left: None, .. }]
    ));
    rig.script.on_update(Answer::Keep);
    rig.cache.insert(KEY, NEW);
    assert!(matches!(
        rig.script.asked()[..],
        [Asked::Update { left: None, .. }]
    ));
    assert_eq!(rig.left(), Some(None));
    assert_eq!(rig.heard(), [(KEY, OLD, Replaced)]);
    assert_eq!(rig.cache.next_maintenance_in(), None);
}

#[test]
fn a_lifetime_above_the_longest_counts_as_the_longest() {
    for life in [
        LONGEST + NS,
        nanos(u64::MAX),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ] {
        let rig = Rig::new();
        rig.script.on_create(Answer::After(life));
        rig.cache.insert(KEY, OLD);
        assert_eq!(rig.left(), Some(Some(LONGEST)), "{life:?}");
        rig.cache.insert_with_ttl(KEY, OLD, life);
        assert_eq!(rig.left(), Some(Some(LONGEST)), "{life:?}");
        assert!(rig.cache.set_expiry(&KEY, Some(life)));
        assert_eq!(rig.left(), Some(Some(LONGEST)), "{life:?}");
        rig.script.on_read(Answer::After(life));
        assert_eq!(rig.cache.get(&KEY), Some(OLD));
        assert_eq!(rig.left(), Some(Some(LONGEST)), "{life:?}");
        rig.script.on_update(Answer::After(life));
        rig.cache.insert(KEY, NEW);
        assert_eq!(rig.left(), Some(Some(LONGEST)), "{life:?}");
        rig.heard();

        rig.clock.advance(LONGEST - NS);
        assert_eq!(rig.heard(), []);
        assert!(rig.cache.contains_key(&KEY));
        rig.clock.advance(NS);
        assert!(!rig.cache.contains_key(&KEY));
        assert_eq!(rig.heard(), [(KEY, NEW, Expired)]);
    }
}

#[test]
fn an_unchanged_duration_leaves_the_deadline_exactly_where_it_is() {
    let rig = Rig::new();
    rig.script.on_read(Answer::Keep);
    rig.script.on_update(Answer::Keep);
    rig.cache.insert(KEY, 0);
    for n in 1..=1_000 {
        rig.clock.advance(nanos(9_999_991));
        if n % 3 == 0 {
            rig.cache.insert(KEY, n);
        } else {
            assert!(rig.cache.get(&KEY).is_some());
        }
        if n % 7 == 0 {
            rig.cache.run_pending_tasks();
        }
        assert_eq!(
            rig.left(),
            Some(Some(secs(10) - nanos(9_999_991) * n)),
            "after {n}"
        );
    }
    rig.clock.advance(nanos(9_000));
    assert_eq!(rig.left(), None);
}

/// A slow policy: the clock advances while it answers.
struct Slow {
    clock: ManualTicker,
    answer: Arc<Mutex<Option<Duration>>>,
}

impl Slow {
    fn think(&self, left: Option<Duration>) -> Option<Duration> {
        self.clock.advance(secs(2));
        self.answer.lock().unwrap().or(left)
    }
}

impl Expiry<u32, u32> for Slow {
    fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
        self.think(None)
    }

    fn expire_after_update(
        &self,
        _: &u32,
        _: &u32,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        self.think(left)
    }

    fn expire_after_read(
        &self,
        _: &u32,
        _: &u32,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        self.think(left)
    }
}

#[test]
fn a_new_deadline_counts_from_the_instant_that_the_policy_received() {
    let clock = ManualTicker::new();
    let answer = Arc::new(Mutex::new(Some(secs(10))));
    let policy = Slow {
        clock: clock.clone(),
        answer: Arc::clone(&answer),
    };
    let cache = Cache::builder()
        .expire_after(policy)
        .ticker(clock.clone())
        .build();
    let left = || cache.peek_ref(&KEY).map(|entry| entry.time_left());
    cache.insert(KEY, OLD);
    assert_eq!(left(), Some(Some(secs(8))));
    clock.advance(secs(1));
    cache.insert(KEY, NEW);
    assert_eq!(left(), Some(Some(secs(8))));
    clock.advance(secs(1));
    assert_eq!(cache.get(&KEY), Some(NEW));
    assert_eq!(left(), Some(Some(secs(8))));

    // The clock advanced by two seconds while the policy decided to change nothing.
    *answer.lock().unwrap() = None;
    assert_eq!(cache.get(&KEY), Some(NEW));
    assert_eq!(left(), Some(Some(secs(6))));
    cache.insert(KEY, OLD);
    assert_eq!(left(), Some(Some(secs(4))));
}

#[test]
fn an_answer_that_has_passed_by_the_time_it_is_given_is_due_at_once() {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let answer = Arc::new(Mutex::new(Some(secs(2))));
    let policy = Slow {
        clock: clock.clone(),
        answer: Arc::clone(&answer),
    };
    let cache = Cache::builder()
        .expire_after(policy)
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    cache.insert(KEY, OLD);
    assert!(!cache.contains_key(&KEY));
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [(KEY, OLD, Expired)]);

    // An update and a read of an entry that has an hour left.
    for act in [
        (|cache| cache.insert(KEY, NEW)) as fn(&Cache<u32, u32>),
        |cache| assert_eq!(cache.get(&KEY), Some(OLD)),
    ] {
        cache.insert_with_ttl(KEY, OLD, HOUR);
        act(&cache);
        assert_eq!(cache.get(&KEY), None);
        cache.run_pending_tasks();
        let (key, _, cause) = heard.take().pop().unwrap();
        assert_eq!((key, cause), (KEY, Expired));
        assert_eq!(cache.entry_count(), 0);
    }
}

#[test]
fn an_entry_alive_when_its_update_asked_the_policy_is_replaced() {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let policy = Slow {
        clock: clock.clone(),
        answer: Arc::new(Mutex::new(Some(secs(10)))),
    };
    let cache = Cache::builder()
        .expire_after(policy)
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    cache.insert_with_ttl(KEY, OLD, secs(1));
    // One second is left, and the policy takes two. No other call finds the entry expired.
    cache.insert(KEY, NEW);
    let shown = cache.peek_ref(&KEY).map(|e| (*e, e.time_left()));
    assert_eq!(shown, Some((NEW, Some(secs(8)))));
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [(KEY, OLD, Replaced)]);
}

/// A clock that advances by 7 ns with each reading.
#[derive(Clone, Default)]
struct Restless(Arc<AtomicU64>);

impl Ticker for Restless {
    fn nanos(&self) -> u64 {
        self.0.fetch_add(7, Relaxed)
    }
}

/// An entry expires at a fixed instant, whatever happens to it.
struct ValidUntil(Arc<OnceLock<Instant>>);

impl ValidUntil {
    /// The first call sets the deadline an hour later.
    fn left(&self, policy_instant: Instant) -> Option<Duration> {
        let end = *self.0.get_or_init(|| policy_instant + HOUR);
        Some(end - policy_instant)
    }
}

impl Expiry<u32, u32> for ValidUntil {
    fn expire_after_create(&self, _: &u32, _: &u32, at: Instant) -> Option<Duration> {
        self.left(at)
    }

    fn expire_after_update(
        &self,
        _: &u32,
        _: &u32,
        at: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.left(at)
    }

    fn expire_after_read(
        &self,
        _: &u32,
        _: &u32,
        at: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        self.left(at)
    }
}

#[test]
fn an_entry_valid_until_an_instant_expires_exactly_then() {
    let valid_until = Arc::new(OnceLock::new());
    let clock = Restless::default();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(ValidUntil(Arc::clone(&valid_until)))
        .ticker(clock.clone())
        .build();
    let readings = |act: &dyn Fn()| {
        let before = clock.0.load(Relaxed);
        act();
        (clock.0.load(Relaxed) - before) / 7
    };
    // The first write of a cache also arranges a wake-up for its deadline.
    cache.insert_with_ttl(1, 1, HOUR);
    let policy_instant = clock.0.load(Relaxed);
    assert_eq!(readings(&|| cache.insert(2, 1)), 1, "create");
    let end = policy_instant + HOUR.as_nanos() as u64;
    let ends = || {
        // The clock shows this when `time_left` reads it, after the reading of the look-up.
        let now = clock.0.load(Relaxed) + 7;
        let left = cache.peek_ref(&2).unwrap().time_left().unwrap();
        now + left.as_nanos() as u64
    };
    assert_eq!(ends(), end, "create");
    for value in 2..20 {
        assert_eq!(readings(&|| cache.insert(2, value)), 1, "update");
        assert_eq!(ends(), end, "update");
        assert_eq!(readings(&|| assert_eq!(cache.get(&2), Some(value))), 1);
        assert_eq!(ends(), end, "read");
        assert_eq!(readings(&|| assert!(cache.get_ref(&2).is_some())), 1);
        assert_eq!(ends(), end, "read");
    }
    // Alive at the last moment before the deadline, expired at the deadline.
    clock.0.store(end - 1, Relaxed);
    assert!(cache.contains_key(&2));
    clock.0.store(end, Relaxed);
    assert!(!cache.contains_key(&2));
}

#[test]
fn an_extending_read_reads_the_clock_once() {
    let clock = Restless::default();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(wheelhouse::expiry::accessing(|_: &u32, _: &u32| Some(HOUR)))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    for _ in 0..10 {
        let before = clock.0.load(Relaxed);
        assert_eq!(cache.get(&1), Some(1));
        assert_eq!(clock.0.load(Relaxed), before + 7);
        let left = cache.peek_ref(&1).unwrap().time_left();
        // The deadline counts from that reading; the clock was read twice more since.
        assert_eq!(left, Some(HOUR - nanos(14)));
    }
}

#[test]
fn a_deadline_that_moved_is_the_one_that_counts() {
    let rig = Rig::new();
    rig.cache.insert(KEY, OLD);
    rig.cache.run_pending_tasks();
    rig.clock.advance(secs(9));
    assert_eq!(
        rig.cache.get(&KEY),
        Some(OLD),
        "moves the deadline from 10 s to 39 s"
    );
    rig.clock.advance(secs(30) - NS);
    assert_eq!(rig.heard(), []);
    rig.clock.advance(NS);
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);

    let rig = Rig::new();
    rig.script.on_create(Answer::After(HOUR));
    rig.cache.insert(KEY, OLD);
    rig.cache.run_pending_tasks();
    rig.script.on_read(Answer::After(secs(1)));
    assert_eq!(
        rig.cache.get(&KEY),
        Some(OLD),
        "moves the deadline from one hour to one second"
    );
    assert!(
        rig.cache
            .next_maintenance_in()
            .is_some_and(|wait| wait <= secs(1) + SPAN)
    );
    rig.clock.advance(secs(1));
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);

    let rig = Rig::present();
    rig.cache.run_pending_tasks();
    assert!(rig.cache.set_expiry(&KEY, None));
    rig.clock.advance(HOUR);
    assert_eq!(rig.heard(), []);
    assert!(rig.cache.set_expiry(&KEY, Some(NS)));
    rig.clock.advance(NS);
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
}

#[test]
fn a_policy_without_methods_never_expires_entries_and_leaves_fixed_deadlines() {
    struct Default;
    impl Expiry<u32, u32> for Default {}
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .expire_after(Default)
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    cache.insert_with_ttl(2, 2, secs(5));
    clock.advance(secs(4));
    assert_eq!(cache.get(&2), Some(2));
    cache.insert(2, 3);
    assert_eq!(cache.peek_ref(&2).unwrap().time_left(), Some(secs(1)));
    clock.advance(secs(1));
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(1), None));
}

#[test]
fn instants_given_to_the_policy_are_ticker_time() {
    #[derive(Clone, Default)]
    struct Witness(Arc<OnceLock<Instant>>);
    impl Expiry<u32, u32> for Witness {
        fn expire_after_create(&self, _: &u32, _: &u32, at: Instant) -> Option<Duration> {
            self.0.set(at).unwrap();
            None
        }
        fn expire_after_update(
            &self,
            _: &u32,
            _: &u32,
            at: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            assert_eq!(at - *self.0.get().unwrap(), HOUR + NS);
            None
        }
    }
    let clock = ManualTicker::starting_at(u64::MAX - 5);
    let witness = Witness::default();
    let cache = Cache::builder()
        .expire_after(witness.clone())
        .ticker(clock.clone())
        .build();
    cache.insert(KEY, OLD);
    clock.advance(HOUR + NS);
    cache.insert(KEY, NEW);
}

#[test]
fn next_maintenance_in_does_no_maintenance() {
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder().ticker(clock.clone()).build();
    cache.insert_with_ttl(1, 1, secs(1));
    cache.run_pending_tasks();
    clock.advance(secs(10));
    for _ in 0..3 {
        assert_eq!(cache.next_maintenance_in(), Some(Duration::ZERO));
        assert_eq!(cache.entry_count(), 1);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.next_maintenance_in(), None);
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn pending_notifications_count_as_work() {
    let heard = Record::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(ManualTicker::new())
        .removal_listener(heard.listener())
        .build();
    cache.insert(1, 1);
    assert_eq!(cache.next_maintenance_in(), None);
    cache.invalidate(&1);
    assert_eq!(cache.next_maintenance_in(), Some(Duration::ZERO));
    assert_eq!(heard.take(), [], "next_maintenance_in delivers nothing");
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [(1, 1, Explicit)]);
    assert_eq!(cache.next_maintenance_in(), None);
}
