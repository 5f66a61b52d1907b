//! A rate limiter: at most five requests in ten seconds for each client.
//!
//! The first request of a client opens a window: `expiry::creating` gives it its lifetime. The
//! other requests are counted and keep its deadline, so a client that does not stop is let in again
//! when its window ends. Windows that are over leave by themselves.
//!
//! Run: `cargo run --example rate_limiter`
//!
//! Expect: three lines, at once, because the clock is a `ManualTicker`. They are checked.

use std::time::Duration;

use wheelhouse::{Cache, ManualTicker, expiry};

const WINDOW: Duration = Duration::from_secs(10);
const MOST: u32 = 5;

struct Limiter(Cache<String, u32>);

impl Limiter {
    /// Whether the client may go on.
    fn allows(&self, client: &str) -> bool {
        let entry = self.0.entry_by_ref(client);
        let count = entry.and_upsert_with(|before| before.map_or(1, |n| n.value() + 1));
        *count.value() <= MOST
    }
}

fn main() {
    let time = ManualTicker::new();
    let windows = expiry::creating(|_: &String, _: &u32| Some(WINDOW));
    let cache = Cache::builder().max_capacity(100_000).expire_after(windows);
    let limiter = Limiter(cache.ticker(time.clone()).build());

    let allowed = (0..8).filter(|_| limiter.allows("ada")).count();
    println!("of 8 requests at once, {allowed} are allowed");
    time.advance(WINDOW / 2);
    let later = limiter.allows("ada");
    println!(
        "half a window later: {later}; another client: {}",
        limiter.allows("bob")
    );
    time.advance(WINDOW / 2);
    let next = limiter.allows("ada");
    println!("in the next window: {next}");
    assert_eq!((allowed, later, next), (5, false, true));
}
