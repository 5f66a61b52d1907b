//! Computes run one at a time for each key, and their results report what they did.

use crate::support::until;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use wheelhouse::compute::{CompResult, Op};
use wheelhouse::{Cache, Leased, ManualTicker, RemovalCause, expiry};

#[test]
fn or_insert_by_eight_threads_is_fresh_once() {
    for _ in 0..200 {
        let cache: Cache<u64, u64> = Cache::new(100);
        let all = Barrier::new(8);
        let fresh = AtomicUsize::new(0);
        let values: Vec<u64> = thread::scope(|scope| {
            let one = |number| {
                let (cache, all, fresh) = (&cache, &all, &fresh);
                scope.spawn(move || {
                    all.wait();
                    let entry = cache.entry(1).or_insert(number);
                    fresh.fetch_add(usize::from(entry.is_fresh()), Ordering::SeqCst);
                    assert!(entry.is_stored());
                    entry.into_value()
                })
            };
            let threads: Vec<_> = (0..8).map(one).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(fresh.into_inner(), 1);
        assert!(values.iter().all(|value| *value == values[0]));
    }
}

#[test]
fn what_an_operation_does_when_nothing_comes_between() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let go = |op: Op<u64>| cache.entry(7).and_compute_with(move |_| op);
    assert!(matches!(go(Op::Nop), CompResult::StillNone(7)));
    assert!(matches!(go(Op::Remove), CompResult::StillNone(7)));
    let CompResult::Inserted(entry) = go(Op::Put(1)) else {
        panic!()
    };
    assert_eq!((*entry.key(), *entry.value()), (7, 1));
    assert!(entry.is_fresh() && entry.is_stored() && !entry.is_old_value_replaced());
    let CompResult::Unchanged(entry) = go(Op::Nop) else {
        panic!()
    };
    assert!(*entry.value() == 1 && !entry.is_fresh() && entry.is_stored());
    let CompResult::ReplacedWith(entry) = go(Op::PutWithTtl(2, Duration::from_secs(60))) else {
        panic!()
    };
    assert!(entry.is_fresh() && entry.is_stored() && entry.is_old_value_replaced());
    assert!(entry.time_left() <= Some(Duration::from_secs(60)) && entry.time_left().is_some());
    let CompResult::Removed(entry) = go(Op::Remove) else {
        panic!()
    };
    assert!(*entry.value() == 2 && !entry.is_stored());
    assert_eq!(cache.get(&7), None);
    let failed = cache
        .entry(7)
        .and_try_compute_with(|_| Err::<Op<u64>, _>("no"));
    assert!(matches!(failed, Err("no")));
}

/// A compute's result, the key's value afterwards, and what the listener received.
type Overtaken = (CompResult<u64, u64>, Option<u64>, Vec<(u64, RemovalCause)>);

/// The result of a compute if `write` happens while its closure runs.
fn overtaken(before: Option<u64>, write: impl Fn(&Cache<u64, u64>), op: Op<u64>) -> Overtaken {
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&delivered);
    let cache: Cache<u64, u64> = Cache::builder()
        .record_stats()
        .removal_listener(move |_: &u64, value: &u64, cause| {
            tell.lock().unwrap().push((*value, cause));
        })
        .build();
    if let Some(value) = before {
        cache.insert(1, value);
    }
    let result = cache.entry(1).and_compute_with(|seen| {
        assert_eq!(seen.map(|seen| seen.into_value()), before);
        assert_eq!(cache.get(&1), before, "the old value is seen meanwhile");
        write(&cache);
        op
    });
    let after = cache.get(&1);
    cache.run_pending_tasks();
    let stats = cache.stats();
    let delivered = std::mem::take(&mut *delivered.lock().unwrap());
    let came = stats.insertions() + stats.updates();
    assert_eq!(came, delivered.len() as u64 + cache.entry_count());
    (result, after, delivered)
}

#[test]
fn an_insert_comes_after_the_compute() {
    let insert = |cache: &Cache<u64, u64>| cache.insert(1, 99);
    let (result, after, delivered) = overtaken(Some(1), insert, Op::Put(2));
    let CompResult::ReplacedWith(entry) = result else {
        panic!("{result:?}")
    };
    assert!(*entry.value() == 2 && !entry.is_stored());
    assert_eq!(
        (after, delivered),
        (Some(99), vec![(1, RemovalCause::Replaced)])
    );
    let (result, after, _) = overtaken(None, insert, Op::Put(2));
    let CompResult::Inserted(entry) = result else {
        panic!("{result:?}")
    };
    assert!(*entry.value() == 2 && !entry.is_stored());
    assert_eq!(after, Some(99));
    let (result, after, _) = overtaken(Some(1), insert, Op::Remove);
    assert!(matches!(result, CompResult::Overtaken(None)), "{result:?}");
    assert_eq!(after, Some(99));
    let (result, ..) = overtaken(Some(1), insert, Op::Nop);
    assert!(matches!(result, CompResult::Unchanged(entry) if *entry.value() == 1));
    let (result, ..) = overtaken(None, insert, Op::Nop);
    assert!(matches!(result, CompResult::StillNone(1)));
}

#[test]
fn an_invalidation_comes_after_the_compute() {
    let writes: [fn(&Cache<u64, u64>); 2] = [
        |cache| cache.invalidate(&1),
        |cache| {
            cache.invalidate_all();
        },
    ];
    for write in writes {
        let (result, after, _) = overtaken(Some(1), write, Op::Put(2));
        let CompResult::ReplacedWith(entry) = result else {
            panic!("{result:?}")
        };
        assert!(!entry.is_stored() && after.is_none());
        let (result, after, _) = overtaken(None, write, Op::Put(2));
        let CompResult::Inserted(entry) = result else {
            panic!("{result:?}")
        };
        assert!(!entry.is_stored() && after.is_none());
        let (result, ..) = overtaken(Some(1), write, Op::Remove);
        assert!(matches!(result, CompResult::Overtaken(None)), "{result:?}");
    }
}

#[test]
fn a_removal_that_returned_the_value_comes_before_the_compute() {
    let writes: [fn(&Cache<u64, u64>); 3] = [
        |cache| assert_eq!(cache.remove(&1), Some(1)),
        |cache| assert_eq!(cache.remove_if(&1, |value| *value == 1), Some(1)),
        |cache| cache.retain(|_, _| false),
    ];
    for write in writes {
        let (result, after, delivered) = overtaken(Some(1), write, Op::Put(2));
        assert!(
            matches!(result, CompResult::Overtaken(Some(2))),
            "{result:?}"
        );
        assert_eq!(
            (after, delivered),
            (None, vec![(1, RemovalCause::Explicit)])
        );
        let (result, ..) = overtaken(Some(1), write, Op::Remove);
        assert!(matches!(result, CompResult::Overtaken(None)), "{result:?}");
        let (result, ..) = overtaken(Some(1), write, Op::Nop);
        assert!(matches!(result, CompResult::Unchanged(entry) if *entry.value() == 1));
    }
}

#[test]
fn conditional_writes_that_do_not_match_overtake_nothing() {
    let (result, after, _) = overtaken(
        Some(1),
        |cache| {
            assert_eq!(cache.replace_if(&1, 5, |value| *value == 2), Err(5));
            assert_eq!(cache.remove_if(&1, |value| *value == 2), None);
        },
        Op::Put(2),
    );
    assert!(matches!(result, CompResult::ReplacedWith(entry) if entry.is_stored()));
    assert_eq!(after, Some(2));
    let (result, after, _) = overtaken(
        None,
        |cache| {
            assert_eq!(cache.replace_if(&1, 5, |_| true), Err(5));
            assert_eq!(cache.remove_if(&1, |_| true), None);
        },
        Op::Put(2),
    );
    assert!(matches!(result, CompResult::Inserted(entry) if entry.is_stored()));
    assert_eq!(after, Some(2));
}

#[test]
fn an_entry_that_merely_expired_meanwhile() {
    for (op, stored) in [(Op::Put(2), true), (Op::Remove, false)] {
        let ticker = ManualTicker::new();
        let cache: Cache<u64, u64> = Cache::builder().ticker(ticker.clone()).build();
        cache.insert_with_ttl(1, 1, Duration::from_secs(5));
        let result = cache.entry(1).and_compute_with(|seen| {
            assert!(seen.is_some());
            ticker.advance(Duration::from_secs(5));
            op
        });
        if stored {
            let CompResult::Inserted(entry) = result else {
                panic!("{result:?}")
            };
            assert!(entry.is_stored() && !entry.is_old_value_replaced());
            assert_eq!(cache.get(&1), Some(2));
        } else {
            assert!(matches!(result, CompResult::StillNone(1)), "{result:?}");
        }
    }
}

#[test]
fn an_entry_that_was_evicted_meanwhile() {
    for op in [Op::Put(2), Op::Remove] {
        let cache: Cache<u64, u64> = Cache::new(10);
        cache.insert(1, 1);
        let result = cache.entry(1).and_compute_with(|seen| {
            assert!(seen.is_some());
            cache.policy().set_max_capacity(0);
            cache.run_pending_tasks();
            assert!(!cache.contains_key(&1));
            cache.policy().set_max_capacity(10);
            op
        });
        match result {
            CompResult::Inserted(entry) => assert!(entry.is_stored()),
            CompResult::StillNone(1) => assert_eq!(cache.get(&1), None),
            other => panic!("{other:?}"),
        }
    }
}

/// `remove` of an absent key returned what the closure saw: nothing. So it came before the compute.
#[test]
fn a_removal_that_returned_nothing_comes_before_the_compute() {
    let remove = |cache: &Cache<u64, u64>| assert_eq!(cache.remove(&1), None);
    let (result, after, _) = overtaken(None, remove, Op::Put(2));
    assert!(
        matches!(result, CompResult::Overtaken(Some(2))),
        "{result:?}"
    );
    assert_eq!(after, None);
    let (result, ..) = overtaken(None, remove, Op::Nop);
    assert!(matches!(result, CompResult::StillNone(1)), "{result:?}");
}

#[test]
fn several_writes_during_a_compute() {
    // The removal that returned 1 cannot come after a compute that stored 2.
    let remove_insert = |cache: &Cache<u64, u64>| {
        assert_eq!(cache.remove(&1), Some(1));
        cache.insert(1, 8);
    };
    let (result, after, _) = overtaken(Some(1), remove_insert, Op::Put(2));
    assert!(
        matches!(result, CompResult::Overtaken(Some(2))),
        "{result:?}"
    );
    assert_eq!(after, Some(8));
    // The insert overwrote the compute's value, and the removal took that of the insert.
    let insert_remove = |cache: &Cache<u64, u64>| {
        cache.insert(1, 8);
        assert_eq!(cache.remove(&1), Some(8));
    };
    for before in [Some(1), None] {
        let (result, after, _) = overtaken(before, insert_remove, Op::Put(2));
        let entry = result.into_entry().expect("just before the insert");
        assert_eq!((*entry.value(), entry.is_stored(), after), (2, false, None));
    }
    // The same of an entry that had expired: the writes came, so nothing is stored.
    let expire_insert = |cache: &Cache<u64, u64>| {
        cache.set_expiry(&1, Some(Duration::ZERO));
        cache.insert(1, 8);
    };
    let (result, after, _) = overtaken(Some(1), expire_insert, Op::Put(2));
    assert!(result.into_entry().is_some_and(|entry| !entry.is_stored()));
    assert_eq!(after, Some(8));
    let (result, ..) = overtaken(Some(1), expire_insert, Op::Remove);
    assert!(matches!(result, CompResult::Overtaken(None)), "{result:?}");
}

#[test]
fn an_insert_during_a_compute_returns_at_once() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 1);
    let (began, begun) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let other = cache.clone();
    let computing = thread::spawn(move || {
        other.entry(1).and_compute_with(|_| {
            began.send(()).unwrap();
            gone.recv().unwrap();
            Op::Put(2)
        })
    });
    begun.recv().unwrap();
    cache.insert(1, 3);
    assert_eq!(cache.get(&1), Some(3));
    go.send(()).unwrap();
    assert!(matches!(computing.join().unwrap(), CompResult::ReplacedWith(e) if !e.is_stored()));
    assert_eq!(cache.get(&1), Some(3));
}

#[test]
fn turns_come_in_the_order_of_arrival() {
    // The value has a digit for each thread, the last one at the end.
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let first = cache.lease(0);
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let other = cache.clone();
            let thread = thread::spawn(move || {
                other
                    .entry(0)
                    .and_upsert_with(|old| old.map_or(0, |old| old.into_value()) * 10 + number + 1);
            });
            until("it waits", || cache.stats().load_waits() == number + 1);
            thread
        })
        .collect();
    drop(first);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(cache.get(&0), Some(12_345_678));
}

#[test]
fn a_waiter_for_a_turn_moves_on_when_the_load_is_revoked() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let stuck = cache.lease(1);
    let other = cache.clone();
    let computing = thread::spawn(move || other.entry(1).and_upsert_with(|_| 5).is_stored());
    until("it waits", || cache.stats().load_waits() == 1);
    cache.invalidate(&1);
    assert!(
        computing.join().unwrap(),
        "the stuck lease holds it up no longer"
    );
    drop(stuck);
}

#[test]
fn if_nobody_else_does_not_wait() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let busy = cache.lease(1);
    let compute = || {
        cache
            .entry(1)
            .and_try_compute_if_nobody_else(|_| -> Result<_, ()> { unreachable!() })
    };
    assert!(matches!(compute(), Ok(CompResult::StillNone(1))));
    drop(busy);
    cache.insert(1, 4);
    cache.entry(1).and_compute_with(|_| {
        assert!(matches!(compute(), Ok(CompResult::Unchanged(entry)) if *entry.value() == 4));
        Op::Nop
    });
    let free = cache
        .entry(1)
        .and_try_compute_if_nobody_else(|_| Ok::<_, ()>(Op::Remove));
    assert!(matches!(free, Ok(CompResult::Removed(_))));
}

#[test]
fn a_miss_joins_a_compute_of_an_absent_key() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let (began, begun) = mpsc::channel();
    let other = cache.clone();
    let computing = thread::spawn(move || {
        let wait = other.clone();
        other.entry(1).and_upsert_with(|_| {
            began.send(()).unwrap();
            until("it waits", || wait.stats().load_waits() == 1);
            8
        });
    });
    begun.recv().unwrap();
    assert_eq!(cache.get_with(1, || unreachable!()), 8);
    computing.join().unwrap();
}

#[test]
fn upserts_lose_no_count_with_eviction_expiry_and_removal_around() {
    // What was taken plus what is left equals what was added.
    let ticker = ManualTicker::new();
    let gone = Arc::new(AtomicU64::new(0));
    let note = Arc::clone(&gone);
    let cache: Cache<u64, u64> = Cache::builder()
        .max_capacity(8)
        .ticker(ticker.clone())
        .time_to_live(Duration::from_secs(10))
        .removal_listener(move |_: &u64, value: &u64, cause| {
            if cause != RemovalCause::Replaced {
                note.fetch_add(*value, Ordering::SeqCst);
            }
        })
        .build();
    let added = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let adders: Vec<_> = (0..8_u64)
            .map(|number| {
                let (cache, added) = (&cache, &added);
                scope.spawn(move || {
                    for round in 0..1_500_u64 {
                        let key = (number * 7 + round) % 16;
                        let result = cache.entry(key).and_compute_with(|old| {
                            Op::Put(old.map_or(0, |old| old.into_value()) + 1)
                        });
                        match result {
                            // All of it is new if the value that the closure saw has expired or was
                            // evicted.
                            CompResult::Inserted(entry) => {
                                assert!(entry.is_stored());
                                added.fetch_add(*entry.value(), Ordering::SeqCst);
                            }
                            CompResult::ReplacedWith(entry) => {
                                assert!(entry.is_stored());
                                added.fetch_add(1, Ordering::SeqCst);
                            }
                            CompResult::Overtaken(Some(_)) => (),
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut round = 0;
            while !done.load(Ordering::SeqCst) {
                round += 1;
                _ = cache.remove(&(round % 16));
                ticker.advance(Duration::from_millis(100));
                if round % 16 == 0 {
                    cache.run_pending_tasks();
                }
                thread::yield_now();
            }
        });
        for adder in adders {
            adder.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    cache.run_pending_tasks();
    let left: u64 = cache.iter().map(|entry| *entry.value()).sum();
    assert_eq!(gone.load(Ordering::SeqCst) + left, added.into_inner());
}

#[test]
fn upserts_of_one_key_lose_no_count() {
    let cache: Cache<u64, u64> = Cache::new(10);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    cache
                        .entry(1)
                        .and_upsert_with(|old| old.map_or(1, |old| old.into_value() + 1));
                }
            });
        }
    });
    assert_eq!(cache.get(&1), Some(16_000));
}

#[test]
fn compare_and_set_loses_no_count() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    loop {
                        let seen = cache.get(&1).unwrap();
                        if cache
                            .replace_if(&1, seen + 1, |value| *value == seen)
                            .is_ok()
                        {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(cache.get(&1), Some(2_000));
}

#[test]
fn a_token_is_taken_once() {
    let cache: Cache<u64, u64> = Cache::new(100_000);
    let taken = AtomicUsize::new(0);
    (0..2_000).for_each(|token| cache.insert(token, token));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for token in 0..2_000 {
                    let mine = cache.remove_if(&token, |value| *value == token);
                    taken.fetch_add(usize::from(mine.is_some()), Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(taken.into_inner(), 2_000);
}

#[test]
fn or_insert_with_if_replaces_a_value_that_the_closure_chooses() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 1);
    let entry = cache
        .entry(1)
        .or_insert_with_if(|| unreachable!(), |_| false);
    assert!(!entry.is_fresh());
    let entry = cache.entry(1).or_insert_with_if(|| 2, |value| *value == 1);
    assert!(entry.is_fresh() && entry.is_old_value_replaced());
    let entry = cache
        .entry_by_ref(&2)
        .or_insert_with_if(|| 7, |_| unreachable!());
    assert!(entry.is_fresh() && !entry.is_old_value_replaced());
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(2), Some(7)));
}

/// It is a load, although it may run over a live entry: its caller gets the entry that is there.
#[test]
fn or_insert_with_if_returns_the_entry_of_a_write_that_came_meanwhile() {
    for before in [None, Some(1)] {
        let cache: Cache<u64, u64> = Cache::new(10);
        if let Some(value) = before {
            cache.insert(1, value);
        }
        let entry = cache.entry(1).or_insert_with_if(
            || {
                cache.insert(1, 99);
                2
            },
            |_| true,
        );
        assert_eq!(*entry.value(), 99, "over {before:?}");
        assert!(!entry.is_fresh() && !entry.is_stored() && !entry.is_old_value_replaced());
        assert_eq!(cache.get(&1), Some(99));
        // After a removal no entry is there: the caller gets its own value, which is not stored.
        let entry = cache.entry(1).or_insert_with_if(
            || {
                cache.remove(&1);
                2
            },
            |_| true,
        );
        assert_eq!(*entry.value(), 2, "over {before:?}");
        assert!(entry.is_fresh() && !entry.is_stored() && !entry.is_old_value_replaced());
        assert_eq!(cache.get(&1), None);
    }
}

#[test]
fn a_panic_in_a_compute_leaves_the_entry() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 1);
    let panicked = std::panic::catch_unwind(|| {
        cache
            .entry(1)
            .and_upsert_with(|_| panic!("the compute gave up"))
    });
    assert!(panicked.is_err());
    assert_eq!(cache.get(&1), Some(1));
    assert_eq!(cache.entry(1).and_upsert_with(|_| 2).into_value(), 2);
    assert!(!matches!(cache.lease(1), Leased::Busy));
}

/// A counter whose deadline was given when it was made does not become immortal.
#[test]
fn a_value_made_from_the_present_one_keeps_its_deadline() {
    type Update = fn(&Cache<u64, u64>);
    let updates: [(&str, Update); 3] = [
        ("replace_if", |cache| {
            assert_eq!(cache.replace_if(&1, 2, |_| true), Ok(()));
        }),
        ("and_upsert_with", |cache| {
            cache.entry(1).and_upsert_with(|_| 2);
        }),
        ("and_compute_with", |cache| {
            cache.entry(1).and_compute_with(|_| Op::Put(2));
        }),
    ];
    let (minute, clock) = (Duration::from_secs(60), ManualTicker::new());
    for (name, update) in updates {
        let builder = || Cache::builder().ticker(clock.clone());
        let left = |cache: &Cache<u64, u64>| {
            let entry = cache.peek_ref(&1).expect(name);
            assert_eq!(*entry, 2, "{name}");
            entry.time_left()
        };
        let idle = builder().time_to_idle(minute).build();
        idle.insert_with_ttl(1, 1, minute * 2);
        let plain = builder().build();
        plain.insert_with_ttl(1, 1, minute);
        let never = builder().build();
        never.insert(1, 1);
        let live = builder().time_to_live(minute).build();
        live.insert_with_ttl(1, 1, minute / 2);
        let policy = expiry::writing(|_: &u64, value: &u64| Some(Duration::from_secs(*value)));
        let asked = builder().expire_after(policy).build();
        asked.insert(1, 1);
        clock.advance(minute / 120);
        let caches = [&idle, &plain, &never, &live, &asked];
        caches.into_iter().for_each(update);
        let half = minute / 120;
        let kept = Some(minute - half);
        assert_eq!(left(&plain), kept, "{name}");
        assert_eq!(left(&never), None, "{name}");
        assert_eq!(
            left(&idle),
            Some(minute),
            "{name}: the idle limit counts anew"
        );
        assert_eq!(
            left(&live),
            Some(minute),
            "{name}: the time to live counts anew"
        );
        assert_eq!(
            left(&asked),
            Some(Duration::from_secs(2)),
            "{name}: the policy is asked"
        );
        // Where both deadlines are kept apart, the own one has stayed.
        for _ in 0..2 {
            clock.advance(minute * 3 / 4);
            assert_eq!(idle.get(&1), Some(2), "{name}");
        }
        clock.advance(minute / 2 - half);
        assert_eq!(idle.get(&1), None, "{name}");
        // `insert` sets the lifetime anew.
        plain.insert_with_ttl(1, 1, minute);
        plain.insert(1, 2);
        assert_eq!(left(&plain), None, "{name}");
    }
}
