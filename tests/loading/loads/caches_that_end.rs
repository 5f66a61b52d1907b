//! The end of a cache while a lease is being filled, or while calls wait for its loads; a scheduler
//! that loses its tasks.

use crate::support::{millis, must_end, until};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::{
    Alarm, Cache, Filled, Leased, LoadingCache, MaintenanceTask, Refresh, Refreshing, RemovalCause,
    Scheduler, Ticker, async_loader_fn, loader_fn,
};

/// A value that counts its drops.
#[derive(Clone)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A lease keeps no cache alive. While it is filled, the drop of the last handle still returns only
/// when all earlier removals were told and all values in the cache were dropped.
#[test]
fn the_last_drop_waits_for_a_lease_that_is_being_filled() {
    let told = Arc::new(AtomicUsize::new(0));
    let drops = Arc::new(AtomicUsize::new(0));
    let (entered, enters) = mpsc::channel();
    let (leave, leaves) = mpsc::channel::<()>();
    let leaves = Mutex::new(leaves);
    let cache: Cache<u32, Counted> = {
        let told = Arc::clone(&told);
        Cache::builder()
            .max_capacity(u64::MAX)
            .weigher(move |key: &u32, _: &Counted| {
                if *key == 2 {
                    entered.send(()).ok();
                    leaves.lock().unwrap().recv().ok();
                }
                1
            })
            .removal_listener(move |_: &u32, _: &Counted, _: RemovalCause| {
                told.fetch_add(1, Ordering::SeqCst);
            })
            .scheduler(Scheduler::disabled())
            .build()
    };
    let value = || Counted(Arc::clone(&drops));
    cache.insert(1, value());
    cache.insert(3, value());
    cache.invalidate(&1);
    let Leased::Lease(lease) = cache.lease(2) else {
        unreachable!("the key is absent");
    };
    let filling = Counted(Arc::new(AtomicUsize::new(0)));
    let filler = thread::spawn(move || drop(lease.fill(filling)));
    enters.recv().unwrap();
    // The filler gets on after a while, so that a drop that waits for it ends.
    let later = thread::spawn(move || {
        thread::sleep(millis(200));
        leave.send(()).ok();
    });
    drop(cache);
    let seen = (told.load(Ordering::SeqCst), drops.load(Ordering::SeqCst));
    later.join().unwrap();
    filler.join().unwrap();
    assert_eq!(seen, (1, 2), "told and dropped when the last drop returned");
}

/// A clock that stands still, and at the next reading drops a handle.
#[derive(Clone, Default)]
struct Dropping(Arc<Mutex<Option<Cache<u32, Counted>>>>);

impl Ticker for Dropping {
    fn nanos(&self) -> u64 {
        let handle = self.0.lock().unwrap().take();
        drop(handle);
        0
    }
}

/// The call for a lease holds a handle of its cache, so it is not inside the cache's gate. User
/// code that it runs may drop the last handle of another cache, and that drop waits.
#[test]
fn a_last_drop_within_a_call_for_a_lease_waits() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (entered, enters) = mpsc::channel();
    let (leave, leaves) = mpsc::channel::<()>();
    let leaves = Mutex::new(leaves);
    let other: Cache<u32, Counted> = Cache::builder()
        .max_capacity(u64::MAX)
        .weigher(move |key: &u32, _: &Counted| {
            if *key == 2 {
                entered.send(()).ok();
                leaves.lock().unwrap().recv().ok();
            }
            1
        })
        .scheduler(Scheduler::disabled())
        .build();
    other.insert(1, Counted(Arc::clone(&drops)));
    let (Leased::Lease(filled), Leased::Lease(open)) = (other.lease(2), other.lease(3)) else {
        unreachable!("the keys are absent");
    };
    let filling = Counted(Arc::new(AtomicUsize::new(0)));
    let filler = thread::spawn(move || drop(filled.fill(filling)));
    enters.recv().unwrap();
    // The filler gets on once the last handle is being dropped.
    let later = thread::spawn(move || {
        while open.is_current() {
            thread::yield_now();
        }
        leave.send(()).ok();
    });
    let clock = Dropping::default();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .record_stats()
        .scheduler(Scheduler::disabled())
        .build();
    *clock.0.lock().unwrap() = Some(other);
    assert!(matches!(cache.lease(1), Leased::Lease(_)));
    let seen = drops.load(Ordering::SeqCst);
    assert!(
        clock.0.lock().unwrap().is_none(),
        "the call reads the clock"
    );
    later.join().unwrap();
    filler.join().unwrap();
    assert_eq!(seen, 1, "values dropped when the last drop returned");
}

/// The code of the user that drops the last handle, on a thread that leads a load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Loader,
    /// Of the value that the reload has made.
    Weigher,
    /// The policy of a failed reload.
    Policy,
    /// The policy of a failed load.
    Backoff,
}

/// Holds the last handle of a cache, to be dropped at that place.
#[derive(Clone)]
struct Held {
    place: Place,
    last: Arc<Mutex<Option<LoadingCache<u32, u32, ()>>>>,
}

impl Held {
    fn pass(&self, place: Place) {
        if place == self.place {
            let last = self.last.lock().unwrap().take();
            drop(last);
        }
    }
}

impl Refresh<u32, u32> for Held {
    fn refresh_after_create(
        &self,
        _: &u32,
        _: &u32,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        None
    }

    fn refresh_after_failure(
        &self,
        _: &u32,
        _: &u32,
        _: u32,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.pass(Place::Policy);
        None
    }
}

/// Fills a lease, and its weigher waits for a load. The thread that leads this load drops the last
/// handle meanwhile: it must not wait for the filler before its own load has ended.
fn the_last_handle_goes_while_a_filler_waits(place: Place, listens: bool) {
    let last = Held {
        place,
        last: Arc::default(),
    };
    let waits: Arc<Mutex<Option<Refreshing<u32, ()>>>> = Arc::default();
    let (entered, enters) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let enters = Mutex::new(enters);
    let lives = Arc::new(());
    let ended = Arc::downgrade(&lives);
    let (in_weigher, in_loader, in_backoff) = (last.clone(), last.clone(), last.clone());
    let awaited = Arc::clone(&waits);
    let mut builder = Cache::builder().max_capacity(100);
    if listens {
        builder = builder.removal_listener(move |key: &u32, _: &u32, _| _ = tell.send(*key));
    } else {
        drop(tell);
    }
    let users: LoadingCache<u32, u32, ()> = builder
        .weigher(move |key: &u32, _: &u32| {
            let _lives = &lives;
            if *key == 2 {
                let refreshing = awaited.lock().unwrap().take();
                entered.send(()).unwrap();
                _ = refreshing.map(Refreshing::wait);
            } else {
                in_weigher.pass(Place::Weigher);
            }
            1
        })
        .loading(loader_fn(move |key: &u32| {
            if in_loader.last.lock().unwrap().is_none() {
                return Ok(*key);
            }
            enters.lock().unwrap().recv().unwrap();
            in_loader.pass(Place::Loader);
            match place {
                Place::Loader | Place::Weigher => Ok(*key),
                Place::Policy | Place::Backoff => Err(()),
            }
        }))
        .refresh_after(last.clone())
        .failure_backoff(move |_| {
            in_backoff.pass(Place::Backoff);
            None
        })
        .build();
    assert_eq!((users.get(&1), users.get(&9)), (Ok(1), Ok(9)));
    let Leased::Lease(lease) = users.cache().lease(2) else {
        unreachable!("the key is absent");
    };
    let handle = users.clone();
    *last.last.lock().unwrap() = Some(users);
    let key = if place == Place::Backoff { 3 } else { 1 };
    *waits.lock().unwrap() = Some(handle.refresh(key));
    handle.cache().invalidate(&9);
    drop(handle);
    _ = lease.fill(20);
    while ended.upgrade().is_some() {
        thread::yield_now();
    }
    let mut told: Vec<u32> = told.into_iter().collect();
    told.retain(|key| *key == 9);
    assert_eq!(told.len(), usize::from(listens), "{place:?}");
}

#[test]
fn a_leader_may_drop_the_last_handle_while_a_filler_waits_for_its_load() {
    for place in [Place::Policy, Place::Backoff, Place::Loader, Place::Weigher] {
        for listens in [false, true] {
            must_end(move || the_last_handle_goes_while_a_filler_waits(place, listens));
        }
    }
}

/// The same with two caches: the drop of the last handle of one, in the loader of the other, waits
/// for no filler that waits for this load.
#[test]
fn a_loader_may_drop_the_last_handle_of_a_cache_whose_filler_waits_for_the_load() {
    must_end(|| {
        let (entered, enters) = mpsc::channel();
        let drops = Arc::new(AtomicUsize::new(0));
        let users: Cache<u32, u32> = Cache::new(100);
        let waiting = users.clone();
        let filled: Cache<u32, Counted> = Cache::builder()
            .max_capacity(100)
            .weigher(move |key: &u32, _: &Counted| {
                if *key == 2 {
                    entered.send(()).unwrap();
                    assert_eq!(waiting.get_with(1, || unreachable!("it is loaded")), 7);
                }
                1
            })
            .build();
        filled.insert(1, Counted(Arc::clone(&drops)));
        let Leased::Lease(lease) = filled.lease(2) else {
            unreachable!("the key is absent");
        };
        let value = Counted(Arc::clone(&drops));
        let mut filler = None;
        let load = || {
            filler = Some(thread::spawn(move || drop(lease.fill(value))));
            enters.recv().unwrap();
            drop(filled);
            7
        };
        assert_eq!(users.get_with(1, load), 7);
        filler.unwrap().join().unwrap();
        // The crew ends the cache. With the clone of the filler's value.
        until("the cache ends", || drops.load(Ordering::SeqCst) == 3);
    });
}

/// Loses what it is to run.
struct Losing;

impl Alarm for Losing {
    fn set(&self, _: Duration, _: MaintenanceTask) {}
}

#[test]
fn an_alarm_that_loses_its_tasks_loses_no_entry_and_keeps_the_bound() {
    let told = Arc::new(AtomicUsize::new(0));
    let drops = Arc::new(AtomicUsize::new(0));
    let cache: Cache<u32, Counted> = {
        let told = Arc::clone(&told);
        Cache::builder()
            .max_capacity(1_000)
            .removal_listener(move |_: &u32, _: &Counted, _: RemovalCause| {
                told.fetch_add(1, Ordering::SeqCst);
            })
            .scheduler(Scheduler::custom(Losing))
            .build()
    };
    for key in 0..200_000 {
        cache.insert(key, Counted(Arc::clone(&drops)));
        assert!(cache.entry_count() <= 1_506, "{cache:?}");
    }
    cache.run_pending_tasks();
    assert_eq!(
        told.load(Ordering::SeqCst) as u64 + cache.entry_count(),
        200_000
    );
}

/// The last handle may go while its own thread fills a lease.
#[test]
fn the_last_handle_may_be_dropped_by_the_weigher_of_a_lease() {
    let drops = Arc::new(AtomicUsize::new(0));
    let told = Arc::new(AtomicUsize::new(0));
    let last: Arc<Mutex<Option<Cache<u32, Counted>>>> = Arc::default();
    let cache: Cache<u32, Counted> = {
        let (last, told) = (Arc::clone(&last), Arc::clone(&told));
        Cache::builder()
            .max_capacity(u64::MAX)
            .weigher(move |key: &u32, _: &Counted| {
                if *key == 2 {
                    let handle = last.lock().unwrap().take();
                    drop(handle);
                }
                1
            })
            .removal_listener(move |_: &u32, _: &Counted, _: RemovalCause| {
                told.fetch_add(1, Ordering::SeqCst);
            })
            .build()
    };
    let value = || Counted(Arc::clone(&drops));
    cache.insert(1, value());
    cache.invalidate(&1);
    cache.insert(3, value());
    let Leased::Lease(lease) = cache.lease(2) else {
        unreachable!("the key is absent");
    };
    *last.lock().unwrap() = Some(cache);
    drop(lease.fill(value()));
    // The value and the clone that a load makes. The drop was inside the cache: the crew ends it.
    until("the cache ends", || {
        (told.load(Ordering::SeqCst), drops.load(Ordering::SeqCst)) == (1, 4)
    });
}

/// The last handle of a thread that ends, in a thread-local that is destroyed before or after those
/// of the crate.
#[test]
fn the_last_handle_may_live_in_a_thread_local() {
    struct Held(Option<(Cache<u32, Counted>, Arc<AtomicUsize>)>);
    impl Drop for Held {
        fn drop(&mut self) {
            let Some((cache, drops)) = self.0.take() else {
                return;
            };
            let value = || Counted(Arc::clone(&drops));
            cache.insert(4, value());
            drop(cache.get_with(5, value));
            drop(cache.get_ref(&1));
            cache.invalidate(&4);
            cache.entry(6).and_upsert_with(|_| value());
            drop(cache);
        }
    }
    thread_local! {
        static EARLY: RefCell<Held> = const { RefCell::new(Held(None)) };
        static LATE: RefCell<Held> = const { RefCell::new(Held(None)) };
    }
    for scheduler in [Scheduler::background, Scheduler::disabled] {
        let drops = [0, 1].map(|_| Arc::new(AtomicUsize::new(0)));
        let told = Arc::new(AtomicUsize::new(0));
        let build = |drops: &Arc<AtomicUsize>| {
            let told = Arc::clone(&told);
            let cache: Cache<u32, Counted> = Cache::builder()
                .scheduler(scheduler())
                .removal_listener(move |_: &u32, _: &Counted, _: RemovalCause| {
                    told.fetch_add(1, Ordering::SeqCst);
                })
                .build();
            (cache, Arc::clone(drops))
        };
        let caches = [build(&drops[0]), build(&drops[1])];
        thread::spawn(move || {
            let [early, late] = caches;
            // Registered for destruction before the crate's thread-locals are, and after.
            EARLY.with(|held| held.borrow_mut().0 = Some(early.clone()));
            for (cache, drops) in [&early, &late] {
                cache.insert(1, Counted(Arc::clone(drops)));
                cache.insert(2, Counted(Arc::clone(drops)));
                cache.invalidate(&2);
            }
            LATE.with(|held| held.borrow_mut().0 = Some(late));
        })
        .join()
        .unwrap();
        // In each: 1, 2, 4, 5 and its clones, 6 and its clones.
        assert_eq!(told.load(Ordering::SeqCst), 4);
        let dropped = drops.map(|drops| (drops.load(Ordering::SeqCst), Arc::strong_count(&drops)));
        assert!(
            dropped
                .iter()
                .all(|&(count, shares)| count >= 5 && shares == 1),
            "{dropped:?}"
        );
    }
}

/// A refresh needs no handle to wait: it gets what the lease made, though there is no cache.
#[test]
fn a_refresh_that_waits_for_a_lease_gets_its_outcome_without_a_cache() {
    type Users = LoadingCache<u32, u32, String>;
    let leased = || {
        let users: Users = Cache::builder()
            .loading(loader_fn(|_: &u32| Err::<u32, _>("not called".to_string())))
            .build();
        let Leased::Lease(lease) = users.cache().lease(1) else {
            unreachable!("the key is absent");
        };
        (lease, users.refresh(1))
    };
    let (lease, refreshing) = leased();
    assert_eq!(lease.fill(10), Filled::Revoked(10));
    assert_eq!(refreshing.wait(), Ok(Some(10)));
    let (lease, refreshing) = leased();
    drop(lease);
    assert!(refreshing.wait().is_err());
}

/// Pending at its first poll.
fn once_pending(value: u32) -> impl Future<Output = Result<u32, ()>> {
    let mut polled = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(Ok(value));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// A call that blocks its thread in the thread's last moments.
#[test]
fn a_loading_cache_may_be_used_in_the_destructor_of_a_thread_local() {
    type Users = LoadingCache<u32, u32, ()>;
    struct Held(Option<(Users, mpsc::Sender<Result<u32, ()>>)>);
    impl Drop for Held {
        fn drop(&mut self) {
            if let Some((users, got)) = self.0.take() {
                got.send(users.get(&7).map_err(drop)).ok();
            }
        }
    }
    thread_local! {
        static EARLY: RefCell<Held> = const { RefCell::new(Held(None)) };
        static LATE: RefCell<Held> = const { RefCell::new(Held(None)) };
    }
    let (tell, told) = mpsc::channel();
    let build = || {
        let load = async_loader_fn(|key: &u32| once_pending(*key));
        let on_a_thread = |task| drop(thread::spawn(|| futures_lite::future::block_on(task)));
        let users: Users = Cache::builder().loading(load).spawner(on_a_thread).build();
        (users, tell.clone())
    };
    let (early, late) = (build(), build());
    thread::spawn(move || {
        EARLY.with(|held| held.borrow_mut().0 = Some(early));
        let (users, _) = &late;
        assert_eq!(users.get(&1), Ok(1));
        LATE.with(|held| held.borrow_mut().0 = Some(late));
    })
    .join()
    .unwrap();
    assert_eq!([told.recv(), told.recv()], [Ok(Ok(7)); 2]);
}
