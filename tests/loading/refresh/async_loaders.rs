//! Async loaders: loads in tasks of the spawner, spawners that misbehave, runtimes that end.

use crate::support::{OneHash, until};
use std::cell::RefCell;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tokio::sync::Semaphore;
use wheelhouse::{
    Alarm, AsyncLoader, Cache, Delivery, Leased, LoadError, Loaded, LoadingCache, MaintenanceTask,
    ManualTicker, Reloaded, Scheduler, async_loader_fn, refresh,
};

const SECOND: Duration = Duration::from_secs(1);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Spawner = fn(Task);
type Users = LoadingCache<u64, u64, String>;

/// Counts its wake-ups.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A scheduler that keeps the maintenance task of the last request.
#[derive(Clone, Default)]
struct Note(Arc<Mutex<Option<MaintenanceTask>>>);

impl Note {
    fn run(&self) {
        let task = self.0.lock().unwrap().take();
        task.expect("a run was asked for").run();
    }
}

impl Alarm for Note {
    fn set(&self, _: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some(task);
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, bell: &Arc<Bell>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(bell));
    future.poll(&mut Context::from_waker(&waker))
}

/// A backend whose calls end when the test gives permits.
struct Backend {
    begun: AtomicUsize,
    dropped: AtomicUsize,
    permits: Semaphore,
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            begun: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            permits: Semaphore::new(0),
        }
    }
}

struct CountDrop(Arc<Backend>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Backend {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

/// Each value is ten times the key, and the number of calls so far.
struct Remote(Arc<Backend>);

impl AsyncLoader<u64, u64> for Remote {
    type Error = String;

    async fn load(&self, key: &u64) -> Result<Loaded<u64>, String> {
        let call = self.0.begun.fetch_add(1, Ordering::SeqCst) as u64;
        let _counted = CountDrop(Arc::clone(&self.0));
        self.0.permits.acquire().await.unwrap().forget();
        match key {
            66 => Err("down".into()),
            67 => panic!("told to panic in the loader"),
            _ => Ok((key * 10 + call).into()),
        }
    }

    async fn reload(&self, key: &u64, old: &u64) -> Result<Reloaded<u64>, String> {
        assert_eq!(old / 10, *key);
        self.load(key).await.map(Reloaded::New)
    }
}

fn rig(spawner: impl Fn(Task) + Send + Sync + 'static) -> (Users, Arc<Backend>, ManualTicker) {
    let (backend, time) = (Arc::<Backend>::default(), ManualTicker::new());
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(100 * SECOND)
        .loading(Remote(Arc::clone(&backend)))
        .refresh_after(refresh::after(10 * SECOND))
        .spawner(spawner)
        .build();
    (users, backend, time)
}

/// Loads have five seconds; entries become stale after ten; tasks and maintenance run when the test
/// runs them.
struct Limited {
    users: Users,
    backend: Arc<Backend>,
    time: ManualTicker,
    tasks: Tasks,
    alarm: Note,
}

impl Limited {
    fn new<L>(loader: impl FnOnce(Arc<Backend>) -> L) -> Self
    where
        L: AsyncLoader<u64, u64, Error = String>,
    {
        let (backend, time) = (Arc::<Backend>::default(), ManualTicker::new());
        let (tasks, alarm) = (Tasks::default(), Note::default());
        let users = Cache::builder()
            .ticker(time.clone())
            .scheduler(Scheduler::custom(alarm.clone()))
            .record_stats()
            .loading(loader(Arc::clone(&backend)))
            .refresh_after(refresh::after(10 * SECOND))
            .load_timeout(5 * SECOND)
            .spawner(tasks.spawner())
            .build();
        Self {
            users,
            backend,
            time,
            tasks,
            alarm,
        }
    }
}

/// Tasks that wait until the test runs them.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Vec<Task>>>);

impl Tasks {
    fn spawner(&self) -> impl Fn(Task) + Send + Sync + 'static {
        let tasks = self.clone();
        move |task| tasks.0.lock().unwrap().push(task)
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Polls each once; says how many are left.
    fn run(&self) -> usize {
        let mut tasks = std::mem::take(&mut *self.0.lock().unwrap());
        let bell = Arc::default();
        tasks.retain_mut(|task| poll(task.as_mut(), &bell).is_pending());
        let left = tasks.len();
        self.0.lock().unwrap().append(&mut tasks);
        left
    }

    fn drop_all(&self) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap());
        drop(tasks);
    }
}

#[test]
fn a_load_is_handed_to_the_spawner_when_it_begins_and_goes_on_without_its_calls() {
    let tasks = Tasks::default();
    let (users, backend, _) = rig(tasks.spawner());
    let bells: [Arc<Bell>; 3] = Default::default();
    let mut first = Box::pin(users.get_async(&1));
    assert_eq!(
        tasks.len(),
        0,
        "a future that was never polled does nothing"
    );
    assert!(poll(first.as_mut(), &bells[0]).is_pending());
    assert_eq!((tasks.len(), backend.begun()), (1, 0), "one task");
    let mut second = Box::pin(users.get_async(&1));
    let mut third = Box::pin(users.get_async(&1));
    assert!(poll(second.as_mut(), &bells[1]).is_pending());
    assert!(poll(third.as_mut(), &bells[2]).is_pending());
    assert_eq!(tasks.run(), 1, "the task waits for the backend");
    assert_eq!((tasks.len(), backend.begun()), (1, 1), "one load for all");
    // No call polls the load: only its task does.
    backend.permits.add_permits(1);
    assert!(poll(second.as_mut(), &bells[1]).is_pending());
    drop(first);
    assert_eq!(tasks.run(), 0);
    assert_eq!(bells[2].0.load(Ordering::SeqCst), 1, "woken by the outcome");
    assert_eq!(poll(third.as_mut(), &bells[2]), Poll::Ready(Ok(10)));
    assert_eq!(poll(second.as_mut(), &bells[1]), Poll::Ready(Ok(10)));
    // All calls leave, and the load goes on.
    let mut alone = Box::pin(users.get_async(&2));
    assert!(poll(alone.as_mut(), &bells[0]).is_pending());
    drop(alone);
    assert_eq!((tasks.run(), backend.dropped()), (1, 1));
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(users.cache().get(&2), Some(21));
    let stats = users.cache().stats();
    assert_eq!((stats.loads(), stats.load_failures()), (2, 0));
}

#[test]
fn a_task_that_is_dropped_fails_the_load_for_all_that_wait() {
    let tasks = Tasks::default();
    let (users, backend, _) = rig(tasks.spawner());
    let bell = Arc::<Bell>::default();
    // Before its first poll, and half-way.
    for polls in [0, 1] {
        let mut calls = [0; 2].map(|_| Box::pin(users.get_async(&1)));
        for call in &mut calls {
            assert!(poll(call.as_mut(), &bell).is_pending());
        }
        for _ in 0..polls {
            tasks.run();
        }
        tasks.drop_all();
        for call in &mut calls {
            let end = poll(call.as_mut(), &bell);
            assert_eq!(end, Poll::Ready(Err(LoadError::Abandoned)));
        }
        assert_eq!(backend.dropped(), polls);
    }
    assert_eq!(users.cache().stats().load_failures(), 2);
    backend.permits.add_permits(1);
    let mut call = Box::pin(users.get_async(&1));
    assert!(poll(call.as_mut(), &bell).is_pending());
    tasks.run();
    let end = poll(call.as_mut(), &bell);
    assert_eq!(end, Poll::Ready(Ok(11)), "the key is usable");
}

#[test]
fn a_spawner_that_drops_its_tasks_fails_each_load() {
    let (users, backend, _) = rig(drop);
    let bell = Arc::<Bell>::default();
    assert_eq!(users.get(&1), Err(LoadError::Abandoned));
    let end = poll(pin!(users.get_async(&1)), &bell);
    assert_eq!(end, Poll::Ready(Err(LoadError::Abandoned)));
    assert_eq!(users.get_all([1, 2]), Err(LoadError::Abandoned));
    assert_eq!(users.refresh(1).wait(), Err(LoadError::Abandoned));
    assert_eq!((backend.begun(), users.cache().stats().loads()), (0, 5));
}

#[test]
fn a_plain_waiter_takes_over_when_a_load_is_dropped() {
    let tasks = Tasks::default();
    let (users, _, _) = rig(tasks.spawner());
    let bell = Arc::<Bell>::default();
    let mut first = Box::pin(users.get_async(&1));
    assert!(poll(first.as_mut(), &bell).is_pending());
    thread::scope(|scope| {
        let other = scope.spawn(|| users.cache().get_with(1, || 77));
        until("it waits", || users.cache().stats().load_waits() == 1);
        tasks.drop_all();
        assert_eq!(other.join().unwrap(), 77);
    });
    assert_eq!(users.get(&1), Ok(77));
}

/// Key 1 has the value 10, and is stale.
fn stale(users: &Users, backend: &Backend, time: &ManualTicker, tasks: &Tasks) {
    let bell = Arc::<Bell>::default();
    backend.permits.add_permits(1);
    let mut call = Box::pin(users.get_async(&1));
    assert!(poll(call.as_mut(), &bell).is_pending());
    assert_eq!(tasks.run(), 0);
    assert_eq!(poll(call.as_mut(), &bell), Poll::Ready(Ok(10)));
    time.advance(10 * SECOND);
}

#[test]
fn reloads_are_handed_to_the_spawner_once() {
    let tasks = Tasks::default();
    let (users, backend, time) = rig(tasks.spawner());
    stale(&users, &backend, &time, &tasks);
    for _ in 0..20 {
        assert_eq!(users.get(&1), Ok(10), "the old value");
    }
    assert_eq!((tasks.len(), backend.begun()), (1, 1));
    assert_eq!(tasks.run(), 1);
    assert_eq!(backend.begun(), 2);
    // A miss joins the reload.
    time.advance(90 * SECOND);
    let bell = Arc::<Bell>::default();
    let mut miss = Box::pin(users.get_async(&1));
    assert!(poll(miss.as_mut(), &bell).is_pending());
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(poll(miss.as_mut(), &bell), Poll::Ready(Ok(11)));
    assert_eq!(backend.begun(), 2);
}

#[test]
fn a_spawner_that_drops_or_panics_gives_the_right_back() {
    let misbehave: [(&str, Spawner); 2] = [
        ("drops", |task| drop(task)),
        ("panics", |_| panic!("told to panic in the spawner")),
    ];
    for (name, spawner) in misbehave {
        let (tasks, bad) = (Tasks::default(), Arc::new(AtomicBool::new(false)));
        let (well, told) = (tasks.spawner(), Arc::clone(&bad));
        let (users, backend, time) = rig(move |task| match told.load(Ordering::SeqCst) {
            true => spawner(task),
            false => well(task),
        });
        stale(&users, &backend, &time, &tasks);
        bad.store(true, Ordering::SeqCst);
        assert_eq!(users.get(&1), Ok(10), "{name}: the reader goes on");
        assert_eq!(users.cache().stats().reload_failures(), 1, "{name}");
        assert_eq!(users.get(&1), Ok(10));
        let reloads = users.cache().stats().reloads();
        assert_eq!(reloads, 1, "{name}: not before its time");
        time.advance(SECOND);
        assert_eq!(users.get(&1), Ok(10));
        assert_eq!(users.cache().stats().reloads(), 2, "{name}: the next try");
        let refresh = users.refresh(1).wait();
        assert_eq!(refresh, Err(LoadError::Abandoned), "{name}");
        time.advance(100 * SECOND);
        assert_eq!(users.get(&1), Err(LoadError::Abandoned), "{name}: a miss");
    }
}

#[test]
fn a_task_that_is_dropped_half_way_gives_the_right_back() {
    let tasks = Tasks::default();
    let (users, backend, time) = rig(tasks.spawner());
    stale(&users, &backend, &time, &tasks);
    assert_eq!(users.get(&1), Ok(10));
    assert_eq!(tasks.run(), 1);
    tasks.drop_all();
    assert_eq!(users.cache().stats().reload_failures(), 1);
    time.advance(SECOND);
    assert_eq!(users.get(&1), Ok(10));
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(users.cache().get(&1), Some(12));
}

#[test]
fn a_runtime_that_ends_gives_the_right_back() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    let (users, backend, time) = rig(move |task| drop(handle.spawn(task)));
    backend.permits.add_permits(1);
    assert_eq!(
        users.get(&1),
        Ok(10),
        "a thread outside of the runtime waits"
    );
    time.advance(10 * SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the reload runs", || backend.begun() == 2);
    runtime.shutdown_timeout(60 * SECOND);
    // Counted when the next moment is set.
    until("it has failed", || {
        users.cache().stats().load_failures() == 1
    });
    time.advance(SECOND);
    assert_eq!(users.get(&1), Ok(10));
    until("the next one fails at once", || {
        users.cache().stats().reload_failures() == 2
    });
    time.advance(100 * SECOND);
    assert_eq!(users.get(&1), Err(LoadError::Abandoned));
}

#[test]
fn a_panic_and_an_error_reach_all_waiters() {
    let tasks = Tasks::default();
    let (users, backend, _) = rig(tasks.spawner());
    let bell = Arc::<Bell>::default();
    for (key, error) in [
        (66, LoadError::Failed(Arc::new("down".to_string()))),
        (67, LoadError::Panicked),
    ] {
        let mut one = Box::pin(users.get_async(&key));
        let mut other = Box::pin(users.get_async(&key));
        assert!(poll(one.as_mut(), &bell).is_pending());
        assert!(poll(other.as_mut(), &bell).is_pending());
        backend.permits.add_permits(1);
        assert_eq!(tasks.run(), 0);
        assert_eq!(poll(other.as_mut(), &bell), Poll::Ready(Err(error.clone())));
        assert_eq!(poll(one.as_mut(), &bell), Poll::Ready(Err(error)));
    }
    assert_eq!(backend.begun(), 2);
}

#[test]
fn a_time_out_lets_the_next_call_load() {
    let Limited {
        users,
        backend,
        time,
        tasks,
        ..
    } = Limited::new(Remote);
    stale(&users, &backend, &time, &tasks);
    assert_eq!(users.get(&1), Ok(10));
    assert_eq!(tasks.run(), 1);
    let mut refresh = pin!(users.refresh(1));
    let bell = Arc::<Bell>::default();
    assert!(poll(refresh.as_mut(), &bell).is_pending());
    time.advance(5 * SECOND);
    assert_eq!(
        poll(refresh.as_mut(), &bell),
        Poll::Ready(Err(LoadError::TimedOut))
    );
    assert_eq!(users.get(&1), Ok(10));
    assert_eq!((tasks.len(), users.cache().stats().reloads()), (2, 2));
    backend.permits.add_permits(2);
    assert_eq!(tasks.run(), 0);
    assert_eq!(users.cache().stats().loads_discarded(), 1, "the late one");
    assert_eq!(users.cache().get(&1), Some(12));
}

/// Behind a backend that hangs, the calls of a key do not time out one after the other: each waits
/// for two loads at most.
#[test]
fn calls_for_a_key_whose_loads_hang_wait_for_two_loads_at_most() {
    let Limited {
        users, time, tasks, ..
    } = Limited::new(Remote);
    let (bell, late) = (Arc::<Bell>::default(), Err(LoadError::TimedOut));
    let mut calls = [(); 4].map(|()| Box::pin(users.get_async(&1)));
    for call in &mut calls {
        assert!(poll(call.as_mut(), &bell).is_pending());
    }
    time.advance(5 * SECOND);
    let [first, others @ ..] = &mut calls;
    assert_eq!(poll(first.as_mut(), &bell), Poll::Ready(late.clone()));
    for call in &mut *others {
        assert!(poll(call.as_mut(), &bell).is_pending());
    }
    assert_eq!(tasks.len(), 2, "one of them has begun a newer load");
    time.advance(5 * SECOND);
    // The last to come looks first: it begins no third load.
    for call in others.iter_mut().rev() {
        assert_eq!(poll(call.as_mut(), &bell), Poll::Ready(late.clone()));
    }
    assert_eq!(tasks.len(), 2);
}

/// The load that takes the place of its own late one may end without a value.
#[test]
fn a_get_whose_late_load_gave_way_to_one_without_a_value_loads_again() {
    let Limited {
        users,
        backend,
        time,
        tasks,
        ..
    } = Limited::new(Remote);
    let bell = Arc::<Bell>::default();
    let mut get = pin!(users.get_async(&1));
    assert!(poll(get.as_mut(), &bell).is_pending());
    assert_eq!(tasks.run(), 1);
    time.advance(5 * SECOND);
    assert_eq!(users.cache().optionally_get_with(1, || None), None);
    assert!(poll(get.as_mut(), &bell).is_pending());
    assert_eq!((tasks.len(), tasks.run(), backend.begun()), (2, 2, 2));
    // It waits for two loads at most.
    time.advance(5 * SECOND);
    let late = Err(LoadError::TimedOut);
    assert_eq!(poll(get.as_mut(), &bell), Poll::Ready(late));

    let mut get = pin!(users.get_async(&2));
    assert!(poll(get.as_mut(), &bell).is_pending());
    time.advance(5 * SECOND);
    assert_eq!(users.cache().optionally_get_with(2, || None), None);
    assert!(poll(get.as_mut(), &bell).is_pending());
    backend.permits.add_permits(4);
    assert_eq!(tasks.run(), 0);
    assert!(matches!(poll(get.as_mut(), &bell), Poll::Ready(Ok(20..30))));
}

/// The task of a load begins to run at the very moment at which the load was overdue: its time
/// begins anew, and the calls that wait are woken at a new moment.
#[test]
fn a_load_that_begins_to_run_when_it_is_overdue_times_out_later() {
    let Limited {
        users,
        time,
        tasks,
        alarm,
        ..
    } = Limited::new(Remote);
    let bell = Arc::<Bell>::default();
    let mut call = pin!(users.get_async(&1));
    assert!(poll(call.as_mut(), &bell).is_pending());
    time.advance(5 * SECOND);
    alarm.run();
    assert_eq!(bell.0.load(Ordering::SeqCst), 1, "it is overdue");
    assert_eq!(tasks.run(), 1, "its task begins");
    assert!(poll(call.as_mut(), &bell).is_pending());
    time.advance(5 * SECOND);
    alarm.run();
    assert_eq!(bell.0.load(Ordering::SeqCst), 2);
    assert_eq!(poll(call, &bell), Poll::Ready(Err(LoadError::TimedOut)));
}

/// Else the key would be held up until it is polled.
#[test]
fn a_refresh_that_is_not_polled_is_not_told_to_lead() {
    let tasks = Tasks::default();
    let (users, backend, _) = rig(tasks.spawner());
    let lease = users.cache().lease(1);
    let mut refresh = pin!(users.refresh(1));
    drop(lease);
    assert!(matches!(
        users.cache().lease_timeout(1, Duration::ZERO),
        Leased::Lease(_)
    ));
    let bell = Arc::<Bell>::default();
    assert!(poll(refresh.as_mut(), &bell).is_pending());
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(poll(refresh.as_mut(), &bell), Poll::Ready(Ok(Some(10))));
}

#[test]
fn an_explicit_write_revokes_an_async_reload() {
    let tasks = Tasks::default();
    let (users, backend, time) = rig(tasks.spawner());
    stale(&users, &backend, &time, &tasks);
    let mut refresh = pin!(users.refresh(1));
    let bell = Arc::<Bell>::default();
    assert!(poll(refresh.as_mut(), &bell).is_pending());
    users.cache().insert(1, 19);
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(poll(refresh.as_mut(), &bell), Poll::Ready(Ok(Some(19))));
    assert_eq!(users.cache().get(&1), Some(19));
}

#[test]
fn the_last_handle_goes_while_a_reload_runs() {
    let tasks = Tasks::default();
    let (users, backend, time) = rig(tasks.spawner());
    stale(&users, &backend, &time, &tasks);
    let mut refresh = pin!(users.refresh(1));
    let bell = Arc::<Bell>::default();
    assert!(poll(refresh.as_mut(), &bell).is_pending());
    assert_eq!(tasks.run(), 1);
    drop(users);
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(poll(refresh.as_mut(), &bell), Poll::Ready(Ok(Some(11))));
}

#[test]
fn a_missing_spawner_is_named() {
    let builder = Cache::<u64, u64>::builder()
        .name("users")
        .loading(Remote(Arc::default()));
    let error = builder.try_build().unwrap_err().to_string();
    assert!(
        error.starts_with("cache \"users\": spawner is missing"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_runtime_share_loads() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let load = async_loader_fn(move |key: &u64| {
        let (key, calls) = (*key, Arc::clone(&counted));
        async move {
            calls.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, String>(key * 2)
        }
    });
    let users: Users = Cache::builder()
        .loading(load)
        .refresh_after(refresh::after(Duration::from_millis(1)))
        .spawner(|task| drop(tokio::spawn(task)))
        .build();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let users = users.clone();
            tokio::spawn(async move {
                for step in 0..2_000_u64 {
                    let key = step % 10;
                    assert_eq!(users.get_async(&key).await, Ok(key * 2));
                    if step % 50 == 0 {
                        // A call that goes away half-way.
                        let other = key + 100;
                        let call = users.get_async(&other);
                        let soon = tokio::time::timeout(Duration::ZERO, call);
                        drop(soon.await);
                        users.cache().invalidate(&key);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let all = users.get_all_async(0..10).await.unwrap();
    assert_eq!(all, (0..10).map(|key| Some(key * 2)).collect::<Vec<_>>());
    assert!(calls.load(Ordering::SeqCst) >= 10);
}

#[test]
fn a_panic_of_the_expiry_policy_reaches_all_waiters_and_leaves_the_key_usable() {
    let (backend, bad) = (Arc::<Backend>::default(), Arc::new(AtomicUsize::new(1)));
    let tasks = Tasks::default();
    let told = Arc::clone(&bad);
    let policy = wheelhouse::expiry::writing(move |_: &u64, _: &u64| {
        assert_eq!(
            told.load(Ordering::SeqCst),
            0,
            "told to panic in the expiry policy"
        );
        Some(100 * SECOND)
    });
    let users: Users = Cache::builder()
        .expire_after(policy)
        .loading(Remote(Arc::clone(&backend)))
        .spawner(tasks.spawner())
        .build();
    let bell = Arc::<Bell>::default();
    let mut one = Box::pin(users.get_async(&1));
    let mut other = Box::pin(users.get_async(&1));
    assert!(poll(one.as_mut(), &bell).is_pending());
    assert!(poll(other.as_mut(), &bell).is_pending());
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(
        poll(one.as_mut(), &bell),
        Poll::Ready(Err(LoadError::Panicked))
    );
    assert_eq!(
        poll(other.as_mut(), &bell),
        Poll::Ready(Err(LoadError::Panicked))
    );
    bad.store(0, Ordering::SeqCst);
    backend.permits.add_permits(1);
    let mut again = Box::pin(users.get_async(&1));
    assert!(poll(again.as_mut(), &bell).is_pending());
    tasks.run();
    assert_eq!(poll(again.as_mut(), &bell), Poll::Ready(Ok(11)));
}

/// One that asks for several keys, and counts how often.
struct Batch(Arc<Backend>);

impl AsyncLoader<u64, u64> for Batch {
    type Error = String;

    async fn load(&self, key: &u64) -> Result<Loaded<u64>, String> {
        Remote(Arc::clone(&self.0)).load(key).await
    }

    async fn load_many(&self, keys: &[u64]) -> Result<Vec<Option<Loaded<u64>>>, String> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let _counted = CountDrop(Arc::clone(&self.0));
        self.0.permits.acquire().await.unwrap().forget();
        match keys {
            [66, ..] => Err("down".into()),
            [67, ..] => panic!("told to panic in the loader"),
            [68, ..] => Ok(Vec::new()),
            _ => Ok(keys.iter().map(|key| Some((key * 10).into())).collect()),
        }
    }
}

fn batches(spawner: impl Fn(Task) + Send + Sync + 'static) -> (Users, Arc<Backend>) {
    let backend = Arc::<Backend>::default();
    let users = Cache::builder()
        .name("users")
        .record_stats()
        .loading(Batch(Arc::clone(&backend)))
        .spawner(spawner)
        .build();
    (users, backend)
}

#[test]
fn one_task_loads_the_keys_of_a_call_that_no_other_call_loads() {
    let tasks = Tasks::default();
    let (users, backend) = batches(tasks.spawner());
    let bells: [Arc<Bell>; 4] = Default::default();
    let mut single = Box::pin(users.get_async(&1));
    assert!(poll(single.as_mut(), &bells[0]).is_pending());
    let mut all = Box::pin(users.get_all_async([1, 2, 3, 2]));
    assert!(poll(all.as_mut(), &bells[1]).is_pending());
    let mut one = Box::pin(users.get_async(&2));
    assert!(poll(one.as_mut(), &bells[2]).is_pending());
    let mut two = Box::pin(users.get_all_async([3, 1]));
    assert!(poll(two.as_mut(), &bells[3]).is_pending());
    assert_eq!((tasks.run(), backend.begun()), (2, 2), "two tasks");
    backend.permits.add_permits(2);
    assert_eq!(tasks.run(), 0);
    assert!(bells.iter().all(|bell| bell.0.load(Ordering::SeqCst) > 0));
    assert_eq!(poll(one.as_mut(), &bells[2]), Poll::Ready(Ok(20)));
    let end = poll(two.as_mut(), &bells[3]);
    assert_eq!(end, Poll::Ready(Ok(vec![Some(30), Some(10)])));
    let end = poll(all.as_mut(), &bells[1]);
    let values = vec![Some(10), Some(20), Some(30), Some(20)];
    assert_eq!(end, Poll::Ready(Ok(values)));
    assert_eq!(poll(single.as_mut(), &bells[0]), Poll::Ready(Ok(10)));
    let stats = users.cache().stats();
    assert_eq!((stats.loads(), stats.load_waits()), (3, 4));
}

#[test]
fn a_load_of_several_keys_goes_on_without_its_calls_and_fails_with_its_task() {
    let tasks = Tasks::default();
    let (users, backend) = batches(tasks.spawner());
    let bell = Arc::default();
    let mut all = Box::pin(users.get_all_async([1, 2]));
    assert!(poll(all.as_mut(), &bell).is_pending());
    drop(all);
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    let stored = [1, 2].map(|key| users.cache().get(&key));
    assert_eq!(stored, [Some(10), Some(20)]);
    // A task that is dropped gives the right to load back, for each key.
    let mut all = Box::pin(users.get_all_async([3, 4]));
    let mut one = Box::pin(users.get_async(&4));
    assert!(poll(all.as_mut(), &bell).is_pending());
    assert!(poll(one.as_mut(), &bell).is_pending());
    tasks.run();
    tasks.drop_all();
    let abandoned = LoadError::Abandoned;
    assert_eq!(
        poll(all.as_mut(), &bell),
        Poll::Ready(Err(abandoned.clone()))
    );
    assert_eq!(poll(one.as_mut(), &bell), Poll::Ready(Err(abandoned)));
    let mut all = Box::pin(users.get_all_async([3, 4]));
    assert!(poll(all.as_mut(), &bell).is_pending());
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    let end = poll(all.as_mut(), &bell);
    assert_eq!(end, Poll::Ready(Ok(vec![Some(30), Some(40)])));
}

/// Waits for a key, and tells whether that was refused.
struct Waits(LoadingCache<u64, u64, (), OneHash>, mpsc::Sender<bool>);

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        let call = catch_unwind(AssertUnwindSafe(|| self.0.get(&2)));
        self.1.send(call.is_err()).ok();
    }
}

/// The end of the first load wakes a call, whose waker waits for the second load: for the thread
/// that is about to end that.
#[test]
fn a_task_for_several_keys_that_is_dropped_before_its_first_poll_ends_their_loads_as_one() {
    let tasks = Tasks::default();
    let users: LoadingCache<u64, u64, (), OneHash> = Cache::builder()
        .hasher(OneHash)
        .loading(async_loader_fn(|key: &u64| ready(Ok::<_, ()>(*key))))
        .spawner(tasks.spawner())
        .build();
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Waits(users.clone(), tell)));
    let own = users.clone();
    let mut all = Box::pin(async move { own.get_all_async([1, 2]).await });
    let polled = all.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let drops = thread::spawn(move || tasks.drop_all());
    let refused = told.recv_timeout(10 * SECOND);
    assert_eq!(refused, Ok(true), "it waits for its own thread");
    drops.join().unwrap();
}

/// A call that has the last handle. It is polled when it is woken, and dropped when it has heard of
/// the outcome: is the loader there still?
struct LastCall {
    call: Mutex<Option<Task>>,
    loader: Weak<()>,
    outlived: Mutex<Option<bool>>,
}

impl Wake for LastCall {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut place = self.call.lock().unwrap();
        let Some(call) = &mut *place else { return };
        let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            *place = None;
            *self.outlived.lock().unwrap() = Some(self.loader.strong_count() > 0);
        }
    }
}

#[test]
fn the_loader_is_gone_when_a_call_for_several_keys_hears_of_the_outcome() {
    for keys in [vec![1], vec![1, 2]] {
        let (tasks, held) = (Tasks::default(), Arc::new(()));
        let loader = Arc::downgrade(&held);
        let users = Cache::builder()
            .loading(async_loader_fn(move |key: &u64| {
                _ = &held;
                ready(Ok::<_, ()>(*key))
            }))
            .spawner(tasks.spawner())
            .build();
        let call: Task = Box::pin(async move { _ = users.get_all_async(keys).await });
        let last = Arc::new(LastCall {
            call: Mutex::new(Some(call)),
            loader,
            outlived: Mutex::new(None),
        });
        Arc::clone(&last).wake();
        // It is woken before the task returns.
        assert_eq!(tasks.run(), 0);
        assert_eq!(*last.outlived.lock().unwrap(), Some(false));
    }
}

#[test]
fn what_a_load_of_several_keys_comes_to_reaches_all_calls_that_wait() {
    let tasks = Tasks::default();
    let (users, backend) = batches(tasks.spawner());
    let bell = Arc::default();
    for (key, error) in [
        (66, LoadError::Failed(Arc::new("down".to_string()))),
        (67, LoadError::Panicked),
    ] {
        let mut all = Box::pin(users.get_all_async([key, 1]));
        let mut one = Box::pin(users.get_async(&1));
        assert!(poll(all.as_mut(), &bell).is_pending());
        assert!(poll(one.as_mut(), &bell).is_pending());
        backend.permits.add_permits(1);
        assert_eq!(tasks.run(), 0);
        assert_eq!(poll(one.as_mut(), &bell), Poll::Ready(Err(error.clone())));
        assert_eq!(poll(all.as_mut(), &bell), Poll::Ready(Err(error)));
    }
    // Another number of values is the loader's mistake: the call says so, and the keys continue.
    let mut all = Box::pin(users.get_all_async([68, 1]));
    let mut one = Box::pin(users.get_async(&1));
    assert!(poll(all.as_mut(), &bell).is_pending());
    assert!(poll(one.as_mut(), &bell).is_pending());
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    let call = std::panic::AssertUnwindSafe(|| poll(all.as_mut(), &bell));
    let panic = std::panic::catch_unwind(call).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(
        message.contains("2 keys") && message.contains("0 values"),
        "{message}"
    );
    let end = poll(one.as_mut(), &bell);
    assert_eq!(end, Poll::Ready(Err(LoadError::Panicked)));
    let mut one = Box::pin(users.get_async(&1));
    assert!(poll(one.as_mut(), &bell).is_pending());
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    assert_eq!(poll(one.as_mut(), &bell), Poll::Ready(Ok(10 + 3)));
}

#[test]
fn a_load_of_several_keys_that_is_overdue_has_timed_out() {
    let Limited {
        users,
        backend,
        time,
        tasks,
        ..
    } = Limited::new(Batch);
    let bell = Arc::default();
    let mut stuck = Box::pin(users.get_all_async([1, 2]));
    assert!(poll(stuck.as_mut(), &bell).is_pending());
    assert_eq!(tasks.run(), 1);
    let mut other = Box::pin(users.get_all_async([2]));
    assert!(poll(other.as_mut(), &bell).is_pending());
    time.advance(5 * SECOND);
    assert_eq!(
        poll(stuck.as_mut(), &bell),
        Poll::Ready(Err(LoadError::TimedOut))
    );
    // The call that waited for key 2 begins anew.
    assert!(poll(other.as_mut(), &bell).is_pending());
    assert_eq!((tasks.len(), backend.begun()), (2, 1));
    backend.permits.add_permits(2);
    assert_eq!(tasks.run(), 0, "what is late may still come");
    assert_eq!(poll(other.as_mut(), &bell), Poll::Ready(Ok(vec![Some(20)])));
    assert_eq!(users.cache().get(&1), Some(10), "nothing has replaced it");
    assert_eq!(users.cache().stats().loads_discarded(), 1, "that of key 2");
}

/// As the calls for one key do.
#[test]
fn calls_for_several_keys_whose_loads_hang_wait_for_two_loads_at_most() {
    let Limited { users, time, .. } = Limited::new(Batch);
    let (bell, late) = (Arc::<Bell>::default(), Err(LoadError::TimedOut));
    let mut calls = [(); 4].map(|()| Box::pin(users.get_all_async([1, 2])));
    for call in &mut calls {
        assert!(poll(call.as_mut(), &bell).is_pending());
    }
    time.advance(5 * SECOND);
    let [first, others @ ..] = &mut calls;
    assert_eq!(poll(first.as_mut(), &bell), Poll::Ready(late.clone()));
    for call in &mut *others {
        assert!(poll(call.as_mut(), &bell).is_pending());
    }
    let begun = users.cache().stats().loads();
    time.advance(5 * SECOND);
    // The last to come looks first: it begins no third load of the key for which it waits.
    for call in others.iter_mut().rev() {
        assert_eq!(poll(call.as_mut(), &bell), Poll::Ready(late.clone()));
    }
    assert_eq!(users.cache().stats().loads(), begun);
}

type Answers = Result<Vec<Option<u64>>, LoadError<String>>;
type All = Pin<Box<dyn Future<Output = Answers> + Send>>;

/// Polls a call whenever it is woken, and notes how that ends: by an answer, or by a panic with
/// this message.
struct PollsAtOnce {
    call: Mutex<Option<All>>,
    ended: Mutex<Option<Result<Answers, String>>>,
}

impl Wake for PollsAtOnce {
    fn wake(self: Arc<Self>) {
        let mut call = self.call.lock().unwrap();
        let Some(mut all) = call.take() else {
            return;
        };
        let polled = catch_unwind(AssertUnwindSafe(|| poll(all.as_mut(), &Arc::default())));
        let ended = match polled {
            Ok(Poll::Pending) => {
                *call = Some(all);
                return;
            }
            Ok(Poll::Ready(answer)) => Ok(answer),
            Err(panic) => Err(*panic.downcast().unwrap()),
        };
        *self.ended.lock().unwrap() = Some(ended);
    }
}

#[test]
fn a_wrong_number_of_values_is_told_before_the_loads_end() {
    for other in 1..=4 {
        let tasks = Tasks::default();
        let (users, backend) = batches(tasks.spawner());
        let own = users.clone();
        let mut all: All = Box::pin(async move { own.get_all_async([68, other]).await });
        assert!(poll(all.as_mut(), &Arc::default()).is_pending());
        let eager = Arc::new(PollsAtOnce {
            call: Mutex::new(Some(all)),
            ended: Mutex::new(None),
        });
        let waker = Waker::from(Arc::clone(&eager));
        let keys = [68, other];
        let mut waiters = keys.each_ref().map(|key| Box::pin(users.get_async(key)));
        for waiter in &mut waiters {
            let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        backend.permits.add_permits(1);
        assert_eq!(tasks.run(), 0);
        let ended = eager.ended.lock().unwrap().take();
        let message = ended.expect("it was woken").unwrap_err();
        assert!(
            message.contains("2 keys") && message.contains("0 values") && message.contains("users"),
            "{message}"
        );
    }
}

#[test]
fn a_call_for_several_keys_has_its_own_error_while_the_load_of_another_hangs() {
    let tasks = Tasks::default();
    let (users, backend) = batches(tasks.spawner());
    let bell = Arc::default();
    let mut others = Box::pin(users.get_all_async(1..=8));
    assert!(poll(others.as_mut(), &bell).is_pending());
    let hangs = std::mem::take(&mut *tasks.0.lock().unwrap());
    // Whatever the hashes: one of the eight likely comes before this one.
    let mut all = Box::pin(users.get_all_async((1..=8).chain([66])));
    assert!(poll(all.as_mut(), &bell).is_pending());
    backend.permits.add_permits(1);
    assert_eq!(tasks.run(), 0);
    let down = LoadError::Failed(Arc::new("down".to_string()));
    assert_eq!(poll(all.as_mut(), &bell), Poll::Ready(Err(down)));
    drop(hangs);
}

type Hook = Box<dyn FnMut(u64)>;

thread_local! {
    /// What the next clone of a [`Fragile`] does.
    static ON_CLONE: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

#[derive(PartialEq, Eq, Hash)]
struct Fragile(u64);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        // Taken out: what it calls clones keys, too.
        if let Some(mut hook) = ON_CLONE.take() {
            hook(self.0);
            ON_CLONE.set(Some(hook));
        }
        Self(self.0)
    }
}

/// A read finds an entry stale that falls due before the reload begins. It has its value already:
/// nothing is removed in it, nor reloaded.
#[test]
fn a_read_of_a_stale_entry_that_falls_due_meanwhile_removes_nothing() {
    let (clock, told, tasks) = (ManualTicker::new(), Arc::default(), Tasks::default());
    let hears = Arc::<AtomicUsize>::clone(&told);
    let load = async_loader_fn(|_: &Fragile| ready(Ok::<u64, String>(20)));
    let users: LoadingCache<Fragile, u64, String> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled())
        .delivery(Delivery::Caller)
        .removal_listener(move |_: &Fragile, _: &u64, _| _ = hears.fetch_add(1, Ordering::SeqCst))
        .time_to_live(10 * SECOND)
        .loading(load)
        .refresh_after(refresh::after(SECOND))
        .spawner(tasks.spawner())
        .build();
    users.cache().insert(Fragile(1), 10);
    clock.advance(2 * SECOND);
    // The reload has a key of its own.
    ON_CLONE.set(Some(Box::new(move |_| clock.advance(20 * SECOND))));
    let read = poll(pin!(users.get_async(&Fragile(1))), &Arc::default());
    ON_CLONE.set(None);
    assert_eq!(read, Poll::Ready(Ok(10)));
    assert_eq!((told.load(Ordering::SeqCst), tasks.len()), (0, 0));
    users.cache().run_pending_tasks();
    assert_eq!(told.load(Ordering::SeqCst), 1, "it was due");
}

#[test]
fn a_panic_while_keys_are_claimed_lets_a_waiter_lead() {
    let tasks = Tasks::default();
    let load = async_loader_fn(|key: &Fragile| {
        let value = key.0 * 10;
        async move { Ok::<u64, String>(value) }
    });
    let users: LoadingCache<Fragile, u64, String> = Cache::builder()
        .loading(load)
        .spawner(tasks.spawner())
        .build();
    let bell = Arc::<Bell>::default();
    type One = Pin<Box<dyn Future<Output = Result<u64, LoadError<String>>> + Send>>;
    let waiter: Arc<Mutex<Option<(u64, One)>>> = Arc::default();
    let (own, place, mut first) = (users.clone(), Arc::clone(&waiter), None);
    ON_CLONE.set(Some(Box::new(move |key| {
        let Some(claimed) = first.replace(key).filter(|first| *first != key) else {
            return;
        };
        let users = own.clone();
        let mut one: One = Box::pin(async move { users.get_async(&Fragile(claimed)).await });
        // On another thread: this one leads the load until its poll ends.
        let joins = thread::spawn(move || {
            assert!(poll(one.as_mut(), &Arc::default()).is_pending());
            one
        });
        *place.lock().unwrap() = Some((claimed, joins.join().unwrap()));
        panic!("told to panic in the clone of a key");
    })));
    let mut all = Box::pin(users.get_all_async([Fragile(1), Fragile(2)]));
    let panicked = catch_unwind(AssertUnwindSafe(|| poll(all.as_mut(), &bell).is_pending()));
    assert!(panicked.is_err() && tasks.len() == 0, "nothing was spawned");
    let (key, mut one) = waiter.lock().unwrap().take().expect("it waits");
    assert!(poll(one.as_mut(), &bell).is_pending(), "it leads");
    assert_eq!(tasks.run(), 0);
    assert_eq!(poll(one.as_mut(), &bell), Poll::Ready(Ok(key * 10)));
}
