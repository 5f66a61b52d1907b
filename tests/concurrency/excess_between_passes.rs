//! How far a bounded cache exceeds its bound between two passes, and how many values it keeps in
//! memory, while several threads write as fast as they can: the figures that `max_capacity`
//! documents.
//!
//! `cargo test --release --test concurrency excess -- --nocapture` prints the figures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::Dice;
use crate::support::census::{Census, Counted};
use wheelhouse::Cache;

/// The operation that each thread repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Looks up a key of a Zipf distribution; inserts it on a miss.
    Zipf,
    /// Inserts a new key.
    NewKeys,
}

/// The keys of one thread, used in turn.
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

/// Runs the load on this many threads until `during` returns; returns the number of operations.
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

/// Of a sampler's values: the median, the 99th percentile, and the maximum.
#[derive(Debug)]
#[allow(dead_code, reason = "the median is printed")]
struct Seen {
    median: u64,
    nearly_all: u64,
    most: u64,
}

impl Seen {
    fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        Self {
            median: samples[samples.len() / 2],
            nearly_all: samples[samples.len() * 99 / 100],
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

const CAPACITIES: [u64; 3] = [100, 1_000, 10_000];
const THREADS: [u64; 3] = [2, 4, 8];
/// Turns that a busy machine may take.
const TURNS: usize = 5;

#[test]
fn entries_and_values_stay_under_their_ceilings_with_any_number_of_writers() {
    let _alone = crate::alone();
    let mut failed = Vec::new();
    for load in [Load::Zipf, Load::NewKeys] {
        for capacity in CAPACITIES {
            for threads in THREADS {
                let mut line = String::new();
                // On a busy machine a reader may lose its processor for longer than writers wait
                // for it: then once more.
                let fits = (0..TURNS).any(|_| {
                    let time = Duration::from_millis(300);
                    let (entries, alive) = observe(load, capacity, threads, time);
                    line = format!(
                        "{load:?}, {capacity} entries, {threads} threads: \
                         {entries:?}, alive {alive:?}"
                    );
                    println!("{line}");
                    entries.most <= capacity + capacity / 4 + 256
                        && alive.nearly_all <= capacity + capacity / 2 + 2_048
                });
                if !fits {
                    failed.push(line);
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// How many new keys a writer inserts in the tests below.
const WRITES: u64 = 50_000;

/// Inserts new keys, and returns how long that took.
fn insert_many(cache: &Cache<u64, Counted<()>>, census: &Census) -> Duration {
    let began = Instant::now();
    for key in 0..WRITES {
        cache.insert(1_000 + key, census.counted(()));
    }
    began.elapsed()
}

/// Every removed value is freed once no reader can hold it.
fn all_is_freed(cache: &Cache<u64, Counted<()>>, census: &Census) {
    (0..3).for_each(|_| cache.run_pending_tasks());
    assert_eq!(cache.entry_count(), 100);
    assert_eq!(census.alive(), 100);
}

#[test]
fn a_reference_that_is_kept_for_long_holds_up_memory_and_no_writer() {
    let _shared = crate::beside_others();
    let census = Census::default();
    let cache = Cache::new(100);
    cache.insert(1, census.counted(()));
    let (held, is_held) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (reader, found) = (&cache, held);
        scope.spawn(move || {
            let kept = reader.get_ref(&1).expect("it is there");
            found.send(()).unwrap();
            is_done.recv().ok();
            drop(kept);
        });
        is_held.recv().unwrap();
        let took = insert_many(&cache, &census);
        // If each write waited for the pin, it would be half an hour.
        assert!(took < Duration::from_secs(120), "{took:?}");
        let alive = census.alive();
        assert!(
            alive as u64 > WRITES,
            "{alive} values: the reference held nothing up"
        );
        drop(done);
    });
    all_is_freed(&cache, &census);
}

#[test]
fn a_writer_does_not_wait_for_its_own_reference() {
    let _shared = crate::beside_others();
    let census = Census::default();
    let cache = Cache::new(100);
    cache.insert(1, census.counted(()));
    let kept = cache.get_ref(&1).expect("it is there");
    let took = insert_many(&cache, &census);
    assert!(took < Duration::from_secs(120), "{took:?}");
    drop(kept);
    all_is_freed(&cache, &census);
}
