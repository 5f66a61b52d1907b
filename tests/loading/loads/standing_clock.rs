//! A ticker that stands still just before a moment, beside the scheduler thread.

use crate::support::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use wheelhouse::{Cache, Leased, ManualTicker, Scheduler, Ticker};

const SECOND: Duration = Duration::from_secs(1);

/// Counts its readings.
struct Counting(ManualTicker, Arc<AtomicUsize>);

impl Ticker for Counting {
    fn nanos(&self) -> u64 {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.nanos()
    }
}

/// How often the ticker is read while another cache lets an entry of 50 ms expire.
fn readings_in_a_while(readings: &AtomicUsize) -> usize {
    let told = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&told);
    let other: Cache<u32, u32> = Cache::builder()
        .removal_listener(move |_, _, _| tell.store(true, Ordering::SeqCst))
        .build();
    let before = readings.load(Ordering::Relaxed);
    other.insert_with_ttl(1, 1, Duration::from_millis(50));
    until("it expires", || told.load(Ordering::SeqCst));
    readings.load(Ordering::Relaxed) - before
}

#[test]
fn a_load_that_is_overdue_in_a_nanosecond_keeps_no_thread_awake() {
    let (time, readings) = (ManualTicker::new(), Arc::new(AtomicUsize::new(0)));
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(Counting(time.clone(), Arc::clone(&readings)))
        .scheduler(Scheduler::background())
        .load_timeout(10 * SECOND)
        .record_stats()
        .build();
    let lease = cache.lease(1);
    assert!(matches!(lease, Leased::Lease(_)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| cache.get_with(1, || 5));
        until("it waits", || cache.stats().load_waits() == 1);
        time.advance(10 * SECOND - Duration::from_nanos(1));
        cache.run_pending_tasks();
        let many = readings_in_a_while(&readings);
        drop(lease);
        assert_eq!(waiter.join().unwrap(), 5);
        assert!(many < 1_000, "the ticker was read {many} times");
    });
}

#[test]
fn an_entry_that_is_due_later_keeps_no_thread_awake() {
    for shift in 10..44 {
        let (time, readings) = (ManualTicker::new(), Arc::new(AtomicUsize::new(0)));
        let cache: Cache<u32, u32> = Cache::builder()
            .ticker(Counting(time.clone(), Arc::clone(&readings)))
            .scheduler(Scheduler::background())
            .build();
        cache.insert_with_ttl(1, 1, 1_000_000 * SECOND);
        time.advance(Duration::from_nanos((1 << shift) - 1));
        cache.run_pending_tasks();
        let many = readings_in_a_while(&readings);
        println!("{shift}: {many}");
    }
}
