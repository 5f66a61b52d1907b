//! A child process made by `fork` has only the thread that forked: the cache starts its threads
//! again there, and removes and delivers what is due.
#![cfg(unix)]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use support::{HOUR, millis, secs};
use wheelhouse::{Cache, ManualTicker, RemovalCause, Scheduler, loader_fn, refresh};

/// How long a child waits for an event.
const SOON: Duration = secs(20);

/// The system ends a child that hangs after this many seconds.
const TOO_LONG: u32 = 60;

/// One test at a time: a `fork` during another test's calls would copy their locks.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` in a child and returns its result; false if it panics or hangs.
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // The threads of the crate are asleep by then.
    std::thread::sleep(millis(50));
    in_a_child_at_once(body)
}

#[allow(unsafe_code)]
fn in_a_child_at_once(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `body` on its only thread and ends without returning into the test
    // program, so it takes no lock of that program. The allocator can be used after a `fork`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process could be made");
    if child == 0 {
        // SAFETY: a call without a precondition.
        unsafe { libc::alarm(TOO_LONG) };
        let body = std::panic::AssertUnwindSafe(body);
        let passed = std::panic::catch_unwind(body).unwrap_or(false);
        // SAFETY: it ends the process, whatever state the process is in.
        unsafe { libc::_exit(i32::from(!passed)) }
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and `status` can be written to.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(ended, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Waits without calling any cache.
fn comes_true(holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > SOON {
            return false;
        }
        std::thread::sleep(millis(2));
    }
    true
}

/// A cache, and the number of removals delivered, by cause.
struct Scene {
    cache: Cache<u32, u32>,
    expired: Arc<AtomicU32>,
    others: Arc<AtomicU32>,
}

impl Scene {
    fn new() -> Self {
        let (expired, others) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let counts = [Arc::clone(&expired), Arc::clone(&others)];
        let cache = Cache::builder()
            .expiry_resolution(millis(1))
            .removal_listener(move |_: &u32, _: &u32, cause| {
                let count = &counts[usize::from(cause != RemovalCause::Expired)];
                count.fetch_add(1, Ordering::SeqCst);
            })
            .build();
        Self {
            cache,
            expired,
            others,
        }
    }

    fn expired(&self) -> u32 {
        self.expired.load(Ordering::SeqCst)
    }

    fn others(&self) -> u32 {
        self.others.load(Ordering::SeqCst)
    }

    /// Starts both threads.
    fn begun() -> Self {
        let scene = Self::new();
        scene.cache.insert_with_ttl(0, 0, millis(1));
        assert!(comes_true(|| scene.expired() == 1));
        scene
    }
}

/// Both the coarse clock and the exact one, in use before the `fork`.
#[test]
fn the_time_goes_on_in_a_child() {
    let _alone = alone();
    const PRECISION: Duration = Duration::from_micros(50);
    let cache: Cache<u32, u32> = Cache::builder().build();
    cache.insert_with_ttl(0, 0, HOUR);
    let began = Instant::now();
    while began.elapsed() < millis(20) {
        assert_eq!(cache.get(&0), Some(0));
        cache.insert_with_ttl(1, 1, HOUR);
    }
    let last = cache.policy().now();
    assert!(in_a_child(|| {
        let before = Instant::now();
        let now = cache.policy().now();
        assert!(now >= last && now + PRECISION >= before && now <= Instant::now());
        // From a long way before the slack of the coarse clock until after the deadline.
        let before = Instant::now();
        cache.insert_with_ttl(2, 2, millis(300));
        let after = Instant::now();
        loop {
            assert_eq!(cache.get(&0), Some(0));
            let asked = Instant::now();
            if cache.get(&2).is_none() {
                return Instant::now() + PRECISION >= before + millis(300);
            }
            assert!(asked <= after + millis(300) + PRECISION);
        }
    }));
}

#[test]
fn a_child_expires_and_delivers_what_it_inserts() {
    let _alone = alone();
    let scene = Scene::begun();
    let heard = in_a_child(|| {
        for key in 1..=1_000 {
            scene.cache.insert_with_ttl(key, key, millis(20));
        }
        comes_true(|| scene.expired() == 1_001) && scene.cache.entry_count() == 0
    });
    assert!(heard);
    // The child does not change the parent.
    assert_eq!(scene.expired(), 1);
    scene.cache.insert_with_ttl(1, 1, millis(20));
    assert!(comes_true(|| scene.expired() == 2));
}

/// In the parent, a run is arranged for an earlier moment than any of the child's deadlines.
#[test]
fn a_run_arranged_in_the_parent_happens_in_the_child_as_well() {
    let _alone = alone();
    let scene = Scene::begun();
    for key in 1..=100 {
        scene.cache.insert_with_ttl(key, key, millis(300));
    }
    let heard = in_a_child(|| {
        // One write, with a later deadline.
        scene.cache.insert_with_ttl(1_000, 0, millis(400));
        comes_true(|| scene.expired() == 102)
    });
    assert!(heard);
    assert!(comes_true(|| scene.expired() == 101));
}

/// In the parent, a run was requested just before the `fork`.
#[test]
fn a_request_of_the_parent_is_made_again_in_the_child() {
    let _alone = alone();
    let scene = Scene::begun();
    std::thread::sleep(millis(50));
    (1..=100).for_each(|key| scene.cache.insert(key, key));
    scene.cache.invalidate(&1);
    let heard = in_a_child_at_once(|| {
        scene.cache.insert_with_ttl(1_000, 0, HOUR);
        scene.cache.invalidate(&2);
        comes_true(|| scene.others() >= 2)
    });
    assert!(heard);
    assert!(comes_true(|| scene.others() == 1));
}

#[test]
fn a_read_that_meets_an_expired_entry_is_enough() {
    let _alone = alone();
    let scene = Scene::begun();
    for key in 1..=100 {
        scene.cache.insert_with_ttl(key, key, millis(100));
    }
    let heard = in_a_child(|| {
        std::thread::sleep(millis(100));
        scene.cache.get(&1).is_none() && comes_true(|| scene.expired() == 101)
    });
    assert!(heard);
}

#[test]
fn removals_without_a_deadline_are_delivered_too() {
    let _alone = alone();
    let scene = Scene::begun();
    std::thread::sleep(millis(50));
    (0..100).for_each(|key| scene.cache.insert(key, key));
    scene.cache.insert(0, 1);
    let heard = in_a_child_at_once(|| {
        for round in 0..100 {
            (0..100).for_each(|key| scene.cache.insert(key, round));
        }
        comes_true(|| scene.others() >= 10_000)
    });
    assert!(heard);
}

#[test]
fn a_cache_that_no_thread_served_yet_is_served_in_the_child() {
    let _alone = alone();
    let scene = Scene::new();
    let heard = in_a_child(|| {
        scene.cache.insert_with_ttl(1, 1, millis(5));
        comes_true(|| scene.expired() == 1)
    });
    assert!(heard);
    scene.cache.insert_with_ttl(1, 1, millis(5));
    assert!(comes_true(|| scene.expired() == 1));
}

#[test]
fn a_grandchild_is_served_as_well() {
    let _alone = alone();
    let scene = Scene::begun();
    let heard = in_a_child(|| {
        scene.cache.insert_with_ttl(1, 1, millis(5));
        comes_true(|| scene.expired() == 2)
            && in_a_child(|| {
                scene.cache.insert_with_ttl(2, 2, millis(5));
                comes_true(|| scene.expired() == 3)
            })
    });
    assert!(heard);
}

#[test]
fn the_last_drop_in_the_child_delivers_removals() {
    let _alone = alone();
    let Scene {
        cache,
        expired: _,
        others,
    } = Scene::begun();
    for key in 0..100 {
        cache.insert(key, key);
    }
    let told = in_a_child(|| {
        (0..50).for_each(|key| cache.invalidate(&key));
        drop(cache);
        others.load(Ordering::SeqCst) == 50
    });
    assert!(told);
}

#[test]
fn run_pending_tasks_serves_a_cache_without_a_scheduler() {
    let _alone = alone();
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(Scheduler::disabled())
        .build();
    cache.insert_with_ttl(1, 1, millis(5));
    assert!(in_a_child(|| {
        cache.insert_with_ttl(2, 2, millis(5));
        std::thread::sleep(millis(20));
        cache.run_pending_tasks();
        cache.entry_count() == 0
    }));
}

/// The threads that reload are the parent's: a child starts its own.
#[test]
fn a_child_reloads() {
    let _alone = alone();
    let ticker = ManualTicker::new();
    let cache = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::disabled())
        .record_stats()
        .loading(loader_fn(|key: &u32| Ok::<u32, ()>(*key)))
        .refresh_after(refresh::after(secs(10)))
        .build();
    // Again and again: a reload that ends after the clock has moved makes the entry fresh.
    let reloads = || {
        let before = cache.cache().stats().reloads();
        comes_true(|| {
            ticker.advance(secs(11));
            cache.get(&1) == Ok(1) && cache.cache().stats().reloads() > before
        })
    };
    assert!(reloads());
    // The last one may still be under way.
    std::thread::sleep(millis(300));
    assert!(in_a_child(|| reloads() && reloads()));
    assert!(reloads(), "the parent's threads still run");
}
