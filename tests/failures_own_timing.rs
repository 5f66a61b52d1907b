//! Defects that were found by reading, each with the program that showed it: what is told to
//! timers, and which moment counts.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use support::secs;
use wheelhouse::{Alarm, Cache, EvictionPolicy, MaintenanceTask, ManualTicker, Scheduler};

/// Keeps what it was told last.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Option<(Duration, MaintenanceTask)>>>);

impl Alarm for Noted {
    fn set(&self, after: Duration, task: MaintenanceTask) {
        *self.0.lock().unwrap() = Some((after, task));
    }
}

type Heirs = Cache<u32, Heir>;

/// A value that puts another in when it is dropped.
struct Heir(Option<Arc<OnceLock<Heirs>>>);

impl Drop for Heir {
    fn drop(&mut self) {
        if let Some(cache) = self.0.take().and_then(|cell| cell.get().cloned()) {
            cache.insert_with_ttl(2, Self(None), secs(5));
        }
    }
}

/// The clock was not read where the wheel had nothing left, and the moment since wished for was
/// told as if it were now 0.
#[test]
fn a_wish_made_during_a_run_that_leaves_nothing_is_told_as_a_time_from_now() {
    let (ticker, alarm) = (ManualTicker::new(), Noted::default());
    let cell = Arc::new(OnceLock::new());
    let cache: Heirs = Cache::builder()
        .ticker(ticker.clone())
        .scheduler(Scheduler::custom(alarm.clone()))
        .build();
    _ = cell.set(cache.clone());
    ticker.advance(secs(3600));
    cache.insert(1, Heir(Some(Arc::clone(&cell))));
    cache.invalidate(&1);
    // Whichever of the runs frees the value: what is told last is no later than the heir's life.
    for _ in 0..4 {
        cache.run_pending_tasks();
        if cache.contains_key(&2) {
            break;
        }
    }
    assert!(cache.contains_key(&2));
    let told = alarm.0.lock().unwrap().as_ref().map(|(after, _)| *after);
    assert!(told.is_some_and(|after| after <= secs(10)), "told {told:?}");
    // The cell holds the cache, and the cache the cell.
    cache.invalidate_all();
}

/// Takes five seconds of the cache's time to be cloned.
struct Slow(ManualTicker, String);

impl Clone for Slow {
    fn clone(&self) -> Self {
        self.0.advance(secs(5));
        Self(self.0.clone(), self.1.clone())
    }
}

/// The idle limit counted from before the clone, and an entry that died under it came back.
#[test]
fn an_idle_limit_counts_from_after_the_clone() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, Slow> = Cache::builder()
        .ticker(ticker.clone())
        .time_to_idle(secs(10))
        .build();
    cache.insert(1, Slow(ticker.clone(), "one".into()));
    assert!(cache.get(&1).is_some());
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), Some(secs(10)));
    ticker.advance(secs(9));
    assert!(cache.get(&1).is_none(), "it fell due under the clone");
    assert!(!cache.contains_key(&1), "and does not come back");
}

/// Where no time of writing is known it was taken for an early one, and the entry for nearly dead.
#[test]
fn an_entry_whose_age_is_not_known_is_not_given_up_for_a_life_that_has_just_begun() {
    let cache: Cache<&str, u32> = Cache::builder()
        .ticker(ManualTicker::new())
        .max_capacity(2)
        .eviction_policy(EvictionPolicy::Lru)
        .build();
    cache.insert("a", 1);
    cache.insert("b", 2);
    cache.run_pending_tasks();
    assert!(cache.set_expiry("b", Some(Duration::from_millis(800))));
    cache.insert("c", 3);
    cache.run_pending_tasks();
    assert!(cache.contains_key("b"), "younger than a, and alive");
    assert!(!cache.contains_key("a"));
}

/// It was compared before it was rounded up.
#[test]
fn a_resolution_that_rounds_up_to_the_finest_is_taken() {
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

/// Tells each time that it is set.
struct Counted(mpsc::Sender<()>);

impl Alarm for Counted {
    fn set(&self, _: Duration, _: MaintenanceTask) {
        _ = self.0.send(());
    }
}

/// A value whose destructor waits for the alarm, and a little more.
struct Waits {
    begun: mpsc::Sender<()>,
    set: Arc<Mutex<mpsc::Receiver<()>>>,
    ended: Arc<AtomicBool>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let set = self.set.lock().unwrap();
        while set.try_recv().is_ok() {}
        self.begun.send(()).unwrap();
        _ = set.recv_timeout(secs(20));
        std::thread::sleep(Duration::from_millis(50));
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// `run_pending_tasks` waited for what another thread was dropping, a second at most, and told the
/// alarm afterwards.
#[test]
fn who_waits_for_a_destructor_has_told_the_alarm_before() {
    let (tell, set) = mpsc::channel();
    let cache: Cache<u32, Option<Waits>> = Cache::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::custom(Counted(tell)))
        .build();
    let (begun, has_begun) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let waits = Waits {
        begun,
        set: Arc::new(Mutex::new(set)),
        ended: Arc::clone(&ended),
    };
    cache.insert_with_ttl(1, None, secs(3600));
    cache.insert(2, Some(waits));
    cache.invalidate(&2);
    let dropping = std::thread::spawn({
        let cache = cache.clone();
        move || (0..3).for_each(|_| cache.run_pending_tasks())
    });
    has_begun.recv().unwrap();
    cache.run_pending_tasks();
    assert!(ended.load(Ordering::SeqCst), "it was not told in time");
    dropping.join().unwrap();
}
