//! A whole cache used as a timer.

use wheelhouse::{Cache, ManualTicker, RemovalCause, Scheduler};

use super::Timers;
use crate::workloads::prelude::*;

/// A cache with a manual clock: keys are timer numbers, values nothing.
pub(super) struct WholeCache {
    cache: Cache<u32, ()>,
    ticker: ManualTicker,
    fired: Arc<AtomicU64>,
}

impl Timers for WholeCache {
    const CARD: Card = Card::subject("wheelhouse, whole cache");

    type Handle = u32;

    fn new(timers: usize) -> Self {
        let ticker = ManualTicker::new();
        let fired = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&fired);
        let cache = Cache::builder()
            .initial_capacity(timers)
            .ticker(ticker.clone())
            .scheduler(Scheduler::disabled())
            .removal_listener(move |_: &u32, _: &(), cause| {
                if cause == RemovalCause::Expired {
                    counter.fetch_add(1, Relaxed);
                }
            })
            .build();
        Self {
            cache,
            ticker,
            fired,
        }
    }

    #[inline]
    fn start(&mut self, id: u32, due: u64) -> u32 {
        let left = Duration::from_millis(due);
        self.cache.insert_with_ttl(id, (), left);
        id
    }

    #[inline]
    fn cancel(&mut self, handle: u32) {
        self.cache.invalidate(&handle);
    }

    fn settle(&mut self) {
        self.cache.run_pending_tasks();
    }

    fn advance(&mut self, from: u64, to: u64) -> u64 {
        let before = self.fired.load(Relaxed);
        self.ticker.advance(Duration::from_millis(to - from));
        self.cache.run_pending_tasks();
        self.fired.load(Relaxed) - before
    }
}
