//! A cache that is woken by the timer of an event loop, which here runs on a manual clock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::{
    Dice, HOUR, NS, SPAN, YEAR, hide_scripted_panics, millis, must_end, nanos, secs,
};
use wheelhouse::RemovalCause::{Expired, Explicit};
use wheelhouse::expiry::accessing;
use wheelhouse::{Alarm, Cache, MaintenanceTask, ManualTicker, Scheduler};

/// An event loop with one timer, in virtual time. A later `set` replaces an earlier one.
#[derive(Clone, Default)]
struct Loop(Arc<Mutex<Timer>>);

#[derive(Default)]
struct Timer {
    clock: ManualTicker,
    now: Duration,
    armed: Option<(Duration, MaintenanceTask)>,
    sets: usize,
    /// How many of the next calls of `set` panic.
    failing: usize,
}

impl Alarm for Loop {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        let mut timer = self.0.lock().unwrap();
        if timer.failing > 0 {
            timer.failing -= 1;
            drop(timer);
            panic!("told to panic in an alarm");
        }
        timer.armed = Some((timer.now.saturating_add(after), task));
        timer.sets += 1;
    }
}

impl Loop {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().now
    }

    fn sets(&self) -> usize {
        self.0.lock().unwrap().sets
    }

    /// Makes this many of the next calls of `set` panic.
    fn fail(&self, times: usize) {
        self.0.lock().unwrap().failing = times;
    }

    fn due(&self) -> Option<Duration> {
        self.0.lock().unwrap().armed.as_ref().map(|(at, _)| *at)
    }

    fn advance_to(&self, at: Duration) {
        let mut timer = self.0.lock().unwrap();
        let step = at.saturating_sub(timer.now);
        timer.clock.advance(step);
        timer.now += step;
    }

    /// Waits for the timer and runs its task; false if no timer is set, or it is set for after
    /// `end`.
    fn turn(&self, end: Duration) -> bool {
        let armed = {
            let mut timer = self.0.lock().unwrap();
            timer.armed.take_if(|(at, _)| *at <= end)
        };
        let Some((at, task)) = armed else {
            return false;
        };
        self.advance_to(at);
        if let Some(again) = task.run() {
            // A `set` during the run and the result of the run both name a time; the loop keeps one
            // timer, for the earlier.
            let mut timer = self.0.lock().unwrap();
            let next = timer.now.saturating_add(again);
            if timer.armed.as_ref().is_none_or(|(at, _)| next < *at) {
                timer.armed = Some((next, task));
            }
        }
        true
    }

    /// Runs to the given time and counts how often the loop woke up.
    fn run_to(&self, end: Duration) -> usize {
        let mut wakes = 0;
        while self.turn(end) {
            wakes += 1;
            assert!(
                wakes < 1_000_000,
                "the timer fires without end at {:?}",
                self.now()
            );
        }
        self.advance_to(end);
        wakes
    }
}

type Looped = (Cache<u32, u32>, Loop, Record<u32, Duration>);

/// A cache on the loop, with a record of its notifications and their times.
fn on_a_loop() -> Looped {
    let (timer, heard) = (Loop::default(), Record::new());
    let (at, record) = (timer.clone(), heard.clone());
    let clock = timer.0.lock().unwrap().clock.clone();
    let cache = Cache::builder()
        .expire_after(accessing(|_: &u32, &value: &u32| {
            (value > 0).then(|| secs(u64::from(value)))
        }))
        .ticker(clock)
        .scheduler(Scheduler::custom(timer.clone()))
        .removal_listener(move |key: &u32, _: &u32, cause| record.note(key, &at.now(), cause))
        .build();
    (cache, timer, heard)
}

#[track_caller]
fn told_in_time(heard: &Record<u32, Duration>, key: u32, deadline: Duration) {
    let heard = heard.take();
    let [(told, at, Expired)] = heard[..] else {
        panic!("heard {heard:?}")
    };
    assert_eq!(told, key);
    assert!(
        deadline <= at && at <= deadline + SPAN,
        "due at {deadline:?}, delivered at {at:?}"
    );
}

#[test]
fn the_loop_delivers_every_expiry_in_time() {
    let (cache, timer, heard) = on_a_loop();
    let mut dice = Dice::new(3);
    let lives: Vec<Duration> = (0..500)
        .map(|_| {
            let bits = dice.below(56);
            nanos((1 << bits) + dice.below(1 << bits))
        })
        .collect();
    for (key, life) in (0..).zip(&lives) {
        cache.insert_with_ttl(key, 0, *life);
    }
    let wakes = timer.run_to(YEAR * 10);
    assert!(wakes < 500 * 12, "{wakes} wake-ups for 500 entries");
    assert_eq!(cache.entry_count(), 0);
    let heard = heard.take();
    assert_eq!(heard.len(), 500);
    for (key, at, cause) in heard {
        let deadline = lives[key as usize];
        assert_eq!(cause, Expired);
        assert!(
            deadline <= at && at <= deadline + SPAN,
            "due at {deadline:?}, delivered at {at:?}"
        );
    }
    assert_eq!(timer.due(), None, "nothing scheduled, nothing armed");
}

#[test]
fn no_wake_up_without_a_deadline() {
    let (cache, timer, _heard) = on_a_loop();
    for key in 0..50 {
        cache.insert(key, 0);
        cache.get(&key);
    }
    let wakes = timer.run_to(YEAR);
    assert!(wakes <= 2, "{wakes} wake-ups for entries that never expire");
    assert_eq!(timer.due(), None);
    let sets = timer.sets();
    timer.run_to(YEAR * 2);
    assert_eq!(timer.sets(), sets);
}

#[test]
fn an_earlier_deadline_arms_the_timer_anew() {
    let (cache, timer, heard) = on_a_loop();
    cache.insert(1, 3_600);
    timer.run_to(secs(10));
    assert!(cache.set_expiry(&1, Some(secs(5))));
    timer.run_to(secs(30));
    told_in_time(&heard, 1, secs(15));

    // A neighbour with a shorter lifetime.
    cache.insert(1, 3_600);
    timer.run_to(secs(40));
    cache.insert(2, 3);
    timer.run_to(secs(60));
    told_in_time(&heard, 2, secs(43));

    // A read that shortens: the fixed lifetime is replaced by the policy's answer for the value.
    cache.insert_with_ttl(3, 4, HOUR);
    timer.run_to(secs(70));
    assert_eq!(cache.get(&3), Some(4));
    timer.run_to(secs(90));
    told_in_time(&heard, 3, secs(74));

    // From never to soon.
    cache.insert(4, 0);
    timer.run_to(secs(100));
    cache.insert(4, 2);
    timer.run_to(secs(110));
    let heard: Vec<_> = heard
        .take()
        .into_iter()
        .filter(|notice| notice.2 == Expired)
        .collect();
    assert!(matches!(heard[..], [(4, at, Expired)] if at >= secs(102) && at <= secs(102) + SPAN));
}

#[test]
fn a_deadline_put_off_again_and_again_costs_few_wake_ups() {
    let (cache, timer, heard) = on_a_loop();
    cache.insert(1, 100);
    let mut wakes = 0;
    for beat in 1..=500 {
        wakes += timer.run_to(secs(beat * 10));
        assert_eq!(cache.get(&1), Some(100));
    }
    assert_eq!(heard.take(), []);
    // The pass visits a heartbeat entry when its old deadline passes, not at each heartbeat.
    assert!(wakes <= 300, "{wakes} wake-ups while 500 beats came in");
    timer.run_to(secs(6_000));
    told_in_time(&heard, 1, secs(5_100));
}

#[test]
fn spurious_runs_are_harmless() {
    let (cache, timer, heard) = on_a_loop();
    cache.insert(1, 10);
    let task = timer
        .0
        .lock()
        .unwrap()
        .armed
        .clone()
        .expect("armed for the insert")
        .1;
    for _ in 0..100 {
        let again = task.run();
        assert!(
            again.is_some_and(|wait| wait > Duration::ZERO && wait <= secs(10) + SPAN),
            "{again:?}"
        );
    }
    timer.advance_to(secs(10) - NS);
    task.clone().run();
    assert_eq!(heard.take(), []);
    timer.advance_to(secs(10));
    assert_eq!(task.run(), None, "all due work is done, and none is left");
    told_in_time(&heard, 1, secs(10));
}

#[test]
fn the_task_holds_the_cache_weakly() {
    let timer = Loop::default();
    let census = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::builder()
        .ticker(timer.0.lock().unwrap().clock.clone())
        .scheduler(Scheduler::custom(timer.clone()))
        .build();
    cache.insert_with_ttl(1, census.counted(0), secs(1));
    let task = timer
        .0
        .lock()
        .unwrap()
        .armed
        .take()
        .expect("armed for the insert")
        .1;
    drop(cache);
    assert_eq!(census.alive(), 0);
    timer.advance_to(HOUR);
    assert_eq!(task.run(), None);
    assert_eq!(std::thread::spawn(move || task.run()).join().unwrap(), None);
}

#[test]
fn the_last_handle_may_be_dropped_inside_the_listener_of_a_run() {
    let timer = Loop::default();
    let slot: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let (last, heard) = (Arc::clone(&slot), Record::new());
    let record = heard.clone();
    let cache = Cache::builder()
        .ticker(timer.0.lock().unwrap().clock.clone())
        .scheduler(Scheduler::custom(timer.clone()))
        .removal_listener(move |key: &u32, value: &u32, cause| {
            record.note(key, value, cause);
            drop(last.lock().unwrap().take());
        })
        .build();
    for key in 0..10 {
        cache.insert_with_ttl(key, key, secs(1));
    }
    *slot.lock().unwrap() = Some(cache);
    let end = timer.clone();
    must_end(move || end.run_to(HOUR));
    assert_eq!(
        heard.take_sorted(),
        (0..10).map(|key| (key, key, Expired)).collect::<Vec<_>>()
    );
}

#[test]
fn the_loop_delivers_explicit_removals() {
    let (cache, timer, heard) = on_a_loop();
    cache.insert(1, 1_000);
    timer.run_to(secs(1));
    cache.invalidate(&1);
    timer.run_to(secs(5));
    assert!(matches!(heard.take()[..], [(1, _, Explicit)]));
    timer.run_to(secs(20));
    assert_eq!(
        timer.due(),
        None,
        "the removed entry's deadline wakes no thread"
    );
}

#[test]
fn a_deadline_does_not_delay_the_run_for_memory_that_readers_hold() {
    let (timer, census) = (Loop::default(), Census::default());
    let cache: Cache<u32, Counted<u32>> = Cache::builder()
        .ticker(timer.0.lock().unwrap().clock.clone())
        .scheduler(Scheduler::custom(timer.clone()))
        .build();
    cache.insert(0, census.counted(0));
    cache.insert(1, census.counted(0));
    let held = cache.get_ref(&0).expect("present");
    cache.invalidate(&1);
    // The run after the removal finds that a reader may still use the value, and asks for another
    // run.
    assert!(timer.turn(secs(1)), "a removal is something to do");
    let again = timer.due().expect("comes back for the memory");
    assert!(again < secs(1), "{again:?}");
    assert_eq!(census.alive(), 2);
    cache.insert_with_ttl(2, census.counted(0), HOUR);
    cache.insert_with_ttl(3, census.counted(0), HOUR / 2);
    let due = timer.due().expect("still armed");
    assert!(due <= again, "put off from {again:?} to {due:?}");
    drop(held);
    timer.run_to(secs(10));
    assert_eq!(census.alive(), 3, "no run came for the removed value");
}

#[test]
fn an_alarm_that_panicked_is_asked_again_by_the_next_write() {
    hide_scripted_panics();
    let panics = |call: &dyn Fn()| catch_unwind(AssertUnwindSafe(call)).is_err();
    // The request for a deadline.
    let (cache, timer, heard) = on_a_loop();
    timer.fail(1);
    assert!(panics(&|| cache.insert(1, 5)));
    cache.insert(2, 100);
    timer.run_to(secs(10));
    told_in_time(&heard, 1, secs(5));

    // A run earlier than the one arranged.
    let (cache, timer, heard) = on_a_loop();
    cache.insert(1, 100);
    timer.fail(1);
    assert!(panics(&|| cache.insert(2, 5)));
    cache.insert(3, 50);
    timer.run_to(secs(10));
    told_in_time(&heard, 2, secs(5));

    // The request for a delivery.
    let (cache, timer, heard) = on_a_loop();
    cache.insert(1, 0);
    cache.insert(2, 0);
    timer.fail(1);
    assert!(panics(&|| cache.invalidate(&1)));
    cache.invalidate(&2);
    timer.run_to(secs(1));
    assert_eq!(heard.count(), 2);

    // The request made by a run: it tries once more, and that fails too.
    let (cache, timer, heard) = on_a_loop();
    cache.insert(1, 5);
    cache.insert(2, 50);
    timer.fail(2);
    assert!(panics(&|| _ = timer.run_to(secs(10))));
    told_in_time(&heard, 1, secs(5));
    timer.advance_to(secs(10));
    cache.insert(3, 100);
    timer.run_to(secs(60));
    told_in_time(&heard, 2, secs(50));
}

#[test]
fn runs_for_a_long_reader_become_rarer_and_then_stop() {
    let (timer, census) = (Loop::default(), Census::default());
    let cache: Cache<u32, Counted<u32>> = Cache::builder()
        .ticker(timer.0.lock().unwrap().clock.clone())
        .scheduler(Scheduler::custom(timer.clone()))
        .build();
    cache.insert(0, census.counted(0));
    cache.insert(1, census.counted(0));
    let held = cache.get_ref(&0).expect("present");
    cache.invalidate(&1);
    let mut pauses = Vec::new();
    while timer.turn(HOUR) {
        pauses.extend(timer.due().map(|again| again - timer.now()));
        assert!(pauses.len() < 100, "for ever");
    }
    assert!(pauses.len() > 4 && pauses[0] < millis(100), "{pauses:?}");
    assert!(pauses[0] > millis(1), "at once: {pauses:?}");
    assert!(
        pauses.windows(2).all(|two| two[1] == two[0] * 2),
        "{pauses:?}"
    );
    assert!(pauses.iter().sum::<Duration>() < secs(60), "{pauses:?}");
    assert_eq!(census.alive(), 2);
    drop(held);
    // The next write succeeds.
    cache.insert(2, census.counted(0));
    cache.invalidate(&2);
    timer.run_to(HOUR);
    assert_eq!(census.alive(), 1);
}

#[test]
fn one_run_removes_a_mass_of_due_entries_and_tells_of_all() {
    const MANY: u32 = 20_000;
    let (timer, heard) = (Loop::default(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&heard);
    let cache = Cache::builder()
        .ticker(timer.0.lock().unwrap().clock.clone())
        .scheduler(Scheduler::custom(timer.clone()))
        .removal_listener(move |_: &u32, _: &u32, _| _ = count.fetch_add(1, Ordering::SeqCst))
        .build();
    (0..MANY).for_each(|key| cache.insert_with_ttl(key, key, secs(5)));
    cache.run_pending_tasks();
    timer.0.lock().unwrap().clock.advance(secs(9));
    let task = timer.0.lock().unwrap().armed.take().expect("it is armed").1;
    // The tables shrink afterwards.
    _ = task.run();
    assert_eq!(
        (cache.entry_count(), heard.load(Ordering::SeqCst)),
        (0, MANY)
    );
}

/// The thread of the event loop serves other work, too.
#[test]
fn a_run_ends_although_each_delivery_posts_another_notification() {
    const CAP: u32 = 200_000;
    let (timer, heard) = (Loop::default(), Arc::new(Mutex::new(0)));
    let (slot, count) = (
        Arc::new(Mutex::new(None::<Cache<u32, u32>>)),
        Arc::clone(&heard),
    );
    let handle = Arc::clone(&slot);
    let cache = Cache::builder()
        .ticker(timer.0.lock().unwrap().clock.clone())
        .scheduler(Scheduler::custom(timer.clone()))
        .removal_listener(move |&key: &u32, &value: &u32, _| {
            *count.lock().unwrap() += 1;
            let cache = handle.lock().unwrap().clone();
            if let Some(cache) = cache {
                if value < CAP {
                    cache.insert(key, value + 1);
                    // Posts the notification that the earlier value was replaced.
                    cache.run_pending_tasks();
                }
            }
        })
        .build();
    *slot.lock().unwrap() = Some(cache.clone());
    cache.insert(1, 0);
    cache.insert(1, 1);
    let (shared, run) = (timer.clone(), Arc::clone(&heard));
    must_end(move || {
        assert!(shared.turn(Duration::MAX));
        assert!(*run.lock().unwrap() < CAP / 10, "it went on to the end");
    });
    assert!(*heard.lock().unwrap() > 0);
    assert!(timer.due().is_some(), "notifications are left");
    slot.lock().unwrap().take();
}

#[test]
fn inserts_that_never_end_wake_no_thread_however_the_cache_grows() {
    let timer = Loop::default();
    let cache: Cache<u32, u32> = Cache::builder()
        .scheduler(Scheduler::custom(timer.clone()))
        .build();
    (0..100_000).for_each(|key| cache.insert(key, 0));
    assert!(timer.0.lock().unwrap().armed.is_none());
}

#[test]
fn a_table_that_grew_costs_the_loop_a_few_runs() {
    let timer = Loop::default();
    let clock = timer.0.lock().unwrap().clock.clone();
    // Bounded, so that each write requests a run. A run finishes the work that it finds, in however
    // many steps.
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(1_000_000)
        .ticker(clock)
        .scheduler(Scheduler::custom(timer.clone()))
        .build();
    for keys in 0..20 {
        (0..10_000).for_each(|key| cache.insert(keys * 10_000 + key, 0));
        let wakes = timer.run_to(timer.now() + secs(10));
        assert!((1..20).contains(&wakes), "{wakes} runs");
    }
}

#[test]
fn readers_that_overlap_do_not_stop_the_runs_that_free_memory() {
    let timer = Loop::default();
    let clock = timer.0.lock().unwrap().clock.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock)
        .scheduler(Scheduler::custom(timer.clone()))
        .build();
    (0..100).for_each(|key| cache.insert(key, 0));
    std::thread::scope(|threads| {
        // One thread each: all pins of one thread count as one.
        let hold = || {
            let (held, hold) = std::sync::mpsc::channel();
            let (release, released) = std::sync::mpsc::channel::<()>();
            let cache = &cache;
            let reader = threads.spawn(move || {
                let entry = cache.peek_ref(&0);
                held.send(entry.is_some()).unwrap();
                _ = released.recv();
            });
            assert!(hold.recv().unwrap());
            (reader, release)
        };
        let mut reader = hold();
        for key in 1..30 {
            cache.invalidate(&key);
            assert!(timer.turn(timer.now() + secs(1)));
            // This reader holds the value that was just removed, which the next run tries to free.
            assert!(timer.0.lock().unwrap().armed.is_some(), "{key}");
            // The next reader begins before this one ends.
            let (former, release) = std::mem::replace(&mut reader, hold());
            drop(release);
            former.join().unwrap();
        }
    });
}

/// What falls due while a run waits for the listener is a part of that run.
#[test]
fn a_run_does_what_falls_due_while_it_waits_for_the_listener() {
    let (on_loop, has_run) = (Loop::default(), Arc::new(AtomicBool::new(false)));
    let handle: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let cache: Cache<u32, u32> = {
        let (timer, handle, has_run) = (on_loop.clone(), handle.clone(), has_run.clone());
        Cache::builder()
            .ticker(on_loop.0.lock().unwrap().clock.clone())
            .scheduler(Scheduler::custom(on_loop.clone()))
            .removal_listener(move |&key: &u32, _: &u32, _| {
                let cache = handle.lock().unwrap().clone();
                if let (1, Some(cache)) = (key, cache) {
                    timer.advance_to(secs(40));
                    while cache.entry_count() > 0 && !has_run.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                }
            })
            .build()
    };
    *handle.lock().unwrap() = Some(cache.clone());
    cache.insert_with_ttl(1, 1, secs(5));
    cache.insert_with_ttl(2, 2, secs(20));
    let run = || {
        let armed = on_loop.0.lock().unwrap().armed.take();
        armed.expect("a deadline was set").1.run()
    };
    // The first one arranges the run for the deadline.
    run();
    on_loop.advance_to(secs(10));
    run();
    has_run.store(true, Ordering::SeqCst);
    assert_eq!(cache.entry_count(), 0);
    *handle.lock().unwrap() = None;
}
