//! Chains of values in one entry, against passes that see only part of them.
//!
//! The test holds the maintenance lock while it writes, so that events gather. In between it runs
//! passes of any plan: some drain nothing, some drain one shard's batch, some remove entries whose
//! event still waits.

use crate::engine::pass::{Drain, Evict, Plan};
use crate::hash::Dice;
use crate::{Cache, CacheBuilder, EvictionPolicy, ManualTicker, Scheduler};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A random weight, and a handle on the counter of live values.
type Value = Box<(u32, Arc<()>)>;

/// A nanosecond to a few minutes.
fn lifetime(dice: &mut Dice) -> Duration {
    Duration::from_nanos(1 << dice.below(38))
}

/// Random settings; returns whether the cache is bounded.
fn builder(dice: &mut Dice, clock: &ManualTicker) -> (CacheBuilder<u64, Value>, bool) {
    let mut builder = Cache::builder()
        .ticker(clock.clone())
        .scheduler(Scheduler::disabled());
    if dice.once_in(3) {
        builder = builder.time_to_idle(Duration::from_millis(700));
    }
    let bounded = !dice.once_in(5);
    if bounded {
        builder = builder.max_capacity(dice.below(24));
        if dice.once_in(2) {
            builder = builder.weigher(|_, value: &Value| value.0);
        }
        if dice.once_in(2) {
            builder = builder.eviction_policy(EvictionPolicy::Lru);
        }
    }
    (builder, bounded)
}

/// A random kind of pass.
fn plan(dice: &mut Dice, shard: usize) -> Plan {
    let drains = [
        Drain::Nothing,
        Drain::All,
        Drain::ByRun,
        Drain::OwnLast(shard),
    ];
    let (expires, sweep_up_to) =
        [(false, 0), (true, 0), (true, usize::MAX)][dice.below(3) as usize];
    let evicts = [Evict::Nothing, Evict::Excess];
    Plan {
        budget: 1 + dice.below(40) as usize,
        drain: drains[dice.below(4) as usize],
        expires,
        sweep_up_to,
        evict: evicts[dice.below(2) as usize],
    }
}

/// A random program on one cache.
fn run(seed: u64) {
    let mut dice = Dice::new(seed);
    let (clock, delivered, shares) = (
        ManualTicker::new(),
        Arc::new(AtomicU64::new(0)),
        Arc::new(()),
    );
    let (mut builder, bounded) = builder(&mut dice, &clock);
    let listens = dice.once_in(2);
    if listens {
        let delivered = Arc::clone(&delivered);
        builder = builder.removal_listener(move |_, _, _| {
            delivered.fetch_add(1, Ordering::Relaxed);
        });
    }
    let cache = builder.build();
    let engine = cache.engine();
    let keys = 1 + dice.below(8);
    let mut made = 0;
    let mut value = |weight: u64| {
        made += 1;
        Box::new((weight as u32, Arc::clone(&shares)))
    };
    for _ in 0..25 {
        // What readers hold is not freed.
        let held = dice.once_in(3).then(|| cache.peek_ref(&0));
        let mut state = engine.parts[0].state.lock();
        let buffered = |shard| engine.map.lock_shard(shard).buffered();
        if (0..engine.map.shards()).map(buffered).sum::<usize>() > 8 {
            // Otherwise the writes below would wait for the lock that this thread holds.
            engine.pass(&mut state, Plan::RUN);
        }
        for _ in 0..dice.below(30) {
            let key = dice.below(keys);
            match dice.below(14) {
                0..=4 => cache.insert(key, value(dice.below(9))),
                5 | 6 => cache.insert_with_ttl(key, value(dice.below(9)), lifetime(&mut dice)),
                7 => drop(cache.get(&key)),
                8 => {
                    let lifetime = (!dice.once_in(3)).then(|| lifetime(&mut dice));
                    cache.set_expiry(&key, lifetime);
                }
                9 => cache.invalidate(&key),
                10 => clock.advance(lifetime(&mut dice) / 16),
                _ => {
                    let shard = engine.map.shard_of(cache.hash(&key));
                    engine.pass(&mut state, plan(&mut dice, shard));
                    state.wheel.check_invariants();
                    if let Some(eviction) = &state.eviction {
                        eviction.check_invariants();
                    }
                }
            }
        }
        let ready = state.freeing.take_ready(dice.below(200) as usize);
        drop(state);
        engine.free(&engine.parts[0], ready);
        drop(held);
        if bounded && dice.once_in(4) {
            engine.set_max_capacity(dice.below(24));
        }
        match dice.below(6) {
            0 => engine.check_invariants(),
            1 => {
                cache.run_pending_tasks();
                let there = (0..keys).filter(|key| cache.contains_key(key)).count();
                assert_eq!(cache.entry_count(), there as u64, "due, and still there");
            }
            _ => {}
        }
    }
    engine.check_invariants();
    cache.invalidate_all();
    (0..3).for_each(|_| cache.run_pending_tasks());
    assert_eq!(
        Arc::strong_count(&shares),
        1,
        "values that were never dropped"
    );
    // The cache is dropped with events that no pass has applied.
    let state = engine.parts[0].state.lock();
    for key in 0..keys {
        cache.insert(key, value(1));
        cache.insert(key, value(1));
        if key % 2 == 0 {
            cache.invalidate(&key);
        }
    }
    let alive = cache.entry_count();
    drop(state);
    drop(cache);
    assert_eq!(
        Arc::strong_count(&shares),
        1,
        "values that outlive the cache"
    );
    if listens {
        assert_eq!(
            delivered.load(Ordering::Relaxed),
            made - alive,
            "once for each"
        );
    }
}

#[test]
fn a_chain_of_values_is_delivered_freed_and_counted_right_whatever_passes_see_of_it() {
    for seed in 1..=300 {
        if let Err(payload) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(payload);
        }
    }
}
