//! The lead of a load passes to another call at a difficult moment: that call waits for its own
//! closure, or the load is overdue.

use crate::support::acting::Acting;
use crate::support::{OwnCache, millis, secs};
use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::{Cache, Delivery, Leased, ManualTicker, RemovalCause, Scheduler};

/// A waker that counts its calls.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A bulk call waits for a key of another leader only when its own keys are loaded. Its closure may
/// ask for that key itself. If the other leader then fails, the bulk call is told to lead, while
/// its thread waits behind itself.
#[test]
fn a_bulk_call_does_not_get_the_lead_on_which_its_closure_waits() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let (done, ends) = mpsc::channel();
    let other = {
        let cache = cache.clone();
        thread::spawn(move || {
            let load = AssertUnwindSafe(|| {
                cache.get_with(2, || {
                    // Two calls of the other thread: the bulk call, and the one of its closure.
                    while cache.stats().load_waits() < 2 {
                        thread::yield_now();
                    }
                    thread::sleep(millis(50));
                    panic!("the load fails");
                })
            });
            assert!(catch_unwind(load).is_err());
        })
    };
    while cache.stats().loads() < 1 {
        thread::yield_now();
    }
    {
        let cache = cache.clone();
        thread::spawn(move || {
            let bulk = AssertUnwindSafe(|| {
                cache.get_all_with([1, 2], |keys| {
                    let value = if keys == [1] {
                        cache.get_with(2, || 20)
                    } else {
                        20
                    };
                    Ok::<_, ()>(keys.iter().map(|_| Some(value)).collect())
                })
            });
            // A value or a panic that says what waits for what: both are an end.
            done.send(catch_unwind(bulk).map_err(drop)).ok();
        });
    }
    other.join().expect("no panic");
    let end = ends.recv_timeout(secs(10));
    assert!(
        end.is_ok(),
        "the call waits for ever, for a load that its own thread leads"
    );
    // The key stays usable.
    assert_eq!(cache.get_with(2, || 20), 20);
}

/// The same with tasks: the task is woken, but polls the future of its own keys, which waits.
#[test]
fn a_bulk_task_does_not_get_the_lead_on_which_its_future_waits() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let mut idle = Context::from_waker(Waker::noop());
    let mut other = Box::pin(cache.get_with_async(2, std::future::pending()));
    assert!(other.as_mut().poll(&mut idle).is_pending());
    let bulk = cache.get_all_with_async([1, 2], |keys: Vec<u64>| {
        let cache = &cache;
        async move {
            let value = if keys == [1] {
                cache.get_with_async(2, async { 20 }).await
            } else {
                20
            };
            Ok::<_, ()>(keys.iter().map(|_| Some(value)).collect())
        }
    });
    let calls = Arc::new(Calls::default());
    let waker = Waker::from(Arc::clone(&calls));
    let mut cx = Context::from_waker(&waker);
    let mut bulk = pin!(bulk);
    assert!(bulk.as_mut().poll(&mut cx).is_pending());
    drop(other);
    let mut woken = 0;
    loop {
        let now = calls.0.load(Ordering::SeqCst);
        assert!(now > woken, "nothing wakes the task any more");
        woken = now;
        if let Poll::Ready(values) = bulk.as_mut().poll(&mut cx) {
            assert_eq!(values.unwrap(), [Some(20), Some(20)]);
            break;
        }
    }
}

/// A waiter that is told to lead while it looks for a ring is no ring.
#[test]
fn a_lead_that_is_handed_over_is_no_deadlock() {
    const FOR: Duration = secs(1);
    let cache: Cache<u64, u64> = Cache::new(10);
    let over = AtomicBool::new(false);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (cache, over, refused) = (&cache, &over, &refused);
        for _ in 0..1 {
            scope.spawn(move || {
                for round in 0_u32.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    // Leads, and hands the lead to the call that waits, after one time or another.
                    if let Leased::Lease(lease) = cache.lease_timeout(1, Duration::ZERO) {
                        (0..round % 512).for_each(|_| std::hint::spin_loop());
                        drop(lease);
                    }
                }
            });
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let call = AssertUnwindSafe(|| cache.get_with(1, || 1));
                    refused.fetch_add(usize::from(catch_unwind(call).is_err()), Ordering::Relaxed);
                    cache.invalidate(&1);
                }
            });
        }
        let began = Instant::now();
        while began.elapsed() < FOR && refused.load(Ordering::Relaxed) == 0 {
            thread::sleep(millis(10));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(refused.into_inner(), 0, "false alarms");
}

/// A value whose clone panics while it is told to.
fn brittle(told: &Arc<AtomicBool>) -> Acting {
    let told = Arc::clone(told);
    Acting::when_cloned(0, move || {
        assert!(!told.load(Ordering::SeqCst), "the clone fails")
    })
}

/// A call that replaces an overdue load wakes that load's waiters, also if it then fails.
#[test]
fn the_waiters_of_an_overdue_load_wake_though_its_successor_panics() {
    for fails in [false, true] {
        let clock = ManualTicker::new();
        let cache: Cache<u32, Acting> = Cache::builder()
            .ticker(clock.clone())
            .load_timeout(secs(1))
            .build();
        let flag = Arc::new(AtomicBool::new(false));
        cache.insert(1, brittle(&flag));
        let never = cache
            .entry(1)
            .and_upsert_with_async(|_| std::future::pending());
        let mut never = pin!(never);
        let mut idle = Context::from_waker(Waker::noop());
        assert!(never.as_mut().poll(&mut idle).is_pending());
        let calls = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&calls));
        let mut cx = Context::from_waker(&waker);
        let value = brittle(&flag);
        let waits = cache
            .entry(1)
            .and_upsert_with_async(|_| async move { value });
        let mut waits = pin!(waits);
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        clock.advance(secs(2));
        flag.store(fails, Ordering::SeqCst);
        let newer = AssertUnwindSafe(|| {
            cache.entry(1).and_upsert_with(|_| brittle(&flag));
        });
        assert_eq!(catch_unwind(newer).is_err(), fails);
        flag.store(false, Ordering::SeqCst);
        assert!(
            calls.0.load(Ordering::SeqCst) > 0,
            "nothing woke the waiter (fails: {fails})"
        );
        assert!(waits.as_mut().poll(&mut cx).is_ready());
    }
}

/// The entry falls due while computes wait, of which one is then offered the lead. The listener,
/// which hears of the entry as that leaves, may load the very key; so may destructors.
#[test]
fn a_due_entry_leaves_before_a_call_takes_the_lead_that_it_was_offered() {
    for others in 0..4 {
        let clock = ManualTicker::new();
        let own = OwnCache::<Cache<u64, u64>>::new();
        let (place, loaded) = (own.place(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&loaded);
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(clock.clone())
            .scheduler(Scheduler::disabled())
            .delivery(Delivery::Caller)
            .removal_listener(move |key: &u64, _: &u64, cause| {
                if cause == RemovalCause::Expired {
                    let cache = place.get().expect("the test has it");
                    assert_eq!(cache.get_with(*key, || 20), 20);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            })
            .build();
        own.set(&cache);
        cache.insert_with_ttl(1, 10, secs(1));
        let mut idle = Context::from_waker(Waker::noop());
        let mut first = Box::pin(cache.entry(1).and_upsert_with_async(|_| pending()));
        assert!(first.as_mut().poll(&mut idle).is_pending());
        let adds = || {
            let entry = cache.entry(1);
            let entry = entry.and_upsert_with_async(|seen| ready(seen.unwrap().into_value() + 1));
            Box::pin(async { entry.await.into_value() })
        };
        let mut second = adds();
        assert!(second.as_mut().poll(&mut idle).is_pending());
        let mut others: Vec<_> = (0..others).map(|_| adds()).collect();
        for other in &mut others {
            assert!(other.as_mut().poll(&mut idle).is_pending());
        }
        clock.advance(secs(2));
        drop(first);
        let ended = second.as_mut().poll(&mut idle);
        assert_eq!(loaded.load(Ordering::SeqCst), 1, "it was refused");
        assert_eq!(ended, Poll::Ready(21), "it leads next");
        // Each is polled before its turn, as `join!` does: none leads another.
        for other in others.iter_mut().skip(1) {
            assert!(other.as_mut().poll(&mut idle).is_pending());
        }
        for (other, sum) in others.iter_mut().zip(22..) {
            assert_eq!(other.as_mut().poll(&mut idle), Poll::Ready(sum));
        }
    }
}

/// A future that is polled again after it was ready may panic; it must not load.
#[test]
fn a_call_that_is_polled_after_its_end_does_nothing() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 1);
    let mut call = pin!(cache.get_with_async(1, async { 2 }));
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(call.as_mut().poll(&mut cx), Poll::Ready(1));
    _ = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut cx)));
    cache.run_pending_tasks();
    assert_eq!((cache.entry_count(), cache.get(&1)), (1, Some(1)));
}

#[test]
fn a_task_that_is_polled_by_its_waker_joins_the_successor_of_an_overdue_load() {
    /// A waker that polls its task at once.
    struct Inline {
        task: Mutex<Option<Pin<Box<dyn Future<Output = u64> + Send>>>>,
        got: Mutex<Option<u64>>,
    }
    impl Wake for Inline {
        fn wake(self: Arc<Self>) {
            let Some(mut task) = self.task.lock().unwrap().take() else {
                return;
            };
            let waker = Waker::from(Arc::clone(&self));
            match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => *self.got.lock().unwrap() = Some(value),
                Poll::Pending => *self.task.lock().unwrap() = Some(task),
            }
        }
    }
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .load_timeout(Duration::from_secs(5))
        .build();
    let Leased::Lease(stuck) = cache.lease(1) else {
        panic!("the key is absent")
    };
    let theirs = cache.clone();
    let waiter = Arc::new(Inline {
        task: Mutex::new(Some(Box::pin(async move {
            theirs.get_with_async(1, std::future::pending()).await
        }))),
        got: Mutex::new(None),
    });
    Arc::clone(&waiter).wake();
    ticker.advance(Duration::from_secs(5));
    assert_eq!(cache.get_with(1, || 2), 2);
    assert_eq!(*waiter.got.lock().unwrap(), Some(2));
    drop(stuck);
}
