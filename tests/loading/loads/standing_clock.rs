//! A ticker that stands still just before a load is overdue, beside the scheduler thread.

use crate::support::until;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use wheelhouse::{Cache, Leased, ManualTicker, Scheduler, Ticker};

const SECOND: Duration = Duration::from_secs(1);

/// Counts its readings.
struct Counting(ManualTicker, Arc<AtomicU32>);

impl Ticker for Counting {
    fn nanos(&self) -> u64 {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.nanos()
    }
}

#[test]
fn a_load_that_is_overdue_in_a_nanosecond_keeps_no_thread_awake() {
    let (time, readings) = (ManualTicker::new(), Arc::new(AtomicU32::new(0)));
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(Counting(time.clone(), Arc::clone(&readings)))
        .scheduler(Scheduler::background())
        .load_timeout(10 * SECOND)
        .build();
    let lease = cache.lease(1);
    assert!(matches!(lease, Leased::Lease(_)));
    let mut waits = pin!(cache.get_with_async(1, async { 5 }));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    time.advance(10 * SECOND - Duration::from_nanos(1));
    cache.run_pending_tasks();
    // For as long as another cache lets an entry expire.
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    let other: Cache<u32, u32> = Cache::builder()
        .expiry_resolution(Duration::from_millis(1))
        .removal_listener(move |_, _, _| tell.store(true, Ordering::SeqCst))
        .build();
    other.insert_with_ttl(1, 1, Duration::from_millis(50));
    let (began, before) = (Instant::now(), readings.load(Ordering::Relaxed));
    until("it expires", || told.load(Ordering::SeqCst));
    let read = readings.load(Ordering::Relaxed) - before;
    let bound = 10 * began.elapsed().as_millis();
    assert!(u128::from(read) <= bound, "read {read} times, not {bound}");
    drop(lease);
}
