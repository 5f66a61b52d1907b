//! Loads of tasks, on a hand-made executor and on tokio.

use std::cell::RefCell;
use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use wheelhouse::compute::{CompResult, Entry, Op};
use wheelhouse::{Alarm, Cache, Filled, Leased, MaintenanceTask, ManualTicker, Scheduler, Ticker};

use crate::support::hide_scripted_panics;

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A task that is polled by hand.
struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    bell: Arc<Bell>,
}

impl<'a, T> Task<'a, T> {
    fn new(future: impl Future<Output = T> + 'a) -> Self {
        Self {
            future: Box::pin(future),
            bell: Arc::default(),
        }
    }

    fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.bell));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// Pending this many times.
fn after<T: Copy>(mut polls: u32, value: T) -> impl Future<Output = T> {
    poll_fn(move |cx| {
        if polls == 0 {
            return Poll::Ready(value);
        }
        polls -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

fn counted() -> Cache<u64, u64> {
    Cache::builder().record_stats().build()
}

#[test]
fn a_hit_is_ready_and_polls_nothing() {
    let cache = counted();
    cache.insert(1, 10);
    let never = poll_fn(|_| -> Poll<u64> { panic!("polled") });
    assert_eq!(
        Task::new(cache.get_with_async(1, never)).poll(),
        Poll::Ready(10)
    );
    let closure = || -> std::future::Ready<u64> { panic!("called") };
    let entry = Task::new(cache.entry(1).or_insert_with_async(closure)).poll();
    assert!(matches!(entry, Poll::Ready(entry) if *entry.value() == 10));
    assert_eq!((cache.stats().hits(), cache.stats().loads()), (2, 0));
}

#[test]
fn waiters_wake_once_and_get_the_leaders_value() {
    let cache = counted();
    let mut leader = Task::new(cache.get_with_async(1, after(1, 5)));
    let mut waiters: Vec<_> = (0..4)
        .map(|_| Task::new(cache.get_with_async(1, pending())))
        .collect();
    assert!(leader.poll().is_pending());
    assert!(waiters.iter_mut().all(|waiter| waiter.poll().is_pending()));
    assert_eq!(leader.poll(), Poll::Ready(5));
    for waiter in &mut waiters {
        assert_eq!(waiter.bell.rung(), 1);
        assert_eq!(waiter.poll(), Poll::Ready(5));
    }
    let stats = cache.stats();
    assert_eq!(
        (stats.loads(), stats.load_waits(), stats.misses()),
        (1, 4, 5)
    );
}

#[test]
fn a_leader_that_is_dropped_at_any_await_hands_over() {
    for polls in 1..4 {
        let cache = counted();
        let mut leader = Task::new(cache.get_with_async(1, after(5, 1)));
        (0..polls).for_each(|_| assert!(leader.poll().is_pending()));
        let mut first = Task::new(cache.get_with_async(1, after(1, 2)));
        let mut second = Task::new(cache.get_with_async(1, after(1, 3)));
        assert!(first.poll().is_pending() && second.poll().is_pending());
        drop(leader);
        assert_eq!((first.bell.rung(), second.bell.rung()), (1, 0));
        assert!(first.poll().is_pending(), "it leads now");
        assert!(second.poll().is_pending());
        assert_eq!(first.poll(), Poll::Ready(2));
        assert_eq!(second.poll(), Poll::Ready(2));
    }
}

#[test]
fn a_turn_handed_to_a_waiter_that_is_dropped_goes_on() {
    let cache = counted();
    let lease = cache.lease(1);
    let mut waiters: Vec<_> = (0..4)
        .map(|number| Task::new(cache.get_with_async(1, ready(number))))
        .collect();
    waiters
        .iter_mut()
        .for_each(|waiter| assert!(waiter.poll().is_pending()));
    drop(lease);
    // The first three are dropped before they are polled.
    for _ in 0..3 {
        assert_eq!(waiters[0].bell.rung(), 1);
        drop(waiters.remove(0));
    }
    assert_eq!(waiters[0].poll(), Poll::Ready(3));
    assert_eq!(cache.get(&1), Some(3));
}

#[test]
fn when_all_are_dropped_nothing_is_left_behind() {
    let cache = counted();
    let mut tasks: Vec<_> = (0..8)
        .map(|_| Task::new(cache.get_with_async(1, pending())))
        .collect();
    tasks
        .iter_mut()
        .for_each(|task| assert!(task.poll().is_pending()));
    let bells: Vec<_> = tasks.iter().map(|task| Arc::clone(&task.bell)).collect();
    drop(tasks);
    assert!(
        bells.iter().all(|bell| Arc::strong_count(bell) == 1),
        "a waker is left behind"
    );
    let Leased::Lease(lease) = cache.lease_timeout(1, Duration::ZERO) else {
        panic!()
    };
    assert_eq!(lease.fill(1), Filled::Stored);
}

#[test]
fn a_leader_that_is_never_polled_again_is_replaced_when_it_is_overdue() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .load_timeout(Duration::from_secs(5))
        .build();
    let mut stuck = Task::new(cache.get_with_async(1, after(1, 1)));
    assert!(stuck.poll().is_pending());
    let mut waiter = Task::new(cache.get_with_async(1, pending()));
    assert!(waiter.poll().is_pending());
    ticker.advance(Duration::from_secs(5));
    let mut newcomer = Task::new(cache.get_with_async(1, after(1, 2)));
    assert!(newcomer.poll().is_pending());
    assert_eq!(waiter.bell.rung(), 1, "it moves on");
    assert!(waiter.poll().is_pending());
    assert_eq!(newcomer.poll(), Poll::Ready(2));
    assert_eq!(waiter.poll(), Poll::Ready(2));
    assert_eq!(
        stuck.poll(),
        Poll::Ready(2),
        "the late leader gets the live value"
    );
}

/// A scheduler that keeps the maintenance task and its last request.
#[derive(Clone, Default)]
struct Note(Arc<Mutex<Option<(Duration, MaintenanceTask)>>>);

impl Alarm for Note {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some((after, task));
    }
}

impl Note {
    /// The last request, which is then forgotten.
    fn take(&self) -> Option<(Duration, MaintenanceTask)> {
        self.0.lock().unwrap().take()
    }
}

/// Loads have five seconds; the test runs the maintenance.
fn limited() -> (Cache<u64, u64>, ManualTicker, Note) {
    let (ticker, note) = (ManualTicker::new(), Note::default());
    let cache = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::custom(note.clone()))
        .load_timeout(Duration::from_secs(5))
        .build();
    (cache, ticker, note)
}

/// An alarm has one moment at a time. A call that does maintenance sets it anew, and must not
/// forget the load.
#[test]
fn maintenance_by_a_caller_keeps_the_time_out_of_a_load_armed() {
    let (cache, ticker, note) = limited();
    cache.insert_with_ttl(9, 9, Duration::from_secs(60));
    let mut stuck = Task::new(cache.get_with_async(1, pending()));
    let mut waiter = Task::new(cache.get_with_async(1, ready(2)));
    assert!(stuck.poll().is_pending() && waiter.poll().is_pending());
    ticker.advance(Duration::from_secs(1));
    cache.run_pending_tasks();
    let (at, task) = note.take().expect("a run was asked for");
    assert_eq!(at, Duration::from_secs(4));
    ticker.advance(Duration::from_secs(4));
    task.run();
    assert_eq!(waiter.poll(), Poll::Ready(2));
}

/// Panics at the next reading, if told to.
struct Flaky(ManualTicker, Arc<AtomicBool>);

impl Ticker for Flaky {
    fn nanos(&self) -> u64 {
        assert!(!self.1.swap(false, Ordering::SeqCst), "told to panic");
        self.0.nanos()
    }
}

#[test]
fn a_ticker_that_panics_keeps_the_time_out_of_a_load_armed() {
    hide_scripted_panics();
    let (time, note) = (ManualTicker::new(), Note::default());
    let breaks = Arc::<AtomicBool>::default();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(Flaky(time.clone(), Arc::clone(&breaks)))
        .scheduler(Scheduler::custom(note.clone()))
        .load_timeout(Duration::from_secs(5))
        .build();
    let mut stuck = Task::new(cache.get_with_async(1, pending()));
    let mut waiter = Task::new(cache.get_with_async(1, ready(2)));
    assert!(stuck.poll().is_pending() && waiter.poll().is_pending());
    time.advance(Duration::from_secs(5));
    let (_, task) = note.take().expect("a run was asked for");
    breaks.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| task.run())).is_err());
    let (_, task) = note.take().expect("the run is tried again");
    task.run();
    assert_eq!(waiter.poll(), Poll::Ready(2));
}

#[test]
fn with_a_scheduler_waiters_of_an_overdue_load_move_on_by_themselves() {
    let (cache, ticker, note) = limited();
    let mut stuck = Task::new(cache.get_with_async(1, after(1, 1)));
    assert!(stuck.poll().is_pending());
    assert!(note.0.lock().unwrap().is_none(), "no call waits");
    let mut waiters: Vec<_> = (2..5)
        .map(|value| Task::new(cache.get_with_async(1, ready(value))))
        .collect();
    waiters
        .iter_mut()
        .for_each(|waiter| assert!(waiter.poll().is_pending()));
    let (at, task) = note.take().expect("a run was asked for");
    assert_eq!(at, Duration::from_secs(5));
    ticker.advance(Duration::from_secs(2));
    assert_eq!(task.run(), Some(Duration::from_secs(3)), "too early");
    let again = note.take().map(|(after, _)| after);
    assert_eq!(again, Some(Duration::from_secs(3)), "the rest of the time");
    assert!(waiters.iter().all(|waiter| waiter.bell.rung() == 0));
    ticker.advance(Duration::from_secs(3));
    task.run();
    assert!(waiters.iter().all(|waiter| waiter.bell.rung() == 1));
    for waiter in &mut waiters {
        assert_eq!(waiter.poll(), Poll::Ready(2), "the longest-waiting has led");
    }
    assert_eq!(stuck.poll(), Poll::Ready(2));
}

#[test]
fn a_late_result_is_stored_after_its_waiters_were_woken() {
    let (cache, ticker, note) = limited();
    let mut late = Task::new(cache.get_with_async(1, after(1, 1)));
    assert!(late.poll().is_pending());
    let mut waiter = Task::new(cache.get_with_async(1, ready(2)));
    assert!(waiter.poll().is_pending());
    let (_, task) = note.take().expect("a run was asked for");
    ticker.advance(Duration::from_secs(6));
    task.run();
    // The late leader is polled before the waiter.
    assert_eq!(late.poll(), Poll::Ready(1));
    assert_eq!((waiter.poll(), cache.get(&1)), (Poll::Ready(1), Some(1)));
}

#[tokio::test]
async fn with_the_default_scheduler_a_waiting_task_moves_on() {
    let cache: Cache<u64, u64> = Cache::builder()
        .load_timeout(Duration::from_millis(50))
        .build();
    // Before the load: its time-out counts from then.
    let began = std::time::Instant::now();
    let _stuck = cache.lease(1);
    assert_eq!(cache.get_with_async(1, ready(2)).await, 2);
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(50) && took < Duration::from_secs(10),
        "{took:?}"
    );
}

#[test]
fn a_waiter_that_was_handed_the_lead_and_is_leaked_is_replaced_as_well() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .load_timeout(Duration::from_secs(5))
        .build();
    let lease = cache.lease(1);
    let mut waiter = Task::new(cache.get_with_async(1, ready(1)));
    assert!(waiter.poll().is_pending());
    ticker.advance(Duration::from_secs(4));
    drop(lease);
    std::mem::forget(waiter);
    // The time counts from the moment at which the turn was handed over.
    ticker.advance(Duration::from_secs(4));
    assert!(matches!(
        cache.lease_timeout(1, Duration::ZERO),
        Leased::Busy
    ));
    ticker.advance(Duration::from_secs(1));
    assert_eq!(cache.get_with(1, || 2), 2);
}

#[test]
fn a_leaked_leader_lets_writes_through() {
    let cache = counted();
    let mut leader = Box::pin(cache.get_with_async(1, pending()));
    let bell = Waker::from(Arc::new(Bell::default()));
    assert!(
        leader
            .as_mut()
            .poll(&mut Context::from_waker(&bell))
            .is_pending()
    );
    std::mem::forget(leader);
    assert!(matches!(
        cache.lease_timeout(1, Duration::ZERO),
        Leased::Busy
    ));
    cache.invalidate(&1);
    assert_eq!(cache.get_with(1, || 2), 2);
}

#[test]
fn wakers_may_poll_inline() {
    /// A waker that polls its task at once.
    struct Inline {
        cache: Cache<u64, u64>,
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
            // It also calls the cache for the same key.
            self.cache.get_with(1, || 9);
        }
    }
    for filled in [true, false] {
        let cache = counted();
        let Leased::Lease(lease) = cache.lease(1) else {
            panic!()
        };
        let tasks: Vec<_> = (0..3)
            .map(|number| {
                let theirs = cache.clone();
                let inline = Arc::new(Inline {
                    cache: cache.clone(),
                    task: Mutex::new(Some(Box::pin(async move {
                        theirs.get_with_async(1, ready(number)).await
                    }))),
                    got: Mutex::new(None),
                });
                let mut task = inline.task.lock().unwrap().take().unwrap();
                let waker = Waker::from(Arc::clone(&inline));
                assert!(
                    task.as_mut()
                        .poll(&mut Context::from_waker(&waker))
                        .is_pending()
                );
                *inline.task.lock().unwrap() = Some(task);
                inline
            })
            .collect();
        if filled {
            lease.fill(7);
        } else {
            drop(lease);
        }
        for task in tasks {
            assert_eq!(*task.got.lock().unwrap(), Some(if filled { 7 } else { 0 }));
        }
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_asleep() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("told to panic"));
        }
    }
    let cache = counted();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!()
    };
    let mut hurt = Box::pin(cache.get_with_async(1, pending()));
    let bomb = Waker::from(Arc::new(Bomb));
    assert!(
        hurt.as_mut()
            .poll(&mut Context::from_waker(&bomb))
            .is_pending()
    );
    let mut well = Task::new(cache.get_with_async(1, pending()));
    assert!(well.poll().is_pending());
    lease.fill(3);
    assert_eq!(well.bell.rung(), 1);
    assert_eq!(well.poll(), Poll::Ready(3));
    assert_eq!(cache.get(&1), Some(3));
}

#[test]
fn a_panic_in_the_future_hands_over() {
    let cache = counted();
    let mut leader = Task::new(cache.get_with_async(1, async {
        after(1, ()).await;
        std::panic::resume_unwind(Box::new("told to panic"))
    }));
    assert!(leader.poll().is_pending());
    let mut waiter = Task::new(cache.get_with_async(1, ready(4)));
    assert!(waiter.poll().is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| leader.poll())).is_err());
    // The leader was not dropped.
    assert_eq!(waiter.poll(), Poll::Ready(4));
    drop(leader);
}

#[test]
fn recursion_within_one_poll_is_found() {
    let cache = counted();
    let text = |task: &mut Task<'_, u64>| {
        let panic = catch_unwind(AssertUnwindSafe(|| task.poll())).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let mut task =
        Task::new(cache.get_with_async(1, async { cache.get_with_async(1, ready(1)).await }));
    assert!(text(&mut task).contains("deadlock"));
    let mut task = Task::new(cache.get_with_async(1, async { cache.get_with(1, || 1) }));
    assert!(text(&mut task).contains("deadlock"));
    let mut task = Task::new(async {
        let values = cache.get_all_with_async([1, 2], |_| async {
            cache.get_with_async(2, ready(1)).await;
            Ok::<_, ()>(vec![None, None])
        });
        values.await.unwrap()[0].unwrap_or(0)
    });
    assert!(text(&mut task).contains("deadlock"));
    assert_eq!(cache.get_with(1, || 2), 2);
    assert_eq!(cache.get_with(2, || 2), 2);
}

#[test]
fn two_calls_in_one_task_are_no_recursion() {
    let cache = counted();
    let mut task = Task::new(async {
        let mut first = pin!(cache.get_with_async(1, after(2, 1)));
        let mut second = pin!(cache.get_with_async(1, pending()));
        poll_fn(
            move |cx| match (first.as_mut().poll(cx), second.as_mut().poll(cx)) {
                (Poll::Ready(_), Poll::Ready(value)) => Poll::Ready(value),
                _ => Poll::Pending,
            },
        )
        .await
    });
    assert!(task.poll().is_pending() && task.poll().is_pending());
    assert_eq!(task.poll(), Poll::Ready(1));
}

#[test]
fn threads_and_tasks_wait_in_one_queue() {
    let cache = counted();
    let lease = cache.lease(1);
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (cache, order) = (&cache, &order);
        let mut task = Task::new(cache.entry(1).and_upsert_with_async(|_| {
            order.lock().unwrap().push("task");
            ready(1)
        }));
        let wait = |number| {
            while cache.stats().load_waits() < number {
                std::thread::yield_now();
            }
        };
        scope.spawn(move || {
            cache.entry(1).and_upsert_with(|_| {
                order.lock().unwrap().push("first thread");
                1
            })
        });
        wait(1);
        assert!(task.poll().is_pending());
        scope.spawn(move || {
            cache.entry(1).and_upsert_with(|_| {
                order.lock().unwrap().push("second thread");
                1
            })
        });
        wait(3);
        drop(lease);
        while task.bell.rung() == 0 {
            std::thread::yield_now();
        }
        assert!(task.poll().is_ready());
    });
    assert_eq!(
        *order.lock().unwrap(),
        ["first thread", "task", "second thread"]
    );
}

#[test]
fn results_of_async_calls() {
    let cache = counted();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    tokio.block_on(async {
        assert_eq!(cache.optionally_get_with_async(1, ready(None)).await, None);
        let error = cache
            .try_get_with_async(1, ready(Err::<u64, _>(3_u8)))
            .await;
        assert_eq!(*error.unwrap_err(), 3);
        assert_eq!(cache.get_with_by_ref_async(&1, ready(4)).await, 4);
        let none = cache
            .entry(2)
            .or_optionally_insert_with_async(|| ready(None))
            .await;
        assert!(none.is_none());
        let error = cache
            .entry(2)
            .or_try_insert_with_async(|| ready(Err(5_u16)))
            .await;
        assert_eq!(*error.unwrap_err(), 5);
        let ttl = Duration::from_secs(60);
        let entry = cache
            .entry(2)
            .or_insert_with_ttl_async(|| ready((6, ttl)))
            .await;
        assert!(entry.is_fresh() && entry.time_left().is_some());
        let entry = cache
            .entry(2)
            .or_insert_with_if_async(|| ready(7), |old| *old == 6)
            .await;
        assert!(entry.is_old_value_replaced());
        let entry = cache
            .entry(2)
            .or_insert_with_if_async(|| ready(8), |old| *old == 6)
            .await;
        assert_eq!(entry.into_value(), 7);
        let result = cache
            .entry(2)
            .and_compute_with_async(|_| ready(Op::Remove))
            .await;
        assert!(matches!(result, CompResult::Removed(entry) if *entry.value() == 7));
        let failed = cache
            .entry(2)
            .and_try_compute_with_async(|_| ready(Err::<Op<u64>, _>(9)));
        assert!(matches!(failed.await, Err(9)));
        let busy = cache.lease_async(2).await;
        let free = cache
            .entry_by_ref(&2)
            .and_try_compute_if_nobody_else_async(|_| ready(Ok::<_, ()>(Op::Put(1))));
        assert!(matches!(free.await, Ok(CompResult::StillNone(2))));
        drop(busy);
    });
}

#[test]
fn futures_are_send_if_theirs_is_and_need_not_be_static() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let cache = counted();
    let borrowed = String::from("ada");
    let key = 1;
    {
        let init = async { borrowed.len() as u64 };
        drop(is_send(cache.get_with_async(1, init)));
        drop(is_send(cache.get_with_by_ref_async(&key, async {
            borrowed.len() as u64
        })));
        drop(is_send(
            cache.optionally_get_with_async(1, async { Some(1) }),
        ));
        drop(is_send(cache.try_get_with_async(1, async {
            Err::<u64, _>(borrowed.clone())
        })));
        drop(is_send(cache.lease_async(1)));
        drop(is_send(cache.entry(1).or_insert_with_async(|| ready(1))));
        drop(is_send(cache.entry(1).and_upsert_with_async(|_| ready(1))));
        drop(is_send(
            cache.entry(1).and_compute_with_async(|_| ready(Op::Nop)),
        ));
        let load =
            |keys: Vec<u64>| async move { Ok::<_, ()>(keys.into_iter().map(Some).collect()) };
        drop(is_send(cache.get_all_with_async([1], load)));
    }
    // A future that is not, as on a thread of its own.
    let shared = Rc::new(RefCell::new(0));
    let local = async {
        *shared.borrow_mut() += 1;
        5
    };
    let tokio = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(tokio.block_on(cache.get_with_async(7, local)), 5);
}

/// A program that is generic over its closures can spawn the calls. That this compiles is the test.
#[test]
fn futures_are_send_in_generic_code() {
    fn spawnable<T>(future: impl Future<Output = T> + Send + 'static) {
        drop(future);
    }
    fn load<F, R>(cache: &Cache<u64, u64>, init: F)
    where
        F: FnOnce() -> R + Clone + Send + 'static,
        R: Future<Output = u64> + Send + 'static,
    {
        let (own, make) = (cache.clone(), init.clone());
        spawnable(async move { own.get_with_async(1, make()).await });
        let (own, make) = (cache.clone(), init.clone());
        spawnable(async move { own.entry(1).or_insert_with_async(make).await });
        let own = cache.clone();
        spawnable(async move { own.entry(1).or_insert_with_if_async(init, |_| true).await });
    }
    fn compute<F, R>(cache: &Cache<u64, u64>, f: F)
    where
        F: FnOnce(Option<Entry<u64, u64>>) -> R + Send + 'static,
        R: Future<Output = Op<u64>> + Send + 'static,
    {
        let own = cache.clone();
        spawnable(async move { own.entry_by_ref(&1).and_compute_with_async(f).await });
    }
    let cache = Cache::new(10);
    load(&cache, || ready(1));
    compute(&cache, |_| ready(Op::Put(1)));
}

#[test]
fn futures_are_small() {
    let cache = counted();
    let big = [1_u8; 4096];
    let init = async move {
        after(1, ()).await;
        big.len() as u64
    };
    let size = size_of_val(&init);
    let whole = size_of_val(&cache.get_with_async(1, init));
    assert!(whole <= size + 320, "{whole} bytes for a future of {size}");
    let load = |keys: Vec<u64>| async move {
        let big = [1_u8; 4096];
        after(1, ()).await;
        let value = u64::from(std::hint::black_box(&big)[0]);
        Ok::<_, ()>(keys.iter().map(|_| Some(value)).collect())
    };
    let size = size_of_val(&load(vec![1]));
    let whole = size_of_val(&cache.get_all_with_async([1], load));
    assert!(
        whole <= size + 1_000,
        "{whole} bytes for a future of {size}"
    );
}

#[test]
fn the_future_of_a_dropped_leader_is_dropped_before_the_next_leads() {
    struct Noted<'a>(&'a Mutex<Vec<&'static str>>);
    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("dropped");
        }
    }
    struct Waking<'a>(&'a Mutex<Vec<&'static str>>);
    impl Waking<'_> {
        fn rung(&self) {
            self.0.lock().unwrap().push("led");
        }
    }
    let cache = counted();
    let order = Mutex::new(Vec::new());
    let noted = Noted(&order);
    let mut leader = Task::new(cache.get_with_async(1, async move {
        let _noted = noted;
        pending().await
    }));
    assert!(leader.poll().is_pending());
    let mut waiter = Task::new(cache.get_with_async(1, async {
        Waking(&order).rung();
        1
    }));
    assert!(waiter.poll().is_pending());
    drop(leader);
    assert_eq!(waiter.poll(), Poll::Ready(1));
    assert_eq!(*order.lock().unwrap(), ["dropped", "led"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_tasks_and_eight_threads_load_once() {
    let cache = counted();
    let runs = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (cache, runs) = (cache.clone(), Arc::clone(&runs));
            tokio::spawn(async move {
                cache
                    .get_with_async(1, async {
                        runs.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        5
                    })
                    .await
            })
        })
        .collect();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (cache, runs) = (cache.clone(), Arc::clone(&runs));
            tokio::task::spawn_blocking(move || {
                cache.get_with(1, || {
                    runs.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    5
                })
            })
        })
        .collect();
    for task in tasks.into_iter().chain(threads) {
        assert_eq!(task.await.unwrap(), 5);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_that_are_cancelled_at_any_moment_leave_nothing_behind() {
    let cache = counted();
    let tasks: Vec<_> = (0..400_u64)
        .map(|number| {
            let cache = cache.clone();
            let task = tokio::spawn(async move {
                let init = async {
                    for _ in 0..number % 7 {
                        tokio::task::yield_now().await;
                    }
                    number
                };
                match number % 3 {
                    0 => cache.get_with_async(number % 4, init).await,
                    1 => {
                        let upsert = |_| init;
                        cache
                            .entry(number % 4)
                            .and_upsert_with_async(upsert)
                            .await
                            .into_value()
                    }
                    _ => match cache.lease_async(number % 4).await {
                        Leased::Found(value) => value,
                        _ => 0,
                    },
                }
            });
            if number % 2 == 0 {
                task.abort();
            }
            task
        })
        .collect();
    for task in tasks {
        // Cancelled or not.
        _ = task.await;
    }
    for key in 0..4 {
        cache.invalidate(&key);
        assert!(matches!(
            cache.lease_timeout(key, Duration::ZERO),
            Leased::Lease(_)
        ));
    }
}

#[test]
fn a_call_that_panicked_or_is_ready_stays_ended() {
    let cache = counted();
    let message = |panic: Box<dyn std::any::Any + Send>| {
        let words = panic.downcast_ref::<&str>().copied();
        words.unwrap_or_default().to_string()
    };
    // Ready or pending once more after its panic, as a hand-written future may be.
    let mut polls = 0;
    let mut leader = Task::new(cache.get_with_async(
        1,
        poll_fn(|_| {
            polls += 1;
            assert!(polls != 1, "told to panic in the future");
            Poll::Ready(66)
        }),
    ));
    let panic = catch_unwind(AssertUnwindSafe(|| leader.poll())).unwrap_err();
    assert_eq!(message(panic), "told to panic in the future");
    let mut waiter = Task::new(cache.get_with_async(1, after(2, 7)));
    assert!(waiter.poll().is_pending());
    let again = catch_unwind(AssertUnwindSafe(|| leader.poll())).unwrap_err();
    assert!(
        message(again).contains("resumed after panicking"),
        "it takes no part in the newer load"
    );
    assert_eq!(cache.stats().load_waits(), 0);
    assert!(waiter.poll().is_pending());
    assert_eq!(waiter.poll(), Poll::Ready(7));
    let again = catch_unwind(AssertUnwindSafe(|| waiter.poll())).unwrap_err();
    assert!(message(again).contains("resumed after completion"));
    drop(leader);
    assert_eq!(polls, 1);
    assert_eq!(cache.get(&1), Some(7));
}

/// A write has revoked the load, and its leader never ends: its waiters do not wait for ever.
#[test]
fn with_a_scheduler_waiters_of_a_revoked_load_move_on_when_it_is_overdue() {
    for all in [false, true] {
        let (ticker, note) = (ManualTicker::new(), Note::default());
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(ticker.clone())
            .scheduler(Scheduler::custom(note.clone()))
            .load_timeout(Duration::from_secs(5))
            .build();
        let mut stuck = Task::new(cache.get_with_async(1, pending()));
        assert!(stuck.poll().is_pending());
        let mut waiter = Task::new(cache.get_with_async(1, ready(2)));
        assert!(waiter.poll().is_pending());
        ticker.advance(Duration::from_secs(2));
        if all {
            cache.invalidate_all();
        } else {
            cache.invalidate(&1);
        }
        let (_, task) = note.take().expect("a run was asked for");
        assert_eq!(task.run(), Some(Duration::from_secs(3)), "too early");
        assert!(waiter.poll().is_pending());
        ticker.advance(Duration::from_secs(3));
        task.run();
        assert_eq!(waiter.bell.rung(), 1, "all: {all}");
        assert_eq!(waiter.poll(), Poll::Ready(2));
    }
}

#[test]
fn the_time_that_an_entry_has_left_counts_from_when_the_waiter_gets_it() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder().ticker(ticker.clone()).build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!("the key is absent");
    };
    let mut waiter = Task::new(cache.entry(1).or_insert_with_async(pending));
    assert!(waiter.poll().is_pending());
    lease.fill_with_ttl(1, Duration::from_secs(60));
    ticker.advance(Duration::from_secs(10));
    let Poll::Ready(entry) = waiter.poll() else {
        panic!("the load has ended");
    };
    assert_eq!(entry.time_left(), Some(Duration::from_secs(50)));
}

/// A task that was woken because a load was overdue, and finds that it is not, is woken again.
#[test]
fn a_waiting_task_wakes_in_time_after_a_clock_has_stepped_back() {
    let ticker = ManualTicker::new();
    let cache: Cache<u64, u64> = Cache::builder()
        .ticker(ticker.clone())
        .load_timeout(Duration::from_secs(10))
        .build();
    let _held = cache.lease(1);
    let mut task = Task::new(cache.get_with_async(1, ready(5)));
    assert!(task.poll().is_pending());
    ticker.advance(Duration::from_secs(10));
    cache.run_pending_tasks();
    assert_eq!(task.bell.rung(), 1);
    ticker.set_nanos(5_000_000_000);
    assert!(task.poll().is_pending());
    ticker.set_nanos(10_000_000_000);
    cache.run_pending_tasks();
    assert_eq!(task.bell.rung(), 2);
    assert_eq!(task.poll(), Poll::Ready(5));
}
