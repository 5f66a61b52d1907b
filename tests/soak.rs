//! Churn for `SOAK_SECONDS`, with samples of what the process and the caches hold: all of it has to
//! stay flat.
//!
//! Two caches on background threads: one bounded, whose entries have lifetimes of their own; one
//! unbounded, with an idle limit and a listener. In an ordinary run of the tests it takes two
//! seconds and mainly shows that it works; `ci/soak.sh` takes ten minutes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::{Dice, millis};
use wheelhouse::{Cache, EvictionPolicy};

/// Samples in a run, whatever its length. The first quarter is not judged: the caches fill, and the
/// allocator reaches its size.
const LOOKS: usize = 40;
const SETTLED: usize = LOOKS / 4;

/// The values of a sample: the process's resident memory in KiB, then for each cache its entries
/// and those of them in the wheel.
const NAMES: [&str; 5] = [
    "resident KiB",
    "bounded",
    "in its wheel",
    "idle",
    "in its wheel",
];

type Look = [u64; 5];

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4
}

fn in_wheel<K, V>(cache: &Cache<K, V>) -> u64
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let wheel = cache.policy().wheel();
    wheel.iter().flat_map(|level| &level.2).sum::<usize>() as u64
}

fn look(bounded: &Cache<u64, Arc<str>>, idle: &Cache<String, u64>) -> Look {
    [
        resident(),
        bounded.entry_count(),
        in_wheel(bounded),
        idle.entry_count(),
        in_wheel(idle),
    ]
}

fn churn(bounded: &Cache<u64, Arc<str>>, idle: &Cache<String, u64>, dice: &mut Dice) {
    let key = dice.below(60_000);
    match dice.below(16) {
        0..=3 => bounded.insert(key, "a value of some length".into()),
        4..=6 => {
            let bits = dice.below(14);
            let life = millis(dice.below(1 << bits));
            bounded.insert_with_ttl(key, format!("value {key}").into(), life);
        }
        7 | 8 => drop(bounded.get(&key)),
        9 => bounded.invalidate(&key),
        10 | 11 => idle.insert(format!("key {}", key / 4), key),
        12 | 13 => drop(idle.get(&format!("key {}", key / 16))),
        14 => _ = idle.set_expiry(&format!("key {}", key / 4), Some(millis(300))),
        _ if key == 0 => bounded.invalidate_all(),
        _ if key == 1 => idle.retain(|_, value| value % 3 > 0),
        _ if key < 5 => _ = idle.iter().count(),
        _ => drop(bounded.remove(&key)),
    }
}

/// The median of one column.
fn median(looks: &[Look], column: usize) -> u64 {
    let mut all: Vec<u64> = looks.iter().map(|look| look[column]).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn churn_leaves_memory_entries_and_wheel_flat() {
    let seconds = std::env::var("SOAK_SECONDS").map_or(2, |seconds| {
        seconds.parse().expect("SOAK_SECONDS is a whole number")
    });
    let length = Duration::from_secs(seconds);
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let bounded: Cache<u64, Arc<str>> = Cache::builder()
        .name("bounded")
        .max_capacity(20_000)
        .eviction_policy(EvictionPolicy::default())
        .time_to_live(Duration::from_secs(20))
        .expiry_resolution(millis(10))
        .build();
    let idle: Cache<String, u64> = Cache::builder()
        .name("idle")
        .time_to_idle(millis(400))
        .expiry_resolution(millis(10))
        .removal_listener(move |_: &String, _: &u64, _| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut looks = Vec::new();
    let began = Instant::now();
    std::thread::scope(|threads| {
        for thread in 0..2 {
            let (bounded, idle, stop, done) = (&bounded, &idle, &stop, &done);
            threads.spawn(move || {
                let mut dice = Dice::new(thread);
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..1_000 {
                        churn(bounded, idle, &mut dice);
                    }
                    done.fetch_add(1_000, Ordering::Relaxed);
                }
            });
        }
        for n in 1..=LOOKS as u32 {
            let at = length * n / LOOKS as u32;
            std::thread::sleep(at.saturating_sub(began.elapsed()));
            looks.push(look(&bounded, &idle));
            println!("{:8.1?} {:?}", began.elapsed(), looks[looks.len() - 1]);
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "{} operations, {} notifications; columns: {NAMES:?}",
        done.into_inner(),
        heard.load(Ordering::Relaxed)
    );
    let settled = &looks[SETTLED..];
    let (early, late) = settled.split_at(settled.len() / 2);
    for (column, name) in NAMES.into_iter().enumerate() {
        let (was, is) = (median(early, column), median(late, column));
        // Room for chance, and for two seconds in which nothing has settled: the lifetimes alone
        // are longer.
        let slack = if seconds < 60 {
            was.max(20_000)
        } else {
            was / 10 + 1_000
        };
        println!("{name}: median {was}, then {is}");
        assert!(is <= was + slack, "{name} grew from {was} to {is}");
    }
    // And all entries are removed at the end.
    bounded.invalidate_all();
    idle.invalidate_all();
    for _ in 0..3 {
        bounded.run_pending_tasks();
        idle.run_pending_tasks();
    }
    let [_, rest @ ..] = look(&bounded, &idle);
    assert_eq!(rest, [0; 4]);
}
