//! A thread that would wait for itself panics; no other thread does.

use crate::support::acting::Acting;
use crate::support::{OwnCache, Place, files_of_panics};
use std::any::Any;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::compute::Op;
use wheelhouse::{
    Cache, Expiry, Leased, LoadError, LoadingCache, ManualTicker, Scheduler, async_loader_fn,
    loader_fn,
};

fn message(panic: &(dyn Any + Send)) -> String {
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// Runs a call that must be refused, and returns its message.
fn refused<T>(call: impl FnOnce() -> T) -> String {
    let began = Instant::now();
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        panic!("it was not refused");
    };
    assert!(began.elapsed() < Duration::from_secs(1));
    let message = message(&*panic);
    assert!(message.contains("deadlock"), "{message}");
    message
}

#[test]
fn a_load_that_loads_its_own_key_is_refused() {
    let cache: Cache<u64, u64> = Cache::builder().name("users").build();
    let text = refused(|| cache.get_with(1, || cache.get_with(1, || 2)));
    assert!(
        text.contains("cache \"users\"") && text.contains("hash 0x"),
        "{text}"
    );
    // The panic went through the outer load; the key can still be used.
    assert_eq!(cache.get_with(1, || 3), 3);
}

#[test]
fn the_inner_panic_may_be_caught_and_the_outer_load_goes_on() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let value = cache.get_with(1, || {
        refused(|| cache.try_get_with::<()>(1, || Ok(2)));
        refused(|| cache.optionally_get_with_by_ref(&1, || None));
        refused(|| cache.entry(1).and_compute_with(|_| Op::Nop));
        refused(|| cache.entry(1).or_insert(5));
        refused(|| cache.lease(1));
        refused(|| cache.get_all_with([1], |_| Ok::<_, ()>(vec![None])));
        assert!(matches!(
            cache.lease_timeout(1, Duration::MAX),
            Leased::Busy
        ));
        3
    });
    assert_eq!((value, cache.get(&1)), (3, Some(3)));
}

#[test]
fn the_panic_names_the_caller() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let call = || cache.get_with(1, || cache.get_with(1, || 2));
    let (refused, files) = files_of_panics(|| catch_unwind(AssertUnwindSafe(call)));
    assert!(refused.is_err());
    assert_eq!(files, [file!()]);
}

#[test]
fn two_threads_and_two_caches_in_a_ring() {
    for _ in 0..100 {
        let caches: [Cache<u64, u64>; 2] = [Cache::new(10), Cache::new(10)];
        let both_lead = Barrier::new(2);
        let refusals = AtomicUsize::new(0);
        thread::scope(|scope| {
            for at in 0..2_usize {
                let (caches, both_lead, refusals) = (&caches, &both_lead, &refusals);
                scope.spawn(move || {
                    let call = || {
                        caches[at].get_with(at as u64, || {
                            both_lead.wait();
                            caches[1 - at].get_with(1 - at as u64, || 7) + 1
                        })
                    };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                        assert!(message(&*panic).contains("deadlock"));
                        refusals.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(refusals.into_inner(), 1, "one gives way, the other goes on");
    }
}

#[test]
fn three_threads_in_a_ring() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let all_lead = Barrier::new(3);
    let refusals = AtomicUsize::new(0);
    thread::scope(|scope| {
        for at in 0..3_u64 {
            let (cache, all_lead, refusals) = (&cache, &all_lead, &refusals);
            scope.spawn(move || {
                let call = || {
                    cache.get_with(at, || {
                        all_lead.wait();
                        cache.get_with((at + 1) % 3, || 7)
                    })
                };
                refusals.fetch_add(
                    usize::from(catch_unwind(AssertUnwindSafe(call)).is_err()),
                    Ordering::SeqCst,
                );
            });
        }
    });
    assert_eq!(refusals.into_inner(), 1);
}

#[test]
fn chains_are_no_rings() {
    // The value of key n is made from that of key n + 1; many threads begin anywhere.
    for round in 0..300 {
        let cache: Cache<u64, u64> = Cache::new(1_000);
        thread::scope(|scope| {
            for number in 0..4 {
                let cache = &cache;
                scope.spawn(move || {
                    fn make(cache: &Cache<u64, u64>, key: u64) -> u64 {
                        cache.get_with(key, || {
                            if key == 12 {
                                return 0;
                            }
                            thread::yield_now();
                            make(cache, key + 1) + 1
                        })
                    }
                    let from = (number * 3 + round) % 12;
                    assert_eq!(make(cache, from), 12 - from);
                });
            }
        });
    }
}

#[test]
fn ten_thousand_rounds_without_a_false_alarm() {
    let cache: Cache<u64, u64> = Cache::new(1_000);
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..2_500 {
                    // Always from a lower key to a higher one: no cycle is possible.
                    let low = (round * 7 + number) % 5;
                    let value = cache.get_with(low, || {
                        let high = 5 + (round + number) % 5;
                        cache.entry(high).and_upsert_with(|_| round).into_value();
                        low
                    });
                    assert_eq!(value, low);
                    if round % 3 == 0 {
                        cache.invalidate(&low);
                    }
                }
            });
        }
    });
}

#[test]
fn a_lease_is_led_by_no_thread() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!()
    };
    let other = cache.clone();
    let filling = thread::spawn(move || {
        while other.stats().load_waits() == 0 {
            thread::yield_now();
        }
        lease.fill(4);
    });
    // The thread that took the lease waits for it.
    assert_eq!(cache.get_with(1, || unreachable!()), 4);
    filling.join().unwrap();
}

/// A policy that loads the key it is asked about.
struct Recursing(Place<Cache<u64, u64>>);

impl Recursing {
    fn cache() -> (OwnCache<Cache<u64, u64>>, Cache<u64, u64>) {
        let own = OwnCache::new();
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(ManualTicker::new())
            .expire_after(Self(own.place()))
            .build();
        own.set(&cache);
        (own, cache)
    }
}

impl Expiry<u64, u64> for Recursing {
    fn expire_after_create(&self, key: &u64, _: &u64, _: Instant) -> Option<Duration> {
        self.0.get()?.get_with(*key, || 2);
        None
    }
}

#[test]
fn recursion_out_of_a_policy_is_refused() {
    let (_own, cache) = Recursing::cache();
    refused(|| cache.get_with(1, || 1));
    assert_eq!(cache.get(&1), None);
    assert!(matches!(cache.lease(1), Leased::Lease(_)));
}

#[test]
fn a_listener_may_load() {
    let own = OwnCache::<Cache<u64, u64>>::new();
    let (theirs, (heard, told)) = (own.place(), mpsc::channel());
    let cache: Cache<u64, u64> = Cache::builder()
        .removal_listener(move |key: &u64, _: &u64, _| {
            if *key == 1 {
                let cache = theirs.get().unwrap();
                heard.send(cache.get_with(1, || 50)).unwrap();
                heard
                    .send(cache.entry(2).or_insert(60).into_value())
                    .unwrap();
            }
        })
        .build();
    own.set(&cache);
    cache.insert(1, 1);
    cache.invalidate(&1);
    cache.run_pending_tasks();
    assert_eq!((told.recv(), told.recv()), (Ok(50), Ok(60)));
    assert_eq!(cache.get(&1), Some(50));
}

#[test]
fn a_destructor_may_load() {
    static CACHE: OnceLock<Cache<u32, Acting>> = OnceLock::new();
    static LOADED: AtomicUsize = AtomicUsize::new(0);
    let cache = CACHE.get_or_init(|| Cache::new(1_000));
    let loads = || {
        CACHE.get().unwrap().get_with(101, || Acting::idle(0));
        LOADED.fetch_add(1, Ordering::SeqCst);
    };
    cache.get_with(1, || Acting::when_dropped(1, loads));
    cache.invalidate(&1);
    for _ in 0..100 {
        cache.run_pending_tasks();
        if LOADED.load(Ordering::SeqCst) == 1 {
            break;
        }
        thread::yield_now();
    }
    assert!(cache.contains_key(&101));
}

#[test]
fn rings_through_bulk_calls_and_computes() {
    for _ in 0..100 {
        let cache: Cache<u64, u64> = Cache::new(10);
        let both_lead = Barrier::new(2);
        let refusals = AtomicUsize::new(0);
        let count = |panicked: thread::Result<()>| {
            if let Err(panic) = panicked {
                assert!(message(&*panic).contains("deadlock"));
                refusals.fetch_add(1, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                count(catch_unwind(AssertUnwindSafe(|| {
                    cache.get_with(1, || {
                        both_lead.wait();
                        cache.get_with(2, || 0)
                    });
                })));
            });
            scope.spawn(|| {
                count(catch_unwind(AssertUnwindSafe(|| {
                    let load = |keys: &[u64]| {
                        both_lead.wait();
                        cache.entry(1).and_upsert_with(|_| 1);
                        Ok::<_, ()>(vec![Some(1); keys.len()])
                    };
                    _ = cache.get_all_with([2, 3], load);
                })));
            });
        });
        assert_eq!(refusals.into_inner(), 1, "one gives way, the other goes on");
    }
}

#[test]
fn within_a_compute_its_key_can_be_read_and_not_computed() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 5);
    cache.entry(1).and_compute_with(|_| {
        assert_eq!(cache.get_with(1, || 9), 5);
        assert_eq!(cache.entry(1).or_insert(9).into_value(), 5);
        refused(|| cache.entry(1).and_upsert_with(|_| 6));
        refused(|| cache.entry(1).or_insert_with_if(|| 6, |_| true));
        Op::Nop
    });
    assert_eq!(cache.get(&1), Some(5));
    // A load that was revoked is no longer waited for: the inner call loads anew.
    let value = cache.get_with(2, || {
        cache.invalidate(&2);
        cache.get_with(2, || 20) + 1
    });
    assert_eq!((value, cache.get(&2)), (20, Some(20)));
}

#[test]
fn the_panic_names_the_hash_of_the_cache_hasher() {
    let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
    let hash = std::hash::BuildHasher::hash_one(&hasher, 77_u64);
    let cache: Cache<u64, u64, _> = Cache::builder().hasher(hasher).build();
    let text = refused(|| cache.get_with(77, || cache.get_with(77, || 1)));
    assert!(text.contains(&format!("{hash:x}")), "{text} for {hash:x}");
}

/// Runs a call on a thread of its own that must be refused; fails if it waits for ever.
fn refused_in_time<T>(call: impl FnOnce() -> T + Send + 'static) -> String {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || _ = tell.send(refused(call)));
    let message = told.recv_timeout(Duration::from_secs(30));
    message.expect("it is refused, and does not wait for ever")
}

/// Polls a future once, which must end then.
fn polled_once<T>(future: impl Future<Output = T>) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it does not end"),
    }
}

#[test]
fn recursion_out_of_a_closure_that_makes_a_future_is_refused() {
    let cache: Cache<u64, u64> = Cache::builder().build();
    let theirs = cache.clone();
    refused_in_time(move || {
        polled_once(theirs.entry(1).and_upsert_with_async(|_| {
            let value = theirs.get_with(1, || 1);
            ready(value)
        }))
    });
    let theirs = cache.clone();
    refused_in_time(move || {
        polled_once(theirs.get_all_with_async([1, 2], |_| {
            let value = theirs.get_with(2, || 1);
            ready(Ok::<_, ()>(vec![Some(value), None]))
        }))
    });
    assert_eq!(cache.get_with(1, || 3), 3);
    assert_eq!(cache.get_with(2, || 3), 3);
}

#[test]
fn recursion_out_of_a_policy_is_refused_to_a_task_as_well() {
    let (_own, cache) = Recursing::cache();
    let theirs = cache.clone();
    refused_in_time(move || polled_once(theirs.get_with_async(1, ready(1))));
    let theirs = cache.clone();
    refused_in_time(move || {
        let load = |_: Vec<u64>| ready(Ok::<_, ()>(vec![Some(1), Some(1)]));
        polled_once(theirs.get_all_with_async([1, 2], load))
    });
    for key in [1, 2] {
        assert!(matches!(
            cache.lease_timeout(key, Duration::ZERO),
            Leased::Lease(_)
        ));
    }
}

#[test]
fn recursion_out_of_a_policy_is_refused_to_the_fill_of_a_lease() {
    let (_own, cache) = Recursing::cache();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!()
    };
    refused_in_time(move || lease.fill(1));
    assert!(matches!(cache.lease(1), Leased::Lease(_)));
}

#[test]
fn recursion_out_of_a_policy_is_refused_on_a_reload_thread() {
    struct Recursing(Place<Cache<u64, u64>>);
    impl Expiry<u64, u64> for Recursing {
        fn expire_after_create(&self, key: &u64, _: &u64, _: Instant) -> Option<Duration> {
            self.0.get()?.entry(*key).and_upsert_with(|_| 2);
            None
        }
        fn expire_after_update(
            &self,
            key: &u64,
            value: &u64,
            now: Instant,
            _: Option<Duration>,
        ) -> Option<Duration> {
            self.expire_after_create(key, value, now)
        }
    }
    let own = OwnCache::new();
    let users = Cache::builder()
        .expire_after(Recursing(own.place()))
        .loading(loader_fn(|key: &u64| Ok::<u64, ()>(*key)))
        .build();
    assert_eq!(users.get(&1).unwrap(), 1);
    own.set(users.cache());
    let (tell, told) = mpsc::channel();
    let reload = users.refresh(1);
    thread::spawn(move || _ = tell.send(reload.wait()));
    let ended = told.recv_timeout(Duration::from_secs(30));
    assert!(matches!(ended, Ok(Err(LoadError::Panicked))), "{ended:?}");
    assert_eq!(users.get(&1).unwrap(), 1);
}

/// Threads that wait for a refresh, or for a task of a loader, wait as others do.
#[test]
fn rings_through_refreshes_and_blocking_calls_of_async_loaders() {
    type Users = LoadingCache<u64, u64, ()>;
    let is_refused = |users: &Users, key: u64| {
        let (users, (tell, told)) = (users.clone(), mpsc::channel());
        thread::spawn(move || _ = tell.send(users.get(&key).is_err()));
        told
    };
    let ended = |told: mpsc::Receiver<bool>| told.recv_timeout(Duration::from_secs(30));

    let own = OwnCache::<Users>::new();
    let inner = own.place();
    let users = Cache::builder()
        .loading(loader_fn(move |key: &u64| match (inner.get(), key) {
            (Some(users), 1) => users.refresh(2).wait().map_err(drop)?.ok_or(()),
            (Some(users), 2) => users.get(&1).map_err(drop),
            _ => Ok(*key),
        }))
        .build();
    own.set(&users);
    assert_eq!(ended(is_refused(&users, 1)), Ok(true));
    assert_eq!(users.get(&3), Ok(3));

    let (own, begun) = (OwnCache::<Users>::new(), Arc::<AtomicUsize>::default());
    let (inner, count) = (Arc::new(own.place()), Arc::clone(&begun));
    let users: Users = Cache::builder()
        .loading(async_loader_fn(move |key: &u64| {
            let (users, count, key) = (Arc::clone(&inner), Arc::clone(&count), *key);
            async move {
                let Some(users) = users.get() else {
                    return Ok(key);
                };
                count.fetch_add(1, Ordering::SeqCst);
                while count.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
                users.get(&(3 - key)).map_err(drop)
            }
        }))
        .spawner(|task| drop(thread::spawn(|| futures_lite::future::block_on(task))))
        .build();
    own.set(&users);
    let told = [1, 2].map(|key| is_refused(&users, key));
    assert_eq!(told.map(ended), [Ok(true), Ok(true)]);
    assert_eq!(begun.load(Ordering::SeqCst), 2);
}

/// A loader that waits for a delivery, while the listener waits for that loader's load: the wait
/// for the delivery ends.
#[test]
fn a_loader_that_runs_pending_tasks_does_not_wait_for_a_listener_that_waits_for_it() {
    let (in_listener, listener_began) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let own = OwnCache::<Cache<u32, u32>>::new();
    let of_listener = own.place();
    let cache: Cache<u32, u32> = Cache::builder()
        .removal_listener(move |_: &u32, _: &u32, _| {
            in_listener.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            let value = of_listener.get().unwrap().get_with(0, || 2);
            assert_eq!(value, 1, "the value of the load that was waited for");
        })
        .build();
    own.set(&cache);
    cache.insert(1, 1);
    cache.invalidate(&1);
    let other = cache.clone();
    let delivers = thread::spawn(move || other.run_pending_tasks());
    listener_began.recv().unwrap();
    let (ended, ends) = mpsc::channel();
    let loader = cache.clone();
    thread::spawn(move || {
        let value = loader.get_with(0, || {
            go_on.send(()).unwrap();
            loader.run_pending_tasks();
            1
        });
        ended.send(value).unwrap();
    });
    assert_eq!(ends.recv_timeout(Duration::from_secs(20)), Ok(1), "hangs");
    delivers.join().unwrap();
    assert_eq!(cache.get(&0), Some(1));
}

/// The call that finds an entry due also frees values. Their destructors may load the very key: the
/// call leads no load of it yet. These calls look at the key only as they begin.
#[test]
fn a_destructor_that_a_load_of_a_due_entry_runs_may_load_the_very_key() {
    type Call = fn(&Cache<u32, Acting>);
    let calls: [Call; 3] = [
        |cache| {
            _ = cache
                .entry(1)
                .and_compute_with(|_| Op::Put(Acting::idle(1)))
        },
        |cache| {
            let put = |_: Option<_>| Ok::<_, ()>(Op::Put(Acting::idle(1)));
            _ = cache.entry(1).and_try_compute_if_nobody_else(put);
        },
        |cache| _ = cache.lease_timeout(1, Duration::ZERO),
    ];
    for (number, call) in calls.iter().enumerate() {
        let clock = ManualTicker::new();
        let inside = Arc::new(AtomicUsize::new(0));
        let loaded = Arc::new(AtomicUsize::new(0));
        let cache: Arc<Cache<u32, Acting>> = Arc::new(
            Cache::builder()
                .ticker(clock.clone())
                .scheduler(Scheduler::disabled())
                .build(),
        );
        for _ in 0..40 {
            cache.insert_with_ttl(1, Acting::idle(0), Duration::from_secs(1));
            let own = Arc::downgrade(&cache);
            let (begins, ends) = (Arc::clone(&inside), Arc::clone(&loaded));
            let loads = move || {
                begins.fetch_add(1, Ordering::SeqCst);
                let cache = own.upgrade().expect("the test has it");
                cache.get_with(1, || Acting::idle(2));
                ends.fetch_add(1, Ordering::SeqCst);
            };
            cache.insert(3, Acting::when_dropped(3, loads));
            cache.invalidate(&3);
            clock.advance(Duration::from_secs(2));
            call(&cache);
            if inside.load(Ordering::SeqCst) > 0 {
                break;
            }
        }
        let inside = inside.load(Ordering::SeqCst);
        assert!(inside > 0, "{number}: no destructor has run in the call");
        assert_eq!(loaded.load(Ordering::SeqCst), inside, "{number}");
    }
}
