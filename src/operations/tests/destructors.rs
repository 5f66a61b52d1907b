//! Destructors run while the calling thread holds no pin: they may call the cache, and take long.

use crate::{Cache, CacheBuilder, ManualTicker};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

thread_local!(static CALLING: Cell<bool> = const { Cell::new(false) });

/// Looks, when it is dropped by a call of the cache, whether that call holds a pin.
struct Probe {
    cache: Weak<Cache<u32, Probe>>,
    seen: Arc<[AtomicU32; 2]>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        if CALLING.get() {
            let pinned = cache.engine().is_pinned();
            self.seen[usize::from(pinned)].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs `call` on many expired entries and says how many values it dropped without a pin, and
/// with one.
fn dropped_by(
    builder: CacheBuilder<u32, Probe>,
    call: impl Fn(&Cache<u32, Probe>, u32),
) -> [u32; 2] {
    let (second, clock) = (Duration::from_secs(1), ManualTicker::new());
    let cache = Arc::new(builder.ticker(clock.clone()).build());
    let seen = Arc::new([const { AtomicU32::new(0) }; 2]);
    let put = |key: u32, lifetime| {
        let value = Probe {
            cache: Arc::downgrade(&cache),
            seen: Arc::clone(&seen),
        };
        cache.insert_with_ttl(key, value, lifetime);
    };
    for _ in 0..4 {
        // Nothing is freed while this is held, so that there is something left to free for the
        // calls.
        put(9_999, second * 3);
        let held = cache.peek_ref(&9_999);
        (0..2_000).for_each(|key| put(key, second * (key % 2 * 4 + 1)));
        drop(held);
        clock.advance(second * 3);
        CALLING.set(true);
        for key in 0..2_000 {
            call(&cache, key);
        }
        CALLING.set(false);
        clock.advance(second * 3);
    }
    [0, 1].map(|pinned: usize| seen[pinned].load(Ordering::Relaxed))
}

#[test]
fn destructors_run_without_a_pin() {
    type Call = fn(&Cache<u32, Probe>, u32);
    let calls: [(&str, Call); 5] = [
        ("get_ref", |cache, key| drop(cache.get_ref(&key))),
        ("peek_ref", |cache, key| drop(cache.peek_ref(&key))),
        ("contains_key", |cache, key| _ = cache.contains_key(&key)),
        ("invalidate", |cache, key| cache.invalidate(&key)),
        ("retain", |cache, one| {
            cache.retain(|key, _| key % 40 != one % 40)
        }),
    ];
    let without_a_pin = |builder, name, call: Call| {
        let [unpinned, pinned] = dropped_by(builder, call);
        assert_eq!(pinned, 0, "{name} holds a pin");
        assert!(
            unpinned > 0,
            "{name} never dropped anything: nothing was shown"
        );
    };
    for (name, call) in calls {
        without_a_pin(Cache::builder(), name, call);
        let second = Some(Duration::from_secs(1));
        let shortens = crate::expiry::accessing(move |_: &u32, _: &Probe| second);
        let [_, pinned] = dropped_by(Cache::builder().expire_after(shortens), call);
        assert_eq!(pinned, 0, "{name} that shortens a lifetime holds a pin");
    }
    let views: [(&str, Call); 2] = [
        ("first_to_evict", |cache, key| {
            if key % 10 == 0 {
                drop(cache.policy().first_to_evict(1));
            }
        }),
        ("hottest", |cache, key| {
            if key % 100 == 0 {
                drop(cache.policy().hottest(1));
            }
        }),
    ];
    for (name, call) in views {
        without_a_pin(Cache::builder().max_capacity(1_000), name, call);
    }
}

#[test]
fn what_a_panic_drops_is_dropped_without_a_pin() {
    /// Panics while it is told to.
    #[derive(Clone, Default)]
    struct Bad(Arc<AtomicU32>);
    impl Bad {
        fn touch(&self) {
            if self.0.load(Ordering::Relaxed) != 0 {
                std::panic::resume_unwind(Box::new("as told"));
            }
        }
    }
    impl crate::Ticker for Bad {
        fn nanos(&self) -> u64 {
            self.touch();
            0
        }
    }
    let (policy, ticker) = (Bad::default(), Bad::default());
    let asked = policy.clone();
    let cache = Cache::builder()
        .ticker(ticker.clone())
        .expire_after(crate::expiry::writing(move |_: &u32, _: &Probe| {
            asked.touch();
            Some(Duration::from_secs(1))
        }))
        .build();
    let cache = Arc::new(cache);
    for bad in [&policy, &ticker] {
        let seen = Arc::new([const { AtomicU32::new(0) }; 2]);
        let value = Probe {
            cache: Arc::downgrade(&cache),
            seen: Arc::clone(&seen),
        };
        bad.0.store(1, Ordering::Relaxed);
        CALLING.set(true);
        let insert = std::panic::AssertUnwindSafe(|| cache.insert(1, value));
        let outcome = std::panic::catch_unwind(insert);
        CALLING.set(false);
        bad.0.store(0, Ordering::Relaxed);
        assert!(outcome.is_err(), "nothing was shown");
        let seen = [0, 1].map(|pinned: usize| seen[pinned].load(Ordering::Relaxed));
        assert_eq!(seen, [1, 0], "dropped without a pin, and with one");
        assert!(!cache.contains_key(&1));
    }
}

#[test]
fn a_miss_on_an_expired_entry_takes_no_lock() {
    let (second, clock) = (Duration::from_secs(1), ManualTicker::new());
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .time_to_idle(second)
        .build();
    cache.insert(1, 1);
    cache.run_pending_tasks();
    clock.advance(second);
    let held = cache.engine().map.lock(cache.hash(&1));
    // No thread runs a pass meanwhile: it would need the shard's lock, too.
    let passes = cache.engine().hold_passes();
    let (told, tells) = mpsc::channel();
    let other = cache.clone();
    let reader = std::thread::spawn(move || {
        // The first look claims, the others find it claimed.
        for _ in 0..3 {
            told.send(other.get(&1)).ok();
        }
    });
    for _ in 0..3 {
        let answer = tells.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer, Ok(None), "waits for the shard's lock");
    }
    reader.join().expect("no panic");
    drop((held, passes));
}
