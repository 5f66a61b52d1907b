//! One closure at a time for each key, and what waiters get from its outcome.

use crate::support::until;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use wheelhouse::{Cache, Leased, ManualTicker, RemovalCause};

#[test]
fn eight_threads_load_once_and_share_the_value() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let runs = AtomicUsize::new(0);
    let all = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                all.wait();
                let value = cache.get_with(7, || {
                    runs.fetch_add(1, Ordering::SeqCst);
                    until("all wait", || cache.stats().load_waits() == 7);
                    49
                });
                assert_eq!(value, 49);
            });
        }
    });
    assert_eq!(runs.into_inner(), 1);
    let stats = cache.stats();
    assert_eq!((stats.loads(), stats.load_waits()), (1, 7));
    assert_eq!((stats.hits(), stats.misses()), (0, 8));
    assert_eq!(stats.insertions(), 1);
}

#[test]
fn a_hit_runs_nothing() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    cache.insert(1, 10);
    assert_eq!(cache.get_with(1, || unreachable!()), 10);
    assert_eq!(cache.optionally_get_with(1, || unreachable!()), Some(10));
    assert_eq!(cache.try_get_with::<()>(1, || unreachable!()), Ok(10));
    assert_eq!(cache.get_with_by_ref(&1, || unreachable!()), 10);
    let stats = cache.stats();
    assert_eq!((stats.hits(), stats.misses(), stats.loads()), (4, 0, 0));
}

#[test]
fn kinds_of_calls_never_run_two_closures_at_once() {
    let cache: Cache<u64, u64> = Cache::builder().ticker(ManualTicker::new()).build();
    let inside = AtomicUsize::new(0);
    let runs = AtomicUsize::new(0);
    let alone = || {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two closures");
        runs.fetch_add(1, Ordering::SeqCst);
        thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    thread::scope(|scope| {
        for number in 0..8_u64 {
            let (cache, alone) = (&cache, &alone);
            scope.spawn(move || {
                for round in 0..300_u64 {
                    match (number + round) % 5 {
                        0 => {
                            _ = cache.get_with(0, || {
                                alone();
                                1
                            })
                        }
                        1 => {
                            _ = cache.optionally_get_with(0, || {
                                alone();
                                None
                            })
                        }
                        2 => {
                            _ = cache.try_get_with(0, || {
                                alone();
                                Err::<u64, u8>(1)
                            })
                        }
                        3 => {
                            _ = cache.try_get_with(0, || {
                                alone();
                                Err::<u64, u16>(1)
                            })
                        }
                        _ => {
                            if let Leased::Lease(lease) = cache.lease(0) {
                                alone();
                                // A write would revoke the load, and another one could begin.
                                lease.fill_with_ttl(1, Duration::ZERO);
                            }
                        }
                    }
                    // The value is removed without an explicit write.
                    _ = cache.set_expiry(&0, Some(Duration::ZERO));
                }
            });
        }
    });
    assert!(runs.into_inner() >= 300);
}

#[test]
fn a_value_that_cannot_be_kept_reaches_every_waiter() {
    let builders: [fn() -> Cache<u64, u64>; 3] = [
        || Cache::builder().max_capacity(0).record_stats().build(),
        || {
            Cache::builder()
                .time_to_live(Duration::ZERO)
                .record_stats()
                .build()
        },
        || {
            Cache::builder()
                .max_capacity(10)
                .weigher(|_: &u64, _: &u64| 11)
                .record_stats()
                .build()
        },
    ];
    for build in builders {
        let cache = build();
        let runs = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let value = cache.get_with(1, || {
                        runs.fetch_add(1, Ordering::SeqCst);
                        until("all wait", || cache.stats().load_waits() == 3);
                        5
                    });
                    assert_eq!(value, 5);
                });
            }
        });
        assert_eq!(runs.into_inner(), 1);
        assert_eq!(cache.get(&1), None);
    }
}

#[test]
fn an_entry_that_is_due_leaves_as_expired_before_the_load() {
    let ticker = ManualTicker::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&heard);
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .removal_listener(move |_: &u64, value: &u64, cause| {
            tell.lock().unwrap().push((*value, cause));
        })
        .build();
    cache.insert_with_ttl(1, 10, Duration::from_secs(5));
    ticker.advance(Duration::from_secs(5));
    let failed = cache.try_get_with(1, || Err::<u64, _>("no"));
    assert_eq!(*failed.unwrap_err(), "no");
    assert_eq!(cache.entry_count(), 0, "it left though the load failed");
    cache.run_pending_tasks();
    assert_eq!(*heard.lock().unwrap(), [(10, RemovalCause::Expired)]);
}

#[test]
fn the_lifetime_begins_at_the_commit() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .time_to_live(Duration::from_secs(10))
        .build();
    cache.get_with(1, || {
        ticker.advance(Duration::from_secs(60));
        1
    });
    ticker.advance(Duration::from_secs(9));
    assert_eq!(cache.get(&1), Some(1));
    ticker.advance(Duration::from_secs(1));
    assert_eq!(cache.get(&1), None);
}

#[test]
fn by_reference_makes_the_key_only_to_load() {
    let cache: Cache<String, u32> = Cache::new(10);
    assert_eq!(cache.get_with_by_ref("ada", || 1815), 1815);
    assert_eq!(cache.get_with_by_ref("ada", || 0), 1815);
    assert_eq!(cache.optionally_get_with_by_ref("bob", || None), None);
    assert_eq!(
        *cache.try_get_with_by_ref("bob", || Err(3_u8)).unwrap_err(),
        3
    );
    assert_eq!(cache.entry_count(), 1);
}

/// A form without a size, as a path or a string of another crate is.
trait Name: Send + Sync {
    fn text(&self) -> &str;
}

impl Name for String {
    fn text(&self) -> &str {
        self
    }
}

impl PartialEq for dyn Name {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for dyn Name {}

impl Hash for dyn Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl ToOwned for dyn Name {
    type Owned = Arc<dyn Name>;

    fn to_owned(&self) -> Arc<dyn Name> {
        Arc::new(self.text().to_string())
    }
}

#[test]
fn by_reference_takes_what_to_owned_makes_the_key_of() {
    /// A wrapper of a program, which knows of the form that its owned form is the key.
    fn check<K, Q>(key: &Q)
    where
        K: Borrow<Q> + Hash + Eq + Clone + Send + Sync + 'static,
        Q: ToOwned<Owned = K> + Hash + Eq + ?Sized,
    {
        use futures_lite::future::{block_on, ready};
        let absent = || -> Cache<K, u32> { Cache::new(10) };
        assert_eq!(absent().get_with_by_ref(key, || 1), 1);
        assert_eq!(
            absent().optionally_get_with_by_ref(key, || Some(1)),
            Some(1)
        );
        let loaded = absent().try_get_with_by_ref(key, || Ok::<u32, ()>(1));
        assert_eq!(loaded, Ok(1));
        assert_eq!(block_on(absent().get_with_by_ref_async(key, ready(1))), 1);
        let some = block_on(absent().optionally_get_with_by_ref_async(key, ready(Some(1))));
        assert_eq!(some, Some(1));
        let cache = absent();
        let loaded = block_on(cache.try_get_with_by_ref_async(key, ready(Ok::<u32, ()>(1))));
        assert_eq!(loaded, Ok(1));
        assert!(!cache.entry_by_ref(key).or_insert(2).is_fresh());
        assert_eq!(cache.get(key), Some(1));
    }
    check::<String, str>("ada");
    check::<Arc<dyn Name>, dyn Name>(&String::from("ada"));
    check::<u32, u32>(&1);
}

#[test]
fn loads_of_many_keys_do_not_disturb_each_other() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let loaded = Mutex::new(HashSet::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for key in 0..2_000 {
                    let value = cache.get_with(key, || {
                        assert!(loaded.lock().unwrap().insert(key), "{key} was loaded twice");
                        key * 3
                    });
                    assert_eq!(value, key * 3);
                }
            });
        }
    });
    assert_eq!(cache.stats().loads(), 2_000);
}

#[test]
fn a_lease_is_the_lead() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!("the key is absent");
    };
    assert_eq!(*lease.key(), 1);
    assert!(matches!(
        cache.lease_timeout(1, Duration::ZERO),
        Leased::Busy
    ));
    assert!(matches!(
        cache.lease_timeout(1, Duration::from_millis(5)),
        Leased::Busy
    ));
    let other = cache.clone();
    let waiter = thread::spawn(move || other.get_with(1, || unreachable!()));
    // The two that waited only briefly count as well.
    until("it waits", || cache.stats().load_waits() == 2);
    lease.fill(11);
    assert_eq!(waiter.join().unwrap(), 11);
    assert!(matches!(cache.lease(1), Leased::Found(11)));
}

#[test]
fn a_dropped_lease_lets_the_next_waiter_lead() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!("the key is absent");
    };
    let other = cache.clone();
    let waiter = thread::spawn(move || other.get_with(1, || 5));
    until("it waits", || cache.stats().load_waits() == 1);
    // Sent to another thread, and dropped there.
    thread::spawn(move || drop(lease)).join().unwrap();
    assert_eq!(waiter.join().unwrap(), 5);
}

#[test]
fn a_lease_that_fails_shares_its_error() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!("the key is absent");
    };
    let other = cache.clone();
    let waiter = thread::spawn(move || other.try_get_with::<String>(1, || unreachable!()));
    until("it waits", || cache.stats().load_waits() == 1);
    let error = lease.fail("closed".to_string());
    assert!(Arc::ptr_eq(&error, &waiter.join().unwrap().unwrap_err()));
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_lease_outlives_its_cache() {
    let dropped = Arc::new(0);
    let cache: Cache<u64, Arc<u64>> = Cache::new(10);
    cache.insert(2, Arc::clone(&dropped));
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!("the key is absent");
    };
    drop(cache);
    assert_eq!(
        Arc::strong_count(&dropped),
        1,
        "the lease keeps nothing alive"
    );
    assert!(!lease.is_current());
    assert!(matches!(
        lease.fill(dropped),
        wheelhouse::Filled::Revoked(_)
    ));
}

#[test]
fn an_overdue_load_is_replaced() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .load_timeout(Duration::from_secs(5))
        .build();
    let (began, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let other = cache.clone();
    let stuck = thread::spawn(move || {
        other.get_with(1, || {
            began.send(()).unwrap();
            gone.recv().unwrap();
            1
        })
    });
    begun.recv().unwrap();
    ticker.advance(Duration::from_secs(5));
    assert_eq!(cache.get_with(1, || 2), 2);
    go.send(()).unwrap();
    assert_eq!(
        stuck.join().unwrap(),
        2,
        "the late leader gets the live value"
    );
    assert_eq!(cache.get(&1), Some(2));
}

#[test]
fn a_late_result_is_stored_if_nothing_replaced_the_load() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .load_timeout(Duration::from_secs(5))
        .build();
    cache.get_with(1, || {
        ticker.advance(Duration::from_secs(50));
        1
    });
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn waiters_of_an_overdue_load_join_the_newer_one() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .record_stats()
        .load_timeout(Duration::from_secs(5))
        .build();
    let stuck = cache.lease(1);
    let runs = Arc::new(AtomicUsize::new(0));
    // The first call that finds the load overdue begins the newer one.
    let load = || {
        let (cache, runs) = (cache.clone(), Arc::clone(&runs));
        move || {
            cache.get_with(1, || {
                runs.fetch_add(1, Ordering::Relaxed);
                // Time for the other call to join.
                thread::sleep(Duration::from_millis(50));
                2
            })
        }
    };
    let waiter = thread::spawn(load());
    until("it waits", || cache.stats().load_waits() == 1);
    ticker.advance(Duration::from_secs(5));
    let value = load()();
    assert_eq!((value, waiter.join().unwrap()), (2, 2));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let Leased::Lease(stuck) = stuck else {
        unreachable!()
    };
    assert!(matches!(
        stuck.fill(1),
        wheelhouse::Filled::Lost {
            current: 2,
            yours: 1
        }
    ));
}
