//! `get_all_with`: one closure for the keys that a call leads.

use crate::support::{hide_scripted_panics, until};
use std::future::{Future, pending};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use wheelhouse::{Cache, Leased, LoadingCache, async_loader_fn};

#[test]
fn duplicates_are_folded_and_hits_are_not_loaded() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    cache.insert(1, 10);
    let mut runs = 0;
    let values = cache.get_all_with([3, 1, 2, 3, 1], |keys| {
        runs += 1;
        assert_eq!(keys, [3, 2]);
        Ok::<_, ()>(vec![Some(30), None])
    });
    assert_eq!(
        values.unwrap(),
        [Some(30), Some(10), None, Some(30), Some(10)]
    );
    assert_eq!(runs, 1);
    assert_eq!((cache.get(&3), cache.get(&2)), (Some(30), None));
    let none: Vec<u64> = Vec::new();
    assert_eq!(
        cache.get_all_with(none, |_| -> Result<_, ()> { unreachable!() }),
        Ok(vec![])
    );
}

#[test]
fn an_error_fails_its_own_keys() {
    let cache: Cache<u64, u64> = Cache::new(10);
    cache.insert(1, 10);
    let failed = cache.get_all_with([1, 2], |_| Err("closed"));
    assert_eq!(*failed.unwrap_err(), "closed");
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(10), None));
    assert_eq!(cache.get_with(2, || 20), 20);
}

#[test]
fn another_number_of_values_panics_and_names_both() {
    let cache: Cache<u64, u64> = Cache::builder().name("orders").build();
    let panicked =
        std::panic::catch_unwind(|| cache.get_all_with([1, 2, 3], |_| Ok::<_, ()>(vec![Some(1)])));
    let message = *panicked.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.contains("3 keys") && message.contains("1 values") && message.contains("orders"),
        "{message}"
    );
    assert_eq!(
        cache.get_all_with([1], |_| Ok::<_, ()>(vec![Some(1)])),
        Ok(vec![Some(1)])
    );
}

#[test]
fn overlapping_calls_in_opposite_order_load_each_key_once() {
    for _ in 0..200 {
        let cache: Cache<u64, u64> = Cache::new(1_000);
        let loaded = Mutex::new(Vec::new());
        let all = Barrier::new(4);
        thread::scope(|scope| {
            for number in 0..4 {
                let (cache, loaded, all) = (&cache, &loaded, &all);
                scope.spawn(move || {
                    let keys: Vec<u64> = if number % 2 == 0 {
                        (0..20).collect()
                    } else {
                        (0..20).rev().collect()
                    };
                    all.wait();
                    let values = cache.get_all_with(keys.clone(), |keys| {
                        loaded.lock().unwrap().extend_from_slice(keys);
                        Ok::<_, ()>(keys.iter().map(|key| Some(key * 2)).collect())
                    });
                    let expected: Vec<_> = keys.iter().map(|key| Some(key * 2)).collect();
                    assert_eq!(values.unwrap(), expected);
                });
            }
        });
        let mut loaded = loaded.into_inner().unwrap();
        loaded.sort_unstable();
        assert_eq!(loaded, (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn its_own_keys_are_stored_before_it_waits_for_others() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!()
    };
    let other = cache.clone();
    let bulk = thread::spawn(move || {
        other.get_all_with([1, 2], |keys| {
            assert_eq!(keys, [2]);
            Ok::<_, ()>(vec![Some(20)])
        })
    });
    until("its own key is stored", || cache.contains_key(&2));
    lease.fill(10);
    assert_eq!(bulk.join().unwrap(), Ok(vec![Some(10), Some(20)]));
}

#[test]
fn it_runs_again_for_a_key_whose_other_leader_failed() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let lease = cache.lease(1);
    let other = cache.clone();
    let (asked, keys_asked) = mpsc::channel();
    let bulk = thread::spawn(move || {
        other.get_all_with([1, 2], |keys| {
            asked.send(keys.to_vec()).unwrap();
            Ok::<_, ()>(keys.iter().map(|key| Some(key * 10)).collect())
        })
    });
    until("its own key is stored", || cache.contains_key(&2));
    drop(lease);
    assert_eq!(bulk.join().unwrap(), Ok(vec![Some(10), Some(20)]));
    assert_eq!(keys_asked.iter().collect::<Vec<_>>(), [vec![2], vec![1]]);
}

#[test]
fn nothing_that_cannot_be_kept_is_loaded_twice() {
    let cache: Cache<u64, u64> = Cache::builder().max_capacity(0).record_stats().build();
    let Leased::Lease(lease) = cache.lease(1) else {
        panic!()
    };
    let other = cache.clone();
    let bulk = thread::spawn(move || {
        other.get_all_with([1], |_| -> Result<_, ()> {
            unreachable!("another call leads")
        })
    });
    until("it waits", || cache.stats().load_waits() == 1);
    lease.fill(10);
    assert_eq!(bulk.join().unwrap(), Ok(vec![Some(10)]));
}

#[test]
fn a_panic_in_the_closure_lets_others_load() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let other = cache.clone();
    let runs = Arc::new(AtomicUsize::new(0));
    let (began, begun) = mpsc::channel();
    let bulk = thread::spawn(move || {
        let wait = other.clone();
        other.get_all_with([1, 2], |_| -> Result<_, ()> {
            began.send(()).unwrap();
            until("they wait", || wait.stats().load_waits() == 2);
            panic!("the bulk load gave up")
        })
    });
    begun.recv().unwrap();
    thread::scope(|scope| {
        for key in [1, 2] {
            let (cache, runs) = (&cache, &runs);
            scope.spawn(move || {
                let load = || {
                    runs.fetch_add(1, Ordering::SeqCst);
                    key
                };
                assert_eq!(cache.get_with(key, load), key);
            });
        }
    });
    assert!(bulk.join().is_err());
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[test]
fn single_calls_share_its_error_or_load_anew() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let (go, gone) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let bulk = scope.spawn(|| {
            cache.get_all_with([1, 2], move |_| {
                gone.recv().unwrap();
                Err::<Vec<Option<u64>>, _>("down")
            })
        });
        until("it leads both", || cache.stats().loads() == 2);
        let same = scope.spawn(|| cache.try_get_with(1, || Err::<u64, _>("its own")));
        let other = scope.spawn(|| cache.get_with(2, || 20));
        until("they wait", || cache.stats().load_waits() == 2);
        go.send(()).unwrap();
        let error = bulk.join().unwrap().unwrap_err();
        assert!(Arc::ptr_eq(&error, &same.join().unwrap().unwrap_err()));
        assert_eq!(other.join().unwrap(), 20);
    });
    // What was there before, or was loaded by others, stays.
    let failed = cache.get_all_with([2, 3], |keys| {
        assert_eq!(keys, [3]);
        Err::<Vec<_>, _>("down")
    });
    assert_eq!((failed, cache.get(&2)), (Err(Arc::new("down")), Some(20)));
}

#[test]
fn a_write_revokes_its_own_key_only() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let values = cache.get_all_with([1, 2, 3], |_| {
        cache.insert(1, 99);
        cache.invalidate(&2);
        Ok::<_, ()>(vec![Some(10), Some(20), Some(30)])
    });
    assert_eq!(values, Ok(vec![Some(99), Some(20), Some(30)]));
    assert_eq!(
        [1, 2, 3].map(|key| cache.get(&key)),
        [Some(99), None, Some(30)]
    );
}

#[tokio::test]
async fn tasks_share_what_others_load() {
    let cache: Cache<u64, u64> = Cache::builder().record_stats().build();
    let loaded = Mutex::new(Vec::new());
    let one = |keys: Vec<u64>| {
        cache.get_all_with_async(keys, |keys: Vec<u64>| {
            let loaded = &loaded;
            async move {
                loaded.lock().unwrap().extend_from_slice(&keys);
                tokio::task::yield_now().await;
                Ok::<_, ()>(keys.iter().map(|key| Some(key * 2)).collect())
            }
        })
    };
    let (left, right) = tokio::join!(one(vec![1, 2, 3]), one(vec![4, 3, 2]));
    assert_eq!(left, Ok(vec![Some(2), Some(4), Some(6)]));
    assert_eq!(right, Ok(vec![Some(8), Some(6), Some(4)]));
    let mut loaded = loaded.into_inner().unwrap();
    loaded.sort_unstable();
    assert_eq!(loaded, [1, 2, 3, 4]);
}

/// First in, first out, as for the calls that load one key.
#[test]
fn a_call_that_waits_with_its_own_keys_loaded_leads_in_its_turn() {
    let cache: Cache<u64, u64> = Cache::new(10);
    let lease = cache.lease(1);
    let mut cx = Context::from_waker(Waker::noop());
    let mut bulk = pin!(
        cache.get_all_with_async([2, 1], |keys: Vec<u64>| async move {
            Ok::<_, ()>(keys.iter().map(|key| Some(key * 10)).collect())
        })
    );
    assert!(bulk.as_mut().poll(&mut cx).is_pending());
    assert_eq!(cache.get(&2), Some(20));
    let mut later = pin!(cache.get_with_async(1, async { 99 }));
    assert!(later.as_mut().poll(&mut cx).is_pending());
    drop(lease);
    assert!(
        later.as_mut().poll(&mut cx).is_pending(),
        "it is the second"
    );
    let values = Ok(vec![Some(20), Some(10)]);
    assert_eq!(bulk.as_mut().poll(&mut cx), Poll::Ready(values));
    assert_eq!(later.as_mut().poll(&mut cx), Poll::Ready(10));
}

/// Letters count, but not their case.
#[derive(Clone, Debug)]
struct Caseless(&'static str);

impl PartialEq for Caseless {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(other.0)
    }
}

impl Eq for Caseless {}

impl Hash for Caseless {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_ascii_lowercase().hash(state);
    }
}

#[test]
fn the_closure_is_given_the_keys_of_the_call() {
    let cache: Cache<Caseless, u32> = Cache::new(10);
    let mut cx = Context::from_waker(Waker::noop());
    let mut first = Box::pin(cache.get_with_async(Caseless("ada"), std::future::pending()));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    let seen = Mutex::new(Vec::new());
    let mut bulk = pin!(
        cache.get_all_with_async([Caseless("ADA")], |keys: Vec<Caseless>| {
            seen.lock().unwrap().extend(keys.iter().map(|key| key.0));
            std::future::ready(Ok::<_, ()>(vec![Some(1)]))
        })
    );
    assert!(bulk.as_mut().poll(&mut cx).is_pending());
    // The call takes the load over, which has another key.
    drop(first);
    let values = bulk.as_mut().poll(&mut cx);
    assert_eq!(values, Poll::Ready(Ok(vec![Some(1)])));
    assert_eq!(*seen.lock().unwrap(), ["ADA"]);
}

/// Waits for a key when it is woken, and tells whether that was refused.
struct WaitsForKey(Cache<u64, u64>, u64, mpsc::Sender<bool>);

impl Wake for WaitsForKey {
    fn wake(self: Arc<Self>) {
        let wait = AssertUnwindSafe(|| self.0.get_with(self.1, || 0));
        self.2.send(catch_unwind(wait).is_err()).unwrap();
    }
}

type AnyTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Drop for WaitsForKey {
    fn drop(&mut self) {
        // Not when it has been woken.
        if self.1 == 9 {
            let wait = AssertUnwindSafe(|| self.0.get_with(9, || 0));
            self.2.send(catch_unwind(wait).is_err()).unwrap();
        }
    }
}

#[test]
fn a_wait_for_a_load_in_the_drop_of_its_own_future_is_refused() {
    hide_scripted_panics();
    let cache: Cache<u64, u64> = Cache::new(10);
    let (tell, told) = mpsc::channel();
    let waits = WaitsForKey(cache.clone(), 9, tell);
    let mut call = Box::pin(async move {
        let cache = waits.0.clone();
        let load = async move {
            let _waits = waits;
            pending::<u64>().await
        };
        cache.get_with_async(9, load).await
    });
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(cx).is_pending());
    thread::spawn(move || drop(call));
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
    assert_eq!(cache.get_with(9, || 1), 1);
}

/// The loads of two keys are dropped together. What is woken by the end of one waits for the other.
#[test]
fn a_wait_for_another_load_that_is_dropped_next_is_refused() {
    hide_scripted_panics();
    let cx = &mut Context::from_waker(Waker::noop());
    // A call, or a task, is dropped between two polls.
    for is_task in [false, true] {
        let task: Arc<Mutex<Option<AnyTask>>> = Arc::default();
        let spawned = Arc::clone(&task);
        let users: LoadingCache<u64, u64, ()> = Cache::builder()
            .loading(async_loader_fn(|_: &u64| pending::<Result<u64, ()>>()))
            .spawner(move |task| *spawned.lock().unwrap() = Some(task))
            .build();
        let cache = users.cache().clone();
        let mut call: AnyTask = if is_task {
            Box::pin(async move { _ = users.get_all_async([1, 2]).await })
        } else {
            let cache = cache.clone();
            Box::pin(async move {
                let load = |_| pending::<Result<_, ()>>();
                _ = cache.get_all_with_async([1, 2], load).await;
            })
        };
        assert!(call.as_mut().poll(cx).is_pending());
        let mut loads = task.lock().unwrap().take().unwrap_or(call);
        assert!(loads.as_mut().poll(cx).is_pending());
        let (tell, told) = mpsc::channel();
        let waits = [1, 2].map(|key| {
            let cache = cache.clone();
            let waker = Waker::from(Arc::new(WaitsForKey(cache.clone(), 3 - key, tell.clone())));
            let mut wait = Box::pin(async move { cache.get_with_async(key, async { 0 }).await });
            let cx = &mut Context::from_waker(&waker);
            assert!(wait.as_mut().poll(cx).is_pending());
            wait
        });
        thread::spawn(move || drop(loads));
        let first = told.recv_timeout(Duration::from_secs(20));
        if first.is_err() {
            std::mem::forget(waits);
        }
        assert_eq!(first, Ok(true), "task: {is_task}");
    }
}
