//! What the cache requests of its scheduler, request by request.

use crate::engine::waking::{COALESCE_DELAY, Waking};
use crate::scheduler::CacheRef;
use crate::time::Clock;
use crate::{Alarm, MaintenanceTask, ManualTicker, Scheduler, Ticker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// A scheduler that records its requests.
#[derive(Clone, Default)]
struct Bell(Arc<Mutex<Vec<Duration>>>);

impl Alarm for Bell {
    fn set(&self, after: Duration, _: MaintenanceTask) {
        self.0.lock().expect("no panic").push(after);
    }
}

impl Bell {
    /// The requests since the last call.
    fn rung(&self) -> Vec<Duration> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn waking() -> (Waking, Bell) {
    let bell = Bell::default();
    let scheduler = Scheduler::custom(bell.clone());
    (Waking::new(scheduler, CacheRef::idle()), bell)
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn an_earlier_moment_is_requested_and_a_later_one_is_not() {
    let (waking, bell) = waking();
    assert!(!waking.is_armed() && !waking.scheduler.callers_maintain());
    waking.request_by(SECOND, 6 * SECOND);
    waking.request_by(SECOND, 7 * SECOND);
    waking.request_by(SECOND, 6 * SECOND);
    assert_eq!(bell.rung(), [secs(5)]);
    assert!(waking.is_armed());
    waking.request_by(SECOND, 3 * SECOND);
    assert_eq!(bell.rung(), [secs(2)]);
    assert!(!waking.is_run_due(3 * SECOND - 1) && waking.is_run_due(3 * SECOND));
    let _begun = waking.begin();
    assert!(!waking.is_armed());
    waking.request_by(3 * SECOND, 7 * SECOND);
    assert_eq!(bell.rung(), [secs(4)]);
}

#[test]
fn soon_is_requested_once_a_run_and_never_delays_another_request() {
    let (waking, bell) = waking();
    let clock = Clock::custom(Box::new(ManualTicker::new()));
    waking.request_soon(&clock);
    waking.request_soon(&clock);
    assert_eq!(bell.rung(), [COALESCE_DELAY]);
    // What is told now replaces what was told before.
    waking.request_by(0, 5 * SECOND);
    assert_eq!(bell.rung(), [COALESCE_DELAY]);
    let _begun = waking.begin();
    waking.request_by(0, 1_000);
    waking.request_soon(&clock);
    assert_eq!(bell.rung(), [Duration::from_micros(1); 2]);
}

#[test]
fn the_end_of_a_run_arranges_the_next() {
    let (waking, bell) = waking();
    let clock = Clock::custom(Box::new(ManualTicker::new()));
    let (unread, readings) = counted();
    waking.request_by(0, 9 * SECOND);
    waking.request_soon(&clock);
    bell.rung();

    // Nothing is left to do, and the earlier request was fulfilled.
    assert_eq!(waking.begin().end(None, None, &unread), None);
    assert!(!waking.is_armed() && bell.rung().is_empty());

    // What the wheel has left.
    let run = waking.begin();
    assert_eq!(run.end(Some(6 * SECOND), None, &at(1)), Some(secs(5)));
    assert_eq!(bell.rung(), [secs(5)]);
    assert!(waking.is_run_due(6 * SECOND));

    // A request made meanwhile is passed on, whether the wheel holds an entry or not.
    for (next, from, after) in [(None, 2, 2), (Some(6 * SECOND), 1, 3)] {
        let run = waking.begin();
        waking.request_by(SECOND, 4 * SECOND);
        bell.rung();
        assert_eq!(run.end(next, None, &at(from)), Some(secs(after)));
        assert_eq!(bell.rung(), [secs(after)]);
    }

    // A run that has not looked at everything may keep the moment for which it was arranged.
    let run = waking.begin();
    let moment = run.moment();
    assert_eq!(moment, Some(4 * SECOND));
    assert_eq!(run.end(moment, None, &at(1)), Some(secs(3)));
    assert_eq!(bell.rung(), [secs(3)]);
    let run = waking.begin();
    assert_eq!(run.end(None, None, &unread), None);

    // Memory that a reader holds is requested for later; other work is not delayed by it.
    let retry = Some(4 * COALESCE_DELAY);
    assert_eq!(waking.begin().end(None, retry, &unread), retry);
    assert_eq!(bell.rung(), [4 * COALESCE_DELAY]);
    waking.request_by(SECOND, 9 * SECOND);
    assert_eq!(
        bell.rung(),
        [4 * COALESCE_DELAY],
        "the retry is not forgotten"
    );
    let run = waking.begin();
    waking.request_soon(&clock);
    let after = run.end(None, retry, &unread);
    assert_eq!(after, Some(COALESCE_DELAY));
    assert_eq!(readings(), 1, "without a moment, the clock is not read");
}

#[test]
fn a_helper_keeps_the_moment_of_a_run_until_a_run_ends() {
    let (waking, _) = waking();
    let moment = Some(4 * SECOND);
    waking.request_by(0, 4 * SECOND);
    // A destructor holds this run up, and a caller helps in its place.
    let held_up = waking.begin();
    let helper = waking.begin();
    assert_eq!((held_up.moment(), helper.moment()), (moment, moment));
    // It leaves a part of the work to the next caller.
    helper.end(moment, None, &at(5));
    assert!(waking.is_run_due(4 * SECOND));
    let next = waking.begin();
    assert_eq!(next.moment(), moment);
    held_up.end(None, None, &at(5));
    assert_eq!(next.moment(), None, "a run has done all that there was");
    drop(next);
}

#[test]
fn a_run_that_a_panic_ends_is_tried_again() {
    let (waking, bell) = waking();
    waking.request_by(0, 9 * SECOND);
    bell.rung();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _begun = waking.begin();
        panic!("like a ticker's panic");
    }));
    assert!(outcome.is_err());
    assert_eq!(bell.rung(), [secs(1)]);
    assert!(!waking.is_run_due(9 * SECOND - 1) && waking.is_run_due(9 * SECOND));
    drop(waking.begin());
    assert!(
        bell.rung().is_empty(),
        "a run that ends well arranges nothing by itself"
    );
}

/// Ends a run when it is dropped.
struct EndsRun<'a>(&'a Waking);

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        self.0
            .begin()
            .end(Some(5 * SECOND + SECOND / 10), None, &at(5));
    }
}

/// It was taken for one that the panic had ended: the waker was told of the retry in place of the
/// earlier moment.
#[test]
fn a_run_that_ends_well_while_its_thread_unwinds_arranges_one_next_run() {
    let (waking, bell) = waking();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _ends = EndsRun(&waking);
        panic!("a panic of the program");
    }));
    assert!(outcome.is_err());
    assert_eq!(bell.rung(), [Duration::from_millis(100)]);
}

#[test]
fn runs_do_not_follow_each_other_endlessly_while_the_clock_stands_still() {
    let (waking, _) = waking();
    let [moment, later] = [5 * SECOND + 1, 6 * SECOND + 1].map(Some);
    let end = |moment, seconds| {
        let run = waking.begin().of_scheduler();
        run.end(moment, None, &at(seconds))
    };
    // A call of the program at this moment is no run of the scheduler.
    _ = waking.begin().end(moment, None, &at(5));
    assert_eq!(end(moment, 5), Some(Duration::from_nanos(1)));
    assert_eq!(end(moment, 5), Some(Duration::from_millis(1)));
    assert_eq!(end(moment, 5), Some(Duration::from_millis(1)));
    assert_eq!(
        end(later, 6),
        Some(Duration::from_nanos(1)),
        "it has gone on"
    );
    assert_eq!(end(later, 5), Some(Duration::from_nanos(SECOND + 1)));
}

/// A clock that has gone for so many seconds.
fn at(seconds: u64) -> Clock {
    let ticker = ManualTicker::new();
    let clock = Clock::custom(Box::new(ticker.clone()));
    ticker.advance(secs(seconds));
    clock
}

/// A clock that counts how often it is read, which its making does once.
fn counted() -> (Clock, impl Fn() -> u64) {
    struct Counted(Arc<AtomicU64>);
    impl Ticker for Counted {
        fn nanos(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }
    let readings = Arc::new(AtomicU64::new(0));
    let clock = Clock::custom(Box::new(Counted(Arc::clone(&readings))));
    (clock, move || readings.load(Ordering::Relaxed))
}
