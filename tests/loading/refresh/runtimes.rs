//! Async loaders on tokio, smol and a hand-made executor; wakers that poll at once; recursion; and
//! what becomes of calls whose load takes too long.

use futures_lite::future::block_on;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};
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
    let open = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&open);
    let users: Users = Cache::builder()
        .loading(async_loader_fn(move |key: &u64| {
            let (key, opened) = (*key, Arc::clone(&opened));
            async move {
                let waits = |_: &mut Context<'_>| match opened.load(Ordering::SeqCst) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                };
                poll_fn(waits).await;
                // Wakes all that wait while it is polled.
                for _ in 0..5 {
                    pause().await;
                }
                Ok(key * 2)
            }
        }))
        .spawner(drop)
        .build();
    let (lead, other, waiter) = (getting(&users), getting(&users), getting(&users));
    lead.poll();
    other.poll_with(&Waker::from(Arc::clone(&other)));
    open.store(true, Ordering::SeqCst);
    // Each wake-up polls the other waiter at once, while this one polls the load's future.
    waiter.poll_with(&Waker::from(Arc::clone(&waiter)));
    assert_eq!(waiter.take(), Some(Ok(2)));
    assert_eq!(other.take(), Some(Ok(2)));
    assert_eq!(users.cache().get(&1), Some(2));
}

#[test]
fn a_waiter_that_is_turned_away_keeps_its_wake_up() {
    // The future's only wake-up comes while the first call polls it, and the second call, which
    // has it, finds the future in use. The first call is never polled again.
    let second: Arc<OnceLock<Call>> = Arc::default();
    let inside = Arc::clone(&second);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let users: Users = Cache::builder()
        .loading(async_loader_fn(move |key: &u64| {
            let (key, second) = (*key, Arc::clone(&inside));
            let polls = Arc::clone(&counted);
            async move {
                poll_fn(|cx| {
                    match polls.fetch_add(1, Ordering::SeqCst) {
                        0 => Poll::Pending,
                        1 => {
                            let waker = cx.waker().clone();
                            let second = Arc::clone(&second);
                            // On another thread, as a task of another worker would be.
                            let other = thread::spawn(move || {
                                waker.wake();
                                second.get().unwrap().poll();
                            });
                            other.join().unwrap();
                            Poll::Pending
                        }
                        _ => Poll::Ready(()),
                    }
                })
                .await;
                Ok(key * 2)
            }
        }))
        .spawner(drop)
        .build();
    let call = || {
        let users = users.clone();
        Polled::new(async move { users.get_async(&1).await })
    };
    let first = call();
    first.poll();
    second.set(call()).unwrap_or_else(|_| unreachable!());
    first.poll();
    assert_eq!(users.cache().get(&1), Some(2), "the load has ended");
    second.get().unwrap().poll();
    assert_eq!(second.get().unwrap().take(), Some(Ok(2)));
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
                    // Two keys in a ring, one task.
                    2 => other(3).await,
                    3 => other(2).await,
                    4 => other(5).await,
                    _ => Ok(key),
                }
            }
        }))
        .spawner(drop)
        .build();
    *own.lock().unwrap() = Some(users.clone());
    assert_eq!(users.get(&1), Err(LoadError::Panicked));
    let ring = users.get(&2);
    assert!(matches!(ring, Err(LoadError::Failed(_))), "{ring:?}");
    assert_eq!(users.get(&4), Ok(5), "a chain is no ring");
    assert_eq!(users.get_if_present(&1), None);
    assert_eq!(block_on(users.get_async(&6)), Ok(6));
    // Otherwise the cache's own loader would keep the cache.
    own.lock().unwrap().take();
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

fn timed(spawner: Option<Executor>) -> (Users, Slow, ManualTicker) {
    let (slow, time) = (Slow::default(), ManualTicker::new());
    let builder = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .loading(slow.clone())
        .load_timeout(5 * SECOND);
    let users = match spawner {
        Some(executor) => builder
            .refresh_after(refresh::after(10 * SECOND))
            .spawner(move |task| executor.spawn(task))
            .build(),
        None => builder.spawner(drop).build(),
    };
    (users, slow, time)
}

fn getting(users: &Users) -> Call {
    let users = users.clone();
    Polled::new(async move { users.get_async(&1).await })
}

#[test]
fn a_call_whose_own_load_is_overdue_has_timed_out() {
    let (users, slow, time) = timed(None);
    let call = getting(&users);
    call.poll();
    time.advance(5 * SECOND - Duration::from_nanos(1));
    call.poll();
    assert_eq!((call.take(), slow.begun()), (None, 1));
    time.advance(Duration::from_nanos(1));
    call.poll();
    assert_eq!(call.take(), Some(Err(LoadError::TimedOut)));
    assert_eq!(
        (slow.begun(), slow.dropped()),
        (1, 1),
        "its future is dropped"
    );
    slow.open(2);
    assert_eq!(users.get(&1), Ok(2), "the key is usable");
    // With a spawner that runs it the load continues, and its late value is stored.
    let executor = Executor::default();
    let (users, slow, time) = timed(Some(executor.clone()));
    let call = getting(&users);
    call.poll();
    time.advance(5 * SECOND);
    call.poll();
    assert_eq!(call.take(), Some(Err(LoadError::TimedOut)));
    slow.open(1);
    assert_eq!(executor.run(), 0);
    assert_eq!(users.cache().get(&1), Some(1));
}

#[test]
fn a_waiter_of_an_overdue_load_goes_on_with_a_newer_one() {
    let (users, slow, time) = timed(None);
    let (leader, waiter, other) = (getting(&users), getting(&users), getting(&users));
    leader.poll();
    waiter.poll();
    other.poll();
    time.advance(5 * SECOND);
    waiter.poll();
    assert_eq!(
        (waiter.take(), slow.begun()),
        (None, 2),
        "it leads the newer load"
    );
    // The leader of the replaced load joins the newer one, as the other waiter does.
    leader.poll();
    other.poll();
    assert_eq!((leader.take(), other.take(), slow.begun()), (None, None, 2));
    slow.open(2);
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
}

#[test]
fn a_refresh_that_is_replaced_waits_for_the_newer_one() {
    let executor = Executor::default();
    let (users, slow, time) = timed(Some(executor.clone()));
    slow.open(1);
    assert_eq!(users.get(&1), Ok(1));
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
    assert_eq!(newer.as_mut().poll(&mut cx), Poll::Ready(Ok(Some(3))));
    assert_eq!(refresh.as_mut().poll(&mut cx), Poll::Ready(Ok(Some(3))));
    slow.open(2);
    executor.run();
    assert_eq!(users.cache().get(&1), Some(3), "the late value is dropped");
    // Otherwise the task that is never woken again would keep the cache, and the cache the
    // executor.
    executor.0.tasks.lock().unwrap().clear();
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
    let (users, _, time) = timed(None);
    thread::scope(|scope| {
        let call = scope.spawn(|| users.get(&1));
        while !call.is_finished() {
            time.advance(SECOND);
            thread::yield_now();
        }
        assert_eq!(call.join().unwrap(), Err(LoadError::TimedOut));
    });
}

#[test]
fn a_future_that_is_ready_stays_so() {
    let executor = Executor::default();
    let (users, slow, _) = timed(Some(executor.clone()));
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
    assert!(message.contains("polled after it was ready"), "{message}");
}
