use crate::{Cache, Delivery, Scheduler, Ticker};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A clock that stands still and counts how often it is read.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Ticker for Counting {
    fn nanos(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst);
        0
    }
}

#[test]
fn clearing_a_shard_lets_its_writers_in() {
    const MANY: u64 = 200_000;
    let clock = Counting::default();
    let cache: Cache<u64, u64> = Cache::builder().ticker(clock.clone()).build();
    let engine = cache.engine();
    let mut keys = (0..).filter(|key| engine.map.shard_of(cache.hash(key)) == 0);
    for key in keys.by_ref().take(MANY as usize) {
        cache.insert_with_ttl(key, key, Duration::from_secs(1));
    }
    let late: Vec<u64> = keys.take(5).collect();
    cache.run_pending_tasks();
    let before = clock.0.load(Ordering::SeqCst);
    let (other, readings) = (cache.clone(), Arc::clone(&clock.0));
    let writer = std::thread::spawn(move || {
        // Each removal reads the clock once, under the lock of the shard: so this many are
        // done.
        while readings.load(Ordering::SeqCst) < before + 100 {
            std::hint::spin_loop();
        }
        late.into_iter().for_each(|key| other.insert(key, 0));
        readings.load(Ordering::SeqCst) - before
    });
    cache.invalidate_all();
    let taken = writer.join().expect("no panic");
    assert!(
        taken < MANY / 2,
        "a writer got in after {taken} of {MANY} removals"
    );
}

#[test]
fn clearing_a_shard_takes_many_entries_in_one_hold() {
    const MANY: usize = 6_400;
    let (handle, seen) = (Arc::new(Mutex::new(None)), Arc::default());
    let (its_handle, its_seen) = (Arc::clone(&handle), Arc::clone(&seen));
    // The listener runs after each hold that has removed entries.
    let cache: Cache<u64, u64> = Cache::builder()
        .scheduler(Scheduler::disabled())
        .delivery(Delivery::Caller)
        .removal_listener(move |_, _, _| {
            let left = its_handle.lock().unwrap().as_ref().map(Cache::entry_count);
            let seen: &Mutex<BTreeSet<u64>> = &its_seen;
            seen.lock().unwrap().extend(left);
        })
        .build();
    *handle.lock().unwrap() = Some(cache.clone());
    let engine = cache.engine();
    let keys = (0..).filter(|key| engine.map.shard_of(cache.hash(key)) == 0);
    keys.take(MANY).for_each(|key| cache.insert(key, key));
    cache.invalidate_all();
    *handle.lock().unwrap() = None;
    let holds = seen.lock().unwrap().len();
    assert!((MANY / 128..MANY / 32).contains(&holds), "{holds} holds");
}
