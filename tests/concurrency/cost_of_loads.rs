//! Loads and waiters cost the same for the hundred-thousandth as for the first.
//!
//! The bounds are generous, since the machine may be busy; where the cost grew with the number of
//! loads or waiters, each would be missed by far. A program of its own, whose tests run one after
//! the other: they measure time.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use wheelhouse::compute::Op;
use wheelhouse::{Cache, Leased};

/// The shortest of some runs.
fn shortest<T>(runs: usize, mut prepare: impl FnMut() -> T, mut run: impl FnMut(T)) -> Duration {
    let timed = (0..runs).map(|_| {
        let prepared = prepare();
        let began = Instant::now();
        run(prepared);
        began.elapsed()
    });
    timed.min().expect("at least one run")
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
    let _alone = crate::alone();
    let load_all = |count: u64| {
        shortest(3, Cache::builder, |builder| {
            let cache: Cache<u64, u64> = builder.build();
            let load = |keys: &[u64]| Ok::<_, ()>(keys.iter().map(|key| Some(*key)).collect());
            assert_eq!(
                cache.get_all_with(0..count, load).unwrap().len(),
                count as usize
            );
        })
    };
    let (few, many) = (load_all(10_000), load_all(160_000));
    assert!(
        many < few * 60,
        "10,000 keys: {few:?}, 160,000 keys: {many:?}"
    );
}

#[test]
fn an_insert_does_not_feel_the_loads_of_other_keys() {
    let _alone = crate::alone();
    let insert = |loads: u64| {
        let cache: Cache<u64, u64> = Cache::builder().build();
        let leases: Vec<_> = (0..loads)
            .map(|key| held(cache.lease(1 << 32 | key)))
            .collect();
        let took = shortest(
            5,
            || (),
            |()| (0..4_000).for_each(|key| cache.insert(key, key)),
        );
        drop(leases);
        took
    };
    let (alone, beside) = (insert(0), insert(80_000));
    assert!(
        beside < alone * 6,
        "alone: {alone:?}, beside 80,000 loads: {beside:?}"
    );
}

#[test]
fn waiters_that_leave_one_after_the_other_take_constant_time() {
    let _alone = crate::alone();
    const WAITERS: usize = 64_000;
    let cache: Cache<u8, u64> = Cache::builder().build();
    let wait = || Box::pin(cache.get_with_async(0, std::future::pending()));
    // The leader leaves first, then each that has got the lead.
    let first_leaves = shortest(
        1,
        || {
            let mut waiters: Vec<_> = (0..WAITERS).map(|_| wait()).collect();
            assert!(
                waiters
                    .iter_mut()
                    .all(|waiter| poll_once(waiter.as_mut()).is_pending())
            );
            waiters
        },
        drop,
    );
    // All that wait leave, the last first.
    let last_leaves = shortest(
        1,
        || {
            let mut waiters: Vec<_> = (0..WAITERS).map(|_| wait()).collect();
            assert!(
                waiters
                    .iter_mut()
                    .all(|waiter| poll_once(waiter.as_mut()).is_pending())
            );
            waiters
        },
        |mut waiters| while waiters.pop().is_some() {},
    );
    assert_eq!(cache.get_with(0, || 7), 7, "the load has ended");
    for took in [first_leaves, last_leaves] {
        assert!(
            took < Duration::from_secs(2),
            "{WAITERS} waiters left in {took:?}"
        );
    }
}

#[test]
fn a_turn_does_not_feel_how_many_wait_for_theirs() {
    let _alone = crate::alone();
    let turn = |waiting: u32| {
        let cache: Cache<u8, u32> = Cache::builder().build();
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
        let began = Instant::now();
        for turn in turns.iter_mut() {
            assert!(poll_once(turn.as_mut()).is_ready(), "first in, first out");
        }
        let took = began.elapsed() / waiting;
        assert_eq!(cache.get(&0), Some(waiting));
        took
    };
    let few = (0..5).map(|_| turn(1_000)).min().expect("five runs");
    let many = (0..3).map(|_| turn(16_000)).min().expect("three runs");
    assert!(
        many < few * 8,
        "among 1,000: {few:?} each, among 16,000: {many:?}"
    );
}

#[test]
fn the_future_of_a_lease_says_that_it_is_over() {
    let _alone = crate::alone();
    let cache: Cache<u8, u8> = Cache::new(10);
    let mut future = pin!(cache.lease_async(0));
    assert!(poll_once(future.as_mut()).is_ready());
    let again = std::panic::AssertUnwindSafe(|| drop(poll_once(future.as_mut())));
    let panic = std::panic::catch_unwind(again).expect_err("a panic");
    let text = panic.downcast_ref::<&str>().expect("text");
    assert!(
        text.contains("the future of a lease was polled after it was ready"),
        "{text}"
    );
}
