//! How long a run delivers notifications, and in which order.

use super::super::delivery::{DELIVERY_SLICE, EXTRA_CLOCK_READS};
use super::super::plan::Plan;
use crate::map::Garbage;
use crate::notify::CALLS_PER_CLOCK_READ;
use crate::{Cache, ManualTicker, RemovalCause, Scheduler};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A cache whose listener counts, and calls a function at the end of each chunk with its number.
struct Rig {
    cache: Cache<u32, u32>,
    clock: ManualTicker,
    delivered: Arc<AtomicU32>,
    /// The cache for the listener; emptied at the end, so that nothing leaks.
    handle: Arc<Mutex<Option<Cache<u32, u32>>>>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.lock().unwrap().take();
    }
}

impl Rig {
    fn new(
        after_chunk: impl Fn(&Cache<u32, u32>, &ManualTicker, u32) + Send + Sync + 'static,
    ) -> Self {
        let (clock, delivered) = (ManualTicker::new(), Arc::new(AtomicU32::new(0)));
        let handle = Arc::new(Mutex::new(None::<Cache<u32, u32>>));
        let (ticker, count, own) = (clock.clone(), Arc::clone(&delivered), Arc::clone(&handle));
        let listener = move |_: &u32, _: &u32, cause| {
            // Keys of other values are those that a test inserts beside these.
            if cause != RemovalCause::Explicit {
                return;
            }
            let delivered = count.fetch_add(1, Ordering::Relaxed) + 1;
            let cache = own.lock().unwrap().clone();
            if let Some(cache) = cache
                && delivered % CALLS_PER_CLOCK_READ as u32 == 0
            {
                after_chunk(&cache, &ticker, delivered / CALLS_PER_CLOCK_READ as u32);
            }
        };
        let cache = Cache::builder()
            .ticker(clock.clone())
            .removal_listener(listener)
            .build();
        *handle.lock().unwrap() = Some(cache.clone());
        Self {
            cache,
            clock,
            delivered,
            handle,
        }
    }

    /// How many chunks a run delivers of `chunks` pending ones, some time after they were posted,
    /// and whether the run was cut short.
    fn deliver(&self, chunks: u64, after: Duration) -> (u64, bool) {
        post(&self.cache, chunks);
        self.clock.advance(after);
        self.delivered.store(0, Ordering::Relaxed);
        let (shared, maintenance) = (&self.cache.core.shared, &self.cache.core.maintenance);
        // As a run does, so that the next wake-up is the wheel's or was requested since.
        let begun = maintenance.waking.begin();
        let stopped = maintenance.view(shared).deliver_from_run();
        drop(begun);
        let delivered = self.delivered.load(Ordering::Relaxed) as usize;
        assert_eq!(delivered % CALLS_PER_CLOCK_READ, 0);
        ((delivered / CALLS_PER_CLOCK_READ) as u64, stopped)
    }
}

/// Posts this many chunks of notifications, undelivered.
fn post(cache: &Cache<u32, u32>, chunks: u64) {
    let (shared, maintenance) = (&cache.core.shared, &cache.core.maintenance);
    for _ in 0..chunks {
        for key in 0..CALLS_PER_CLOCK_READ as u32 {
            cache.insert(key, 0);
            cache.invalidate(&key);
            // Before any writer helps, however few the shards are: a helper would deliver as well.
            if key % 8 == 7 {
                while maintenance
                    .pass(shared, &mut maintenance.state.lock(), Plan::RUN)
                    .run()
                    .more
                {}
            }
        }
    }
}

/// A listener that takes a quarter of the time slice for each chunk.
fn slow(_: &Cache<u32, u32>, clock: &ManualTicker, _: u32) {
    clock.advance(Duration::from_nanos(DELIVERY_SLICE / 4));
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn all_notifications_are_delivered_while_no_entry_is_due() {
    let rig = Rig::new(slow);
    assert_eq!(rig.deliver(100, HOUR), (100, false), "no deadline");
    rig.cache.insert_with_ttl(1_000, 0, 2 * HOUR);
    rig.cache.run_pending_tasks();
    assert_eq!(rig.deliver(100, HOUR), (100, false), "in the wheel");
    let rig = Rig::new(|cache, clock, chunk| {
        cache.insert_with_ttl(1_000, 0, HOUR);
        slow(cache, clock, chunk);
    });
    assert_eq!(
        rig.deliver(100, HOUR),
        (100, false),
        "requested for meanwhile"
    );
}

#[test]
fn due_entries_wait_for_one_time_slice_of_delivery() {
    // The first chunk is delivered before the clock is read; four quarters follow.
    const STOPPED: (u64, bool) = (5, true);
    let rig = Rig::new(slow);
    rig.cache.insert_with_ttl(1_000, 0, HOUR);
    rig.cache.run_pending_tasks();
    assert_eq!(rig.deliver(10, 2 * HOUR), STOPPED, "in the wheel");
    for other in [false, true] {
        let rig = Rig::new(|cache, clock, chunk| {
            if chunk == 1 {
                cache.insert_with_ttl(2_000, 0, Duration::from_nanos(1));
                clock.advance(2 * cache.policy().expiry_resolution());
            }
            slow(cache, clock, chunk);
        });
        if other {
            rig.cache.insert_with_ttl(1_000, 0, HOUR);
            rig.cache.run_pending_tasks();
        }
        let delivered = rig.deliver(10, Duration::ZERO);
        assert_eq!(
            delivered, STOPPED,
            "requested for meanwhile; another one: {other}"
        );
    }
}

#[test]
fn notifications_caused_by_the_listener_are_delivered_in_the_same_run_up_to_a_bound() {
    let rig = Rig::new(|cache, _, _| post(cache, 1));
    assert_eq!(
        rig.deliver(2, Duration::ZERO),
        (2 + EXTRA_CLOCK_READS, true)
    );
}

#[test]
fn a_delivery_that_is_stopped_again_and_again_keeps_the_order() {
    let (tell, delivered) = mpsc::channel();
    let cache: Cache<u32, u32> = Cache::builder()
        .scheduler(Scheduler::disabled())
        .removal_listener(move |&key, _, _| tell.send(key).expect("the test listens"))
        .build();
    let (shared, maintenance) = (&cache.core.shared, &cache.core.maintenance);
    let mut next = 0;
    let mut post = |count| {
        for key in next..next + count {
            cache.insert(key, 0);
            cache.invalidate(&key);
            // One shard after the other, otherwise only the order of each key would be kept.
            while maintenance
                .pass(shared, &mut maintenance.state.lock(), Plan::RUN)
                .run()
                .more
            {}
        }
        next += count;
    };
    let deliver = || {
        maintenance.notifier.deliver(|| false, &mut |nodes| {
            let mut state = maintenance.state.lock();
            for node in nodes.drain(..) {
                state.freeing.retire(Garbage::Node(node));
            }
        })
    };
    // More notifications are posted while a block is delivered in part, into that block and into
    // others.
    post(300);
    for more in [0, 1, 40, 130, 0, 500] {
        assert!(deliver(), "stopped");
        post(more);
    }
    while deliver() {}
    assert_eq!(maintenance.notifier.waiting(), 0);
    let delivered: Vec<u32> = delivered.try_iter().collect();
    assert_eq!(delivered, (0..971).collect::<Vec<_>>());
}
