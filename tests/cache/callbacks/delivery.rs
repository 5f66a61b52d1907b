//! Which thread calls the listener, and which calls wait for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::{Gate, millis, must_end, secs, until};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced, Size};
use wheelhouse::{
    Alarm, Cache, CacheBuilder, Delivery, DeliveryTask, MaintenanceTask, ManualTicker,
    RemovalCause, Scheduler,
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

/// An executor that keeps its tasks until a thread of the test asks for them.
fn channel() -> (Delivery, Receiver<DeliveryTask>) {
    let (offer, tasks) = mpsc::channel();
    let delivery = Delivery::executor(move |task: DeliveryTask| offer.send(task).unwrap());
    (delivery, tasks)
}

#[test]
fn an_executor_runs_the_listener_where_the_program_wants() {
    for scheduler in kinds_of_scheduler() {
        let (delivery, tasks) = channel();
        let threads = Threads::default();
        let cache = Cache::builder()
            .scheduler(scheduler)
            .delivery(delivery)
            .removal_listener(note_thread(&threads))
            .build();
        let worker = thread::Builder::new().name("program".into());
        let worker = worker
            .spawn(move || tasks.into_iter().map(DeliveryTask::run).count())
            .unwrap();
        for key in 0..10_000 {
            cache.insert(key % 100, key);
        }
        cache.run_pending_tasks();
        assert_eq!(threads.lock().unwrap().len(), 9_900);
        cache.invalidate_all();
        drop(cache);
        assert_eq!(threads.lock().unwrap().len(), 10_000, "the drop waits");
        assert!(worker.join().unwrap() > 1);
        for (_, name) in &*threads.lock().unwrap() {
            assert_eq!(name.as_deref(), Some("program"));
        }
    }
}

#[test]
fn one_task_is_offered_at_a_time() {
    let (offered, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, highest) = (Arc::clone(&offered), Arc::clone(&most));
    let cache = Cache::builder()
        .delivery(Delivery::executor(move |task: DeliveryTask| {
            let now = count.fetch_add(1, Ordering::SeqCst) + 1;
            highest.fetch_max(now, Ordering::SeqCst);
            let count = Arc::clone(&count);
            thread::spawn(move || {
                // Before the run: at its end the next task may be offered.
                count.fetch_sub(1, Ordering::SeqCst);
                task.run();
            });
        }))
        .removal_listener(|_: &u32, _: &u32, _| ())
        .build();
    for round in 0..50 {
        (0..500).for_each(|key| cache.insert(key, round));
        cache.run_pending_tasks();
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    drop(cache);
}

#[test]
fn a_dropped_task_is_offered_again_and_nothing_is_lost() {
    must_end(|| {
        let (heard, offers) = (Record::new(), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&offers);
        let refuses = Arc::new(AtomicBool::new(true));
        let refusing = Arc::clone(&refuses);
        let cache: Cache<u32, u32> = Cache::builder()
            .scheduler(Scheduler::disabled())
            .delivery(Delivery::executor(move |task: DeliveryTask| {
                count.fetch_add(1, Ordering::SeqCst);
                if !refusing.load(Ordering::SeqCst) {
                    thread::spawn(move || task.run());
                }
            }))
            .removal_listener(heard.listener())
            .build();
        cache.insert(1, 1);
        cache.invalidate(&1);
        // It returns, though the notification is not told.
        cache.run_pending_tasks();
        assert_eq!(heard.take(), []);
        let before = offers.load(Ordering::SeqCst);
        assert!(before >= 1);
        refuses.store(false, Ordering::SeqCst);
        cache.insert(1, 2);
        cache.invalidate(&1);
        cache.run_pending_tasks();
        assert!(offers.load(Ordering::SeqCst) > before);
        assert_eq!(heard.take(), [(1, 1, Explicit), (1, 2, Explicit)]);
        // A panic of the executor counts as a drop.
        refuses.store(true, Ordering::SeqCst);
        cache.insert(2, 1);
        cache.invalidate(&2);
        drop(cache);
        assert_eq!(heard.take(), [(2, 1, Explicit)], "told by the last drop");
    });
}

#[test]
fn a_task_that_is_never_run_lets_no_call_hang() {
    must_end(|| {
        let heard = Record::new();
        let (delivery, tasks) = channel();
        let cache: Cache<u32, u32> = Cache::builder()
            .scheduler(Scheduler::disabled())
            .delivery(delivery)
            .removal_listener(heard.listener())
            .build();
        cache.insert(1, 1);
        cache.invalidate(&1);
        let began = Instant::now();
        cache.run_pending_tasks();
        assert!(began.elapsed() >= secs(1));
        assert_eq!(heard.take(), []);
        let task = tasks.try_recv().expect("offered");
        task.run();
        assert_eq!(heard.take(), [(1, 1, Explicit)]);
        cache.insert(2, 2);
        cache.invalidate(&2);
        drop(cache);
        assert_eq!(
            heard.take(),
            [(2, 2, Explicit)],
            "told by a thread of the cache"
        );
        // A task of a cache that is gone does nothing.
        tasks.try_iter().for_each(DeliveryTask::run);
        assert_eq!(heard.take(), []);
    });
}

#[test]
fn an_executor_that_panics_counts_as_one_that_drops_the_task() {
    crate::support::hide_scripted_panics();
    must_end(|| {
        let heard = Record::new();
        let cache: Cache<u32, u32> = Cache::builder()
            .delivery(Delivery::executor(|_| {
                panic!("told to panic in the executor")
            }))
            .removal_listener(heard.listener())
            .build();
        cache.insert(1, 1);
        cache.invalidate(&1);
        cache.run_pending_tasks();
        assert_eq!(heard.take(), []);
        drop(cache);
        assert_eq!(heard.take(), [(1, 1, Explicit)]);
    });
}

/// Also with many notifications: tasks do not run inside each other.
#[test]
fn inline_executor_after_refusals() {
    const REMOVALS: u32 = 200_000;
    let (heard, open) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (count, opens) = (Arc::clone(&heard), Arc::clone(&open));
    let cache = Cache::builder()
        .delivery(Delivery::executor(move |task: DeliveryTask| {
            if opens.load(Ordering::SeqCst) {
                task.run();
            }
        }))
        .removal_listener(move |_: &u32, _: &u32, _| _ = count.fetch_add(1, Ordering::SeqCst))
        .build();
    (0..REMOVALS).for_each(|key| cache.insert(key, key));
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(heard.load(Ordering::SeqCst), 0);
    open.store(true, Ordering::SeqCst);
    let flushes = cache.clone();
    // A stack for some calls, not for one call per batch.
    let small = thread::Builder::new().stack_size(128 << 10);
    let flushed = small.spawn(move || flushes.run_pending_tasks()).unwrap();
    flushed.join().unwrap();
    assert_eq!(heard.load(Ordering::SeqCst), REMOVALS);
}

/// A runtime's workers have its context in the listener, and nothing is lost.
#[test]
fn a_listener_may_use_the_context_of_a_runtime() {
    const REMOVALS: u32 = 1_000;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    runtime.block_on(async move {
        let handle = tokio::runtime::Handle::current();
        let cache: Cache<u32, u32> = Cache::builder()
            .record_stats()
            .delivery(Delivery::executor(move |task: DeliveryTask| {
                handle.spawn_blocking(|| task.run());
            }))
            .removal_listener(move |_: &u32, _: &u32, _| {
                let count = Arc::clone(&count);
                tokio::spawn(async move { count.fetch_add(1, Ordering::SeqCst) });
            })
            .build();
        for key in 0..REMOVALS {
            cache.insert(key, key);
            cache.invalidate(&key);
        }
        cache.run_pending_tasks();
        assert_eq!(cache.stats().listener_panics(), 0);
        let last = cache.clone();
        (0..REMOVALS).for_each(|key| cache.insert(key, 1));
        cache.invalidate_all();
        drop(cache);
        tokio::task::spawn_blocking(move || drop(last))
            .await
            .unwrap();
    });
    // The tasks that the listener has spawned.
    until("the tasks", || heard.load(Ordering::SeqCst) == 2 * REMOVALS);
}

/// A task on a runtime of one thread cannot run while that thread waits for it: the wait ends.
#[test]
fn a_runtime_of_one_thread_does_not_hang() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let heard = Record::new();
    let record = heard.clone();
    must_end(move || {
        runtime.block_on(async move {
            let handle = tokio::runtime::Handle::current();
            let cache: Cache<u32, u32> = Cache::builder()
                .delivery(Delivery::executor(move |task: DeliveryTask| {
                    handle.spawn(async move { task.run() });
                }))
                .removal_listener(record.listener())
                .build();
            cache.insert(1, 1);
            cache.invalidate(&1);
            cache.run_pending_tasks();
            tokio::time::timeout(SOON, async {
                while record.count() == 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .ok();
        });
    });
    assert_eq!(heard.take(), [(1, 1, Explicit)]);
}

#[test]
fn the_modes_show_themselves() {
    assert_eq!(format!("{:?}", Delivery::default()), "Delivery::Background");
    assert_eq!(format!("{:?}", Delivery::Caller), "Delivery::Caller");
    let executor = Delivery::executor(|task: DeliveryTask| task.run());
    assert_eq!(format!("{executor:?}"), "Delivery::executor(..)");
    let builder: CacheBuilder<u32, u32> = Cache::builder().delivery(executor.clone());
    assert!(format!("{builder:?}").contains("Delivery::executor(..)"));
}
