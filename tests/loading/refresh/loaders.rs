//! `LoadingCache` as its users write it: loaders of every kind, keys in borrowed form, errors that
//! are neither `Clone` nor `Debug`, and the bounds of each handle and future.

use crate::support::{OwnCache, Place};
use std::collections::hash_map::RandomState;
use std::future::{Future, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wheelhouse::compute::{Entry, Op};
use wheelhouse::{
    AsyncLoader, BuildError, Cache, Expiry, Leased, LoadError, Loaded, Loader, LoadingBuilder,
    LoadingCache, ManualTicker, Refresh, Refreshing, Reloaded, Stats, async_loader_fn, loader_fn,
    refresh,
};

const SECOND: Duration = Duration::from_secs(1);

/// An error without any trait.
struct Bare;

fn is_send_sync<T: Send + Sync + 'static>(_: &T) {}
fn is_unwind_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>(_: &T) {}
fn is_send<T: Send>(value: T) -> T {
    value
}

/// A backend with state of its own, which the program keeps a handle of.
struct Backend(AtomicUsize);

impl Loader<String, u32> for Backend {
    type Error = Bare;

    fn load(&self, key: &String) -> Result<Loaded<u32>, Bare> {
        self.0.fetch_add(1, Ordering::SeqCst);
        if key.is_empty() {
            return Err(Bare);
        }
        Ok(Loaded::new(key.len() as u32))
    }
}

#[test]
fn the_whole_builder_as_the_contract_writes_it() {
    struct Policy;
    impl Expiry<String, u32> for Policy {
        fn expire_after_create(&self, _: &String, _: &u32, _: Instant) -> Option<Duration> {
            Some(100 * SECOND)
        }
    }
    let users = Cache::builder()
        .max_capacity(10_000)
        .expire_after(Policy)
        .loading(loader_fn(|k: &String| Ok::<u32, Bare>(k.len() as u32)))
        .refresh_after(refresh::fraction(0.8))
        .load_timeout(Duration::from_secs(5))
        .reload_threads(4)
        .build();
    // By the owned key, by a borrowed form, and through another handle.
    let key = String::from("ada");
    assert!(matches!(users.get(&key), Ok(3)));
    assert!(matches!(users.get("ada"), Ok(3)));
    assert!(matches!(users.clone().get("bob"), Ok(3)));
    assert_eq!(users.get_if_present("ada"), Some(3));
    assert_eq!(users.get_if_present("eve"), None);
    let all: Result<Vec<Option<u32>>, LoadError<Bare>> = users.get_all([key, "x".to_string()]);
    assert!(matches!(all.as_deref(), Ok([Some(3), Some(1)])));
    let all = users.get_all(["y"].map(String::from).to_vec());
    assert!(matches!(all.as_deref(), Ok([Some(1)])));
    let refreshing: Refreshing<u32, Bare> = users.refresh("ada".to_string());
    assert!(matches!(refreshing.wait(), Ok(Some(3))));
    let inner: &Cache<String, u32> = users.cache();
    assert_eq!(inner.get("ada"), Some(3));
    let users: LoadingCache<String, u32, Bare> = users;
    is_send_sync(&users);
    is_unwind_safe(&users);
    let shown = format!("{users:?}");
    assert!(
        shown.contains("LoadingCache") && shown.contains("entry_count: 4"),
        "{shown}"
    );
}

#[test]
fn any_hasher_will_do() {
    let users: LoadingCache<u32, u32, Bare, RandomState> = Cache::builder()
        .hasher(RandomState::new())
        .loading(loader_fn(|key: &u32| Ok(*key)))
        .build();
    assert!(matches!(users.get(&1), Ok(1)));
}

#[test]
fn a_loader_may_be_shared_boxed_or_chosen_while_the_program_runs() {
    let backend = Arc::new(Backend(AtomicUsize::new(0)));
    let users = Cache::builder().loading(Arc::clone(&backend)).build();
    assert!(users.get("ada").is_ok_and(|length| length == 3));
    assert!(matches!(users.get(""), Err(LoadError::Failed(_))));
    assert_eq!(backend.0.load(Ordering::SeqCst), 2);
    let chosen: Box<dyn Loader<String, u32, Error = Bare>> = Box::new(Backend(0.into()));
    let users = Cache::builder().loading(chosen).build();
    assert!(users.get("ada").is_ok());
    let shared: Arc<dyn Loader<String, u32, Error = Bare>> = backend;
    let users = Cache::builder().loading(shared).build();
    assert!(users.get("ada").is_ok());
}

#[test]
fn what_a_shared_loader_overrides_is_called() {
    struct Own;
    impl Loader<u32, u32> for Own {
        type Error = Bare;
        fn load(&self, _: &u32) -> Result<Loaded<u32>, Bare> {
            Ok(1.into())
        }
        fn reload(&self, _: &u32, old: &u32) -> Result<Reloaded<u32>, Bare> {
            Ok(Reloaded::New((old + 10).into()))
        }
        fn load_many(&self, keys: &[u32]) -> Result<Vec<Option<Loaded<u32>>>, Bare> {
            Ok(vec![Some(100.into()); keys.len()])
        }
    }
    fn check(users: &LoadingCache<u32, u32, Bare>) {
        assert!(matches!(users.get(&1), Ok(1)));
        assert!(matches!(users.refresh(1).wait(), Ok(Some(11))));
        assert!(matches!(users.get_all([2]).as_deref(), Ok([Some(100)])));
    }
    check(&Cache::builder().loading(Own).build());
    check(&Cache::builder().loading(Arc::new(Own)).build());
    check(&Cache::builder().loading(Box::new(Own)).build());
}

#[test]
fn by_default_a_reload_is_a_load_and_many_are_loaded_one_by_one() {
    let backend = Arc::new(Backend(AtomicUsize::new(0)));
    let users = Cache::builder().loading(Arc::clone(&backend)).build();
    assert!(users.get("ada").is_ok());
    assert!(users.refresh("ada".into()).wait().is_ok());
    assert_eq!(backend.0.load(Ordering::SeqCst), 2);
    assert!(users.get_all(["a", "b"].map(String::from)).is_ok());
    assert_eq!(backend.0.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn async_loaders_of_every_kind() {
    /// With futures of its own making, and with `async fn`.
    struct Remote(u32);
    impl AsyncLoader<String, u32> for Remote {
        type Error = Bare;
        fn load(&self, key: &String) -> impl Future<Output = Result<Loaded<u32>, Bare>> + Send {
            ready(Ok(Loaded::new(key.len() as u32 + self.0)))
        }
        async fn reload(&self, _: &String, old: &u32) -> Result<Reloaded<u32>, Bare> {
            tokio::task::yield_now().await;
            Ok(Reloaded::New((old + 10).into()))
        }
        async fn load_many(&self, keys: &[String]) -> Result<Vec<Option<Loaded<u32>>>, Bare> {
            Ok(keys.iter().map(|_| Some(100.into())).collect())
        }
    }
    async fn check(users: LoadingCache<String, u32, Bare>) {
        let key = String::from("a");
        assert!(matches!(is_send(users.get_async(&key)).await, Ok(1)));
        assert!(matches!(users.get_async("a").await, Ok(1)));
        let refreshing = is_send(users.refresh(key.clone()));
        is_send_sync(&refreshing);
        assert!(matches!(refreshing.await, Ok(Some(11))));
        let all = is_send(users.get_all_async([key, "b".into()])).await;
        assert!(matches!(all.as_deref(), Ok([Some(11), Some(100)])));
        // As a task of its own, and by a thread that waits.
        let handle = users.clone();
        let task = tokio::spawn(async move { handle.get_async("ab").await.ok() });
        assert_eq!(task.await.unwrap(), Some(2));
        let thread = tokio::task::spawn_blocking(move || users.get("abc").ok());
        assert_eq!(thread.await.unwrap(), Some(3));
    }
    let spawn = |task| {
        tokio::spawn(task);
    };
    check(Cache::builder().loading(Remote(0)).spawner(spawn).build()).await;
    check(
        Cache::builder()
            .loading(Arc::new(Remote(0)))
            .spawner(spawn)
            .build(),
    )
    .await;
    // A closure whose future borrows nothing of the key.
    let users = Cache::builder()
        .loading(async_loader_fn(|key: &String| {
            let key = key.clone();
            async move { Ok::<_, Bare>(key.len() as u32) }
        }))
        .refresh_after(refresh::after(SECOND))
        .spawner(|task| {
            tokio::spawn(task);
        })
        .build();
    assert!(matches!(users.get_async("ada").await, Ok(3)));
    // A closure that says how long its value is good.
    let time = ManualTicker::new();
    let users: LoadingCache<u32, u32, Bare> = Cache::builder()
        .ticker(time.clone())
        .loading(async_loader_fn(|key: &u32| {
            let loaded = Loaded::new(*key).expires_in(SECOND);
            async move { Ok(loaded) }
        }))
        .spawner(|task| drop(tokio::spawn(task)))
        .build();
    assert!(matches!(users.get_async(&1).await, Ok(1)));
    time.advance(SECOND);
    assert_eq!(users.get_if_present(&1), None);
}

#[tokio::test]
async fn a_blocking_loader_serves_tasks() {
    let users: LoadingCache<String, u32, Bare> = Cache::builder()
        .loading(loader_fn(|key: &String| Ok(key.len() as u32)))
        .build();
    assert!(matches!(is_send(users.get_async("ada")).await, Ok(3)));
    let all = is_send(users.get_all_async(["b".to_string()])).await;
    assert!(matches!(all.as_deref(), Ok([Some(1)])));
    assert!(matches!(users.refresh("ada".into()).await, Ok(Some(3))));
}

/// Each names the setting, its value, and what is allowed.
#[test]
fn settings_that_cannot_hold_are_refused() {
    fn refused<E: Send + Sync + 'static>(builder: LoadingBuilder<u32, u32, E>, words: &[&str]) {
        let error: BuildError = builder.try_build().unwrap_err();
        let error = error.to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let blocking = || Cache::builder().loading(loader_fn(|key: &u32| Ok::<u32, Bare>(*key)));
    let with_futures =
        || Cache::builder().loading(async_loader_fn(|key: &u32| ready(Ok::<u32, Bare>(*key))));
    let whole = || with_futures().spawner(drop);
    let zero = Duration::ZERO;
    refused(
        blocking().reload_threads(0),
        &["reload_threads is 0", "at least 1"],
    );
    refused(with_futures(), &["spawner is missing", "must be given"]);
    refused(
        whole().reload_threads(0),
        &["reload_threads is 0", "at least 1"],
    );
    refused(
        blocking().load_timeout(zero),
        &["load_timeout is 0ns", "more than zero"],
    );
    let after = ["refresh::after(0ns)", "more than zero"];
    refused(blocking().refresh_after(refresh::after(zero)), &after);
    let inside = Arc::new(refresh::jittered(refresh::after(zero), 0.5));
    refused(blocking().refresh_after(inside), &after);
    assert!(
        whole()
            .refresh_after(refresh::after(SECOND))
            .try_build()
            .is_ok()
    );
    assert!(
        blocking()
            .refresh_after(refresh::never())
            .reload_threads(2)
            .try_build()
            .is_ok()
    );
}

/// One chain of settings serves both kinds of loaders. Each uses what is its own.
#[test]
fn a_setting_of_the_other_kind_of_loader_has_no_effect() {
    let spawned = Arc::new(AtomicUsize::new(0));
    let spawner = || {
        let spawned = Arc::clone(&spawned);
        move |task| {
            spawned.fetch_add(1, Ordering::SeqCst);
            futures_lite::future::block_on(task);
        }
    };
    let blocking = Cache::<u32, u32>::builder()
        .loading(loader_fn(|key: &u32| Ok::<_, Bare>(*key)))
        .reload_threads(4)
        .spawner(spawner())
        .build();
    assert!(matches!(blocking.get(&1), Ok(1)));
    assert!(matches!(blocking.refresh(1).wait(), Ok(Some(1))));
    assert_eq!(spawned.load(Ordering::SeqCst), 0);
    let with_futures = Cache::<u32, u32>::builder()
        .loading(async_loader_fn(|key: &u32| ready(Ok::<_, Bare>(*key))))
        .reload_threads(4)
        .spawner(spawner())
        .build();
    assert!(matches!(with_futures.get(&1), Ok(1)));
    assert!(matches!(with_futures.refresh(1).wait(), Ok(Some(1))));
    assert_eq!(spawned.load(Ordering::SeqCst), 2);
}

#[test]
fn errors_are_shared_shown_and_compared() {
    let bare: LoadError<Bare> = LoadError::Failed(Arc::new(Bare));
    assert!(
        matches!(bare.clone(), LoadError::Failed(_)),
        "`Bare` is not `Clone`"
    );
    let of = |what: &str| LoadError::Failed(Arc::new(what.to_string()));
    assert_eq!(of("down"), of("down"));
    assert_ne!(of("down"), LoadError::Panicked);
    assert_ne!(LoadError::<String>::Panicked, LoadError::TimedOut);
    let error: Box<dyn std::error::Error + Send + Sync> =
        Box::new(LoadError::Failed(Arc::new(std::fmt::Error)));
    let failed = error.downcast_ref::<LoadError<std::fmt::Error>>();
    assert!(matches!(failed, Some(LoadError::Failed(_))));
    assert!(error.to_string().contains(&std::fmt::Error.to_string()));
    // A boxed error passes through `?`, and is the source.
    type BoxError = Box<dyn std::error::Error + Send + Sync>;
    let call = || -> Result<(), BoxError> {
        let load = loader_fn(|_: &u32| Err::<u32, BoxError>(Box::new(std::fmt::Error)));
        Cache::builder().loading(load).build().get(&1)?;
        Ok(())
    };
    let boxed = call().unwrap_err();
    assert!(
        boxed
            .source()
            .is_some_and(|source| source.is::<std::fmt::Error>())
    );
    assert!(std::error::Error::source(&LoadError::<String>::Panicked).is_none());
    assert!(!format!("{error} {:?}", LoadError::<()>::TimedOut).is_empty());
}

#[test]
fn a_loader_says_all_that_it_knows() {
    let loaded = Loaded::new(5).expires_in(SECOND).refresh_in(SECOND);
    let _: Loaded<u32> = loaded.never_expires();
    let _: Loaded<u32> = 5.into();
    let all: [Reloaded<u32>; 4] = [
        Reloaded::New(Loaded::new(5)),
        Reloaded::Unchanged,
        Reloaded::UnchangedFor {
            expires_in: Some(SECOND),
            refresh_in: None,
        },
        Reloaded::Gone,
    ];
    assert_eq!(all[0], Reloaded::New(5.into()));
}

#[test]
fn policies_have_the_promised_shape() {
    /// The first method alone.
    struct First;
    impl Refresh<u32, u32> for First {
        fn refresh_after_create(
            &self,
            _key: &u32,
            _value: &u32,
            _at: Instant,
            life: Option<Duration>,
        ) -> Option<Duration> {
            life
        }
    }
    let (at, life) = (Instant::now(), Some(SECOND));
    assert_eq!(First.refresh_after_update(&1, &1, at, life), life);
    assert_eq!(First.refresh_after_reload(&1, &1, at, life), life);
    for (failures, seconds) in [(1, 1), (2, 2), (3, 4), (7, 64), (8, 64), (u32::MAX, 64)] {
        let next = First.refresh_after_failure(&1, &1, failures, None);
        assert_eq!(next, Some(Duration::from_secs(seconds)), "{failures}");
    }
    fn builds(policy: impl Refresh<u32, u32>) {
        let users = Cache::builder()
            .loading(loader_fn(|key: &u32| Ok::<u32, Bare>(*key)))
            .refresh_after(policy)
            .build();
        assert!(matches!(users.get(&1), Ok(1)));
    }
    builds(refresh::after(SECOND));
    builds(refresh::fraction(0.5));
    builds(refresh::jittered(refresh::fraction(0.5), 0.1));
    builds(refresh::early(1.0));
    builds(refresh::never());
    builds(Arc::new(First));
    let chosen: Box<dyn Refresh<u32, u32>> = Box::new(First);
    builds(refresh::jittered(chosen, 0.1));
}

#[test]
fn loads_and_reloads_count() {
    let time = ManualTicker::new();
    let slow = time.clone();
    let users: LoadingCache<u32, u32, Bare> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(loader_fn(move |key: &u32| {
            slow.advance(2 * SECOND);
            if *key == 6 { Err(Bare) } else { Ok(*key) }
        }))
        .build();
    let count = |stats: &Stats| {
        [
            stats.loads(),
            stats.load_failures(),
            stats.reloads(),
            stats.reload_failures(),
            stats.hits(),
            stats.misses(),
        ]
    };
    assert!(users.get(&1).is_ok());
    assert!(users.get(&1).is_ok());
    assert!(users.get(&6).is_err());
    let stats = users.cache().stats();
    assert_eq!(count(&stats), [2, 1, 0, 0, 1, 2]);
    assert_eq!(stats.load_time(), 4 * SECOND, "by the cache's ticker");
    assert!(users.refresh(1).wait().is_ok());
    let stats = users.cache().stats();
    assert_eq!(
        count(&stats),
        [3, 1, 1, 0, 1, 2],
        "a reload is a load, and no read"
    );
    assert_eq!(stats.load_time(), 6 * SECOND);
}

#[test]
fn a_moment_that_only_the_loader_names_is_kept() {
    let (time, calls) = (ManualTicker::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    // No `refresh_after`.
    let users: LoadingCache<u32, u32, Bare> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(loader_fn(move |_: &u32| {
            let call = counted.fetch_add(1, Ordering::SeqCst) as u32;
            Ok(Loaded::new(call).refresh_in(SECOND))
        }))
        .build();
    assert!(matches!(users.get(&1), Ok(0)));
    time.advance(SECOND - Duration::from_nanos(1));
    assert!(matches!(users.get(&1), Ok(0)));
    assert!(!users.cache().peek_ref(&1).unwrap().is_stale());
    time.advance(Duration::from_nanos(1));
    assert!(matches!(users.get(&1), Ok(0)));
    let began = Instant::now();
    while users.cache().get(&1) != Some(1) {
        assert!(began.elapsed() < 60 * SECOND, "it is reloaded");
        std::thread::yield_now();
    }
}

/// A compute waits for the reload that is under way, and sees what it has stored.
#[test]
fn computes_and_reloads_take_turns() {
    let (time, held) = (ManualTicker::new(), Arc::new(std::sync::Mutex::new(())));
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&held));
    let counted = Arc::clone(&calls);
    let users: LoadingCache<u32, u32, Bare> = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(loader_fn(move |_: &u32| {
            let call = counted.fetch_add(1, Ordering::SeqCst) as u32;
            drop(gate.lock());
            Ok(10 + call)
        }))
        .refresh_after(refresh::after(6 * SECOND))
        .build();
    let cache = users.cache();
    assert!(matches!(users.get(&1), Ok(10)));
    let holding = held.lock().unwrap();
    time.advance(6 * SECOND);
    assert!(matches!(users.get(&1), Ok(10)));
    let began = Instant::now();
    while calls.load(Ordering::SeqCst) < 2 {
        assert!(began.elapsed() < 60 * SECOND, "the reload is under way");
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let upsert = |old: Option<Entry<u32, u32>>| old.map_or(0, Entry::into_value) + 100;
        let computing = scope.spawn(move || cache.entry(1).and_upsert_with(upsert).into_value());
        let began = Instant::now();
        while cache.stats().load_waits() == 0 {
            assert!(began.elapsed() < 60 * SECOND, "it waits");
            std::thread::yield_now();
        }
        assert!(matches!(cache.lease(1), Leased::Found(10)), "a hit");
        drop(holding);
        assert_eq!(computing.join().unwrap(), 111);
    });
    // And the other way round: a stale read starts no reload while a compute runs.
    time.advance(6 * SECOND);
    cache.entry(1).and_compute_with(|_| {
        assert!(matches!(users.get(&1), Ok(111)));
        // The only thread has come to key 1 before.
        assert!(users.refresh(2).wait().is_ok());
        Op::Nop
    });
    assert_eq!(cache.stats().reloads(), 1);
}

#[test]
fn a_loader_of_several_keys_that_misbehaves_leaves_them_usable() {
    /// What `load_many` does.
    #[derive(Clone, Copy)]
    enum Many {
        Short,
        Panics,
        Fails,
    }
    impl Loader<u32, u32> for Many {
        type Error = &'static str;
        fn load(&self, key: &u32) -> Result<Loaded<u32>, &'static str> {
            Ok((*key).into())
        }
        fn load_many(&self, _: &[u32]) -> Result<Vec<Option<Loaded<u32>>>, &'static str> {
            match self {
                Many::Short => Ok(Vec::new()),
                Many::Panics => panic!("told to panic in the loader"),
                Many::Fails => Err("down"),
            }
        }
    }
    for many in [Many::Short, Many::Panics, Many::Fails] {
        let users = Cache::builder().loading(many).build();
        users.cache().insert(1, 100);
        let call = std::panic::AssertUnwindSafe(|| users.get_all([1, 2, 3]));
        match (many, std::panic::catch_unwind(call)) {
            (Many::Short, Err(panic)) => {
                let text = panic.downcast_ref::<String>().expect("text");
                assert!(
                    text.contains("2 keys") && text.contains("0 values"),
                    "{text}"
                );
            }
            (Many::Panics, Ok(Err(LoadError::Panicked))) => {}
            (Many::Fails, Ok(Err(LoadError::Failed(error)))) => assert_eq!(*error, "down"),
            (_, other) => panic!("{:?}", other.map_err(|_| "a panic")),
        }
        assert_eq!(users.cache().get(&1), Some(100));
        assert_eq!((users.get(&2), users.get(&3)), (Ok(2), Ok(3)));
        assert_eq!(users.get_all([]), Ok(vec![]));
    }
}

/// A policy that writes the key about which it is asked, in the same thread.
struct Meddler {
    cache: Place<Cache<u32, u32>>,
    meddle: fn(&Cache<u32, u32>, u32),
    asked: Arc<AtomicUsize>,
}

impl Expiry<u32, u32> for Meddler {
    fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
        Some(100 * SECOND)
    }

    fn expire_after_update(
        &self,
        _: &u32,
        _: &u32,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        // It would go on for ever, but the test ends.
        if let Some(cache) = self.cache.get() {
            if asked < 100_000 {
                (self.meddle)(&cache, asked as u32);
            }
        }
        left
    }
}

#[test]
fn a_reload_whose_policy_writes_the_key_ends() {
    /// Keeps each value.
    struct Keeper;
    impl Loader<u32, u32> for Keeper {
        type Error = Bare;
        fn load(&self, _: &u32) -> Result<Loaded<u32>, Bare> {
            Ok(1.into())
        }
        fn reload(&self, _: &u32, _: &u32) -> Result<Reloaded<u32>, Bare> {
            Ok(Reloaded::Unchanged)
        }
    }
    type Meddle = fn(&Cache<u32, u32>, u32);
    let meddles: [(Meddle, usize); 2] = [
        // Moves the deadline, which is no explicit write: the load stays current.
        (
            |cache, asked| {
                let left = 100 * SECOND - Duration::from_millis(u64::from(asked));
                assert!(cache.set_expiry(&1, Some(left)));
            },
            16,
        ),
        // Writes the key, and revokes the load.
        (
            |cache, asked| cache.insert_with_ttl(1, asked, 50 * SECOND),
            1,
        ),
    ];
    for (meddle, most) in meddles {
        let (own, asked) = (OwnCache::new(), Arc::new(AtomicUsize::new(0)));
        let policy = Meddler {
            cache: own.place(),
            meddle,
            asked: Arc::clone(&asked),
        };
        let users = Cache::builder()
            .ticker(ManualTicker::new())
            .expire_after(policy)
            .loading(Keeper)
            .build();
        assert!(matches!(users.get(&1), Ok(1)));
        own.set(users.cache());
        assert!(matches!(users.refresh(1).wait(), Ok(Some(_))));
        let asked = asked.load(Ordering::SeqCst);
        assert!((1..=most).contains(&asked), "asked {asked} times");
        assert!(users.cache().contains_key(&1));
    }
}

/// A string of another crate: a key that is made from `&str`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SmallString(Box<str>);

impl From<&str> for SmallString {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl std::borrow::Borrow<str> for SmallString {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Look-ups take each form from which the key can be made.
#[test]
fn keys_are_made_from_what_they_are_looked_up_by() {
    fn check<K>(made: K)
    where
        K: std::hash::Hash + Eq + Clone + Send + Sync + std::fmt::Debug + 'static,
        K: std::borrow::Borrow<str> + for<'a> From<&'a str>,
    {
        let keys = Arc::<Mutex<Vec<K>>>::default();
        let seen = Arc::clone(&keys);
        let lengths: LoadingCache<K, usize, ()> = Cache::builder()
            .loading(loader_fn(move |key: &K| {
                seen.lock().unwrap().push(key.clone());
                Ok(key.borrow().len())
            }))
            .build();
        assert_eq!(lengths.get("ada"), Ok(3));
        assert_eq!(
            futures_lite::future::block_on(lengths.get_async("grace")),
            Ok(5)
        );
        assert_eq!(lengths.get_if_present("grace"), Some(5));
        assert_eq!(lengths.get(&made), Ok(3), "by the key itself");
        assert_eq!(keys.lock().unwrap().len(), 2);
        let cache = lengths.cache();
        cache.insert("alan".into(), 4);
        assert!(matches!(cache.lease_by_ref("alan"), Leased::Found(4)));
        let Leased::Lease(lease) = cache.lease_timeout_by_ref("kurt", Duration::ZERO) else {
            panic!("the key is absent");
        };
        lease.fill(9);
        let found = futures_lite::future::block_on(cache.lease_by_ref_async("kurt"));
        assert!(matches!(found, Leased::Found(9)));
    }
    check::<Arc<str>>("ada".into());
    check::<Box<str>>("ada".into());
    check::<String>("ada".into());
    check::<SmallString>("ada".into());
    let by_part: LoadingCache<Vec<u8>, usize, ()> = Cache::builder()
        .loading(loader_fn(|key: &Vec<u8>| Ok(key.len())))
        .build();
    assert_eq!(by_part.get(&[1_u8, 2][..]), Ok(2));
    let shared: LoadingCache<Arc<[u8]>, usize, ()> = Cache::builder()
        .loading(loader_fn(|key: &Arc<[u8]>| Ok(key.len())))
        .build();
    assert_eq!(shared.get(&[1_u8, 2][..]), Ok(2));
    let numbers: LoadingCache<u64, u64, ()> = Cache::builder()
        .loading(loader_fn(|key: &u64| Ok(*key)))
        .build();
    assert_eq!(numbers.get(&7), Ok(7));
}
