//! A ticker that stands still just before a load is overdue.

use crate::support::until;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use wheelhouse::{Alarm, Cache, Leased, MaintenanceTask, ManualTicker, Scheduler, Ticker};

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

/// Keeps the last request.
#[derive(Clone, Default)]
struct Last(Arc<Mutex<Option<(Duration, MaintenanceTask)>>>);

impl Alarm for Last {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        let former = self.0.lock().unwrap().replace((after, task));
        drop(former);
    }
}

impl Last {
    /// Does the work that was requested; says after what time there is more.
    fn run(&self) -> Duration {
        let request = self.0.lock().unwrap().take();
        request.expect("there is a request").1.run();
        self.0.lock().unwrap().as_ref().expect("there is more").0
    }
}

/// Only if the ticker stands still between two runs, the next one comes no sooner than in 1 ms.
#[test]
fn an_alarm_is_set_for_the_very_moment_unless_the_clock_stands_still() {
    let (time, alarm) = (ManualTicker::new(), Last::default());
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(time.clone())
        .scheduler(Scheduler::custom(alarm.clone()))
        .load_timeout(10 * SECOND)
        .build();
    let step = Duration::from_micros(10);
    let _leases = [1, 2].map(|key| {
        let lease = cache.lease(key);
        time.advance(step);
        lease
    });
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = [1, 2].map(|key| Box::pin(cache.get_with_async(key, async { 5 })));
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut cx).is_pending());
    }
    time.advance(10 * SECOND - 3 * step);
    // A call of the program at this moment is no run of the alarm.
    cache.run_pending_tasks();
    assert_eq!(alarm.run(), step, "until the first is overdue");
    assert_eq!(
        alarm.run(),
        Duration::from_millis(1),
        "the clock stands still"
    );
    time.advance(step);
    assert_eq!(alarm.run(), step, "until the second is overdue");
}
