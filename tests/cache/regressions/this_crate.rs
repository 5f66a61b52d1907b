//! Defects that this crate has had, each fixed once and tested since. Those of other caches are in
//! `other_caches`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::support::acting::Acting;
use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::{OneHash, hide_scripted_panics, millis, must_end, secs};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced, Size};
use wheelhouse::{Cache, EntryRef, Iter, ManualTicker, RandomState, Scheduler};

/// Longer than any promise here takes, even on a loaded machine.
const SOON: Duration = secs(15);

type Values = Cache<u32, Counted<u32>>;

/// What a thread-local of a thread holds until the thread's very end.
struct Held {
    _entry: EntryRef<'static, u32, Counted<u32>>,
    walk: Iter<'static, u32, Counted<u32>, RandomState>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // The thread's registration with the cache may have ended before: the iteration continues,
        // and takes a new pin.
        self.walk.next();
    }
}

#[test]
fn references_may_outlive_their_threads_registration() {
    thread_local!(static LAST: RefCell<Option<Held>> = const { RefCell::new(None) });
    static CACHE: OnceLock<Values> = OnceLock::new();
    let census = Census::default();
    let cache = CACHE.get_or_init(|| Cache::builder().ticker(ManualTicker::new()).build());
    for key in 0..100 {
        cache.insert(key, census.counted(key));
    }
    for first in [false, true] {
        // The order in which thread-locals are dropped depends on which was made first.
        std::thread::spawn(move || {
            if first {
                LAST.with(|_| ());
            }
            let mut walk = cache.iter();
            walk.next();
            let held = Held {
                _entry: cache.get_ref(&7).expect("present"),
                walk,
            };
            LAST.set(Some(held));
        })
        .join()
        .unwrap();
    }
    // They have ended: no pin keeps what is removed now.
    cache.invalidate_all();
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!(census.alive(), 0, "held by a thread that has ended");
}

#[test]
fn iterations_yield_each_key_once_while_the_table_grows_and_shrinks() {
    // One bucket after another splits and merges under the iteration, with overflow chains for
    // equal hashes.
    for one_hash in [false, true] {
        let stay = if one_hash { 30 } else { 300 };
        let (mut shown, mut step) = (vec![0; stay], 0);
        let mut visit = |key: u32| {
            if let Some(times) = shown.get_mut(key as usize) {
                *times += 1;
            }
            step += 1;
            step
        };
        if one_hash {
            let cache: Cache<u32, u32, OneHash> = Cache::builder().hasher(OneHash).build();
            (0..stay as u32).for_each(|key| cache.insert(key, 0));
            for entry in &cache {
                let step = visit(*entry.key());
                (0..10).for_each(|n| cache.insert(1_000 + step * 10 + n, 0));
                (0..10).for_each(|n| cache.invalidate(&(1_000 + step * 5 + n)));
            }
        } else {
            let cache: Cache<u32, u32> = Cache::builder().build();
            (0..stay as u32).for_each(|key| cache.insert(key, 0));
            for entry in &cache {
                let step = visit(*entry.key());
                match step % 40 {
                    0 => (1_000..5_000).for_each(|key| cache.insert(key, 0)),
                    20 => (1_000..5_000).for_each(|key| cache.invalidate(&key)),
                    _ => (),
                }
            }
        }
        assert!(shown.iter().all(|&times| times == 1), "{shown:?}");
    }
}

/// Waits until `holds`, and returns whether it did in time.
fn comes_true(holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > SOON {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// A listener that waits for a permit before each notification.
fn on_permit(permits: Receiver<()>) -> impl Fn(&u32, &u32, wheelhouse::RemovalCause) + Send + Sync {
    let permits = Mutex::new(permits);
    move |_, _, _| _ = permits.lock().unwrap().recv_timeout(SOON)
}

#[test]
fn due_entries_wait_for_a_few_deliveries_of_a_slow_listener_not_for_all() {
    const MANY: u32 = 2_000;
    let (permit, permits) = mpsc::channel();
    let cache = Cache::builder()
        .expiry_resolution(millis(1))
        .removal_listener(on_permit(permits))
        .build();
    for key in 0..MANY {
        cache.insert(key, key);
    }
    cache.insert_with_ttl(MANY, 0, millis(150));
    cache.insert_with_ttl(MANY + 1, 0, secs(3_600));
    (0..MANY).for_each(|key| cache.invalidate(&key));
    // A few notifications are delivered; the many others must not delay the removal of the entry
    // that is due.
    for _ in 0..100 {
        permit.send(()).unwrap();
    }
    let began = Instant::now();
    while began.elapsed() < millis(200) {
        std::thread::yield_now();
    }
    for _ in 0..100 {
        permit.send(()).unwrap();
    }
    let removed = comes_true(|| cache.entry_count() == 1);
    drop(permit);
    assert!(removed, "the expired entry waits for {MANY} notifications");
}

/// A value whose destructor panics.
fn bomb(key: u32) -> Acting {
    Acting::when_dropped(key, || panic!("told to panic in drop"))
}

#[test]
fn a_panic_in_a_destructor_does_not_end_the_thread_of_other_caches() {
    hide_scripted_panics();
    let scheduler = Scheduler::background();
    let (told, tells) = mpsc::channel();
    let hostile: Cache<u32, Acting> = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(scheduler.clone())
        .build();
    let good: Cache<u32, u32> = Cache::builder()
        .expiry_resolution(millis(1))
        .scheduler(scheduler)
        .removal_listener(move |&key: &u32, _: &u32, _| told.send(key).unwrap())
        .build();
    for round in 0..5 {
        for key in 0..10 {
            let value = if key % 2 == 0 {
                bomb(key)
            } else {
                Acting::idle(key)
            };
            hostile.insert_with_ttl(key, value, millis(1));
        }
        // Removed and freed by the shared thread; the destructor panics on it.
        assert!(comes_true(|| hostile.entry_count() == 0));
        good.insert_with_ttl(round, 0, millis(20));
        assert_eq!(tells.recv_timeout(SOON), Ok(round), "the thread has ended");
    }
    // The last handle may be dropped on that thread as well; in either case, the other cache still
    // works.
    for key in 0..10 {
        hostile.insert_with_ttl(key, bomb(key), millis(1));
    }
    drop(hostile);
    good.insert_with_ttl(99, 0, millis(20));
    assert_eq!(tells.recv_timeout(SOON), Ok(99), "the thread has ended");
}

#[test]
fn a_deadline_set_by_hand_survives_an_idle_read_at_the_same_time() {
    let cache: Cache<u32, u32> = Cache::builder()
        .time_to_idle(secs(10))
        .ticker(ManualTicker::new())
        .build();
    must_end(move || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    cache.get(&1);
                }
            });
            let left = || cache.peek_ref(&1).map(|entry| entry.time_left());
            let wrong = (0..5_000).find_map(|round| {
                cache.insert(1, round);
                let lives = [Some(secs(5)), None, Some(secs(3)), Some(secs(20))];
                lives.into_iter().find_map(|life| {
                    assert!(cache.set_expiry(&1, life));
                    let expected = life.unwrap_or(secs(10)).min(secs(10));
                    let found = left();
                    (found != Some(Some(expected))).then_some((round, life, found))
                })
            });
            stop.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None, "a read put the former deadline back");
        });
    });
}

#[test]
fn a_deadline_set_by_hand_to_where_it_was_survives_an_idle_read_too() {
    const ROUNDS: u32 = 5_000;
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .time_to_idle(secs(10))
        .ticker(clock.clone())
        .build();
    // Whose turn it is: a spinning hand-over, since a barrier would not bring the two calls so
    // close together.
    let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    let reach = |word: &AtomicU32, round| {
        for looks in 1.. {
            if word.load(Ordering::Acquire) >= round {
                return;
            }
            if looks % 1_000 == 0 {
                std::thread::yield_now();
            }
        }
    };
    let mut wrong = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 1..=ROUNDS {
                reach(&begun, round);
                cache.get(&round);
                ended.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            cache.insert(round, 0);
            clock.advance(secs(1));
            begun.store(round, Ordering::Release);
            (0..round % 60).for_each(|_| std::hint::spin_loop());
            // Due in nine seconds, by the idle limit or by hand: the same moment.
            assert!(cache.set_expiry(&round, Some(secs(9))));
            reach(&ended, round);
            let left = cache.peek_ref(&round).map(|entry| entry.time_left());
            wrong += u32::from(left != Some(Some(secs(9))));
        }
    });
    assert_eq!(wrong, 0, "of {ROUNDS} live on beyond what was set by hand");
}

#[test]
fn a_listener_may_run_the_tasks_of_another_cache_and_both_deliver() {
    let heard = Record::new();
    let slot: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let make = |other: Arc<Mutex<Option<Cache<u32, u32>>>>, name: u32| {
        let record = heard.clone();
        Cache::builder()
            .ticker(ManualTicker::new())
            .removal_listener(move |key: &u32, _: &u32, cause| {
                record.note(key, &name, cause);
                let other = other.lock().unwrap().clone();
                if let Some(other) = other {
                    if *key > 0 {
                        other.insert(key - 1, 0);
                        other.invalidate(&(key - 1));
                        other.run_pending_tasks();
                    }
                }
            })
            .build()
    };
    let back: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let (one, two) = (make(Arc::clone(&slot), 1), make(Arc::clone(&back), 2));
    *slot.lock().unwrap() = Some(two.clone());
    *back.lock().unwrap() = Some(one.clone());
    let first = one.clone();
    must_end(move || {
        first.insert(9, 0);
        first.invalidate(&9);
        first.run_pending_tasks();
    });
    // From one cache to the other and back. Inside a listener no call waits.
    let told = heard.clone();
    must_end(move || {
        while told.count() < 10 {
            std::thread::yield_now();
        }
    });
    let expected: Vec<_> = (0..10)
        .rev()
        .map(|key| (key, if key % 2 == 1 { 1 } else { 2 }, Explicit))
        .collect();
    assert_eq!(heard.take(), expected);
    slot.lock().unwrap().take();
    back.lock().unwrap().take();
    drop((one, two));
}

#[test]
fn the_last_drop_evicts_nothing_but_delivers_earlier_evictions() {
    for told_before in [false, true] {
        let (census, heard) = (Census::default(), Arc::new(Mutex::new(Vec::new())));
        let (clock, record) = (ManualTicker::new(), Arc::clone(&heard));
        let cache: Values = Cache::builder()
            .max_capacity(10)
            .ticker(clock.clone())
            .removal_listener(move |&key: &u32, _: &Counted<u32>, cause| {
                record.lock().unwrap().push((key, cause));
            })
            .build();
        for key in 0..10 {
            cache.insert_with_ttl(key, census.counted(key), secs(10));
        }
        cache.run_pending_tasks();
        if told_before {
            // Evicted by the pass, and delivered at once.
            (100..110).for_each(|key| cache.insert(key, census.counted(key)));
            cache.run_pending_tasks();
        }
        let before = std::mem::take(&mut *heard.lock().unwrap());
        assert!(before.iter().all(|(_, cause)| *cause == Size));
        assert_eq!(before.len(), if told_before { 10 } else { 0 });
        // Some alive, some expired but not yet removed: none of these is delivered.
        cache.insert_with_ttl(200, census.counted(200), secs(1));
        clock.advance(secs(2));
        let present: Vec<u32> = cache.iter().map(|entry| *entry.key()).collect();
        let replaced = present[0];
        cache.insert(replaced, census.counted(0));
        drop(cache);
        let after = heard.lock().unwrap();
        assert!(after.contains(&(replaced, Replaced)), "{after:?}");
        for (key, cause) in &*after {
            assert!(
                matches!(cause, Size | Replaced) || (*key, *cause) == (200, Expired),
                "{key} was delivered as {cause}"
            );
        }
        assert_eq!(census.alive(), 0);
    }
}
