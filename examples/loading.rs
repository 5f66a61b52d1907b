//! A slow backend, a herd of threads, and an invalidation in the middle.
//!
//! ```text
//! cargo run --release --example loading
//! ```
//!
//! First, 32 threads ask for one missing key at once: the backend is asked once. Then the record
//! changes in the backend, and is invalidated in the cache, while a load that has read the old
//! record is still under way: the old record is not stored.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;
use wheelhouse::Cache;

/// A data base of one record, which takes its time.
#[derive(Default)]
struct Backend {
    version: AtomicU64,
    calls: AtomicUsize,
}

impl Backend {
    fn read(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let version = self.version.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(50));
        version
    }
}

fn main() {
    let backend = Backend::default();
    let cache: Cache<&str, u64> = Cache::builder().max_capacity(1_000).record_stats().build();

    let all = Barrier::new(32);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                all.wait();
                cache.get_with("ada", || backend.read());
            });
        }
    });
    println!("backend calls: {}", backend.calls.load(Ordering::SeqCst));

    cache.invalidate("ada");
    let (began, begun) = mpsc::channel();
    thread::scope(|scope| {
        let (cache, backend) = (&cache, &backend);
        scope.spawn(move || {
            cache.get_with("ada", || {
                began.send(()).expect("the main thread waits for it");
                backend.read()
            });
        });
        begun.recv().expect("the load begins");
        thread::sleep(Duration::from_millis(10));
        // The load has read the old version by now.
        backend.version.fetch_add(1, Ordering::SeqCst);
        cache.invalidate("ada");
    });
    let served = cache.get_with("ada", || backend.read());
    let staleness = backend.version.load(Ordering::SeqCst) - served;
    println!("staleness: {staleness}");
    println!("loads discarded: {}", cache.stats().loads_discarded());
}
