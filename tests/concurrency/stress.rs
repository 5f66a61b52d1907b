//! Threads mix every operation for some seconds, on a real clock, with lifetimes from microseconds
//! to seconds. At the end each pair that was inserted is either still stored or was delivered
//! exactly once, and no value is left in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::Dice;
use crate::support::census::{Census, Counted};
use wheelhouse::RemovalCause::{Expired, Size};
use wheelhouse::{Cache, Expiry, Scheduler};

const KEYS: u64 = 2_000;
const THREADS: usize = 4;
const RUN: Duration = Duration::from_secs(3);

/// One inserted value: its number among all, its key, the policy's answer for it, and whether no
/// reader may ever see it.
struct Ware {
    number: usize,
    key: u64,
    lives: [Option<Duration>; 3],
    slow: bool,
    still_born: bool,
    weight: u32,
}

type Key = Counted<u64>;
type Value = Counted<Ware>;

struct AsLabelled;

impl Expiry<Key, Value> for AsLabelled {
    fn expire_after_create(&self, key: &Key, value: &Value, _: Instant) -> Option<Duration> {
        assert_eq!(key.payload, value.payload.key);
        value.payload.lives[0]
    }

    fn expire_after_update(
        &self,
        key: &Key,
        value: &Value,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        assert_eq!(key.payload, value.payload.key);
        if value.payload.slow {
            left
        } else {
            value.payload.lives[1]
        }
    }

    fn expire_after_read(
        &self,
        key: &Key,
        value: &Value,
        read_at: Instant,
        left: Option<Duration>,
        last_modified_at: Instant,
    ) -> Option<Duration> {
        assert_eq!(key.payload, value.payload.key);
        // The counters of two processors agree to well below this.
        assert!(last_modified_at <= read_at + Duration::from_micros(100));
        if value.payload.slow {
            left
        } else {
            value.payload.lives[2]
        }
    }
}

/// For each value ever inserted, how often and why it was delivered.
struct Ledger {
    told: Vec<AtomicU8>,
    expired: AtomicUsize,
    size: AtomicUsize,
    mixed_up: AtomicU32,
    next: AtomicUsize,
}

impl Ledger {
    fn new() -> Arc<Self> {
        Arc::new(Ledger {
            told: (0..8_000_000).map(|_| AtomicU8::new(0)).collect(),
            expired: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            mixed_up: AtomicU32::new(0),
            next: AtomicUsize::new(0),
        })
    }

    fn times(&self, number: usize) -> u8 {
        self.told[number].load(Ordering::SeqCst)
    }
}

struct Run {
    cache: Cache<Key, Value>,
    capacity: u64,
    ledger: Arc<Ledger>,
    census: Census,
}

impl Run {
    fn new(scheduler: Scheduler, resolution: Duration, capacity: u64) -> Run {
        let ledger = Ledger::new();
        let book = Arc::clone(&ledger);
        let cache = Cache::builder()
            .expire_after(AsLabelled)
            .expiry_resolution(resolution)
            .scheduler(scheduler)
            .max_capacity(capacity)
            .weigher(|_, value: &Value| value.payload.weight)
            .removal_listener(move |key: &Key, value: &Value, cause| {
                book.told[value.payload.number].fetch_add(1, Ordering::SeqCst);
                let count = match cause {
                    Expired => Some(&book.expired),
                    Size => Some(&book.size),
                    _ => None,
                };
                count.map(|count| count.fetch_add(1, Ordering::Relaxed));
                if key.payload != value.payload.key {
                    book.mixed_up.fetch_add(1, Ordering::Relaxed);
                }
            })
            .build();
        Run {
            cache,
            capacity,
            ledger,
            census: Census::default(),
        }
    }

    fn life(dice: &mut Dice) -> Option<Duration> {
        match dice.below(10) {
            0 => None,
            1 => Some(Duration::ZERO),
            2..=4 => Some(Duration::from_micros(dice.below(500))),
            5..=8 => Some(Duration::from_millis(dice.below(100))),
            _ => Some(Duration::from_millis(dice.below(5_000))),
        }
    }

    /// With a bound mostly small, now and then more than the cache can hold; without a bound any
    /// weight.
    fn weight(&self, dice: &mut Dice) -> u32 {
        if self.capacity == u64::MAX || dice.below(500) == 0 {
            dice.roll() as u32
        } else {
            dice.below(4) as u32
        }
    }

    /// A new pair; none if the ledger is full, which ends the run early on a very fast machine.
    fn pair(&self, dice: &mut Dice, key: u64) -> Option<(Key, Value)> {
        let number = self.ledger.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.ledger.told.len() {
            self.ledger.next.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let lives = [(); 3].map(|()| Self::life(dice));
        let ware = Ware {
            number,
            key,
            lives,
            slow: dice.below(3) == 0,
            still_born: false,
            weight: self.weight(dice),
        };
        Some((self.census.counted(key), self.census.counted(ware)))
    }

    fn mix(&self, seed: u64, end: Instant) {
        let mut dice = Dice::new(seed);
        let probe = Census::default();
        let check = |key: u64, value: &Value| {
            assert_eq!(key, value.payload.key, "a value under another's key");
            assert!(
                !value.payload.still_born,
                "an entry with a lifetime of zero was seen"
            );
        };
        for step in 0u64.. {
            if step % 256 == 0 && Instant::now() >= end {
                return;
            }
            // Some keys are popular.
            let keys = if dice.below(3) == 0 { 8 } else { KEYS };
            let key = dice.below(keys);
            let sought = probe.counted(key);
            match dice.below(1_000) {
                0..=399 => {
                    let Some((key, value)) = self.pair(&mut dice, key) else {
                        return;
                    };
                    self.cache.insert(key, value);
                }
                400..=499 => {
                    let life = Self::life(&mut dice).unwrap_or(Duration::from_secs(1));
                    let Some((key, mut value)) = self.pair(&mut dice, key) else {
                        return;
                    };
                    value.payload.still_born = life.is_zero();
                    self.cache.insert_with_ttl(key, value, life);
                }
                500..=749 => {
                    if let Some(entry) = self.cache.get_ref(&sought) {
                        check(key, &entry);
                        assert_eq!(entry.key().payload, key);
                    }
                }
                750..=799 => {
                    if let Some(entry) = self.cache.peek_ref(&sought) {
                        check(key, &entry);
                    }
                }
                800..=849 => drop(self.cache.set_expiry(&sought, Self::life(&mut dice))),
                850..=949 => self.cache.invalidate(&sought),
                950..=989 => drop(self.cache.contains_key(&sought)),
                990..=994 => self.cache.run_pending_tasks(),
                995..=997 => {
                    for entry in self.cache.iter().take(200) {
                        check(entry.key().payload, &entry);
                    }
                }
                998 if dice.below(10) == 0 => self.cache.invalidate_all(),
                _ => self.cache.retain(|key, value| {
                    check(key.payload, value);
                    value.payload.number % 5 != 0
                }),
            }
        }
    }

    fn check(self) {
        let Run {
            cache,
            capacity,
            ledger,
            census,
        } = self;
        let inserted = ledger.next.load(Ordering::SeqCst);
        cache.run_pending_tasks();
        assert!(cache.weighted_size() <= capacity);
        let (mut alive, mut weight) = (vec![false; inserted], 0);
        for entry in &cache {
            let number = entry.payload.number;
            assert!(!alive[number], "value {number} is there twice");
            alive[number] = true;
            weight += u64::from(entry.payload.weight);
        }
        assert!(weight <= capacity, "{weight} of {capacity}");
        // A value seen alive may have expired since; every value that was not seen must have been
        // delivered.
        cache.run_pending_tasks();
        for (number, alive) in alive.iter().enumerate() {
            let times = ledger.times(number);
            assert!(
                times == 1 || (times == 0 && *alive),
                "value {number} of {inserted} was delivered {times} times"
            );
        }
        cache.invalidate_all();
        cache.run_pending_tasks();
        for number in 0..inserted {
            let times = ledger.times(number);
            assert_eq!(
                times, 1,
                "value {number} of {inserted} was delivered {times} times in the end"
            );
        }
        assert_eq!((cache.entry_count(), cache.weighted_size()), (0, 0));
        assert_eq!(
            ledger.mixed_up.load(Ordering::SeqCst),
            0,
            "delivered with another value's key"
        );
        assert!(
            inserted > 1_000 && ledger.expired.load(Ordering::SeqCst) > 100,
            "too little happened in the run"
        );
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!(census.alive(), 0, "keys and values left in memory");
        drop(cache);
        assert_eq!(census.alive(), 0);
    }

    fn stress(self) {
        let end = Instant::now() + RUN;
        std::thread::scope(|threads| {
            for seed in 0..THREADS as u64 {
                let run = &self;
                threads.spawn(move || run.mix(seed, end));
            }
        });
        self.check();
    }
}

// One after the other, so that each has the machine to itself.
#[test]
fn each_pair_is_stored_or_delivered_once_and_nothing_leaks() {
    let _alone = crate::alone();
    let (fine, coarse) = (Duration::from_millis(1), Duration::from_nanos(1 << 30));
    Run::new(Scheduler::background(), fine, u64::MAX).stress();
    Run::new(Scheduler::disabled(), coarse, u64::MAX).stress();
    let bounded = Run::new(Scheduler::background(), fine, 300);
    let ledger = Arc::clone(&bounded.ledger);
    bounded.stress();
    assert!(
        ledger.size.load(Ordering::SeqCst) > 100,
        "the bound was not met"
    );
}
