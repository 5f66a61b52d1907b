//! Defects that were found by reading the code, each with the program that showed it: requests to
//! timers, and which moment counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::acting::Acting;
use crate::support::secs;
use wheelhouse::{
    Alarm, Cache, EvictionPolicy, MaintenanceTask, ManualTicker, RemovalCause, Scheduler,
};

/// A scheduler that remembers its last request.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Option<(Duration, MaintenanceTask)>>>);

impl Alarm for Noted {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some((after, task));
    }
}

/// The clock was not read if the wheel was empty, and the moment requested since was passed on as
/// if the time were 0.
#[test]
fn a_request_made_during_a_run_that_leaves_nothing_is_passed_on_as_a_time_from_now() {
    let (ticker, alarm) = (ManualTicker::new(), Noted::default());
    let cache: Cache<u32, Acting> = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::custom(alarm.clone()))
        .build();
    ticker.advance(secs(3600));
    let inherits = cache.clone();
    let inserts = move || inherits.insert_with_ttl(2, Acting::idle(2), secs(5));
    cache.insert(1, Acting::when_dropped(1, inserts));
    cache.invalidate(&1);
    // Whichever of the runs frees the value: the last request is no later than the deadline of the
    // value that its destructor inserted.
    for _ in 0..4 {
        cache.run_pending_tasks();
        if cache.contains_key(&2) {
            break;
        }
    }
    assert!(cache.contains_key(&2));
    let told = alarm.0.lock().unwrap().as_ref().map(|(after, _)| *after);
    assert!(told.is_some_and(|after| after <= secs(10)), "told {told:?}");
}

/// A read is one reading of the clock: it judges the entry, and the idle limit counts from it. An
/// entry that another call found expired while the value was cloned does not come back.
#[test]
fn an_idle_limit_counts_from_the_look_up() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, Acting> = Cache::builder()
        .ticker(ticker.clone())
        .time_to_idle(secs(10))
        .build();
    let slow = ticker.clone();
    cache.insert(1, Acting::when_cloned(1, move || slow.advance(secs(5))));
    assert!(cache.get(&1).is_some());
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(secs(5)));
    ticker.advance(secs(4));
    assert!(cache.get(&1).is_some(), "a second before its deadline");
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(secs(5)));
}

#[test]
fn an_entry_that_was_found_expired_under_the_clone_does_not_come_back() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, Acting> = Cache::builder()
        .ticker(ticker.clone())
        .time_to_idle(secs(10))
        .build();
    // The clone takes a minute, and then asks the cache for its entry.
    let (minute, own) = (ticker.clone(), Mutex::new(Some(cache.clone())));
    let looks = move || {
        if let Some(cache) = own.lock().unwrap().take() {
            minute.advance(secs(60));
            assert!(!cache.contains_key(&1), "its deadline has passed");
        }
    };
    cache.insert(1, Acting::when_cloned(1, looks));
    ticker.advance(secs(1));
    // The read had moved the deadline before the value was cloned.
    assert!(cache.get(&1).is_some());
    assert!(!cache.contains_key(&1));
}

/// An unknown time of writing was taken for an early one, and the entry for nearly expired.
#[test]
fn an_entry_of_unknown_age_is_not_evicted_for_a_new_one() {
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(ManualTicker::new())
        .max_capacity(2)
        .eviction_policy(EvictionPolicy::Lru)
        .parts(1)
        .build();
    cache.insert(1, 1);
    cache.insert(2, 2);
    cache.run_pending_tasks();
    assert!(cache.set_expiry(&2, Some(Duration::from_millis(800))));
    cache.insert(3, 3);
    cache.run_pending_tasks();
    assert!(cache.contains_key(&2), "younger than 1, and alive");
    assert!(!cache.contains_key(&1));
}

/// It was compared before it was rounded up.
#[test]
fn a_resolution_that_rounds_up_to_the_finest_is_accepted() {
    let cache: Cache<u32, u32> = Cache::builder()
        .expiry_resolution(Duration::from_micros(50))
        .try_build()
        .unwrap();
    assert_eq!(
        cache.policy().expiry_resolution(),
        Duration::from_nanos(1 << 16)
    );
    for wrong in [Duration::ZERO, Duration::from_nanos(1 << 15), Duration::MAX] {
        let built = Cache::<u32, u32>::builder()
            .expiry_resolution(wrong)
            .try_build();
        assert!(built.is_err(), "{wrong:?}");
    }
}

/// A scheduler that reports each request.
struct Counted(mpsc::Sender<()>);

impl Alarm for Counted {
    fn set(&self, _: Duration, _: MaintenanceTask) {
        _ = self.0.send(());
    }
}

/// `run_pending_tasks` waited for destructors that ran on another thread, a second at most, and
/// made its request to the scheduler afterwards.
#[test]
fn a_caller_that_waits_for_a_destructor_has_set_the_alarm_before() {
    let (tell, set) = mpsc::channel();
    let cache: Cache<u32, Acting> = Cache::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::custom(Counted(tell)))
        .build();
    let (begun, has_begun) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    // Waits for the request to the scheduler, and a little more.
    let (set, has_ended) = (Mutex::new(set), Arc::clone(&ended));
    let waits = move || {
        let set = set.lock().unwrap();
        while set.try_recv().is_ok() {}
        begun.send(()).unwrap();
        _ = set.recv_timeout(secs(20));
        std::thread::sleep(Duration::from_millis(50));
        has_ended.store(true, Ordering::SeqCst);
    };
    cache.insert_with_ttl(1, Acting::idle(1), secs(3600));
    cache.insert(2, Acting::when_dropped(2, waits));
    cache.invalidate(&2);
    let dropping = std::thread::spawn({
        let cache = cache.clone();
        move || (0..3).for_each(|_| cache.run_pending_tasks())
    });
    has_begun.recv().unwrap();
    cache.run_pending_tasks();
    assert!(ended.load(Ordering::SeqCst), "it was not requested in time");
    dropping.join().unwrap();
}

/// The calls of a thread that is inside `run_pending_tasks`, and there in the listener.
fn during_a_listener(
    scheduler: Scheduler,
    clock: &ManualTicker,
    calls: impl FnOnce(&Cache<u32, u32>),
) {
    let (enters, entered) = mpsc::channel();
    let (opens, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let cache = Cache::builder()
        .ticker(clock.clone())
        .scheduler(scheduler)
        .removal_listener(move |_: &u32, _: &u32, cause| {
            if cause == RemovalCause::Explicit {
                _ = enters.send(());
                _ = gate.lock().unwrap().recv();
            }
        })
        .build();
    cache.insert_with_ttl(1, 1, secs(5));
    cache.run_pending_tasks();
    cache.insert(2, 2);
    cache.invalidate(&2);
    std::thread::scope(|threads| {
        threads.spawn(|| cache.run_pending_tasks());
        entered.recv().unwrap();
        calls(&cache);
        drop(opens);
    });
}

/// The call had taken the request for the run of the other entry, and kept it until its end.
#[test]
fn a_listener_that_run_pending_tasks_waits_for_delays_no_alarm() {
    let (clock, alarm) = (ManualTicker::new(), Noted::default());
    during_a_listener(Scheduler::custom(alarm.clone()), &clock, |cache| {
        cache.insert_with_ttl(3, 3, secs(3600));
        let told = alarm.0.lock().unwrap().as_ref().map(|(after, _)| *after);
        assert!(told.is_some_and(|after| after <= secs(7)), "told {told:?}");
    });
}

#[test]
fn a_listener_that_run_pending_tasks_waits_for_keeps_no_caller_from_removing_what_is_due() {
    let clock = ManualTicker::new();
    during_a_listener(Scheduler::disabled(), &clock, |cache| {
        clock.advance(secs(60));
        cache.insert(3, 3);
        assert_eq!(cache.entry_count(), 1);
    });
}
