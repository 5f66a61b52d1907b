//! Reloads: readers, refreshes, writes and expiry of one key, with an async loader whose futures
//! any of the threads drives.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::thread;
use wheelhouse::{
    AsyncLoader, Cache, Leased, LoadError, Loaded, LoadingCache, ManualTicker, Scheduler,
    async_loader_fn, refresh,
};

use crate::{dice, explore};

const SECOND: Duration = Duration::from_secs(1);

type Users = LoadingCache<u64, u64, ()>;
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The source of the values, and what is known of the calls.
#[derive(Default)]
struct Backend {
    version: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    calls: AtomicUsize,
}

struct Remote(Arc<Backend>);

impl AsyncLoader<u64, u64> for Remote {
    type Error = ();

    async fn load(&self, _: &u64) -> Result<Loaded<u64>, ()> {
        let backend = &*self.0;
        backend.calls.fetch_add(1, Ordering::SeqCst);
        let running = backend.running.fetch_add(1, Ordering::SeqCst) + 1;
        backend.most.fetch_max(running, Ordering::SeqCst);
        let version = backend.version.load(Ordering::SeqCst);
        // Others run meanwhile; and another call may be the one that continues.
        thread::yield_now();
        let mut first = true;
        std::future::poll_fn(|cx| {
            if std::mem::take(&mut first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        backend.running.fetch_sub(1, Ordering::SeqCst);
        Ok((version as u64).into())
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn block_on(mut task: Task) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    while task
        .as_mut()
        .poll(&mut Context::from_waker(&waker))
        .is_pending()
    {
        thread::park();
    }
}

/// Threads that run the tasks of the cache.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<Vec<thread::JoinHandle<()>>>>);

impl Tasks {
    /// `drops`: the first task is dropped, as by a runtime that ends.
    fn spawner(&self, drops: bool) -> impl Fn(Task) + Send + Sync + 'static {
        let (tasks, first) = (self.clone(), AtomicUsize::new(usize::from(drops)));
        move |task| {
            if first.swap(0, Ordering::SeqCst) == 1 {
                return;
            }
            let thread = thread::spawn(move || block_on(task));
            tasks.0.lock().unwrap().push(thread);
        }
    }

    fn join(&self) {
        loop {
            let task = self.0.lock().unwrap().pop();
            let Some(task) = task else { return };
            task.join().unwrap();
        }
    }
}

/// A cache whose only entry is stale.
fn stale(drops: bool, told: &Arc<AtomicUsize>) -> (Users, Arc<Backend>, Tasks, ManualTicker) {
    let (backend, time, tasks) = <(Arc<Backend>, ManualTicker, Tasks)>::default();
    let heard = Arc::clone(told);
    let users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .time_to_live(10 * SECOND)
        .removal_listener(move |_: &u64, _: &u64, _| {
            heard.fetch_add(1, Ordering::SeqCst);
        })
        .loading(Remote(Arc::clone(&backend)))
        .refresh_after(refresh::after(5 * SECOND))
        .spawner(tasks.spawner(drops))
        .build();
    users.cache().insert(1, 0);
    time.advance(6 * SECOND);
    (users, backend, tasks, time)
}

/// A miss that joined a reload whose task was dropped shares its failure.
fn is_right(value: Result<u64, LoadError<()>>, version: u64, drops: bool) {
    match value {
        Err(LoadError::Abandoned) if drops => (),
        value => assert_eq!(value, Ok(version)),
    }
}

/// Nothing is left behind, and what was inserted was told or is live.
fn is_whole(users: &Users, backend: &Backend, tasks: &Tasks, told: &AtomicUsize) {
    tasks.join();
    let version = backend.version.load(Ordering::SeqCst) as u64;
    if let Some(value) = users.cache().get(&1) {
        assert_eq!(value, version, "an older reload has overwritten a write");
    }
    let mut value = users.get(&1);
    if value == Err(LoadError::Abandoned) {
        // The first task that the spawner drops may be that of this load.
        value = users.get(&1);
    }
    assert_eq!(value, Ok(version), "the key is usable");
    // This read may have begun a reload.
    tasks.join();
    users.cache().run_pending_tasks();
    let stats = users.cache().stats();
    let (inserted, live) = (
        stats.insertions() + stats.updates(),
        users.cache().entry_count(),
    );
    let told = told.load(Ordering::SeqCst) as u64;
    assert_eq!(
        inserted,
        told + live,
        "{told} were told, {live} are live: {stats:?}"
    );
    users.cache().invalidate(&1);
    let leased = users.cache().lease_timeout(1, Duration::ZERO);
    assert!(matches!(leased, Leased::Lease(_)), "a load is left behind");
}

/// Without writes, at most one call of the loader runs at a time, whatever starts it.
#[test]
fn readers_refreshes_and_expiry_share_one_reload() {
    explore(|| {
        let mut dice = dice();
        let told = Arc::default();
        let drops = dice.below(4) == 0;
        let (users, backend, tasks, time) = stale(drops, &told);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let plan: Vec<u64> = (0..2).map(|_| dice.below(6)).collect();
                let (users, time) = (users.clone(), time.clone());
                thread::spawn(move || {
                    for what in plan {
                        match what {
                            0..=2 => is_right(users.get(&1), 0, drops),
                            3 => _ = users.get_if_present(&1),
                            4 => _ = users.refresh(1).wait(),
                            _ => time.advance(5 * SECOND),
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        is_whole(&users, &backend, &tasks, &told);
        assert!(backend.most.load(Ordering::SeqCst) <= 1, "two at a time");
    });
}

/// The source changes before each write of the cache: no reload that began before the write is
/// stored after it.
#[test]
fn writes_revoke_reloads() {
    explore(|| {
        let mut dice = dice();
        let told = Arc::default();
        let drops = dice.below(4) == 0;
        let (users, backend, tasks, time) = stale(drops, &told);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let plan: Vec<u64> = (0..3).map(|_| dice.below(5)).collect();
                let (users, time) = (users.clone(), time.clone());
                thread::spawn(move || {
                    for what in plan {
                        match what {
                            0 | 1 => assert!(drops || users.get(&1).is_ok()),
                            2 => _ = users.get_if_present(&1),
                            3 => drop(users.refresh(1)),
                            _ => time.advance(5 * SECOND),
                        }
                    }
                })
            })
            .collect();
        let plan: Vec<u64> = (0..2).map(|_| dice.below(3)).collect();
        for what in plan {
            let version = backend.version.fetch_add(1, Ordering::SeqCst) as u64 + 1;
            match what {
                0 => users.cache().insert(1, version),
                1 => users.cache().invalidate(&1),
                _ => _ = users.cache().remove(&1),
            }
            // A call that begins after the write never sees what came before it.
            is_right(users.get(&1), version, drops);
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        is_whole(&users, &backend, &tasks, &told);
    });
}

/// Calls that go away at any moment hand the shared future on, in the end to the spawner.
#[test]
fn calls_that_go_away_hand_the_load_on() {
    explore(|| {
        let mut dice = dice();
        let told = Arc::default();
        let (users, backend, tasks, _) = stale(false, &told);
        users.cache().invalidate(&1);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (users, polls) = (users.clone(), dice.below(4));
                thread::spawn(move || {
                    let waker = Waker::from(Arc::new(Unpark(thread::current())));
                    let mut call = Box::pin(async { users.get_async(&1).await });
                    for _ in 0..polls {
                        let mut cx = Context::from_waker(&waker);
                        if let Poll::Ready(value) = call.as_mut().poll(&mut cx) {
                            assert_eq!(value, Ok(0));
                            return;
                        }
                        thread::yield_now();
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        tasks.join();
        let calls = backend.calls.load(Ordering::SeqCst);
        assert!(calls <= 1, "{calls} calls of the loader");
        is_whole(&users, &backend, &tasks, &told);
    });
}

/// The task of a reload begins to run, for which no call waits, while a call comes that waits: the
/// call is woken when the load is overdue, whichever of the two comes first.
#[test]
fn a_call_that_comes_while_a_task_begins_is_woken_when_that_is_overdue() {
    explore(|| {
        let (time, tasks) = (ManualTicker::new(), Arc::<Mutex<Vec<Task>>>::default());
        let kept = Arc::clone(&tasks);
        let users: Users = Cache::builder()
            .ticker(time.clone())
            .scheduler(Scheduler::disabled())
            .time_to_live(10 * SECOND)
            .loading(async_loader_fn(|_: &u64| pending::<Result<u64, ()>>()))
            .refresh_after(refresh::after(5 * SECOND))
            .load_timeout(30 * SECOND)
            .spawner(move |task| kept.lock().unwrap().push(task))
            .build();
        users.cache().insert(1, 0);
        time.advance(6 * SECOND);
        assert_eq!(users.get(&1), Ok(0));
        // The entry is due: the call waits for the reload.
        time.advance(4 * SECOND);
        let mut task = tasks.lock().unwrap().pop().unwrap();
        let begins = thread::spawn(move || {
            let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            task
        });
        let bell = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&bell));
        let own = users.clone();
        let waits = thread::spawn(move || {
            let mut call = Box::pin(async move { own.get_async(&1).await });
            let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            call
        });
        let ends = (begins.join().unwrap(), waits.join().unwrap());
        time.advance(30 * SECOND);
        users.cache().run_pending_tasks();
        assert!(bell.0.load(Ordering::SeqCst) > 0, "it sleeps for ever");
        drop(ends);
    });
}
