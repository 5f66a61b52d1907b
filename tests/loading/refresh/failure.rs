//! Reloads that fail: the old value stays, the policy says when the next try is, and the right to
//! reload always comes back.

use crate::support::{OwnCache, Place, hide_scripted_panics, until};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::compute::Op;
use wheelhouse::{
    Cache, Expiry, LoadError, Loaded, Loader, LoadingCache, ManualTicker, Refresh, async_loader_fn,
    loader_fn, refresh,
};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

/// What the backend does.
#[derive(Default)]
struct Backend {
    fails: AtomicBool,
    panics: AtomicBool,
    calls: AtomicUsize,
}

impl Backend {
    fn call(&self, key: u64) -> Result<u64, String> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.panics.load(Ordering::SeqCst) {
            panic!("told to panic in the loader");
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err("down".into());
        }
        Ok(key * 10)
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

type Users = LoadingCache<u64, u64, String>;

fn rig_with(policy: impl Refresh<u64, u64>) -> (Users, Arc<Backend>, ManualTicker) {
    let (backend, time) = (Arc::<Backend>::default(), ManualTicker::new());
    let called = Arc::clone(&backend);
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(1_000 * SECOND)
        .loading(loader_fn(move |key: &u64| called.call(*key)))
        .refresh_after(policy)
        .build();
    assert_eq!(users.get(&1), Ok(10));
    (users, backend, time)
}

fn failed(users: &Users, reloads: u64) {
    until("the reload fails", || {
        users.cache().stats().reload_failures() == reloads
    });
    // Counted before the run ends: this joins it, or fails by itself.
    until("the next moment is set", || {
        users.cache().stats().load_failures() == reloads
    });
}

/// Whether a read of key 1 would ask for a reload.
fn is_stale(users: &Users) -> bool {
    users.cache().peek_ref(&1).unwrap().is_stale()
}

#[test]
fn the_next_tries_come_after_one_second_doubling_to_64() {
    let (users, backend, time) = rig_with(refresh::after(100 * SECOND));
    backend.fails.store(true, Ordering::SeqCst);
    time.advance(100 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    failed(&users, 1);
    let mut failures = 1;
    for pause in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
        time.advance(pause * SECOND - NANO);
        for _ in 0..50 {
            assert_eq!(users.get(&1), Ok(10), "the old value stays");
        }
        assert!(!is_stale(&users), "too early for {pause} s");
        time.advance(NANO);
        for _ in 0..50 {
            assert_eq!(users.get(&1), Ok(10));
        }
        failures += 1;
        failed(&users, failures);
        assert_eq!(users.cache().stats().reloads(), failures, "no storm");
    }
    assert_eq!(backend.calls() as u64, 1 + failures);
    // A success ends the row: the next failure is a first one again.
    backend.fails.store(false, Ordering::SeqCst);
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
    backend.fails.store(true, Ordering::SeqCst);
    time.advance(100 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    failed(&users, failures + 1);
    time.advance(SECOND);
    assert_eq!(users.get(&1), Ok(10));
    failed(&users, failures + 2);
}

#[test]
fn the_old_value_stays_until_its_deadline_and_not_beyond() {
    let (users, backend, time) = rig_with(refresh::after(100 * SECOND));
    backend.fails.store(true, Ordering::SeqCst);
    time.advance(1_000 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(10));
    failed(&users, 1);
    assert_eq!(users.get(&1), Ok(10));
    time.advance(NANO);
    assert_eq!(users.get_if_present(&1), None);
    assert_eq!(
        users.get(&1),
        Err(LoadError::Failed(Arc::new("down".into())))
    );
}

#[test]
fn the_policy_is_told_of_each_failure() {
    type Told = (u64, u64, u32, Option<Duration>);
    struct Asked(Arc<Mutex<Vec<Told>>>);
    impl Refresh<u64, u64> for Asked {
        fn refresh_after_create(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(10 * SECOND)
        }

        fn refresh_after_failure(
            &self,
            key: &u64,
            value: &u64,
            failures: u32,
            left: Option<Duration>,
        ) -> Option<Duration> {
            self.0.lock().unwrap().push((*key, *value, failures, left));
            (failures < 2).then_some(5 * SECOND)
        }
    }
    let told = Arc::default();
    let (users, backend, time) = rig_with(Asked(Arc::clone(&told)));
    backend.fails.store(true, Ordering::SeqCst);
    for (pause, failures) in [(10, 1), (5, 2)] {
        time.advance(pause * SECOND);
        assert_eq!(users.get(&1), Ok(10));
        failed(&users, failures);
    }
    time.advance(500 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    assert_eq!(users.cache().stats().reloads(), 2, "`None`: no more tries");
    let left = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(
        *told.lock().unwrap(),
        [(1, 10, 1, left(990)), (1, 10, 2, left(985))]
    );
}

#[test]
fn the_pause_counts_from_the_call_of_the_policy() {
    /// Takes three seconds for its answer.
    struct Slow(Arc<OnceLock<ManualTicker>>);
    impl Refresh<u64, u64> for Slow {
        fn refresh_after_create(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(100 * SECOND)
        }

        fn refresh_after_failure(
            &self,
            _: &u64,
            _: &u64,
            _: u32,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.0.get().unwrap().advance(3 * SECOND);
            Some(10 * SECOND)
        }
    }
    let ticker = Arc::<OnceLock<_>>::default();
    let (users, backend, time) = rig_with(Slow(Arc::clone(&ticker)));
    ticker.set(time.clone()).unwrap();
    backend.fails.store(true, Ordering::SeqCst);
    time.advance(100 * SECOND);
    assert!(users.refresh(1).wait().is_err());
    time.advance(7 * SECOND - NANO);
    assert!(!is_stale(&users));
    time.advance(NANO);
    assert!(is_stale(&users));
}

#[test]
fn a_panic_is_a_failure_and_reaches_all_waiters() {
    let (users, backend, time) = rig_with(refresh::after(100 * SECOND));
    backend.panics.store(true, Ordering::SeqCst);
    time.advance(100 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    failed(&users, 1);
    assert_eq!(users.refresh(1).wait(), Err(LoadError::Panicked));
    assert_eq!(users.get(&2), Err(LoadError::Panicked), "the leader, too");
    assert_eq!(users.refresh(2).wait(), Err(LoadError::Panicked));
    assert_eq!(users.get_all([2]), Err(LoadError::Panicked));
    backend.panics.store(false, Ordering::SeqCst);
    assert_eq!(users.get(&2), Ok(20));
    // Two, or one: the refresh may have joined the reload before that had quite ended.
    let before = users.cache().stats().reloads();
    time.advance(2 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("reloaded", || users.cache().stats().reloads() == before + 1);
}

#[test]
fn waiters_share_the_error_of_one_load() {
    let own = OwnCache::<Users>::new();
    let inner = own.place();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let load = loader_fn(move |_: &u64| {
        counted.fetch_add(1, Ordering::SeqCst);
        let users = inner.get().unwrap();
        until("all wait", || users.cache().stats().load_waits() == 7);
        Err::<u64, _>("down".to_string())
    });
    let users = Cache::builder().record_stats().loading(load).build();
    own.set(&users);
    let errors: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| users.get(&1).unwrap_err()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let arc = |error: &LoadError<String>| match error {
        LoadError::Failed(error) => Arc::clone(error),
        other => panic!("{other:?}"),
    };
    assert!(
        errors
            .iter()
            .all(|error| Arc::ptr_eq(&arc(error), &arc(&errors[0])))
    );
}

#[test]
fn a_panic_of_the_policies_leaves_the_key_usable() {
    /// Panics for values of 66 and more.
    struct Bad;
    impl Expiry<u64, u64> for Bad {
        fn expire_after_create(&self, _: &u64, value: &u64, _: Instant) -> Option<Duration> {
            assert!(*value < 66, "told to panic in the expiry policy");
            Some(1_000 * SECOND)
        }

        fn expire_after_update(
            &self,
            key: &u64,
            value: &u64,
            at: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.expire_after_create(key, value, at)
        }
    }
    let (next, time) = (Arc::new(AtomicUsize::new(10)), ManualTicker::new());
    let values = Arc::clone(&next);
    let users: LoadingCache<u64, u64, String> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .expire_after(Bad)
        .loading(loader_fn(move |_: &u64| {
            Ok(values.load(Ordering::SeqCst) as u64)
        }))
        .refresh_after(refresh::after(10 * SECOND))
        .build();
    assert_eq!(users.get(&1), Ok(10));
    next.store(66, Ordering::SeqCst);
    time.advance(10 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    failed(&users, 1);
    let miss = catch_unwind(AssertUnwindSafe(|| users.get(&2)));
    assert!(
        miss.is_err(),
        "user code other than the loader passes its panic on"
    );
    next.store(12, Ordering::SeqCst);
    assert_eq!(users.get(&2), Ok(12));
    time.advance(SECOND);
    until("it is tried again", || users.get(&1) == Ok(12));
}

#[test]
fn a_panic_of_the_refresh_policy_leaks_no_right_to_reload() {
    /// Panics in the method of this number; each moment is 10 s after the write.
    struct Bad(Arc<AtomicUsize>);
    impl Bad {
        fn answer(&self, method: usize) -> Option<Duration> {
            let bad = self.0.load(Ordering::SeqCst);
            assert!(bad != method, "told to panic in the refresh policy");
            Some(10 * SECOND)
        }
    }
    impl Refresh<u64, u64> for Bad {
        fn refresh_after_create(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.answer(1)
        }

        fn refresh_after_update(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.answer(2)
        }

        fn refresh_after_reload(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.answer(3)
        }

        fn refresh_after_failure(
            &self,
            _: &u64,
            _: &u64,
            _: u32,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.answer(4)
        }
    }
    let bad = Arc::new(AtomicUsize::new(0));
    let (users, backend, time) = rig_with(Bad(Arc::clone(&bad)));
    let panics = |call: &dyn Fn()| catch_unwind(AssertUnwindSafe(call)).is_err();
    // A write, or a load: the caller gets the panic, and nothing has happened.
    bad.store(1, Ordering::SeqCst);
    assert!(panics(&|| _ = users.get(&2)));
    assert!(panics(&|| users.cache().insert(2, 5)));
    assert_eq!(users.cache().get(&2), None);
    bad.store(2, Ordering::SeqCst);
    assert!(panics(&|| users.cache().insert(1, 5)));
    assert_eq!(users.cache().get(&1), Some(10));
    // A reload: the reader gets the old value, and the reload has failed.
    bad.store(3, Ordering::SeqCst);
    time.advance(10 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    // The load of key 2 has failed, too.
    until("the reload fails", || {
        users.cache().stats().load_failures() == 2
    });
    assert_eq!(users.cache().stats().reload_failures(), 1);
    // A failed reload: the next try comes after the usual pause, which is 2 s by now.
    bad.store(4, Ordering::SeqCst);
    backend.fails.store(true, Ordering::SeqCst);
    time.advance(10 * SECOND);
    assert!(users.refresh(1).wait().is_err());
    time.advance(2 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(10));
    assert!(!is_stale(&users));
    time.advance(NANO);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload begins", || users.cache().stats().reloads() == 3);
}

#[test]
fn a_write_meanwhile_is_not_touched_by_a_failure() {
    let (gate, held) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (opened, holds) = (Arc::clone(&gate), Arc::clone(&held));
    let time = ManualTicker::new();
    let load = loader_fn(move |key: &u64| {
        if !holds.load(Ordering::SeqCst) {
            return Ok(key * 10);
        }
        until("the gate opens", || opened.load(Ordering::SeqCst));
        Err::<u64, _>("down".to_string())
    });
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(load)
        .refresh_after(refresh::after(10 * SECOND))
        .build();
    assert_eq!(users.get(&1), Ok(10));
    held.store(true, Ordering::SeqCst);
    let pending = users.refresh(1);
    until("the reload begins", || users.cache().stats().reloads() == 1);
    users.cache().insert(1, 99);
    gate.store(true, Ordering::SeqCst);
    assert!(pending.wait().is_err());
    // The new value has its own moment: the failure, which would have said 1 s, is not its own.
    time.advance(10 * SECOND - NANO);
    assert_eq!(users.get(&1), Ok(99));
    assert!(!is_stale(&users));
    time.advance(NANO);
    assert_eq!(users.get(&1), Ok(99));
    until("the next begins", || users.cache().stats().reloads() == 2);
}

#[test]
fn a_reload_that_is_stuck_is_replaced_after_the_time_out() {
    let stuck = Arc::new(AtomicBool::new(false));
    let (holds, calls) = (Arc::clone(&stuck), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let time = ManualTicker::new();
    let load = loader_fn(move |key: &u64| {
        let call = counted.fetch_add(1, Ordering::SeqCst) as u64;
        if call == 1 {
            until("it is let go", || !holds.load(Ordering::SeqCst));
        }
        Ok::<u64, String>(key * 10 + call)
    });
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(load)
        .refresh_after(refresh::after(10 * SECOND))
        .load_timeout(5 * SECOND)
        .reload_threads(2)
        .build();
    assert_eq!(users.get(&1), Ok(10));
    stuck.store(true, Ordering::SeqCst);
    time.advance(10 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("it is stuck", || calls.load(Ordering::SeqCst) == 2);
    let waiter = users.refresh(1);
    time.advance(5 * SECOND - NANO);
    assert!(users.refresh_if_stale(1).is_some(), "it is under way");
    assert_eq!(users.cache().stats().reloads(), 1);
    time.advance(NANO);
    assert_eq!(waiter.wait(), Err(LoadError::TimedOut));
    // One of the threads is stuck.
    assert_eq!(users.get(&1), Ok(10));
    until("another thread reloads", || {
        users.cache().get(&1) == Some(12)
    });
    stuck.store(false, Ordering::SeqCst);
    until("the late one is dropped", || {
        users.cache().stats().loads_discarded() == 1
    });
    assert_eq!(users.cache().get(&1), Some(12));
}

/// A reload that was revoked and the one after it begin at the same time by the clock.
#[test]
fn a_failure_of_a_revoked_reload_does_not_count_for_the_newer_one() {
    type Told = Arc<Mutex<Vec<(u64, u32)>>>;
    struct AtOnce(Told);
    impl Refresh<u64, u64> for AtOnce {
        fn refresh_after_create(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(Duration::ZERO)
        }

        fn refresh_after_failure(
            &self,
            _: &u64,
            value: &u64,
            failures: u32,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.0.lock().unwrap().push((*value, failures));
            Some(SECOND)
        }
    }
    let (told, tasks) = (Told::default(), Arc::new(Mutex::new(Vec::new())));
    let spawned = Arc::clone(&tasks);
    let users = Cache::builder()
        .ticker(ManualTicker::new())
        .record_stats()
        .loading(async_loader_fn(|_: &u64| {
            std::future::ready(Err::<u64, _>("down".to_string()))
        }))
        .refresh_after(AtOnce(Arc::clone(&told)))
        .spawner(move |task| spawned.lock().unwrap().push(task))
        .build();
    for value in [10, 20] {
        users.cache().insert(1, value);
        assert_eq!(users.get(&1), Ok(value));
    }
    let mut context = Context::from_waker(Waker::noop());
    for mut task in std::mem::take(&mut *tasks.lock().unwrap()) {
        assert!(task.as_mut().poll(&mut context).is_ready());
    }
    assert_eq!(*told.lock().unwrap(), [(20, 1)]);
    assert_eq!(users.cache().stats().reload_failures(), 2);
}

#[test]
fn a_policy_that_would_wait_for_the_failed_reload_is_refused() {
    type Told = Arc<Mutex<Vec<Result<bool, String>>>>;
    /// Computes the key whose reload has failed, in one poll.
    struct Computes(Place<Users>, Told);
    impl Refresh<u64, u64> for Computes {
        fn refresh_after_create(
            &self,
            _: &u64,
            _: &u64,
            _: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            Some(Duration::ZERO)
        }

        fn refresh_after_failure(
            &self,
            key: &u64,
            _: &u64,
            _: u32,
            _: Option<Duration>,
        ) -> Option<Duration> {
            let users = self.0.get()?;
            let polled = catch_unwind(AssertUnwindSafe(|| {
                let keep = |_| std::future::ready(Op::Nop);
                let mut compute = Box::pin(users.cache().entry(*key).and_compute_with_async(keep));
                let mut context = Context::from_waker(Waker::noop());
                compute.as_mut().poll(&mut context).is_ready()
            }));
            let polled = polled.map_err(|panic| *panic.downcast::<String>().unwrap());
            self.1.lock().unwrap().push(polled);
            Some(SECOND)
        }
    }
    let (own, told) = (OwnCache::new(), Told::default());
    let users: Users = Cache::builder()
        .ticker(ManualTicker::new())
        .loading(async_loader_fn(|_: &u64| {
            std::future::ready(Ok::<u64, _>(10))
        }))
        .refresh_after(Computes(own.place(), Arc::clone(&told)))
        .spawner(drop)
        .build();
    own.set(&users);
    users.cache().insert(1, 10);
    assert_eq!(users.get(&1), Ok(10), "and the reload is dropped");
    let told = told.lock().unwrap();
    let [Err(refused)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(refused.contains("deadlock"), "{refused}");
}

/// A backend that is down, or panics, until a test says otherwise.
struct Down {
    users: Users,
    time: ManualTicker,
    calls: Arc<AtomicUsize>,
    state: Arc<Mutex<&'static str>>,
}

impl Down {
    /// Errors are remembered for 1 s, 2 s, and so on up to 8 s.
    fn new() -> Self {
        let (time, calls) = (ManualTicker::new(), Arc::<AtomicUsize>::default());
        let state = Arc::new(Mutex::new("down"));
        let (counted, told) = (Arc::clone(&calls), Arc::clone(&state));
        let users = Cache::builder()
            .ticker(time.clone())
            .record_stats()
            .time_to_live(100 * SECOND)
            .loading(loader_fn(move |key: &u64| {
                let call = counted.fetch_add(1, Ordering::SeqCst);
                let state = *told.lock().unwrap();
                match state {
                    "up" => Ok(key * 10),
                    "panics" => panic!("told to panic in the loader"),
                    state => Err(format!("{state}, call {call}")),
                }
            }))
            .failure_backoff(refresh::doubling(SECOND, 8 * SECOND))
            .build();
        Self {
            users,
            time,
            calls,
            state,
        }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn set(&self, state: &'static str) {
        *self.state.lock().unwrap() = state;
    }

    fn get(&self) -> Arc<String> {
        match self.users.get(&1) {
            Err(LoadError::Failed(error)) => error,
            other => panic!("no error: {other:?}"),
        }
    }
}

#[test]
fn an_error_is_remembered_for_a_growing_time() {
    let down = Down::new();
    let (users, time) = (&down.users, &down.time);
    for (failures, pause) in [1, 2, 4, 8, 8].into_iter().enumerate() {
        let first = down.get();
        assert_eq!(down.calls(), failures + 1);
        time.advance(pause * SECOND - NANO);
        assert!(Arc::ptr_eq(&first, &down.get()), "the same error");
        assert_eq!(down.calls(), failures + 1);
        time.advance(NANO);
    }
    let stats = users.cache().stats();
    let counts = (
        stats.loads(),
        stats.load_failures(),
        stats.remembered_failures(),
    );
    assert_eq!(counts, (5, 5, 5));
    // Success ends the row.
    down.set("up");
    assert_eq!(users.get(&1), Ok(10));
    users.cache().invalidate(&1);
    down.set("down");
    let first = down.get();
    time.advance(SECOND - NANO);
    assert!(Arc::ptr_eq(&first, &down.get()));
    time.advance(NANO);
    assert!(!Arc::ptr_eq(&first, &down.get()), "asked again after 1 s");
}

#[test]
fn a_load_that_succeeds_forgets_an_error_and_no_other_write_does() {
    type Write = fn(&Cache<u64, u64>);
    let writes: [(&str, bool, Write); 7] = [
        ("invalidate", false, |cache| cache.invalidate(&1)),
        ("remove", false, |cache| assert_eq!(cache.remove(&1), None)),
        ("insert", false, |cache| {
            cache.insert(1, 5);
            cache.remove(&1);
        }),
        ("invalidate_all", false, Cache::invalidate_all),
        ("a compute that stores nothing", false, |cache| {
            cache.entry(1).and_compute_with(|_| Op::Nop);
        }),
        ("a compute", true, |cache| {
            cache.entry(1).and_upsert_with(|_| 5);
            cache.remove(&1);
        }),
        ("get_with", true, |cache| {
            assert_eq!(cache.get_with(1, || 5), 5);
            cache.remove(&1);
        }),
    ];
    for (name, forgets, write) in writes {
        let down = Down::new();
        down.get();
        down.time.advance(SECOND);
        // Two failures in a row: it is remembered for 2 s.
        let second = down.get();
        assert_eq!(down.calls(), 2, "{name}");
        write(down.users.cache());
        let next = down.get();
        assert_eq!(!Arc::ptr_eq(&second, &next), forgets, "{name}");
        assert_eq!(down.calls(), if forgets { 3 } else { 2 }, "{name}");
        // After a success the row has begun anew.
        down.time.advance(SECOND);
        down.get();
        assert_eq!(down.calls(), if forgets { 4 } else { 2 }, "{name}");
    }
    // Nor does a load of another key.
    let down = Down::new();
    let first = down.get();
    assert_eq!(down.users.cache().get_with(2, || 2), 2);
    assert!(Arc::ptr_eq(&first, &down.get()));
}

#[test]
fn what_is_remembered_holds_for_each_method_that_would_call_the_loader() {
    let down = Down::new();
    let (users, first) = (&down.users, down.get());
    let same = |answer: Result<(), LoadError<String>>| match answer {
        Err(LoadError::Failed(error)) => assert!(Arc::ptr_eq(&error, &first)),
        other => panic!("{other:?}"),
    };
    same(futures_lite::future::block_on(async {
        users.get_async(&1).await.map(drop)
    }));
    same(users.get_all([1]).map(drop));
    assert_eq!(down.calls(), 1);
    // The other keys are loaded all the same.
    down.set("up");
    same(users.get_all([2, 1]).map(drop));
    same(futures_lite::future::block_on(async {
        users.get_all_async([1, 2, 3]).await.map(drop)
    }));
    assert_eq!(down.calls(), 3);
    assert_eq!(
        [2, 3].map(|key| users.cache().get(&key)),
        [Some(20), Some(30)]
    );
    down.set("down");
    assert_eq!(users.get_if_present(&1), None);
    // A refresh calls the loader in any case, and counts in the row.
    let error = users.refresh(1).wait().unwrap_err();
    assert_eq!(down.calls(), 4);
    down.time.advance(2 * SECOND - NANO);
    assert_eq!(users.get(&1), Err(error));
    down.set("up");
    assert_eq!(users.refresh(1).wait(), Ok(Some(10)));
    assert_eq!(users.get(&1), Ok(10));
    // A failure of a reload is not that of a load.
    down.set("down");
    assert!(users.refresh(1).wait().is_err());
    down.time.advance(100 * SECOND);
    let calls = down.calls();
    assert!(users.get(&1).is_err() && users.get(&1).is_err());
    assert_eq!(down.calls(), calls + 1);
}

#[test]
fn panics_are_not_remembered_and_keys_are_told_apart() {
    let down = Down::new();
    let users = &down.users;
    down.set("panics");
    for calls in 1..4 {
        assert_eq!(users.get(&1), Err(LoadError::Panicked));
        assert_eq!(down.calls(), calls);
    }
    down.set("down");
    let first = down.get();
    assert_eq!(down.calls(), 4);
    down.set("up");
    assert_eq!(users.get(&2), Ok(20));
    assert!(Arc::ptr_eq(&first, &down.get()));
    // Calls that run at the same time share one load, and then one error.
    down.set("down");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1_000).for_each(|_| assert!(users.get(&3).is_err())));
        }
    });
    assert_eq!(down.calls(), 6);
}

/// What is remembered is bounded: the oldest errors go.
#[test]
fn errors_of_many_keys_are_forgotten_oldest_first() {
    let down = Down::new();
    let keys = 40_000;
    for key in 0..keys {
        assert!(down.users.get(&key).is_err());
    }
    let calls = down.calls();
    assert!(down.users.get(&(keys - 1)).is_err());
    assert_eq!(down.calls(), calls, "the last");
    let forgotten = (0..keys).filter(|key| {
        let calls = down.calls();
        assert!(down.users.get(key).is_err());
        down.calls() > calls
    });
    assert!(forgotten.count() > 20_000);
}

/// By default, and where the policy says so.
#[test]
fn without_a_pause_nothing_is_remembered() {
    for policy in [None, Some(|_: u32| None::<Duration>)] {
        let calls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&calls);
        let mut builder = Cache::builder().loading(loader_fn(move |_: &u64| {
            counted.fetch_add(1, Ordering::SeqCst);
            Err::<u64, _>(())
        }));
        if let Some(policy) = policy {
            builder = builder.failure_backoff(policy);
        }
        let users = builder.build();
        assert!(users.get(&1).is_err() && users.get(&1).is_err());
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
    // A policy that panics remembers nothing, and the key stays usable.
    let users = Cache::builder()
        .loading(loader_fn(|_: &u64| Err::<u64, _>(())))
        .failure_backoff(|failures| panic!("told to panic in the policy, {failures}"))
        .build();
    assert!(users.get(&1).is_err() && users.get(&1).is_err());
}

/// Once a load has succeeded, neither the key nor the earlier error is kept.
#[test]
fn keys_and_errors_of_remembered_failures_are_dropped() {
    #[derive(Clone)]
    struct Counted(Arc<()>);

    impl PartialEq for Counted {
        fn eq(&self, _: &Self) -> bool {
            true
        }
    }

    impl Eq for Counted {}

    impl std::hash::Hash for Counted {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            state.write_u8(1);
        }
    }

    let (key, error) = (Counted(Arc::default()), Arc::new(()));
    let (down, time) = (Arc::new(AtomicBool::new(true)), ManualTicker::new());
    let (fails, told) = (Arc::clone(&down), Arc::clone(&error));
    let users = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(move |_: &Counted| {
            if fails.load(Ordering::SeqCst) {
                Err(Arc::clone(&told))
            } else {
                Ok(1_u64)
            }
        }))
        .failure_backoff(|_| Some(SECOND))
        .build();
    for _ in 0..3 {
        down.store(true, Ordering::SeqCst);
        assert!(users.get(&key).is_err());
        assert!(Arc::strong_count(&key.0) > 1 && Arc::strong_count(&error) > 2);
        time.advance(2 * SECOND);
        down.store(false, Ordering::SeqCst);
        assert!(users.get(&key).is_ok());
        users.cache().invalidate(&key);
        for _ in 0..3 {
            users.cache().run_pending_tasks();
        }
        let kept = (Arc::strong_count(&key.0), Arc::strong_count(&error));
        assert_eq!(kept, (1, 2), "the test's own, and the loader's");
    }
}

/// Waits until a call waits for the load of key 1 that is under way.
fn until_waited(users: &LoadingCache<u64, u64, &'static str>, waits: u64) {
    until("a call waits", || {
        users.cache().stats().load_waits() == waits
    });
}

/// Also if only a compute waits, which wants no value.
#[test]
fn reloads_after_a_remembered_failure() {
    let (time, calls) = (ManualTicker::new(), Arc::<AtomicUsize>::default());
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let (begins, began) = mpsc::channel::<()>();
    let counted = Arc::clone(&calls);
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(100 * SECOND)
        .loading(loader_fn(move |_: &u64| {
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => Err("down"),
                1 => {
                    begins.send(()).unwrap();
                    gate.lock().unwrap().recv().unwrap();
                    Ok(1)
                }
                _ => Ok(2),
            }
        }))
        .refresh_after(refresh::after(10 * SECOND))
        .failure_backoff(|_| Some(SECOND))
        .build();
    assert!(users.get(&1).is_err());
    time.advance(2 * SECOND);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(users.get(&1).unwrap(), 1));
        began.recv().unwrap();
        scope.spawn(|| users.cache().entry(1).and_compute_with(|_| Op::Nop));
        until_waited(&users, 1);
        go.send(()).unwrap();
    });
    time.advance(11 * SECOND);
    until("the stale entry is reloaded", || {
        users.get(&1).unwrap() == 2
    });
}

/// Also if another call has made the value, and only a compute waits.
#[test]
fn a_success_forgets_the_failure() {
    let (time, calls) = (ManualTicker::new(), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&calls);
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(5 * SECOND)
        .loading(loader_fn(move |_: &u64| {
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => Err("down"),
                _ => Ok(1),
            }
        }))
        .failure_backoff(|_| Some(60 * SECOND))
        .build();
    assert!(users.get(&1).is_err());
    thread::scope(|scope| {
        let (begins, began) = mpsc::channel::<()>();
        let (go, gate) = mpsc::channel::<()>();
        let cache = users.cache();
        let upsert = move || {
            cache.entry(1).and_upsert_with(|_| {
                begins.send(()).unwrap();
                gate.recv().unwrap();
                7
            })
        };
        scope.spawn(upsert);
        began.recv().unwrap();
        scope.spawn(|| users.cache().entry(1).and_compute_with(|_| Op::Nop));
        until_waited(&users, 1);
        go.send(()).unwrap();
    });
    assert_eq!(users.get(&1).unwrap(), 7);
    time.advance(6 * SECOND);
    assert_eq!(users.get(&1).unwrap(), 1, "the value has expired");
}

/// A panic in its destructor is caught, and calls that wait get the value.
#[test]
fn an_error_that_panics_when_it_is_forgotten_keeps_no_call_asleep() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("told to panic in the drop of an error");
        }
    }
    hide_scripted_panics();
    let (time, calls) = (ManualTicker::new(), AtomicUsize::new(0));
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let (begins, began) = mpsc::channel::<()>();
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(loader_fn(move |_: &u64| {
            if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err(Bomb);
            }
            begins.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Ok(1)
        }))
        .failure_backoff(|_| Some(SECOND))
        .build();
    assert!(users.get(&1).is_err());
    time.advance(2 * SECOND);
    let (tell, told) = mpsc::channel();
    // Not joined: a call that stays asleep would hang the test.
    let get = || {
        let (users, tell) = (users.clone(), tell.clone());
        thread::spawn(move || tell.send(users.get(&1).ok()));
    };
    get();
    began.recv().unwrap();
    get();
    until("a call waits", || users.cache().stats().load_waits() == 1);
    go.send(()).unwrap();
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(20 * SECOND), Ok(Some(1)));
    }
}

/// Its destructor may call the cache: it runs when the failure after it is remembered.
#[test]
fn an_error_that_is_forgotten_for_the_next_may_look_its_key_up() {
    type Users = LoadingCache<u64, u64, LooksUp>;
    type Answers = Arc<Mutex<Vec<bool>>>;
    struct LooksUp(usize, Arc<Place<Users>>, Answers);
    impl Drop for LooksUp {
        fn drop(&mut self) {
            if self.0 == 1 {
                let found = self.1.get().expect("the test has put it there").get(&1);
                let is_next = matches!(found, Err(LoadError::Failed(error)) if error.0 == 2);
                self.2.lock().unwrap().push(is_next);
            }
        }
    }
    let own = OwnCache::<Users>::new();
    let (place, answers) = (Arc::new(own.place()), Answers::default());
    let log = Arc::clone(&answers);
    let (time, calls) = (ManualTicker::new(), AtomicUsize::new(0));
    let users: Users = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(move |_: &u64| {
            let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
            Err::<u64, _>(LooksUp(number, Arc::clone(&place), Arc::clone(&log)))
        }))
        .failure_backoff(|_| Some(SECOND))
        .build();
    own.set(&users);
    for _ in 0..2 {
        assert!(users.get(&1).is_err());
        time.advance(2 * SECOND);
    }
    assert_eq!(*answers.lock().unwrap(), [true]);
}

/// The thread leads the load while it asks the policy.
#[test]
fn a_policy_that_looks_up_the_key_that_fails_is_refused() {
    let own = OwnCache::<LoadingCache<u64, u64, ()>>::new();
    let place = own.place();
    let calls = AtomicUsize::new(0);
    let users = Cache::builder()
        .loading(loader_fn(move |_: &u64| {
            match calls.fetch_add(1, Ordering::SeqCst) {
                0 => Err(()),
                _ => Ok(1),
            }
        }))
        .failure_backoff(move |_| {
            _ = place.get().expect("the test has put it there").get(&1);
            unreachable!("the look-up was refused by a panic")
        })
        .build();
    own.set(&users);
    hide_scripted_panics();
    let (tell, told) = mpsc::channel();
    // Not joined: a call that waits for itself would hang the test.
    thread::spawn(move || {
        let first = users.get(&1).is_err();
        tell.send((first, users.get(&1)))
    });
    assert_eq!(
        told.recv_timeout(20 * SECOND),
        Ok((true, Ok(1))),
        "nothing is remembered"
    );
}

/// Calls at the same time: one of them runs the loader, and all get its error.
#[test]
fn remembered_at_once() {
    let (rounds, keys) = (10, 100);
    for _ in 0..rounds {
        let calls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&calls);
        let users = Cache::builder()
            .loading(loader_fn(move |_: &u64| {
                counted.fetch_add(1, Ordering::SeqCst);
                Err::<u64, _>("down")
            }))
            .failure_backoff(|_| Some(1_000 * SECOND))
            .build();
        let start = Barrier::new(8);
        let get = || {
            start.wait();
            (0..keys).for_each(|key| assert!(users.get(&key).is_err()));
        };
        thread::scope(|scope| (0..8).for_each(|_| _ = scope.spawn(get)));
        assert_eq!(calls.load(Ordering::SeqCst), 100);
    }
}

/// What a server answers that is too busy: when to ask again.
struct Busy(Duration);

struct Server(Arc<AtomicUsize>);

impl Loader<u64, u64> for Server {
    type Error = Busy;

    fn load(&self, key: &u64) -> Result<Loaded<u64>, Busy> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 if *key == 1 => Ok(1.into()),
            call => Err(Busy(SECOND * (10 + call as u32))),
        }
    }

    fn retry_after(&self, error: &Busy, failures: u32) -> Option<Duration> {
        assert!(failures != 3, "told to panic");
        (error.0 > SECOND).then_some(error.0)
    }
}

/// After the load of an absent key, with a policy and without one.
#[test]
fn a_loader_says_how_long_its_failures_hold() {
    hide_scripted_panics();
    for with_policy in [true, false] {
        let (time, calls) = (ManualTicker::new(), Arc::<AtomicUsize>::default());
        let mut builder = Cache::builder()
            .ticker(time.clone())
            .record_stats()
            .loading(Server(Arc::clone(&calls)));
        if with_policy {
            builder = builder.failure_backoff(|_| Some(SECOND));
        }
        let users = builder.build();
        for call in 0..2_u32 {
            let pause = SECOND * (10 + call);
            assert!(users.get(&2).is_err());
            time.advance(pause - NANO);
            assert!(users.get(&2).is_err());
            assert_eq!(calls.load(Ordering::SeqCst), call as usize + 1);
            time.advance(NANO);
        }
        // It panics about the third failure: then the policy decides, if there is one.
        assert!(users.get(&2).is_err());
        time.advance(SECOND - NANO);
        assert!(users.get(&2).is_err());
        let expected = if with_policy { 3 } else { 4 };
        assert_eq!(calls.load(Ordering::SeqCst), expected);
    }
}

/// After a reload; and what waits for the next try heeds it.
#[test]
fn a_loader_says_when_a_reload_is_tried_again() {
    let (time, calls) = (ManualTicker::new(), Arc::<AtomicUsize>::default());
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(Server(Arc::clone(&calls)))
        .refresh_after(refresh::after(5 * SECOND))
        .build();
    assert_eq!(users.get(&1).ok(), Some(1));
    assert!(users.refresh_if_stale(1).is_none() && users.refresh_if_stale(2).is_none());
    time.advance(5 * SECOND);
    assert!(users.cache().get_ref(&1).unwrap().is_stale());
    let failed = users.refresh_if_stale(1).expect("it is stale").wait();
    assert!(matches!(failed, Err(LoadError::Failed(error)) if error.0 == 11 * SECOND));
    // The policy would say 1 s.
    for _ in 0..11 {
        assert!(!users.cache().get_ref(&1).unwrap().is_stale());
        assert!(users.refresh_if_stale(1).is_none());
        assert_eq!(users.get(&1).ok(), Some(1));
        time.advance(SECOND);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let failed = users.refresh_if_stale(1).expect("the pause is over").wait();
    assert!(failed.is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

/// The first load of a key waits until it is let go, and fails; later ones succeed.
struct FirstFails {
    users: LoadingCache<u64, u64, String>,
    loads: Arc<AtomicUsize>,
    let_go: mpsc::Sender<()>,
    time: ManualTicker,
}

impl FirstFails {
    fn new() -> Self {
        let (let_go, waits) = mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        let loads = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&loads);
        let time = ManualTicker::new();
        let users = Cache::builder()
            .ticker(time.clone())
            .load_timeout(SECOND)
            .loading(loader_fn(move |key: &u64| {
                if counted.fetch_add(1, Ordering::SeqCst) > 0 {
                    return Ok(Loaded::new(key * 10).expires_in(5 * SECOND));
                }
                waits.lock().unwrap().recv().unwrap();
                Err("down".to_string())
            }))
            .failure_backoff(|_| Some(1_000 * SECOND))
            .build();
        Self {
            users,
            loads,
            let_go,
            time,
        }
    }

    /// `replace` begins a second load while the first one runs; then the first one fails.
    fn run(&self, replace: impl FnOnce()) {
        thread::scope(|scope| {
            let first = scope.spawn(|| self.users.get(&1));
            until("the first load runs", || {
                self.loads.load(Ordering::SeqCst) == 1
            });
            replace();
            assert_eq!(self.users.get(&1), Ok(10));
            self.let_go.send(()).unwrap();
            _ = first.join().unwrap();
        });
        self.time.advance(5 * SECOND);
        assert_eq!(self.users.get(&1), Ok(10), "the second load has succeeded");
    }
}

#[test]
fn the_failure_of_a_load_that_was_replaced_is_not_remembered() {
    let revoked = FirstFails::new();
    revoked.run(|| revoked.users.cache().invalidate(&1));
    let overdue = FirstFails::new();
    overdue.run(|| overdue.time.advance(2 * SECOND));
}

/// A failure that is not remembered counts as one in a row.
#[test]
fn failures_that_are_not_remembered_count() {
    let counts = Arc::<Mutex<Vec<u32>>>::default();
    let noted = Arc::clone(&counts);
    let users = Cache::builder()
        .ticker(ManualTicker::new())
        .loading(loader_fn(|_: &u64| Err::<u64, _>("down")))
        .failure_backoff(move |failures| {
            noted.lock().unwrap().push(failures);
            if failures < 3 {
                return None;
            }
            Some(SECOND)
        })
        .build();
    for _ in 0..5 {
        assert!(users.get(&1).is_err());
    }
    assert_eq!(*counts.lock().unwrap(), [1, 2, 3]);
}

/// A reload that finds that the key has no value has succeeded, as has a compute that removes it.
/// One whose value the policy does not take has not.
#[test]
fn a_remembered_failure_ends_with_a_load_that_succeeds() {
    struct GoneLater(AtomicBool);

    impl Loader<u64, u64> for GoneLater {
        type Error = &'static str;

        fn load(&self, key: &u64) -> Result<Loaded<u64>, &'static str> {
            if self.0.swap(false, Ordering::SeqCst) {
                return Err("down");
            }
            Ok((key * 10).into())
        }

        fn reload(&self, _: &u64, _: &u64) -> Result<wheelhouse::Reloaded<u64>, &'static str> {
            Ok(wheelhouse::Reloaded::Gone)
        }
    }

    hide_scripted_panics();
    let failed = || {
        let users = Cache::builder()
            .ticker(ManualTicker::new())
            .expire_after(wheelhouse::expiry::writing(|_: &u64, value: &u64| {
                assert_ne!(*value, 3, "told to panic in the policy");
                None::<Duration>
            }))
            .loading(GoneLater(AtomicBool::new(true)))
            .failure_backoff(|_| Some(1_000 * SECOND))
            .build();
        assert!(users.get(&1).is_err());
        users
    };
    let users = failed();
    users.cache().insert(1, 1);
    assert_eq!(users.refresh(1).wait(), Ok(None));
    assert_eq!(users.get(&1), Ok(10));

    let users = failed();
    users.cache().insert(1, 1);
    _ = users.cache().entry(1).and_compute_with(|_| Op::Remove);
    assert_eq!(users.get(&1), Ok(10));

    let users = failed();
    let panics = catch_unwind(AssertUnwindSafe(|| users.cache().get_with(1, || 3)));
    assert!(panics.is_err());
    assert!(users.get(&1).is_err(), "no load has succeeded");
}
