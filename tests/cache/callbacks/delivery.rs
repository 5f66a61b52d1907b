//! Which thread calls the listener, and which calls wait for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::{Gate, millis, must_end, secs, until};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced, Size};
use wheelhouse::{
    Alarm, Cache, CacheBuilder, Delivery, Leased, MaintenanceTask, ManualTicker, RemovalCause,
    Scheduler, compute::Op,
};

const SOON: Duration = secs(20);

/// The threads on which a listener was called.
type Threads = Arc<Mutex<Vec<(ThreadId, Option<String>)>>>;

fn note_thread(threads: &Threads) -> impl Fn(&u32, &u32, RemovalCause) + use<> {
    let threads = Arc::clone(threads);
    move |_, _, _| {
        let here = thread::current();
        let name = here.name().map(str::to_string);
        threads.lock().unwrap().push((here.id(), name));
    }
}

fn kinds_of_scheduler() -> [Scheduler; 3] {
    struct Never;
    impl Alarm for Never {
        fn set(&self, _: Duration, _: MaintenanceTask) {}
    }
    [
        Scheduler::background(),
        Scheduler::disabled(),
        Scheduler::custom(Never),
    ]
}

#[test]
fn in_the_background_no_thread_of_the_program_calls_the_listener() {
    for scheduler in kinds_of_scheduler() {
        let threads = Threads::default();
        let cache = Cache::builder()
            .max_capacity(100)
            .scheduler(scheduler)
            .removal_listener(note_thread(&threads))
            .build();
        for key in 0..5_000 {
            cache.insert(key, key);
            cache.insert(key, key);
        }
        cache.run_pending_tasks();
        let heard = threads.lock().unwrap().len();
        assert_eq!(heard, 9_900, "run_pending_tasks waits");
        cache.invalidate_all();
        drop(cache);
        let threads = threads.lock().unwrap();
        assert_eq!(threads.len(), 10_000, "the last drop waits");
        for (id, name) in &*threads {
            assert_ne!(*id, thread::current().id());
            assert_eq!(name.as_deref(), Some("wheelhouse-listener"));
        }
    }
}

/// The lock is held while the cache is written to.
#[test]
fn a_writer_may_hold_a_lock_that_the_listener_takes() {
    for scheduler in kinds_of_scheduler() {
        must_end(move || {
            let lock = Arc::new(Mutex::new(0));
            let listens = Arc::clone(&lock);
            let cache = Cache::builder()
                .scheduler(scheduler)
                .removal_listener(move |_: &u32, _: &u32, _| *listens.lock().unwrap() += 1)
                .build();
            let held = lock.lock().unwrap();
            (0..20_000).for_each(|round| cache.insert(round % 10, round));
            drop(held);
            cache.run_pending_tasks();
            assert_eq!(*lock.lock().unwrap(), 19_990);
        });
    }
}

#[test]
fn a_call_inside_a_listener_does_not_wait_for_deliveries() {
    must_end(|| {
        let (tell, told) = mpsc::channel();
        let cache = Arc::new_cyclic(|me: &Weak<Cache<u32, u32>>| {
            let me = me.clone();
            Cache::builder()
                .removal_listener(move |&key: &u32, _: &u32, _| {
                    if key < 3 {
                        if let Some(cache) = me.upgrade() {
                            cache.insert(key + 1, 0);
                            cache.invalidate(&(key + 1));
                            cache.run_pending_tasks();
                        }
                    }
                    tell.send(key).ok();
                })
                .build()
        });
        cache.insert(0, 0);
        cache.invalidate(&0);
        for key in 0..4 {
            assert_eq!(told.recv_timeout(SOON), Ok(key));
        }
    });
}

#[test]
fn a_listener_that_hangs_holds_up_its_own_cache_only() {
    let gate = Gate::new();
    let (entered, enters) = mpsc::channel();
    let hanging: Vec<Cache<u32, u32>> = (0..8)
        .map(|number| {
            let (held, entered) = (Arc::clone(&gate), entered.clone());
            Cache::builder()
                .removal_listener(move |_: &u32, _: &u32, _| {
                    entered.send(number).ok();
                    held.wait();
                })
                .build()
        })
        .collect();
    for cache in &hanging {
        cache.insert(0, 0);
        cache.invalidate(&0);
    }
    for _ in &hanging {
        enters.recv_timeout(SOON).expect("each has a thread");
    }
    let (tell, told) = mpsc::channel();
    let quick = Cache::builder()
        .removal_listener(move |_: &u32, &value: &u32, _| _ = tell.send(value))
        .build();
    for value in 0..100 {
        quick.insert(0, value);
        quick.invalidate(&0);
    }
    for value in 0..100 {
        assert_eq!(told.recv_timeout(SOON), Ok(value));
    }
    gate.open();
}

fn by_callers() -> CacheBuilder<u32, u32> {
    Cache::builder().delivery(Delivery::Caller)
}

#[test]
fn a_call_that_removes_returns_after_the_listener_has_heard_of_it() {
    for scheduler in kinds_of_scheduler() {
        let heard = Record::new();
        let cache = by_callers()
            .scheduler(scheduler)
            .removal_listener(heard.listener())
            .build();
        (0..1_000).for_each(|key| cache.insert(key, 0));
        assert_eq!(heard.take(), []);
        for key in 0..1_000 {
            cache.insert(key, 1);
            assert_eq!(heard.take(), [(key, 0, Replaced)]);
        }
        cache.insert_with_ttl(1, 2, secs(60));
        assert_eq!(heard.take(), [(1, 1, Replaced)]);
        cache.invalidate(&1);
        assert_eq!(heard.take(), [(1, 2, Explicit)]);
        assert_eq!(cache.remove(&2), Some(1));
        assert_eq!(heard.take(), [(2, 1, Explicit)]);
        cache.invalidate(&2);
        assert_eq!(heard.take(), []);
        cache.retain(|key, _| *key >= 500);
        assert_eq!(heard.take().len(), 498);
        assert_eq!(cache.entry(7).or_insert(3).into_value(), 3);
        _ = cache.entry(7).and_upsert_with(|_| 4);
        assert_eq!(heard.take(), [(7, 3, Replaced)]);
        cache.invalidate_all();
        assert_eq!(heard.take().len(), 501);
        drop(cache);
        assert_eq!(heard.take(), []);
    }
}

/// Without a second thread: what a caller removes because it is due or too much, it tells.
#[test]
fn a_caller_tells_what_it_expires_and_evicts() {
    let (clock, threads) = (ManualTicker::new(), Threads::default());
    let counts: Arc<[AtomicU32; 2]> = Arc::default();
    let (note, count) = (note_thread(&threads), Arc::clone(&counts));
    let cache = by_callers()
        .ticker(clock.clone())
        .max_capacity(1_000)
        .removal_listener(move |key: &u32, value: &u32, cause| {
            assert!(matches!(cause, Expired | Size));
            count[usize::from(cause == Size)].fetch_add(1, Ordering::Relaxed);
            note(key, value, cause);
        })
        .build();
    (0..1_000).for_each(|key| cache.insert_with_ttl(key, 0, secs(10)));
    clock.advance(secs(20));
    for key in 1_000..20_000 {
        cache.insert(key, 0);
        assert_eq!(cache.get(&(key % 1_000)), None);
    }
    cache.run_pending_tasks();
    let [expired, evicted] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert_eq!((expired, evicted), (1_000, 18_000));
    let threads = threads.lock().unwrap();
    assert!(threads.iter().all(|(id, _)| *id == thread::current().id()));
}

/// No write comes after the new bound: the call that evicts tells.
#[test]
fn a_call_that_looks_at_the_cache_and_so_evicts_tells_what_it_has_evicted() {
    type Look = fn(&Cache<u32, u32>);
    let looks: [Look; 5] = [
        |cache| _ = cache.policy().hottest(1),
        |cache| _ = cache.policy().coldest(1),
        |cache| _ = cache.policy().first_to_evict(1),
        |cache| _ = cache.snapshot(),
        |cache| _ = cache.next_maintenance_in(),
    ];
    for (number, look) in looks.iter().enumerate() {
        for delivery in [Delivery::Caller, Delivery::Background] {
            let (tell, told) = mpsc::channel();
            let cache = Cache::builder()
                .delivery(delivery)
                .ticker(ManualTicker::new())
                .scheduler(Scheduler::disabled())
                .max_capacity(100)
                .removal_listener(move |_: &u32, _: &u32, cause| _ = tell.send(cause))
                .build();
            (0..100).for_each(|key| cache.insert(key, 0));
            cache.policy().set_max_capacity(10);
            look(&cache);
            if number == 4 && delivery == Delivery::Background {
                // It delivers nothing in the background, and says so.
                assert_eq!(cache.next_maintenance_in(), Some(Duration::ZERO));
                cache.run_pending_tasks();
            }
            assert_eq!(cache.entry_count(), 10, "{number}");
            let limit = match delivery {
                Delivery::Caller => Duration::ZERO,
                _ => SOON,
            };
            for _ in 0..90 {
                assert_eq!(told.recv_timeout(limit), Ok(Size), "{number} {delivery:?}");
            }
        }
    }
}

/// The run that the write has requested comes before the listener has returned.
#[test]
fn what_a_slow_listener_of_a_caller_has_heard_of_is_dropped_soon() {
    let census = Census::default();
    let cache = Cache::builder()
        .delivery(Delivery::Caller)
        .removal_listener(|_: &u32, _: &Counted<()>, _| thread::sleep(millis(100)))
        .build();
    cache.insert(1, census.counted(()));
    cache.invalidate(&1);
    until("the value is dropped", || census.alive() == 0);
}

#[test]
fn what_the_scheduler_thread_removes_is_told_in_the_background() {
    let (tell, told) = mpsc::channel();
    let cache = by_callers()
        .expiry_resolution(millis(1))
        .removal_listener(move |&key: &u32, _: &u32, cause| {
            let name = thread::current().name().map(str::to_string);
            _ = tell.send((key, cause, name));
        })
        .build();
    cache.insert_with_ttl(1, 1, millis(5));
    let (key, cause, name) = told.recv_timeout(SOON).expect("nobody calls the cache");
    assert_eq!((key, cause), (1, Expired));
    assert_eq!(name.as_deref(), Some("wheelhouse-listener"));
}

#[test]
fn callers_tell_each_removal_once_and_in_order_for_each_key() {
    const EACH: u32 = 20_000;
    let heard = Record::new();
    let told: Arc<Vec<AtomicU32>> = Arc::new((0..4).map(|_| AtomicU32::new(0)).collect());
    let (record, counts) = (heard.clone(), Arc::clone(&told));
    let inside = Arc::new(AtomicBool::new(false));
    let cache: Cache<u32, u32> = Cache::builder()
        .delivery(Delivery::Caller)
        .removal_listener(move |key: &u32, value: &u32, cause| {
            assert!(!inside.swap(true, Ordering::SeqCst), "two at a time");
            record.note(key, value, cause);
            counts[(value / EACH) as usize].fetch_add(1, Ordering::SeqCst);
            inside.store(false, Ordering::SeqCst);
        })
        .build();
    let shared = cache.clone();
    must_end(move || {
        thread::scope(|threads| {
            for writer in 0..4 {
                let (cache, told) = (&shared, &told);
                threads.spawn(move || {
                    for n in 0..EACH {
                        // A key of its own: the removal is its own, too.
                        let key = 100 + writer as u32;
                        cache.insert(key, writer as u32 * EACH + n);
                        if n % 3 == 0 {
                            cache.invalidate(&key);
                        }
                        // Every value before this one has left.
                        let least = if n % 3 == 0 { n + 1 } else { n };
                        assert!(told[writer].load(Ordering::SeqCst) >= least, "{n}");
                    }
                });
            }
        });
    });
    cache.invalidate_all();
    let mut last = HashMap::new();
    let heard = heard.take();
    assert_eq!(heard.len(), 4 * EACH as usize);
    for (key, value, _) in heard {
        let n = value % EACH;
        let before = last.insert(key, n);
        assert!(
            before.is_none_or(|before| before < n),
            "{n} after {before:?}"
        );
    }
}

#[test]
fn a_listener_of_a_caller_may_call_the_cache_and_waits_for_nothing() {
    must_end(|| {
        let heard = Record::new();
        let record = heard.clone();
        let cache = Arc::new_cyclic(|me: &Weak<Cache<u32, u32>>| {
            let me = me.clone();
            by_callers()
                .removal_listener(move |key: &u32, value: &u32, cause| {
                    record.note(key, value, cause);
                    if let Some(cache) = me.upgrade() {
                        if *value < 5 {
                            // The same key, and another.
                            cache.insert(*key, value + 1);
                            cache.insert(*key, value + 2);
                            cache.invalidate(&77);
                            cache.run_pending_tasks();
                        }
                    }
                })
                .build()
        });
        cache.insert(77, 100);
        cache.insert(1, 0);
        cache.invalidate(&1);
        // By then also what the listener removed.
        let heard = heard.take();
        assert_eq!(heard[0], (1, 0, Explicit));
        assert_eq!(heard[1], (1, 1, Replaced));
        assert!(heard.contains(&(77, 100, Explicit)), "{heard:?}");
    });
}

/// A panic in the listener does not reach the caller.
#[test]
fn a_panic_of_a_callers_listener_is_contained() {
    crate::support::hide_scripted_panics();
    let cache = by_callers()
        .record_stats()
        .removal_listener(|_: &u32, _: &u32, _| panic!("told to panic in the listener"))
        .build();
    cache.insert(1, 1);
    cache.insert(1, 2);
    assert_eq!(cache.get(&1), Some(2));
    assert_eq!(cache.stats().listener_panics(), 1);
    cache.invalidate(&1);
    assert_eq!(cache.stats().listener_panics(), 2);
}

/// The other cache is told by its own listener, inside this one.
#[test]
fn a_listener_of_a_caller_may_write_to_another_such_cache() {
    must_end(|| {
        let (inner_heard, outer_heard) = (Record::new(), Record::new());
        let inner = by_callers()
            .removal_listener(inner_heard.listener())
            .build();
        let (record, into) = (outer_heard.clone(), inner.clone());
        let outer = by_callers()
            .removal_listener(move |key: &u32, value: &u32, cause| {
                record.note(key, value, cause);
                into.insert(*key, *value);
            })
            .build();
        for value in 0..3 {
            outer.insert(1, value);
        }
        assert_eq!(outer_heard.take(), [(1, 0, Replaced), (1, 1, Replaced)]);
        assert_eq!(inner_heard.take(), [(1, 0, Replaced)]);
    });
}

/// The listener has the runtime's handle, whatever thread calls it, and nothing is lost.
#[test]
fn a_listener_reaches_a_runtime_by_a_captured_handle() {
    const REMOVALS: u32 = 1_000;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for delivery in [Delivery::Background, Delivery::Caller] {
        let heard = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&heard);
        runtime.block_on(async move {
            let handle = tokio::runtime::Handle::current();
            let cache: Cache<u32, u32> = Cache::builder()
                .record_stats()
                .delivery(delivery)
                .removal_listener(move |_: &u32, _: &u32, _| {
                    let count = Arc::clone(&count);
                    handle.spawn(async move { count.fetch_add(1, Ordering::SeqCst) });
                })
                .build();
            for key in 0..REMOVALS {
                cache.insert(key, key);
                cache.invalidate(&key);
            }
            cache.run_pending_tasks();
            assert_eq!(cache.stats().listener_panics(), 0);
            (0..REMOVALS).for_each(|key| cache.insert(key, 1));
            cache.invalidate_all();
        });
        // The tasks that the listener has spawned.
        until("the tasks", || heard.load(Ordering::SeqCst) == 2 * REMOVALS);
    }
}

/// On a runtime of one thread, which the drop of the cache blocks for a moment.
#[test]
fn a_channel_and_a_task_that_is_awaited_at_shutdown_lose_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let saved = runtime.unwrap().block_on(async {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let saving = tokio::spawn(async move {
            let mut saved = Vec::new();
            while let Some(heard) = told.recv().await {
                tokio::task::yield_now().await;
                saved.push(heard);
            }
            saved
        });
        let cache: Cache<u32, u32> = Cache::builder()
            .removal_listener(move |key: &u32, value: &u32, cause| {
                tell.send((*key, *value, cause)).ok();
            })
            .build();
        for value in 0..1_000 {
            cache.insert(1, value);
        }
        drop(cache);
        saving.await.unwrap()
    });
    let replaced: Vec<_> = (0..999).map(|value| (1, value, Replaced)).collect();
    assert_eq!(saved, replaced);
}

/// A runtime of one thread waits for a delivery. The listener waits for a load that is a task of
/// that runtime.
fn waits_for_a_listener_that_needs_a_task_of_its_own(
    builder: CacheBuilder<u32, u32>,
    call: fn(&Cache<u32, u32>),
) {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async move {
            let users: Cache<u32, u32> = Cache::new(10);
            let heard = Record::new();
            let (entered, enters) = mpsc::channel();
            let (needs, record) = (users.clone(), heard.clone());
            let cache = builder
                .removal_listener(move |key: &u32, _: &u32, cause| {
                    entered.send(()).ok();
                    record.note(key, &needs.get_with(1, || 0), cause);
                })
                .build();
            cache.insert(1, 1);
            cache.insert(2, 2);
            let (finish, finished) = tokio::sync::oneshot::channel();
            let load = tokio::spawn(async move {
                users
                    .get_with_async(1, async { finished.await.unwrap() })
                    .await
            });
            // The load has begun, and lies between two polls.
            tokio::task::yield_now().await;
            // Another thread removes an entry, and so this one waits for a thread that delivers.
            let other = cache.clone();
            let removes = thread::spawn(move || {
                other.invalidate(&2);
                other.run_pending_tasks();
            });
            enters.recv_timeout(SOON).expect("the listener runs");
            call(&cache);
            done.send(()).ok();
            finish.send(7).unwrap();
            assert_eq!(load.await.unwrap(), 7);
            removes.join().unwrap();
            drop(cache);
            let heard: Vec<_> = heard.take().iter().map(|heard| heard.1).collect();
            assert!(heard.iter().all(|value| *value == 7), "{heard:?}");
        });
    });
    let began = Instant::now();
    ended.recv_timeout(SOON).expect("the call waits for ever");
    println!("it has waited {:?}", began.elapsed());
}

#[test]
fn a_wait_for_a_listener_that_waits_for_a_task_of_this_thread_ends() {
    waits_for_a_listener_that_needs_a_task_of_its_own(Cache::builder(), Cache::run_pending_tasks);
    waits_for_a_listener_that_needs_a_task_of_its_own(by_callers(), |cache| cache.invalidate(&1));
    waits_for_a_listener_that_needs_a_task_of_its_own(by_callers(), |cache| cache.insert(1, 9));
    waits_for_a_listener_that_needs_a_task_of_its_own(by_callers(), Cache::run_pending_tasks);
}

/// A listener that is a victim cache: no entry is in neither place for long.
#[test]
fn with_callers_each_victim_is_told_before_the_next_one_leaves() {
    const BOUND: u32 = 1_000;
    const INSERTS: u32 = 10_000;
    for scheduler in [Scheduler::background(), Scheduler::disabled()] {
        let inserted = Arc::new(AtomicU32::new(0));
        let came = Arc::clone(&inserted);
        // How many were told, and the most that were gone and not told.
        let told = Arc::new([const { AtomicU32::new(0) }; 2]);
        let tells = Arc::clone(&told);
        let cache = Arc::new_cyclic(|me: &Weak<Cache<u32, u32>>| {
            let me = me.clone();
            by_callers()
                .scheduler(scheduler)
                .max_capacity(u64::from(BOUND))
                .removal_listener(move |_: &u32, _: &u32, cause| {
                    assert_eq!(cause, Size);
                    let Some(cache) = me.upgrade() else { return };
                    let gone = came.load(Ordering::SeqCst) - cache.entry_count() as u32;
                    let before = tells[0].fetch_add(1, Ordering::SeqCst);
                    tells[1].fetch_max(gone - before, Ordering::SeqCst);
                })
                .build()
        });
        for key in 0..INSERTS {
            inserted.fetch_add(1, Ordering::SeqCst);
            cache.insert(key, key);
        }
        cache.run_pending_tasks();
        let told = told.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert_eq!(told[0], INSERTS - BOUND);
        assert!(told[1] <= 4, "{} were in neither place", told[1]);
    }
}

type Loads = fn(&Cache<u32, u32>);

/// The methods that load key 1.
const METHODS: [(&str, Loads); 11] = [
    ("get_with", |cache| _ = cache.get_with(1, || 2)),
    ("optionally_get_with", |cache| {
        _ = cache.optionally_get_with(1, || Some(2));
    }),
    ("try_get_with", |cache| {
        cache.try_get_with(1, || Ok::<_, ()>(2)).unwrap();
    }),
    ("get_all_with", |cache| {
        cache
            .get_all_with([1], |_| Ok::<_, ()>(vec![Some(2)]))
            .unwrap();
    }),
    ("lease", |cache| {
        if let Leased::Lease(lease) = cache.lease(1) {
            _ = lease.fill(2);
        }
    }),
    ("or_insert", |cache| _ = cache.entry(1).or_insert(2)),
    ("or_insert_with", |cache| {
        _ = cache.entry(1).or_insert_with(|| 2);
    }),
    ("or_insert_with_if", |cache| {
        _ = cache.entry(1).or_insert_with_if(|| 2, |_| true);
    }),
    ("and_upsert_with", |cache| {
        _ = cache.entry(1).and_upsert_with(|_| 2);
    }),
    ("and_compute_with", |cache| {
        _ = cache.entry(1).and_compute_with(|_| Op::Put(2));
    }),
    ("and_try_compute_with", |cache| {
        cache
            .entry(1)
            .and_try_compute_with(|_| Ok::<_, ()>(Op::Put(2)))
            .unwrap();
    }),
];

/// By any method, also on a miss of the entry that has expired, and after a replacement.
#[test]
fn a_listener_of_a_caller_may_load_the_very_key_that_has_left() {
    for (outer_name, outer) in METHODS {
        for (inner_name, inner) in METHODS {
            let clock = ManualTicker::new();
            let heard = Record::new();
            let record = heard.clone();
            let calls = AtomicU32::new(0);
            let cache = Arc::new_cyclic(|me: &Weak<Cache<u32, u32>>| {
                let me = me.clone();
                by_callers()
                    .ticker(clock.clone())
                    .record_stats()
                    .removal_listener(move |key: &u32, value: &u32, cause| {
                        record.note(key, value, cause);
                        // Each load of a listener may replace the value of the one before.
                        if calls.fetch_add(1, Ordering::SeqCst) < 3 {
                            if let Some(cache) = me.upgrade() {
                                inner(&cache);
                            }
                        }
                    })
                    .build()
            });
            cache.insert_with_ttl(1, 1, secs(5));
            clock.advance(secs(5));
            outer(&cache);
            let names = format!("{inner_name} in the listener of {outer_name}");
            assert_eq!(cache.stats().listener_panics(), 0, "{names}");
            assert_eq!(heard.take().first(), Some(&(1, 1, Expired)), "{names}");
            assert_eq!(cache.get(&1), Some(2), "{names}");
        }
    }
}

#[test]
fn the_modes_show_themselves() {
    assert_eq!(format!("{:?}", Delivery::default()), "Delivery::Background");
    assert_eq!(format!("{:?}", Delivery::Caller), "Delivery::Caller");
    let builder: CacheBuilder<u32, u32> = Cache::builder().delivery(Delivery::Caller);
    assert!(format!("{builder:?}").contains("Delivery::Caller"));
}

/// A call inside the listener of another cache reports what it removes, and some of what comes
/// meanwhile. The rest is the work of another thread: otherwise the first cache's listener would
/// stand still as long as the second cache is busy.
#[test]
fn a_call_inside_another_caches_listener_ends_while_removals_go_on() {
    must_end(|| {
        let here = thread::current().id();
        let told = Arc::new([const { AtomicU32::new(0) }; 2]);
        let counts = Arc::clone(&told);
        let busy = Arc::new_cyclic(|me: &Weak<Cache<u32, u32>>| {
            let me = me.clone();
            Cache::builder()
                // No run comes before the call has delivered, however late that is.
                .scheduler(Scheduler::disabled())
                .delivery(Delivery::Caller)
                .removal_listener(move |&key: &u32, _: &u32, _| {
                    counts[usize::from(thread::current().id() == here)]
                        .fetch_add(1, Ordering::SeqCst);
                    // As another thread might that writes all the time.
                    if let Some(cache) = me.upgrade() {
                        cache.invalidate(&(key + 1));
                    }
                })
                .build()
        });
        (0..5_000).for_each(|key| busy.insert(key, 0));
        let (writes, seen) = (Arc::clone(&busy), Arc::clone(&told));
        let at_return = Arc::new(AtomicU32::new(0));
        let noted = Arc::clone(&at_return);
        let outer = Cache::builder()
            .delivery(Delivery::Caller)
            .removal_listener(move |_: &u32, _: &u32, _| {
                writes.invalidate(&0);
                noted.store(seen[1].load(Ordering::SeqCst), Ordering::SeqCst);
            })
            .build();
        outer.insert(1, 1);
        outer.invalidate(&1);
        let reported = at_return.load(Ordering::SeqCst);
        assert!((1..=200).contains(&reported), "{reported}");
        until("the listener has heard of all", || {
            told[0].load(Ordering::SeqCst) + told[1].load(Ordering::SeqCst) == 5_000
        });
    });
}
