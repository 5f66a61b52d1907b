//! Loads and waiters cost the same for the hundred-thousandth as for the first.
//!
//! Each bound is of what many take against what few take, each the shortest of its turns: where the
//! system tells it, in time that the thread had a processor. A busy machine makes more turns
//! necessary, until both had a quiet one. Where the cost grew with the number of loads or waiters,
//! no turn would come near. The bounds are twice those that the benchmark `cost_of_loads` holds on
//! an optimised build and a quiet machine.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use wheelhouse::compute::Op;
use wheelhouse::{Cache, Leased};

/// Turns that are made in any case, and turns that a busy machine may take.
const FEWEST: usize = 2;
const TURNS: usize = 40;

/// Asserts that `many` takes at most `most` times as long as `few`: the shortest of each.
#[track_caller]
fn assert_ratio(most: u32, mut few: impl FnMut() -> Duration, mut many: impl FnMut() -> Duration) {
    let (mut short, mut long) = (Duration::MAX, Duration::MAX);
    for turn in 1..=TURNS {
        (short, long) = (short.min(few()), long.min(many()));
        if turn >= FEWEST && long <= short * most {
            return;
        }
    }
    panic!("few: {short:?}, many: {long:?}, which is over {most} times as long");
}

/// The time for which the thread has run.
#[cfg(target_os = "linux")]
fn time_of_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(target_os = "linux"))]
fn time_of_thread() -> Duration {
    use std::time::Instant;
    static BEGAN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    BEGAN.elapsed()
}

fn time(run: impl FnOnce()) -> Duration {
    let began = time_of_thread();
    run();
    time_of_thread() - began
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn held<K, V>(leased: Leased<K, V>) -> wheelhouse::Lease<K, V> {
    match leased {
        Leased::Lease(lease) => lease,
        _ => panic!("the key is absent and has no load"),
    }
}

#[test]
fn a_bulk_load_of_many_keys_is_not_quadratic() {
    let _shared = crate::beside_others();
    let load_all = |count: u64| {
        let cache: Cache<u64, u64> = Cache::builder().build();
        let load = |keys: &[u64]| Ok::<_, ()>(keys.iter().map(|key| Some(*key)).collect());
        time(|| {
            let loaded = cache.get_all_with(0..count, load).unwrap();
            assert_eq!(loaded.len(), count as usize);
        })
    };
    assert_ratio(40, || load_all(10_000), || load_all(160_000));
}

#[test]
fn an_insert_does_not_feel_the_loads_of_other_keys() {
    let _shared = crate::beside_others();
    let insert =
        |cache: &Cache<u64, u64>| time(|| (0..4_000).for_each(|key| cache.insert(key, key)));
    let (alone, busy) = (Cache::builder().build(), Cache::builder().build());
    let leases: Vec<_> = (0..80_000)
        .map(|key| held(busy.lease(1 << 32 | key)))
        .collect();
    assert_ratio(4, || insert(&alone), || insert(&busy));
    drop(leases);
}

#[test]
fn waiters_that_leave_one_after_the_other_take_constant_time() {
    let _shared = crate::beside_others();
    const WAITERS: usize = 64_000;
    let cache: Cache<u64, u64> = Cache::builder().build();
    let wait = || Box::pin(cache.get_with_async(0, std::future::pending()));
    let all_leave = |leave: fn(Vec<_>)| {
        let mut waiters: Vec<_> = (0..WAITERS).map(|_| wait()).collect();
        let mut polled = waiters.iter_mut().map(|waiter| poll_once(waiter.as_mut()));
        assert!(polled.all(|polled| polled.is_pending()));
        time(|| leave(waiters))
    };
    for leave in [
        // The leader leaves first, then each that has got the lead.
        drop,
        // All that wait leave, the last first.
        |mut waiters: Vec<_>| while waiters.pop().is_some() {},
    ] {
        assert_ratio(1, || Duration::from_secs(1), || all_leave(leave));
    }
    assert_eq!(cache.get_with(0, || 7), 7, "the load has ended");
}

#[test]
fn a_turn_does_not_feel_how_many_wait_for_theirs() {
    let _shared = crate::beside_others();
    let turn = |waiting: u32| {
        let cache: Cache<u64, u64> = Cache::builder().build();
        let compute = || {
            let selector = cache.entry(0);
            Box::pin(selector.and_compute_with_async(|entry| async move {
                Op::Put(entry.map_or(0, |entry| *entry.value()) + 1)
            }))
        };
        let lease = held(cache.lease(0));
        let mut turns: Vec<_> = (0..waiting).map(|_| compute()).collect();
        assert!(
            turns
                .iter_mut()
                .all(|turn| poll_once(turn.as_mut()).is_pending())
        );
        drop(lease);
        let took = time(|| {
            for turn in turns.iter_mut() {
                assert!(poll_once(turn.as_mut()).is_ready(), "first in, first out");
            }
        });
        assert_eq!(cache.get(&0), Some(waiting.into()));
        took / waiting
    };
    assert_ratio(4, || turn(1_000), || turn(16_000));
}

#[test]
fn the_future_of_a_lease_says_that_it_is_over() {
    let _shared = crate::beside_others();
    let cache: Cache<u64, u64> = Cache::new(10);
    let mut future = pin!(cache.lease_async(0));
    assert!(poll_once(future.as_mut()).is_ready());
    let again = std::panic::AssertUnwindSafe(|| drop(poll_once(future.as_mut())));
    let panic = std::panic::catch_unwind(again).expect_err("a panic");
    let text = panic.downcast_ref::<&str>().expect("text");
    assert!(text.contains("resumed after completion"), "{text}");
}
