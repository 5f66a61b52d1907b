//! The guarantees of a removal listener: each pair that left is delivered once, in order for each
//! key, with the value that left, after the removal is visible, with no lock held.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use crate::support::record::Record;
use crate::support::{Gate, NS, must_end, secs};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced, Size};
use wheelhouse::{Cache, ManualTicker, Scheduler};

#[test]
fn each_removal_is_delivered_once_with_its_cause_and_value() {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache: Cache<String, u32> = Cache::builder()
        .max_capacity(1_000)
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    cache.insert("replaced".into(), 1);
    cache.insert("replaced".into(), 2);
    cache.insert("invalidated".into(), 3);
    cache.invalidate("invalidated");
    cache.insert("removed".into(), 4);
    assert_eq!(cache.remove("removed"), Some(4));
    cache.insert_with_ttl("expired".into(), 5, secs(1));
    cache.insert_with_ttl("overwritten late".into(), 6, secs(1));
    cache.insert_with_ttl("invalidated late".into(), 7, secs(1));
    cache.insert_with_ttl("removed late".into(), 8, secs(1));
    clock.advance(secs(1));
    cache.insert("overwritten late".into(), 9);
    cache.invalidate("invalidated late");
    assert_eq!(cache.remove("removed late"), None);
    cache.insert("refused".into(), 10);
    cache.retain(|key, _| key != "refused");
    for _ in 0..4 {
        cache.run_pending_tasks();
    }
    assert_eq!(
        heard.take_sorted(),
        [
            ("expired".into(), 5, Expired),
            ("invalidated".into(), 3, Explicit),
            ("invalidated late".into(), 7, Expired),
            ("overwritten late".into(), 6, Expired),
            ("refused".into(), 10, Explicit),
            ("removed".into(), 4, Explicit),
            ("removed late".into(), 8, Expired),
            ("replaced".into(), 1, Replaced),
        ]
    );
    assert!(Expired.was_evicted() && Size.was_evicted());
    assert!(!Explicit.was_evicted() && !Replaced.was_evicted());
}

#[test]
fn removals_of_one_key_are_delivered_in_their_order() {
    const KEY: u32 = 7;
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    let mut expected = Vec::new();
    for n in 0..5_000 {
        cache.insert_with_ttl(KEY, n, secs(10));
        let cause = match n % 4 {
            0 => {
                cache.invalidate(&KEY);
                Explicit
            }
            1 => Replaced,
            2 => {
                clock.advance(secs(10));
                Expired
            }
            _ => {
                clock.advance(secs(10));
                cache.invalidate(&KEY);
                Expired
            }
        };
        expected.push((KEY, n, cause));
        if n % 1_000 == 17 {
            cache.run_pending_tasks();
        }
    }
    cache.run_pending_tasks();
    assert_eq!(heard.take(), expected);
}

#[test]
fn under_many_threads_each_thread_sees_its_values_leave_in_order() {
    const EACH: u32 = 20_000;
    let heard = Record::new();
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .removal_listener(heard.listener())
        .build();
    let shared = cache.clone();
    must_end(move || {
        std::thread::scope(|threads| {
            for thread in 0..4u32 {
                let cache = &shared;
                threads.spawn(move || {
                    for n in 0..EACH {
                        cache.insert(n % 3, thread * EACH + n);
                        if n % 1_000 == 0 {
                            cache.run_pending_tasks();
                        }
                    }
                });
            }
        });
        shared.invalidate_all();
        shared.run_pending_tasks();
    });
    let heard = heard.take();
    assert_eq!(heard.len(), 4 * EACH as usize);
    let mut last = std::collections::HashMap::new();
    for (key, value, _) in heard {
        let (thread, n) = (value / EACH, value % EACH);
        let before = last.insert((key, thread), n);
        assert!(
            before.is_none_or(|before| before < n),
            "key {key}: {n} after {before:?}"
        );
    }
    drop(cache);
}

#[test]
fn a_panic_in_a_listener_is_contained() {
    let heard = Record::new();
    let record = heard.clone();
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(move |key: &u32, value: &u32, cause| {
            record.note(key, value, cause);
            assert!(key % 2 != 0, "told to panic in the listener");
        })
        .build();
    for key in 0..100 {
        cache.insert_with_ttl(key, key, secs(1));
    }
    clock.advance(secs(1));
    cache.run_pending_tasks();
    assert_eq!(
        heard.take_sorted(),
        (0..100).map(|key| (key, key, Expired)).collect::<Vec<_>>()
    );
    assert_eq!(cache.entry_count(), 0);
    cache.insert(3, 4);
    cache.invalidate(&3);
    cache.run_pending_tasks();
    assert_eq!(
        heard.take(),
        [(3, 4, Explicit)],
        "the listener stays in use"
    );
}

#[test]
fn pending_tasks_wait_for_deliveries_of_another_thread() {
    let gate = Gate::new();
    let (entered, wait_entered) = mpsc::channel();
    let heard = Record::new();
    let (record, held) = (heard.clone(), Arc::clone(&gate));
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .removal_listener(move |key: &u32, value: &u32, cause| {
            if *key == 0 {
                entered.send(()).unwrap();
                assert!(held.wait(), "the gate stayed closed");
            }
            record.note(key, value, cause);
        })
        .build();
    (0..10).for_each(|key| cache.insert(key, key));
    cache.invalidate(&0);
    let first = cache.clone();
    let first = std::thread::spawn(move || first.run_pending_tasks());
    wait_entered.recv_timeout(secs(20)).unwrap();

    (1..10).for_each(|key| cache.invalidate(&key));
    let (second, told) = (cache.clone(), heard.clone());
    let (returned, wait_returned) = mpsc::channel();
    let second = std::thread::spawn(move || {
        second.run_pending_tasks();
        returned.send(told.count()).unwrap();
    });
    // It must not return before the notifications are delivered, which the gate still blocks.
    assert!(
        wait_returned
            .recv_timeout(Duration::from_millis(50))
            .is_err()
    );
    gate.open();
    assert_eq!(wait_returned.recv_timeout(secs(20)), Ok(10));
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn a_slow_listener_delays_neither_get_nor_insert() {
    let gate = Gate::new();
    let (entered, wait_entered) = mpsc::channel();
    let in_time = Arc::new(AtomicBool::new(true));
    let heard = Arc::new(AtomicU32::new(0));
    let (held, timely, count) = (Arc::clone(&gate), Arc::clone(&in_time), Arc::clone(&heard));
    let cache = Cache::builder()
        .max_capacity(5_000)
        .removal_listener(move |_: &u32, _: &u32, _| {
            entered.send(()).ok();
            if !held.wait() {
                timely.store(false, Ordering::SeqCst);
            }
            count.fetch_add(1, Ordering::SeqCst);
        })
        .scheduler(Scheduler::background())
        .build();
    cache.insert(0, 0);
    // The listener runs on this thread or on the cache's own, not on the threads of the callers
    // below.
    let other = cache.clone();
    let waiting = std::thread::spawn(move || {
        other.invalidate(&0);
        other.run_pending_tasks();
    });
    wait_entered.recv_timeout(secs(20)).unwrap();
    for key in 1..20_000 {
        cache.insert(key % 7_000, key);
        cache.get(&(key / 2));
    }
    assert_eq!(
        heard.load(Ordering::SeqCst),
        0,
        "the listener is still held in its first call"
    );
    gate.open();
    waiting.join().unwrap();
    cache.run_pending_tasks();
    assert!(
        in_time.load(Ordering::SeqCst),
        "a caller waited for the listener until it gave up"
    );
    assert_eq!(
        u64::from(heard.load(Ordering::SeqCst)),
        20_000 - cache.entry_count()
    );
}

#[test]
fn the_last_drop_delivers_removed_entries_but_not_live_ones() {
    for listener_runs_before in [false, true] {
        let clock = ManualTicker::new();
        let heard = Record::new();
        let cache: Cache<u32, u32> = Cache::builder()
            .ticker(clock.clone())
            .removal_listener(heard.listener())
            .build();
        for key in 0..100 {
            cache.insert_with_ttl(key, key, secs(10));
        }
        if listener_runs_before {
            cache.run_pending_tasks();
        }
        (0..10).for_each(|key| cache.invalidate(&key));
        cache.insert(10, 1_000);
        drop(cache.clone());
        drop(cache);
        let mut expected: Vec<_> = (0..10).map(|key| (key, key, Explicit)).collect();
        expected.push((10, 10, Replaced));
        assert_eq!(heard.take_sorted(), expected);
    }
}

#[test]
fn an_expired_entry_is_delivered_when_due_not_when_its_bucket_ends() {
    let heard = Record::new();
    let clock = ManualTicker::starting_at(3);
    let cache: Cache<u32, u32> = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    for key in 0..1_000u32 {
        cache.insert_with_ttl(key, 0, Duration::from_micros(u64::from(key) + 1));
    }
    for key in 0..1_000 {
        clock.advance(Duration::from_micros(1) - NS);
        cache.run_pending_tasks();
        assert_eq!(heard.take(), []);
        clock.advance(NS);
        cache.run_pending_tasks();
        assert_eq!(heard.take(), [(key, 0, Expired)]);
    }
}

#[test]
fn a_look_up_runs_no_listener() {
    thread_local!(static LOOKING_UP: Cell<bool> = const { Cell::new(false) });
    const ENTRIES: u32 = 20_000;
    let clock = ManualTicker::new();
    let told = Arc::new([const { AtomicU32::new(0) }; 2]);
    let counts = Arc::clone(&told);
    // Without a scheduler, look-ups that find expired entries remove some.
    let cache = Cache::builder()
        .scheduler(Scheduler::disabled())
        .ticker(clock.clone())
        .time_to_live(secs(1))
        .removal_listener(move |_: &u32, _: &u32, _| {
            counts[usize::from(LOOKING_UP.get())].fetch_add(1, Ordering::SeqCst);
        })
        .build();
    for key in 0..ENTRIES {
        cache.insert(key, key);
    }
    clock.advance(secs(10));
    LOOKING_UP.set(true);
    // More than once if need be: while the listener's thread holds the maintenance lock, perhaps
    // without a processor, look-ups remove nothing.
    for _ in 0..100 {
        for key in 0..ENTRIES {
            assert_eq!(cache.get(&key), None);
            assert!(cache.get_ref(&key).is_none() && !cache.contains_key(&key));
        }
        if cache.entry_count() < u64::from(ENTRIES) / 2 {
            break;
        }
        std::thread::yield_now();
    }
    LOOKING_UP.set(false);
    assert!(cache.entry_count() < u64::from(ENTRIES) / 2);
    cache.run_pending_tasks();
    let told = told.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert_eq!(told, [ENTRIES, 0]);
}

#[test]
fn run_pending_tasks_ends_although_the_listener_keeps_causing_removals() {
    must_end(|| {
        let heard = Arc::new(AtomicU32::new(0));
        let cache = Arc::new_cyclic(|me: &Weak<Cache<u32, u32>>| {
            let (me, heard) = (me.clone(), Arc::clone(&heard));
            Cache::builder()
                .ticker(ManualTicker::new())
                .removal_listener(move |&key: &u32, _: &u32, _| {
                    heard.fetch_add(1, Ordering::Relaxed);
                    if let Some(cache) = me.upgrade() {
                        cache.insert(key, 0);
                        cache.invalidate(&key);
                        cache.run_pending_tasks();
                    }
                })
                .build()
        });
        for key in 0..3 {
            cache.insert(key, 0);
            cache.invalidate(&key);
        }
        let mut last = 0;
        for _ in 0..3 {
            cache.run_pending_tasks();
            let now = heard.load(Ordering::Relaxed);
            // Some of the later notifications are delivered too, but not as many times as this call
            // was repeated.
            assert!((100..20_000).contains(&(now - last)), "{}", now - last);
            last = now;
        }
    });
}

#[test]
fn without_a_scheduler_a_thousand_removals_are_told_though_no_call_waits() {
    let heard = Arc::new(AtomicU32::new(0));
    let hears = Arc::clone(&heard);
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .removal_listener(move |_: &u32, _: &u32, _| {
            hears.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    (0..=4_000).for_each(|value| cache.insert(0, value));
    let began = std::time::Instant::now();
    while heard.load(Ordering::Relaxed) < 1_000 {
        assert!(began.elapsed() < secs(20), "{heard:?}");
        std::thread::yield_now();
    }
    cache.run_pending_tasks();
    assert_eq!(heard.load(Ordering::Relaxed), 4_000);
}
