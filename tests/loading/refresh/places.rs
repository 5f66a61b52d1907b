//! The places of reload threads: a thread that waits gives its place up, and one that runs a loader
//! has it.

use crate::support::{OwnCache, hide_scripted_panics, until};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;
use wheelhouse::{Cache, Leased, LoadingCache, ManualTicker, expiry, loader_fn, refresh};

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(20);

type Users = LoadingCache<u32, u32, ()>;

/// A cache with one reload thread, whose entries are stale after 10 s and due after 100.
fn users(
    time: &ManualTicker,
    load: impl Fn(&u32) -> Result<u32, ()> + Send + Sync + 'static,
) -> Users {
    Cache::builder()
        .ticker(time.clone())
        .time_to_live(100 * SECOND)
        .loading(loader_fn(load))
        .refresh_after(refresh::after(10 * SECOND))
        .reload_threads(1)
        .build()
}

/// A loader on a reload thread loads another key, and then hangs: the thread is not free.
#[test]
fn a_loader_that_loads_another_key_keeps_its_place() {
    let time = ManualTicker::new();
    let (hangs, is_hanging) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let runs = AtomicUsize::new(0);
    let own = OwnCache::<Users>::new();
    let place = own.place();
    let cache = users(&time, move |key| {
        if *key == 1 && runs.fetch_add(1, Ordering::SeqCst) == 1 {
            place.get().unwrap().get(&1_000).unwrap();
            hangs.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
        Ok(*key)
    });
    own.set(&cache);
    cache.get(&1).unwrap();
    cache.get(&2).unwrap();
    time.advance(20 * SECOND);
    cache.get(&1).unwrap();
    is_hanging.recv_timeout(SOON).expect("the reload hangs");
    // It is stale, and the only thread is busy.
    cache.get(&2).unwrap();
    time.advance(100 * SECOND);
    let (done, is_done) = mpsc::channel();
    let reader = cache.clone();
    let thread = thread::spawn(move || done.send(reader.get(&2)).unwrap());
    let got = is_done.recv_timeout(SOON);
    release.send(()).unwrap();
    assert_eq!(got, Ok(Ok(2)), "a miss waits for the loader of another key");
    thread.join().unwrap();
}

/// Loaders wait by `wait` for a short time, and then hang: with one thread, one of them at most.
fn hang_after(wait: impl Fn(&Users, u32) + Send + Sync + 'static) {
    let time = ManualTicker::new();
    let reloads = Arc::new(AtomicBool::new(false));
    let hanging = Arc::new(AtomicUsize::new(0));
    let may_end = Arc::new(AtomicBool::new(false));
    let (is_on, hangs, ends) = (reloads.clone(), hanging.clone(), may_end.clone());
    let own = OwnCache::<Users>::new();
    let place = own.place();
    let cache = users(&time, move |key| {
        if *key < 100 && is_on.load(Ordering::SeqCst) {
            wait(&place.get().unwrap(), *key);
            hangs.fetch_add(1, Ordering::SeqCst);
            until("the test is over", || ends.load(Ordering::SeqCst));
        }
        Ok(*key)
    });
    own.set(&cache);
    (0..10).for_each(|key| _ = cache.get(&key));
    time.advance(20 * SECOND);
    reloads.store(true, Ordering::SeqCst);
    for key in 0..10 {
        cache.get(&key).unwrap();
        until("one hangs", || hanging.load(Ordering::SeqCst) > 0);
        thread::sleep(Duration::from_millis(20));
    }
    let most = hanging.load(Ordering::SeqCst);
    may_end.store(true, Ordering::SeqCst);
    assert_eq!(most, 1, "loaders hang at once");
    drop(own);
}

/// A loader that has waited takes its place again.
#[test]
fn loaders_that_have_waited_count() {
    hang_after(|cache, key| _ = cache.refresh(key + 1_000).wait().unwrap());
}

/// A loader whose wait was in vain takes its place again, too.
#[test]
fn loaders_whose_wait_has_timed_out_count() {
    hang_after(|cache, _| {
        let held = cache.cache().lease(5_000);
        let waited = cache.cache().lease_timeout(5_000, Duration::from_millis(5));
        assert!(matches!(waited, Leased::Busy), "{waited:?}");
        drop(held);
    });
}

/// So does one that has waited for a listener.
#[test]
fn loaders_that_have_waited_for_a_listener_count() {
    let told: Cache<u32, u32> = Cache::builder().removal_listener(|_, _, _| {}).build();
    hang_after(move |_, key| {
        told.insert(key, key);
        told.invalidate(&key);
        told.run_pending_tasks();
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("told to panic in the waker");
    }
}

/// A waker that panics harms the refreshes of other calls in no way.
#[test]
fn a_waker_that_panics_fails_no_other_refresh() {
    hide_scripted_panics();
    let time = ManualTicker::new();
    let (hangs, is_hanging) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let runs = AtomicUsize::new(0);
    let cache = users(&time, move |key| {
        if *key == 9 && runs.fetch_add(1, Ordering::SeqCst) == 1 {
            hangs.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
        Ok(*key)
    });
    [1, 9].iter().for_each(|key| _ = cache.get(key));
    time.advance(20 * SECOND);
    cache.get(&9).unwrap();
    is_hanging
        .recv_timeout(SOON)
        .expect("the only thread is busy");
    let mut panics = pin!(cache.refresh(1));
    let other = cache.refresh(1);
    let waker = Waker::from(Arc::new(Panics));
    let polled = panics.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let waits = thread::spawn(move || other.wait());
    // It may also begin to wait later.
    thread::sleep(Duration::from_millis(50));
    release.send(()).unwrap();
    assert_eq!(waits.join().unwrap(), Ok(Some(1)));
}

/// A policy that hangs while a reload ends, on the only thread: no load counts on that thread.
#[test]
fn a_policy_that_hangs_at_the_end_of_a_reload_holds_up_no_other_key() {
    let (hangs, is_hanging) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (released, time) = (Mutex::new(released), ManualTicker::new());
    let asked = AtomicUsize::new(0);
    let policy = expiry::writing(move |key: &u32, _: &u32| {
        if *key == 1 && asked.fetch_add(1, Ordering::SeqCst) == 1 {
            hangs.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
        Some(100 * SECOND)
    });
    let users: Users = Cache::builder()
        .ticker(time.clone())
        .record_stats()
        .expire_after(policy)
        .loading(loader_fn(|key: &u32| Ok(*key)))
        .refresh_after(refresh::after(10 * SECOND))
        .build();
    [1, 2, 3].iter().for_each(|key| _ = users.get(key));
    time.advance(20 * SECOND);
    assert_eq!(users.get(&1), Ok(1), "stale");
    is_hanging.recv_timeout(SOON).expect("the policy hangs");
    assert_eq!(users.get(&2), Ok(2), "stale");
    let waits = users.refresh(3);
    let reloads = users.cache().stats().reloads();
    time.advance(100 * SECOND);
    let (done, is_done) = mpsc::channel();
    let reader = users.clone();
    thread::spawn(move || done.send((reader.get(&2), reader.get(&3))));
    let got = is_done.recv_timeout(SOON);
    release.send(()).unwrap();
    assert_eq!(got, Ok((Ok(2), Ok(3))), "they wait for the policy");
    assert_eq!(reloads, 1, "the others waited");
    assert_eq!(waits.wait(), Ok(Some(3)), "it comes to its turn");
}
