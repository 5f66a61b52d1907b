use super::super::turn::{Progress, poll_turn, turn};
use super::ReloadState;
use crate::sync::block::{Work, doing, wake_all};
use crate::{Cache, LoadError, LoadingCache, ManualTicker, Refreshing, loader_fn, refresh};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

type Numbers = LoadingCache<u32, u32, ()>;

/// A cache with one reload thread, in which keys 1, 3 and 4 are stale. `load` is called before the
/// loader answers.
///
/// The loader has the cache until the test takes it away.
fn with_stale_keys(
    load: impl Fn(&Numbers, u32) + Send + Sync + 'static,
) -> (Numbers, Arc<Mutex<Option<Numbers>>>) {
    let time = ManualTicker::new();
    let own = Arc::new(Mutex::new(None::<Numbers>));
    let place = Arc::clone(&own);
    let users = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(move |key: &u32| {
            let users = place.lock().unwrap().clone();
            if let Some(users) = users {
                load(&users, *key);
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(Duration::from_secs(1)))
        .build();
    [1, 3, 4]
        .iter()
        .for_each(|key| users.cache().insert(*key, *key));
    time.advance(Duration::from_secs(1));
    *own.lock().unwrap() = Some(users.clone());
    (users, own)
}

/// Waits until the state is so.
fn until(users: &Numbers, holds: impl Fn(&ReloadState<u32, u32, ()>) -> bool) {
    while !holds(&users.inner.threads.lock()) {
        thread::yield_now();
    }
}

/// The loader of key 1 waits for another call's load of key 2, which fails: so it loads that key.
#[test]
fn a_loader_that_comes_to_lead_has_its_place_again() {
    for is_bulk in [false, true] {
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let (users, own) = with_stale_keys(move |users, key| {
            if key == 2 {
                begin.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
            } else if is_bulk {
                users.get_all([2]).unwrap();
            } else {
                users.get(&2).unwrap();
            }
        });
        let (lead, led) = mpsc::channel();
        let (fail, failed) = mpsc::channel::<()>();
        let other = users.clone();
        let leader = thread::spawn(move || {
            other.cache().get_with(2, || {
                lead.send(()).unwrap();
                failed.recv().unwrap();
                resume_unwind(Box::new("told to"))
            })
        });
        led.recv_timeout(SOON).expect("it loads");
        users.get(&1).unwrap();
        until(&users, |state| state.taken == 0);
        fail.send(()).unwrap();
        assert!(leader.join().is_err());
        begun.recv_timeout(SOON).expect("the loader runs");
        let taken = users.inner.threads.lock().taken;
        release.send(()).unwrap();
        let held = own.lock().unwrap().take();
        drop(held);
        assert_eq!(taken, 1, "it runs the loader without a place");
    }
}

/// The loader of key 1 waits until that of key 3 has the only place.
#[test]
fn a_thread_above_the_maximum_takes_no_other_key() {
    let (begin, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let (users, own) = with_stale_keys(move |users, key| {
        if key == 1 {
            users.get(&2).unwrap();
        } else {
            begin.send(key).unwrap();
            if key == 3 {
                released.lock().unwrap().recv().unwrap();
            }
        }
    });
    let crate::Leased::Lease(lease) = users.cache().lease(2) else {
        panic!("it is absent");
    };
    users.get(&1).unwrap();
    until(&users, |state| state.taken == 0);
    users.get(&3).unwrap();
    assert_eq!(begun.recv_timeout(SOON), Ok(3));
    users.get(&4).unwrap();
    _ = lease.fill(2);
    until(&users, |state| state.threads.len() == 1);
    let early = begun.try_recv();
    release.send(()).unwrap();
    let next = begun.recv_timeout(SOON);
    let held = own.lock().unwrap().take();
    drop(held);
    assert!(early.is_err(), "it runs a second loader");
    assert_eq!(next, Ok(4));
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The loader of key 1 has an executor of its own: there it waits for a refresh of key 4, which
/// stands behind key 3 in the queue. Beside that it waits for key 2, which comes first; or it loads
/// key 9.
#[test]
fn a_loader_that_still_waits_for_something_keeps_no_place() {
    for is_blocking in [false, true] {
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let (go, may_go) = mpsc::channel::<()>();
        let may_go = Mutex::new(may_go);
        let (users, own) = with_stale_keys(move |users, key| match key {
            1 => {
                begin.send(0).unwrap();
                may_go.lock().unwrap().recv().unwrap();
                let waker = Waker::from(Arc::new(Unparks(thread::current())));
                let mut cx = Context::from_waker(&waker);
                let mut refresh = pin!(users.refresh(4));
                let mut other = Some(Box::pin(async {
                    if is_blocking {
                        users.get(&9).unwrap();
                    } else {
                        users.cache().get_with_async(2, async { 0 }).await;
                    }
                }));
                while refresh.as_mut().poll(&mut cx).is_pending() {
                    if let Some(waits) = &mut other {
                        if waits.as_mut().poll(&mut cx).is_ready() {
                            other = None;
                            begin.send(2).unwrap();
                        }
                    }
                    thread::park();
                }
                begin.send(1).unwrap();
            }
            3 => {
                begin.send(3).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            _ => {}
        });
        let crate::Leased::Lease(lease) = users.cache().lease(2) else {
            panic!("it is absent");
        };
        users.get(&1).unwrap();
        assert_eq!(begun.recv_timeout(SOON), Ok(0));
        users.get(&3).unwrap();
        go.send(()).unwrap();
        // In the order in which the two threads come.
        let first = begun.recv_timeout(SOON);
        _ = lease.fill(2);
        let second = begun.recv_timeout(SOON);
        let mut both = [first.unwrap(), second.unwrap()];
        both.sort_unstable();
        assert_eq!(both, [2, 3]);
        release.send(()).unwrap();
        let last = begun.recv_timeout(SOON);
        let held = own.lock().unwrap().take();
        drop(held);
        assert_eq!(last, Ok(1), "blocking: {is_blocking}");
    }
}

/// Key 0 hangs on the only thread; key 1 waits, and then as many as may.
#[test]
fn reads_of_a_key_that_waits_or_may_not_wait_take_no_lock() {
    let (hangs, is_hanging) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let time = ManualTicker::new();
    let cache: LoadingCache<u32, u32, ()> = Cache::builder()
        .ticker(time.clone())
        .loading(loader_fn(move |key: &u32| {
            if *key == 0 {
                hangs.send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
            }
            Ok(*key)
        }))
        .refresh_after(refresh::after(Duration::from_secs(1)))
        .build();
    (0..=1_000).for_each(|key| cache.cache().insert(key, key));
    time.advance(Duration::from_secs(1));
    assert_eq!(cache.get(&0), Ok(0));
    is_hanging.recv().unwrap();
    assert_eq!(cache.get(&1), Ok(1));
    for last in [1, 1_000] {
        (1..=last).for_each(|key| assert_eq!(cache.get(&key), Ok(key)));
        let threads = &cache.inner.threads;
        assert_eq!(
            threads.lock().waiting.len(),
            if last == 1 { 1 } else { 256 }
        );
        let held = threads.lock();
        let (tell, told) = mpsc::channel();
        let reader = cache.clone();
        thread::spawn(move || tell.send(reader.get(&last)).unwrap());
        let read = told.recv_timeout(Duration::from_secs(20));
        drop(held);
        assert_eq!(read, Ok(Ok(last)), "it waits for the lock");
    }
    release.send(()).unwrap();
}

/// Whether the thread says that it wakes, when it does.
struct Sees(AtomicBool);

impl Wake for Sees {
    fn wake(self: Arc<Self>) {
        self.0.store(doing() == Work::Wakes, Ordering::SeqCst);
    }
}

/// A task that the waker polls may wait for a load of this very thread, which goes on soon.
#[test]
fn a_turn_wakes_as_a_load_does() {
    for comes in [true, false] {
        let sees = Arc::new(Sees(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&sees));
        let (caller, shared) = turn::<u64, u64, ()>();
        let first = poll_turn(&shared, 0, None, &Context::from_waker(&waker));
        assert!(first.is_pending());
        if comes {
            wake_all(caller.call(Progress::Ended(Ok(None))));
        } else {
            drop(caller);
        }
        assert!(sees.0.load(Ordering::SeqCst));
    }
}

/// A key that polls a refresh, once, when it is cloned.
struct Polls(
    u32,
    Arc<Mutex<Option<Refreshing<u32, ()>>>>,
    mpsc::Sender<bool>,
);

impl Clone for Polls {
    fn clone(&self) -> Self {
        let refresh = self.1.lock().unwrap().take();
        if let Some(mut refresh) = refresh {
            let mut cx = Context::from_waker(Waker::noop());
            let polled = catch_unwind(AssertUnwindSafe(|| pin!(&mut refresh).poll(&mut cx)));
            self.2.send(polled.is_err()).unwrap();
        }
        Self(self.0, Arc::clone(&self.1), self.2.clone())
    }
}

impl PartialEq for Polls {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Polls {}

impl Hash for Polls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Two keys wait for the only thread. Both fail, as if no thread could be started.
#[test]
fn a_wait_for_a_refresh_that_fails_next_is_refused() {
    let users: LoadingCache<Polls, u32, ()> = Cache::builder()
        .loading(loader_fn(|key: &Polls| Ok(key.0)))
        .build();
    let (next, (tell, told)) = (Arc::default(), mpsc::channel());
    let key = |number| Polls(number, Arc::clone(&next), tell.clone());
    let threads = &users.inner.threads;
    threads.lock().taken += 1;
    let first = users.refresh(key(1));
    *next.lock().unwrap() = Some(users.refresh(key(2)));
    let mut state = threads.lock();
    state.taken -= 1;
    let waiting = threads.take_all(&mut state);
    drop(state);
    threads.fail(waiting);
    assert_eq!(told.try_recv(), Ok(true), "it waits for its own thread");
    assert_eq!(first.wait(), Err(LoadError::Abandoned));
}
