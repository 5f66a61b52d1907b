//! Tickers that panic, disagree between threads, or jump during an operation. `clocks_that_jump`
//! tests what one clock may show to one thread.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::census::{Census, Counted};
use crate::support::{hide_scripted_panics, millis, secs};
use wheelhouse::compute::Op;
use wheelhouse::expiry::accessing;
use wheelhouse::{
    Alarm, Cache, Leased, MaintenanceTask, ManualTicker, RemovalCause, Scheduler, Ticker,
};

/// A clock that panics at one reading, or at all readings from one on.
#[derive(Clone)]
struct Brittle {
    clock: ManualTicker,
    left: Arc<AtomicI64>,
    for_good: bool,
}

impl Brittle {
    fn new(for_good: bool) -> Self {
        hide_scripted_panics();
        Brittle {
            clock: ManualTicker::new(),
            left: Arc::new(AtomicI64::new(i64::MAX)),
            for_good,
        }
    }

    /// Lets this many readings pass before the panic.
    fn break_after(&self, readings: i64) {
        self.left.store(readings, Ordering::SeqCst);
    }

    /// Works again; true if it has panicked.
    fn mend(&self) -> bool {
        self.left.swap(i64::MAX, Ordering::SeqCst) < 0
    }
}

impl Ticker for Brittle {
    fn nanos(&self) -> u64 {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        assert!(
            left > 0 || (left < 0 && !self.for_good),
            "told to panic in the ticker"
        );
        self.clock.nanos()
    }
}

/// The removals received for each pair: keys count up, so every pair has its own.
type Heard = Arc<Mutex<BTreeMap<u32, Vec<RemovalCause>>>>;

type Tried = (Cache<u32, Counted<u32>>, Brittle, Heard, Census);

fn brittle(kind: usize, for_good: bool) -> Tried {
    let (clock, census, heard) = (Brittle::new(for_good), Census::default(), Heard::default());
    let record = Arc::clone(&heard);
    let builder = Cache::builder()
        .ticker(clock.clone())
        .record_stats()
        .removal_listener(move |_: &u32, value: &Counted<u32>, cause| {
            let mut heard = record.lock().unwrap();
            heard.entry(value.payload).or_default().push(cause);
        });
    let cache = match kind {
        0 => builder.build(),
        1 => builder.max_capacity(40).time_to_idle(secs(4)).build(),
        _ => builder
            .expire_after(accessing(|_: &u32, value: &Counted<u32>| {
                Some(secs(u64::from(value.payload % 5) + 1))
            }))
            .build(),
    };
    (cache, clock, heard, census)
}

/// Some of every operation; each call may panic. Returns how many values were inserted for sure,
/// and how many perhaps.
fn program(tried: &Tried) -> u32 {
    let (cache, clock, _, census) = tried;
    let attempt = |call: &dyn Fn()| _ = catch_unwind(AssertUnwindSafe(call));
    let mut number = 0;
    for round in 0..6u32 {
        for n in 0..60 {
            let key = n * 7 % 50;
            let value = census.counted(number);
            number += 1;
            let life = secs(u64::from(n % 6));
            _ = catch_unwind(AssertUnwindSafe(|| match n % 3 {
                0 => cache.insert(key, value),
                _ => cache.insert_with_ttl(key, value, life),
            }));
            attempt(&|| drop(cache.get(&(key / 2))));
        }
        clock.clock.advance(millis(1_700));
        attempt(&|| _ = cache.set_expiry(&3, Some(secs(1))));
        attempt(&|| cache.invalidate(&4));
        attempt(&|| drop(cache.remove(&5)));
        attempt(&|| cache.retain(|key, _| key % 11 != round % 11));
        attempt(&|| _ = cache.iter().count());
        attempt(&|| _ = cache.next_maintenance_in());
        attempt(&|| cache.run_pending_tasks());
        if round == 3 {
            attempt(&|| cache.invalidate_all());
        }
    }
    number
}

#[test]
fn a_ticker_that_panics_at_any_reading_loses_nothing() {
    for kind in 0..3 {
        for for_good in [false, true] {
            let mut at = 0;
            loop {
                let tried = brittle(kind, for_good);
                tried.1.break_after(at);
                let numbers = program(&tried);
                let broke = tried.1.mend();
                let what = format!("kind {kind}, reading {at}, {for_good}");
                settle(tried, numbers, &what);
                if !broke {
                    break;
                }
                // Every reading at first, then some.
                at += 1 + at / 10;
            }
            assert!(at > 100, "the program read the clock {at} times");
        }
    }
}

/// The clock works again: every entry that is left expires when it is due, each pair was delivered
/// once, and nothing leaks.
fn settle((cache, clock, heard, census): Tried, numbers: u32, what: &str) {
    cache.run_pending_tasks();
    assert_eq!(cache.iter().count() as u64, cache.entry_count(), "{what}");
    let timeless = cache
        .iter()
        .filter(|entry| entry.time_left().is_none())
        .count();
    clock.clock.advance(secs(30));
    // The wheel finds the entries that are left, not only look-ups.
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!(cache.entry_count(), timeless as u64, "{what}");
    assert_eq!(census.alive(), timeless as i64, "{what}");
    cache.invalidate_all();
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!((cache.entry_count(), census.alive()), (0, 0), "{what}");
    assert_eq!(cache.next_maintenance_in(), None, "{what}");
    let heard = heard.lock().unwrap();
    assert!(heard.len() <= numbers as usize, "{what}");
    for (number, causes) in &*heard {
        assert_eq!(
            causes.len(),
            1,
            "{what}: value {number} was delivered as {causes:?}"
        );
    }
    let stats = cache.stats();
    assert_eq!(
        stats.insertions() + stats.updates(),
        heard.len() as u64,
        "{what}"
    );
}

#[test]
fn the_last_drop_frees_everything_though_the_ticker_panics() {
    let (cache, clock, heard, census) = brittle(0, true);
    for key in 0..500 {
        cache.insert_with_ttl(key, census.counted(key), secs(u64::from(key)));
        cache.insert(key / 3, census.counted(key + 1_000));
    }
    clock.break_after(0);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(cache)));
    assert!(dropped.is_ok(), "the drop panicked");
    assert_eq!(census.alive(), 0);
    assert!(
        heard
            .lock()
            .unwrap()
            .values()
            .all(|causes| causes.len() == 1)
    );
}

#[test]
fn a_scheduler_thread_whose_ticker_panicked_tries_again() {
    let clock = Brittle::new(false);
    let (told, tells) = mpsc::channel();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::background())
        .expiry_resolution(millis(1))
        .removal_listener(move |&key: &u32, _: &u32, _| told.send(key).unwrap())
        .build();
    cache.insert_with_ttl(1, 1, millis(100));
    clock.clock.advance(secs(1));
    // The scheduler thread runs after a tenth of a second of real time, and reads the clock.
    clock.break_after(0);
    let heard = tells.recv_timeout(secs(20));
    assert_eq!(heard, Ok(1), "no thread ran again after the panic");
    assert!(
        clock.mend(),
        "no thread read the clock: the test proved nothing"
    );
}

/// A scheduler that remembers its last request.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Option<MaintenanceTask>>>);

impl Alarm for Told {
    fn set(&self, _: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some(task);
    }
}

#[test]
fn an_alarm_is_set_again_when_the_ticker_panicked() {
    let (clock, told) = (Brittle::new(false), Told::default());
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::custom(told.clone()))
        .build();
    cache.insert_with_ttl(1, 1, secs(1));
    clock.clock.advance(secs(5));
    for reading in 0.. {
        clock.break_after(reading);
        let task = told.0.lock().unwrap().take().expect("armed");
        let outcome = catch_unwind(AssertUnwindSafe(|| task.run()));
        if !clock.mend() {
            break;
        }
        assert!(outcome.is_err(), "the panic reaches the loop");
    }
    assert_eq!(cache.entry_count(), 0);
}

thread_local!(static OFF_BY: std::cell::Cell<i64> = const { std::cell::Cell::new(0) });

/// A clock that each thread reads with an error of its own, like a counter that differs from core
/// to core.
#[derive(Clone, Default)]
struct Skewed(Arc<AtomicI64>);

impl Ticker for Skewed {
    fn nanos(&self) -> u64 {
        (self.0.load(Ordering::SeqCst) + OFF_BY.get()) as u64
    }
}

#[test]
fn threads_whose_clocks_differ_by_microseconds_err_by_at_most_that() {
    const ERROR: i64 = 20_000;
    const KEYS: usize = 3_000;
    for reads_extend in [false, true] {
        let clock = Skewed::default();
        let builder = Cache::builder()
            .ticker(clock.clone())
            .expiry_resolution(Duration::from_nanos(1 << 16));
        // If reads may extend, a look-up that finds an expired entry claims it; no read extends
        // here.
        let cache: Cache<u32, u32> = if reads_extend {
            builder
                .expire_after(accessing(|_: &u32, _: &u32| None))
                .build()
        } else {
            builder.build()
        };
        // By key, in true time: before the first moment its entry must be found, from the second on
        // it must not be. 0 while it is not inserted.
        let ends: Vec<[AtomicI64; 2]> = (0..KEYS).map(|_| Default::default()).collect();
        let wrong = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            for (thread, error) in [-ERROR, ERROR, -ERROR / 3, 0].into_iter().enumerate() {
                let (cache, clock, ends, wrong) = (&cache, &clock, &ends, &wrong);
                threads.spawn(move || {
                    OFF_BY.set(error);
                    let mut dice = crate::support::Dice::new(thread as u64);
                    let time = || clock.0.load(Ordering::SeqCst);
                    for step in 0..KEYS * 8 {
                        let new = step / 8;
                        if step % 8 == 0 && new % 4 == thread {
                            // Each key is inserted once, by one thread.
                            let life = dice.below(3_000_000);
                            let from = time();
                            cache.insert_with_ttl(new as u32, 0, Duration::from_nanos(life));
                            let (to, life) = (time(), life as i64);
                            ends[new][1].store(to + life + 2 * ERROR, Ordering::SeqCst);
                            ends[new][0].store(from + life - 2 * ERROR, Ordering::SeqCst);
                        }
                        let key = dice.below(new as u64 + 1) as usize;
                        let [first, last] = [0, 1].map(|n| ends[key][n].load(Ordering::SeqCst));
                        let before = time();
                        let found = cache.peek_ref(&(key as u32)).is_some();
                        let after = time();
                        if first != 0 && !found && after < first {
                            wrong.lock().unwrap().push((key, "early by", first - after));
                        }
                        if first != 0 && found && before >= last {
                            wrong.lock().unwrap().push((key, "late by", before - last));
                        }
                        clock
                            .0
                            .fetch_add(dice.below(2_000) as i64, Ordering::SeqCst);
                        if step % 97 == 0 {
                            cache.run_pending_tasks();
                        }
                    }
                });
            }
        });
        assert_eq!(*wrong.lock().unwrap(), [], "extending: {reads_extend}");
        OFF_BY.set(0);
        clock.0.fetch_add(10_000_000, Ordering::SeqCst);
        cache.run_pending_tasks();
        assert_eq!(
            (cache.entry_count(), cache.next_maintenance_in()),
            (0, None)
        );
    }
}

/// The ticker panics in `invalidate_all`, which has revoked the load of another call: that call
/// continues at once.
#[test]
fn a_ticker_that_panics_in_invalidate_all_leaves_no_call_asleep() {
    let clock = Brittle::new(false);
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        // So few that all stand in one shard, with the load.
        .max_capacity(100)
        .parts(1)
        // No other thread reads the clock.
        .scheduler(Scheduler::disabled())
        .record_stats()
        .build();
    let Leased::Lease(lease) = cache.lease(0) else {
        panic!("no other call loads the key");
    };
    for key in 1..=64 {
        cache.insert_with_ttl(key, 1, secs(5));
    }
    let (done, ends) = mpsc::channel();
    let theirs = cache.clone();
    std::thread::spawn(move || {
        theirs.entry(0).and_compute_with(|_| Op::Nop);
        done.send(()).unwrap();
    });
    while cache.stats().load_waits() == 0 {
        std::thread::yield_now();
    }
    clock.break_after(30);
    let all = catch_unwind(AssertUnwindSafe(|| cache.invalidate_all()));
    assert!(clock.mend() && all.is_err());
    assert!(!lease.is_current());
    assert!(ends.recv_timeout(secs(20)).is_ok(), "the call sleeps");
    cache.run_pending_tasks();
    assert!(cache.entry_count() < 64, "some were removed");
}
