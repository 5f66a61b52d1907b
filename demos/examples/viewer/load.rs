//! Something to look at: a cache on a virtual clock, kept filled with entries of very different
//! lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use wheelhouse::{Cache, ManualTicker, RemovalCause, Ticker, expiry};

use crate::draw::Frame;
use crate::mixed::share;

/// Lives are spread evenly over the orders of magnitude between these.
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 30.0 * 86_400.0;

pub(crate) struct Load {
    cache: Cache<u64, ()>,
    ticker: ManualTicker,
    expired: Arc<AtomicU64>,
    entries: u64,
    inserted: u64,
}

impl Load {
    pub(crate) fn new(entries: u64) -> Self {
        let ticker = ManualTicker::new();
        let expired = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&expired);
        let cache = Cache::builder()
            .name("viewer")
            .expire_after(expiry::creating(|&key: &u64, _: &()| Some(life(key))))
            .removal_listener(move |_: &u64, _: &(), cause: RemovalCause| {
                heard.fetch_add(u64::from(cause == RemovalCause::Expired), Relaxed);
            })
            .ticker(ticker.clone())
            .build();
        Self {
            cache,
            ticker,
            expired,
            entries,
            inserted: 0,
        }
    }

    /// Lets time go by, and fills up what expired.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.ticker.advance(time);
        self.cache.run_pending_tasks();
        for _ in self.cache.entry_count()..self.entries {
            self.cache.insert(self.inserted, ());
            self.inserted += 1;
        }
        // Links what was inserted, so that the picture is whole.
        self.cache.run_pending_tasks();
    }

    pub(crate) fn frame(&self) -> Frame {
        Frame::new(
            self.cache.next_maintenance_in(),
            self.cache.policy().wheel(),
        )
    }

    pub(crate) fn entry_count(&self) -> u64 {
        self.cache.entry_count()
    }

    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Relaxed)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.ticker.nanos())
    }
}

fn life(key: u64) -> Duration {
    Duration::from_secs_f64(SHORTEST * (LONGEST / SHORTEST).powf(share(key, 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_full_while_time_goes_by() {
        let mut load = Load::new(500);
        for _ in 0..100 {
            load.advance(Duration::from_secs(60));
            assert_eq!(load.entry_count(), 500);
        }
        assert!(load.expired() > 0);
    }
}
