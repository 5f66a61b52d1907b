//! The groups.

use std::{collections::HashMap, hint::black_box};

use criterion::{Criterion, criterion_group};
use wheelhouse::{
    EvictionPolicy,
    parts::{Order, Reads, Table, Timers, Writes},
};
use wheelhouse_bench::keys;

/// An hour, ns.
const HOUR: u64 = 3_600_000_000_000;
/// Reads drawn before the clock starts.
const DRAWN: usize = 1 << 16;

/// The drawn keys over and over.
fn cycled<T: Copy>(drawn: &[T]) -> impl FnMut() -> T + '_ {
    let mut cycle = drawn.iter().cycle();
    move || *cycle.next().expect("goes round")
}

/// Measures one operation of a group.
fn each<T>(criterion: &mut Criterion, group: &str, name: &str, mut operation: impl FnMut() -> T) {
    let mut group = criterion.benchmark_group(group);
    group.bench_function(name, |bencher| bencher.iter(&mut operation));
}

fn map(criterion: &mut Criterion) {
    for (set, resident) in [("11k", keys::SMALL), ("1M", 1_000_000)] {
        let group = &format!("map/{set}");
        // Well mixed numbers: they are their own hashes.
        let mut table = Table::new(8);
        for rank in 0..resident as u64 {
            table.insert(keys::key(rank), keys::key(rank), rank);
        }
        let drawn = keys::keys_of(&keys::uniform_ranks(resident, DRAWN, 0));
        let mut next = cycled(&drawn);
        each(criterion, group, "find", || {
            let key = next();
            table.get(key, key)
        });
        each(criterion, group, "find, absent", || {
            let key = !next();
            table.get(key, key)
        });
        each(criterion, group, "replace", || {
            let key = next();
            table.insert(key, key, 1);
        });
        let mut fresh = resident as u64;
        each(criterion, group, "insert, remove", || {
            fresh += 1;
            let key = keys::key(fresh);
            table.insert(key, key, 1);
            table.remove(key, key)
        });
    }
}

fn wheel(criterion: &mut Criterion) {
    let group = "wheel/start, cancel";
    for (set, alive) in [("100k", 100_000), ("1M", 1_000_000)] {
        let mut timers = Timers::new();
        let mut turn = 0;
        let mut due = || {
            turn += 1;
            1 + keys::key(turn) % HOUR
        };
        let mut started: Vec<u32> = (0..alive).map(|_| timers.start(due())).collect();
        let mut oldest = 0;
        each(criterion, group, set, || {
            let number = timers.start(due());
            timers.cancel(std::mem::replace(&mut started[oldest], number));
            oldest = (oldest + 1) % alive;
        });
    }
    let mut timers = Timers::new();
    let (mut now, mut turn) = (0u64, 0);
    each(criterion, "wheel", "start, fire", || {
        // A timer a millisecond; each goes through two levels.
        now += 1_000_000;
        turn += 1;
        timers.start(now + keys::key(turn) % HOUR);
        timers.advance(now, |number| {
            black_box(number);
        });
    });
}

fn read_rings(criterion: &mut Criterion) {
    let group = "rings";
    let mut reads = Reads::new(1_000, 4);
    let mut number = 0;
    let mut next = move || {
        number += 1;
        number
    };
    each(criterion, group, "not recorded", || {
        reads.should_record(next())
    });
    each(criterion, group, "offer of 32, drain", || {
        (0..32).for_each(|_| reads.offer(next()));
        reads.drain()
    });
}

fn write_batches(criterion: &mut Criterion) {
    let mut writes = Writes::new(1_000);
    let mut number = 0;
    each(criterion, "batches", "push of 64, drain", || {
        (0..64).for_each(|_| {
            number += 1;
            writes.push(number);
        });
        writes.drain()
    });
}

fn size_policy(criterion: &mut Criterion) {
    const MAX: usize = 10_000;
    let policies = [
        ("default", EvictionPolicy::default()),
        ("Lru", EvictionPolicy::Lru),
    ];
    let drawn = keys::keys_of(&keys::zipf_ranks(10 * MAX, DRAWN, 0));
    let ranks = keys::zipf_ranks(MAX, DRAWN, 0);
    for (name, policy) in policies {
        // What the cache's map does is a part of this figure: a hash map in its place.
        let mut order = Order::new(policy, MAX as u64, 1);
        let mut numbers: HashMap<u64, u32, ahash::RandomState> = HashMap::default();
        let mut next = cycled(&drawn);
        each(criterion, "policy/request", name, || {
            let key = next();
            match numbers.get(&key) {
                Some(&number) => order.accessed(number),
                None => {
                    numbers.insert(key, order.admit(key));
                    while let Some((_, victim)) = order.evict() {
                        numbers.remove(&victim);
                    }
                }
            }
        });
        // Of entries that all stay.
        let mut order = Order::new(policy, 2 * MAX as u64, 1);
        let admitted = (0..MAX as u64).map(|rank| order.admit(keys::key(rank)));
        let numbers: Vec<u32> = admitted.collect();
        let mut next = cycled(&ranks);
        each(criterion, "policy/use", name, || {
            order.accessed(numbers[next() as usize]);
        });
    }
}

criterion_group!(benches, map, wheel, read_rings, write_batches, size_policy);
