//! What only a call that is made step by step shows.

use super::{Claim, Claimant, May};
use crate::flight::Want;
use crate::sync::block::block_until;
use crate::{Cache, Delivery, ManualTicker, RemovalCause, Scheduler};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// A compute that was passed hears of it, and meets an entry that is due. The listener loads the
/// key: it must not wait for the compute, on whose thread it runs, when that is the next to lead.
#[test]
fn a_compute_that_was_passed_and_tells_the_listener_is_not_next() {
    let (done, ends) = mpsc::channel();
    thread::spawn(move || {
        let clock = ManualTicker::new();
        let own = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
        let place = Arc::clone(&own);
        let cache: Cache<u64, u64> = Cache::builder()
            .ticker(clock.clone())
            .scheduler(Scheduler::disabled())
            .record_stats()
            .delivery(Delivery::Caller)
            .removal_listener(move |key: &u64, _: &u64, cause| {
                if cause == RemovalCause::Expired {
                    let cache = place.lock().unwrap().clone().unwrap();
                    assert_eq!(cache.get_with(*key, || 20), 20);
                }
            })
            .build();
        *own.lock().unwrap() = Some(cache.clone());
        let (engine, hash) = (cache.engine(), cache.hash(&1));
        let call = || Claimant::new(engine, hash, 1, Want::OwnTurn);
        cache.insert_with_ttl(1, 10, Duration::from_secs(1));
        let Some(Claim::Guard(first, _)) = call().try_claim(May::Lead) else {
            panic!("the key has no load");
        };
        let load = Arc::clone(first.load());
        let mut sleeper = call();
        assert!(sleeper.try_claim(May::Lead).is_none());
        // Its thread is about to sleep when the time to wait is over.
        let asleep = block_until(poll_fn(|cx| sleeper.poll_claim(cx)), Some(Instant::now()));
        assert!(asleep.is_err());
        load.begin_convoy();
        first.keep();
        let waits = cache.stats().load_waits();
        let (leads, led) = mpsc::channel();
        thread::scope(|threads| {
            threads.spawn(|| {
                let Some(Claim::Guard(second, _)) = call().try_claim(May::Lead) else {
                    panic!("it passes the sleeper");
                };
                leads.send(()).unwrap();
                while cache.stats().load_waits() == waits {
                    thread::yield_now();
                }
                second.keep();
            });
            led.recv().unwrap();
            clock.advance(Duration::from_secs(2));
            let claimed = sleeper.poll_claim(&Context::from_waker(Waker::noop()));
            assert!(matches!(claimed, Poll::Ready(Claim::Guard(..))));
        });
        *own.lock().unwrap() = None;
        done.send(cache.get(&1)).unwrap();
    });
    let loaded = ends.recv_timeout(Duration::from_secs(20));
    assert_eq!(loaded, Ok(Some(20)), "the listener waits for its thread");
}
