//! What is remembered of failures, by random calls and by examples: a write meanwhile, newer loads,
//! many keys, and calls for several keys.

use crate::support::{Dice, OwnCache, Place, hide_scripted_panics, must_end, until};
use futures_lite::future::block_on;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::compute::Op;
use wheelhouse::{
    AsyncLoader, Cache, Leased, LoadError, Loaded, Loader, LoadingBuilder, LoadingCache,
    ManualTicker, Refresh, Reloaded, async_loader_fn, loader_fn,
};

const SECOND: Duration = Duration::from_secs(1);
const LIFE: Duration = Duration::from_secs(20);
/// The key of which the model knows. The loader has a value for all others.
const KEY: u64 = 0;

type Users = LoadingCache<u64, u64, u64>;

/// What the loader answers about `KEY`.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Value,
    Error,
    Panic,
    /// Of a reload: there is no value. A load has one.
    Gone,
}

/// What happens while the loader runs.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    Insert(u64),
    Remove,
    Invalidate,
    InvalidateAll,
    TimePasses(Duration),
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    GetAsync,
    GetAll,
    GetAllAsync,
    Refresh,
    GetWith,
    TryGetWith,
    OptionallyGetWith,
    Upsert,
    ComputeRemove,
    ComputeNothing,
    FillLease,
    FailLease,
    Write(Meanwhile),
}

/// The loader, whose answers the test has written down. Its values and errors are the numbers of
/// its calls.
struct Script {
    cache: Place<Users>,
    time: ManualTicker,
    next: Mutex<(Answer, Meanwhile)>,
    calls: AtomicUsize,
}

impl Script {
    fn run(&self, key: u64, reloads: bool) -> Result<Reloaded<u64>, u64> {
        if key != KEY {
            return Ok(Reloaded::New(key.into()));
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        let (answer, meanwhile) = *self.next.lock().unwrap();
        write(&self.cache.get().unwrap(), &self.time, meanwhile);
        match answer {
            Answer::Error => Err(error(number, reloads)),
            Answer::Panic => panic!("told to panic in the loader"),
            Answer::Gone if reloads => Ok(Reloaded::Gone),
            Answer::Value | Answer::Gone => Ok(Reloaded::New(number.into())),
        }
    }

    fn load(&self, key: u64) -> Result<Loaded<u64>, u64> {
        match self.run(key, false)? {
            Reloaded::New(loaded) => Ok(loaded),
            other => unreachable!("{other:?}"),
        }
    }
}

fn write(users: &Users, time: &ManualTicker, write: Meanwhile) {
    let cache = users.cache();
    match write {
        Meanwhile::Nothing => {}
        Meanwhile::Insert(value) => cache.insert(KEY, value),
        Meanwhile::Remove => _ = cache.remove(&KEY),
        Meanwhile::Invalidate => cache.invalidate(&KEY),
        Meanwhile::InvalidateAll => cache.invalidate_all(),
        Meanwhile::TimePasses(long) => time.advance(long),
    }
}

/// The error of this call of the loader.
fn error(number: u64, reloads: bool) -> u64 {
    2 * number + u64::from(reloads)
}

/// Of some loads, and of no reload: its entry would be stale then.
fn retry_after(error: u64) -> Option<Duration> {
    if error % 8 == 0 {
        Some(5 * SECOND)
    } else {
        None
    }
}

fn pause(failures: u32) -> Option<Duration> {
    match failures % 3 {
        1 => Some(2 * SECOND),
        2 => None,
        _ => Some(15 * SECOND),
    }
}

/// On the threads of the calls.
struct Threads(Arc<Script>);

impl Loader<u64, u64> for Threads {
    type Error = u64;

    fn load(&self, key: &u64) -> Result<Loaded<u64>, u64> {
        self.0.load(*key)
    }

    fn reload(&self, key: &u64, _: &u64) -> Result<Reloaded<u64>, u64> {
        self.0.run(*key, true)
    }

    fn retry_after(&self, error: &u64, _: u32) -> Option<Duration> {
        retry_after(*error)
    }
}

/// In tasks.
struct Tasks(Arc<Script>);

impl AsyncLoader<u64, u64> for Tasks {
    type Error = u64;

    async fn load(&self, key: &u64) -> Result<Loaded<u64>, u64> {
        self.0.load(*key)
    }

    async fn reload(&self, key: &u64, _: &u64) -> Result<Reloaded<u64>, u64> {
        self.0.run(*key, true)
    }

    fn retry_after(&self, error: &u64, _: u32) -> Option<Duration> {
        retry_after(*error)
    }
}

/// No entry is ever stale, also after a failure.
struct Fresh;

impl Refresh<u64, u64> for Fresh {
    fn refresh_after_create(
        &self,
        _: &u64,
        _: &u64,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        None
    }

    fn refresh_after_failure(
        &self,
        _: &u64,
        _: &u64,
        _: u32,
        _: Option<Duration>,
    ) -> Option<Duration> {
        None
    }
}

/// What the contract says of one key.
#[derive(Debug, Default)]
struct Model {
    now: Duration,
    /// With its deadline.
    entry: Option<(u64, Duration)>,
    failures: u32,
    /// The error that is remembered, and until when.
    remembered: Option<(u64, Duration)>,
    /// How often the loader was called, and how often an error was remembered.
    counts: (u64, u64),
}

type Got = Result<Option<u64>, LoadError<u64>>;

impl Model {
    fn live(&self) -> Option<u64> {
        match self.entry {
            Some((value, deadline)) if self.now < deadline => Some(value),
            _ => None,
        }
    }

    fn store(&mut self, value: u64) {
        self.entry = Some((value, self.now + LIFE));
    }

    fn succeeds(&mut self) {
        self.failures = 0;
        self.remembered = None;
    }

    /// True if the write revokes a load.
    fn write(&mut self, write: Meanwhile) -> bool {
        match write {
            Meanwhile::Nothing => return false,
            Meanwhile::TimePasses(long) => {
                self.now += long;
                return false;
            }
            Meanwhile::Insert(value) => self.store(value),
            Meanwhile::Remove | Meanwhile::Invalidate | Meanwhile::InvalidateAll => {
                self.entry = None;
            }
        }
        true
    }

    /// A call that wants a value.
    fn get(&mut self, answer: Answer, meanwhile: Meanwhile) -> Got {
        if let Some(value) = self.live() {
            return Ok(Some(value));
        }
        if let Some((error, until)) = self.remembered {
            if self.now < until {
                self.counts.1 += 1;
                return Err(LoadError::Failed(Arc::new(error)));
            }
        }
        self.load(answer, meanwhile)
    }

    fn load(&mut self, answer: Answer, meanwhile: Meanwhile) -> Got {
        let reloads = self.live().is_some();
        self.counts.0 += 1;
        let number = self.counts.0;
        let is_revoked = self.write(meanwhile);
        match answer {
            Answer::Panic => Err(LoadError::Panicked),
            Answer::Error => {
                let error = error(number, reloads);
                if !reloads && !is_revoked {
                    self.failures += 1;
                    let pause = retry_after(error).or(pause(self.failures));
                    self.remembered = pause.map(|pause| (error, self.now + pause));
                }
                Err(LoadError::Failed(Arc::new(error)))
            }
            Answer::Gone if reloads => {
                self.succeeds();
                if !is_revoked {
                    self.entry = None;
                }
                Ok(self.live())
            }
            Answer::Value | Answer::Gone => {
                self.succeeds();
                if !is_revoked {
                    self.store(number);
                }
                Ok(Some(self.live().unwrap_or(number)))
            }
        }
    }

    /// A load by code of the call's own, which has a value.
    fn get_with(&mut self, value: u64) -> u64 {
        match self.live() {
            Some(value) => value,
            None => {
                self.store(value);
                self.succeeds();
                value
            }
        }
    }
}

struct Rig {
    users: Users,
    script: Arc<Script>,
    model: Model,
    /// The last key that was not `KEY`.
    other: u64,
    _own: OwnCache<Users>,
}

impl Rig {
    fn new(in_tasks: bool) -> Self {
        let own = OwnCache::new();
        let time = ManualTicker::new();
        let script = Arc::new(Script {
            cache: own.place(),
            time: time.clone(),
            next: Mutex::new((Answer::Value, Meanwhile::Nothing)),
            calls: AtomicUsize::new(0),
        });
        let builder = Cache::builder()
            .ticker(time)
            .record_stats()
            .time_to_live(LIFE);
        let users = if in_tasks {
            let loading = builder.loading(Tasks(Arc::clone(&script)));
            let loading = loading.spawner(block_on).refresh_after(Fresh);
            loading.failure_backoff(pause).build()
        } else {
            let loading = builder.loading(Threads(Arc::clone(&script)));
            loading.refresh_after(Fresh).failure_backoff(pause).build()
        };
        own.set(&users);
        Self {
            users,
            script,
            model: Model::default(),
            other: KEY,
            _own: own,
        }
    }

    /// Makes a call, and compares what came of it with the model.
    fn step(&mut self, call: Call, answer: Answer, meanwhile: Meanwhile) {
        *self.script.next.lock().unwrap() = (answer, meanwhile);
        let users = &self.users;
        let cache = users.cache();
        let model = &mut self.model;
        match call {
            Call::Get => {
                let expected = model.get(answer, meanwhile);
                assert_eq!(users.get(&KEY).map(Some), expected);
            }
            Call::GetAsync => {
                let expected = model.get(answer, meanwhile);
                assert_eq!(block_on(users.get_async(&KEY)).map(Some), expected);
            }
            Call::GetAll | Call::GetAllAsync => {
                self.other += 1;
                let other = self.other;
                let loads = model.counts.0;
                let expected = model.get(answer, meanwhile);
                let keys = if other % 2 == 0 {
                    [KEY, other]
                } else {
                    [other, KEY]
                };
                let got = match call {
                    Call::GetAll => users.get_all(keys),
                    _ => block_on(users.get_all_async(keys)),
                };
                let got = got.map(|all| {
                    assert_eq!(all[1 - (other % 2) as usize], Some(other));
                    all[(other % 2) as usize]
                });
                // Together with a load of `KEY`, that of the other key fails, or is revoked, too.
                let is_stored = if model.counts.0 == loads {
                    true
                } else {
                    expected.is_ok()
                        && !matches!(
                            meanwhile,
                            Meanwhile::InvalidateAll | Meanwhile::TimePasses(_)
                        )
                };
                assert_eq!(got, expected);
                if is_stored {
                    assert_eq!(cache.get(&other), Some(other));
                } else if !matches!(meanwhile, Meanwhile::TimePasses(_)) {
                    assert_eq!(cache.get(&other), None);
                }
            }
            Call::Refresh => {
                let expected = model.load(answer, meanwhile);
                assert_eq!(users.refresh(KEY).wait(), expected);
            }
            Call::GetWith => {
                let expected = model.get_with(1_000);
                assert_eq!(cache.get_with(KEY, || 1_000), expected);
            }
            Call::TryGetWith => {
                let expected = model.live().ok_or(Arc::new("no"));
                assert_eq!(cache.try_get_with(KEY, || Err("no")), expected);
            }
            Call::OptionallyGetWith => {
                let expected = model.live();
                if expected.is_none() {
                    model.succeeds();
                }
                assert_eq!(cache.optionally_get_with(KEY, || None), expected);
            }
            Call::Upsert => {
                model.store(2_000);
                model.succeeds();
                cache.entry(KEY).and_upsert_with(|_| 2_000);
            }
            Call::ComputeRemove => {
                model.entry = None;
                model.succeeds();
                cache.entry(KEY).and_compute_with(|_| Op::Remove);
            }
            Call::ComputeNothing => _ = cache.entry(KEY).and_compute_with(|_| Op::Nop),
            Call::FillLease => {
                let expected = model.get_with(3_000);
                match cache.lease(KEY) {
                    Leased::Found(value) => assert_eq!(value, expected),
                    Leased::Lease(lease) => drop(lease.fill(3_000)),
                    Leased::Busy => unreachable!(),
                }
            }
            Call::FailLease => match (cache.lease(KEY), model.live()) {
                (Leased::Found(value), Some(live)) => assert_eq!(value, live),
                (Leased::Lease(lease), None) => drop(lease.fail("no")),
                (leased, live) => panic!("{leased:?}, but {live:?}"),
            },
            Call::Write(what) => {
                model.write(what);
                write(users, &self.script.time, what);
            }
        }
        assert_eq!(cache.get(&KEY), model.live());
        let calls = self.script.calls.load(Ordering::SeqCst) as u64;
        assert_eq!((calls, cache.stats().remembered_failures()), model.counts);
    }
}

fn some_write(dice: &mut Dice) -> Meanwhile {
    match dice.below(8) {
        0 => Meanwhile::Insert(10_000 + dice.below(100)),
        1 => Meanwhile::Remove,
        2 => Meanwhile::Invalidate,
        3 => Meanwhile::InvalidateAll,
        _ => {
            let long = [1, 1, 2, 4, 14, 20][dice.below(6) as usize] * SECOND;
            let short = Duration::from_nanos(dice.below(2));
            Meanwhile::TimePasses(long - short)
        }
    }
}

/// Random calls, one after the other, some of them with a write while the loader runs.
#[test]
fn random_calls_agree_with_the_model() {
    hide_scripted_panics();
    let mut dice = Dice::new(7);
    for round in 0..200 {
        let mut rig = Rig::new(round % 2 == 0);
        let mut steps = Vec::new();
        for _ in 0..200 {
            let call = match dice.below(20) {
                0..3 => Call::Get,
                3 => Call::GetAsync,
                4 => Call::GetAll,
                5 => Call::GetAllAsync,
                6 => Call::Refresh,
                7 => Call::GetWith,
                8 => Call::TryGetWith,
                9 => Call::OptionallyGetWith,
                10 => Call::Upsert,
                11 => Call::ComputeRemove,
                12 => Call::ComputeNothing,
                13 => Call::FillLease,
                14 => Call::FailLease,
                _ => Call::Write(some_write(&mut dice)),
            };
            let answer = match dice.below(8) {
                0 | 1 => Answer::Value,
                2 => Answer::Panic,
                3 => Answer::Gone,
                _ => Answer::Error,
            };
            let meanwhile = match dice.below(3) {
                0 => some_write(&mut dice),
                _ => Meanwhile::Nothing,
            };
            steps.push((call, answer, meanwhile));
            let agrees = std::panic::AssertUnwindSafe(|| rig.step(call, answer, meanwhile));
            if let Err(panic) = std::panic::catch_unwind(agrees) {
                println!("in tasks: {}, {steps:?}", round % 2 == 0);
                println!("{:?}", mem::take(&mut rig.model));
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Each failing load is revoked while the program says how long its error is remembered.
#[test]
fn a_revoked_failure_leaves_the_number_of_failures() {
    let own = OwnCache::<LoadingCache<u64, u64, &'static str>>::new();
    let (place, counts) = (own.place(), Arc::<Mutex<Vec<u32>>>::default());
    let (time, noted) = (ManualTicker::new(), Arc::clone(&counts));
    let users = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(|_: &u64| Err::<u64, _>("down")))
        .failure_backoff(move |failures| {
            noted.lock().unwrap().push(failures);
            if failures == 3 {
                let cache = place.get().unwrap();
                cache.cache().insert(1, 1);
                cache.cache().invalidate(&1);
            }
            Some(SECOND)
        })
        .build();
    own.set(&users);
    for _ in 0..4 {
        assert!(users.get(&1).is_err());
        time.advance(SECOND);
    }
    assert_eq!(*counts.lock().unwrap(), [1, 2, 3, 3]);
}

/// A load is revoked while the program says how long its error is remembered, and a newer load
/// fails meanwhile: that failure is the last one.
#[test]
fn the_end_of_an_old_load_leaves_the_failure_of_a_newer_one() {
    let (asks, asked) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (gone, calls) = (Mutex::new(gone), Arc::new(AtomicUsize::new(0)));
    let (policies, counted) = (AtomicUsize::new(0), Arc::clone(&calls));
    let users = Cache::builder()
        .ticker(ManualTicker::new())
        .loading(loader_fn(move |_: &u64| {
            Err::<u64, _>(counted.fetch_add(1, Ordering::SeqCst))
        }))
        .failure_backoff(move |_| {
            if policies.fetch_add(1, Ordering::SeqCst) == 0 {
                asks.send(()).unwrap();
                gone.lock().unwrap().recv().unwrap();
            }
            Some(SECOND)
        })
        .build();
    thread::scope(|scope| {
        let old = scope.spawn(|| users.get(&1));
        asked.recv().unwrap();
        users.cache().invalidate(&1);
        assert_eq!(users.get(&1), Err(LoadError::Failed(Arc::new(1))));
        go.send(()).unwrap();
        assert_eq!(old.join().unwrap(), Err(LoadError::Failed(Arc::new(0))));
    });
    assert_eq!(users.get(&1), Err(LoadError::Failed(Arc::new(1))));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// As many errors as the cache may hold entries. Of a bound on weight the number is not known.
#[test]
fn a_large_cache_remembers_the_errors_of_all_its_keys() {
    let keys = 20_000;
    for is_weighed in [false, true] {
        let calls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&calls);
        let mut builder = Cache::builder().max_capacity(keys);
        if is_weighed {
            builder = builder.weigher(|_, _| 1);
        }
        let users = builder
            .ticker(ManualTicker::new())
            .loading(loader_fn(move |_: &u64| {
                counted.fetch_add(1, Ordering::SeqCst);
                Err::<u64, _>("down")
            }))
            .failure_backoff(|_| Some(SECOND))
            .build();
        for _ in 0..2 {
            (0..keys).for_each(|key| assert!(users.get(&key).is_err()));
        }
        let calls = calls.load(Ordering::SeqCst) as u64;
        if is_weighed {
            assert!(calls > keys, "they are bounded");
        } else {
            assert_eq!(calls, keys);
        }
    }
}

/// A call for several keys that waits for the load of another call does not ask the loader about a
/// key that has just failed.
#[test]
fn a_bulk_heeds_the_failure_for_which_it_has_waited() {
    must_end(|| {
        let calls = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&calls);
        let (go, gone) = mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let users = Cache::builder()
            .record_stats()
            .loading(loader_fn(move |key: &u64| {
                if *key == 1 {
                    counted.fetch_add(1, Ordering::SeqCst);
                    gone.lock().unwrap().recv().unwrap();
                    return Err("down");
                }
                Ok(*key)
            }))
            .failure_backoff(|_| Some(1_000 * SECOND))
            .build();
        thread::scope(|scope| {
            let first = scope.spawn(|| users.get(&1));
            until("it runs", || calls.load(Ordering::SeqCst) == 1);
            let others: Vec<_> = (2..6)
                .map(|other| {
                    let users = &users;
                    scope.spawn(move || users.get_all([1, other]))
                })
                .collect();
            until("they wait", || users.cache().stats().load_waits() == 4);
            // So the others would fail as well.
            (0..5).for_each(|_| go.send(()).unwrap());
            let failed = first.join().unwrap().map(|_| Vec::new());
            assert!(failed.is_err());
            for other in others {
                assert_eq!(other.join().unwrap(), failed);
            }
        });
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        for other in 2..6 {
            assert_eq!(users.cache().get(&other), Some(other));
        }
    });
}

/// Loaders that fail, and do not say for how long.
struct Fails;

impl Loader<Arc<u64>, u64> for Fails {
    type Error = ();

    fn load(&self, _: &Arc<u64>) -> Result<Loaded<u64>, ()> {
        Err(())
    }
}

impl AsyncLoader<Arc<u64>, u64> for Fails {
    type Error = ();

    async fn load(&self, _: &Arc<u64>) -> Result<Loaded<u64>, ()> {
        Err(())
    }
}

/// Without a `failure_backoff` and a `retry_after`, not even the key is kept.
#[test]
fn nothing_is_left_of_a_failure_that_nothing_remembers() {
    fn fails(users: LoadingCache<Arc<u64>, u64, ()>) {
        let keys: Vec<Arc<u64>> = (0..3).map(Arc::new).collect();
        for _ in 0..2 {
            assert!(users.get(&keys[0]).is_err());
            assert!(users.get_all([Arc::clone(&keys[1])]).is_err());
            assert!(users.refresh(Arc::clone(&keys[2])).wait().is_err());
        }
        until("all is dropped", || {
            keys.iter().all(|key| Arc::strong_count(key) == 1)
        });
    }
    fn on_threads(builder: LoadingBuilder<Arc<u64>, u64, ()>) {
        fails(
            builder
                .spawner(|task| drop(thread::spawn(|| block_on(task))))
                .build(),
        );
    }
    fails(
        Cache::builder()
            .loading(loader_fn(|_: &Arc<u64>| Err::<u64, _>(())))
            .build(),
    );
    on_threads(Cache::builder().loading::<_, false>(Fails));
    on_threads(Cache::builder().loading::<_, false>(Arc::new(Box::new(Fails))));
    on_threads(Cache::builder().loading::<_, true>(Arc::new(Fails)));
    on_threads(
        Cache::builder().loading(async_loader_fn(|_: &Arc<u64>| async { Err::<u64, _>(()) })),
    );
}

/// A loader that waits for the third failure in a row, and asks another one before.
struct Third<L>(L);

impl<L: Loader<u64, u64, Error = ()>> Loader<u64, u64> for Third<L> {
    type Error = ();

    fn load(&self, key: &u64) -> Result<Loaded<u64>, ()> {
        self.0.load(key)
    }

    fn retry_after(&self, error: &(), failures: u32) -> Option<Duration> {
        match failures {
            3 => Some(SECOND),
            _ => self.0.retry_after(error, failures),
        }
    }
}

#[test]
fn failures_that_are_not_remembered_count_if_the_loader_wants_to_know() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let load = loader_fn(move |_: &u64| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err::<u64, _>(())
    });
    let users = Cache::builder()
        .ticker(ManualTicker::new())
        .loading(Third(load))
        .build();
    (0..10).for_each(|_| assert!(users.get(&KEY).is_err()));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}
