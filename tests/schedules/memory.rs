//! When keys and values are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use shuttle::thread;
use wheelhouse::{Cache, ManualTicker};

use crate::explore;
use crate::support::census::Census;

/// Shows whether it was dropped.
struct Witness(Arc<AtomicBool>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A reference is held during look-ups, while other threads replace, remove and expire its entry
/// and free all they can.
#[test]
fn what_is_held_is_not_dropped() {
    explore(|| {
        let time = ManualTicker::new();
        let cache: Cache<u64, Witness> = Cache::builder()
            .max_capacity(8)
            .time_to_live(Duration::from_secs(5))
            .ticker(time.clone())
            .build();
        let witness = || Witness(Arc::default());
        cache.insert(1, witness());
        cache.insert(2, witness());
        let replacing = {
            let cache = cache.clone();
            thread::spawn(move || {
                cache.insert(1, Witness(Arc::default()));
                cache.run_pending_tasks();
                cache.invalidate(&1);
                cache.run_pending_tasks();
            })
        };
        let expiring = {
            let cache = cache.clone();
            thread::spawn(move || {
                time.advance(Duration::from_secs(5));
                (0..4).for_each(|_| cache.run_pending_tasks());
            })
        };
        for _ in 0..2 {
            let held = [cache.get_ref(&1), cache.peek_ref(&2)];
            let flags: Vec<_> = held
                .iter()
                .flatten()
                .map(|entry| Arc::clone(&entry.0))
                .collect();
            cache.contains_key(&3);
            thread::yield_now();
            cache.contains_key(&2);
            assert!(flags.iter().all(|dropped| !dropped.load(SeqCst)));
            drop(held);
        }
        replacing.join().unwrap();
        expiring.join().unwrap();
    });
}

/// The last handle is dropped on any thread, while other threads are in the middle of their calls;
/// nothing is left and nothing is dropped twice.
#[test]
fn the_last_drop_drops_everything() {
    explore(|| {
        let census = Census::default();
        let time = ManualTicker::new();
        let heard = Census::default();
        let listener_heard = heard.clone();
        let cache: Cache<u64, _> = Cache::builder()
            .max_capacity(2)
            .time_to_idle(Duration::from_secs(5))
            .ticker(time.clone())
            .removal_listener(move |_: &u64, _: &_, _| {
                drop(listener_heard.counted(()));
            })
            .build();
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (cache, census, time) = (cache.clone(), census.clone(), time.clone());
                thread::spawn(move || {
                    cache.insert(number, census.counted(number));
                    cache.insert(number / 2, census.counted(number));
                    drop(cache.get(&1));
                    if number == 1 {
                        time.advance(Duration::from_secs(5));
                        cache.run_pending_tasks();
                    }
                    cache.invalidate(&0);
                })
            })
            .collect();
        drop(cache);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(census.alive(), 0);
        assert_eq!(heard.alive(), 0);
    });
}
