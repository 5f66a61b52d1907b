//! What a pin costs: a hit alone, beside threads that sleep, and in turns over many caches.
//!
//! ```text
//! cargo run --release -p wheelhouse-models --example pins
//! cargo run --release -p wheelhouse-models --example pins --features crossbeam-epoch
//! cargo run --release -p wheelhouse-models --example pins -- hit 20
//! ```
//!
//! The first argument names one table (hit, sleepers, turns, first), the second the rounds of each
//! cell. Each cell is the median of its rounds, whose cells are measured in turns.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse::{Cache, Scheduler};

type Numbers = Cache<u64, u64>;

/// Keys of the caches for hits; all of them stay in the processor's caches.
const KEYS: u64 = 1_000;
/// Hits of one cell in one round.
const HITS: u64 = 2_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let table = arguments.next();
    let rounds = arguments
        .next()
        .map_or(9, |n| n.parse().expect("a number of rounds"));
    let is_wanted = |name: &str| table.as_deref().is_none_or(|table| table == name);
    let scheme = if cfg!(feature = "crossbeam-epoch") {
        "crossbeam-epoch"
    } else {
        "own epochs"
    };
    println!("{scheme}, nanoseconds: median (least) of {rounds} rounds\n");
    if is_wanted("hit") {
        hit(rounds);
    }
    if is_wanted("sleepers") {
        sleepers(rounds);
    }
    if is_wanted("turns") {
        turns(rounds);
    }
    if is_wanted("first") {
        first(rounds);
    }
}

fn cache() -> Numbers {
    Cache::builder().scheduler(Scheduler::disabled()).build()
}

fn filled(lifetime: Option<Duration>) -> Numbers {
    let cache = cache();
    for key in 0..KEYS {
        match lifetime {
            Some(lifetime) => cache.insert_with_ttl(key, key, lifetime),
            None => cache.insert(key, key),
        }
    }
    cache.run_pending_tasks();
    cache
}

fn nanos_each(count: u64, run: impl FnOnce()) -> f64 {
    let began = Instant::now();
    run();
    began.elapsed().as_nanos() as f64 / count as f64
}

fn hits(cache: &Numbers) -> f64 {
    nanos_each(HITS, || {
        for n in 0..HITS {
            black_box(cache.get(&(n % KEYS)));
        }
    })
}

/// Measures all cells in turns, so many times, and prints a line for each.
fn lines(rounds: usize, mut cells: Vec<(String, Box<dyn FnMut() -> f64 + '_>)>) {
    let mut times = vec![Vec::new(); cells.len()];
    for _ in 0..rounds {
        for (cell, times) in cells.iter_mut().zip(&mut times) {
            times.push((cell.1)());
        }
    }
    for ((name, _), mut times) in cells.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!(
            "| {name} | {:.1} ({:.1}) |",
            times[times.len() / 2],
            times[0]
        );
    }
    println!();
}

fn hit(rounds: usize) {
    println!("| a hit | ns |\n|---|---|");
    let plain = filled(None);
    let timed = filled(Some(Duration::from_secs(3_600)));
    let held = filled(None);
    let _pinned = held.get_ref(&0);
    lines(
        rounds,
        vec![
            ("without deadline".into(), Box::new(|| hits(&plain))),
            ("with a deadline".into(), Box::new(|| hits(&timed))),
            ("beside a held reference".into(), Box::new(|| hits(&held))),
            (
                "a replacement".into(),
                Box::new(|| {
                    nanos_each(HITS / 10, || {
                        (0..HITS / 10).for_each(|n| plain.insert(n % KEYS, n));
                    })
                }),
            ),
        ],
    );
}

fn sleepers(rounds: usize) {
    println!("| sleeping threads that once used the cache | ns for a hit |\n|---|---|");
    let caches: Vec<_> = [0, 64, 512].map(|count| (count, filled(None))).into();
    let mut asleep = Vec::new();
    for (count, cache) in &caches {
        for _ in 0..*count {
            let cache = cache.clone();
            let (used, is_used) = mpsc::channel();
            let (end, wait) = mpsc::channel::<()>();
            thread::spawn(move || {
                black_box(cache.get(&0));
                used.send(()).expect("a listener");
                _ = wait.recv();
            });
            is_used.recv().expect("a thread that uses the cache");
            asleep.push(end);
        }
    }
    let cells = caches.iter().map(|(count, cache)| {
        let run: Box<dyn FnMut() -> f64> = Box::new(move || hits(cache));
        (count.to_string(), run)
    });
    lines(rounds, cells.collect());
}

fn turns(rounds: usize) {
    const CALLS: u64 = 400_000;
    println!("| caches in turns in one thread | ns for a hit |\n|---|---|");
    let groups: Vec<(u64, Vec<Numbers>)> = [1, 10, 40, 400, 4_000]
        .map(|count| {
            let caches = (0..count).map(|_| {
                let cache = cache();
                cache.insert(1, 1);
                cache.run_pending_tasks();
                cache
            });
            (count, caches.collect())
        })
        .into();
    let cells = groups.iter().map(|(count, caches)| {
        let run: Box<dyn FnMut() -> f64> = Box::new(move || {
            let rounds = CALLS / *count;
            nanos_each(rounds * *count, || {
                for _ in 0..rounds {
                    for cache in caches {
                        black_box(cache.get(&1));
                    }
                }
            })
        });
        (count.to_string(), run)
    });
    lines(rounds, cells.collect());
}

fn first(rounds: usize) {
    println!("| caches in the thread so far | ns for the first insert into the next |\n|---|---|");
    let mut times = Vec::new();
    for _ in 0..rounds {
        let mut caches = Vec::new();
        let mut row = Vec::new();
        for until in [100, 1_000, 8_000] {
            while caches.len() < until {
                let cache = cache();
                cache.insert(1, 1);
                caches.push(cache);
            }
            let fresh: Vec<_> = (0..100).map(|_| cache()).collect();
            row.push((
                until,
                nanos_each(100, || fresh.iter().for_each(|cache| cache.insert(1, 1))),
            ));
        }
        times.push(row);
    }
    for column in 0..3 {
        let mut cell: Vec<_> = times.iter().map(|row| row[column].1).collect();
        cell.sort_by(f64::total_cmp);
        println!(
            "| {} | {:.0} ({:.0}) |",
            times[0][column].0,
            cell[cell.len() / 2],
            cell[0]
        );
    }
    println!();
}
