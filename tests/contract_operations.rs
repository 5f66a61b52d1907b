//! Sections 3, 4 and 5 of the contract: operations, statistics, passes, and the listener.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse::{
    Cache, EntryRef, EvictionPolicy, Iter, ManualTicker, Policy, RemovalCause, Scheduler, Stats,
    Ticker,
};

const SECOND: Duration = Duration::from_secs(1);
const GENEROUS: Duration = Duration::from_secs(30);

type C = Cache<u32, Counted>;

/// Counts the values that are alive.
#[derive(Clone)]
struct Counted(u32, #[allow(dead_code)] Arc<()>);

#[test]
fn every_operation_has_the_promised_shape() {
    let _: fn(&C, &u32) -> Option<Counted> = |c, k| c.get(k);
    let _: for<'a> fn(&'a C, &u32) -> Option<EntryRef<'a, u32, Counted>> = |c, k| c.get_ref(k);
    let _: for<'a> fn(&'a C, &u32) -> Option<EntryRef<'a, u32, Counted>> = |c, k| c.peek_ref(k);
    let _: fn(&C, &u32) -> bool = |c, k| c.contains_key(k);
    let _: fn(&C, u32, Counted) = |c, k, v| c.insert(k, v);
    let _: fn(&C, u32, Counted, Duration) = |c, k, v, d| c.insert_with_ttl(k, v, d);
    let _: fn(&C, &u32, Option<Duration>) -> bool = |c, k, d| c.set_expiry(k, d);
    let _: fn(&C, &u32) = |c, k| c.invalidate(k);
    let _: fn(&C, &u32) -> Option<Counted> = |c, k| c.remove(k);
    let _: fn(&C) = |c| c.invalidate_all();
    let _: fn(&C) -> u64 = |c| c.entry_count();
    let _: fn(&C) -> u64 = |c| c.weighted_size();
    let _: fn(&C) = |c| c.run_pending_tasks();
    let _: fn(&C) -> Option<Duration> = |c| c.next_maintenance_in();
    let _: fn(&C) -> Stats = |c| c.stats();
    let _: fn(&C) -> Option<&str> = |c| c.name();
    fn policy<S>(policy: &Policy<'_, u32, u32, S>)
    where
        S: std::hash::BuildHasher + Clone + Send + Sync + 'static,
    {
        let _: Instant = policy.now();
        let _: Option<u64> = policy.max_capacity();
        let _: () = policy.set_max_capacity(3);
        let _: Option<u32> = policy.weight_of(&1);
        let _: [Option<Duration>; 2] = [policy.time_to_live(), policy.time_to_idle()];
        let _: Duration = policy.expiry_resolution();
        let _: EvictionPolicy = policy.eviction_policy();
    }
    fn iterates<'a, S: std::hash::BuildHasher + Clone + Send + Sync + 'static>(
        cache: &'a Cache<u32, u32, S>,
    ) -> Iter<'a, u32, u32, S> {
        cache.iter()
    }
    let cache: Cache<u32, u32> = Cache::new(3);
    assert_eq!(iterates(&cache).count(), 0);
    policy(&cache.policy());
    let _: fn(&Stats) -> (u64, u64, f64, u64, u64, u64, u64, u64, u64) = |s| {
        (
            s.hits(),
            s.misses(),
            s.hit_ratio(),
            s.insertions(),
            s.updates(),
            s.removals(RemovalCause::Size),
            s.evicted_weight(),
            s.listener_panics(),
            s.maintenance_passes(),
        )
    };
    let _: fn(&Stats) -> Duration = |s| s.maintenance_time();
    let _: fn(&Stats, f64) -> Option<Duration> = |s, q| s.expiry_lateness(q);
    let _: fn(Stats, Stats) -> Stats = |a, b| a - b;
}

#[test]
fn a_ticker_is_one_method_and_a_manual_one_is_shared_by_its_clones() {
    fn ticker<T: Ticker + Send + Sync + 'static>(ticker: &T) -> u64 {
        ticker.nanos()
    }
    let one = ManualTicker::starting_at(u64::MAX);
    let two = one.clone();
    assert_eq!(ticker(&one), u64::MAX);
    two.advance(Duration::from_nanos(2));
    assert_eq!(one.nanos(), 1, "wraps");
    one.set_nanos(40);
    assert_eq!(two.nanos(), 40);
    one.set_nanos(30);
    assert_eq!(two.nanos(), 30);
    let _ = ManualTicker::new();
}

#[test]
fn an_entry_reference_tells_its_parts_and_blocks_no_writer() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, String> = Cache::builder().ticker(ticker.clone()).build();
    cache.insert_with_ttl(1, "one".to_owned(), 10 * SECOND);
    ticker.advance(4 * SECOND);
    let entry = cache.get_ref(&1).unwrap();
    assert_eq!(
        (entry.key(), entry.value().as_str(), entry.len()),
        (&1, "one", 3)
    );
    assert_eq!(entry.time_left(), Some(6 * SECOND));
    assert_eq!(entry.age(), 4 * SECOND);
    cache.insert(1, "two".to_owned());
    cache.invalidate(&1);
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(entry.value(), "one", "still the value that was read");
    drop(entry);
    cache.insert(1, "x".to_owned());
    ticker.advance(SECOND);
    assert_eq!(cache.peek_ref(&1).unwrap().age(), SECOND);
    cache.get(&1);
    cache.set_expiry(&1, Some(SECOND));
    assert_eq!(
        cache.peek_ref(&1).unwrap().age(),
        SECOND,
        "neither is a write"
    );
    cache.insert(1, "y".to_owned());
    assert_eq!(cache.peek_ref(&1).unwrap().age(), Duration::ZERO);
}

#[test]
fn retain_and_iteration_and_invalidate_all() {
    let heard = Arc::new(Mutex::new(HashMap::new()));
    let sink = heard.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .removal_listener(move |k: &u32, _: &u32, cause| {
            assert!(
                sink.lock().unwrap().insert(*k, cause).is_none(),
                "one for each"
            );
        })
        .build();
    for key in 0..1_000 {
        cache.insert(key, key);
    }
    let mut seen: Vec<u32> = (&cache).into_iter().map(|entry| *entry.key()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..1_000).collect::<Vec<_>>());
    let mut asked = 0;
    cache.retain(|key, value| {
        asked += 1;
        assert_eq!(key, value);
        key % 2 == 0
    });
    assert_eq!(asked, 1_000);
    assert_eq!(cache.entry_count(), 500);
    cache.invalidate_all();
    assert_eq!(cache.iter().count(), 0);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 1_000);
    assert!(heard.values().all(|cause| *cause == RemovalCause::Explicit));
}

#[test]
fn statistics_are_zero_unless_asked_for() {
    let cache: Cache<u32, u32> = Cache::new(1);
    for key in 0..100 {
        cache.insert(key, key);
        cache.get(&key);
        cache.get(&1_000);
    }
    cache.get_with(2_000, || 1);
    cache.run_pending_tasks();
    let stats = cache.stats();
    let counts = [
        stats.hits(),
        stats.misses(),
        stats.insertions(),
        stats.updates(),
        stats.removals(RemovalCause::Size),
        stats.evicted_weight(),
        stats.maintenance_passes(),
        stats.loads(),
    ];
    assert_eq!(counts, [0; 8]);
    assert_eq!(stats.maintenance_time(), Duration::ZERO);
    assert_eq!(stats.expiry_lateness(0.5), None);
}

#[test]
fn statistics_count_what_happened() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .max_capacity(100)
        .weigher(|_, value: &u32| *value)
        .record_stats()
        .ticker(ticker.clone())
        .build();
    cache.insert(1, 1);
    cache.insert(1, 2);
    cache.insert(2, 1);
    cache.insert_with_ttl(3, 1, SECOND);
    assert!(cache.get(&1).is_some() && cache.get_ref(&2).is_some() && cache.get(&9).is_none());
    let before = cache.stats();
    assert_eq!((before.hits(), before.misses()), (2, 1));
    assert!((before.hit_ratio() - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!((before.insertions(), before.updates()), (3, 1));
    assert_eq!(before.removals(RemovalCause::Replaced), 1);
    // Those two are no reads.
    let _ = (cache.peek_ref(&1).is_some(), cache.contains_key(&9));
    assert_eq!((cache.stats().hits(), cache.stats().misses()), (2, 1));
    cache.invalidate(&1);
    cache.remove(&2);
    cache.remove(&2);
    ticker.advance(3 * SECOND);
    cache.run_pending_tasks();
    cache.insert(4, 200);
    cache.run_pending_tasks();
    let stats = cache.stats();
    assert_eq!(stats.removals(RemovalCause::Explicit), 2);
    assert_eq!(stats.removals(RemovalCause::Expired), 1);
    assert_eq!(stats.removals(RemovalCause::Size), 1);
    assert_eq!(
        stats.evicted_weight(),
        201,
        "of both causes that count as evicted"
    );
    assert!(stats.maintenance_passes() > 0);
    for quantile in [0.0, 0.5, 1.0] {
        let late = stats.expiry_lateness(quantile).expect("one was removed");
        assert!(late >= SECOND && late <= 4 * SECOND, "{late:?}");
    }
    let interval = stats - before;
    assert_eq!((interval.hits(), interval.misses()), (0, 0));
    assert_eq!(interval.insertions(), 1);
    assert_eq!(interval.removals(RemovalCause::Replaced), 0);
    assert_eq!(interval.removals(RemovalCause::Size), 1);
}

#[test]
fn quantiles_and_ratios_at_their_ends_do_not_panic() {
    let cache: Cache<u32, u32> = Cache::builder().record_stats().build();
    let stats = cache.stats();
    let ratio = stats.hit_ratio();
    assert!(ratio.is_finite() && (0.0..=1.0).contains(&ratio), "{ratio}");
    assert_eq!(stats.expiry_lateness(0.5), None);
}

#[test]
fn shrinking_evicts_in_the_next_passes() {
    let cache: Cache<u32, u32> = Cache::new(1_000);
    for key in 0..1_000 {
        cache.insert(key, key);
    }
    cache.policy().set_max_capacity(10);
    assert_eq!(cache.policy().max_capacity(), Some(10));
    cache.run_pending_tasks();
    assert!(cache.entry_count() <= 10);
    cache.policy().set_max_capacity(500);
    for key in 0..400 {
        cache.insert(key, key);
    }
    cache.run_pending_tasks();
    assert_eq!((0..400).filter(|key| cache.contains_key(key)).count(), 400);
}

#[test]
fn removed_values_are_dropped_within_three_runs() {
    let alive = Arc::new(());
    let ticker = ManualTicker::new();
    let cache: C = Cache::builder()
        .max_capacity(200)
        .ticker(ticker.clone())
        .record_stats()
        .build();
    for round in 0..5 {
        for key in 0..300 {
            cache.insert(key, Counted(round, alive.clone()));
            cache.insert_with_ttl(key + 1_000, Counted(round, alive.clone()), SECOND);
        }
        ticker.advance(3 * SECOND);
        cache.retain(|key, value| key % 3 == 0 && value.0 == round);
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!(Arc::strong_count(&alive) as u64, 1 + cache.entry_count());
    }
    drop(cache);
    assert_eq!(Arc::strong_count(&alive), 1, "the last drop drops all");
}

#[test]
fn nothing_scheduled_means_none_and_a_deadline_means_some() {
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder().ticker(ticker.clone()).build();
    assert_eq!(cache.next_maintenance_in(), None);
    cache.insert(1, 1);
    cache.run_pending_tasks();
    assert_eq!(cache.next_maintenance_in(), None, "it never expires");
    cache.insert_with_ttl(2, 2, 100 * SECOND);
    let next = cache.next_maintenance_in().expect("a deadline");
    assert!(next <= 103 * SECOND, "{next:?}");
    // An event loop that does what it is told removes the entry in time.
    let mut waited = Duration::ZERO;
    while let Some(next) = cache.next_maintenance_in() {
        assert!(waited <= 103 * SECOND);
        let step = next.max(Duration::from_nanos(1));
        ticker.advance(step);
        waited += step;
        cache.run_pending_tasks();
    }
    assert_eq!(cache.entry_count(), 1);
    assert!(
        waited >= 100 * SECOND && waited <= 103 * SECOND,
        "{waited:?}"
    );
}

#[test]
fn one_call_finishes_all_due_work_and_delivers_it() {
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    let ticker = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(ticker.clone())
        .removal_listener(move |_, _, _| {
            count.fetch_add(1, SeqCst);
        })
        .build();
    for key in 0..50_000 {
        cache.insert_with_ttl(key, key, SECOND + Duration::from_micros(u64::from(key)));
    }
    ticker.advance(5 * SECOND);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(heard.load(SeqCst), 50_000);
}

#[test]
fn causes_and_what_counts_as_evicted() {
    use RemovalCause::{Expired, Explicit, Replaced, Size};
    let evicted = [Expired, Explicit, Replaced, Size].map(|cause| cause.was_evicted());
    assert_eq!(evicted, [true, false, false, true]);
    fn plain<T: Copy + Eq + std::fmt::Debug + Send + Sync + 'static>(_: T) {}
    plain(Size);
}

#[test]
fn a_listener_may_use_its_cache_and_hears_in_order_for_each_key() {
    let slot: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (inside, sink) = (slot.clone(), heard.clone());
    let cache: Cache<u32, u32> = Cache::builder()
        .removal_listener(move |key: &u32, value: &u32, cause| {
            sink.lock().unwrap().push((*key, *value, cause));
            let Some(cache) = inside.lock().unwrap().clone() else {
                return;
            };
            assert_ne!(
                cache.peek_ref(key).map(|entry| *entry),
                Some(*value),
                "after the removal"
            );
            if *key == 1 && *value == 1 {
                cache.insert(100, 1);
                cache.invalidate(&100);
                cache.run_pending_tasks(); // returns without waiting
                cache.get_with(101, || 5);
            }
        })
        .build();
    *slot.lock().unwrap() = Some(cache.clone());
    for value in 0..100 {
        cache.insert(1, value);
    }
    cache.invalidate(&1);
    cache.run_pending_tasks();
    cache.run_pending_tasks();
    slot.lock().unwrap().take();
    let all = heard.lock().unwrap();
    let of_one: Vec<_> = all.iter().filter(|(key, ..)| *key == 1).collect();
    assert_eq!(of_one.len(), 100);
    for (value, gone) in of_one.iter().enumerate() {
        let cause = if value == 99 {
            RemovalCause::Explicit
        } else {
            RemovalCause::Replaced
        };
        assert_eq!(**gone, (1, value as u32, cause));
    }
    assert_eq!(all.iter().filter(|gone| gone.0 == 100).count(), 1);
    assert_eq!(cache.get(&101), Some(5));
}

#[test]
fn a_listener_that_panics_stays_in_use_and_is_counted() {
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    let cache: Cache<u32, u32> = Cache::builder()
        .record_stats()
        .removal_listener(move |_, value: &u32, _| {
            count.fetch_add(1, SeqCst);
            assert!(
                value % 2 == 0,
                "an odd value (this panic is part of the test)"
            );
        })
        .build();
    for key in 0..10 {
        cache.insert(key, key);
    }
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(heard.load(SeqCst), 10);
    assert_eq!(cache.stats().listener_panics(), 5);
}

#[test]
fn a_stuck_listener_delays_neither_callers_nor_other_caches() {
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let stuck: Cache<u32, u32> = Cache::builder()
        .removal_listener(move |_, _, _| _ = gate.lock().unwrap().recv())
        .build();
    let (tell, told) = mpsc::channel();
    let other: Cache<u32, u32> = Cache::builder()
        .expiry_resolution(Duration::from_millis(1))
        .removal_listener(move |_, _, _| tell.send(()).unwrap())
        .build();
    stuck.insert(0, 0);
    stuck.invalidate(&0);
    for key in 0..2_000 {
        stuck.insert(key % 50, key);
        stuck.get(&(key % 50));
    }
    other.insert_with_ttl(1, 1, Duration::from_millis(20));
    told.recv_timeout(GENEROUS)
        .expect("the other cache hears of its expiry");
    drop(open);
    stuck.run_pending_tasks();
}

#[test]
fn without_traffic_the_background_removes_and_tells() {
    let (tell, told) = mpsc::channel();
    let cache: Cache<u32, u32> = Cache::builder()
        .scheduler(Scheduler::background())
        .expiry_resolution(Duration::from_millis(2))
        .removal_listener(move |k: &u32, v: &u32, cause| tell.send((*k, *v, cause)).unwrap())
        .build();
    let start = Instant::now();
    cache.insert_with_ttl(1, 2, Duration::from_millis(50));
    assert_eq!(
        told.recv_timeout(GENEROUS),
        Ok((1, 2, RemovalCause::Expired))
    );
    assert!(start.elapsed() >= Duration::from_millis(49));
    // Brought forward, nobody calls the cache.
    cache.insert_with_ttl(3, 4, Duration::from_secs(3_600));
    cache.set_expiry(&3, Some(Duration::from_millis(20)));
    assert_eq!(
        told.recv_timeout(GENEROUS),
        Ok((3, 4, RemovalCause::Expired))
    );
}

#[test]
fn the_last_drop_waits_until_all_is_told_and_dropped() {
    let alive = Arc::new(());
    for threads in 1..=3 {
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        let cache: C = Cache::builder()
            .removal_listener(move |_, _, _| {
                thread::yield_now();
                count.fetch_add(1, SeqCst);
            })
            .build();
        let all = Barrier::new(threads);
        thread::scope(|scope| {
            for n in 0..threads as u32 {
                let (cache, all, alive) = (cache.clone(), &all, &alive);
                scope.spawn(move || {
                    for key in 0..500 {
                        cache.insert(n * 1_000 + key, Counted(key, alive.clone()));
                    }
                    for key in 0..400 {
                        cache.invalidate(&(n * 1_000 + key));
                    }
                    all.wait();
                });
            }
            drop(cache);
        });
        assert_eq!(
            heard.load(SeqCst),
            400 * threads,
            "what had gone, and nothing else"
        );
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn the_last_drop_inside_a_listener_returns_at_once() {
    let alive = Arc::new(());
    let slot: Arc<Mutex<Option<C>>> = Arc::default();
    let (tell, told) = mpsc::channel();
    let inside = slot.clone();
    let cache: C = Cache::builder()
        .removal_listener(move |key: &u32, _: &Counted, _| {
            let last = inside.lock().unwrap().take();
            drop(last);
            tell.send(*key).unwrap();
        })
        .build();
    for key in 0..10 {
        cache.insert(key, Counted(key, alive.clone()));
    }
    *slot.lock().unwrap() = Some(cache.clone());
    {
        let hold = slot.lock().unwrap();
        cache.invalidate(&1);
        cache.invalidate(&2);
        drop(cache); // the handle in the slot is the last one
        drop(hold);
    }
    let mut heard = [
        told.recv_timeout(GENEROUS).unwrap(),
        told.recv_timeout(GENEROUS).unwrap(),
    ];
    heard.sort_unstable();
    assert_eq!(heard, [1, 2]);
    let limit = Instant::now() + GENEROUS;
    while Arc::strong_count(&alive) > 1 {
        assert!(Instant::now() < limit, "the thread does the rest");
        thread::yield_now();
    }
    assert!(told.recv().is_err(), "the living are not told");
}

#[test]
fn every_value_that_leaves_is_told_once_under_contention() {
    let heard = Arc::new(Mutex::new(HashMap::<u64, RemovalCause>::new()));
    let sink = heard.clone();
    let cache: Cache<u32, u64> = Cache::builder()
        .max_capacity(300)
        .removal_listener(move |_, value: &u64, cause| {
            assert!(
                sink.lock().unwrap().insert(*value, cause).is_none(),
                "told twice"
            );
        })
        .build();
    let inserted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for n in 0..4_u64 {
            let (cache, inserted) = (&cache, &inserted);
            scope.spawn(move || {
                for step in 0..10_000_u64 {
                    let key = (step.wrapping_mul(2_654_435_761) >> 7) as u32 % 900;
                    match step % 5 {
                        4 => cache.invalidate(&key),
                        3 => cache.insert_with_ttl(key, n << 32 | step, Duration::ZERO),
                        _ => cache.insert(key, n << 32 | step),
                    }
                    if step % 5 != 4 {
                        inserted.fetch_add(1, SeqCst);
                    }
                }
            });
        }
    });
    cache.run_pending_tasks();
    let heard = heard.lock().unwrap();
    let living: Vec<u64> = cache.iter().map(|entry| *entry).collect();
    assert!(living.iter().all(|value| !heard.contains_key(value)));
    assert_eq!(heard.len() + living.len(), inserted.load(SeqCst));
}
