//! Removed keys and values are dropped soon, and each is dropped once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::acting::Acting;
use crate::support::census::{Census, Counted};
use crate::support::{must_end, secs, until};
use wheelhouse::{Cache, Delivery, ManualTicker, Scheduler};

type Pair = Cache<Counted<u32>, Counted<u32>>;

struct Stock {
    keys: Census,
    values: Census,
    clock: ManualTicker,
    cache: Pair,
}

impl Stock {
    fn new() -> Stock {
        Self::bounded(u64::MAX)
    }

    fn bounded(capacity: u64) -> Stock {
        let clock = ManualTicker::new();
        let cache = Cache::builder()
            .max_capacity(capacity)
            .ticker(clock.clone())
            .build();
        Stock {
            keys: Census::default(),
            values: Census::default(),
            clock,
            cache,
        }
    }

    fn filled(count: u32) -> Stock {
        let stock = Stock::new();
        for n in 0..count {
            stock.insert(n);
        }
        stock.cache.run_pending_tasks();
        stock
    }

    fn insert(&self, n: u32) {
        self.cache
            .insert(self.keys.counted(n), self.values.counted(n));
    }

    /// A key for look-ups, which is not counted.
    fn key(n: u32) -> Counted<u32> {
        Census::default().counted(n)
    }

    #[track_caller]
    fn three_passes_leave(&self, expected: i64) {
        for _ in 0..3 {
            self.cache.run_pending_tasks();
        }
        assert_eq!(
            (self.keys.alive(), self.values.alive()),
            (expected, expected),
            "keys and values"
        );
    }
}

#[test]
fn removed_and_invalidated_pairs_are_dropped() {
    let stock = Stock::filled(1_000);
    for n in 0..500 {
        stock.cache.invalidate(&Stock::key(n));
    }
    stock.three_passes_leave(500);
    for n in 500..900 {
        let value = stock.cache.remove(&Stock::key(n)).unwrap();
        assert_eq!(value.payload, n);
    }
    stock.three_passes_leave(100);
}

#[test]
fn a_single_removed_pair_is_dropped() {
    // Alone, it fills no batch: neither of events nor of memory to reclaim.
    let stock = Stock::filled(1);
    stock.cache.invalidate(&Stock::key(0));
    stock.three_passes_leave(0);
    stock.insert(1);
    stock.insert(1);
    stock.three_passes_leave(1);
}

#[test]
fn replaced_pairs_are_dropped() {
    let stock = Stock::filled(1_000);
    for _ in 0..3 {
        for n in 0..1_000 {
            stock.insert(n);
        }
    }
    stock.three_passes_leave(1_000);
}

#[test]
fn expired_pairs_are_dropped() {
    let stock = Stock::filled(10);
    for n in 1_000..5_000 {
        let (key, value) = (stock.keys.counted(n), stock.values.counted(n));
        stock.cache.insert_with_ttl(key, value, secs(u64::from(n)));
    }
    stock.clock.advance(secs(2_999));
    stock.three_passes_leave(2_010);
    stock.clock.advance(secs(5_000));
    stock.three_passes_leave(10);
}

#[test]
fn rejected_pairs_are_dropped() {
    for capacity in [0, 1, 100] {
        let stock = Stock::bounded(capacity);
        for n in 0..2_000 {
            stock.insert(n);
        }
        stock.three_passes_leave(capacity as i64);
    }
}

#[test]
fn pairs_that_were_refused_or_cleared_are_dropped() {
    let stock = Stock::filled(10_000);
    stock.cache.retain(|key, _| key.payload % 2 == 0);
    stock.three_passes_leave(5_000);
    stock.cache.invalidate_all();
    stock.three_passes_leave(0);
}

#[test]
fn a_reference_keeps_its_pair_until_the_reference_is_dropped() {
    let stock = Stock::filled(10);
    let entry = stock.cache.get_ref(&Stock::key(3)).unwrap();
    stock.cache.invalidate_all();
    for _ in 0..10 {
        stock.cache.run_pending_tasks();
    }
    assert_eq!((entry.key().payload, entry.value().payload), (3, 3));
    assert!(stock.values.alive() >= 1);
    drop(entry);
    stock.three_passes_leave(0);
}

#[test]
fn a_reference_into_another_cache_delays_no_drop() {
    let (stock, other) = (Stock::filled(100), Stock::filled(1));
    let entry = other.cache.get_ref(&Stock::key(0)).unwrap();
    stock.cache.invalidate_all();
    stock.three_passes_leave(0);
    assert_eq!(entry.payload, 0);
}

#[test]
fn pairs_removed_by_a_thread_that_idles_or_ended_are_dropped() {
    let stock = Stock::filled(300);
    let (done, wait_done) = mpsc::channel();
    let (end, wait_end) = mpsc::channel::<()>();
    let cache = stock.cache.clone();
    let idle = std::thread::spawn(move || {
        (0..100).for_each(|n| cache.invalidate(&Stock::key(n)));
        drop(cache.get_ref(&Stock::key(200)));
        done.send(()).unwrap();
        // A thread that stays alive and never uses this or any other cache again.
        wait_end.recv().unwrap();
    });
    wait_done.recv().unwrap();
    stock.three_passes_leave(200);

    let cache = stock.cache.clone();
    std::thread::spawn(move || (100..150).for_each(|n| cache.invalidate(&Stock::key(n))))
        .join()
        .unwrap();
    stock.three_passes_leave(150);
    end.send(()).unwrap();
    idle.join().unwrap();
}

#[test]
fn passes_of_another_thread_drop_it_too() {
    let stock = Stock::filled(100);
    stock.cache.invalidate_all();
    let cache = stock.cache.clone();
    std::thread::spawn(move || (0..3).for_each(|_| cache.run_pending_tasks()))
        .join()
        .unwrap();
    assert_eq!((stock.keys.alive(), stock.values.alive()), (0, 0));
}

#[test]
fn run_pending_tasks_waits_for_values_that_another_thread_drops() {
    let cache: Cache<u32, Acting> = Cache::builder().ticker(ManualTicker::new()).build();
    let (begun, has_begun) = mpsc::channel();
    let (let_go, go_on) = mpsc::channel();
    let dropped = Arc::new(AtomicBool::new(false));
    let (go_on, was_dropped) = (Mutex::new(go_on), Arc::clone(&dropped));
    let slow = move || {
        begun.send(()).unwrap();
        go_on.lock().unwrap().recv().unwrap();
        was_dropped.store(true, Ordering::SeqCst);
    };
    cache.insert(1, Acting::when_dropped(1, slow));
    cache.invalidate(&1);
    let dropping = std::thread::spawn({
        let cache = cache.clone();
        move || (0..3).for_each(|_| cache.run_pending_tasks())
    });
    has_begun.recv().unwrap();
    let (done, was_dropped) = mpsc::channel();
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (cache, dropped, done) = (cache.clone(), Arc::clone(&dropped), done.clone());
            std::thread::spawn(move || {
                cache.run_pending_tasks();
                done.send(dropped.load(Ordering::SeqCst)).unwrap();
            })
        })
        .collect();
    let early = was_dropped.recv_timeout(Duration::from_millis(20));
    assert!(early.is_err(), "returned while a value was being dropped");
    let_go.send(()).unwrap();
    assert_eq!(
        (was_dropped.recv(), was_dropped.recv()),
        (Ok(true), Ok(true))
    );
    dropping.join().unwrap();
    waiting.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn pairs_removed_by_a_destructor_on_another_thread_are_dropped_too() {
    let cache: Cache<u32, Acting> = Cache::builder().ticker(ManualTicker::new()).build();
    let (begun, has_begun) = mpsc::channel();
    let mut let_go = Vec::new();
    for key in 0..3 {
        let (go, go_on) = mpsc::channel();
        let_go.push(go);
        let (inner, begun, go_on) = (cache.clone(), begun.clone(), Mutex::new(go_on));
        // On any thread, it reports that it runs, waits, removes another value, and is slow.
        let heavy = move || {
            begun.send(()).unwrap();
            // It continues on its own at last, so that a failed test does not hang.
            _ = go_on.lock().unwrap().recv_timeout(secs(20));
            inner.invalidate(&(key + 1));
            std::thread::sleep(Duration::from_millis(20));
        };
        cache.insert(key, Acting::when_dropped(key, heavy));
    }
    cache.invalidate(&0);
    let dropping = std::thread::spawn({
        let cache = cache.clone();
        move || (0..3).for_each(|_| cache.run_pending_tasks())
    });
    has_begun.recv().unwrap();
    let waiting = std::thread::spawn({
        let cache = cache.clone();
        move || cache.run_pending_tasks()
    });
    // By now it waits for the first, most likely; if not yet, it still has to do the same things.
    std::thread::sleep(Duration::from_millis(20));
    let_go.iter().for_each(|go| go.send(()).unwrap());
    waiting.join().unwrap();
    dropping.join().unwrap();
    // A pin of the other's pass may have held up the last of them.
    cache.run_pending_tasks();
    let dropped = 1 + has_begun.try_iter().count();
    assert_eq!(
        (dropped, cache.entry_count()),
        (3, 0),
        "dropped, still there"
    );
}

#[test]
fn three_passes_beside_the_scheduler_thread_drop_everything() {
    let values = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::new(1000);
    for round in 0..300 {
        for key in 0..1000 + round {
            cache.insert(key % 900, values.counted(key));
        }
        cache.invalidate_all();
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!(values.alive(), 0, "round {round}");
    }
}

#[test]
fn dropping_the_last_handle_drops_everything() {
    for passes in 0..2 {
        let stock = Stock::new();
        for n in 0..1_000 {
            stock.insert(n);
            stock.cache.insert_with_ttl(
                stock.keys.counted(n + 5_000),
                stock.values.counted(n),
                secs(u64::from(n) + 1),
            );
            stock.cache.invalidate(&Stock::key(n / 2));
        }
        stock.clock.advance(secs(500));
        (0..passes).for_each(|_| stock.cache.run_pending_tasks());
        let Stock {
            keys,
            values,
            clock: _,
            cache,
        } = stock;
        let other = cache.clone();
        drop(cache);
        assert!(values.alive() > 0);
        drop(other);
        assert_eq!((keys.alive(), values.alive()), (0, 0));
    }
}

#[test]
fn dropping_the_last_handle_on_another_thread_drops_everything() {
    let Stock {
        keys,
        values,
        clock: _,
        cache,
    } = Stock::filled(1_000);
    let other = cache.clone();
    (0..100).for_each(|n| cache.invalidate(&Stock::key(n)));
    drop(cache);
    std::thread::spawn(move || drop(other)).join().unwrap();
    assert_eq!((keys.alive(), values.alive()), (0, 0));
}

#[test]
fn values_that_call_the_cache_when_dropped_do_no_harm() {
    let census = Census::default();
    let counted = census.clone();
    must_end(move || {
        let clock = ManualTicker::new();
        let cache: Cache<u32, Acting> = Cache::builder().ticker(clock.clone()).build();
        for key in 0..100 {
            let (inner, census, own) = (cache.clone(), counted.clone(), counted.counted(key));
            let calls = move || {
                let next = census.counted(0);
                inner.insert(1_000, Acting::when_dropped(0, move || drop(next)));
                inner.invalidate(&999);
                inner.run_pending_tasks();
                drop(own);
            };
            let value = Acting::when_dropped(key, calls);
            cache.insert_with_ttl(key, value, secs(u64::from(key % 2)));
        }
        clock.advance(secs(10));
        for _ in 0..6 {
            cache.run_pending_tasks();
        }
        assert_eq!(cache.entry_count(), 1);
        cache.invalidate_all();
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!(counted.alive(), 0);
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_in_a_drop_does_not_stop_the_cache() {
    let cache: Cache<u32, Acting> = Cache::builder().ticker(ManualTicker::new()).build();
    for key in 0..100 {
        let bomb = move || assert_ne!(key, 50, "told to panic in drop");
        cache.insert(key, Acting::when_dropped(key, bomb));
    }
    cache.invalidate_all();
    // It is not guaranteed where the panic surfaces; it is that the cache still works.
    for _ in 0..6 {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.run_pending_tasks())).ok();
    }
    cache.insert(1, Acting::idle(1));
    assert!(cache.contains_key(&1));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 1);
    cache.invalidate(&1);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}

/// Without a scheduler, and so with one part, removals drop what was removed, also those of absent
/// keys.
#[test]
fn a_thousand_removals_drop_what_was_removed() {
    type Cached = Cache<u32, Counted<u32>>;
    type Removal = (&'static str, fn(&Cached));
    type Operation = (&'static str, fn(&Cached, u32));
    const KEYS: u32 = 1_000;
    let removals: [Removal; 5] = [
        ("one invalidate", |cache| cache.invalidate(&1)),
        ("invalidate", |cache| {
            (1..KEYS).for_each(|key| cache.invalidate(&key));
        }),
        ("remove", |cache| drop(cache.remove(&1))),
        ("retain", |cache| cache.retain(|key, _| *key == 0)),
        ("invalidate_all", Cache::invalidate_all),
    ];
    let operations: [Operation; 3] = [
        ("invalidate", |cache, n| cache.invalidate(&(n + 9_999))),
        ("remove", |cache, n| drop(cache.remove(&(n + 9_999)))),
        ("remove_if", |cache, n| {
            drop(cache.remove_if(&(n + 9_999), |_| true));
        }),
    ];
    for bound in [None, Some(2_000)] {
        for (removal, remove) in removals {
            for (name, operation) in operations {
                let census = Census::default();
                let mut builder = Cache::builder().ticker(ManualTicker::new()).parts(1);
                if let Some(bound) = bound {
                    builder = builder.max_capacity(bound);
                }
                let cache: Cached = builder.build();
                (0..KEYS).for_each(|key| cache.insert(key, census.counted(key)));
                remove(&cache);
                (0..1_000).for_each(|n| operation(&cache, n));
                assert_eq!(
                    census.alive(),
                    cache.entry_count() as i64,
                    "{name} after {removal}, bound {bound:?}"
                );
            }
        }
    }
}

/// What a reader holds is dropped by the calls after it.
#[test]
fn a_thousand_removals_after_a_reader_drop_what_it_held() {
    let census = Census::default();
    let builder = Cache::builder().ticker(ManualTicker::new());
    let cache: Cache<u32, Counted<u32>> = builder.parts(1).build();
    (0..100).for_each(|key| cache.insert(key, census.counted(key)));
    let held = cache.get_ref(&1);
    (1..100).for_each(|key| cache.invalidate(&key));
    (0..5_000).for_each(|_| cache.invalidate(&9_999));
    assert_eq!(census.alive(), 100);
    drop(held);
    (0..1_000).for_each(|_| cache.invalidate(&9_999));
    assert_eq!(census.alive(), 1);
}

/// So do inserts, but for what the last of them have replaced.
#[test]
fn a_thousand_inserts_drop_what_was_removed() {
    let census = Census::default();
    let builder = Cache::builder().ticker(ManualTicker::new());
    let cache: Cache<u32, Counted<u32>> = builder.parts(1).build();
    (0..1_000).for_each(|key| cache.insert(key, census.counted(key)));
    (1..1_000).for_each(|key| cache.invalidate(&key));
    // A pass of the scheduler thread that is preempted meanwhile holds up the dropping.
    let mut beside = 0;
    for _ in 0..20 {
        (0..1_000).for_each(|_| cache.insert(0, census.counted(0)));
        beside = census.alive() - cache.entry_count() as i64;
        if (0..200).contains(&beside) {
            return;
        }
    }
    panic!("{beside} values wait");
}

/// If no reader and no listener needs them. A secret must not lie in memory for longer.
#[test]
fn a_clear_drops_what_it_removes_before_it_returns() {
    for delivery in [None, Some(Delivery::Caller)] {
        for scheduler in [Scheduler::background(), Scheduler::disabled()] {
            let census = Census::default();
            let mut builder = Cache::builder().scheduler(scheduler);
            if let Some(delivery) = delivery {
                builder = builder
                    .delivery(delivery)
                    .removal_listener(|_: &u32, _: &Counted<u32>, _| ());
            }
            let cache: Cache<u32, Counted<u32>> = builder.build();
            for entries in [1, 100, 5_000] {
                (0..entries).for_each(|key| cache.insert(key, census.counted(key)));
                cache.invalidate_all();
                assert_eq!(census.alive(), 0, "{entries} entries, {delivery:?}");
                (0..entries).for_each(|key| cache.insert(key, census.counted(key)));
                cache.retain(|_, _| false);
                assert_eq!(census.alive(), 0, "{entries} entries, {delivery:?}");
            }
            // A reader keeps what was removed.
            cache.insert(1, census.counted(1));
            let read = cache.get_ref(&1);
            cache.invalidate_all();
            assert_eq!(census.alive(), 1);
            drop(read);
        }
    }
}

/// A value that is dropped late, as one of many: the first of them leaves a cache something to do,
/// and the last of them looks whether it was done.
struct Late {
    other: Cache<u8, u8>,
    dropped: Arc<AtomicU64>,
    left: Arc<AtomicU64>,
}

const LATE: u64 = 50_000;
const NOT_YET: u64 = u64::MAX;

impl Drop for Late {
    fn drop(&mut self) {
        let before = self.dropped.fetch_add(1, Ordering::SeqCst);
        if before == 0 {
            self.other.insert_with_ttl(1, 1, Duration::ZERO);
        } else if before == LATE - 1 {
            self.left.store(self.other.entry_count(), Ordering::SeqCst);
        }
    }
}

#[test]
fn a_cache_with_much_to_free_does_not_hold_up_another_cache() {
    let other = Cache::builder().build();
    let dropped = Arc::<AtomicU64>::default();
    let left = Arc::new(AtomicU64::new(NOT_YET));
    let late = || Late {
        other: other.clone(),
        dropped: Arc::clone(&dropped),
        left: Arc::clone(&left),
    };
    let cache: Cache<u64, Late> = Cache::builder().build();
    (0..=LATE + 1).for_each(|key| cache.insert(key, late()));
    let held = cache.get_ref(&0).expect("it is there");
    cache.retain(|key, _| *key < 2);
    assert_eq!(dropped.load(Ordering::SeqCst), 0, "a reader holds them");
    drop(held);
    // So that the scheduler thread comes.
    cache.invalidate(&1);
    until("they are dropped", || {
        left.load(Ordering::SeqCst) != NOT_YET
    });
    assert_eq!(
        left.load(Ordering::SeqCst),
        0,
        "the other cache had its turn"
    );
    // It holds one yet.
    drop(cache);
}
