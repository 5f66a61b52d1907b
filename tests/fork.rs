//! A cache belongs to the process that built it. In a child made by `fork`, its calls answer, or
//! panic with a sentence that says what to do instead. None hangs, whatever the parent's threads
//! were doing. Caches that the child builds work.
//!
//! No child builds a cache while threads of the parent contend for locks: `parking_lot` has locks
//! of the whole process for the threads that wait, and one could stay locked.
#![cfg(unix)]

mod support;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use support::{Gate, HOUR, millis, secs};
use wheelhouse::{
    Alarm, Cache, Delivery, DeliveryTask, Filled, Leased, MaintenanceTask, ManualTicker, Scheduler,
    loader_fn, refresh,
};

/// How long an event may take.
const SOON: Duration = secs(20);

/// The system ends a child that hangs after this many seconds.
const TOO_LONG: u32 = 60;

/// One test at a time: a `fork` during another test's calls would copy their locks.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that runs.
struct Child(libc::pid_t);

/// Starts a child that runs `body`.
#[allow(unsafe_code)]
fn start_child(body: impl FnOnce() -> bool) -> Child {
    // SAFETY: the child runs `body` on its only thread and ends without returning into the test
    // program, so it takes no lock of that program. The allocator can be used after a `fork`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process could be made");
    if child == 0 {
        // SAFETY: a call without a precondition.
        unsafe { libc::alarm(TOO_LONG) };
        let passed = catch_unwind(AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: it ends the process, whatever state the process is in.
        unsafe { libc::_exit(i32::from(!passed)) }
    }
    Child(child)
}

impl Child {
    /// The result of the child's `body`; false if it panicked, aborted or hung.
    #[allow(unsafe_code)]
    fn passed(self) -> bool {
        let mut status = 0;
        // SAFETY: the child is this process's own, and `status` can be written to.
        let ended = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!(ended, self.0);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

/// Runs `body` in a child and returns its result.
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    start_child(body).passed()
}

/// Waits without calling any cache.
fn comes_true(holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > SOON {
            return false;
        }
        thread::sleep(millis(2));
    }
    true
}

/// Whether a call panics with the sentence.
fn refuses<R>(call: impl FnOnce() -> R) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        return false;
    };
    panic.downcast_ref::<&str>().is_some_and(|text| {
        text.starts_with("this cache was built before fork()")
            && text.contains("build caches after the fork, in the child, or call exec")
    })
}

/// Whether each call that writes, or waits for a thread, refuses; and whether look-ups answer. Key
/// 0 is in the cache, and 1 is not.
fn all_refuse(cache: &Cache<u32, u32>) -> bool {
    let refused = [
        refuses(|| cache.insert(0, 1)),
        refuses(|| cache.insert_with_ttl(1, 1, HOUR)),
        refuses(|| cache.invalidate(&0)),
        refuses(|| cache.remove(&0)),
        refuses(|| cache.set_expiry(&0, None)),
        refuses(|| cache.invalidate_all()),
        refuses(|| cache.retain(|_, _| false)),
        refuses(|| cache.get_with(1, || 1)),
        refuses(|| cache.entry(1).or_insert(1)),
        refuses(|| cache.run_pending_tasks()),
        refuses(|| cache.next_maintenance_in()),
        refuses(|| cache.snapshot()),
    ];
    let answered = cache.get(&0) == Some(0)
        && cache.get(&1).is_none()
        && cache.contains_key(&0)
        && cache.iter().any(|entry| *entry.key() == 0)
        && cache.entry_count() > 0;
    if refused.contains(&false) || !answered {
        eprintln!("refused {refused:?}, answered {answered}");
    }
    !refused.contains(&false) && answered
}

/// Whether a cache that this process builds expires, tells, loads, reloads and ends.
fn a_new_cache_works() -> bool {
    let told = Arc::new(AtomicU32::new(0));
    let tells = Arc::clone(&told);
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .removal_listener(move |_: &u32, _: &u32, _| {
            tells.fetch_add(1, Ordering::SeqCst);
        })
        .build();
    (0..1_000).for_each(|key| cache.insert_with_ttl(key, key, millis(20)));
    let expired = comes_true(|| told.load(Ordering::SeqCst) == 1_000) && cache.entry_count() == 0;
    let loaded = cache.get_with(1, || 10) == 10;
    cache.invalidate(&1);
    drop(cache);
    let told = told.load(Ordering::SeqCst) == 1_001;
    let ticker = ManualTicker::new();
    let reloading = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::disabled())
        .record_stats()
        .loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key)))
        .refresh_after(refresh::after(secs(10)))
        .build();
    let reloaded = comes_true(|| {
        ticker.advance(secs(11));
        reloading.get(&1) == Ok(1) && reloading.cache().stats().reloads() > 0
    });
    expired && loaded && told && reloaded
}

/// What every child does: the calls refuse, a new cache works, and the last drop returns.
fn is_told(cache: &Cache<u32, u32>) -> bool {
    std::panic::set_hook(Box::new(|_| ()));
    let refused = all_refuse(cache);
    drop_here(cache);
    refused && a_new_cache_works()
}

fn a_child_is_told(cache: &Cache<u32, u32>) -> bool {
    in_a_child(|| is_told(cache))
}

/// Drops a handle that the parent keeps: in the child it may be the last.
#[allow(unsafe_code)]
fn drop_here<T>(handle: &T) {
    // SAFETY: the child ends without using or dropping the other copy.
    drop(unsafe { std::ptr::read(handle) });
}

/// A cache with key 0 whose listener counts its calls, and waits in each until the gate is open.
fn held_listener(delivery: Delivery) -> (Cache<u32, u32>, Arc<AtomicU32>, Arc<Gate>) {
    let (begun, gate) = (Arc::new(AtomicU32::new(0)), Gate::new());
    let (begins, held) = (Arc::clone(&begun), Arc::clone(&gate));
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .delivery(delivery)
        .removal_listener(move |_: &u32, _: &u32, _| {
            begins.fetch_add(1, Ordering::SeqCst);
            held.wait();
        })
        .build();
    cache.insert(0, 0);
    (cache, begun, gate)
}

#[test]
fn threads_at_rest() {
    let _alone = alone();
    let (cache, begun, gate) = held_listener(Delivery::Background);
    gate.open();
    cache.insert_with_ttl(2, 2, millis(1));
    assert!(comes_true(|| begun.load(Ordering::SeqCst) == 1));
    thread::sleep(millis(200));
    assert!(a_child_is_told(&cache));
    // The child does not change the parent.
    cache.insert_with_ttl(2, 2, millis(1));
    assert!(comes_true(|| begun.load(Ordering::SeqCst) == 2));
    assert_eq!(cache.get(&0), Some(0));
}

#[test]
fn no_thread_was_started_yet() {
    let _alone = alone();
    let cache = Cache::new(100);
    cache.insert(0, 0);
    assert!(a_child_is_told(&cache));
    let cache = Cache::builder().scheduler(Scheduler::disabled()).build();
    cache.insert(0, 0);
    assert!(a_child_is_told(&cache));
}

#[test]
fn a_listener_at_work_in_the_background() {
    let _alone = alone();
    let (cache, begun, gate) = held_listener(Delivery::Background);
    for key in 2..5 {
        cache.insert_with_ttl(key, key, millis(1));
    }
    assert!(comes_true(|| begun.load(Ordering::SeqCst) > 0));
    assert!(a_child_is_told(&cache));
    gate.open();
    assert!(comes_true(|| begun.load(Ordering::SeqCst) == 3));
}

#[test]
fn a_listener_at_work_in_a_caller() {
    let _alone = alone();
    let (cache, begun, gate) = held_listener(Delivery::Caller);
    let other = cache.clone();
    let caller = thread::spawn(move || {
        for key in 2..5 {
            other.insert(key, key);
            other.invalidate(&key);
        }
    });
    assert!(comes_true(|| begun.load(Ordering::SeqCst) > 0));
    assert!(a_child_is_told(&cache));
    gate.open();
    caller.join().expect("no panic");
    assert_eq!(begun.load(Ordering::SeqCst), 3);
}

#[test]
fn a_listener_at_work_in_an_executor() {
    let _alone = alone();
    let (give, tasks) = mpsc::channel::<DeliveryTask>();
    let pool = thread::spawn(move || tasks.into_iter().for_each(DeliveryTask::run));
    let executor = Delivery::executor(move |task| drop(give.send(task)));
    let (cache, begun, gate) = held_listener(executor);
    for key in 2..5 {
        cache.insert_with_ttl(key, key, millis(1));
    }
    assert!(comes_true(|| begun.load(Ordering::SeqCst) > 0));
    assert!(a_child_is_told(&cache));
    gate.open();
    drop(cache);
    pool.join().expect("no panic");
    assert_eq!(begun.load(Ordering::SeqCst), 3);
}

/// A task that the child inherits does nothing there, nor does the task of an alarm, nor a lease:
/// it wakes no waiter of the parent.
#[test]
fn tasks_of_the_program() {
    #[derive(Clone, Default)]
    struct Latest(Arc<Mutex<Option<MaintenanceTask>>>);
    impl Alarm for Latest {
        fn set(&self, _: Duration, task: MaintenanceTask) {
            *self.0.lock().expect("no panic") = Some(task);
        }
    }
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let _alone = alone();
    let (give, tasks) = mpsc::channel::<DeliveryTask>();
    let latest = Latest::default();
    let cache = Cache::builder()
        .scheduler(Scheduler::custom(latest.clone()))
        .delivery(Delivery::executor(move |task| drop(give.send(task))))
        .removal_listener(|_: &u32, _: &u32, _| ())
        .build();
    cache.insert(0, 0);
    cache.insert(2, 2);
    cache.invalidate(&2);
    let alarm = latest.0.lock().expect("no panic").clone();
    let alarm = alarm.expect("it was set");
    alarm.run();
    let delivery = tasks.recv_timeout(SOON).expect("it was offered");
    let (lease, other) = match (cache.lease(5), cache.lease(6)) {
        (Leased::Lease(lease), Leased::Lease(other)) => (lease, other),
        _ => panic!("both keys are absent"),
    };
    let woken = Arc::new(Woken::default());
    let mut waits = Box::pin(cache.get_with_async(6, async { 6 }));
    let waker = Waker::from(Arc::clone(&woken));
    let polled = waits.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert!(in_a_child(|| {
        std::panic::set_hook(Box::new(|_| ()));
        let idle = alarm.run().is_none();
        delivery.run();
        drop(other);
        let filled = matches!(lease.fill(5), Filled::Revoked(5));
        drop(waits);
        idle && filled && !woken.0.load(Ordering::SeqCst) && all_refuse(&cache)
    }));
    // The last drop waits for no task that is never run.
    drop(tasks);
}

#[test]
fn the_scheduler_thread_in_a_mass_expiry() {
    let _alone = alone();
    let cache = Cache::builder().expiry_resolution(millis(1)).build();
    cache.insert(0, 0);
    for key in 2..200_000 {
        cache.insert_with_ttl(key, key, millis(500));
    }
    let mut left = cache.entry_count();
    let step = left / 11;
    let children: Vec<Child> = (0..10)
        .map(|_| {
            assert!(comes_true(|| cache.entry_count() < left));
            left = cache.entry_count().saturating_sub(step).max(2);
            start_child(|| is_told(&cache))
        })
        .collect();
    for child in children {
        assert!(child.passed());
    }
}

#[test]
fn writers_and_pins_at_work() {
    let _alone = alone();
    let cache = Cache::builder().max_capacity(1_000).build();
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (cache, stop) = (cache.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for key in 2..5_000 {
                        let held = cache.peek_ref(&0);
                        cache.insert(key, key);
                        drop(held);
                        cache.insert(0, 0);
                    }
                }
            })
        })
        .collect();
    let calls = || {
        std::panic::set_hook(Box::new(|_| ()));
        let refused = refuses(|| cache.insert(0, 1)) && refuses(|| cache.run_pending_tasks());
        _ = cache.get(&0);
        drop_here(&cache);
        refused
    };
    for _ in 0..60 {
        cache.insert(0, 0);
        assert!(in_a_child(calls));
        // A thread that has used no cache yet.
        thread::scope(|scope| {
            let fork = scope.spawn(|| in_a_child(calls));
            assert!(fork.join().expect("no panic"));
        });
    }
    stop.store(true, Ordering::Relaxed);
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn caches_built_and_dropped_meanwhile() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(
                    (0..8)
                        .map(|_| Cache::<u32, u32>::new(1))
                        .collect::<Vec<_>>(),
                );
            }
        });
        let passed = (0..200).all(|_| {
            in_a_child(|| {
                let cache = Cache::new(100);
                cache.insert(0, 0);
                cache.get(&0) == Some(0)
            })
        });
        stop.store(true, Ordering::Relaxed);
        assert!(passed);
    });
}

#[test]
fn loads_led_by_other_threads() {
    let _alone = alone();
    let cache = Cache::new(100);
    cache.insert(0, 0);
    let (begun, waits) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let leader = cache.clone();
    let leader = thread::spawn(move || {
        leader.get_with(1, || {
            begun.send(()).expect("the test waits");
            ends.recv().ok();
            10
        })
    });
    waits.recv_timeout(SOON).expect("the load begins");
    assert!(a_child_is_told(&cache));
    end.send(()).expect("the leader waits");
    assert_eq!(leader.join().expect("no panic"), 10);
    assert_eq!(cache.get(&1), Some(10));
}

#[test]
fn threads_that_reload() {
    let _alone = alone();
    let (ticker, slow) = (ManualTicker::new(), Arc::new(AtomicBool::new(false)));
    let (sleeps, begun) = (Arc::clone(&slow), Arc::new(AtomicU32::new(0)));
    let begins = Arc::clone(&begun);
    let cache = Cache::builder()
        .ticker(ticker.clone())
        .loading(loader_fn(move |key: &u32| {
            begins.fetch_add(1, Ordering::SeqCst);
            while sleeps.load(Ordering::SeqCst) {
                thread::sleep(millis(1));
            }
            Ok::<u32, ()>(*key)
        }))
        .reload_threads(1)
        .refresh_after(refresh::after(secs(10)))
        .build();
    (0..3).for_each(|key| assert_eq!(cache.get(&key), Ok(key)));
    ticker.advance(secs(11));
    slow.store(true, Ordering::SeqCst);
    // One reload runs, one is queued, and key 2 is stale.
    assert_eq!((cache.get(&0), cache.get(&1)), (Ok(0), Ok(1)));
    assert!(comes_true(|| begun.load(Ordering::SeqCst) == 4));
    let mut begun_before = Some(cache.refresh(0));
    assert!(in_a_child(|| {
        std::panic::set_hook(Box::new(|_| ()));
        slow.store(false, Ordering::SeqCst);
        // The keys that are loaded answer; a call that would begin a load refuses.
        let refused = [
            refuses(|| cache.get(&9)),
            refuses(|| cache.get(&2)),
            refuses(|| drop(cache.refresh(0))),
            refuses(|| begun_before.take().map(|refresh| refresh.wait())),
        ];
        let refused = !refused.contains(&false);
        drop_here(&cache);
        refused && a_new_cache_works()
    }));
    slow.store(false, Ordering::SeqCst);
    assert!(comes_true(|| begun.load(Ordering::SeqCst) == 5));
}

/// User code forks, and the child returns from it into the call that runs it.
#[test]
fn a_fork_inside_user_code() {
    let _alone = alone();
    #[allow(unsafe_code)]
    let fork_here = || {
        // SAFETY: as in `in_a_child`; the child ends before it returns into the test program.
        unsafe { libc::fork() }
    };
    #[allow(unsafe_code)]
    let ended = |child| {
        let mut status = 0;
        // SAFETY: as in `in_a_child`.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "{status}"
        );
    };
    #[allow(unsafe_code)]
    let begin = || {
        // SAFETY: a call without a precondition.
        unsafe { libc::alarm(TOO_LONG) };
        std::panic::set_hook(Box::new(|_| ()));
    };
    #[allow(unsafe_code)]
    let end = |passed: bool| {
        // SAFETY: as in `in_a_child`.
        unsafe { libc::_exit(i32::from(!passed)) }
    };
    // A loader: the caller gets its value, or the sentence.
    let cache: Cache<u32, u32> = Cache::new(100);
    let mut child = 0;
    let load = || {
        child = fork_here();
        if child == 0 {
            begin();
        }
        7
    };
    let answer = catch_unwind(AssertUnwindSafe(|| cache.get_with(1, load)));
    if child == 0 {
        end(answer.is_err() || matches!(answer, Ok(7)));
    }
    ended(child);
    assert_eq!(cache.get(&1), Some(7));
    // A weigher, at the end of a load: the sentence is the only panic.
    static CHILD: AtomicI32 = AtomicI32::new(-1);
    let weigh = move |_: &u32, _: &u32| {
        let child = fork_here();
        if child == 0 {
            begin();
        }
        CHILD.store(child, Ordering::SeqCst);
        1
    };
    let weighed = Cache::builder().max_capacity(100).weigher(weigh).build();
    let refused = refuses(|| weighed.get_with(1, || 7));
    let child = CHILD.load(Ordering::SeqCst);
    if child == 0 {
        end(refused);
    }
    ended(child);
    assert_eq!(weighed.get(&1), Some(7));
    // A listener, in a caller.
    let forked = Arc::new(AtomicU32::new(0));
    let (fork, other) = (Arc::clone(&forked), cache);
    let cache: Cache<u32, u32> = Cache::builder()
        .delivery(Delivery::Caller)
        .removal_listener(move |_: &u32, _: &u32, _| {
            let child = fork_here();
            if child == 0 {
                begin();
            }
            fork.store(child.unsigned_abs(), Ordering::SeqCst);
        })
        .build();
    cache.insert(1, 1);
    let call = catch_unwind(AssertUnwindSafe(|| cache.invalidate(&1)));
    let child = forked.load(Ordering::SeqCst);
    if child == 0 {
        drop(call);
        drop((cache, other));
        end(a_new_cache_works());
    }
    ended(child.cast_signed());
    assert!(call.is_ok());
}

#[test]
fn a_grandchild() {
    let _alone = alone();
    let cache = Cache::new(100);
    cache.insert(0, 0);
    assert!(in_a_child(|| {
        std::panic::set_hook(Box::new(|_| ()));
        let own = Cache::new(100);
        own.insert(0, 0);
        own.run_pending_tasks();
        let told = a_child_is_told(&own) && a_child_is_told(&cache);
        own.insert(0, 1);
        told && own.get(&0) == Some(1) && all_refuse(&cache)
    }));
}

/// The threads of the child's caches end with the last of them, whatever the parent has.
#[test]
fn the_threads_of_a_child_end_with_its_last_cache() {
    let _alone = alone();
    let (cache, begun, gate) = held_listener(Delivery::Background);
    cache.insert_with_ttl(2, 2, millis(1));
    assert!(comes_true(|| begun.load(Ordering::SeqCst) > 0));
    assert!(in_a_child(|| {
        let worked = a_new_cache_works();
        // A thread that reloads is not waited for.
        let tasks = || std::fs::read_dir("/proc/self/task");
        worked && comes_true(|| tasks().map_or(true, |tasks| tasks.count() == 1))
    }));
    gate.open();
    drop(cache);
}

/// Both clocks were in use before the `fork`, the coarse one and the exact one.
#[test]
fn the_time_goes_on() {
    const PRECISION: Duration = Duration::from_micros(50);
    let _alone = alone();
    let cache = Cache::new(100);
    let began = Instant::now();
    while began.elapsed() < millis(20) {
        cache.insert_with_ttl(0, 0, HOUR);
        assert_eq!(cache.get(&0), Some(0));
    }
    let last = cache.policy().now();
    assert!(in_a_child(|| {
        assert!(cache.policy().now() >= last);
        let own = Cache::new(100);
        // From a long way before the slack of the coarse clock until after the deadline.
        let earliest = Instant::now() + millis(300);
        own.insert_with_ttl(1, 1, millis(300));
        let latest = Instant::now() + millis(300);
        loop {
            let before = Instant::now();
            let now = own.policy().now();
            assert!(now + PRECISION >= before && now <= Instant::now());
            assert_eq!(cache.get(&0), Some(0));
            let before = Instant::now();
            if own.get(&1).is_none() {
                return Instant::now() + PRECISION >= earliest;
            }
            assert!(before <= latest + PRECISION);
        }
    }));
}
