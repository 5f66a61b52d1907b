//! Names, arguments and results of the public interface are as promised, and so are the bounds on
//! types: a program that names them keeps compiling.

use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use wheelhouse::compute::{CompResult, Entry, Op};
use wheelhouse::{
    BuildError, Cache, Delivery, Downtime, Ended, EntryRef, EntrySelector, Equivalent,
    EvictionPolicy, Expiry, Filled, Iter, Lease, Leased, LoadError, Loaded, ManualTicker, Policy,
    RefEntrySelector, Reloaded, RemovalCause, Restore, Restored, SavedEntry, Scheduler, Snapshot,
    Stats, Ticker, loader_fn,
};

const SECOND: Duration = Duration::from_secs(1);

type C = Cache<String, u32>;

fn a() -> String {
    "a".to_owned()
}

struct Unpark(thread::Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn another_form_of_a_key_finds_it() {
    #[derive(Hash)]
    struct Pair<'a>(&'a str, u8);
    impl Equivalent<(String, u8)> for Pair<'_> {
        fn equivalent(&self, key: &(String, u8)) -> bool {
            self.0 == key.0 && self.1 == key.1
        }
    }
    let pairs: Cache<(String, u8), u32> = Cache::new(10);
    pairs.insert(("a".to_owned(), 1), 7);
    let q = Pair("a", 1);
    assert_eq!(pairs.get(&q), Some(7));
    assert_eq!(pairs.get_ref(&q).map(|e| *e), Some(7));
    assert_eq!(pairs.peek_ref(&q).map(|e| *e), Some(7));
    assert!(pairs.contains_key(&q));
    assert!(pairs.set_expiry(&q, None));
    assert_eq!(pairs.policy().weight_of(&q), Some(1));
    assert_eq!(pairs.replace_if(&q, 8, |v| *v == 7), Ok(()));
    assert_eq!(pairs.remove_if(&q, |_| false), None);
    assert_eq!(pairs.remove(&q), Some(8));
    pairs.invalidate(&q);

    let words: Cache<String, u32> = Cache::new(10);
    words.insert("one".to_owned(), 1);
    assert_eq!(words.get("one"), Some(1));
    assert!(words.contains_key("one"));
    assert_eq!(words.remove("one"), Some(1));
}

#[test]
fn every_setting_has_the_promised_shape() {
    struct Life;
    impl Expiry<String, u32> for Life {
        fn expire_after_create(&self, _: &String, _: &u32, _: Instant) -> Option<Duration> {
            Some(SECOND)
        }
    }
    struct Still;
    impl Ticker for Still {
        fn nanos(&self) -> u64 {
            5
        }
    }
    let built: Result<Cache<String, u32, RandomState>, BuildError> = Cache::builder()
        .name("shapes")
        .name(String::from("shapes"))
        .initial_capacity(16_usize)
        .max_capacity(100_u64)
        .weigher(|_key: &String, _value: &u32| -> u32 { 1 })
        .eviction_policy(EvictionPolicy::Adaptive)
        .eviction_policy(EvictionPolicy::Lru)
        .eviction_seed(7_u64)
        .expire_after(Life)
        .time_to_live(SECOND)
        .time_to_idle(SECOND)
        .expiry_resolution(SECOND)
        .ticker(Still)
        .scheduler(Scheduler::disabled())
        .scheduler(Scheduler::background())
        .removal_listener(|_key: &String, _value: &u32, _cause: RemovalCause| {})
        .record_stats()
        .load_timeout(SECOND)
        .hasher(RandomState::new())
        .try_build();
    let cache = built.expect("all of these are valid");
    assert_eq!(cache.name(), Some("shapes"));
    assert!(format!("{cache:?}").contains("shapes"));
    let policy = cache.policy();
    assert_eq!(policy.max_capacity(), Some(100));
    assert_eq!(policy.time_to_live(), Some(SECOND));
    assert_eq!(policy.time_to_idle(), Some(SECOND));
    assert_eq!(policy.eviction_policy(), EvictionPolicy::Lru);
}

#[test]
fn every_operation_has_the_promised_shape() {
    type N = Cache<u32, u32>;
    let _: fn(&N, &u32) -> Option<u32> = |c, k| c.get(k);
    let _: for<'a> fn(&'a N, &u32) -> Option<EntryRef<'a, u32, u32>> = |c, k| c.get_ref(k);
    let _: for<'a> fn(&'a N, &u32) -> Option<EntryRef<'a, u32, u32>> = |c, k| c.peek_ref(k);
    let _: fn(&N, &u32) -> bool = |c, k| c.contains_key(k);
    let _: fn(&N, u32, u32) = |c, k, v| c.insert(k, v);
    let _: fn(&N, u32, u32, Duration) = |c, k, v, d| c.insert_with_ttl(k, v, d);
    let _: fn(&N, &u32, Option<Duration>) -> bool = |c, k, d| c.set_expiry(k, d);
    let _: fn(&N, &u32) = |c, k| c.invalidate(k);
    let _: fn(&N, &u32) -> Option<u32> = |c, k| c.remove(k);
    let _: fn(&N) = |c| c.invalidate_all();
    let _: fn(&N) -> u64 = |c| c.entry_count();
    let _: fn(&N) -> u64 = |c| c.weighted_size();
    let _: fn(&N) = |c| c.run_pending_tasks();
    let _: fn(&N) -> Option<Duration> = |c| c.next_maintenance_in();
    let _: fn(&N) -> Stats = |c| c.stats();
    let _: fn(&N) -> Option<&str> = |c| c.name();
    fn policy<S>(policy: &Policy<'_, u32, u32, S>)
    where
        S: std::hash::BuildHasher + Clone + Send + Sync + 'static,
    {
        let _: Instant = policy.now();
        let _: Option<u64> = policy.max_capacity();
        let _: () = policy.set_max_capacity(3);
        let _: Option<u32> = policy.weight_of(&1);
        let _: [Option<Duration>; 2] = [policy.time_to_live(), policy.time_to_idle()];
        let _: Duration = policy.expiry_resolution();
        let _: EvictionPolicy = policy.eviction_policy();
        let _: u64 = policy.memory_per_entry();
    }
    fn iterates<'a, S: std::hash::BuildHasher + Clone + Send + Sync + 'static>(
        cache: &'a Cache<u32, u32, S>,
    ) -> Iter<'a, u32, u32, S> {
        cache.iter()
    }
    // The hasher of a `Cache` has a default, and so has that of what is borrowed from it.
    let _: for<'a> fn(&'a N) -> Iter<'a, u32, u32> = N::iter;
    let _: for<'a> fn(&'a N) -> Policy<'a, u32, u32> = N::policy;
    let cache: Cache<u32, u32> = Cache::new(3);
    assert_eq!(iterates(&cache).count(), 0);
    policy(&cache.policy());
    let _: [fn(&Stats) -> u64; 14] = [
        |s| s.hits(),
        |s| s.misses(),
        |s| s.insertions(),
        |s| s.updates(),
        |s| s.removals(RemovalCause::Size),
        |s| s.evicted_weight(),
        |s| s.listener_panics(),
        |s| s.maintenance_passes(),
        |s| s.loads(),
        |s| s.load_failures(),
        |s| s.loads_discarded(),
        |s| s.load_waits(),
        |s| s.reloads(),
        |s| s.reload_failures(),
    ];
    let _: fn(&Stats) -> f64 = |s| s.hit_ratio();
    let _: fn(&Stats) -> Duration = |s| s.load_time();
    let _: fn(&Stats) -> Duration = |s| s.maintenance_time();
    let _: fn(&Stats, f64) -> Option<Duration> = |s, q| s.expiry_lateness(q);
    let _: fn(Stats, Stats) -> Stats = |a, b| a - b;
}

#[test]
fn a_ticker_is_one_method_and_a_manual_one_is_shared_by_its_clones() {
    fn ticker<T: Ticker + Send + Sync + 'static>(ticker: &T) -> u64 {
        ticker.nanos()
    }
    let one = ManualTicker::starting_at(u64::MAX);
    let two = one.clone();
    assert_eq!(ticker(&one), u64::MAX);
    two.advance(Duration::from_nanos(2));
    assert_eq!(one.nanos(), 1, "wraps");
    one.set_nanos(40);
    assert_eq!(two.nanos(), 40);
    one.set_nanos(30);
    assert_eq!(two.nanos(), 30);
    let _ = ManualTicker::new();
}

#[test]
fn loading_methods_have_the_promised_shape() {
    let cache: C = Cache::new(10);
    let _: u32 = cache.get_with(a(), || 1);
    let _: u32 = cache.get_with_by_ref("a", || 1);
    let _: Option<u32> = cache.optionally_get_with(a(), || None);
    let _: Option<u32> = cache.optionally_get_with_by_ref("a", || None);
    // `E` needs no `Clone` and no `Debug`.
    struct Bare;
    let _: Result<u32, Arc<Bare>> = cache.try_get_with(a(), || Err(Bare));
    let _: Result<u32, Arc<Bare>> = cache.try_get_with_by_ref("a", || Err(Bare));
    let not_send = Rc::new(4);
    assert_eq!(
        cache.get_with("b".into(), || *not_send),
        4,
        "init may be anything"
    );
    let _: Result<(), u32> = cache.replace_if("a", 2, |_: &u32| false);
    let _: Option<u32> = cache.remove_if("a", |_: &u32| true);
    let _: Result<Vec<Option<u32>>, Arc<Bare>> =
        cache.get_all_with([a(), a()], |keys: &[String]| Ok(vec![None; keys.len()]));
    let _: Leased<String, u32, _> = cache.lease(a());
    let _: Leased<String, u32, _> = cache.lease_timeout(a(), Duration::ZERO);
    fn send_static<T: Send + 'static>(_: &T) {}
    match cache.lease("c".into()) {
        Leased::Lease(lease) => {
            send_static(&lease);
            let lease: Lease<String, u32, _> = lease;
            assert_eq!(lease.key(), "c");
            assert!(lease.is_current());
            let filled: Filled<u32> = lease.fill_with_ttl(3, SECOND);
            assert!(matches!(filled, Filled::Stored));
        }
        Leased::Found(_) | Leased::Busy => panic!("absent"),
    }
    if let Leased::Lease(lease) = cache.lease("d".into()) {
        let error: Arc<Bare> = lease.fail(Bare);
        drop(error);
    }
}

#[test]
fn selectors_have_the_promised_shape() {
    let cache: C = Cache::new(10);
    /// To name a selector needs no bounds.
    #[expect(dead_code)]
    struct Named<'a, K, V, S>(EntrySelector<'a, K, V, S>);
    let _: EntrySelector<'_, String, u32> = cache.entry(a());
    let _: RefEntrySelector<'_, String, str, u32> = cache.entry_by_ref("a");
    let entry: Entry<String, u32> = cache.entry(a()).or_default();
    assert_eq!(
        (entry.key().as_str(), *entry.value(), entry.is_fresh()),
        ("a", 0, true)
    );
    assert!(entry.is_stored() && !entry.is_old_value_replaced());
    assert_eq!(entry.time_left(), None);
    assert_eq!(entry.into_value(), 0);
    let _: Entry<String, u32> = cache.entry_by_ref("a").or_default();
    let _: Entry<String, u32> = cache.entry(a()).or_insert(3);
    let _: Entry<String, u32> = cache.entry_by_ref("a").or_insert(3);
    let _: Entry<String, u32> = cache.entry(a()).or_insert_with(|| 3);
    let _: Entry<String, u32> = cache.entry_by_ref("a").or_insert_with(|| 3);
    let _: Entry<String, u32> = cache.entry(a()).or_insert_with_ttl(|| (3, SECOND));
    let _: Entry<String, u32> = cache.entry_by_ref("a").or_insert_with_ttl(|| (3, SECOND));
    let _: Entry<String, u32> = cache.entry(a()).or_insert_with_if(|| 3, |_| false);
    let _: Entry<String, u32> = cache.entry_by_ref("a").or_insert_with_if(|| 3, |_| false);
    let _: Option<Entry<String, u32>> = cache.entry(a()).or_optionally_insert_with(|| None);
    let _: Option<Entry<String, u32>> = cache.entry_by_ref("a").or_optionally_insert_with(|| None);
    struct Bare;
    let _: Result<Entry<String, u32>, Arc<Bare>> =
        cache.entry(a()).or_try_insert_with(|| Err(Bare));
    let _: Result<Entry<String, u32>, Arc<Bare>> =
        cache.entry_by_ref("a").or_try_insert_with(|| Err(Bare));
    let _: Entry<String, u32> = cache
        .entry(a())
        .and_upsert_with(|old| old.map_or(0, |old| old.into_value() + 1));
    let _: Entry<String, u32> = cache.entry_by_ref("a").and_upsert_with(|_| 1);
    let _: CompResult<String, u32> = cache.entry(a()).and_compute_with(|_| Op::Nop);
    let _: CompResult<String, u32> = cache.entry_by_ref("a").and_compute_with(|_| Op::Nop);
    // The error of a computation comes back as it is, and may be borrowed and not `Send`.
    let word = Rc::new(String::from("no"));
    let failed: Result<CompResult<String, u32>, &Rc<String>> =
        cache.entry(a()).and_try_compute_with(|_| Err(&word));
    assert!(failed.is_err());
    let _: Result<CompResult<String, u32>, &Rc<String>> = cache
        .entry_by_ref("a")
        .and_try_compute_if_nobody_else(|_| Err(&word));
    let _: Result<CompResult<String, u32>, &Rc<String>> = cache
        .entry(a())
        .and_try_compute_if_nobody_else(|_| Err(&word));
    let _: Result<CompResult<String, u32>, &Rc<String>> =
        cache.entry_by_ref("a").and_try_compute_with(|_| Err(&word));
}

#[test]
fn asynchronous_methods_have_the_promised_shape() {
    fn send<F: Future + Send>(future: F) -> F {
        future
    }
    struct Bare;
    let cache: C = Cache::new(10);
    let local = String::from("borrowed: no 'static");
    let one = || async { local.len() as u32 };
    let none = || async { local.is_empty().then_some(1) };
    let fails = || async { if local.is_empty() { Ok(1) } else { Err(Bare) } };
    block_on(async {
        let _: u32 = send(cache.get_with_async(a(), one())).await;
        let _: u32 = send(cache.get_with_by_ref_async("a", one())).await;
        let _: Option<u32> = send(cache.optionally_get_with_async(a(), none())).await;
        let _: Option<u32> = send(cache.optionally_get_with_by_ref_async("a", none())).await;
        let _: Result<u32, Arc<Bare>> = send(cache.try_get_with_async(a(), fails())).await;
        let _: Result<u32, Arc<Bare>> = send(cache.try_get_with_by_ref_async("a", fails())).await;
        let _: Result<Vec<Option<u32>>, Arc<Bare>> = send(
            cache.get_all_with_async([a()], |keys: Vec<String>| async move {
                Ok(vec![Some(1); keys.len()])
            }),
        )
        .await;
        let _: Leased<String, u32, _> = send(cache.lease_async(a())).await;
        let _: Entry<String, u32> = send(cache.entry(a()).or_insert_with_async(one)).await;
        let _: Entry<String, u32> = send(
            cache
                .entry(a())
                .or_insert_with_ttl_async(|| async { (1, SECOND) }),
        )
        .await;
        let _: Entry<String, u32> = send(
            cache
                .entry(a())
                .or_insert_with_if_async(one, |_: &u32| false),
        )
        .await;
        let _: Option<Entry<String, u32>> =
            send(cache.entry(a()).or_optionally_insert_with_async(none)).await;
        let _: Result<Entry<String, u32>, Arc<Bare>> =
            send(cache.entry(a()).or_try_insert_with_async(fails)).await;
        let _: Entry<String, u32> = send(cache.entry(a()).and_upsert_with_async(
            |old: Option<Entry<String, u32>>| async move { old.map_or(0, Entry::into_value) },
        ))
        .await;
        let _: CompResult<String, u32> = send(
            cache
                .entry(a())
                .and_compute_with_async(|_| async { Op::Nop }),
        )
        .await;
        let _: Result<CompResult<String, u32>, Bare> = send(
            cache
                .entry(a())
                .and_try_compute_with_async(|_| async { Err(Bare) }),
        )
        .await;
        let _: Result<CompResult<String, u32>, Bare> = send(
            cache
                .entry(a())
                .and_try_compute_if_nobody_else_async(|_| async { Ok(Op::Remove) }),
        )
        .await;
        let _: Entry<String, u32> = send(cache.entry_by_ref("a").or_insert_with_async(one)).await;
        let _: CompResult<String, u32> = send(
            cache
                .entry_by_ref("a")
                .and_compute_with_async(|_| async { Op::Nop }),
        )
        .await;
        // What is not Send is taken, too; the future is then not Send.
        let shared = Rc::new(3);
        let theirs = shared.clone();
        assert_eq!(
            cache
                .get_with_async("rc".into(), async move { *theirs })
                .await,
            3
        );
    });
}

#[test]
fn snapshots_have_the_promised_shape() {
    type N = Cache<u32, u32>;
    let saved = |key| {
        let mut entry = SavedEntry::new(key, key + 10);
        entry.time_left = Some(Duration::MAX);
        entry.idle_left = Some(Duration::MAX);
        entry.refresh_in = None;
        entry.age = Duration::ZERO;
        entry
    };
    let _: fn(&N) -> Snapshot<u32, u32> = |c| c.snapshot();
    let _: fn(&N, Snapshot<u32, u32>, Restore) -> Restored = |c, s, how| c.restore(s, how);
    let _: fn(&Snapshot<u32, u32>) -> SystemTime = |s| s.taken_at();
    let _ = Restore::default()
        .downtime(Downtime::Counts)
        .ended(Ended::Skip);
    let _ = Restore::default()
        .downtime(Downtime::Ignored)
        .ended(Ended::Tell);
    let before = SystemTime::now();
    let snapshot: Snapshot<u32, u32> = [saved(1)].into_iter().collect();
    assert!(snapshot.taken_at() >= before && snapshot.taken_at() <= SystemTime::now());
    let entries: Vec<SavedEntry<u32, u32>> = snapshot.into_iter().collect();
    assert_eq!((entries[0].key, entries[0].value), (1, 11));
    let Restored {
        restored,
        expired,
        present,
        refused,
    } = N::new(1).restore([].into_iter().collect(), Restore::default());
    assert_eq!((restored, expired, present, refused), (0, 0, 0, 0));
    let one = Restored {
        restored: 1,
        expired: 0,
        present: 0,
        refused: 0,
    };
    assert_eq!(
        N::new(1).restore([saved(1)].into_iter().collect(), Restore::default()),
        one
    );
}

/// Matches without a wildcard: only `Op` and `RemovalCause` may get further variants.
#[test]
fn the_variants_and_fields_are_the_promised_ones() {
    fn leased<S>(leased: &Leased<u32, u32, S>) -> u8 {
        match leased {
            Leased::Found(_) => 0,
            Leased::Lease(_) => 1,
            Leased::Busy => 2,
        }
    }
    fn filled(filled: Filled<u32>) -> u8 {
        match filled {
            Filled::Stored => 0,
            Filled::Lost {
                current: _,
                yours: _,
            } => 1,
            Filled::Revoked(_) => 2,
        }
    }
    fn computed(result: &CompResult<u32, u32>) -> u8 {
        match result {
            CompResult::Inserted(_) => 0,
            CompResult::ReplacedWith(_) => 1,
            CompResult::Removed(_) => 2,
            CompResult::Unchanged(_) => 3,
            CompResult::StillNone(_) => 4,
            CompResult::Overtaken(_) => 5,
        }
    }
    fn reloaded(reloaded: &Reloaded<u32>) -> u8 {
        match reloaded {
            Reloaded::New(_) => 0,
            Reloaded::Unchanged => 1,
            Reloaded::UnchangedFor {
                expires_in: _,
                refresh_in: _,
            } => 2,
            Reloaded::Gone => 3,
        }
    }
    fn failed<E>(error: &LoadError<E>) -> u8 {
        match error {
            LoadError::Failed(_) => 0,
            LoadError::Panicked => 1,
            LoadError::TimedOut => 2,
            LoadError::Abandoned => 3,
        }
    }
    fn evicts(policy: EvictionPolicy) -> u8 {
        match policy {
            EvictionPolicy::Adaptive => 0,
            EvictionPolicy::Lru => 1,
        }
    }
    fn delivers(delivery: Delivery) -> u8 {
        match delivery {
            Delivery::Background => 0,
            Delivery::Caller => 1,
        }
    }
    let cache: Cache<u32, u32> = Cache::new(10);
    assert_eq!(leased(&cache.lease(1)), 1);
    assert_eq!(filled(Filled::Revoked(1)), 2);
    let result = cache.entry(1).and_compute_with(|_| Op::Nop);
    assert_eq!(computed(&result), 4);
    assert_eq!(reloaded(&Reloaded::Gone), 3);
    assert_eq!(failed(&LoadError::<()>::TimedOut), 2);
    assert_eq!(evicts(EvictionPolicy::default()), 0);
    assert_eq!(delivers(Delivery::default()), 0);
    assert_eq!(Downtime::default(), Downtime::Counts);
    assert_eq!(Ended::default(), Ended::Skip);
}

#[test]
fn types_of_loads_and_snapshots_have_the_usual_traits() {
    fn shown<T: Debug + Send + Sync>(_: &T) {}
    fn cloned<T: Debug + Send + Sync + Clone>(_: &T) {}
    let cache: Cache<u32, u32> = Cache::new(10);
    shown(&cache.entry(1));
    shown(&cache.entry_by_ref(&1));
    shown(&cache.lease(1));
    if let Leased::Lease(lease) = cache.lease(1) {
        shown(&lease);
    }
    cloned(&cache.entry(1).or_insert(3));
    cloned(&cache.entry(1).and_compute_with(|_| Op::Nop));
    cloned(&Op::Put(1));
    cloned(&Filled::Stored::<u32>);
    let snapshot = cache.snapshot();
    cloned(&snapshot);
    for saved in &snapshot {
        cloned(saved);
        assert_eq!(saved, saved);
    }
    cloned(&Restore::default());
    cloned(&cache.restore(snapshot, Restore::default()));
    let loader = || loader_fn(|key: &u32| Ok::<u32, std::io::Error>(*key));
    shown(&Cache::<u32, u32>::builder().loading(loader()));
    let users = Cache::builder().loading(loader()).build();
    cloned(&users);
    shown(&users.refresh(3));
    cloned(&Loaded::new(3));
    cloned(&Reloaded::<u32>::Unchanged);
    // An error goes through `?` into a box.
    type Failure = Box<dyn std::error::Error + Send + Sync>;
    let read = || -> Result<u32, Failure> { Ok(users.get(&1)?) };
    assert_eq!(read().unwrap(), 1);
}

#[test]
fn values_and_errors_need_no_traits_of_their_own() {
    #[derive(Clone)]
    struct Value;
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key;
    struct Error;
    let cache: Cache<Key, Value> = Cache::new(10);
    assert!(cache.try_get_with(Key, || Err::<Value, _>(Error)).is_err());
    let all = cache.get_all_with([Key], |_| Err::<Vec<Option<Value>>, _>(Error));
    assert!(all.is_err());
    let computed = cache
        .entry(Key)
        .and_try_compute_with(|_| Err::<Op<Value>, _>(Error));
    assert!(computed.is_err());
    assert!(matches!(cache.lease(Key), Leased::Lease(_)));
    let users = Cache::builder()
        .loading(loader_fn(|_: &Key| Err::<Value, _>(Error)))
        .build();
    assert!(users.get(&Key).is_err() && users.get_all([Key]).is_err());
    assert!(users.refresh(Key).wait().is_err());
}

#[test]
fn asynchronous_methods_by_reference_are_complete() {
    fn send<F: Future + Send>(future: F) -> F {
        future
    }
    let cache: C = Cache::new(10);
    block_on(async {
        let selector = cache.entry_by_ref("a");
        send(selector.or_insert_with_ttl_async(|| async { (1, SECOND) })).await;
        let selector = cache.entry_by_ref("b");
        send(selector.or_insert_with_if_async(|| async { 1 }, |_| false)).await;
        let selector = cache.entry_by_ref("c");
        send(selector.or_optionally_insert_with_async(|| async { Some(1) })).await;
        let selector = cache.entry_by_ref("d");
        _ = send(selector.or_try_insert_with_async(|| async { Ok::<_, ()>(1) })).await;
        let selector = cache.entry_by_ref("e");
        send(selector.and_upsert_with_async(|_| async { 1 })).await;
        let put = |_| async { Ok::<_, ()>(Op::Put(1)) };
        let selector = cache.entry_by_ref("f");
        _ = send(selector.and_try_compute_with_async(put)).await;
        let selector = cache.entry_by_ref("g");
        _ = send(selector.and_try_compute_if_nobody_else_async(put)).await;
    });
    assert_eq!(cache.entry_count(), 7);
    // Any borrowed form whose owned form is the key.
    let paths: Cache<std::path::PathBuf, u32> = Cache::new(10);
    assert_eq!(paths.get_with_by_ref(std::path::Path::new("/x"), || 3), 3);
    let bytes: Cache<Vec<u8>, u32> = Cache::new(10);
    assert_eq!(bytes.get_with_by_ref(&b"ab"[..], || 3), 3);
}
