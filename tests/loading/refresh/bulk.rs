//! `LoadingCache::get_all`: what becomes of a call whose loader misbehaves, whose policy panics, or
//! whose load another call has replaced.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::{
    AsyncLoader, Cache, Expiry, LoadError, Loaded, Loader, LoadingCache, ManualTicker, loader_fn,
};

use crate::support::must_end;

const SECOND: Duration = Duration::from_secs(1);

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

type Users = LoadingCache<u32, u32, ()>;

/// Where the test sends what a call of the loader returns.
type Answer = Sender<Vec<u32>>;

/// A loader that tells the test of each call, and waits for the test's answer.
struct Asks(Mutex<Sender<Answer>>);

impl Asks {
    fn new() -> (Self, Receiver<Answer>) {
        let (asks, asked) = mpsc::channel();
        (Self(Mutex::new(asks)), asked)
    }

    fn ask(&self) -> Vec<u32> {
        let (answer, answered) = mpsc::channel();
        self.0.lock().unwrap().send(answer).unwrap();
        answered.recv().unwrap()
    }
}

impl Loader<u32, u32> for Asks {
    type Error = ();

    fn load(&self, _: &u32) -> Result<Loaded<u32>, ()> {
        Ok(self.ask()[0].into())
    }

    fn load_many(&self, _: &[u32]) -> Result<Vec<Option<Loaded<u32>>>, ()> {
        Ok(self
            .ask()
            .into_iter()
            .map(|value| Some(value.into()))
            .collect())
    }
}

fn rig() -> (Users, Receiver<Answer>, ManualTicker) {
    let ((loader, asked), time) = (Asks::new(), ManualTicker::new());
    let users = Cache::builder()
        .ticker(time.clone())
        .loading(loader)
        .load_timeout(5 * SECOND)
        .build();
    (users, asked, time)
}

#[test]
fn an_overdue_call_returns_what_its_own_loader_has_made() {
    must_end(|| {
        let (users, asked, time) = rig();
        thread::scope(|threads| {
            let call = threads.spawn(|| users.get_all([1, 2]));
            let own = asked.recv().unwrap();
            time.advance(6 * SECOND);
            let newer = threads.spawn(|| users.get(&1));
            let its = asked.recv().unwrap();
            // The newer load is still at work.
            own.send(vec![10, 20]).unwrap();
            assert_eq!(call.join().unwrap(), Ok(vec![Some(10), Some(20)]));
            its.send(vec![11]).unwrap();
            assert_eq!(newer.join().unwrap(), Ok(11));
            assert_eq!(users.cache().get(&1), Some(11));
        });
    });
}

/// As `get` does: from one overdue load of another call to the next.
#[test]
fn a_call_outlives_two_overdue_loads_of_others() {
    must_end(|| {
        let (users, asked, time) = rig();
        thread::scope(|threads| {
            let mut call = pin!(users.get_all_async([1]));
            let mut loads = Vec::new();
            for _ in 0..3 {
                let other = threads.spawn(|| users.get(&1));
                loads.push((other, asked.recv().unwrap()));
                assert!(poll(call.as_mut()).is_pending());
                time.advance(6 * SECOND);
            }
            for (at, (other, answer)) in (1..).zip(loads) {
                answer.send(vec![at]).unwrap();
                assert!(other.join().unwrap().is_ok());
            }
            assert_eq!(poll(call.as_mut()), Poll::Ready(Ok(vec![Some(3)])));
        });
    });
}

#[test]
fn a_wrong_number_of_values_leaves_other_calls_their_own_loads() {
    must_end(|| {
        let (users, asked, _) = rig();
        thread::scope(|threads| {
            let call = threads.spawn(|| users.get_all([1, 2]));
            let answer = asked.recv().unwrap();
            let mut waiter = Box::pin(users.get_async(&1));
            assert!(poll(waiter.as_mut()).is_pending());
            answer.send(Vec::new()).unwrap();
            assert!(call.join().is_err());
            let waiter = threads.spawn(move || poll(waiter.as_mut()));
            asked.recv().unwrap().send(vec![11]).unwrap();
            assert_eq!(waiter.join().unwrap(), Poll::Ready(Ok(11)));
        });
    });
}

/// Panics about the key 1.
struct Picky;

impl Expiry<u32, u32> for Picky {
    fn expire_after_create(&self, key: &u32, _: &u32, _: Instant) -> Option<Duration> {
        assert_ne!(*key, 1, "told to panic in the policy");
        None
    }
}

struct Futures;

impl AsyncLoader<u32, u32> for Futures {
    type Error = ();

    async fn load(&self, key: &u32) -> Result<Loaded<u32>, ()> {
        Ok((key * 10).into())
    }
}

#[test]
fn a_policy_that_panics_about_one_key_leaves_the_others_their_values() {
    let others = |users: &Users| {
        let cache = users.cache();
        assert_eq!(
            [1, 2, 3].map(|key| cache.get(&key)),
            [None, Some(20), Some(30)]
        );
    };
    let builder = || Cache::builder().expire_after(Picky);
    let users = builder()
        .loading(loader_fn(|key: &u32| Ok::<_, ()>(key * 10)))
        .build();
    assert!(catch_unwind(AssertUnwindSafe(|| users.get_all([1, 2, 3]))).is_err());
    others(&users);

    // And the methods of the cache itself.
    type Call = fn(&Cache<u32, u32>);
    let calls: [Call; 2] = [
        |cache| {
            let load = |keys: &[u32]| Ok::<_, ()>(keys.iter().map(|key| Some(key * 10)).collect());
            _ = cache.get_all_with([3, 1, 2], load);
        },
        |cache| {
            let load = |keys: Vec<u32>| async move {
                Ok::<_, ()>(keys.iter().map(|key| Some(key * 10)).collect())
            };
            _ = poll(pin!(cache.get_all_with_async([3, 1, 2], load)));
        },
    ];
    for call in calls {
        let load = loader_fn(|_: &u32| Err::<u32, _>(()));
        let users = builder().loading(load).build();
        assert!(catch_unwind(AssertUnwindSafe(|| call(users.cache()))).is_err());
        others(&users);
    }

    let run = |mut task: Pin<Box<dyn Future<Output = ()> + Send>>| {
        assert!(poll(task.as_mut()).is_ready());
    };
    let users = builder().loading(Futures).spawner(run).build();
    assert_eq!(users.get_all([1, 2, 3]), Err(LoadError::Panicked));
    others(&users);
}

/// A value that counts how often it was cloned.
struct Counted(Arc<AtomicUsize>);

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

#[test]
fn values_are_cloned_as_often_as_by_get_all_with() {
    let clones = Arc::new(AtomicUsize::new(0));
    let cache = Cache::new(100);
    let load = |keys: &[u32]| {
        let value = |_: &u32| Some(Counted(Arc::clone(&clones)));
        Ok::<_, ()>(keys.iter().map(value).collect())
    };
    assert!(cache.get_all_with(0..10, load).is_ok());
    let expected = clones.swap(0, Ordering::SeqCst);

    let counter = Arc::clone(&clones);
    let load = loader_fn(move |_: &u32| Ok::<_, ()>(Counted(Arc::clone(&counter))));
    let users = Cache::builder().loading(load).build();
    assert!(users.get_all(0..10).is_ok());
    assert_eq!(clones.load(Ordering::SeqCst), expected);
}
