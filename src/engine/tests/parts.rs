//! Caches of several parts: their common bound, and parts that do not wait for each other.

use super::super::pass::Plan;
use crate::{Cache, Delivery, EvictionPolicy, ManualTicker, RemovalCause, Scheduler, Ticker};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Keyed = Cache<u64, u64>;

fn part_of(cache: &Keyed, key: u64) -> usize {
    let engine = cache.engine();
    engine.number_of_part(engine.map.shard_of(cache.hash(&key)))
}

/// Keys of one part, from `first` on.
fn keys_of(cache: &Keyed, part: usize, first: u64) -> impl Iterator<Item = u64> + '_ {
    (first..).filter(move |&key| part_of(cache, key) == part)
}

fn weights(cache: &Keyed) -> Vec<u64> {
    cache
        .engine()
        .parts
        .iter()
        .map(|part| part.weight())
        .collect()
}

fn bounded(parts: usize, max: u64) -> Keyed {
    Cache::builder()
        .parts(parts)
        .max_capacity(max)
        .ticker(ManualTicker::new())
        .build()
}

const MAX: u64 = 8_000;

/// The contract for a cache between two passes.
fn ceiling(max: u64) -> u64 {
    max + max / 4 + 256
}

#[test]
fn all_keys_in_one_part_may_fill_the_cache_and_give_way_to_others() {
    for parts in [2, 16] {
        let cache = bounded(parts, MAX);
        keys_of(&cache, 1, 0)
            .take(MAX as usize)
            .for_each(|key| cache.insert(key, key));
        cache.run_pending_tasks();
        assert_eq!(
            cache.entry_count(),
            MAX,
            "an entry was refused for its part"
        );
        assert_eq!(weights(&cache)[1], MAX);
        // Keys of all parts.
        for key in 1_000_000..1_000_000 + 4 * MAX {
            cache.insert(key, key);
            assert!(cache.entry_count() <= ceiling(MAX));
        }
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), MAX);
        let equal = MAX / parts as u64;
        for (part, weight) in weights(&cache).into_iter().enumerate() {
            assert!(
                weight >= equal / 3,
                "{weight} of {equal} in part {part} of {parts}"
            );
        }
        cache.engine().check_invariants();
    }
}

#[test]
fn a_smaller_bound_takes_from_all_parts_alike() {
    let cache = bounded(16, MAX);
    (0..2 * MAX).for_each(|key| cache.insert(key, key));
    cache.run_pending_tasks();
    for max in [MAX / 2, MAX / 8, 32] {
        cache.policy().set_max_capacity(max);
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), max);
        let equal = max / 16;
        for weight in weights(&cache) {
            assert!(weight <= equal + 16, "{:?} of {max}", weights(&cache));
        }
    }
    cache.engine().check_invariants();
}

/// With fewer entries than parts, a new key pushes out one of another part.
#[test]
fn no_part_stays_empty_under_a_tiny_bound() {
    let cache = bounded(16, 16_000);
    (0..100).for_each(|key| cache.insert(key, key));
    cache.policy().set_max_capacity(1);
    cache.run_pending_tasks();
    for key in 100..200 {
        cache.insert(key, key);
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 1);
    }
    let filled = weights(&cache).into_iter().position(|weight| weight == 1);
    let mut seen = vec![filled];
    for key in 200..400 {
        cache.insert(key, key);
        cache.run_pending_tasks();
        seen.push(weights(&cache).into_iter().position(|weight| weight == 1));
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 2, "the entry stays in the parts {seen:?}");
}

/// The bound shrinks and grows while writers fill one part only, then another one.
#[test]
fn a_bound_that_moves_holds_while_parts_are_uneven() {
    for parts in [2, 16] {
        let cache = bounded(parts, MAX);
        let mut next = 0;
        for round in 0..40_u64 {
            let max = [MAX, MAX / 4, 3 * MAX, 100, MAX / 2][round as usize % 5];
            cache.policy().set_max_capacity(max);
            let before = cache.entry_count();
            let part = (round * 7) as usize % parts;
            let keys: Vec<u64> = keys_of(&cache, part, next).take(3_000).collect();
            next = keys[keys.len() - 1] + 1;
            std::thread::scope(|threads| {
                for some in keys.chunks(1_500) {
                    let cache = &cache;
                    threads.spawn(move || {
                        for &key in some {
                            cache.insert(key, key);
                            assert!(cache.entry_count() <= ceiling(max.max(before)));
                        }
                    });
                }
            });
            cache.run_pending_tasks();
            assert!(cache.entry_count() <= max);
            let expected = max.min(before + keys.len() as u64);
            assert_eq!(
                cache.entry_count(),
                expected,
                "round {round} of {parts} parts"
            );
            cache.engine().check_invariants();
        }
    }
}

/// A new entry weighs as much as a thousand that leave: a pass that evicts one for each that came
/// in does not keep up. Only writers evict here.
#[test]
fn heavy_entries_exceed_the_bound_of_many_parts_no_further_than_that_of_one() {
    const HEAVY: u64 = 1_000;
    const LIGHT: u64 = 100_000;
    for parts in [1, 16] {
        let cache: Keyed = Cache::builder()
            .parts(parts)
            .max_capacity(LIGHT)
            // The light ones leave first.
            .eviction_policy(EvictionPolicy::Lru)
            .weigher(|_, weight| *weight as u32)
            .ticker(ManualTicker::new())
            .build();
        (0..LIGHT).for_each(|key| cache.insert(key, 1));
        cache.run_pending_tasks();
        let mut most = 0;
        for key in LIGHT..LIGHT + 20_000 {
            cache.insert(key, HEAVY);
            most = most.max(cache.weighted_size());
        }
        // As many as a shard's full batch, and what waits in the batches of all.
        assert!(most < 2 * 1_024 * HEAVY, "{most} with {parts} parts");
    }
}

/// Where a thread of its own expires entries, writers that are sooner do not evict live ones.
#[test]
fn what_is_due_in_any_part_leaves_before_a_live_entry() {
    const LIFE: Duration = Duration::from_secs(60);
    for parts in [1, 2, 16] {
        let clock = ManualTicker::new();
        let told: Arc<Mutex<Vec<RemovalCause>>> = Arc::default();
        let tell = Arc::clone(&told);
        let cache: Keyed = Cache::builder()
            .parts(parts)
            .max_capacity(MAX)
            .ticker(clock.clone())
            .scheduler(Scheduler::custom(super::Deaf))
            .removal_listener(move |_: &u64, _: &u64, cause| tell.lock().unwrap().push(cause))
            .build();
        (0..MAX / 2).for_each(|key| cache.insert_with_ttl(key, key, LIFE));
        (MAX / 2..MAX).for_each(|key| cache.insert(key, key));
        cache.run_pending_tasks();
        clock.advance(2 * LIFE);
        (MAX..MAX + MAX / 4).for_each(|key| cache.insert(key, key));
        cache.run_pending_tasks();
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(told.len() as u64, MAX / 2);
        let is_expired = |cause: &RemovalCause| *cause == RemovalCause::Expired;
        assert!(
            told.iter().all(is_expired),
            "a live entry left one of {parts} parts"
        );
    }
}

#[test]
fn views_and_snapshots_merge_the_orders_of_the_parts() {
    for parts in [2, 16] {
        let cache = bounded(parts, MAX);
        (0..MAX).for_each(|key| cache.insert(key, key));
        for _ in 0..6 {
            (0..50).for_each(|key| _ = cache.get(&key));
            cache.run_pending_tasks();
        }
        let policy = cache.policy();
        let mut hottest: Vec<u64> = policy.hottest(50).map(|entry| *entry.key()).collect();
        let saved: Vec<u64> = cache
            .snapshot()
            .iter()
            .map(|entry| entry.key)
            .take(50)
            .collect();
        assert_eq!(hottest, saved);
        hottest.sort_unstable();
        assert_eq!(hottest, (0..50).collect::<Vec<_>>());
        let all = MAX as usize;
        let mut first: Vec<u64> = policy
            .first_to_evict(all)
            .map(|entry| *entry.key())
            .collect();
        let few: Vec<u64> = policy
            .first_to_evict(100)
            .map(|entry| *entry.key())
            .collect();
        assert_eq!(few, first[..100]);
        // The first victims come from all parts.
        let mut of_parts: Vec<usize> = few.iter().map(|&key| part_of(&cache, key)).collect();
        of_parts.sort_unstable();
        of_parts.dedup();
        assert_eq!(of_parts.len(), parts);
        first.sort_unstable();
        assert_eq!(first, (0..MAX).collect::<Vec<_>>());
    }
}

thread_local!(static STOPS: Cell<bool> = const { Cell::new(false) });

/// A clock that stops one thread in the middle of a pass.
#[derive(Clone, Default)]
struct Stopping {
    time: ManualTicker,
    stopped: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
}

impl Ticker for Stopping {
    fn nanos(&self) -> u64 {
        if STOPS.get() {
            self.stopped.store(true, Ordering::SeqCst);
            while !self.go_on.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        self.time.nanos()
    }
}

/// Lets the thread go on when the test ends, also by a panic.
struct GoesOn(Arc<AtomicBool>);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_part_whose_pass_is_stopped_does_not_hold_up_the_others() {
    const LIFE: Duration = Duration::from_secs(60);
    for delivery in [Delivery::Caller, Delivery::Background] {
        let clock = Stopping::default();
        let told: Arc<Mutex<Vec<(u64, RemovalCause)>>> = Arc::default();
        let tell = Arc::clone(&told);
        let cache: Keyed = Cache::builder()
            .parts(16)
            .max_capacity(MAX)
            .ticker(clock.clone())
            .scheduler(Scheduler::disabled())
            .delivery(delivery)
            .removal_listener(move |&key: &u64, _: &u64, cause| {
                tell.lock().unwrap().push((key, cause));
            })
            .build();
        (0..MAX).for_each(|key| cache.insert_with_ttl(key, key, LIFE));
        cache.run_pending_tasks();
        told.lock().unwrap().clear();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let engine = cache.engine();
                let mut state = engine.parts[3].state.lock();
                STOPS.set(true);
                engine.pass(&mut state, Plan::RUN);
            });
            let _go_on = GoesOn(Arc::clone(&clock.go_on));
            while !clock.stopped.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // The others evict.
            let others = (MAX..).filter(|&key| part_of(&cache, key) != 3);
            for key in others.take(2 * MAX as usize) {
                cache.insert(key, key);
                assert!(cache.entry_count() <= ceiling(MAX));
            }
            let evicted = |&(_, cause): &(u64, RemovalCause)| cause == RemovalCause::Size;
            assert!(cache.entry_count() <= MAX + MAX / 8);
            let is_told = || {
                let told = told.lock().unwrap();
                told.iter().filter(|one| evicted(one)).count() as u64 > MAX
            };
            while !is_told() {
                std::thread::yield_now();
            }
            // They expire what is due.
            clock.time.advance(2 * LIFE);
            let expired = || {
                let told = told.lock().unwrap();
                let expired = |one: &&(u64, RemovalCause)| one.1 == RemovalCause::Expired;
                told.iter().filter(expired).count()
            };
            let others = (9 * MAX..).filter(|&key| part_of(&cache, key) != 3);
            for key in others.take(10 * MAX as usize) {
                cache.insert(key, key);
                if expired() > 1_000 {
                    break;
                }
            }
            assert!(expired() > 1_000, "only {} have expired", expired());
        });
        cache.run_pending_tasks();
        assert!(cache.entry_count() <= MAX);
        cache.engine().check_invariants();
    }
}

/// Whether a cache is small follows from the entries of all its parts.
#[test]
fn a_cache_with_few_entries_in_each_part_is_not_small() {
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(100_000)
        .weigher(|_, _| 1)
        .parts(16)
        .ticker(ManualTicker::new())
        .build();
    let is_small = || cache.engine().batch_soft_limit.load(Ordering::Relaxed) == 1;
    assert!(is_small(), "it is empty");
    (0..640).for_each(|key| cache.insert(key, 0));
    cache.run_pending_tasks();
    assert!(!is_small());
}
