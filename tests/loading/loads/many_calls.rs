//! Many calls, or many loads, at once: what one of them costs does not depend on the others.

use crate::support::must_end;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::compute::Op;
use wheelhouse::{Cache, Delivery, Leased, ManualTicker, RemovalCause, Scheduler};

const SECOND: Duration = Duration::from_secs(1);

/// A run looks at loads for which calls wait, and only at those that are overdue.
#[test]
fn a_run_walks_no_load_that_is_not_overdue() {
    let time = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(time.clone())
        .scheduler(Scheduler::disabled())
        .load_timeout(1_000 * SECOND)
        .build();
    let leases: Vec<_> = (0..50_000).map(|key| cache.lease(key)).collect();
    let began = Instant::now();
    for _ in 0..200 {
        cache.run_pending_tasks();
    }
    let took = began.elapsed();
    assert!(took < SECOND, "{took:?} for 200 runs beside 50,000 loads");
    drop(leases);
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    total: Arc<AtomicUsize>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.total.fetch_add(1, Ordering::SeqCst);
    }
}

type Turns<'a> = Vec<(Pin<Box<dyn Future<Output = ()> + 'a>>, Arc<Bell>)>;

/// Polls the tasks that were woken, until none is any more; those that are done leave.
fn run(tasks: &mut Turns<'_>) {
    loop {
        let woken = tasks
            .iter()
            .position(|(_, bell)| bell.rung.swap(false, Ordering::SeqCst));
        let Some(at) = woken else { return };
        let (task, bell) = &mut tasks[at];
        let waker = Waker::from(Arc::clone(bell));
        if task
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            drop(tasks.remove(at));
        }
    }
}

#[test]
fn a_write_wakes_one_of_the_computes_that_wait() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let total = Arc::<AtomicUsize>::default();
    let mut stuck = Box::pin(
        cache
            .entry(1)
            .and_compute_with_async(|_| pending::<Op<u32>>()),
    );
    assert!(
        stuck
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    let runs = AtomicUsize::new(0);
    let mut tasks: Turns<'_> = Vec::new();
    for _ in 0..500 {
        let compute = async {
            cache
                .entry(1)
                .and_upsert_with_async(|old| async {
                    runs.fetch_add(1, Ordering::SeqCst);
                    old.map_or(1, |old| old.into_value() + 1)
                })
                .await;
        };
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(false),
            total: Arc::clone(&total),
        });
        let mut task: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(compute);
        let waker = Waker::from(Arc::clone(&bell));
        assert!(
            task.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        tasks.push((task, bell));
    }
    cache.insert(1, 100);
    assert_eq!(total.load(Ordering::SeqCst), 1);
    cache.insert(1, 200);
    assert!(total.load(Ordering::SeqCst) <= 2);
    // The one that is woken may have gone: then it is the turn of the next.
    let first = tasks
        .iter()
        .position(|(_, bell)| bell.rung.load(Ordering::SeqCst));
    drop(tasks.remove(first.expect("one was woken")));
    run(&mut tasks);
    assert!(tasks.is_empty(), "{} computes wait for ever", tasks.len());
    assert_eq!(runs.load(Ordering::SeqCst), 499);
    assert_eq!(cache.get(&1), Some(200 + 499), "no update is lost");
    // The one that was revoked goes on, and ends, beside them.
    drop(stuck);
    assert!(matches!(
        cache.lease_timeout(2, Duration::ZERO),
        Leased::Lease(_)
    ));
}

/// Writes, computes by threads, and one that hangs: all come to their turn.
#[test]
fn computes_that_wait_while_the_key_is_written_come_to_their_turn() {
    must_end(|| {
        let cache: Cache<u32, u64> = Cache::new(10);
        let mut stuck = Box::pin(
            cache
                .entry(1)
                .and_compute_with_async(|_| pending::<Op<u64>>()),
        );
        assert!(
            stuck
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        cache
                            .entry(1)
                            .and_upsert_with(|old| old.map_or(0, |old| old.into_value()));
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                while done.load(Ordering::SeqCst) < 2_000 {
                    cache.insert(1, 7);
                    thread::yield_now();
                }
            });
        });
        assert!(
            stuck
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    });
}

/// A counter that is counted up by more threads than there are cores loses no count, and no thread
/// waits for ever, though running threads may pass those that sleep.
#[test]
fn a_hot_counter_counts_each_call() {
    must_end(|| {
        for threads in [1, 2, 3, 8] {
            let cache: Cache<u32, u64> = Cache::new(10);
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        for _ in 0..2_000 {
                            cache
                                .entry(1)
                                .and_upsert_with(|old| old.map_or(1, |old| old.into_value() + 1));
                        }
                    });
                }
            });
            assert_eq!(cache.get(&1), Some(2_000 * threads));
        }
    });
}

/// A task does not sleep: no compute that comes later passes it.
#[test]
fn tasks_take_turns_in_their_order() {
    let cache: Cache<u32, u32> = Cache::new(10);
    let order = Mutex::new(Vec::new());
    let mut cx = Context::from_waker(Waker::noop());
    let compute = |number: u32| {
        let order = &order;
        Box::pin(cache.entry(1).and_upsert_with_async(move |_| async move {
            order.lock().unwrap().push(number);
            number
        }))
    };
    let mut leader = Box::pin(
        cache
            .entry(1)
            .and_compute_with_async(|_| pending::<Op<u32>>()),
    );
    assert!(leader.as_mut().poll(&mut cx).is_pending());
    let mut waiting: Vec<_> = (0..3).map(compute).collect();
    for task in &mut waiting {
        assert!(task.as_mut().poll(&mut cx).is_pending());
    }
    drop(leader);
    let mut newcomer = compute(9);
    assert!(
        newcomer.as_mut().poll(&mut cx).is_pending(),
        "it is not its turn"
    );
    for task in &mut waiting {
        assert!(task.as_mut().poll(&mut cx).is_ready());
    }
    assert!(matches!(newcomer.as_mut().poll(&mut cx), Poll::Ready(_)));
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 9]);
}

/// The listener hears that an entry has expired before the key has a load: so it may load that very
/// key, by whichever method.
#[test]
fn a_listener_may_load_the_key_that_has_just_expired() {
    type Calls = Cache<u32, u32>;
    type Method = fn(&Calls) -> u32;
    let methods: [(&str, Method); 7] = [
        ("get_with", |cache| cache.get_with(1, || 5)),
        ("optionally_get_with", |cache| {
            cache.optionally_get_with(1, || Some(5)).unwrap()
        }),
        ("try_get_with", |cache| {
            cache.try_get_with(1, || Ok::<_, ()>(5)).unwrap()
        }),
        ("get_all_with", |cache| {
            let all = cache.get_all_with([1], |_| Ok::<_, ()>(vec![Some(5)]));
            all.unwrap()[0].unwrap()
        }),
        ("or_insert_with", |cache| {
            cache.entry(1).or_insert_with(|| 5).into_value()
        }),
        ("and_upsert_with", |cache| {
            cache.entry(1).and_upsert_with(|_| 5).into_value()
        }),
        ("lease", |cache| match cache.lease(1) {
            Leased::Found(value) => value,
            Leased::Lease(lease) => {
                lease.fill(5);
                5
            }
            Leased::Busy => unreachable!("it waits"),
        }),
    ];
    for (outer, call) in methods {
        for (inner, listens) in methods {
            let time = ManualTicker::new();
            let own: Arc<Mutex<Option<Calls>>> = Arc::default();
            let heard = Arc::new(Mutex::new(Vec::new()));
            let place = Arc::clone(&own);
            let told = Arc::clone(&heard);
            let cache: Calls = Cache::builder()
                .ticker(time.clone())
                .scheduler(Scheduler::disabled())
                .delivery(Delivery::Caller)
                .removal_listener(move |_: &u32, _: &u32, cause| {
                    if cause == RemovalCause::Expired {
                        let cache = place.lock().unwrap().clone();
                        told.lock().unwrap().push(listens(&cache.unwrap()));
                    }
                })
                .build();
            *own.lock().unwrap() = Some(cache.clone());
            cache.insert_with_ttl(1, 1, SECOND);
            time.advance(SECOND);
            assert_eq!(call(&cache), 5, "{inner} inside {outer}");
            assert_eq!(*heard.lock().unwrap(), [5], "{inner} inside {outer}");
            own.lock().unwrap().take();
        }
    }
}
