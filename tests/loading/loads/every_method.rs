//! What holds for every method that loads, checked for each of them: what a hit and a miss count,
//! how a due entry leaves, that no pin is held, and from which code they may be called.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::{HOUR, NS, must_end, secs};
use wheelhouse::compute::{CompResult, Op};
use wheelhouse::{
    Cache, CacheBuilder, Expiry, Filled, Leased, LoadingCache, ManualTicker, RemovalCause, Restore,
    Scheduler, loader_fn,
};

type C = Cache<u32, u32>;
type Call = (&'static str, fn(&C));

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The output of a future that has nothing to wait for.
fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it has nothing to wait for"),
    }
}

fn world(
    with: impl FnOnce(CacheBuilder<u32, u32>) -> CacheBuilder<u32, u32>,
) -> (C, ManualTicker, Record<u32, u32>) {
    let (ticker, heard) = (ManualTicker::new(), Record::new());
    let builder = Cache::builder()
        .record_stats()
        .ticker(ticker.clone())
        .removal_listener(heard.listener());
    (with(builder).build(), ticker, heard)
}

/// Code of a load that must not run.
fn never<T>() -> T {
    panic!("a hit runs no code of a load");
}

#[test]
fn a_hit_is_one_get() {
    struct Asked(Arc<AtomicUsize>);
    impl Expiry<u32, u32> for Asked {
        fn expire_after_read(
            &self,
            _: &u32,
            _: &u32,
            _: Instant,
            left: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            self.0.fetch_add(1, SeqCst);
            left
        }
    }
    let calls: Vec<Call> = vec![
        ("get", |c| assert_eq!(c.get(&1), Some(5))),
        ("get_with", |c| assert_eq!(c.get_with(1, never), 5)),
        ("get_with_by_ref", |c| {
            assert_eq!(c.get_with_by_ref(&1, never), 5)
        }),
        ("optionally_get_with", |c| {
            assert_eq!(c.optionally_get_with(1, never), Some(5))
        }),
        ("optionally_get_with_by_ref", |c| {
            assert_eq!(c.optionally_get_with_by_ref(&1, never), Some(5))
        }),
        ("try_get_with", |c| {
            assert_eq!(c.try_get_with::<()>(1, never), Ok(5))
        }),
        ("try_get_with_by_ref", |c| {
            assert_eq!(c.try_get_with_by_ref(&1, never::<Result<u32, ()>>), Ok(5))
        }),
        ("get_with_async", |c| {
            assert_eq!(ready(c.get_with_async(1, async { never() })), 5)
        }),
        ("optionally_get_with_by_ref_async", |c| {
            let call = c.optionally_get_with_by_ref_async(&1, async { never() });
            assert_eq!(ready(call), Some(5))
        }),
        ("try_get_with_async", |c| {
            let call = c.try_get_with_async(1, async { never::<Result<u32, ()>>() });
            assert_eq!(ready(call), Ok(5))
        }),
        ("or_default", |c| {
            assert_eq!(c.entry(1).or_default().into_value(), 5)
        }),
        ("or_insert", |c| {
            assert_eq!(c.entry(1).or_insert(9).into_value(), 5)
        }),
        ("or_insert_with", |c| {
            assert_eq!(c.entry(1).or_insert_with(never).into_value(), 5)
        }),
        ("or_insert_with_ttl", |c| {
            assert_eq!(c.entry_by_ref(&1).or_insert_with_ttl(never).into_value(), 5)
        }),
        ("or_insert_with_if", |c| {
            let entry = c.entry(1).or_insert_with_if(never, |_| false);
            assert_eq!(entry.into_value(), 5)
        }),
        ("or_optionally_insert_with", |c| {
            let entry = c.entry(1).or_optionally_insert_with(never);
            assert_eq!(entry.unwrap().into_value(), 5)
        }),
        ("or_try_insert_with", |c| {
            let entry = c.entry(1).or_try_insert_with(never::<Result<u32, ()>>);
            assert_eq!(entry.unwrap().into_value(), 5)
        }),
        ("or_insert_with_async", |c| {
            let call = c.entry(1).or_insert_with_async(|| async { never() });
            assert_eq!(ready(call).into_value(), 5)
        }),
        ("get_all_with", |c| {
            let all = c.get_all_with([1, 1], |_| never::<Result<_, ()>>());
            assert_eq!(all, Ok(vec![Some(5); 2]))
        }),
        ("get_all_with_async", |c| {
            let all = c.get_all_with_async([1], |_| async { never::<Result<_, ()>>() });
            assert_eq!(ready(all), Ok(vec![Some(5)]))
        }),
        ("lease", |c| assert!(matches!(c.lease(1), Leased::Found(5)))),
        ("lease_timeout", |c| {
            let leased = c.lease_timeout(1, Duration::ZERO);
            assert!(matches!(leased, Leased::Found(5)))
        }),
        ("lease_async", |c| {
            assert!(matches!(ready(c.lease_async(1)), Leased::Found(5)))
        }),
    ];
    for (name, call) in calls {
        let asked = Arc::new(AtomicUsize::new(0));
        let (cache, ..) = world(|b| b.expire_after(Asked(Arc::clone(&asked))));
        cache.insert(1, 5);
        let before = cache.stats();
        call(&cache);
        let stats = cache.stats() - before;
        let counts = [
            stats.hits(),
            stats.misses(),
            stats.loads(),
            stats.load_waits(),
        ];
        assert_eq!(counts, [1, 0, 0, 0], "{name}");
        assert_eq!(asked.load(SeqCst), 1, "{name}: one read callback");
    }
}

#[test]
fn a_miss_is_one_miss_and_one_load() {
    let calls: Vec<Call> = vec![
        ("get_with", |c| _ = c.get_with(1, || 1)),
        ("optionally_get_with", |c| {
            _ = c.optionally_get_with_by_ref(&1, || None)
        }),
        ("try_get_with", |c| _ = c.try_get_with(1, || Err(()))),
        ("get_with_async", |c| {
            _ = ready(c.get_with_async(1, async { 1 }))
        }),
        ("or_insert", |c| _ = c.entry(1).or_insert(9)),
        ("or_insert_with_ttl", |c| {
            _ = c.entry_by_ref(&1).or_insert_with_ttl(|| (1, HOUR))
        }),
        ("or_insert_with_if", |c| {
            _ = c.entry(1).or_insert_with_if(|| 1, |_| false)
        }),
        ("get_all_with", |c| {
            _ = c.get_all_with([1, 1], |_| Ok::<_, ()>(vec![Some(1)]))
        }),
        ("lease", |c| _ = c.lease(1)),
        ("lease_timeout", |c| _ = c.lease_timeout(1, Duration::ZERO)),
        ("lease_async", |c| _ = ready(c.lease_async(1))),
    ];
    for (name, call) in calls {
        let (cache, ..) = world(|b| b);
        call(&cache);
        let stats = cache.stats();
        let counts = [
            stats.hits(),
            stats.misses(),
            stats.loads(),
            stats.load_waits(),
        ];
        assert_eq!(counts, [0, 1, 1, 0], "{name}");
    }
}

/// A due entry leaves as `Expired` before anything else is heard, however the load ends.
#[test]
fn a_due_entry_leaves_first() {
    let calls: Vec<Call> = vec![
        ("a value", |c| _ = c.get_with(1, || 6)),
        ("an error", |c| _ = c.try_get_with(1, || Err(()))),
        ("no value", |c| _ = c.optionally_get_with(1, || None)),
        ("a panic", |c| {
            let load = || c.get_with(1, || resume_unwind(Box::new(())));
            assert!(catch_unwind(AssertUnwindSafe(load)).is_err())
        }),
        ("a dropped lease", |c| drop(c.lease(1))),
        ("a dropped lease, not waited for", |c| {
            drop(c.lease_timeout(1, Duration::ZERO))
        }),
        ("an error of several", |c| {
            _ = c.get_all_with([1], |_| Err::<Vec<_>, _>(()))
        }),
        ("a dropped future", |c| {
            assert!(poll(pin!(c.get_with_async(1, pending()))).is_pending())
        }),
        ("an upsert", |c| {
            let entry = c.entry(1).and_upsert_with(|old| {
                assert!(old.is_none());
                6
            });
            assert!(!entry.is_old_value_replaced())
        }),
        ("or_insert_with_if", |c| {
            let asked = |_: &u32| panic!("asked about a due entry");
            _ = c.entry(1).or_insert_with_if(|| 6, asked)
        }),
        ("Nop", |c| {
            let result = c.entry(1).and_compute_with(|_| Op::Nop);
            assert!(matches!(result, CompResult::StillNone(1)))
        }),
        ("Remove", |c| {
            let result = c.entry(1).and_compute_with(|_| Op::Remove);
            assert!(matches!(result, CompResult::StillNone(1)))
        }),
        ("a failed compute", |c| {
            _ = c.entry(1).and_try_compute_with(|_| Err(()))
        }),
    ];
    for (name, call) in calls {
        let (cache, ticker, heard) = world(|b| b);
        cache.insert_with_ttl(1, 5, secs(1));
        ticker.advance(secs(1));
        call(&cache);
        let stored = cache.remove(&1);
        cache.run_pending_tasks();
        let mut expected = vec![(1, 5, RemovalCause::Expired)];
        expected.extend(stored.map(|value| (1, value, RemovalCause::Explicit)));
        assert_eq!(heard.take(), expected, "{name}");
    }
}

/// Capacity 0, a life of 0, too heavy: each method returns the value, and those that return an
/// entry say that it is not stored.
#[test]
fn what_cannot_be_kept_is_returned_and_not_stored() {
    struct NoLife;
    impl Expiry<u32, u32> for NoLife {
        fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
            Some(Duration::ZERO)
        }
    }
    type With = fn(CacheBuilder<u32, u32>) -> CacheBuilder<u32, u32>;
    let kinds: [(&str, With, RemovalCause); 3] = [
        ("capacity 0", |b| b.max_capacity(0), RemovalCause::Size),
        (
            "a life of 0",
            |b| b.expire_after(NoLife),
            RemovalCause::Expired,
        ),
        (
            "too heavy",
            |b| b.max_capacity(10).weigher(|_, _| 11),
            RemovalCause::Size,
        ),
    ];
    for (name, with, cause) in kinds {
        let (cache, _, heard) = world(with);
        let computed = cache.entry(1).and_compute_with(|_| Op::Put(5));
        assert!(matches!(computed, CompResult::Inserted(_)), "{name}");
        let entries = [
            cache.entry(1).or_insert(5),
            cache.entry(1).or_insert_with(|| 5),
            cache.entry(1).or_insert_with_if(|| 5, never_asked),
            cache.entry(1).and_upsert_with(|_| 5),
            ready(cache.entry(1).or_insert_with_async(|| async { 5 })),
            computed.unwrap(),
        ];
        for entry in entries {
            let says = (*entry.value(), entry.is_fresh(), entry.is_stored());
            assert_eq!(says, (5, true, false), "{name}");
        }
        assert_eq!(cache.get_with(1, || 5), 5, "{name}");
        let all = cache.get_all_with([1, 2], |keys| Ok::<_, ()>(vec![Some(5); keys.len()]));
        assert_eq!(all, Ok(vec![Some(5); 2]), "{name}");
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0, "{name}");
        let told = heard.take();
        assert_eq!(told.len(), 9, "{name}: once for each value");
        assert!(told.iter().all(|told| told.2 == cause), "{name}: {told:?}");
    }
}

fn never_asked(_: &u32) -> bool {
    panic!("asked about an absent entry");
}

/// What a call removes while its own code runs is freed meanwhile: no pin holds it.
#[test]
fn no_pin_is_held_while_user_code_runs() {
    type Tokens = Cache<u64, Arc<u64>>;
    fn frees(cache: &Tokens) {
        let token = Arc::new(0);
        cache.insert(50, Arc::clone(&token));
        cache.insert(51, Arc::clone(&token));
        cache.invalidate(&50);
        cache.remove(&51);
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!(Arc::strong_count(&token), 1);
    }
    let cache: Tokens = Cache::builder().scheduler(Scheduler::disabled()).build();
    let c = &cache;
    let token = || {
        frees(c);
        Arc::new(0)
    };
    c.get_with(1, token);
    _ = c.optionally_get_with(2, || Some(token()));
    _ = c.try_get_with(3, || Err::<Arc<u64>, _>(token()));
    ready(c.get_with_async(4, async { token() }));
    _ = c.get_all_with([5, 6], |keys| {
        frees(c);
        Ok::<_, ()>(vec![None; keys.len()])
    });
    c.entry(1).and_compute_with(|old| {
        assert!(old.is_some());
        frees(c);
        Op::Nop
    });
    c.entry(1).and_upsert_with(|_| token());
    ready(c.entry(1).and_compute_with_async(|_| async {
        frees(c);
        Op::Remove
    }));
    c.entry(7).or_insert_with_ttl(|| (token(), HOUR));
    c.entry(7).or_insert_with_if(token, |_| true);
    // Nor by what a caller keeps for long: a selector, a lease, a task, an owned entry.
    let kept = (c.entry(1), c.lease(8));
    let mut task = pin!(c.get_with_async(9, pending()));
    assert!(poll(task.as_mut()).is_pending());
    let mut compute = pin!(c.entry(10).and_compute_with_async(|_| pending()));
    assert!(poll(compute.as_mut()).is_pending());
    let entry = c.entry(11).or_insert_with(|| Arc::new(0));
    frees(c);
    drop((kept, entry));
}

#[test]
fn a_task_that_asks_for_its_own_key_within_one_poll_is_refused() {
    must_end(|| {
        let cache: C = Cache::builder().name("tasks").build();
        let c = &cache;
        type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
        fn task<'a, T>(future: impl Future<Output = T> + 'a) -> Task<'a> {
            Box::pin(async move { _ = future.await })
        }
        let rows: Vec<(&str, Task<'_>)> = vec![
            (
                "try in optionally",
                task(c.optionally_get_with_async(1, async {
                    let inner = c.try_get_with_async(1, async { Ok::<_, ()>(2) });
                    inner.await.ok()
                })),
            ),
            (
                "entry in entry",
                task(c.entry(1).or_insert_with_async(|| async {
                    let inner = c.entry(1).or_insert_with_async(|| async { 1 });
                    inner.await.into_value()
                })),
            ),
            (
                "compute in compute",
                task(c.entry(1).and_compute_with_async(|_| async {
                    c.entry(1).and_upsert_with_async(|_| async { 1 }).await;
                    Op::Nop
                })),
            ),
            (
                "compute in get",
                task(c.get_with_by_ref_async(&1, async {
                    let inner = c.entry_by_ref(&1);
                    inner.and_compute_with_async(|_| async { Op::Nop }).await;
                    1
                })),
            ),
            (
                "lease in get",
                task(c.get_with_async(1, async {
                    drop(c.lease_async(1).await);
                    1
                })),
            ),
            (
                "get in bulk",
                task(c.get_all_with_async([1, 2], |keys| async move {
                    c.get_with_async(2, async { 1 }).await;
                    Ok::<_, ()>(vec![None; keys.len()])
                })),
            ),
            (
                "bulk in get",
                task(c.get_with_async(1, async {
                    let inner = c.get_all_with_async([1], |_| async { Ok::<_, ()>(vec![None]) });
                    _ = inner.await;
                    1
                })),
            ),
            (
                "a thread's call in a task's",
                task(c.get_with_async(1, async { c.get_with(1, || 1) })),
            ),
            (
                "a task's call in a thread's",
                task(async { c.get_with(1, || ready(c.get_with_async(1, async { 1 }))) }),
            ),
        ];
        for (name, mut row) in rows {
            let polled = catch_unwind(AssertUnwindSafe(|| poll(row.as_mut())));
            let panic = polled
                .err()
                .unwrap_or_else(|| panic!("{name}: not refused"));
            let text = panic.downcast_ref::<String>().expect("text");
            assert!(
                text.contains("\"tasks\"") && text.contains("deadlock"),
                "{name}: {text}"
            );
            drop(row);
            for key in [1, 2] {
                let leased = c.lease_timeout(key, Duration::ZERO);
                assert!(matches!(leased, Leased::Lease(_)), "{name}");
            }
        }
        // The two that never wait are not refused.
        let value = c.get_with_async(5, async {
            assert!(matches!(c.lease_timeout(5, Duration::MAX), Leased::Busy));
            let selector = c.entry(5);
            let result = selector
                .and_try_compute_if_nobody_else_async(|_| async { never::<Result<_, ()>>() });
            assert!(matches!(result.await, Ok(CompResult::StillNone(5))));
            1
        });
        assert_eq!(ready(value), 1);
    });
}

#[test]
fn every_method_replaces_an_overdue_load() {
    let (cache, ticker, _) = world(|b| b.load_timeout(secs(5)));
    let Leased::Lease(late) = cache.lease(1) else {
        panic!("the key is absent")
    };
    ticker.advance(secs(5) - NS);
    let leased = cache.lease_timeout(1, Duration::ZERO);
    assert!(matches!(leased, Leased::Busy), "not overdue yet");
    ticker.advance(NS);
    let Leased::Lease(newer) = cache.lease_timeout(1, Duration::ZERO) else {
        panic!("a newcomer replaces an overdue load")
    };
    assert!(!late.is_current() && newer.is_current());
    assert_eq!(
        late.fill(1),
        Filled::Revoked(1),
        "the newer load still runs"
    );
    assert_eq!(newer.fill(2), Filled::Stored);
    let calls: [Call; 7] = [
        ("get_with", |c| assert_eq!(c.get_with(2, || 1), 1)),
        ("get_with_async", |c| {
            assert_eq!(ready(c.get_with_async(2, async { 1 })), 1)
        }),
        ("or_insert", |c| {
            assert!(c.entry(2).or_insert(1).is_stored())
        }),
        ("and_upsert_with", |c| {
            assert!(c.entry(2).and_upsert_with(|_| 1).is_stored())
        }),
        ("and_try_compute_if_nobody_else", |c| {
            let selector = c.entry(2);
            let result = selector.and_try_compute_if_nobody_else(|_| Ok::<_, ()>(Op::Put(1)));
            assert!(matches!(result, Ok(CompResult::Inserted(_))))
        }),
        ("get_all_with", |c| {
            let all = c.get_all_with([2], |_| Ok::<_, ()>(vec![Some(1)]));
            assert_eq!(all, Ok(vec![Some(1)]))
        }),
        ("lease", |c| match c.lease(2) {
            Leased::Lease(lease) => assert_eq!(lease.fill(1), Filled::Stored),
            _ => panic!("the load is overdue"),
        }),
    ];
    for (name, call) in calls {
        cache.invalidate(&2);
        let stuck = cache.lease(2);
        ticker.advance(secs(5));
        let other = cache.clone();
        must_end(move || call(&other));
        drop(stuck);
        assert_eq!(cache.get(&2), Some(1), "{name}");
    }
}

#[test]
fn tasks_that_wait_for_a_revoked_load_share_what_its_leader_gets() {
    let (cache, ..) = world(|b| b);
    let done = Cell::new(false);
    let init = poll_fn(|_| match done.get() {
        true => Poll::Ready(10),
        false => Poll::Pending,
    });
    let mut leader = pin!(cache.get_with_async(1, init));
    assert!(poll(leader.as_mut()).is_pending());
    let load = async { never::<Result<u32, ()>>() };
    let mut waiter = pin!(cache.try_get_with_async(1, load));
    assert!(poll(waiter.as_mut()).is_pending());
    cache.invalidate(&1);
    let later = ready(cache.get_with_async(1, async { 20 }));
    assert_eq!(later, 20, "a call that begins after the write loads anew");
    done.set(true);
    assert_eq!(poll(leader.as_mut()), Poll::Ready(20));
    assert_eq!(poll(waiter.as_mut()), Poll::Ready(Ok(20)));
    // A compute that waits for its turn does not wait for a load that was revoked.
    let stuck = cache.entry(2);
    let mut stuck = pin!(stuck.or_insert_with_async(pending::<u32>));
    assert!(poll(stuck.as_mut()).is_pending());
    let compute = cache.entry(2);
    let mut compute = pin!(compute.and_upsert_with_async(|_| async { 5 }));
    assert!(poll(compute.as_mut()).is_pending());
    cache.invalidate(&2);
    assert!(matches!(poll(compute.as_mut()), Poll::Ready(entry) if entry.is_stored()));
}

/// `Expiry`, weigher, listener and `Drop` call every method of their own cache, and of another one
/// that loads by itself.
#[test]
fn callbacks_may_call_every_method() {
    type Users = LoadingCache<u32, u32, String>;
    static CACHE: OnceLock<Cache<u32, Token>> = OnceLock::new();
    static USERS: OnceLock<Users> = OnceLock::new();
    static KEYS: AtomicU32 = AtomicU32::new(1_000);
    static RUNS: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];
    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    #[derive(Clone)]
    struct Token(bool);
    impl Drop for Token {
        fn drop(&mut self) {
            if self.0 {
                call_all(4);
            }
        }
    }
    let token = || Token(true);

    struct Policy;
    impl Expiry<u32, Token> for Policy {
        fn expire_after_create(&self, key: &u32, _: &Token, _: Instant) -> Option<Duration> {
            if *key < 10 {
                call_all(0);
            }
            None
        }

        fn expire_after_read(
            &self,
            key: &u32,
            _: &Token,
            _: Instant,
            left: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            if *key < 10 {
                call_all(1);
            }
            left
        }
    }

    fn call_all(place: usize) {
        if INSIDE.replace(true) {
            return;
        }
        let (cache, users) = (CACHE.get().unwrap(), USERS.get().unwrap());
        let key = || KEYS.fetch_add(1, SeqCst);
        let quiet = || Token(false);
        cache.get_with(key(), quiet);
        _ = cache.optionally_get_with(key(), || None);
        _ = cache.try_get_with(key(), || Err(()));
        ready(cache.get_with_async(key(), async { quiet() }));
        let again = key();
        cache.entry(again).and_upsert_with(|_| quiet());
        cache.entry(again).and_compute_with(|_| Op::Remove);
        cache.entry(again).or_insert_with_ttl(|| (quiet(), secs(1)));
        _ = cache.get_all_with([key(), key()], |keys| {
            Ok::<_, ()>(vec![Some(quiet()); keys.len()])
        });
        if let Leased::Lease(lease) = cache.lease(key()) {
            lease.fill(quiet());
        }
        drop(cache.lease_timeout(key(), Duration::ZERO));
        _ = cache.replace_if(&again, quiet(), |_| true);
        _ = cache.remove_if(&again, |_| true);
        let snapshot = cache.snapshot();
        cache.restore(snapshot, Restore::default());
        users.get(&key()).unwrap();
        users.get_all([key(), key()]).unwrap();
        users.refresh(key()).wait().unwrap();
        RUNS[place].fetch_add(1, SeqCst);
        INSIDE.set(false);
    }

    let load = loader_fn(|key: &u32| Ok::<u32, String>(*key));
    USERS.set(Cache::builder().loading(load).build()).unwrap();
    let cache = Cache::builder()
        .max_capacity(100_000)
        .expire_after(Policy)
        .weigher(|key, _| {
            if *key < 10 {
                call_all(2);
            }
            1
        })
        .removal_listener(|key: &u32, _: &Token, _| {
            if *key < 10 {
                call_all(3);
            }
        })
        .build();
    assert!(CACHE.set(cache).is_ok());
    must_end(move || {
        let cache = CACHE.get().unwrap();
        for round in 0..10 {
            cache.get_with(1, token);
            drop(cache.get(&1));
            cache.entry(1).and_upsert_with(|_| token());
            cache.insert(2, token());
            match round % 2 {
                0 => cache.invalidate(&1),
                _ => drop(cache.remove(&1)),
            }
            for _ in 0..3 {
                cache.run_pending_tasks();
            }
        }
        let runs = RUNS.each_ref().map(|runs| runs.load(SeqCst));
        assert!(runs.iter().all(|runs| *runs > 0), "{runs:?}");
        assert!(matches!(cache.lease(3), Leased::Lease(_)));
    });
}
