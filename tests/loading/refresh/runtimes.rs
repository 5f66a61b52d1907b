//! Async loaders on tokio, smol and a hand-made executor; threads and tasks that share loads;
//! wakers that poll at once; recursion; and what becomes of calls whose load takes too long.

use futures_lite::future::block_on;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::{
    AsyncLoader, Cache, LoadError, Loaded, LoadingCache, ManualTicker, async_loader_fn, refresh,
};

const SECOND: Duration = Duration::from_secs(1);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Users = LoadingCache<u64, u64, String>;
type Call = Arc<Polled<Result<u64, LoadError<String>>>>;

/// Pending once, woken at once.
async fn pause() {
    let mut first = true;
    poll_fn(|cx| {
        if std::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// The same work on each runtime: tasks share loads and reloads, and calls go away half-way.
fn herd(
    spawn: impl Fn(Task) + Clone + Send + Sync + 'static,
) -> (impl Future<Output = ()>, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let users: Users = Cache::builder()
        .record_stats()
        .loading(async_loader_fn(move |key: &u64| {
            let (key, calls) = (*key, Arc::clone(&counted));
            async move {
                calls.fetch_add(1, Ordering::SeqCst);
                pause().await;
                Ok(key * 2)
            }
        }))
        .refresh_after(refresh::after(Duration::from_millis(1)))
        .spawner(spawn.clone())
        .build();
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let (users, done) = (users.clone(), Arc::clone(&done));
        spawn(Box::pin(async move {
            for step in 0..500 {
                let key = step % 10;
                assert_eq!(users.get_async(&key).await, Ok(key * 2));
                if step % 20 == 0 {
                    let other = key + 100;
                    // Polled once, then dropped.
                    let mut call = Box::pin(users.get_async(&other));
                    poll_fn(|cx| Poll::Ready(_ = call.as_mut().poll(cx))).await;
                    drop(call);
                    assert_eq!(users.refresh(other).await, Ok(Some(other * 2)));
                    users.cache().invalidate(&key);
                }
                pause().await;
            }
            done.fetch_add(1, Ordering::SeqCst);
        }));
    }
    let all = async move {
        while done.load(Ordering::SeqCst) < 8 {
            pause().await;
        }
        let keys = 0..10;
        let all = users.get_all_async(keys.clone()).await;
        assert_eq!(all, Ok(keys.map(|key| Some(key * 2)).collect()));
    };
    (all, calls)
}

/// Runs the task as `smol::spawn` does: on smol's executor, in a thread that lives as long as the
/// process.
fn spawn_on_smol(task: Task) {
    static EXECUTOR: async_executor::Executor<'static> = async_executor::Executor::new();
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| block_on(EXECUTOR.run(pending::<()>())));
    });
    EXECUTOR.spawn(task).detach();
}

#[test]
fn async_loads_run_on_smol() {
    let (all, calls) = herd(spawn_on_smol);
    block_on(all);
    assert!(calls.load(Ordering::SeqCst) >= 20);
}

#[test]
fn async_loads_run_on_both_kinds_of_tokio() {
    let one = tokio::runtime::Builder::new_current_thread().build();
    let many = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build();
    for runtime in [one.unwrap(), many.unwrap()] {
        let handle = runtime.handle().clone();
        let (all, calls) = herd(move |task| {
            handle.spawn(task);
        });
        runtime.block_on(all);
        assert!(calls.load(Ordering::SeqCst) >= 20);
    }
}

/// Runs tasks one after the other, on the thread that calls it.
#[derive(Clone, Default)]
struct Executor(Arc<Queue>);

#[derive(Default)]
struct Queue {
    ready: Mutex<VecDeque<usize>>,
    tasks: Mutex<HashMap<usize, Task>>,
    next: AtomicUsize,
}

struct Ready(usize, Executor);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.1.0.ready.lock().unwrap().push_back(self.0);
    }
}

impl Executor {
    fn spawn(&self, task: Task) {
        let number = self.0.next.fetch_add(1, Ordering::SeqCst);
        self.0.tasks.lock().unwrap().insert(number, task);
        self.0.ready.lock().unwrap().push_back(number);
    }

    /// Runs every task, also those that were not woken.
    fn run_all(&self) {
        let mut numbers: Vec<_> = self.0.tasks.lock().unwrap().keys().copied().collect();
        numbers.sort_unstable();
        self.0.ready.lock().unwrap().extend(numbers);
        self.run();
    }

    /// Runs until no task is ready; says how many are left.
    fn run(&self) -> usize {
        loop {
            let Some(number) = self.0.ready.lock().unwrap().pop_front() else {
                return self.0.tasks.lock().unwrap().len();
            };
            let Some(mut task) = self.0.tasks.lock().unwrap().remove(&number) else {
                continue;
            };
            let waker = Waker::from(Arc::new(Ready(number, self.clone())));
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                self.0.tasks.lock().unwrap().insert(number, task);
            }
        }
    }
}

#[test]
fn on_a_hand_made_executor() {
    let executor = Executor::default();
    let spawner = executor.clone();
    let (all, calls) = herd(move |task| spawner.spawn(task));
    executor.spawn(Box::pin(all));
    assert_eq!(executor.run(), 0, "each task ends, those of reloads too");
    assert!(calls.load(Ordering::SeqCst) >= 20);
}

/// A future that is polled by hand, or by its own waker at once.
struct Polled<T> {
    future: Mutex<Option<Pin<Box<dyn Future<Output = T> + Send>>>>,
    output: Mutex<Option<T>>,
    woken: AtomicBool,
}

impl<T: Send + 'static> Polled<T> {
    fn new(future: impl Future<Output = T> + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            future: Mutex::new(Some(Box::pin(future))),
            output: Mutex::new(None),
            woken: AtomicBool::new(false),
        })
    }

    fn poll_with(&self, waker: &Waker) {
        self.woken.store(true, Ordering::SeqCst);
        // A task that is woken while it is polled is polled again after that.
        let Ok(mut future) = self.future.try_lock() else {
            return;
        };
        while self.woken.swap(false, Ordering::SeqCst) {
            let Some(running) = future.as_mut() else {
                return;
            };
            if let Poll::Ready(output) = running.as_mut().poll(&mut Context::from_waker(waker)) {
                *future = None;
                *self.output.lock().unwrap() = Some(output);
            }
        }
    }

    /// Polls with a waker that does nothing.
    fn poll(&self) {
        self.poll_with(Waker::noop());
    }

    fn take(&self) -> Option<T> {
        self.output.lock().unwrap().take()
    }

    fn drop_future(&self) {
        self.future.lock().unwrap().take();
    }
}

impl<T: Send + 'static> Wake for Polled<T> {
    fn wake(self: Arc<Self>) {
        self.poll_with(&Waker::from(Arc::clone(&self)));
    }
}

#[test]
fn a_waker_that_polls_at_once_is_no_recursion_and_loses_no_wake_up() {
    let executor = Executor::default();
    let (open, spawner) = (Arc::new(AtomicBool::new(false)), executor.clone());
    let opened = Arc::clone(&open);
    let users: Users = Cache::builder()
        .loading(async_loader_fn(move |key: &u64| {
            let (key, opened) = (*key, Arc::clone(&opened));
            async move {
                while !opened.load(Ordering::SeqCst) {
                    pause().await;
                }
                Ok(key * 2)
            }
        }))
        .spawner(move |task| spawner.spawn(task))
        .build();
    let (lead, other, waiter) = (getting(&users), getting(&users), getting(&users));
    lead.poll();
    other.poll_with(&Waker::from(Arc::clone(&other)));
    waiter.poll_with(&Waker::from(Arc::clone(&waiter)));
    open.store(true, Ordering::SeqCst);
    // The end of the task wakes both waiters, which are polled at once, within the task's poll.
    assert_eq!(executor.run(), 0);
    assert_eq!(waiter.take(), Some(Ok(2)));
    assert_eq!(other.take(), Some(Ok(2)));
    lead.poll();
    assert_eq!(lead.take(), Some(Ok(2)));
}

/// A spawner may run its task on the spot, before it returns.
#[test]
fn a_spawner_that_runs_the_task_at_once_serves_every_call() {
    let users: Users = Cache::builder()
        .loading(async_loader_fn(|key: &u64| {
            let key = *key;
            async move {
                pause().await;
                Ok(key * 2)
            }
        }))
        .spawner(block_on)
        .build();
    assert_eq!(users.get(&1), Ok(2));
    assert_eq!(block_on(users.get_async(&2)), Ok(4));
    assert_eq!(users.get_all([2, 3]), Ok(vec![Some(4), Some(6)]));
    assert_eq!(users.refresh(1).wait(), Ok(Some(2)));
}

/// Threads and tasks on one async loader, whose future needs the runtime.
#[test]
fn threads_outside_of_the_runtime_share_loads_with_its_tasks() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let (handle, calls) = (runtime.handle().clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let users: Users = Cache::builder()
        .loading(async_loader_fn(move |key: &u64| {
            let (key, calls) = (*key, Arc::clone(&counted));
            async move {
                calls.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(key * 2)
            }
        }))
        .spawner(move |task| drop(handle.spawn(task)))
        .build();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let users = users.clone();
            runtime.spawn(async move {
                for key in 0..100 {
                    assert_eq!(users.get_async(&key).await, Ok(key * 2));
                }
            })
        })
        .collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for key in 0..100 {
                    assert_eq!(users.get(&key), Ok(key * 2));
                }
                assert_eq!(users.get_all([200, 201]), Ok(vec![Some(400), Some(402)]));
            });
        }
    });
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 102, "one load for each key");
    assert_eq!(users.refresh(1).wait(), Ok(Some(2)));
    assert_eq!(runtime.block_on(users.refresh(1)), Ok(Some(2)));
}

#[test]
fn a_loader_that_asks_for_its_own_key_fails_and_does_not_hang() {
    let own: Arc<Mutex<Option<Users>>> = Arc::default();
    let inner = Arc::clone(&own);
    let users: Users = Cache::builder()
        .name("names")
        .loading(async_loader_fn(move |key: &u64| {
            let (key, users) = (*key, inner.lock().unwrap().clone().unwrap());
            async move {
                let users = &users;
                let other = |key| async move {
                    let value = Box::pin(users.get_async(&key)).await;
                    value.map_err(|error| error.to_string())
                };
                match key {
                    1 => other(1).await,
                    4 => other(5).await,
                    _ => Ok(key),
                }
            }
        }))
        .spawner(spawn_on_smol)
        .build();
    *own.lock().unwrap() = Some(users.clone());
    assert_eq!(users.get(&1), Err(LoadError::Panicked));
    assert_eq!(users.get(&4), Ok(5), "a chain is no ring");
    assert_eq!(users.get_if_present(&1), None);
    assert_eq!(block_on(users.get_async(&6)), Ok(6));
    // Otherwise the cache's own loader would keep the cache.
    own.lock().unwrap().take();
}

/// The code of a method that returns a future runs before that is polled: it leads the loads, too.
#[test]
fn a_loader_that_asks_for_its_own_keys_at_once_fails_and_does_not_hang() {
    struct Eager(Arc<Mutex<Option<Users>>>);
    impl AsyncLoader<u64, u64> for Eager {
        type Error = String;
        async fn load(&self, key: &u64) -> Result<Loaded<u64>, String> {
            Ok((*key).into())
        }
        fn load_many(
            &self,
            keys: &[u64],
        ) -> impl Future<Output = Result<Vec<Option<Loaded<u64>>>, String>> + Send {
            let users = self.0.lock().unwrap().clone().unwrap();
            let values = keys.iter().map(|key| users.get(key).ok().map(Loaded::new));
            std::future::ready(Ok(values.collect()))
        }
    }
    crate::support::must_end(|| {
        let own: Arc<Mutex<Option<Users>>> = Arc::default();
        let users: Users = Cache::builder()
            .loading(Eager(Arc::clone(&own)))
            .spawner(block_on)
            .build();
        *own.lock().unwrap() = Some(users.clone());
        assert_eq!(users.get_all([1, 2]), Err(LoadError::Panicked));
        assert_eq!(users.get(&1), Ok(1));
        own.lock().unwrap().take();
    });
}

/// Its calls end when the test says so: each value is the number of its call.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Gates>>);

#[derive(Default)]
struct Gates {
    begun: usize,
    dropped: usize,
    open: Vec<usize>,
}

impl Slow {
    fn begun(&self) -> usize {
        self.0.lock().unwrap().begun
    }

    fn dropped(&self) -> usize {
        self.0.lock().unwrap().dropped
    }

    fn open(&self, call: usize) {
        self.0.lock().unwrap().open.push(call);
    }
}

struct CountDrop(Slow);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().dropped += 1;
    }
}

impl AsyncLoader<u64, u64> for Slow {
    type Error = String;

    async fn load(&self, _: &u64) -> Result<Loaded<u64>, String> {
        let call = {
            let mut gates = self.0.lock().unwrap();
            gates.begun += 1;
            gates.begun
        };
        let _counted = CountDrop(self.clone());
        poll_fn(|_| {
            if self.0.lock().unwrap().open.contains(&call) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        Ok((call as u64).into())
    }
}

fn timed() -> (Users, Slow, ManualTicker, Executor) {
    let (slow, time, executor) = (Slow::default(), ManualTicker::new(), Executor::default());
    let spawner = executor.clone();
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(slow.clone())
        .load_timeout(5 * SECOND)
        .refresh_after(refresh::after(10 * SECOND))
        .spawner(move |task| spawner.spawn(task))
        .build();
    (users, slow, time, executor)
}

fn getting(users: &Users) -> Call {
    let users = users.clone();
    Polled::new(async move { users.get_async(&1).await })
}

#[test]
fn a_call_whose_own_load_is_overdue_has_timed_out() {
    let (users, slow, time, executor) = timed();
    let call = getting(&users);
    call.poll();
    assert_eq!(executor.run(), 1);
    time.advance(5 * SECOND - Duration::from_nanos(1));
    call.poll();
    assert_eq!((call.take(), slow.begun()), (None, 1));
    time.advance(Duration::from_nanos(1));
    call.poll();
    assert_eq!(call.take(), Some(Err(LoadError::TimedOut)));
    assert_eq!((slow.begun(), slow.dropped()), (1, 0), "the load goes on");
    // A late value is stored, as no newer load has begun.
    slow.open(1);
    executor.run_all();
    assert_eq!(users.cache().get(&1), Some(1));
    // Else it is not.
    users.cache().invalidate(&1);
    let late = getting(&users);
    late.poll();
    executor.run();
    time.advance(5 * SECOND);
    let newer = getting(&users);
    newer.poll();
    executor.run();
    slow.open(2);
    slow.open(3);
    executor.run_all();
    newer.poll();
    assert_eq!(newer.take(), Some(Ok(3)));
    assert_eq!(users.cache().get(&1), Some(3));
    late.poll();
    assert_eq!(late.take(), Some(Ok(3)), "it went on with the newer load");
}

#[test]
fn a_waiter_of_an_overdue_load_goes_on_with_a_newer_one() {
    let (users, slow, time, executor) = timed();
    let (leader, waiter, other) = (getting(&users), getting(&users), getting(&users));
    for call in [&leader, &waiter, &other] {
        call.poll();
    }
    executor.run();
    time.advance(5 * SECOND);
    waiter.poll();
    executor.run();
    assert_eq!(
        (waiter.take(), slow.begun()),
        (None, 2),
        "it begins the newer load"
    );
    // The call that began the replaced load joins the newer one, as the other waiter does.
    leader.poll();
    other.poll();
    assert_eq!((leader.take(), other.take(), slow.begun()), (None, None, 2));
    slow.open(2);
    executor.run_all();
    for call in [&waiter, &leader, &other] {
        call.poll();
        assert_eq!(call.take(), Some(Ok(2)));
    }
    assert_eq!(slow.begun(), 2);
    // No call continues for ever: the second time-out is its end.
    users.cache().invalidate(&1);
    let (leader, waiter) = (getting(&users), getting(&users));
    leader.poll();
    waiter.poll();
    time.advance(5 * SECOND);
    leader.drop_future();
    time.advance(5 * SECOND);
    waiter.poll();
    time.advance(5 * SECOND);
    waiter.poll();
    assert_eq!(waiter.take(), Some(Err(LoadError::TimedOut)));
    executor.0.tasks.lock().unwrap().clear();
}

#[test]
fn a_refresh_that_is_replaced_waits_for_the_newer_one() {
    let (users, slow, time, executor) = timed();
    slow.open(1);
    let first = getting(&users);
    first.poll();
    assert_eq!(executor.run(), 0);
    first.poll();
    assert_eq!(first.take(), Some(Ok(1)));
    let mut refresh = Box::pin(users.refresh(1));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(refresh.as_mut().poll(&mut cx).is_pending());
    executor.run();
    time.advance(5 * SECOND);
    // A newer refresh takes its place.
    let mut newer = Box::pin(users.refresh(1));
    assert!(newer.as_mut().poll(&mut cx).is_pending());
    assert!(refresh.as_mut().poll(&mut cx).is_pending());
    executor.run();
    assert_eq!(slow.begun(), 3);
    slow.open(3);
    executor.run_all();
    assert_eq!(newer.as_mut().poll(&mut cx), Poll::Ready(Ok(Some(3))));
    assert_eq!(refresh.as_mut().poll(&mut cx), Poll::Ready(Ok(Some(3))));
    slow.open(2);
    executor.run_all();
    assert_eq!(users.cache().get(&1), Some(3), "the late value is dropped");
}

#[test]
fn with_the_default_clock_tasks_time_out_by_themselves() {
    block_on(async {
        let users: Users = Cache::builder()
            .expiry_resolution(Duration::from_millis(1))
            .loading(async_loader_fn(|key: &u64| {
                let key = *key;
                async move {
                    if key == 1 {
                        pending::<()>().await;
                    }
                    Ok(key)
                }
            }))
            .load_timeout(Duration::from_millis(50))
            .spawner(spawn_on_smol)
            .build();
        let began = Instant::now();
        assert_eq!(users.get_async(&1).await, Err(LoadError::TimedOut));
        users.cache().insert(1, 7);
        assert_eq!(users.refresh(1).await, Err(LoadError::TimedOut));
        assert!(began.elapsed() >= Duration::from_millis(100));
        assert!(began.elapsed() < 60 * SECOND);
        assert_eq!(users.get_async(&1).await, Ok(7));
    });
    // A thread that waits for such a load needs no scheduler.
    let (users, _, time, executor) = timed();
    thread::scope(|scope| {
        let call = scope.spawn(|| users.get(&1));
        while !call.is_finished() {
            time.advance(SECOND);
            thread::yield_now();
        }
        assert_eq!(call.join().unwrap(), Err(LoadError::TimedOut));
    });
    executor.0.tasks.lock().unwrap().clear();
}

#[test]
fn a_future_that_is_ready_stays_so() {
    let (users, slow, _, executor) = timed();
    slow.open(1);
    let mut refresh = Box::pin(users.refresh(1));
    let mut cx = Context::from_waker(Waker::noop());
    executor.run();
    assert_eq!(refresh.as_mut().poll(&mut cx), Poll::Ready(Ok(Some(1))));
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        refresh.as_mut().poll(&mut cx)
    }));
    let message = again.unwrap_err();
    let message = message.downcast_ref::<&str>().unwrap();
    assert!(message.contains("resumed after completion"), "{message}");
}
