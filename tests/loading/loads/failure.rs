//! Loads that fail: which waiters share the failure, which one leads next, and that nothing is left
//! behind.

use crate::support::until;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::compute::Op;
use wheelhouse::{Cache, Expiry, Leased};

/// The key can be loaded at once.
fn is_usable(cache: &Cache<u64, u64>, key: u64) {
    let Leased::Lease(lease) = cache.lease_timeout(key, Duration::ZERO) else {
        panic!("a load is left behind");
    };
    drop(lease);
}

#[test]
fn eight_threads_share_an_error_that_occurred_once() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let runs = AtomicUsize::new(0);
    let errors: Vec<Arc<String>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    cache
                        .try_get_with(1, || {
                            runs.fetch_add(1, Ordering::SeqCst);
                            until("all wait", || cache.stats().load_waits() == 7);
                            Err("closed".to_string())
                        })
                        .unwrap_err()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(runs.into_inner(), 1);
    assert!(errors.iter().all(|error| Arc::ptr_eq(error, &errors[0])));
    assert_eq!(cache.stats().load_failures(), 1);
    is_usable(&cache, 1);
}

#[test]
fn another_error_type_runs_its_own_and_none_is_shared_among_its_kind() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let lease = cache.lease(1);
    let runs = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let (cache, runs) = (&cache, &runs);
        let wait = |number: u64| until("it waits", || cache.stats().load_waits() == number);
        for number in 0..2 {
            scope.spawn(move || {
                let failed = cache.try_get_with(1, || {
                    runs.lock().unwrap().push("u8");
                    Err(number as u8)
                });
                // The first of them runs; the second has joined and shares.
                assert_eq!(*failed.unwrap_err(), 0);
            });
            wait(number + 1);
        }
        for number in 0..2 {
            scope.spawn(move || {
                let none = cache.optionally_get_with(1, || {
                    runs.lock().unwrap().push("none");
                    None
                });
                assert_eq!(none, None);
            });
            wait(number + 3);
        }
        scope.spawn(move || {
            let failed = cache.try_get_with(1, || {
                runs.lock().unwrap().push("u16");
                Err(7_u16)
            });
            assert_eq!(*failed.unwrap_err(), 7);
        });
        wait(5);
        scope.spawn(move || {
            let value = cache.get_with(1, || {
                runs.lock().unwrap().push("value");
                4
            });
            assert_eq!(value, 4);
        });
        wait(6);
        drop(lease);
    });
    assert_eq!(runs.into_inner().unwrap(), ["u8", "none", "u16", "value"]);
}

#[test]
fn the_longest_waiting_leads_next_one_at_a_time() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let lease = cache.lease(1);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let (cache, order) = (&cache, &order);
        for number in 0..8 {
            scope.spawn(move || {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    cache.get_with(1, || {
                        order.lock().unwrap().push(number);
                        panic!("told to")
                    })
                }));
                assert!(panicked.is_err());
            });
            until("it waits", || cache.stats().load_waits() == number + 1);
        }
        drop(lease);
    });
    assert_eq!(order.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
    is_usable(&cache, 1);
}

#[test]
fn a_thousand_panics_in_a_row() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    for _ in 0..1_000 {
        let panicked =
            catch_unwind(|| cache.get_with(1, || std::panic::resume_unwind(Box::new(()))));
        assert!(panicked.is_err());
    }
    assert_eq!(cache.stats().load_failures(), 1_000);
    assert_eq!(cache.get_with(1, || 1), 1);
}

thread_local! {
    /// The call of user code on this thread that panics.
    static FUSE: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// User code that a test can make panic.
fn user_code() {
    let left = FUSE.get();
    if left != u32::MAX {
        if left == 0 {
            FUSE.set(u32::MAX);
            std::panic::resume_unwind(Box::new("the fuse"));
        }
        FUSE.set(left - 1);
    }
}

#[derive(Debug)]
struct Key(u64);

impl Clone for Key {
    fn clone(&self) -> Self {
        user_code();
        Self(self.0)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        user_code();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        user_code();
        // All keys collide.
        state.write_u64(7);
    }
}

#[derive(Debug)]
struct Value(u64);

impl Clone for Value {
    fn clone(&self) -> Self {
        user_code();
        Self(self.0)
    }
}

struct Policy;

impl Expiry<Key, Value> for Policy {
    fn expire_after_create(&self, _: &Key, _: &Value, _: Instant) -> Option<Duration> {
        user_code();
        Some(Duration::from_secs(1_000_000))
    }

    fn expire_after_update(
        &self,
        _: &Key,
        _: &Value,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        user_code();
        Some(Duration::from_secs(1_000_000))
    }

    fn expire_after_read(
        &self,
        _: &Key,
        _: &Value,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        user_code();
        left
    }
}

#[test]
fn a_panic_at_any_step_leaves_the_key_usable() {
    let calls: [fn(&Cache<Key, Value>); 9] = [
        |cache| _ = cache.get_with(Key(1), || Value(1)),
        |cache| _ = cache.try_get_with(Key(1), || Err::<Value, u8>(1)),
        |cache| _ = cache.entry(Key(1)).or_insert(Value(1)),
        |cache| _ = cache.entry(Key(1)).and_upsert_with(|_| Value(2)),
        |cache| _ = cache.entry(Key(1)).and_compute_with(|_| Op::Remove),
        |cache| {
            let load = |keys: &[Key]| Ok::<_, u8>(keys.iter().map(|_| Some(Value(3))).collect());
            _ = cache.get_all_with([Key(1), Key(4)], load);
        },
        |cache| {
            if let Leased::Lease(lease) = cache.lease(Key(1)) {
                lease.fill(Value(4));
            }
        },
        |cache| _ = cache.replace_if(&Key(1), Value(5), |_| true),
        |cache| _ = cache.remove_if(&Key(1), |_| true),
    ];
    for (number, call) in calls.iter().enumerate() {
        for present in [false, true] {
            for step in 0.. {
                assert!(step < 200, "it goes on and on");
                let cache: Cache<Key, Value> = Cache::builder()
                    .max_capacity(100)
                    .weigher(|_, _| {
                        user_code();
                        1
                    })
                    .expire_after(Policy)
                    .build();
                // Loads and entries of other keys with the same hash.
                cache.insert(Key(2), Value(2));
                let other = cache.lease(Key(3));
                if present {
                    cache.insert(Key(1), Value(0));
                }
                FUSE.set(step);
                let ended = catch_unwind(AssertUnwindSafe(|| call(&cache)));
                let burnt = FUSE.replace(u32::MAX) == u32::MAX;
                assert_eq!(ended.is_err(), burnt, "call {number}, step {step}");
                for key in [1, 4] {
                    let leased = cache.lease_timeout(Key(key), Duration::ZERO);
                    assert!(
                        !matches!(leased, Leased::Busy),
                        "call {number}, step {step}"
                    );
                }
                let Leased::Lease(other) = other else {
                    unreachable!()
                };
                assert!(other.is_current());
                drop(other);
                cache.run_pending_tasks();
                if !burnt {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_panic_beside_waiters_lets_them_go_on() {
    // The leader panics at each step in turn while two others wait.
    for step in 0..30 {
        let cache: Cache<Key, Value> = Cache::builder().expire_after(Policy).record_stats().build();
        let panicked = AtomicBool::new(false);
        thread::scope(|scope| {
            let Leased::Lease(lease) = cache.lease(Key(1)) else {
                panic!()
            };
            for number in 0..2 {
                let cache = &cache;
                scope.spawn(move || {
                    let value = cache.get_with(Key(1), || Value(2));
                    assert!(value.0 == 1 || value.0 == 2);
                });
                until("it waits", || cache.stats().load_waits() == number + 1);
            }
            FUSE.set(step);
            let filled = catch_unwind(AssertUnwindSafe(|| lease.fill(Value(1))));
            FUSE.set(u32::MAX);
            panicked.store(filled.is_err(), Ordering::SeqCst);
        });
        assert!(cache.contains_key(&Key(1)), "step {step}");
        if !panicked.into_inner() {
            return;
        }
    }
    panic!("it goes on and on");
}

#[test]
fn a_waiter_whose_clone_panics_affects_no_other_call() {
    let cache: Cache<u64, Value> = Cache::builder().record_stats().build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!()
    };
    thread::scope(|scope| {
        let cache = &cache;
        let hurt = scope.spawn(move || {
            // Nothing is cloned before the outcome.
            FUSE.set(0);
            cache.get_with(1, || unreachable!());
        });
        until("it waits", || cache.stats().load_waits() == 1);
        let well = scope.spawn(move || cache.get_with(1, || unreachable!()).0);
        until("both wait", || cache.stats().load_waits() == 2);
        lease.fill(Value(5));
        assert!(hurt.join().is_err());
        assert_eq!(well.join().unwrap(), 5);
    });
    assert_eq!(cache.get(&1).unwrap().0, 5);
}

#[test]
fn failed_loads_are_counted_in_stats() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    _ = cache.try_get_with(1, || Err::<u64, u8>(1));
    _ = cache.optionally_get_with(1, || None);
    _ = catch_unwind(|| cache.get_with(1, || std::panic::resume_unwind(Box::new(()))));
    drop(cache.lease(1));
    _ = cache.entry(1).and_compute_with(|_| Op::Nop);
    let stats = cache.stats();
    assert_eq!((stats.loads(), stats.load_failures()), (5, 4));
    assert_eq!((stats.loads_discarded(), stats.insertions()), (0, 0));
}
