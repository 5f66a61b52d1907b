//! What removal listeners cost: threads and memory of many caches that have one, and a replacement
//! that is told before the call returns. moka tells a listener on the thread that removes.
//!
//! Run: `cargo run --release -p wheelhouse-bench --bin listeners`
//!
//! Expect: at most four threads beside the main one, not more memory than moka, and less than half
//! of moka's time for a replacement.

use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::Delivery;

const CACHES: u64 = 10_000;
/// Entries that each of these caches has had removed.
const REMOVED: u64 = 4;
const KEYS: u64 = 1_000;
const ROUNDS: usize = 9;
const REPLACEMENTS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(peer) = std::env::args().nth(1) {
        return many(&peer);
    }
    for peer in ["wheelhouse", "moka"] {
        // Each in a process of its own, so that it finds no free pages of the other.
        let program = std::env::current_exe()?;
        if !Command::new(program).arg(peer).status()?.success() {
            return Err(format!("{peer} has failed").into());
        }
    }
    let told = AtomicU64::new(0);
    let told: &'static AtomicU64 = Box::leak(Box::new(told));
    let ours = wheelhouse::Cache::builder()
        .max_capacity(4 * KEYS)
        .delivery(Delivery::Caller)
        .removal_listener(move |_: &u64, value: &u64, _| _ = told.fetch_add(*value, Relaxed))
        .build();
    let peers = moka::sync::Cache::builder()
        .max_capacity(4 * KEYS)
        .eviction_listener(move |_: Arc<u64>, value: u64, _| _ = told.fetch_add(value, Relaxed))
        .build();
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        figures[0].push(replace(|key, value| ours.insert(key, value)));
        figures[1].push(replace(|key, value| peers.insert(key, value)));
    }
    let [ours, moka] = figures.map(|mut figures| {
        figures.sort_by(f64::total_cmp);
        figures[ROUNDS / 2]
    });
    println!("replacement, told by the caller: wheelhouse {ours:.0} ns, moka {moka:.0} ns");
    println!("ratio {:.2}", ours / moka);
    black_box(told.load(Relaxed));
    Ok(())
}

/// Nanoseconds for each replacement, of keys in turn.
fn replace(insert: impl Fn(u64, u64)) -> f64 {
    (0..KEYS).for_each(|key| insert(key, 0));
    let began = Instant::now();
    (0..REPLACEMENTS).for_each(|number| insert(number % KEYS, number));
    began.elapsed().as_nanos() as f64 / REPLACEMENTS as f64
}

/// Makes many caches with a listener that takes a microsecond, and lets each remove a few entries.
fn many(peer: &str) -> Result<(), Box<dyn Error>> {
    let told: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
    let hear = move || {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(1) {}
        told.fetch_add(1, Relaxed);
    };
    let before = resident()?;
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    let mut most = 0;
    for _ in 0..CACHES {
        if peer == "moka" {
            let cache = moka::sync::Cache::<u64, u64>::builder()
                .eviction_listener(move |_, _, _| hear())
                .build();
            (0..REMOVED).for_each(|key| cache.insert(key, key));
            (0..REMOVED).for_each(|key| cache.invalidate(&key));
            kept.push(Box::new(cache));
        } else {
            let cache = wheelhouse::Cache::<u64, u64>::builder()
                .removal_listener(move |_, _, _| hear())
                .build();
            (0..REMOVED).for_each(|key| cache.insert(key, key));
            (0..REMOVED).for_each(|key| cache.invalidate(&key));
            kept.push(Box::new(cache));
        }
        most = most.max(threads()?);
    }
    while told.load(Relaxed) < CACHES * REMOVED {
        most = most.max(threads()?);
        thread::sleep(Duration::from_millis(1));
    }
    let each = (resident()? - before) / CACHES as f64;
    println!(
        "{CACHES} caches with a listener, {peer}: {most} threads beside the main one, {each:.0} bytes a cache"
    );
    Ok(())
}

/// Threads of this process beside the main one.
fn threads() -> Result<usize, Box<dyn Error>> {
    Ok(std::fs::read_dir("/proc/self/task")?.count() - 1)
}

/// Resident memory of this process, in bytes.
fn resident() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = text.split(' ').nth(1).ok_or("no figure")?.parse()?;
    Ok(pages * rustix::param::page_size() as f64)
}
