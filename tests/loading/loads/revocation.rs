//! A write of the key while its load runs: the load is revoked, and the write never waits.

use crate::support::until;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::compute::{CompResult, Op};
use wheelhouse::{Cache, Filled, Leased, ManualTicker, RemovalCause};

type Delivered = Arc<Mutex<Vec<(u64, u64, RemovalCause)>>>;

fn listened() -> (Cache<u64, u64>, Delivered) {
    let delivered = Delivered::default();
    let tell = Arc::clone(&delivered);
    let cache = Cache::builder()
        .record_stats()
        .removal_listener(move |key: &u64, value: &u64, cause| {
            tell.lock().unwrap().push((*key, *value, cause));
        })
        .build();
    (cache, delivered)
}

/// The values inserted are the values delivered plus the values stored.
fn accounts_are_square(cache: &Cache<u64, u64>, delivered: &Delivered) {
    cache.run_pending_tasks();
    let stats = cache.stats();
    let delivered = delivered.lock().unwrap().len() as u64;
    assert_eq!(
        stats.insertions() + stats.updates(),
        delivered + cache.entry_count()
    );
}

#[test]
fn an_insert_revokes_the_load() {
    let (cache, delivered) = listened();
    let value = cache.get_with(1, || {
        cache.insert(1, 99);
        10
    });
    assert_eq!((value, cache.get(&1)), (99, Some(99)));
    assert_eq!(cache.stats().loads_discarded(), 1);
    accounts_are_square(&cache, &delivered);
    assert!(
        delivered.lock().unwrap().is_empty(),
        "the loaded value was never there"
    );
}

#[test]
fn removals_revoke_the_load_of_an_absent_key() {
    let removals: [fn(&Cache<u64, u64>); 3] = [
        |cache| cache.invalidate(&1),
        |cache| assert_eq!(cache.remove(&1), None),
        |cache| cache.invalidate_all(),
    ];
    for remove in removals {
        let (cache, delivered) = listened();
        let value = cache.get_with(1, || {
            remove(&cache);
            10
        });
        assert_eq!((value, cache.get(&1)), (10, None));
        assert_eq!(cache.get_with(1, || 11), 11, "a later call loads anew");
        assert_eq!(cache.get(&1), Some(11));
        accounts_are_square(&cache, &delivered);
    }
}

#[test]
fn a_failure_is_told_whatever_was_written_meanwhile() {
    let (cache, delivered) = listened();
    let failed = cache.try_get_with(1, || {
        cache.insert(1, 99);
        Err::<u64, &str>("down")
    });
    assert_eq!(failed.map_err(|error| *error), Err("down"));
    let none = cache.optionally_get_with(2, || {
        cache.insert(2, 99);
        None
    });
    assert_eq!(none, None);
    assert_eq!(cache.get_many(&[1, 2]), [Some(99), Some(99)]);
    accounts_are_square(&cache, &delivered);
}

/// Calls that share the failure get it; the others find what was written.
#[test]
fn calls_that_wait_for_a_failure_get_it_or_what_was_written_meanwhile() {
    for fails in [true, false] {
        let (cache, _) = listened();
        let write = || {
            until("both wait", || cache.stats().load_waits() == 2);
            cache.insert(1, 99);
        };
        let fail = || {
            write();
            Err::<u64, &str>("down")
        };
        let find_none = || {
            write();
            None
        };
        let try_get = || cache.try_get_with(1, fail).map_err(|error| *error);
        let optionally_get = || cache.optionally_get_with(1, find_none);
        thread::scope(|scope| {
            let leads = || until("it leads", || cache.stats().loads() == 1);
            if fails {
                let leader = scope.spawn(try_get);
                leads();
                let same = scope.spawn(try_get);
                let other = scope.spawn(optionally_get);
                assert_eq!(leader.join().unwrap(), Err("down"));
                assert_eq!(same.join().unwrap(), Err("down"));
                assert_eq!(other.join().unwrap(), Some(99));
            } else {
                let leader = scope.spawn(optionally_get);
                leads();
                let same = scope.spawn(optionally_get);
                let other = scope.spawn(try_get);
                assert_eq!(leader.join().unwrap(), None);
                assert_eq!(same.join().unwrap(), None);
                assert_eq!(other.join().unwrap(), Ok(99));
            }
        });
        assert_eq!(cache.stats().loads(), 1);
    }
}

#[test]
fn an_entry_removed_by_retain_revokes() {
    let (cache, delivered) = listened();
    let value = cache.get_with(1, || {
        cache.insert(1, 98);
        cache.retain(|_, _| false);
        10
    });
    assert_eq!((value, cache.get(&1)), (10, None));
    accounts_are_square(&cache, &delivered);
}

#[test]
fn a_conditional_removal_of_an_entry_that_expires_meanwhile_revokes_nothing() {
    let second = Duration::from_secs(1);
    type Removal = fn(&Cache<u64, u64>, &dyn Fn() -> bool);
    let removals: [Removal; 2] = [
        |cache, matches| assert_eq!(cache.remove_if(&1, |_| matches()), None),
        |cache, matches| cache.retain(|_, _| !matches()),
    ];
    for remove in removals {
        let clock = ManualTicker::new();
        let cache = Cache::builder().ticker(clock.clone()).build();
        cache.insert_with_ttl(1, 10, second);
        let result = cache.entry(1).and_compute_with(|seen| {
            assert!(seen.is_some());
            remove(&cache, &|| {
                clock.advance(second);
                true
            });
            Op::Put(11)
        });
        assert!(matches!(result, CompResult::Inserted(entry) if *entry.value() == 11));
        assert_eq!(cache.get(&1), Some(11));
    }
}

#[test]
fn insert_then_invalidate_revokes_the_load() {
    let (cache, delivered) = listened();
    let value = cache.get_with(1, || {
        cache.insert(1, 99);
        cache.invalidate(&1);
        10
    });
    assert_eq!((value, cache.get(&1)), (10, None));
    accounts_are_square(&cache, &delivered);
}

#[test]
fn reads_deadlines_and_expiry_do_not_revoke() {
    let ticker = wheelhouse::ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder().ticker(ticker).build();
    let value = cache.get_with(1, || {
        assert_eq!(cache.get(&1), None);
        assert!(!cache.contains_key(&1) && !cache.set_expiry(&1, None));
        assert_eq!(cache.iter().count(), 0);
        cache.run_pending_tasks();
        cache.insert(2, 2);
        cache.invalidate(&2);
        10
    });
    assert_eq!((value, cache.get(&1)), (10, Some(10)));
}

#[test]
fn a_call_after_the_write_never_joins_the_old_load() {
    let (cache, delivered) = listened();
    let (began, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let other = cache.clone();
    let old = thread::spawn(move || {
        other.get_with(1, || {
            began.send(()).unwrap();
            gone.recv().unwrap();
            1
        })
    });
    begun.recv().unwrap();
    cache.invalidate(&1);
    // The old load still runs; it ends while the new one does.
    let value = cache.get_with(1, || {
        go.send(()).unwrap();
        2
    });
    assert_eq!(value, 2);
    let old = old.join().unwrap();
    assert!(old == 1 || old == 2, "{old}");
    assert_eq!(cache.get(&1), Some(2));
    accounts_are_square(&cache, &delivered);
}

#[test]
fn an_old_load_that_ends_after_a_newer_one_stored_gets_that() {
    let (cache, delivered) = listened();
    let Leased::Lease(old) = cache.lease(1) else {
        panic!("the key is absent");
    };
    cache.invalidate(&1);
    assert!(!old.is_current());
    assert_eq!(cache.get_with(1, || 2), 2);
    assert_eq!(
        old.fill(1),
        Filled::Lost {
            current: 2,
            yours: 1
        }
    );
    assert_eq!(cache.get(&1), Some(2));
    accounts_are_square(&cache, &delivered);
}

#[test]
fn an_old_load_that_ends_while_a_newer_one_runs_leaves_it_alone() {
    let (cache, delivered) = listened();
    let Leased::Lease(old) = cache.lease(1) else {
        panic!("the key is absent");
    };
    cache.invalidate(&1);
    let Leased::Lease(new) = cache.lease(1) else {
        panic!("the old lease is revoked");
    };
    assert_eq!(old.fill(1), Filled::Revoked(1));
    assert!(new.is_current());
    assert_eq!(new.fill(2), Filled::Stored);
    assert_eq!(cache.get(&1), Some(2));
    accounts_are_square(&cache, &delivered);
}

#[test]
fn a_dropped_old_lease_leaves_a_newer_one_alone() {
    let (cache, _) = listened();
    let old = cache.lease(1);
    cache.invalidate(&1);
    let Leased::Lease(new) = cache.lease(1) else {
        panic!("the old lease is revoked");
    };
    drop(old);
    assert!(new.is_current());
    assert!(matches!(
        cache.lease_timeout(1, std::time::Duration::ZERO),
        Leased::Busy
    ));
}

/// All keys have one hash.
#[derive(Clone, Copy, Debug, Default)]
struct One;

impl Hasher for One {
    fn finish(&self) -> u64 {
        7
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn writes_of_other_keys_with_the_same_hash_revoke_nothing() {
    let cache: Cache<u64, u64, BuildHasherDefault<One>> = Cache::builder()
        .hasher(BuildHasherDefault::default())
        .build();
    let value = cache.get_with(1, || {
        cache.insert(2, 20);
        cache.insert(3, 30);
        cache.invalidate(&2);
        cache.invalidate(&4);
        assert_eq!(cache.remove(&3), Some(30));
        let nested = cache.get_with(5, || {
            cache.insert(6, 60);
            50
        });
        assert_eq!(nested, 50);
        10
    });
    assert_eq!((value, cache.get(&1)), (10, Some(10)));
    assert_eq!((cache.get(&5), cache.get(&6)), (Some(50), Some(60)));
}

#[test]
fn colliding_keys_load_and_are_revoked_each_for_itself() {
    let cache: Cache<u64, u64, BuildHasherDefault<One>> = Cache::builder()
        .hasher(BuildHasherDefault::default())
        .build();
    let leases: Vec<_> = (0..8).map(|key| cache.lease(key)).collect();
    for key in (0..8).step_by(2) {
        cache.invalidate(&key);
    }
    for (key, leased) in (0..8).zip(leases) {
        let Leased::Lease(lease) = leased else {
            panic!("the key is absent")
        };
        let filled = lease.fill(key);
        assert_eq!(filled == Filled::Stored, key % 2 == 1);
    }
    assert_eq!(cache.entry_count(), 4);
}

#[test]
fn a_colliding_key_that_is_written_during_a_load_leaves_it_alone() {
    let cache: Cache<u64, u64, BuildHasherDefault<One>> = Cache::builder()
        .hasher(BuildHasherDefault::default())
        .build();
    // The first load begins when no entry has the hash, the others beside entries.
    for key in (0..8).step_by(2) {
        let value = cache.get_with(key, || {
            cache.insert(key + 1, 10);
            20
        });
        assert_eq!(value, 20);
    }
    cache.run_pending_tasks();
    let values: Vec<_> = (0..8).map(|key| cache.get(&key)).collect();
    assert_eq!(values, [Some(20), Some(10)].repeat(4));
    assert_eq!((cache.entry_count(), cache.iter().count()), (8, 8));
}

#[test]
fn waiters_of_a_revoked_load_share_what_its_leader_gets() {
    for written in [Some(99), None] {
        let (cache, delivered) = listened();
        let Leased::Lease(lease) = cache.lease(1) else {
            panic!("the key is absent");
        };
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let cache = cache.clone();
                thread::spawn(move || cache.get_with(1, || unreachable!()))
            })
            .collect();
        while cache.stats().load_waits() < 3 {
            thread::yield_now();
        }
        match written {
            Some(value) => cache.insert(1, value),
            None => cache.invalidate(&1),
        }
        lease.fill(10);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), written.unwrap_or(10));
        }
        assert_eq!(cache.get(&1), written);
        accounts_are_square(&cache, &delivered);
    }
}

#[test]
fn under_stress_no_stale_value_stays() {
    // The backend's version only grows; after each change the key is invalidated. A value in the
    // cache at the end must be the last version.
    for _ in 0..50 {
        let (cache, delivered) = listened();
        let versions: HashMap<u64, AtomicU64> =
            (0..2).map(|key| (key, AtomicU64::new(0))).collect();
        thread::scope(|scope| {
            for key in 0..2 {
                let (cache, versions) = (&cache, &versions);
                scope.spawn(move || {
                    for _ in 0..200 {
                        versions[&key].fetch_add(1, Ordering::SeqCst);
                        cache.invalidate(&key);
                    }
                });
                for _ in 0..2 {
                    scope.spawn(move || {
                        for _ in 0..200 {
                            let before = versions[&key].load(Ordering::SeqCst);
                            let read = || versions[&key].load(Ordering::SeqCst);
                            let got = cache.get_with(key, read);
                            // The invalidation may still be on its way.
                            assert!(got + 1 >= before, "{got} after {before}");
                        }
                    });
                }
            }
        });
        for (key, version) in &versions {
            if let Some(value) = cache.get(key) {
                assert_eq!(value, version.load(Ordering::SeqCst));
            }
        }
        accounts_are_square(&cache, &delivered);
    }
}

/// A way to load a value.
type Load = fn(&Cache<u64, u64>, u64, &AtomicU64);
/// A removal that returns nothing.
type Remove = fn(&Cache<u64, u64>, u64);

#[test]
fn a_value_read_before_a_change_of_the_source_is_not_cached_after_the_removal() {
    const ROUNDS: u64 = 200_000;
    let loads: [Load; 3] = [
        |cache, key, source| _ = cache.get_with(key, || source.load(Ordering::SeqCst)),
        |cache, key, source| {
            let entry = cache.entry(key);
            entry.or_insert_with(|| source.load(Ordering::SeqCst));
        },
        |cache, key, source| {
            let entry = cache.entry(key);
            entry.and_upsert_with(|_| source.load(Ordering::SeqCst));
        },
    ];
    let removals: [Remove; 2] = [
        |cache, key| cache.invalidate(&key),
        |cache, key| _ = cache.remove(&key),
    ];
    for (load, remove) in loads
        .iter()
        .flat_map(|load| removals.map(|remove| (load, remove)))
    {
        let cache: Cache<u64, u64> = Cache::builder().max_capacity(1_000).build();
        // Of each round: the source is 0 and then 1.
        let sources: Vec<AtomicU64> = (0..ROUNDS).map(|_| AtomicU64::new(0)).collect();
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        let (mut stale, mut made) = (0, 0);
        let end = Instant::now() + Duration::from_millis(300);
        thread::scope(|threads| {
            threads.spawn(|| {
                for round in 1..=ROUNDS {
                    while begun.load(Ordering::Acquire) != round {
                        if begun.load(Ordering::Relaxed) == u64::MAX {
                            return;
                        }
                        std::hint::spin_loop();
                    }
                    let source = &sources[round as usize - 1];
                    // So that neither thread is always the first.
                    (0..round % 300).for_each(|_| std::hint::spin_loop());
                    source.store(1, Ordering::SeqCst);
                    remove(&cache, round);
                    ended.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                if Instant::now() > end {
                    break;
                }
                begun.store(round, Ordering::Release);
                load(&cache, round, &sources[round as usize - 1]);
                while ended.load(Ordering::Acquire) != round {
                    std::hint::spin_loop();
                }
                stale += u64::from(cache.get(&round) == Some(0));
                made = round;
            }
            begun.store(u64::MAX, Ordering::Release);
        });
        assert_eq!(stale, 0, "stale values after {made} rounds");
    }
}
