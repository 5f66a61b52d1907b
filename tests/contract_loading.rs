//! The contract of loading and computing: signatures, who leads, who waits, and what is stored.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use std::panic::{AssertUnwindSafe, catch_unwind};

use wheelhouse::compute::{CompResult, Entry, Op};
use wheelhouse::{Cache, Expiry, Filled, Lease, Leased, ManualTicker, RemovalCause, Scheduler};

const SECOND: Duration = Duration::from_secs(1);
const GENEROUS: Duration = Duration::from_secs(30);

type C = Cache<String, u32>;
type Heard = Arc<Mutex<Vec<(String, u32, RemovalCause)>>>;

struct World {
    cache: C,
    ticker: ManualTicker,
    heard: Heard,
}
fn world() -> World {
    let (ticker, heard) = (ManualTicker::new(), Heard::default());
    let sink = heard.clone();
    let cache = Cache::builder()
        .name("world")
        .record_stats()
        .ticker(ticker.clone())
        .removal_listener(move |k: &String, v: &u32, cause| {
            sink.lock().unwrap().push((k.clone(), *v, cause));
        })
        .build();
    World {
        cache,
        ticker,
        heard,
    }
}
impl World {
    fn heard(&self) -> Vec<(String, u32, RemovalCause)> {
        self.cache.run_pending_tasks();
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

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
    let limit = Instant::now() + GENEROUS;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < limit, "a future that nobody wakes");
        thread::park_timeout(GENEROUS);
    }
}
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits until the cache has counted this many waiters.
fn until_waiting(cache: &C, waiters: u64) {
    let limit = Instant::now() + GENEROUS;
    while cache.stats().load_waits() < waiters {
        assert!(Instant::now() < limit, "no waiter came");
        thread::yield_now();
    }
}

fn message(result: thread::Result<impl Sized>) -> String {
    let panic = result.err().expect("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast_ref::<&str>().expect("text")).to_owned(),
    }
}

#[test]
fn synchronous_signatures() {
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
fn selector_signatures() {
    let cache: C = Cache::new(10);
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
fn asynchronous_signatures() {
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
fn a_hit_runs_and_polls_nothing_and_counts_one_hit() {
    struct Reads(Arc<AtomicUsize>);
    impl Expiry<String, u32> for Reads {
        fn expire_after_read(
            &self,
            _: &String,
            _: &u32,
            _: Instant,
            left: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            self.0.fetch_add(1, SeqCst);
            left
        }
    }
    let reads = Arc::new(AtomicUsize::new(0));
    let cache: C = Cache::builder()
        .record_stats()
        .expire_after(Reads(reads.clone()))
        .build();
    cache.insert(a(), 1);
    assert_eq!(cache.get_with(a(), || panic!("run")), 1);
    assert_eq!(cache.optionally_get_with(a(), || panic!("run")), Some(1));
    assert_eq!(
        cache.try_get_with(a(), || -> Result<u32, ()> { panic!("run") }),
        Ok(1)
    );
    assert_eq!(
        block_on(cache.get_with_async(a(), async { panic!("polled") })),
        1
    );
    let all = cache.get_all_with([a()], |_| -> Result<_, ()> { panic!("run") });
    assert_eq!(all, Ok(vec![Some(1)]));
    assert!(matches!(cache.lease(a()), Leased::Found(1)));
    let stats = cache.stats();
    assert_eq!(
        (
            stats.hits(),
            stats.misses(),
            stats.loads(),
            stats.load_waits()
        ),
        (6, 0, 0, 0)
    );
    assert_eq!(
        reads.load(SeqCst),
        6,
        "the read callback, once for each hit"
    );
}

#[test]
fn a_miss_loads_once_and_shares_with_every_waiter() {
    let w = world();
    let runs = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (go, gate) = mpsc::channel::<()>();
        let (begun, started) = mpsc::channel();
        let (cache, runs) = (&w.cache, &runs);
        let leader = scope.spawn(move || {
            cache.get_with(a(), || {
                runs.fetch_add(1, SeqCst);
                begun.send(()).unwrap();
                gate.recv().unwrap();
                7
            })
        });
        started.recv().unwrap();
        let waiters: Vec<thread::ScopedJoinHandle<'_, u32>> = vec![
            scope.spawn(move || cache.get_with(a(), || 1)),
            scope.spawn(move || cache.optionally_get_with(a(), || Some(2)).unwrap()),
            scope.spawn(move || cache.try_get_with(a(), || Ok::<_, ()>(3)).unwrap()),
            scope.spawn(move || block_on(cache.get_with_async(a(), async { 4 }))),
            scope.spawn(move || cache.entry(a()).or_insert_with(|| 5).into_value()),
            scope.spawn(move || match cache.lease(a()) {
                Leased::Found(value) => value,
                _ => 0,
            }),
        ];
        until_waiting(cache, 6);
        assert_eq!(cache.get(&a()), None, "get knows nothing of loads");
        assert!(!cache.contains_key("a"));
        assert_eq!((cache.iter().count(), cache.entry_count()), (0, 0));
        assert!(matches!(
            cache.lease_timeout(a(), Duration::ZERO),
            Leased::Busy
        ));
        go.send(()).unwrap();
        assert_eq!(leader.join().unwrap(), 7);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), 7);
        }
    });
    let stats = w.cache.stats();
    assert_eq!(runs.load(SeqCst), 1);
    assert_eq!(
        (
            stats.loads(),
            stats.load_failures(),
            stats.loads_discarded()
        ),
        (1, 0, 0)
    );
    assert_eq!(stats.insertions(), 1);
    assert_eq!(w.heard(), []);
}

#[test]
fn a_due_entry_leaves_first_even_when_the_load_fails() {
    let w = world();
    w.cache.insert_with_ttl(a(), 1, SECOND);
    w.ticker.advance(SECOND);
    let failed = w.cache.try_get_with(a(), || {
        assert_eq!(
            w.cache.entry_count(),
            0,
            "it left when the load was registered"
        );
        Err::<u32, _>("no")
    });
    assert_eq!(failed.unwrap_err().as_ref(), &"no");
    assert_eq!(w.heard(), [(a(), 1, RemovalCause::Expired)]);
    w.cache.insert_with_ttl(a(), 2, SECOND);
    w.ticker.advance(SECOND);
    w.cache.get_with(a(), || 3);
    w.cache.insert(a(), 4);
    let expected = [
        (a(), 2, RemovalCause::Expired),
        (a(), 3, RemovalCause::Replaced),
    ];
    assert_eq!(w.heard(), expected);
}

#[test]
fn the_life_of_an_entry_begins_at_the_commit() {
    let w = world();
    let entry = w.cache.entry(a()).or_insert_with_ttl(|| {
        w.ticker.advance(5 * SECOND);
        (1, 3 * SECOND)
    });
    assert!(entry.is_fresh() && entry.is_stored());
    assert_eq!(w.cache.peek_ref("a").unwrap().time_left(), Some(3 * SECOND));
    assert_eq!(w.cache.peek_ref("a").unwrap().age(), Duration::ZERO);
    assert_eq!(
        w.cache.stats().load_time(),
        5 * SECOND,
        "by the cache's ticker"
    );
}

#[test]
fn a_value_that_cannot_be_kept_reaches_its_caller() {
    let none: C = Cache::new(0);
    assert_eq!(none.get_with(a(), || 1), 1);
    let entry = none.entry(a()).or_insert_with(|| 2);
    assert!(!entry.is_stored());
    assert_eq!(entry.into_value(), 2);
    let heavy: C = Cache::builder().max_capacity(10).weigher(|_, _| 11).build();
    assert_eq!(heavy.get_with(a(), || 1), 1);
    assert!(!heavy.entry(a()).or_insert_with(|| 2).is_stored());
    heavy.run_pending_tasks();
    assert!(!heavy.contains_key("a"));
    let w = world();
    let entry = w
        .cache
        .entry(a())
        .or_insert_with_ttl(|| (3, Duration::ZERO));
    assert!(!entry.is_stored());
    assert_eq!(entry.into_value(), 3);
    assert_eq!(w.cache.get("a"), None);
    let all = none.get_all_with([a()], |_| Ok::<_, ()>(vec![Some(5)]));
    assert_eq!(all, Ok(vec![Some(5)]));
}

/// What a write does to the load that it meets, and what the caller of the load then gets.
#[test]
fn every_explicit_write_revokes_the_load_it_meets() {
    type Write = Box<dyn Fn(&World)>;
    let rows: Vec<(&str, bool, Write, u32)> = vec![
        ("insert", true, Box::new(|w| w.cache.insert(a(), 99)), 99),
        (
            "insert_with_ttl",
            true,
            Box::new(|w| w.cache.insert_with_ttl(a(), 98, SECOND)),
            98,
        ),
        (
            "invalidate",
            true,
            Box::new(|w| w.cache.invalidate("a")),
            10,
        ),
        (
            "remove",
            true,
            Box::new(|w| assert_eq!(w.cache.remove("a"), None)),
            10,
        ),
        (
            "invalidate_all",
            true,
            Box::new(|w| w.cache.invalidate_all()),
            10,
        ),
        (
            "restore",
            true,
            Box::new(|w| {
                let other: C = Cache::new(5);
                other.insert(a(), 97);
                w.cache
                    .restore(other.snapshot(), wheelhouse::Restore::default());
            }),
            97,
        ),
        (
            "retain",
            false,
            Box::new(|w| w.cache.retain(|_, _| false)),
            10,
        ),
        (
            "replace_if",
            false,
            Box::new(|w| _ = w.cache.replace_if("a", 1, |_| true)),
            10,
        ),
        (
            "remove_if",
            false,
            Box::new(|w| _ = w.cache.remove_if("a", |_| true)),
            10,
        ),
        (
            "set_expiry",
            false,
            Box::new(|w| _ = w.cache.set_expiry("a", Some(SECOND))),
            10,
        ),
        ("get", false, Box::new(|w| _ = w.cache.get("a")), 10),
        (
            "another key",
            false,
            Box::new(|w| w.cache.insert("b".into(), 1)),
            10,
        ),
    ];
    for (name, revokes, write, gets) in rows {
        let w = world();
        let entry = w.cache.entry(a()).or_insert_with(|| {
            write(&w);
            10
        });
        assert_eq!(*entry.value(), gets, "{name}");
        let live = w.cache.peek_ref("a").map(|entry| *entry);
        if revokes {
            assert!(!entry.is_stored(), "{name}");
            assert_eq!(live, (gets != 10).then_some(gets), "{name}");
            assert_eq!(entry.is_fresh(), gets == 10, "{name}");
        } else {
            assert!(entry.is_stored() && entry.is_fresh(), "{name}");
            assert_eq!(live, Some(10), "{name}");
        }
        assert_eq!(
            w.cache.stats().loads_discarded(),
            u64::from(revokes),
            "{name}"
        );
        assert_eq!(
            w.heard(),
            [],
            "{name}: nothing for what was never in the cache"
        );
    }
}

#[test]
fn a_call_after_the_write_loads_anew() {
    let w = world();
    let value = w.cache.get_with(a(), || {
        w.cache.invalidate("a");
        thread::scope(|scope| {
            let later = scope.spawn(|| w.cache.get_with(a(), || 20));
            assert_eq!(
                later.join().unwrap(),
                20,
                "it does not wait for the revoked load"
            );
        });
        10
    });
    assert_eq!(
        value, 20,
        "a live entry is there now: everybody gets that value"
    );
    assert_eq!(w.cache.get("a"), Some(20));
}

#[test]
fn waiters_of_a_revoked_load_get_its_value_unstored() {
    let w = world();
    let cache = &w.cache;
    thread::scope(|scope| {
        let (begun, started) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let leader = scope.spawn(move || {
            cache.get_with(a(), || {
                begun.send(()).unwrap();
                gate.recv().unwrap();
                10
            })
        });
        started.recv().unwrap();
        let waiter = scope.spawn(move || cache.get_with(a(), || 11));
        until_waiting(cache, 1);
        cache.invalidate("a");
        go.send(()).unwrap();
        assert_eq!((leader.join().unwrap(), waiter.join().unwrap()), (10, 10));
        assert_eq!(cache.get("a"), None);
    });
    assert_eq!(w.heard(), []);
    assert_eq!(w.cache.entry_count(), 0);
}

/// Runs a failing leader with one waiter and gives both outcomes.
fn with_waiter<L, R>(
    cache: &C,
    lead: impl FnOnce(&dyn Fn()) -> L + Send,
    wait: impl FnOnce() -> R + Send,
) -> (thread::Result<L>, thread::Result<R>)
where
    L: Send,
    R: Send,
{
    thread::scope(|scope| {
        let (begun, started) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let leader = scope.spawn(move || {
            lead(&|| {
                begun.send(()).unwrap();
                gate.recv().unwrap();
            })
        });
        started.recv().unwrap();
        let before = cache.stats().load_waits();
        let waiter = scope.spawn(wait);
        until_waiting(cache, before + 1);
        go.send(()).unwrap();
        (leader.join(), waiter.join())
    })
}

#[test]
fn waiters_with_the_same_error_share_it_and_others_take_over() {
    let w = world();
    let cache = &w.cache;
    struct Bad;
    let (one, two) = with_waiter(
        cache,
        |hold| {
            cache.try_get_with(a(), || {
                hold();
                Err(Bad)
            })
        },
        || cache.try_get_with(a(), || Ok::<_, Bad>(1)),
    );
    let (Err(one), Err(two)) = (one.unwrap(), two.unwrap()) else {
        panic!("both failed")
    };
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(
        (cache.stats().loads(), cache.stats().load_failures()),
        (1, 1)
    );
    let (_, two) = with_waiter(
        cache,
        |hold| {
            cache.try_get_with(a(), || {
                hold();
                Err(Bad)
            })
        },
        || cache.try_get_with(a(), || Ok::<_, String>(2)),
    );
    assert_eq!(two.unwrap(), Ok(2), "another error type takes over");
    cache.invalidate("a");
    let (one, two) = with_waiter(
        cache,
        |hold| {
            cache.optionally_get_with(a(), || {
                hold();
                None
            })
        },
        || cache.optionally_get_with(a(), || Some(1)),
    );
    assert_eq!((one.unwrap(), two.unwrap()), (None, None), "None is shared");
    let (one, two) = with_waiter(
        cache,
        |hold| {
            cache.optionally_get_with(a(), || {
                hold();
                None
            })
        },
        || cache.get_with(a(), || 5),
    );
    assert_eq!(
        (one.unwrap(), two.unwrap()),
        (None, 5),
        "get_with takes over"
    );
}

#[test]
fn after_a_panic_or_a_dropped_lease_a_waiter_leads() {
    let w = world();
    let cache = &w.cache;
    let (one, two) = with_waiter(
        cache,
        |hold| {
            cache.get_with(a(), || -> u32 {
                hold();
                panic!("part of the test")
            })
        },
        || cache.get_with(a(), || 2),
    );
    assert!(message(one).contains("part of the test"));
    assert_eq!(two.unwrap(), 2);
    cache.invalidate("a");
    let (_, two) = with_waiter(
        cache,
        |hold| {
            let Leased::Lease(lease) = cache.lease(a()) else {
                panic!("absent")
            };
            hold();
            drop(lease);
        },
        || cache.get_with(a(), || 3),
    );
    assert_eq!(two.unwrap(), 3);
    cache.invalidate("a");
    // A future that is dropped in the middle.
    let (_, two) = with_waiter(
        cache,
        |hold| {
            let mut future = Box::pin(cache.get_with_async(a(), std::future::pending()));
            assert!(poll_once(future.as_mut()).is_pending());
            hold();
            drop(future);
        },
        || block_on(cache.get_with_async(a(), async { 4 })),
    );
    assert_eq!(two.unwrap(), 4);
}

#[test]
fn a_failed_lease_reaches_waiters_of_that_error() {
    let w = world();
    let cache = &w.cache;
    let (one, two) = with_waiter(
        cache,
        |hold| {
            let Leased::Lease(lease) = cache.lease(a()) else {
                panic!("absent")
            };
            hold();
            lease.fail("gone".to_owned())
        },
        || cache.try_get_with(a(), || Ok::<_, String>(1)),
    );
    let (one, two) = (one.unwrap(), two.unwrap().unwrap_err());
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(cache.get_with(a(), || 9), 9);
}

#[test]
fn waiters_lead_in_the_order_of_their_arrival() {
    let w = world();
    let order = Arc::new(Mutex::new(Vec::new()));
    let first = w.cache.lease(a());
    let mut waiters: Vec<_> = (0..5)
        .map(|n| {
            let order = order.clone();
            Some(Box::pin(w.cache.get_with_async(a(), async move {
                order.lock().unwrap().push(n);
                panic!("part of the test")
            })))
        })
        .collect();
    for n in [3, 1, 4, 0, 2] {
        // The order is that of the first poll.
        assert!(poll_once(waiters[n].as_mut().unwrap().as_mut()).is_pending());
    }
    drop(first);
    for _ in 0..5 {
        for slot in &mut waiters {
            // One that has panicked is not polled again.
            if let Some(mut waiter) = slot.take() {
                let polled = catch_unwind(AssertUnwindSafe(|| poll_once(waiter.as_mut())));
                *slot = polled.is_ok().then_some(waiter);
            }
        }
    }
    assert_eq!(*order.lock().unwrap(), [3, 1, 4, 0, 2]);
    drop(waiters);
    assert_eq!(w.cache.get_with(a(), || 1), 1);
}

#[test]
fn a_panic_in_the_policy_the_weigher_or_clone_leaves_the_key_usable() {
    #[derive(Debug)]
    struct Trap(u32, Arc<AtomicBool>);
    impl Clone for Trap {
        fn clone(&self) -> Self {
            assert!(!self.1.load(SeqCst), "clone");
            Trap(self.0, self.1.clone())
        }
    }
    struct Life(Arc<AtomicBool>);
    impl Expiry<u32, Trap> for Life {
        fn expire_after_create(&self, _: &u32, _: &Trap, _: Instant) -> Option<Duration> {
            assert!(!self.0.load(SeqCst), "policy");
            None
        }
    }
    let traps: [Arc<AtomicBool>; 3] = Default::default();
    let weighing = traps[1].clone();
    let cache: Cache<u32, Trap> = Cache::builder()
        .max_capacity(100)
        .expire_after(Life(traps[0].clone()))
        .weigher(move |_, _| {
            assert!(!weighing.load(SeqCst), "weigher");
            1
        })
        .build();
    for (n, trap) in traps.iter().enumerate() {
        let key = n as u32;
        trap.store(true, SeqCst);
        let calls: [&dyn Fn(); 4] = [
            &|| _ = cache.get_with(key, || Trap(1, traps[2].clone())),
            &|| {
                _ = cache
                    .entry(key)
                    .and_upsert_with(|_| Trap(1, traps[2].clone()))
            },
            &|| _ = block_on(cache.get_with_async(key, async { Trap(1, traps[2].clone()) })),
            &|| {
                if let Leased::Lease(lease) = cache.lease(key) {
                    lease.fill(Trap(1, traps[2].clone()));
                }
            },
        ];
        for call in calls {
            _ = catch_unwind(AssertUnwindSafe(call));
        }
        trap.store(false, SeqCst);
        cache.invalidate(&key);
        assert_eq!(cache.get_with(key, || Trap(2, traps[2].clone())).0, 2);
        assert_eq!(cache.get(&key).unwrap().0, 2);
    }
}

#[test]
fn a_load_of_its_own_key_panics_and_names_the_cache() {
    let w = world();
    let c = &w.cache;
    type Call<'a> = Box<dyn Fn() + 'a>;
    let inner: Vec<(&str, Call<'_>)> = vec![
        ("get_with", Box::new(|| _ = c.get_with(a(), || 1))),
        (
            "optionally",
            Box::new(|| _ = c.optionally_get_with(a(), || None)),
        ),
        (
            "try",
            Box::new(|| _ = c.try_get_with(a(), || Err::<u32, _>(()))),
        ),
        (
            "upsert",
            Box::new(|| _ = c.entry(a()).and_upsert_with(|_| 1)),
        ),
        (
            "compute",
            Box::new(|| _ = c.entry(a()).and_compute_with(|_| Op::Nop)),
        ),
        ("lease", Box::new(|| drop(c.lease(a())))),
        (
            "all",
            Box::new(|| _ = c.get_all_with([a()], |_| Err::<Vec<_>, _>(()))),
        ),
    ];
    for (name, inner) in &inner {
        let outer = catch_unwind(AssertUnwindSafe(|| {
            c.get_with(a(), || {
                inner();
                1
            })
        }));
        let text = message(outer);
        assert!(text.contains("world"), "{name}: {text}");
        assert_eq!(c.get_with(a(), || 5), 5, "{name}: the key stays usable");
        c.invalidate("a");
        // Without waiting there is nothing to panic for.
        c.get_with(a(), || {
            assert!(matches!(c.lease_timeout(a(), SECOND), Leased::Busy));
            assert!(matches!(c.lease_timeout(a(), Duration::ZERO), Leased::Busy));
            1
        });
        c.invalidate("a");
    }
    let recursion = catch_unwind(AssertUnwindSafe(|| {
        block_on(c.get_with_async(a(), async { c.get_with_async(a(), async { 1 }).await }))
    }));
    assert!(message(recursion).contains("world"));
    assert_eq!(c.get_with(a(), || 5), 5);
}

#[test]
fn a_ring_of_two_keys_in_two_threads_and_two_caches_ends_in_a_panic() {
    let (one, two) = (world(), world());
    let both = Barrier::new(2);
    let outcomes: Vec<thread::Result<u32>> = thread::scope(|scope| {
        let first = scope.spawn(|| {
            one.cache.get_with(a(), || {
                both.wait();
                two.cache.get_with(a(), || 1)
            })
        });
        let second = scope.spawn(|| {
            two.cache.get_with(a(), || {
                both.wait();
                one.cache.get_with(a(), || 2)
            })
        });
        vec![first.join(), second.join()]
    });
    assert!(
        outcomes.iter().any(Result::is_err),
        "one of the two is told"
    );
    for w in [&one, &two] {
        w.cache.invalidate("a");
        assert_eq!(w.cache.get_with(a(), || 3), 3);
    }
}

#[test]
fn an_overdue_load_is_replaced_by_a_newcomer() {
    let ticker = ManualTicker::new();
    let cache: C = Cache::builder()
        .load_timeout(5 * SECOND)
        .ticker(ticker.clone())
        .build();
    let Leased::Lease(old) = cache.lease(a()) else {
        panic!("absent")
    };
    ticker.advance(5 * SECOND - Duration::from_nanos(1));
    assert!(matches!(
        cache.lease_timeout(a(), Duration::ZERO),
        Leased::Busy
    ));
    ticker.advance(2 * SECOND);
    assert_eq!(cache.get_with(a(), || 2), 2);
    assert!(!old.is_current());
    match old.fill(1) {
        Filled::Lost { current, yours } => assert_eq!((current, yours), (2, 1)),
        Filled::Stored => panic!("stored"),
        Filled::Revoked(value) => panic!("revoked {value}"),
    }
    assert_eq!(cache.get("a"), Some(2));
    // A late result is stored if nothing replaced the load.
    cache.invalidate("a");
    let Leased::Lease(late) = cache.lease(a()) else {
        panic!("absent")
    };
    ticker.advance(100 * SECOND);
    assert!(matches!(late.fill(3), Filled::Stored));
    assert_eq!(cache.get("a"), Some(3));
}

#[test]
fn with_a_scheduler_waiters_of_an_overdue_load_move_on() {
    let cache: C = Cache::builder()
        .load_timeout(Duration::from_millis(50))
        .scheduler(Scheduler::background())
        .record_stats()
        .build();
    let Leased::Lease(_stuck) = cache.lease(a()) else {
        panic!("absent")
    };
    assert_eq!(cache.get_with(a(), || 4), 4, "a thread moves on");
    cache.invalidate("a");
    let Leased::Lease(_stuck) = cache.lease(a()) else {
        panic!("absent")
    };
    assert_eq!(
        block_on(cache.get_with_async(a(), async { 5 })),
        5,
        "so does a task"
    );
}

#[test]
fn what_became_of_a_lease() {
    let w = world();
    let lease = || match w.cache.lease_timeout(a(), Duration::ZERO) {
        Leased::Lease(lease) => lease,
        _ => panic!("absent"),
    };
    let revoked = lease();
    w.cache.invalidate("a");
    assert!(!revoked.is_current());
    assert!(matches!(revoked.fill(1), Filled::Revoked(1)));
    let lost = lease();
    w.cache.insert(a(), 2);
    assert!(matches!(
        lost.fill(1),
        Filled::Lost {
            current: 2,
            yours: 1
        }
    ));
    w.cache.invalidate("a");
    // A lease outlives its thread and its handle.
    let moved = lease();
    let handle = w.cache.clone();
    thread::spawn(move || {
        drop(handle);
        assert!(matches!(moved.fill(3), Filled::Stored));
    })
    .join()
    .unwrap();
    assert_eq!(w.cache.get("a"), Some(3));
    let only: C = Cache::new(4);
    let Leased::Lease(orphan) = only.lease(a()) else {
        panic!("absent")
    };
    drop(only);
    assert!(
        matches!(orphan.fill(1), Filled::Revoked(1)),
        "nothing stored"
    );
}

/// Each row: what is there, what the closure does, the result, and what is there afterwards.
#[test]
fn a_compute_that_nothing_disturbs_does_what_its_op_says() {
    let run = |before: Option<u32>, op: Op<u32>| {
        let w = world();
        if let Some(value) = before {
            w.cache.insert(a(), value);
        }
        let result = w.cache.entry(a()).and_compute_with(|old| {
            assert_eq!(old.map(Entry::into_value), before);
            assert_eq!(w.cache.get("a"), before, "get sees the old value meanwhile");
            op
        });
        let text = match result {
            CompResult::Inserted(e) => format!("Inserted {} {}", e.value(), e.is_stored()),
            CompResult::ReplacedWith(e) => {
                format!("Replaced {} {}", e.value(), e.is_old_value_replaced())
            }
            CompResult::Removed(e) => format!("Removed {}", e.value()),
            CompResult::Unchanged(e) => format!("Unchanged {}", e.value()),
            CompResult::StillNone(key) => format!("None {key}"),
            CompResult::Overtaken(value) => format!("Overtaken {value:?}"),
        };
        let left = w.cache.peek_ref("a").map(|entry| entry.time_left());
        (
            text,
            w.cache.get("a"),
            left,
            w.heard().into_iter().map(|gone| gone.2).next(),
        )
    };
    use RemovalCause::{Explicit, Replaced};
    let row = |text: &str, value, left, cause| (text.to_owned(), value, left, cause);
    assert_eq!(run(None, Op::Nop), row("None a", None, None, None));
    assert_eq!(run(None, Op::Remove), row("None a", None, None, None));
    assert_eq!(
        run(None, Op::Put(1)),
        row("Inserted 1 true", Some(1), Some(None), None)
    );
    let ttl = Some(Some(SECOND));
    assert_eq!(
        run(None, Op::PutWithTtl(1, SECOND)),
        row("Inserted 1 true", Some(1), ttl, None)
    );
    assert_eq!(
        run(Some(5), Op::Nop),
        row("Unchanged 5", Some(5), Some(None), None)
    );
    assert_eq!(
        run(Some(5), Op::Remove),
        row("Removed 5", None, None, Some(Explicit))
    );
    let replaced = row("Replaced 1 true", Some(1), Some(None), Some(Replaced));
    assert_eq!(run(Some(5), Op::Put(1)), replaced);
    let replaced = row("Replaced 1 true", Some(1), ttl, Some(Replaced));
    assert_eq!(run(Some(5), Op::PutWithTtl(1, SECOND)), replaced);
}

#[test]
fn a_compute_that_something_disturbs_tells_the_truth() {
    type Meanwhile = fn(&World);
    let put: fn() -> Op<u32> = || Op::Put(1);
    let remove: fn() -> Op<u32> = || Op::Remove;
    let nop: fn() -> Op<u32> = || Op::Nop;
    let insert: Meanwhile = |w| w.cache.insert(a(), 99);
    let invalidate: Meanwhile = |w| w.cache.invalidate("a");
    let take: Meanwhile = |w| assert_eq!(w.cache.remove("a"), Some(5));
    let expire: Meanwhile = |w| {
        w.cache.set_expiry("a", Some(Duration::ZERO));
    };
    let expire_and_sweep: Meanwhile = |w| {
        w.cache.set_expiry("a", Some(Duration::ZERO));
        w.ticker.advance(5 * SECOND);
        w.cache.run_pending_tasks();
    };
    // meanwhile, op, the result, stored?, what is there at the end
    let rows: Vec<(&str, Meanwhile, fn() -> Op<u32>, &str, Option<u32>)> = vec![
        ("insert, put", insert, put, "ReplacedWith 1 false", Some(99)),
        (
            "invalidate, put",
            invalidate,
            put,
            "ReplacedWith 1 false",
            None,
        ),
        ("insert, remove", insert, remove, "Overtaken None", Some(99)),
        (
            "invalidate, remove",
            invalidate,
            remove,
            "Overtaken None",
            None,
        ),
        ("take, put", take, put, "Overtaken Some(1)", None),
        ("take, remove", take, remove, "Overtaken None", None),
        ("take, nop", take, nop, "Unchanged 5", None),
        ("insert, nop", insert, nop, "Unchanged 5", Some(99)),
        ("invalidate, nop", invalidate, nop, "Unchanged 5", None),
        ("expire, put", expire, put, "Inserted 1 true", Some(1)),
        ("expire, remove", expire, remove, "StillNone", None),
        (
            "sweep, put",
            expire_and_sweep,
            put,
            "Inserted 1 true",
            Some(1),
        ),
        ("sweep, remove", expire_and_sweep, remove, "StillNone", None),
    ];
    for (name, meanwhile, op, expected, end) in rows {
        let w = world();
        w.cache.insert(a(), 5);
        let result = w.cache.entry(a()).and_compute_with(|old| {
            assert_eq!(old.map(Entry::into_value), Some(5));
            meanwhile(&w);
            op()
        });
        let text = match result {
            CompResult::Inserted(e) => format!("Inserted {} {}", e.value(), e.is_stored()),
            CompResult::ReplacedWith(e) => format!("ReplacedWith {} {}", e.value(), e.is_stored()),
            CompResult::Removed(e) => format!("Removed {}", e.value()),
            CompResult::Unchanged(e) => format!("Unchanged {}", e.value()),
            CompResult::StillNone(_) => "StillNone".to_owned(),
            CompResult::Overtaken(value) => format!("Overtaken {value:?}"),
        };
        assert_eq!(text, expected, "{name}");
        assert_eq!(w.cache.get("a"), end, "{name}");
        let heard = w.heard();
        assert_eq!(
            heard.len(),
            1,
            "{name}: 5 left once, and nothing else did: {heard:?}"
        );
        assert_eq!(heard[0].1, 5, "{name}");
    }
}

#[test]
fn a_compute_over_an_absent_key_that_something_disturbs() {
    let w = world();
    let insert = |op: fn() -> Op<u32>| {
        w.cache.invalidate("a");
        w.cache.entry(a()).and_compute_with(|old| {
            assert!(old.is_none());
            w.cache.insert(a(), 99);
            op()
        })
    };
    match insert(|| Op::Put(1)) {
        CompResult::Inserted(e) => assert_eq!((*e.value(), e.is_stored()), (1, false)),
        _ => panic!("just before the insert"),
    }
    assert_eq!(w.cache.get("a"), Some(99));
    assert!(matches!(insert(|| Op::Nop), CompResult::StillNone(_)));
    match insert(|| Op::Remove) {
        CompResult::StillNone(_) | CompResult::Overtaken(None) => {}
        _ => panic!("it removed nothing"),
    }
    assert_eq!(w.cache.get("a"), Some(99));
}

#[test]
fn computes_take_turns_and_lose_no_count() {
    let w = world();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    w.cache
                        .entry(a())
                        .and_upsert_with(|old| old.map_or(0, Entry::into_value) + 1);
                }
            });
        }
    });
    assert_eq!(w.cache.get("a"), Some(4_000));
}

#[test]
fn a_compute_that_should_not_wait_does_not() {
    let w = world();
    let no = |_: Option<Entry<String, u32>>| -> Result<Op<u32>, ()> { panic!("called") };
    w.cache.get_with(a(), || {
        let result = w.cache.entry(a()).and_try_compute_if_nobody_else(no);
        assert!(matches!(result, Ok(CompResult::StillNone(_))));
        1
    });
    w.cache.entry(a()).and_upsert_with(|_| {
        let result = w.cache.entry(a()).and_try_compute_if_nobody_else(no);
        assert!(matches!(result, Ok(CompResult::Unchanged(e)) if *e.value() == 1));
        2
    });
    let alone = w
        .cache
        .entry(a())
        .and_try_compute_if_nobody_else(|_| Ok::<_, ()>(Op::Put(3)))
        .unwrap();
    assert!(matches!(alone, CompResult::ReplacedWith(_)));
    // An error changes nothing.
    assert!(w.cache.entry(a()).and_try_compute_with(|_| Err(1)).is_err());
    assert_eq!(w.cache.get("a"), Some(3));
}

#[test]
fn insert_if_replaces_what_it_is_told_to() {
    let w = world();
    let fresh = w
        .cache
        .entry(a())
        .or_insert_with_if(|| 1, |_| panic!("absent"));
    assert!(fresh.is_fresh() && !fresh.is_old_value_replaced());
    let kept = w
        .cache
        .entry(a())
        .or_insert_with_if(|| panic!("run"), |old| *old == 9);
    assert!(!kept.is_fresh());
    assert_eq!(kept.into_value(), 1);
    let replaced = w.cache.entry(a()).or_insert_with_if(|| 2, |old| *old == 1);
    assert!(replaced.is_fresh() && replaced.is_old_value_replaced());
    assert_eq!(w.cache.get("a"), Some(2));
    assert_eq!(w.heard(), [(a(), 1, RemovalCause::Replaced)]);
}

#[test]
fn compare_and_set_and_compare_and_remove() {
    let w = world();
    assert_eq!(
        w.cache.replace_if("a", 1, |_| true),
        Err(1),
        "absent: the value comes back"
    );
    w.cache.insert(a(), 1);
    assert_eq!(w.cache.replace_if("a", 2, |old| *old == 7), Err(2));
    assert_eq!(w.cache.replace_if("a", 2, |old| *old == 1), Ok(()));
    assert_eq!(w.cache.remove_if("a", |old| *old == 1), None);
    assert_eq!(w.cache.remove_if("a", |old| *old == 2), Some(2));
    let expected = [
        (a(), 1, RemovalCause::Replaced),
        (a(), 2, RemovalCause::Explicit),
    ];
    assert_eq!(w.heard(), expected);
    w.cache.insert_with_ttl(a(), 3, SECOND);
    w.ticker.advance(SECOND);
    assert_eq!(
        w.cache.replace_if("a", 4, |_| true),
        Err(4),
        "due is absent"
    );
    assert_eq!(w.cache.remove_if("a", |_| true), None);
    assert_eq!(w.heard(), [(a(), 3, RemovalCause::Expired)]);
    // Eight threads count by compare and set.
    w.cache.insert(a(), 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    loop {
                        let seen = w.cache.get("a").unwrap();
                        if w.cache
                            .replace_if("a", seen + 1, |now| *now == seen)
                            .is_ok()
                        {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(w.cache.get("a"), Some(800));
}

#[test]
fn a_bulk_call_folds_loads_once_and_keeps_the_order() {
    let w = world();
    w.cache.insert("hit".into(), 1);
    let runs = Cell::new(0);
    let keys = ["x", "hit", "y", "x", "none"].map(String::from);
    let got = w.cache.get_all_with(keys, |keys| {
        runs.set(runs.get() + 1);
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, ["none", "x", "y"]);
        Ok::<_, ()>(
            keys.iter()
                .map(|k| (k != "none").then(|| 10 + k.len() as u32))
                .collect(),
        )
    });
    assert_eq!(got, Ok(vec![Some(11), Some(1), Some(11), Some(11), None]));
    assert_eq!(runs.get(), 1);
    assert_eq!(w.cache.entry_count(), 3);
    let nothing: [String; 0] = [];
    let got = w
        .cache
        .get_all_with(nothing, |_| -> Result<Vec<Option<u32>>, ()> {
            panic!("run")
        });
    assert_eq!(got, Ok(vec![]));
}

#[test]
fn a_bulk_call_with_a_wrong_length_panics_and_names_both() {
    let w = world();
    let keys = || (0..3).map(|n| n.to_string());
    let result = catch_unwind(AssertUnwindSafe(|| {
        w.cache
            .get_all_with(keys(), |_| Ok::<_, ()>(vec![Some(1); 7]))
    }));
    let text = message(result);
    assert!(text.contains('3') && text.contains('7'), "{text}");
    assert_eq!(w.cache.entry_count(), 0);
    let got = w
        .cache
        .get_all_with(keys(), |k| Ok::<_, ()>(vec![Some(1); k.len()]));
    assert_eq!(got, Ok(vec![Some(1); 3]));
    w.cache.invalidate_all();
    let failed = w.cache.get_all_with(keys(), |_| Err("down"));
    assert_eq!(*failed.unwrap_err(), "down");
    assert_eq!(
        w.cache.get_with("0".into(), || 8),
        8,
        "no right is left behind"
    );
}

#[test]
fn overlapping_bulk_calls_do_not_wait_in_a_ring() {
    let w = world();
    let total = AtomicUsize::new(0);
    thread::scope(|scope| {
        for n in 0..4_usize {
            let (cache, total) = (&w.cache, &total);
            scope.spawn(move || {
                for round in 0..50 {
                    // Every thread names the same keys, each in another order.
                    let keys = (0..8).map(|k| format!("{round}/{}", (k * (2 * n + 1) + n) % 8));
                    let got = cache.get_all_with(keys, |keys| {
                        total.fetch_add(keys.len(), SeqCst);
                        thread::yield_now();
                        Ok::<_, ()>(vec![Some(1); keys.len()])
                    });
                    assert_eq!(got, Ok(vec![Some(1); 8]));
                }
            });
        }
    });
    assert_eq!(total.load(SeqCst), 400, "each key once");
}

#[test]
fn the_last_handle_may_go_during_a_load() {
    let (tell, told) = mpsc::channel();
    let cache: C = Cache::builder().build();
    let slot = Arc::new(Mutex::new(Some(cache.clone())));
    let thread = thread::spawn(move || {
        let value = cache.get_with(a(), || {
            tell.send(()).unwrap();
            6
        });
        drop(cache);
        value
    });
    told.recv_timeout(GENEROUS).unwrap();
    slot.lock().unwrap().take();
    assert_eq!(thread.join().unwrap(), 6);
}

#[test]
fn statistics_of_loads() {
    let w = world();
    let c = &w.cache;
    c.get_with(a(), || 1);
    _ = c.try_get_with("b".into(), || Err::<u32, _>(()));
    _ = c.optionally_get_with("c".into(), || None);
    _ = catch_unwind(AssertUnwindSafe(|| {
        c.get_with("d".into(), || panic!("part of the test"))
    }));
    c.get_with("e".into(), || {
        c.invalidate("e");
        1
    });
    let stats = c.stats();
    assert_eq!(stats.loads(), 5, "loads begun, failed ones included");
    assert!(stats.load_failures() >= 2, "{}", stats.load_failures());
    assert_eq!(stats.loads_discarded(), 1);
    assert_eq!(
        (stats.hits(), stats.misses(), stats.load_waits()),
        (0, 5, 0)
    );
    assert_eq!((stats.reloads(), stats.reload_failures()), (0, 0));
    assert_eq!(stats.load_time(), Duration::ZERO);
}

#[test]
fn a_result_gives_its_entry() {
    let c: C = Cache::new(10);
    let compute = |op: Op<u32>| c.entry(a()).and_compute_with(|_| op);
    assert!(compute(Op::Nop).into_entry().is_none());
    assert_eq!(
        compute(Op::Put(1)).into_entry().map(Entry::into_value),
        Some(1)
    );
    assert_eq!(compute(Op::Put(2)).unwrap().into_value(), 2);
    assert_eq!(compute(Op::Nop).unwrap().into_value(), 2);
    assert_eq!(compute(Op::Remove).unwrap().into_value(), 2);
    let text = message(catch_unwind(AssertUnwindSafe(|| compute(Op::Nop).unwrap())));
    assert!(text.contains("StillNone"), "{text}");
    c.insert(a(), 5);
    let overtaken = c.entry(a()).and_compute_with(|_| {
        c.remove("a");
        Op::Put(6)
    });
    let text = message(catch_unwind(AssertUnwindSafe(|| overtaken.unwrap())));
    assert!(text.contains("Overtaken"), "{text}");
}
