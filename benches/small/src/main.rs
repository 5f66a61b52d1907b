//! A small program with a cache: a listener, a lifetime in the value, one load. It checks what it
//! sees, and ends with a panic if something is wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use wheelhouse::{Cache, RemovalCause, expiry};

/// The sum of the values that have expired.
static EXPIRED: AtomicU64 = AtomicU64::new(0);

fn main() {
    let cache: Cache<String, u64> = Cache::builder()
        .max_capacity(1_000)
        .expire_after(expiry::writing(|_: &String, millis: &u64| {
            Some(Duration::from_millis(*millis))
        }))
        .expiry_resolution(Duration::from_millis(1))
        .removal_listener(|_: &String, millis: &u64, cause: RemovalCause| {
            if cause == RemovalCause::Expired {
                EXPIRED.fetch_add(*millis, Ordering::Relaxed);
            }
        })
        .build();

    let began = Instant::now();
    cache.insert("short".into(), 50);
    assert_eq!(cache.get_with("long".into(), || 3_600_000), 3_600_000);
    assert_eq!(cache.get("long"), Some(3_600_000));
    while cache.contains_key("short") {
        sleep(Duration::from_millis(1));
    }
    let lived = began.elapsed();
    assert!(
        lived >= Duration::from_millis(49),
        "expired after {lived:?}"
    );

    // A thread of the cache calls the listener; where there are no threads, this call does.
    cache.run_pending_tasks();
    while EXPIRED.load(Ordering::Relaxed) == 0 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "no listener was called"
        );
        sleep(Duration::from_millis(1));
    }
    assert_eq!(EXPIRED.load(Ordering::Relaxed), 50);
    assert_eq!(cache.entry_count(), 1);
    println!("right: an entry of 50 ms expired after {lived:?}");
}
