//! Which entries a full cache removes: expired entries first, then live ones in the order of the
//! eviction policy, however near their deadlines are.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::record::Record;
use crate::support::{NS, millis, must_end, secs};
use wheelhouse::RemovalCause::{Expired, Size};
use wheelhouse::{
    Cache, CacheBuilder, Delivery, EvictionPolicy, ManualTicker, RemovalCause, Ticker,
};

const POLICIES: [EvictionPolicy; 2] = [EvictionPolicy::Adaptive, EvictionPolicy::Lru];

type Heard = Record<u32, u32>;

/// A cache whose callers do all maintenance; each value is its own weight. It has one part: before
/// a tick has ended, a part looks for expired entries in its own wheel only.
fn weighed(policy: EvictionPolicy, capacity: u64) -> (CacheBuilder<u32, u32>, ManualTicker, Heard) {
    let (clock, heard) = (ManualTicker::new(), Record::new());
    let builder = Cache::builder()
        .max_capacity(capacity)
        .parts(1)
        .eviction_policy(policy)
        .ticker(clock.clone())
        .weigher(|_, weight| *weight)
        .removal_listener(heard.listener());
    (builder, clock, heard)
}

fn gone_for(heard: &Heard, cause: RemovalCause) -> Vec<u32> {
    let mut keys: Vec<u32> = heard
        .take()
        .into_iter()
        .filter_map(|(key, _, why)| (why == cause).then_some(key))
        .collect();
    keys.sort_unstable();
    keys
}

/// Entries expire one by one within a bucket of the wheel, far more often than buckets end. The
/// live ones always fit.
#[test]
fn expired_entries_of_the_current_bucket_are_removed_before_live_ones() {
    for policy in POLICIES {
        for weight in [1, 1_000] {
            let capacity = 150 * u64::from(weight);
            let (builder, clock, heard) = weighed(policy, capacity);
            let cache = builder.build();
            for key in 0..100 {
                cache.insert(key, weight);
            }
            cache.run_pending_tasks();
            for step in 0..5_000 {
                clock.advance(millis(1));
                // 50 of these are alive at any time.
                cache.insert_with_ttl(1_000 + step, weight, millis(50));
            }
            cache.run_pending_tasks();
            assert_eq!(gone_for(&heard, Size), [], "{policy:?}, weight {weight}");
            assert!((0..100).all(|key| cache.contains_key(&key)));
        }
    }
}

/// The same, while many entries that are far from due cascade to finer buckets.
#[test]
fn expired_entries_are_removed_before_the_pass_files_many_that_are_not_due() {
    for policy in POLICIES {
        let (builder, clock, heard) = weighed(policy, 30_300);
        let cache = builder.build();
        for key in 0..30_000 {
            cache.insert_with_ttl(key, 1, secs(7_200) + millis(key.into()));
        }
        // Just before the hand reaches the bucket of these entries, 2^42 ns wide.
        clock.advance(secs(4_390));
        for key in 100_000..100_300 {
            cache.insert_with_ttl(key, 1, secs(100) + millis(u64::from(key) - 100_000));
        }
        cache.run_pending_tasks();
        clock.advance(secs(20));
        for key in 0..200 {
            // No more weight, but enough events for some passes, which begin with these entries.
            cache.insert_with_ttl(key, 1, secs(3_000));
        }
        clock.advance(secs(200));
        for key in 200_000..200_300 {
            cache.insert(key, 1);
        }
        cache.run_pending_tasks();
        assert_eq!(gone_for(&heard, Size), [], "{policy:?}");
        assert_eq!(cache.entry_count(), 30_300);
    }
}

#[test]
fn heavy_expired_entries_evict_no_live_entry() {
    for policy in POLICIES {
        let limit = 4 * u64::from(u32::MAX);
        let (builder, clock, heard) = weighed(policy, limit);
        let cache = builder.build();
        cache.insert_with_ttl(1, u32::MAX, secs(10));
        cache.insert_with_ttl(2, u32::MAX, secs(10));
        cache.insert_with_ttl(3, u32::MAX, secs(10));
        cache.insert(4, u32::MAX);
        cache.run_pending_tasks();
        assert_eq!(cache.weighted_size(), limit);
        clock.advance(secs(10));
        for key in 10..13 {
            cache.insert(key, u32::MAX);
        }
        cache.run_pending_tasks();
        assert_eq!(cache.weighted_size(), limit);
        let mut delivered = heard.take_sorted();
        delivered.dedup();
        assert_eq!(delivered, [1, 2, 3].map(|key| (key, u32::MAX, Expired)));
    }
}

/// An entry that is used more than any other stays until its deadline, even if the deadline is in
/// the current bucket of the wheel.
#[test]
fn a_live_entry_is_evicted_in_the_policys_order_however_near_its_deadline() {
    for policy in POLICIES {
        for left in [NS, millis(1), millis(400)] {
            let (builder, clock, heard) = weighed(policy, 100);
            let cache = builder.build();
            // A little more than 20 s: this deadline and the moment before it are in the same
            // bucket.
            let life = Duration::from_nanos(20 << 30) - NS;
            cache.insert_with_ttl(0, 1, life);
            for key in 1..100 {
                cache.insert(key, 1);
            }
            cache.run_pending_tasks();
            clock.advance(life - left);
            for _ in 0..10 {
                assert_eq!(cache.get(&0), Some(1), "alive until its deadline");
                cache.run_pending_tasks();
            }
            assert_eq!(heard.take(), []);
            for key in 1_000..1_010 {
                cache.insert(key, 1);
                cache.run_pending_tasks();
            }
            assert_eq!(heard.take().len(), 10);
            assert_eq!(cache.get(&0), Some(1), "{policy:?}, {left:?} left");
            clock.advance(left);
            cache.run_pending_tasks();
            assert_eq!(heard.take(), [(0, 1, Expired)], "{policy:?}, {left:?} left");
        }
    }
}

#[test]
fn short_lifetimes_do_not_cause_evictions() {
    for policy in POLICIES {
        let (builder, _clock, heard) = weighed(policy, 100);
        let cache = builder.build();
        for key in 0..100 {
            cache.insert(key, 1);
        }
        cache.run_pending_tasks();
        for key in 1_000..2_000 {
            cache.insert_with_ttl(key, 1, millis(200));
            assert_eq!(cache.get(&key), Some(1), "{policy:?}");
        }
        cache.run_pending_tasks();
        heard.take();
        // The policy's order holds among entries that expire in this bucket.
        let short = cache.iter().filter(|entry| *entry.key() >= 1_000).count();
        assert!(
            short > 0,
            "{policy:?}: all entries with short lifetimes were evicted at once"
        );
    }
}

#[test]
fn an_entry_that_reads_keep_alive_is_not_evicted_for_its_deadline() {
    let (builder, clock, heard) = weighed(EvictionPolicy::Lru, 100);
    // No other thread takes part: it might hold the lock while a ring is full, and reads get lost.
    let builder = builder.delivery(Delivery::Caller);
    let cache = builder.time_to_idle(millis(900)).build();
    for key in 0..100 {
        cache.insert(key, 1);
    }
    cache.run_pending_tasks();
    for step in 0..200 {
        clock.advance(millis(50));
        for key in 0..99 {
            assert_eq!(cache.get(&key), Some(1));
        }
        cache.run_pending_tasks();
        cache.insert(1_000 + step, 1);
    }
    let gone = heard.take();
    let read: Vec<_> = gone.iter().filter(|(key, ..)| *key < 99).collect();
    assert!(read.is_empty(), "{read:?}");
    assert!(gone.len() > 150);
}

#[test]
fn an_entry_of_weight_zero_is_no_victim_however_near_its_deadline() {
    let (builder, clock, heard) = weighed(EvictionPolicy::Adaptive, 10);
    let cache = builder.build();
    cache.insert_with_ttl(0, 0, secs(10));
    clock.advance(secs(10) - NS);
    for key in 1..50 {
        cache.insert(key, 1);
    }
    cache.run_pending_tasks();
    assert_eq!(cache.get(&0), Some(0));
    assert_eq!(heard.take().len(), 39);
}

#[test]
fn a_due_victim_that_was_not_removed_yet_leaves_as_expired() {
    const MANY: u32 = 1_000;
    const HALF: u64 = 500;
    let (builder, clock, _heard) = weighed(EvictionPolicy::Lru, MANY.into());
    let builder = builder.time_to_idle(millis(20)).record_stats();
    let cache = builder.build();
    let gone = || [Expired, Size].map(|cause| cache.stats().removals(cause));
    (0..2 * MANY).for_each(|key| cache.insert(key, 1));
    let [expired, before] = gone();
    // The pass swept the current bucket because the cache was over its bound: the next sweep comes
    // later.
    assert!(expired == 0 && before > HALF, "{before} were evicted");

    clock.advance(millis(20));
    (2 * MANY..2 * MANY + 200).for_each(|key| cache.insert(key, 1));
    let [expired, after] = gone();
    assert!(
        (100..HALF).contains(&expired),
        "{expired} removed, not all of them by a sweep"
    );
    assert_eq!(after, before, "none of them was alive");
}

/// What other threads do in between, and how many readings come first.
type Between = Mutex<Option<(u32, Box<dyn FnOnce() + Send>)>>;

/// A clock with one slow reading: other threads finish calls before the thread that took the
/// reading continues.
#[derive(Clone, Default)]
struct Lingering(Arc<(AtomicU64, Between)>);

impl Ticker for Lingering {
    fn nanos(&self) -> u64 {
        let (shows, between) = &*self.0;
        let shown = shows.load(SeqCst);
        let mut between = between.lock().unwrap();
        match between.take() {
            Some((0, act)) => {
                drop(between);
                thread::spawn(act).join().expect("no panic");
            }
            Some((more, act)) => *between = Some((more - 1, act)),
            None => {}
        }
        shown
    }
}

#[test]
fn an_entry_made_due_before_its_eviction_leaves_as_expired() {
    // So many that the cache is not small.
    const BOUND: u32 = 128;
    // So much that a weight above it makes no writer run a pass.
    const WEIGHT: u32 = 1_000;
    // The readings of a pass before it takes the first victim.
    for reading in 0..3 {
        let (clock, heard) = (Lingering::default(), Record::new());
        let cache: Cache<u32, u32> = Cache::builder()
            .max_capacity((BOUND * WEIGHT).into())
            .weigher(|_, _| WEIGHT)
            .ticker(clock.clone())
            .removal_listener(heard.listener())
            .build();
        (0..BOUND).for_each(|key| cache.insert_with_ttl(key, 0, secs(1_000)));
        cache.run_pending_tasks();
        cache.insert_with_ttl(BOUND, 0, secs(1_000));
        let (other, time) = (cache.clone(), Arc::clone(&clock.0));
        let make_due = move || {
            time.0.fetch_add(1, SeqCst);
            (0..=BOUND).for_each(|key| assert!(other.set_expiry(&key, Some(Duration::ZERO))));
        };
        *clock.0.1.lock().unwrap() = Some((reading, Box::new(make_due)));
        must_end(move || cache.run_pending_tasks());
        assert!(clock.0.1.lock().unwrap().is_none(), "it was read");
        assert_eq!(gone_for(&heard, Size), [0; 0], "in reading {reading}");
    }
}
