//! Several threads use a few keys on a clock that wraps meanwhile, and the totals balance: each
//! pair is stored or was delivered once, the statistics are what the listener received and the
//! callers were answered, and the weights add up.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crate::support::record::Record;
use crate::support::{Dice, nanos};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced, Size};
use wheelhouse::{Cache, CacheBuilder, EvictionPolicy, Expiry, ManualTicker, Ticker};

const THREADS: u64 = 4;
const STEPS: u64 = 6_000;
const KEYS: u64 = 24;

/// Values are numbered; the weight of a value follows from its number.
fn weight(serial: u64) -> u32 {
    (serial % 5) as u32
}

/// Answers of all kinds, by the value: keep, expire at once, shorten, extend, never.
struct Whims;

fn whim(turn: u64, left: Option<Duration>) -> Option<Duration> {
    match turn % 7 {
        0 => None,
        1 => left,
        2 => Some(Duration::ZERO),
        3 => left.map(|left| left / 2),
        4 => Some(nanos(turn % 997)),
        5 => Some(Duration::MAX),
        _ => Some(nanos(5)),
    }
}

impl Expiry<u64, u64> for Whims {
    fn expire_after_create(&self, _: &u64, value: &u64, _: Instant) -> Option<Duration> {
        whim(*value, None)
    }

    fn expire_after_update(
        &self,
        _: &u64,
        value: &u64,
        _: Instant,
        left: Option<Duration>,
    ) -> Option<Duration> {
        whim(value / 7, left)
    }

    fn expire_after_read(
        &self,
        _: &u64,
        value: &u64,
        _: Instant,
        left: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        whim(value / 49, left)
    }
}

/// What all callers together were answered.
#[derive(Default)]
struct Answers {
    written: AtomicU64,
    found: AtomicU64,
    missed: AtomicU64,
}

impl Answers {
    fn next(&self) -> u64 {
        self.written.fetch_add(1, SeqCst)
    }

    fn looked_up<T>(&self, found: Option<T>) {
        let count = if found.is_some() {
            &self.found
        } else {
            &self.missed
        };
        count.fetch_add(1, SeqCst);
    }
}

fn mix(cache: &Cache<u64, u64>, clock: &ManualTicker, answers: &Answers, seed: u64) {
    let mut dice = Dice::new(seed);
    for _ in 0..STEPS {
        let key = dice.below(KEYS);
        match dice.below(100) {
            0..28 => cache.insert(key, answers.next()),
            28..48 => cache.insert_with_ttl(key, answers.next(), nanos(dice.below(4_000))),
            48..58 => answers.looked_up(cache.get(&key)),
            58..64 => answers.looked_up(cache.get_ref(&key)),
            64..68 => {
                let values = cache.get_many(&[key, key + 1, key + 100]);
                values
                    .into_iter()
                    .for_each(|value| answers.looked_up(value));
            }
            68..73 => drop(cache.remove(&key)),
            73..78 => cache.invalidate(&key),
            78..84 => {
                let life = (dice.below(4) > 0).then(|| nanos(dice.below(250)));
                cache.set_expiry(&key, life);
            }
            84..96 => clock.advance(nanos(dice.below(400))),
            96 | 97 => cache.run_pending_tasks(),
            98 => cache.retain(|key, _| key % 2 == 0),
            _ => cache.invalidate_all(),
        }
    }
}

fn weights<'a>(weighed: bool, serials: impl Iterator<Item = &'a u64>) -> u64 {
    let weight = |serial| if weighed { weight(serial) } else { 1 };
    serials.map(|&serial| u64::from(weight(serial))).sum()
}

fn balances(settings: impl FnOnce(CacheBuilder<u64, u64>) -> CacheBuilder<u64, u64>, what: &str) {
    let clock = ManualTicker::starting_at(u64::MAX - 50_000);
    let (heard, answers) = (Record::new(), Answers::default());
    let builder = Cache::builder()
        .ticker(clock.clone())
        .record_stats()
        .removal_listener(heard.listener());
    let cache = settings(builder).build();
    // Bounded caches have a weigher.
    let weighed = cache.policy().max_capacity().is_some();
    let weights = |serials: &mut dyn Iterator<Item = &u64>| weights(weighed, serials);
    std::thread::scope(|threads| {
        for seed in 0..THREADS {
            let (cache, clock, answers) = (&cache, &clock, &answers);
            threads.spawn(move || mix(cache, clock, answers, seed));
        }
    });
    cache.run_pending_tasks();
    assert!(clock.nanos() < 1 << 62, "{what}: the clock has not wrapped");

    let told = heard.take();
    let there: Vec<u64> = cache.iter().map(|entry| *entry).collect();
    let written = answers.written.load(SeqCst);
    let mut serials: Vec<u64> = told.iter().map(|(_, serial, _)| *serial).collect();
    serials.extend(&there);
    serials.sort_unstable();
    assert!(
        serials.into_iter().eq(0..written),
        "{what}: each is stored or delivered once"
    );
    assert_eq!(cache.entry_count(), there.len() as u64, "{what}");
    assert_eq!(cache.weighted_size(), weights(&mut there.iter()), "{what}");
    if let Some(most) = cache.policy().max_capacity() {
        assert!(cache.weighted_size() <= most, "{what}");
    }

    let stats = cache.stats();
    let count = |cause| told.iter().filter(|(_, _, c)| *c == cause).count() as u64;
    for cause in [Expired, Explicit, Replaced, Size] {
        assert_eq!(stats.removals(cause), count(cause), "{what}: {cause}");
        let left = told.iter().filter(|(_, _, c)| *c == cause);
        let weight = weights(&mut left.map(|(_, serial, _)| serial));
        assert_eq!(stats.removed_weight(cause), weight, "{what}: {cause}");
    }
    assert_eq!(stats.insertions() + stats.updates(), written, "{what}");
    assert_eq!(stats.updates(), count(Replaced), "{what}");
    assert_eq!(stats.hits(), answers.found.load(SeqCst), "{what}");
    assert_eq!(stats.misses(), answers.missed.load(SeqCst), "{what}");
    let evicted = told.iter().filter(|(_, _, cause)| cause.was_evicted());
    let evicted = weights(&mut evicted.map(|(_, serial, _)| serial));
    assert_eq!(stats.evicted_weight(), evicted, "{what}");
    assert!(
        count(Expired) > 100 && count(Replaced) > 100,
        "{what}: too little happened"
    );

    cache.invalidate_all();
    cache.run_pending_tasks();
    let left = (cache.entry_count(), cache.weighted_size());
    assert_eq!(
        (left, cache.next_maintenance_in()),
        ((0, 0), None),
        "{what}"
    );
}

#[test]
fn stored_plus_delivered_equals_inserted_without_a_bound() {
    let _shared = crate::beside_others();
    balances(|builder| builder, "plain");
    let vast = |builder: CacheBuilder<u64, u64>| {
        let builder = builder.max_capacity(u64::MAX);
        builder.weigher(|_, &serial| weight(serial))
    };
    balances(vast, "a bound that is never reached");
    balances(|builder| builder.expire_after(Whims), "a policy");
}

#[test]
fn stored_plus_delivered_equals_inserted_with_limits() {
    let _shared = crate::beside_others();
    let limited = |builder: CacheBuilder<u64, u64>| {
        let builder = builder.time_to_idle(nanos(700));
        builder.time_to_live(nanos(2_000))
    };
    balances(limited, "limits");
    balances(
        |builder| limited(builder).expire_after(Whims),
        "a policy too",
    );
}

#[test]
fn stored_plus_delivered_equals_inserted_near_a_bound() {
    let _shared = crate::beside_others();
    for policy in [EvictionPolicy::Adaptive, EvictionPolicy::Lru] {
        for most in [0, 3, 20, 60] {
            let bounded = |builder: CacheBuilder<u64, u64>| {
                let builder = builder.max_capacity(most).eviction_policy(policy);
                builder.weigher(|_, &serial| weight(serial))
            };
            let what = format!("{policy:?} up to {most}");
            balances(bounded, &what);
            balances(|builder| bounded(builder).expire_after(Whims), &what);
        }
    }
}

#[test]
fn no_look_up_finds_a_removed_pair_once_it_was_delivered() {
    let _shared = crate::beside_others();
    let clock = ManualTicker::new();
    let slot: Arc<RwLock<Option<Cache<u64, u64>>>> = Arc::default();
    let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
    let (handle, count) = (Arc::clone(&slot), Arc::clone(&counts));
    let cache = Cache::builder()
        .ticker(clock.clone())
        .max_capacity(50)
        .removal_listener(move |key: &u64, serial: &u64, _| {
            let slot = handle.read().unwrap();
            let cache = slot.as_ref().expect("lent before the first insert");
            let shown = cache.peek_ref(key).map(|entry| *entry);
            let found = [cache.get(key), shown].contains(&Some(*serial));
            count[usize::from(found)].fetch_add(1, SeqCst);
        })
        .build();
    *slot.write().unwrap() = Some(cache.clone());
    let answers = Answers::default();
    std::thread::scope(|threads| {
        for seed in 0..3 {
            let (cache, clock, answers) = (&cache, &clock, &answers);
            threads.spawn(move || mix(cache, clock, answers, seed));
        }
    });
    cache.run_pending_tasks();
    drop(slot.write().unwrap().take());
    let [gone, found] = counts.each_ref().map(|count| count.load(SeqCst));
    assert_eq!(
        (gone + cache.entry_count(), found),
        (answers.written.load(SeqCst), 0)
    );
}
