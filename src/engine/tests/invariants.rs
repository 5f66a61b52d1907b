//! The invariants of map, wheel and size policy hold after random operations, and their check finds
//! what is wrong.

use crate::{Cache, CacheBuilder, ManualTicker, RandomState, expiry};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;
use std::time::Duration;

fn lifetime(choice: u8) -> Option<Duration> {
    (choice % 5 != 0).then(|| Duration::from_nanos(u64::from(choice) << (choice % 48)))
}

/// Runs operations of three bytes each, and checks after each one, or after each tenth so that
/// batches fill up in between.
fn run(
    builder: CacheBuilder<u8, u8, RandomState>,
    ops: &[(u8, u8, u8)],
    often: bool,
) -> Cache<u8, u8> {
    let clock = ManualTicker::new();
    let cache = builder.ticker(clock.clone()).build();
    for (step, &(kind, key, value)) in ops.iter().enumerate() {
        match kind % 10 {
            0..=2 => cache.insert(key, value),
            3 => cache.insert_with_ttl(key, value, lifetime(value).unwrap_or_default()),
            4 => drop(cache.get(&key)),
            5 => drop(cache.set_expiry(&key, lifetime(value))),
            6 => cache.invalidate(&key),
            7 => clock.advance(lifetime(value).unwrap_or_default()),
            8 if value % 8 == 0 => cache.invalidate_all(),
            8 => cache.retain(|_, kept| kept % 2 == 0),
            _ if value % 2 == 0 => cache.run_pending_tasks(),
            _ => drop(cache.next_maintenance_in()),
        }
        if often || step % 10 == 9 {
            cache.engine().check_invariants();
        }
    }
    cache.engine().check_invariants();
    cache
}

fn ops() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    vec(any::<(u8, u8, u8)>(), 1..400)
}

fn parts() -> impl Strategy<Value = usize> {
    proptest::sample::select(vec![1, 2, 16])
}

fn by_value() -> impl crate::Expiry<u8, u8> {
    expiry::accessing(|_: &u8, value: &u8| lifetime(*value))
}

proptest! {
    // XorShift: without optimization ChaCha would take most of the time.
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    })]

    #[test]
    fn invariants_hold_without_a_bound(
        ops in ops(),
        often in any::<bool>(),
        policy in any::<bool>(),
        parts in parts(),
    ) {
        let builder = Cache::builder().parts(parts);
        run(if policy { builder.expire_after(by_value()) } else { builder }, &ops, often);
    }

    #[test]
    fn invariants_hold_near_a_bound(
        ops in ops(),
        often in any::<bool>(),
        max in 0..40u64,
        parts in parts(),
    ) {
        let builder = Cache::builder().parts(parts).expire_after(by_value()).max_capacity(max);
        let cache = run(builder, &ops, often);
        prop_assert!(cache.entry_count() <= max);
    }

    #[test]
    fn invariants_hold_with_limits(
        ops in ops(),
        often in any::<bool>(),
        live in any::<u8>(),
        idle in any::<u8>(),
        parts in parts(),
    ) {
        let mut builder = Cache::builder().parts(parts).expire_after(by_value());
        if let Some(live) = lifetime(live) {
            builder = builder.time_to_live(live);
        }
        if let Some(idle) = lifetime(idle) {
            builder = builder.time_to_idle(idle);
        }
        run(builder, &ops, often);
    }
}

/// A cache with one timed entry, and a way to corrupt it.
fn broken(how: impl FnOnce(&Cache<u8, u8>)) {
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .max_capacity(10)
        .build();
    cache.insert_with_ttl(1, 1, Duration::from_secs(1));
    cache.engine().check_invariants();
    how(&cache);
    cache.engine().check_invariants();
}

fn node(cache: &Cache<u8, u8>) -> crate::node::NodePtr<u8, u8> {
    let mut found = None;
    cache.engine().each_node(|node| found = Some(node));
    found.expect("one entry is in the map")
}

#[test]
#[should_panic(expected = "an entry with the deadline")]
fn the_check_finds_an_entry_that_the_wheel_lost() {
    broken(|cache| {
        let node = node(cache);
        cache.engine().parts[0].state.lock().wheel.deschedule(node);
    });
}

#[test]
#[should_panic(expected = "the size policy does not know")]
fn the_check_finds_an_entry_that_the_size_policy_lost() {
    broken(|cache| {
        let node = node(cache);
        let mut state = cache.engine().parts[0].state.lock();
        state.eviction.as_mut().expect("bounded").removed(node);
    });
}

#[test]
#[should_panic(expected = "entries in the wheel against those in the map")]
fn the_check_finds_a_removed_entry_left_in_the_wheel() {
    broken(|cache| {
        let engine = cache.engine();
        let node = node(cache);
        engine.parts[0]
            .state
            .lock()
            .eviction
            .as_mut()
            .expect("bounded")
            .removed(node);
        let mut shard = engine.map.lock(node.hash());
        let occupied = shard.find_node(node.hash(), node).expect("in the map");
        shard.remove_without_event(occupied);
        // The last owner frees what the map holds; this node has to be freed apart.
        let mut state = engine.parts[0].state.lock();
        state.freeing.retire(node.shard(), node);
    });
}
