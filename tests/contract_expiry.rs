//! Section 2 of the contract: what a policy is told, what its answers mean, and the table of
//! operations, row by row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wheelhouse::{Cache, Expiry, ManualTicker, RemovalCause, Ticker, expiry};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);
const LONGEST: Duration = Duration::from_nanos(1 << 62);

type Heard = Arc<Mutex<Vec<(u32, u32, RemovalCause)>>>;

/// What the policy was asked.
#[derive(Debug, Clone, PartialEq)]
enum Asked {
    Create(u32, u32, Instant),
    Update(u32, u32, Instant, Option<Duration>),
    Read(u32, u32, Instant, Option<Duration>, Instant),
}
use Asked::{Create, Read, Update};

type Answer = dyn Fn(&Asked) -> Option<Duration> + Send + Sync;

/// A policy that writes down each question and answers by a closure.
struct Scripted(Arc<Mutex<Vec<Asked>>>, Box<Answer>);
impl Scripted {
    fn answer(&self, asked: Asked) -> Option<Duration> {
        self.0.lock().unwrap().push(asked.clone());
        (self.1)(&asked)
    }
}
impl Expiry<u32, u32> for Scripted {
    fn expire_after_create(&self, key: &u32, value: &u32, created_at: Instant) -> Option<Duration> {
        self.answer(Create(*key, *value, created_at))
    }
    fn expire_after_update(
        &self,
        key: &u32,
        value: &u32,
        updated_at: Instant,
        duration_until_expiry: Option<Duration>,
    ) -> Option<Duration> {
        self.answer(Update(*key, *value, updated_at, duration_until_expiry))
    }
    fn expire_after_read(
        &self,
        key: &u32,
        value: &u32,
        read_at: Instant,
        duration_until_expiry: Option<Duration>,
        last_modified_at: Instant,
    ) -> Option<Duration> {
        self.answer(Read(
            *key,
            *value,
            read_at,
            duration_until_expiry,
            last_modified_at,
        ))
    }
}

struct World {
    cache: Cache<u32, u32>,
    ticker: ManualTicker,
    asked: Arc<Mutex<Vec<Asked>>>,
    heard: Heard,
}
impl World {
    fn new(answer: impl Fn(&Asked) -> Option<Duration> + Send + Sync + 'static) -> Self {
        let (asked, heard) = (Arc::default(), Heard::default());
        let ticker = ManualTicker::starting_at(u64::MAX - 5_000_000_000);
        let sink = heard.clone();
        let cache = Cache::builder()
            .expire_after(Scripted(Arc::clone(&asked), Box::new(answer)))
            .ticker(ticker.clone())
            .removal_listener(move |k, v, cause| sink.lock().unwrap().push((*k, *v, cause)))
            .build();
        World {
            cache,
            ticker,
            asked,
            heard,
        }
    }
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
    fn heard(&self) -> Vec<(u32, u32, RemovalCause)> {
        self.cache.run_pending_tasks();
        std::mem::take(&mut self.heard.lock().unwrap())
    }
    fn now(&self) -> Instant {
        self.cache.policy().now()
    }
}

/// Ten seconds on create; what is left otherwise.
fn ten_seconds(asked: &Asked) -> Option<Duration> {
    match asked {
        Create(..) => Some(10 * SECOND),
        Update(.., left) | Read(_, _, _, left, _) => *left,
    }
}

#[test]
fn the_defaults_of_the_trait_are_never_and_unchanged() {
    struct Default;
    impl Expiry<u32, u32> for Default {}
    let at = Instant::now();
    assert_eq!(Default.expire_after_create(&1, &1, at), None);
    for left in [None, Some(SECOND)] {
        assert_eq!(Default.expire_after_update(&1, &1, at, left), left);
        assert_eq!(Default.expire_after_read(&1, &1, at, left, at), left);
    }
    fn object(_: &dyn Expiry<u32, u32>) {}
    object(&Default);
}

#[test]
fn the_policy_is_told_cache_time_and_what_is_left() {
    let world = World::new(ten_seconds);
    let start = world.now();
    world.cache.insert(1, 10);
    assert_eq!(world.asked(), [Create(1, 10, start)]);
    world.ticker.advance(3 * SECOND);
    assert_eq!(world.now() - start, 3 * SECOND);
    assert_eq!(world.cache.get(&1), Some(10));
    assert_eq!(
        world.asked(),
        [Read(1, 10, start + 3 * SECOND, Some(7 * SECOND), start)]
    );
    world.ticker.advance(SECOND);
    world.cache.insert(1, 11);
    assert_eq!(
        world.asked(),
        [Update(1, 11, start + 4 * SECOND, Some(6 * SECOND))]
    );
    world.ticker.advance(SECOND);
    assert_eq!(world.cache.get_ref(&1).map(|entry| *entry), Some(11));
    let told = Read(
        1,
        11,
        start + 5 * SECOND,
        Some(5 * SECOND),
        start + 4 * SECOND,
    );
    assert_eq!(world.asked(), [told]);
    // Nothing drifted: the deadline is where the creation put it.
    world.ticker.advance(5 * SECOND - NANO);
    assert!(world.cache.contains_key(&1));
    world.ticker.advance(NANO);
    assert!(!world.cache.contains_key(&1));
    assert_eq!(world.asked(), []);
}

#[test]
fn an_entry_without_a_deadline_has_nothing_left_to_tell() {
    let world = World::new(|_| None);
    let start = world.now();
    world.cache.insert(1, 1);
    world.cache.get(&1);
    world.cache.insert(1, 2);
    let expected = [
        Create(1, 1, start),
        Read(1, 1, start, None, start),
        Update(1, 2, start, None),
    ];
    assert_eq!(world.asked(), expected);
    assert_eq!(world.cache.peek_ref(&1).unwrap().time_left(), None);
}

#[test]
fn operations_that_promise_silence_ask_nothing() {
    let world = World::new(ten_seconds);
    world.cache.insert(1, 1);
    world.asked();
    assert!(world.cache.peek_ref(&1).is_some() && world.cache.contains_key(&1));
    assert_eq!(world.cache.iter().count(), 1);
    world.cache.retain(|_, _| true);
    assert!(world.cache.set_expiry(&1, Some(SECOND)));
    world.cache.insert_with_ttl(1, 2, SECOND);
    world.cache.insert_with_ttl(2, 2, SECOND);
    world.cache.invalidate(&1);
    world.cache.remove(&2);
    world.cache.get(&3);
    world.cache.get_ref(&3);
    assert_eq!(world.asked(), []);
}

/// "Some(d) = deadline told + d", for create, update and read, while time passes in the callback.
#[test]
fn a_deadline_counts_from_the_instant_that_the_policy_was_told() {
    let ticker = ManualTicker::new();
    let inside = ticker.clone();
    let until = Arc::new(Mutex::new(None::<Instant>));
    let (valid_until, seen) = (until.clone(), Arc::new(Mutex::new(Instant::now())));
    let told_last = seen.clone();
    struct Until<F>(F);
    impl<F: Fn(Instant) -> Option<Duration> + Send + Sync + 'static> Expiry<u32, u32> for Until<F> {
        fn expire_after_create(&self, _: &u32, _: &u32, at: Instant) -> Option<Duration> {
            (self.0)(at)
        }
        fn expire_after_update(
            &self,
            _: &u32,
            _: &u32,
            at: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            (self.0)(at)
        }
        fn expire_after_read(
            &self,
            _: &u32,
            _: &u32,
            at: Instant,
            _: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            (self.0)(at)
        }
    }
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(Until(move |told: Instant| {
            *told_last.lock().unwrap() = told;
            inside.advance(SECOND); // the policy is slow
            valid_until
                .lock()
                .unwrap()
                .map(|until| until.saturating_duration_since(told))
        }))
        .ticker(ticker.clone())
        .build();
    let start = cache.policy().now();
    let operations: [&dyn Fn(); 3] = [&|| cache.insert(1, 1), &|| cache.insert(1, 2), &|| {
        assert!(cache.get(&1).is_some())
    }];
    for (n, operation) in operations.iter().enumerate() {
        let target = start + Duration::from_secs(10 * (n as u64 + 1));
        *until.lock().unwrap() = Some(target);
        let before = cache.policy().now();
        operation();
        assert_eq!(
            *seen.lock().unwrap(),
            before,
            "told is read once, before the callback"
        );
        let left = cache.peek_ref(&1).unwrap().time_left();
        assert_eq!(left, Some(target - cache.policy().now()), "operation {n}");
    }
    ticker.advance(start + 30 * SECOND - cache.policy().now() - NANO);
    assert!(cache.contains_key(&1));
    ticker.advance(NANO);
    assert!(!cache.contains_key(&1), "at exactly valid_until");
}

#[test]
fn the_instant_is_read_after_the_loader_has_run() {
    let world = World::new(ten_seconds);
    let start = world.now();
    let ticker = world.ticker.clone();
    let value = world.cache.get_with(1, || {
        ticker.advance(3 * SECOND);
        5
    });
    assert_eq!(value, 5);
    assert_eq!(world.asked(), [Create(1, 5, start + 3 * SECOND)]);
    assert_eq!(
        world.cache.peek_ref(&1).unwrap().time_left(),
        Some(10 * SECOND)
    );
}

#[test]
fn a_life_of_zero_is_stored_never_seen_and_removed_as_expired() {
    let world = World::new(|_| Some(Duration::ZERO));
    world.cache.insert(1, 1);
    assert_eq!(world.cache.get(&1), None);
    assert!(world.cache.peek_ref(&1).is_none() && !world.cache.contains_key(&1));
    assert_eq!(world.cache.iter().count(), 0);
    world.cache.insert_with_ttl(2, 2, Duration::ZERO);
    assert_eq!(world.cache.get(&2), None);
    let mut heard = world.heard();
    heard.sort_by_key(|(key, ..)| *key);
    assert_eq!(
        heard,
        [(1, 1, RemovalCause::Expired), (2, 2, RemovalCause::Expired)]
    );
    assert_eq!(world.cache.entry_count(), 0);
}

#[test]
fn a_life_of_zero_on_update_and_on_read_and_by_hand() {
    let world = World::new(|asked| match asked {
        Update(1, ..) | Read(2, ..) => Some(Duration::ZERO),
        _ => Some(10 * SECOND),
    });
    world.cache.insert(1, 1);
    world.cache.insert(1, 2);
    assert!(!world.cache.contains_key(&1));
    world.cache.insert(2, 3);
    assert_eq!(world.cache.get(&2), Some(3), "this read saw a live entry");
    assert_eq!(world.cache.get(&2), None);
    world.cache.insert(3, 4);
    assert!(world.cache.set_expiry(&3, Some(Duration::ZERO)));
    assert!(!world.cache.contains_key(&3));
    assert!(
        !world.cache.set_expiry(&3, None),
        "an entry that is due is absent"
    );
    let mut heard = world.heard();
    heard.sort_by_key(|(key, value, _)| (*key, *value));
    let expected = [
        (1, 1, RemovalCause::Replaced),
        (1, 2, RemovalCause::Expired),
        (2, 3, RemovalCause::Expired),
        (3, 4, RemovalCause::Expired),
    ];
    assert_eq!(heard, expected);
}

#[test]
fn the_longest_life_is_two_to_the_sixty_second() {
    let world = World::new(|asked| match asked {
        Create(..) => Some(Duration::MAX),
        Update(_, _, _, left) | Read(_, _, _, left, _) => *left,
    });
    world.cache.insert(1, 1);
    let left = |key| world.cache.peek_ref(key).unwrap().time_left();
    assert_eq!(left(&1), Some(LONGEST));
    world.cache.insert_with_ttl(2, 2, Duration::MAX);
    assert_eq!(left(&2), Some(LONGEST));
    assert!(world.cache.set_expiry(&2, Some(LONGEST + SECOND)));
    assert_eq!(left(&2), Some(LONGEST));
    world.ticker.advance(LONGEST - NANO);
    world.cache.run_pending_tasks();
    assert_eq!(world.cache.get(&1), Some(1));
    assert_eq!(left(&1), Some(NANO));
    world.ticker.advance(NANO);
    assert_eq!(world.cache.get(&1), None);
    assert_eq!(world.cache.get(&2), None);
    world.cache.run_pending_tasks();
    assert_eq!(world.cache.entry_count(), 0);
}

#[test]
fn rows_insert() {
    let world = World::new(ten_seconds);
    let start = world.now();
    world.cache.insert(1, 1);
    world.cache.insert(1, 2);
    assert_eq!(
        world.asked(),
        [Create(1, 1, start), Update(1, 2, start, Some(10 * SECOND))]
    );
    world.ticker.advance(10 * SECOND);
    world.cache.insert(1, 3);
    assert_eq!(world.asked(), [Create(1, 3, start + 10 * SECOND)]);
    assert_eq!(
        world.heard(),
        [
            (1, 1, RemovalCause::Replaced),
            (1, 2, RemovalCause::Expired)
        ]
    );
    assert_eq!(world.cache.get(&1), Some(3));
}

#[test]
fn rows_insert_with_ttl() {
    let world = World::new(ten_seconds);
    let left = |key| world.cache.peek_ref(key).unwrap().time_left();
    world.cache.insert_with_ttl(1, 1, 3 * SECOND);
    assert_eq!(left(&1), Some(3 * SECOND));
    world.cache.insert_with_ttl(1, 2, 4 * SECOND);
    assert_eq!(left(&1), Some(4 * SECOND));
    world.ticker.advance(4 * SECOND);
    world.cache.insert_with_ttl(1, 3, 5 * SECOND);
    assert_eq!(left(&1), Some(5 * SECOND));
    assert_eq!(
        world.heard(),
        [
            (1, 1, RemovalCause::Replaced),
            (1, 2, RemovalCause::Expired)
        ]
    );
    assert_eq!(world.asked(), []);
    // Without a policy, and beside a limit.
    let ticker = ManualTicker::new();
    let bare: Cache<u32, u32> = Cache::builder().ticker(ticker.clone()).build();
    bare.insert(2, 2);
    bare.insert_with_ttl(1, 1, SECOND);
    ticker.advance(SECOND);
    assert_eq!((bare.get(&1), bare.get(&2)), (None, Some(2)));
}

#[test]
fn rows_reads_of_a_due_entry() {
    let world = World::new(ten_seconds);
    world.cache.insert(1, 1);
    world.ticker.advance(10 * SECOND);
    world.asked();
    assert_eq!(world.cache.get(&1), None);
    assert!(world.cache.get_ref(&1).is_none() && world.cache.peek_ref(&1).is_none());
    assert!(!world.cache.contains_key(&1));
    assert_eq!(world.cache.iter().count(), 0);
    world.cache.retain(|_, _| panic!("a due entry is skipped"));
    assert!(!world.cache.set_expiry(&1, Some(SECOND)));
    assert_eq!(world.asked(), []);
    assert_eq!(world.heard(), [(1, 1, RemovalCause::Expired)]);
}

#[test]
fn rows_set_expiry() {
    let world = World::new(ten_seconds);
    assert!(!world.cache.set_expiry(&1, Some(SECOND)));
    world.cache.insert(1, 1);
    let left = || world.cache.peek_ref(&1).unwrap().time_left();
    assert!(world.cache.set_expiry(&1, Some(SECOND)));
    assert_eq!(left(), Some(SECOND));
    assert!(world.cache.set_expiry(&1, None));
    assert_eq!(left(), None);
    world.ticker.advance(1_000 * SECOND);
    assert!(world.cache.set_expiry(&1, Some(2 * SECOND)));
    world.ticker.advance(2 * SECOND);
    assert!(!world.cache.set_expiry(&1, None));
    assert_eq!(world.heard(), [(1, 1, RemovalCause::Expired)]);
}

#[test]
fn rows_invalidate_and_remove() {
    let world = World::new(ten_seconds);
    world.cache.invalidate(&1);
    assert_eq!(world.cache.remove(&1), None);
    world.cache.insert(1, 1);
    world.cache.insert(2, 2);
    world.cache.invalidate(&1);
    assert_eq!(world.cache.remove(&2), Some(2));
    let mut heard = world.heard();
    heard.sort_by_key(|(key, ..)| *key);
    assert_eq!(
        heard,
        [
            (1, 1, RemovalCause::Explicit),
            (2, 2, RemovalCause::Explicit)
        ]
    );
    world.cache.insert(1, 1);
    world.cache.insert(2, 2);
    world.ticker.advance(10 * SECOND);
    world.cache.invalidate(&1);
    assert_eq!(world.cache.remove(&2), None);
    let mut heard = world.heard();
    heard.sort_by_key(|(key, ..)| *key);
    assert_eq!(
        heard,
        [(1, 1, RemovalCause::Expired), (2, 2, RemovalCause::Expired)]
    );
}

#[test]
fn the_ready_policies_answer_where_they_say() {
    let life = |_: &u32, value: &u32| (*value > 0).then(|| Duration::from_secs(u64::from(*value)));
    let at = Instant::now();
    let answers = |policy: &dyn Expiry<u32, u32>| {
        let rest = Some(7 * SECOND);
        [
            policy.expire_after_create(&1, &2, at),
            policy.expire_after_update(&1, &2, at, rest),
            policy.expire_after_read(&1, &2, at, rest, at),
            policy.expire_after_create(&1, &0, at),
        ]
    };
    let (two, rest) = (Some(2 * SECOND), Some(7 * SECOND));
    assert_eq!(answers(&expiry::creating(life)), [two, rest, rest, None]);
    assert_eq!(answers(&expiry::writing(life)), [two, two, rest, None]);
    assert_eq!(answers(&expiry::accessing(life)), [two, two, two, None]);
    assert_eq!(answers(&expiry::never())[0], None);
    for _ in 0..50 {
        let spread = answers(&expiry::jittered(expiry::writing(life), 0.25));
        let first = spread[0].unwrap();
        assert!(first >= SECOND && first <= 3 * SECOND, "{first:?}");
        assert_eq!(spread[3], None);
    }
}

#[test]
fn a_policy_for_writes_only_is_never_asked_on_a_read() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ticker = ManualTicker::new();
    let scripted = Scripted(asked.clone(), Box::new(|_| Some(10 * SECOND)));
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(expiry::writes_only(scripted))
        .ticker(ticker.clone())
        .build();
    cache.insert(1, 1);
    ticker.advance(4 * SECOND);
    cache.insert(1, 2);
    assert_eq!(asked.lock().unwrap().len(), 2);
    ticker.advance(4 * SECOND);
    assert_eq!(cache.get(&1), Some(2));
    assert!(cache.get_ref(&1).is_some());
    assert_eq!(asked.lock().unwrap().len(), 2, "reads ask nothing");
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(6 * SECOND));
}

#[test]
fn a_policy_for_writes_only_beside_an_idle_limit() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(expiry::writes_only(expiry::accessing(
            |_: &u32, _: &u32| Some(5 * SECOND),
        )))
        .time_to_idle(2 * SECOND)
        .ticker(ticker.clone())
        .build();
    cache.insert(1, 1);
    cache.insert(2, 2);
    for _ in 0..2 {
        ticker.advance(2 * SECOND - NANO);
        assert_eq!(cache.get(&1), Some(1), "a read still defers the idle limit");
    }
    assert_eq!(cache.get(&2), None);
    ticker.advance(SECOND + 2 * NANO);
    assert_eq!(cache.get(&1), None, "and never the policy's deadline");
}

/// "Returning `duration_until_expiry` leaves the deadline exactly where it is", also the idle one.
#[test]
fn an_unchanged_answer_leaves_the_policys_own_deadline() {
    let ticker = ManualTicker::new();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(Scripted(asked, Box::new(ten_seconds)))
        .time_to_idle(3 * SECOND)
        .ticker(ticker.clone())
        .build();
    cache.insert(1, 1);
    for _ in 0..4 {
        ticker.advance(2 * SECOND);
        assert_eq!(cache.get(&1), Some(1));
    }
    ticker.advance(2 * SECOND - NANO);
    assert_eq!(cache.get(&1), Some(1));
    ticker.advance(NANO);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_read_prolongs_only_the_value_that_it_read() {
    let ticker = ManualTicker::new();
    let slot: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let inside = slot.clone();
    let done = AtomicBool::new(false);
    let scripted = Scripted(
        Arc::default(),
        Box::new(move |asked| match asked {
            Read(..) if !done.swap(true, SeqCst) => {
                // The value is replaced while the read asks.
                let cache = inside.lock().unwrap().clone().unwrap();
                cache.insert(1, 2);
                Some(1_000 * SECOND)
            }
            _ => Some(SECOND),
        }),
    );
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(scripted)
        .ticker(ticker.clone())
        .build();
    *slot.lock().unwrap() = Some(cache.clone());
    cache.insert(1, 1);
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(cache.peek_ref(&1).map(|entry| *entry), Some(2));
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(SECOND));
    *slot.lock().unwrap() = None;
}

#[test]
fn a_deadline_that_moves_earlier_is_met_and_shown_to_an_event_loop() {
    let world = World::new(|asked| match asked {
        Create(..) => Some(10_000 * SECOND),
        _ => Some(5 * SECOND),
    });
    world.cache.insert(1, 1);
    world.cache.run_pending_tasks();
    assert_eq!(world.cache.get(&1), Some(1));
    let next = world.cache.next_maintenance_in().expect("scheduled");
    assert!(next <= 7 * SECOND, "{next:?}");
    world.cache.insert(2, 1);
    world.cache.run_pending_tasks();
    assert!(world.cache.set_expiry(&2, Some(SECOND)));
    let next = world.cache.next_maintenance_in().expect("scheduled");
    assert!(next <= 3 * SECOND, "{next:?}");
    world.ticker.advance(5 * SECOND);
    assert_eq!(world.heard().len(), 2);
    assert_eq!(world.cache.next_maintenance_in(), None);
}

#[test]
fn a_panic_of_the_policy_leaves_things_as_they_were() {
    let armed = Arc::new(AtomicBool::new(false));
    let trap = armed.clone();
    let world = World::new(move |asked| {
        assert!(!trap.load(SeqCst), "policy");
        ten_seconds(asked)
    });
    let fails = |f: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    armed.store(true, SeqCst);
    fails(&|| world.cache.insert(1, 1));
    assert!(!world.cache.contains_key(&1), "absent stays absent");
    armed.store(false, SeqCst);
    world.cache.insert(1, 1);
    world.ticker.advance(SECOND);
    armed.store(true, SeqCst);
    fails(&|| world.cache.insert(1, 2));
    fails(&|| _ = world.cache.get(&1));
    fails(&|| _ = world.cache.get_ref(&1));
    fails(&|| _ = world.cache.get_with(7, || 7));
    armed.store(false, SeqCst);
    assert_eq!(
        world.cache.peek_ref(&1).map(|e| *e),
        Some(1),
        "present keeps its value"
    );
    assert_eq!(
        world.cache.peek_ref(&1).unwrap().time_left(),
        Some(9 * SECOND)
    );
    assert!(!world.cache.contains_key(&7));
    world.cache.insert(1, 3);
    assert_eq!(world.cache.get(&1), Some(3));
    assert_eq!(world.cache.get_with(7, || 8), 8);
    assert_eq!(world.heard(), [(1, 1, RemovalCause::Replaced)]);
    assert_eq!(world.cache.entry_count(), 2);
    // The same over an entry that is due: the old one may have gone, as Expired, once.
    world.ticker.advance(20 * SECOND);
    armed.store(true, SeqCst);
    fails(&|| world.cache.insert(1, 4));
    armed.store(false, SeqCst);
    assert!(!world.cache.contains_key(&1));
    let heard = world.heard();
    assert_eq!(
        heard
            .iter()
            .filter(|gone| **gone == (1, 3, RemovalCause::Expired))
            .count(),
        1
    );
    assert_eq!(heard.len(), 2);
}

#[test]
fn time_that_steps_back_removes_nothing_early() {
    let world = World::new(ten_seconds);
    let origin = world.ticker.nanos();
    world.cache.insert(1, 1);
    world.ticker.advance(5 * SECOND);
    world.cache.run_pending_tasks();
    world.ticker.set_nanos(origin); // five seconds back
    assert_eq!(world.cache.get(&1), Some(1));
    world.cache.insert(2, 2);
    world.cache.run_pending_tasks();
    world.ticker.set_nanos(origin.wrapping_sub(3_000_000_000));
    assert_eq!(world.cache.get(&1), Some(1));
    world.cache.insert(3, 3);
    assert!(world.cache.set_expiry(&3, Some(10 * SECOND)));
    world.cache.run_pending_tasks();
    assert_eq!(world.cache.entry_count(), 3);
    world
        .ticker
        .set_nanos(origin.wrapping_add(10_000_000_000 - 1));
    assert!(world.cache.contains_key(&1));
    world.ticker.set_nanos(origin.wrapping_add(30_000_000_000));
    world.cache.run_pending_tasks();
    assert_eq!(world.cache.entry_count(), 0);
    assert!(
        world
            .heard()
            .iter()
            .all(|(.., cause)| *cause == RemovalCause::Expired)
    );
}

#[test]
fn told_instants_agree_with_the_programs_clock() {
    let told = Arc::new(Mutex::new(None));
    let sink = told.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(Scripted(
            Arc::default(),
            Box::new(move |asked| {
                if let Create(_, _, at) = asked {
                    *sink.lock().unwrap() = Some(*at);
                }
                Some(SECOND)
            }),
        ))
        .build();
    // A thread may be taken off its core inside one bracket, so the best of many is judged.
    let worst_of_best = (0..200)
        .map(|key| {
            let before = Instant::now();
            cache.insert(key, key);
            let after = Instant::now();
            let at = told.lock().unwrap().unwrap();
            before
                .saturating_duration_since(at)
                .max(at.saturating_duration_since(after))
        })
        .min()
        .unwrap();
    assert!(
        worst_of_best <= Duration::from_micros(50),
        "{worst_of_best:?}"
    );
    let before = Instant::now();
    let now = cache.policy().now();
    assert!(now + Duration::from_millis(5) > before && now < Instant::now() + SECOND);
}
