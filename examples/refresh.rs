//! What refreshing does for the slowest reads.
//!
//! A backend takes 5 ms for a value that is good for one second. Four threads read 200 keys, with
//! refresh and without it. Printed for each: the time that 99.9 % of the reads stay under, the
//! longest read, and the calls of the backend in a second.
//!
//! ```text
//! cargo run --release --example refresh
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wheelhouse::{Cache, LoadingCache, loader_fn, refresh};

const KEYS: u64 = 200;
const READERS: u64 = 4;
/// Between two reads of one thread.
const PAUSE: Duration = Duration::from_micros(100);
const RUN: Duration = Duration::from_secs(3);
const LIFE: Duration = Duration::from_secs(1);
const BACKEND: Duration = Duration::from_millis(5);

type Records = LoadingCache<u64, u64, std::io::Error>;

fn main() {
    for refreshes in [false, true] {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let loading = Cache::builder()
            .max_capacity(10_000)
            .time_to_live(LIFE)
            .loading(loader_fn(move |key: &u64| {
                counted.fetch_add(1, Ordering::Relaxed);
                thread::sleep(BACKEND);
                Ok(key * key)
            }));
        let records = if refreshes {
            // The moments are spread, so that the reloads are.
            let policy = refresh::jittered(refresh::fraction(0.8), 0.3);
            loading.refresh_after(policy).reload_threads(8).build()
        } else {
            loading.build()
        };
        // All are loaded once before the clock starts.
        for key in 0..KEYS {
            let loaded = records.get(&key);
            assert!(loaded.is_ok_and(|square| square == key * key));
        }
        calls.store(0, Ordering::Relaxed);
        let mut took = read(&records);
        took.sort_unstable();
        println!(
            "{:16} 99.9 % of {} reads under {:?}, the longest {:?}, {} backend calls a second",
            if refreshes {
                "with refresh:"
            } else {
                "without refresh:"
            },
            took.len(),
            took[took.len() * 999 / 1000],
            took[took.len() - 1],
            calls.load(Ordering::Relaxed) / RUN.as_secs(),
        );
    }
}

/// How long each read took.
fn read(records: &Records) -> Vec<Duration> {
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                scope.spawn(move || {
                    let (began, mut took) = (Instant::now(), Vec::new());
                    let mut key = reader;
                    while began.elapsed() < RUN {
                        key = (key * 31 + 7 + reader) % KEYS;
                        let asked = Instant::now();
                        let value = records.get(&key);
                        took.push(asked.elapsed());
                        assert!(value.is_ok_and(|square| square == key * key));
                        thread::sleep(PAUSE);
                    }
                    took
                })
            })
            .collect();
        let took = readers
            .into_iter()
            .map(|reader| reader.join().expect("no read panics"));
        took.flatten().collect()
    })
}
