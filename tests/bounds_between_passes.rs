//! How far a bounded cache is over its bound between two passes, and how many values it keeps in
//! memory, while several threads write as fast as they can: the figures that `max_capacity`
//! documents.
//!
//! `cargo test --release --test bounds_between_passes -- --nocapture` prints what was seen, and
//! with `--ignored` how many operations a second the same loads do.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::Dice;
use support::census::Census;
use wheelhouse::Cache;

/// What each thread does, again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Gets a key drawn by Zipf's law; inserts it on a miss.
    Zipf,
    /// Inserts a key that was never there.
    NewKeys,
}

/// Keys for one thread, to be used in turn.
fn keys(load: Load, capacity: u64, thread: u64) -> Vec<u64> {
    match load {
        Load::NewKeys => Vec::new(),
        Load::Zipf => {
            // The k-th key is drawn with a probability of about 1 / k.
            let most = (100.0 * capacity as f64).ln();
            let mut dice = Dice::new(thread + 1);
            let mut draw = || dice.below(1 << 32) as f64 / (1u64 << 32) as f64;
            (0..1 << 16).map(|_| (draw() * most).exp() as u64).collect()
        }
    }
}

/// Runs the load on so many threads until `during` returns; how many operations were done.
fn run<V: Clone + Send + Sync + 'static>(
    cache: &Cache<u64, V>,
    load: Load,
    capacity: u64,
    threads: u64,
    value: impl Fn() -> V + Sync,
    during: impl FnOnce(),
) -> u64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (stop, value) = (&stop, &value);
                scope.spawn(move || {
                    let keys = keys(load, capacity, thread);
                    let mut done = 0;
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..64 {
                            let fresh = (thread << 40) + done as u64;
                            match keys.get(done % keys.len().max(1)) {
                                Some(key) if cache.get(key).is_some() => {}
                                key => cache.insert(*key.unwrap_or(&fresh), value()),
                            }
                            done += 1;
                        }
                    }
                    done as u64
                })
            })
            .collect();
        during();
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    })
}

/// The middle and the greatest of what a sampler saw.
#[derive(Debug)]
struct Seen {
    median: u64,
    most: u64,
}

impl Seen {
    fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        Self {
            median: samples[samples.len() / 2],
            most: samples[samples.len() - 1],
        }
    }
}

/// Entries and living values under a load.
fn observe(load: Load, capacity: u64, threads: u64, time: Duration) -> (Seen, Seen) {
    let census = Census::default();
    let cache = Cache::new(capacity);
    let (mut entries, mut alive) = (Vec::new(), Vec::new());
    let sample = || {
        let began = Instant::now();
        while began.elapsed() < time || entries.len() < 100 {
            entries.push(cache.entry_count());
            alive.push(census.alive() as u64);
            thread::sleep(Duration::from_micros(200));
        }
    };
    run(
        &cache,
        load,
        capacity,
        threads,
        || census.counted(()),
        sample,
    );
    (Seen::of(entries), Seen::of(alive))
}

/// One test at a time: each uses all processors.
static ALONE: Mutex<()> = Mutex::new(());

const CAPACITIES: [u64; 3] = [100, 1_000, 10_000];
const THREADS: [u64; 3] = [2, 4, 8];

#[test]
fn entries_and_values_stay_near_the_bound_with_any_number_of_writers() {
    let _alone = ALONE.lock();
    let mut failed = Vec::new();
    for load in [Load::Zipf, Load::NewKeys] {
        for capacity in CAPACITIES {
            for threads in THREADS {
                let (entries, alive) = observe(load, capacity, threads, Duration::from_millis(300));
                let line = format!(
                    "{load:?}, {capacity} entries, {threads} threads: {entries:?}, alive {alive:?}"
                );
                println!("{line}");
                let fits = entries.median <= capacity + capacity / 50 + 64
                    && entries.most <= capacity + capacity / 4 + 256
                    && alive.median <= capacity + capacity / 4 + 1_024;
                if !fits {
                    failed.push(line);
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// No claim, but figures to compare two versions by.
#[test]
#[ignore = "measures"]
fn throughput() {
    let _alone = ALONE.lock();
    for load in [Load::Zipf, Load::NewKeys] {
        for capacity in CAPACITIES {
            for threads in THREADS {
                let cache = Cache::new(capacity);
                let time = Duration::from_millis(500);
                let began = Instant::now();
                let done = run(
                    &cache,
                    load,
                    capacity,
                    threads,
                    || 0,
                    || thread::sleep(time),
                );
                let rate = done as f64 / began.elapsed().as_secs_f64() / 1e6;
                println!("{load:?} {capacity} {threads} {rate:.2}");
            }
        }
    }
}
