//! Threads whose callbacks panic now and then: each pair whose insert returned is delivered once or
//! still there, no other pair is, the statistics agree, and all keys and values are dropped.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::{Dice, hide_scripted_panics, millis, nanos};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced, Size};
use wheelhouse::{Cache, Expiry, Scheduler};

thread_local! {
    /// Present on the threads whose callbacks panic.
    static DICE: RefCell<Option<Dice>> = const { RefCell::new(None) };
}

fn may_panic() {
    let panics = DICE.with_borrow_mut(|dice| dice.as_mut().is_some_and(|dice| dice.below(97) == 0));
    assert!(!panics, "told to panic");
}

struct Key(Counted<u64>);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        may_panic();
        (self.0.payload % 64).hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        may_panic();
        self.0.payload == other.0.payload
    }
}

impl Eq for Key {}

struct Value(Counted<u64>, Census);

impl Clone for Value {
    fn clone(&self) -> Self {
        may_panic();
        Self(self.1.counted(self.0.payload), self.1.clone())
    }
}

struct Policy;

impl Expiry<Key, Value> for Policy {
    fn expire_after_create(&self, _: &Key, value: &Value, _: Instant) -> Option<Duration> {
        may_panic();
        let number = value.0.payload;
        (number % 3 != 0).then(|| Duration::from_micros(number % 3_000))
    }

    fn expire_after_update(
        &self,
        key: &Key,
        value: &Value,
        at: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_read(key, value, at, left, at)
    }

    fn expire_after_read(
        &self,
        _: &Key,
        value: &Value,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        may_panic();
        match value.0.payload {
            even if even % 2 == 0 => left,
            odd => Some(Duration::from_micros(odd % 2_000)),
        }
    }
}

/// One operation, chosen by chance; the number of its value if it was an insert.
fn operate(
    cache: &Cache<Key, Value>,
    census: &Census,
    number: u64,
    dice: &mut Dice,
) -> Option<u64> {
    let key = Key(census.counted(dice.below(100)));
    let value = || Value(census.counted(number), census.clone());
    let life = Duration::from_micros(dice.below(1_000));
    match dice.below(200) {
        0..80 => cache.insert(key, value()),
        80..100 => cache.insert_with_ttl(key, value(), life),
        choice => {
            match choice {
                100..130 => drop(cache.get(&key)),
                130..150 => drop(cache.get_ref(&key)),
                150..160 => _ = cache.set_expiry(&key, Some(life)),
                160..175 => drop(cache.remove(&key)),
                175..195 => cache.invalidate(&key),
                195 | 196 => cache.run_pending_tasks(),
                197 | 198 => cache.retain(|_, value| {
                    may_panic();
                    value.0.payload % 3 == 0
                }),
                _ => cache.invalidate_all(),
            }
            return None;
        }
    }
    Some(number)
}

fn run(bound: u64, idle: Duration, scheduler: Scheduler) {
    let (census, heard, calls) = (Census::default(), Record::new(), AtomicU64::new(0));
    let record = heard.clone();
    let cache = Cache::builder()
        .max_capacity(bound)
        .weigher(|_: &Key, value: &Value| {
            may_panic();
            (value.0.payload % 5) as u32
        })
        .expire_after(Policy)
        .time_to_idle(idle)
        .expiry_resolution(nanos(1 << 16))
        .scheduler(scheduler)
        .record_stats()
        .removal_listener(move |_: &Key, value: &Value, cause| {
            record.note(&value.0.payload, &(), cause);
            let call = calls.fetch_add(1, Ordering::SeqCst);
            assert!(call % 50 != 0, "told to panic in the listener");
        })
        .build();
    let returned = Mutex::new(HashSet::new());
    std::thread::scope(|threads| {
        for thread in 1..=3u64 {
            let (cache, census, returned) = (&cache, &census, &returned);
            threads.spawn(move || {
                DICE.set(Some(Dice::new(thread)));
                let mut dice = Dice::new(thread + 100);
                for step in 0..6_000 {
                    let number = (thread << 32) + step;
                    let call = || operate(cache, census, number, &mut dice);
                    if let Ok(Some(number)) = catch_unwind(AssertUnwindSafe(call)) {
                        returned.lock().unwrap().insert(number);
                    }
                }
                DICE.set(None);
            });
        }
    });
    cache.invalidate_all();
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!((cache.entry_count(), cache.weighted_size()), (0, 0));
    assert_eq!(census.alive(), 0, "dropped after three calls");
    let (heard, stats) = (heard.take(), cache.stats());
    for cause in [Expired, Explicit, Replaced, Size] {
        let told = heard.iter().filter(|told| told.2 == cause).count();
        assert_eq!(stats.removals(cause), told as u64, "{cause:?}");
    }
    let count = heard.len() as u64;
    assert_eq!(stats.insertions() + stats.updates(), count);
    assert_eq!(stats.updates(), stats.removals(Replaced));
    assert_eq!(stats.listener_panics(), count.div_ceil(50));
    let told: HashSet<u64> = heard.iter().map(|told| told.0).collect();
    assert_eq!(told.len(), heard.len(), "delivered twice");
    assert!(told == returned.into_inner().unwrap());
}

#[test]
fn panics_of_callbacks_in_many_threads_lose_and_deliver_no_pair_wrongly() {
    let _shared = crate::beside_others();
    hide_scripted_panics();
    for bound in [0, 40, u64::MAX] {
        for idle in [millis(1), Duration::MAX] {
            run(bound, idle, Scheduler::background());
            run(bound, idle, Scheduler::disabled());
        }
    }
}
