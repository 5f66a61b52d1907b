//! What only private state shows: when memory may be freed, and when a writer helps.

mod delivering;
mod flood;
mod helping;
mod invariants;
mod parts;
mod succession;
mod waking;

use super::State;
use super::pass::{Drain, Evict, Pass, Plan};
use super::writers::{BATCH_HARD_LIMIT, BATCH_SOFT_LIMIT, SOFT_LIMITS_PER_BOUND, batch_soft_limit};
use crate::buffer::Renewals;
use crate::eviction::Eviction;
use crate::node::NodePtr;
use crate::{Cache, ManualTicker};
use std::sync::mpsc;
use std::time::Duration;

/// A scheduler that does nothing. With it, callers do not drop what was removed either.
struct Deaf;

impl crate::Alarm for Deaf {
    fn set(&self, _: Duration, _: crate::MaintenanceTask) {}
}

/// The node of a key, as long as the entry is in the map.
fn node(cache: &Cache<u32, u32>, key: u32) -> NodePtr<u32, u32> {
    let pin = cache.engine().pin();
    let hit = cache.engine().find_live(cache.hash(&key), &key, &pin);
    hit.expect("it is there").node
}

/// Runs passes of the smallest budget until the one entry that was removed may be freed; returns
/// how many of them left the drain unfinished.
fn drain_by_small_steps(cache: &Cache<u32, u32>) -> usize {
    let engine = cache.engine();
    let least = Plan {
        budget: 1,
        ..Plan::RUN
    };
    let mut in_between = 0;
    for round in 0..100 {
        // Events wait in many shards, so that a pass with so small a budget does not complete a
        // round. A deadline that moves earlier leaves one.
        for key in 0..64 {
            assert!(cache.set_expiry(&key, Some(Duration::from_secs(200 - round))));
        }
        let mut state = engine.parts[0].state.lock();
        while engine.pass_leaves_work(&mut state, least) {
            if state.freeing.ready() > 0 {
                assert_eq!(
                    state.freeing.undrained, 0,
                    "shards whose batches may name what is freed"
                );
                return in_between;
            }
            in_between += usize::from(state.freeing.is_draining());
        }
    }
    panic!("an entry was removed, and is not freed");
}

#[test]
fn nothing_is_freed_before_each_shard_was_drained_after_the_grace_period() {
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(ManualTicker::new())
        .scheduler(crate::Scheduler::custom(Deaf))
        .build();
    (0..500).for_each(|key| cache.insert(key, 0));
    let mut in_between = 0;
    for key in 100..150 {
        cache.run_pending_tasks();
        cache.invalidate(&key);
        in_between += drain_by_small_steps(&cache);
    }
    assert!(in_between > 0, "the test proved nothing");
}

#[test]
fn a_writer_helps_sooner_the_smaller_its_cache() {
    for shards in [1, 2, 8, 64] {
        for share in [
            1,
            2,
            5,
            BATCH_SOFT_LIMIT as u64 - 1,
            BATCH_SOFT_LIMIT as u64,
        ] {
            let max = share * SOFT_LIMITS_PER_BOUND * shards as u64;
            assert_eq!(batch_soft_limit(Some(max), shards), share as usize);
            assert_eq!(
                batch_soft_limit(
                    Some(max + SOFT_LIMITS_PER_BOUND * shards as u64 - 1),
                    shards
                ),
                share as usize
            );
        }
        assert_eq!(batch_soft_limit(Some(0), shards), 1);
        assert_eq!(batch_soft_limit(Some(u64::MAX), shards), BATCH_SOFT_LIMIT);
        assert_eq!(batch_soft_limit(None, shards), BATCH_SOFT_LIMIT);
    }
}

/// Shows when a large cache wants to record another read: `change` makes this many changes that
/// count towards it.
fn assert_the_stamp_is_renewed_by(mut change: impl FnMut(&Cache<u32, u32>, u32)) {
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(100_000)
        .weigher(|_, &weight| weight)
        .ticker(ManualTicker::new())
        .build();
    // Ten changes are one part of a turnover.
    let entries = 10 * Renewals::PER_TURNOVER as u32;
    let write = |weight| (0..entries).for_each(|key| cache.insert(key, weight));
    write(2);
    cache.run_pending_tasks();
    let engine = cache.engine();
    let of_a_writer = Plan {
        drain: Drain::OwnLast(0),
        ..Plan::RUN
    };
    let pass = |plan| {
        while engine.pass_leaves_work(&mut engine.parts[0].state.lock(), plan) {}
    };
    let should_record = || engine.reads.should_record(node(&cache, 1));
    assert!(should_record());
    cache.get(&1);
    assert!(!should_record());
    change(&cache, 10);
    pass(of_a_writer);
    assert!(!should_record(), "after too few changes");
    change(&cache, 1);
    pass(of_a_writer);
    assert!(should_record());
    cache.get(&1);
    change(&cache, 10);
    pass(of_a_writer);
    assert!(!should_record(), "earlier changes count no more");
    // A value that is lighter than the former one evicts nothing.
    write(1);
    pass(of_a_writer);
    assert!(!should_record(), "these writes evict nothing");
    pass(Plan::RUN);
    assert!(
        should_record(),
        "a run separates earlier reads from later ones"
    );
    cache.get(&1);
    cache.insert(1, 1);
    assert!(
        !should_record(),
        "a new value inherits the stamp of its key"
    );
}

#[test]
fn the_stamp_is_renewed_several_times_per_turnover() {
    for writes in [1, 2] {
        let mut next = 1_000_000;
        // A new key written twice before a pass sees it is still one insertion.
        let come = |cache: &Cache<u32, u32>, count| {
            for key in next..next + count {
                (0..writes).for_each(|_| cache.insert(key, 1));
            }
            next += count;
        };
        assert_the_stamp_is_renewed_by(come);
    }
}

#[test]
fn values_that_grow_count_towards_the_next_stamp() {
    let mut weight = 2;
    let grow = |cache: &Cache<u32, u32>, count| {
        weight += 1;
        (2..2 + count).for_each(|key| cache.insert(key, weight));
    };
    assert_the_stamp_is_renewed_by(grow);
}

/// A cache that only serves hits records each entry a few times, and in the end nothing.
#[test]
fn hits_alone_are_soon_recorded_no_more() {
    const ENTRIES: u32 = 2_000;
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(u64::from(ENTRIES))
        .ticker(ManualTicker::new())
        .build();
    (0..ENTRIES).for_each(|key| cache.insert(key, 1));
    cache.run_pending_tasks();
    let reads = &cache.engine().reads;
    let recorded_of_a_round = || {
        let mut recorded = 0;
        for key in 0..ENTRIES {
            recorded += u32::from(reads.should_record(node(&cache, key)));
            cache.get(&key);
        }
        recorded
    };
    let recorded = [(); 4].map(|()| recorded_of_a_round());
    assert_eq!(recorded[0], ENTRIES);
    assert!(
        recorded[1] <= ENTRIES && recorded[2] <= ENTRIES,
        "{recorded:?}"
    );
    assert_eq!(recorded[3], 0, "{recorded:?}");
}

#[test]
fn a_key_written_repeatedly_before_a_pass_stays_in_its_queue() {
    for writes in 1..4 {
        let cache: Cache<u32, u32> = Cache::builder()
            .max_capacity(1_000)
            .ticker(ManualTicker::new())
            .build();
        // The first entries fill the protected queue; entries inserted when the cache is full enter
        // the window.
        for keys in [0..1_000, 1_000..1_100] {
            keys.for_each(|key| cache.insert(key, 0));
            cache.run_pending_tasks();
        }
        let queue = |key| node(&cache, key).entry().queue_id.get();
        let mut late = (1_000..1_100).filter(|key| cache.contains_key(key));
        let window = queue(late.next().expect("some are admitted"));
        let in_protected = |key: &u32| cache.contains_key(key) && queue(*key) != window;
        let last = (0..1_000).rev().find(in_protected);
        let key = last.expect("most of the cache is in the protected queue");
        (0..writes).for_each(|_| cache.insert(key, 1));
        cache.run_pending_tasks();
        assert_ne!(queue(key), window, "after {writes} writes");
        cache.engine().check_invariants();
    }
}

#[test]
fn a_heavy_value_that_was_replaced_before_a_pass_evicts_nothing() {
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(1_000)
        .weigher(|_, &weight| weight)
        .ticker(ManualTicker::new())
        .build();
    for keys in [0..1_000, 1_000..1_100] {
        keys.for_each(|key| cache.insert(key, 1));
        cache.run_pending_tasks();
    }
    let queue = |key| node(&cache, key).entry().queue_id.get();
    let there: Vec<u32> = (0..1_100).filter(|key| cache.contains_key(key)).collect();
    let (first, last) = (there[0], there[there.len() - 1]);
    let window = queue(last);
    let in_protected = || {
        there[1..]
            .iter()
            .filter(|&&key| queue(key) != window)
            .count()
    };
    let before = in_protected();
    cache.insert(first, 900);
    cache.insert(first, 1);
    cache.run_pending_tasks();
    assert_eq!(in_protected(), before);
    assert_eq!(cache.weighted_size(), 1_000);
}

#[test]
fn a_pass_evicts_more_than_was_inserted_but_a_bounded_number() {
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(10_000)
        .ticker(ManualTicker::new())
        .build();
    (0..2_000).for_each(|key| cache.insert(key, 0));
    cache.run_pending_tasks();
    let engine = cache.engine();
    assert!(engine.set_max_capacity(10));
    let plan = Plan {
        budget: 32,
        drain: Drain::OwnLast(0),
        ..Plan::RUN
    };
    for came in [0, 4, 32] {
        let mut state = engine.parts[0].state.lock();
        let len = |state: &State<_, _>| state.eviction.as_ref().map_or(0, Eviction::len);
        let before = len(&state) + came;
        // With the lock held, no insert helps.
        (0..came as u32).for_each(|key| cache.insert(10_000 * (came as u32 + 1) + key, 0));
        assert!(engine.pass_leaves_work(&mut state, plan), "far from done");
        let left = before - len(&state);
        assert!(
            left > came && left <= (came + 16).max(32),
            "{left} left for {came} inserted"
        );
    }
}

#[test]
fn an_entry_that_was_extended_since_the_wheel_gave_it_out_goes_back() {
    let minute = Duration::from_secs(60);
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder().ticker(clock.clone()).build();
    cache.insert_with_ttl(1, 1, minute);
    cache.run_pending_tasks();
    let engine = cache.engine();
    let node = node(&cache, 1);
    let mut state = engine.parts[0].state.lock();
    // The state in which the wheel leaves it.
    state.wheel.deschedule(node);
    Pass::new(engine, &mut state, Plan::RUN).expire_one(node, engine.clock.now());
    drop(state);
    assert_eq!(cache.get(&1), Some(1));
    engine.check_invariants();
    clock.advance(minute);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn far_over_is_more_than_a_full_batch_of_the_heaviest() {
    const HEAVY: u64 = 1_000;
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(4 * HEAVY)
        .weigher(|_, _| HEAVY as u32)
        .ticker(ManualTicker::new())
        .build();
    let engine = cache.engine();
    let drain = Plan {
        budget: usize::MAX,
        evict: Evict::Nothing,
        ..Plan::RUN
    };
    let mut there = 0;
    // With the lock held, and a few at a time: otherwise writers would help and evict.
    for more in [4, 1].into_iter().chain([33; 31]).chain([1, 1]) {
        let mut state = engine.parts[0].state.lock();
        (there..there + more).for_each(|key| cache.insert(key, 0));
        there += more;
        engine.pass(&mut state, drain);
        let over = u64::from(there - 4);
        assert_eq!(state.excess(), over * HEAVY);
        assert_eq!(
            state.is_far_over(1),
            over > BATCH_HARD_LIMIT as u64 + 1,
            "over by {over}"
        );
    }
    assert_eq!(there - 4, BATCH_HARD_LIMIT as u32 + 2);
}

#[test]
fn one_pass_removes_all_that_is_due_within_its_budget() {
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder().ticker(clock.clone()).build();
    let second = Duration::from_secs(1);
    (0..100).for_each(|key| cache.insert_with_ttl(key, 0, second));
    cache.run_pending_tasks();
    clock.advance(10 * second);
    let engine = cache.engine();
    let mut state = engine.parts[0].state.lock();
    assert!(
        !engine.pass_leaves_work(&mut state, Plan::RUN),
        "work is left"
    );
    assert_eq!(engine.map.len(), 0);
}

#[test]
fn a_writer_waits_for_no_pass_before_its_batch_is_full() {
    let cache: Cache<u32, u32> = Cache::builder().ticker(ManualTicker::new()).build();
    let passes = cache.engine().hold_passes();
    let (done, is_done) = mpsc::channel();
    let writer = cache.clone();
    let thread = std::thread::spawn(move || {
        // Twice the number of events that makes a writer help, in all shards.
        (0..2 * (BATCH_SOFT_LIMIT * writer.engine().map.shards()) as u32)
            .for_each(|key| writer.insert(key, 0));
        done.send(()).ok();
    });
    let answer = is_done.recv_timeout(Duration::from_secs(20));
    drop(passes);
    assert_eq!(answer, Ok(()), "waits for the pass");
    thread.join().expect("no panic");
}

/// A cache of this many entries without a scheduler.
fn filled(entries: u32) -> Cache<u32, u32> {
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(ManualTicker::new())
        .scheduler(crate::Scheduler::disabled())
        .build();
    (0..entries).for_each(|key| cache.insert(key, 0));
    cache
}

#[test]
fn a_run_finishes_the_resizing_of_tables() {
    let mut met = [false; 2];
    for entries in (1_000..40_000).step_by(1_000) {
        let cache = filled(entries);
        let map = &cache.engine().map;
        met[0] |= map.units_left() > 0;
        cache.run_pending_tasks();
        assert!(map.units_left() == 0, "{entries}");
        for key in 0..entries * 9 / 10 {
            cache.invalidate(&key);
        }
        met[1] |= map.units_left() > 0;
        cache.run_pending_tasks();
        assert_eq!(map.units_left(), 0, "{entries}, and most of them gone");
        map.check_invariants();
    }
    assert_eq!(met, [true; 2], "the test proved nothing");
}

#[test]
fn a_cache_that_is_dropped_while_resizing_frees_both_arrays() {
    // LeakSanitizer and AddressSanitizer check this.
    let amid = |entries| filled(entries).engine().map.units_left() > 0;
    assert!((1_000..40_000).step_by(1_000).any(amid));
}

#[test]
fn writers_free_the_old_arrays_of_growing_tables() {
    let cache = filled(0);
    let (mut most, mut at_last) = (0, 0);
    for key in 0..300_000 {
        cache.insert(key, 0);
        if key % 64 == 0 {
            at_last = cache.engine().parts[0].state.lock().freeing.held();
            most = most.max(at_last);
        }
    }
    // All arrays except those in use: 300,000 entries, 5 a group, and for each earlier size half
    // as many groups.
    assert!(most > 1_000, "the test proved nothing");
    assert!(at_last < 100, "{at_last} groups are held");
}
