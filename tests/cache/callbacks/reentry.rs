//! User code that the cache calls may call the same cache, also for the same key.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::acting::Acting;
use crate::support::record::Record;
use crate::support::{must_end, secs};
use wheelhouse::RemovalCause::{self, Expired, Explicit, Replaced};
use wheelhouse::{Cache, Expiry, ManualTicker};

/// A cell for the handle that a listener uses to call back; emptied at the end of a test, so that
/// nothing leaks.
type Slot = Arc<Mutex<Option<Cache<u32, u32>>>>;

/// A cache whose listener receives the cache itself.
fn with_self(
    listener: impl Fn(&Cache<u32, u32>, u32, u32, RemovalCause) + Send + Sync + 'static,
) -> (Cache<u32, u32>, ManualTicker, Slot) {
    let (slot, clock) = (Slot::default(), ManualTicker::new());
    let handle = Arc::clone(&slot);
    let cache = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(move |&key: &u32, &value: &u32, cause| {
            let cache = handle.lock().unwrap().clone();
            if let Some(cache) = cache {
                listener(&cache, key, value, cause);
            }
        })
        .build();
    *slot.lock().unwrap() = Some(cache.clone());
    (cache, clock, slot)
}

#[test]
fn a_listener_finds_the_removal_visible() {
    let wrong = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&wrong);
    let (cache, clock, slot) = with_self(move |cache, key, value, _| {
        // Each key is removed once and not inserted again, or replaced by a greater value.
        if cache.peek_ref(&key).is_some_and(|entry| *entry <= value) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for key in 0..300 {
        cache.insert_with_ttl(key, 0, secs(1));
        if key % 3 == 0 {
            cache.insert(key, 1);
        } else if key % 3 == 1 {
            cache.invalidate(&key);
        }
    }
    clock.advance(secs(1));
    cache.run_pending_tasks();
    assert_eq!(wrong.load(Ordering::SeqCst), 0);
    slot.lock().unwrap().take();
}

#[test]
fn a_listener_may_call_everything_on_the_same_key() {
    let heard = Record::new();
    let record = heard.clone();
    let (cache, clock, slot) = with_self(move |cache, key, value, cause| {
        record.note(&key, &value, cause);
        if value < 5 {
            cache.insert(key, value + 1);
            assert_eq!(cache.get(&key), Some(value + 1));
            assert!(cache.set_expiry(&key, Some(secs(1))));
            assert!(cache.get_ref(&key).is_some() && cache.contains_key(&key));
            cache.insert_with_ttl(key + 1_000, 50, secs(1));
            assert_eq!(cache.remove(&(key + 1_000)), Some(50));
            cache.retain(|_, _| true);
            assert!(cache.iter().count() > 0);
            // Called in here, it must return without waiting for this very call.
            cache.run_pending_tasks();
            assert!(cache.next_maintenance_in().is_some() || cache.entry_count() > 0);
        }
    });
    let shared = cache.clone();
    must_end(move || {
        for key in 0..20 {
            shared.insert(key, 0);
            shared.invalidate(&key);
        }
        for _ in 0..10 {
            shared.run_pending_tasks();
            clock.advance(secs(1));
        }
        shared.run_pending_tasks();
        assert_eq!(shared.entry_count(), 0);
    });
    let heard = heard.take();
    for key in 0..20 {
        let of_key: Vec<_> = heard
            .iter()
            .filter(|notice| notice.0 == key)
            .map(|notice| (notice.1, notice.2))
            .collect();
        let expected = [Explicit, Expired, Expired, Expired, Expired, Expired];
        assert_eq!(of_key, (0..6).zip(expected).collect::<Vec<_>>());
        let inner = heard
            .iter()
            .filter(|notice| **notice == (key + 1_000, 50, Explicit));
        assert_eq!(inner.count(), 5);
    }
    slot.lock().unwrap().take();
    drop(cache);
}

#[test]
fn a_listener_that_clears_the_cache_ends() {
    let heard = Record::new();
    let record = heard.clone();
    let (cache, _clock, slot) = with_self(move |cache, key, value, cause| {
        record.note(&key, &value, cause);
        cache.invalidate_all();
        cache.run_pending_tasks();
    });
    let shared = cache.clone();
    must_end(move || {
        for key in 0..1_000 {
            shared.insert(key, key);
        }
        shared.invalidate(&0);
        for _ in 0..3 {
            shared.run_pending_tasks();
        }
        assert_eq!(shared.entry_count(), 0);
    });
    assert_eq!(
        heard.take_sorted(),
        (0..1_000)
            .map(|key| (key, key, Explicit))
            .collect::<Vec<_>>()
    );
    slot.lock().unwrap().take();
    drop(cache);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Create,
    Update,
    Read,
}

/// A policy that calls its own cache: once, on the first call at its moment.
struct CallsBack<F> {
    slot: Slot,
    moment: Moment,
    call: F,
    called: AtomicBool,
}

impl<F: Fn(&Cache<u32, u32>, u32)> CallsBack<F> {
    /// Ten seconds for value 1, twenty for value 2, and so on, at every moment.
    fn answer(&self, moment: Moment, key: u32, value: u32) -> Option<Duration> {
        if moment == self.moment && !self.called.swap(true, Ordering::SeqCst) {
            let cache = self
                .slot
                .lock()
                .unwrap()
                .clone()
                .expect("the cache has been built");
            (self.call)(&cache, key);
        }
        Some(secs(10) * value)
    }
}

impl<F: Fn(&Cache<u32, u32>, u32) + Send + Sync + 'static> Expiry<u32, u32> for CallsBack<F> {
    fn expire_after_create(&self, &key: &u32, &value: &u32, _: Instant) -> Option<Duration> {
        self.answer(Moment::Create, key, value)
    }

    fn expire_after_update(
        &self,
        &key: &u32,
        &value: &u32,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.answer(Moment::Update, key, value)
    }

    fn expire_after_read(
        &self,
        &key: &u32,
        &value: &u32,
        _: Instant,
        _: Option<Duration>,
        _: Instant,
    ) -> Option<Duration> {
        self.answer(Moment::Read, key, value)
    }
}

/// The removals delivered for a key, and its value in the end with the time left.
type Fate = (Vec<(u32, u32, RemovalCause)>, Option<(u32, Duration)>);

/// The removals delivered for key 1, and its final state, after `call`, during which the callback
/// at `moment` ran `act`.
#[track_caller]
fn calling_back(
    moment: Moment,
    call: impl Fn(&Cache<u32, u32>, u32) + Send + Sync + 'static,
    act: impl FnOnce(&Cache<u32, u32>, &ManualTicker) + Send + 'static,
) -> Fate {
    let (slot, clock, heard) = (Slot::default(), ManualTicker::new(), Record::new());
    let policy = CallsBack {
        slot: Arc::clone(&slot),
        moment,
        call,
        called: AtomicBool::new(false),
    };
    let cache = Cache::builder()
        .expire_after(policy)
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    *slot.lock().unwrap() = Some(cache.clone());
    let shared = cache.clone();
    must_end(move || {
        act(&shared, &clock);
        shared.run_pending_tasks();
    });
    slot.lock().unwrap().take();
    let of_key_1 = heard
        .take()
        .into_iter()
        .filter(|notice| notice.0 == 1)
        .collect();
    (
        of_key_1,
        cache
            .peek_ref(&1)
            .map(|entry| (*entry, entry.time_left().unwrap())),
    )
}

#[test]
fn a_read_does_not_extend_a_newer_value() {
    let outcome = calling_back(
        Moment::Read,
        |cache, key| cache.insert(key, 2),
        |cache, clock| {
            cache.insert(1, 9);
            // Otherwise the answer would equal the time left, and leave the deadline unchanged.
            clock.advance(secs(1));
            assert_eq!(
                cache.get(&1),
                Some(9),
                "the value that was there when the read began"
            );
        },
    );
    // Ninety seconds were for the value that was read, which was removed.
    assert_eq!(outcome, (vec![(1, 9, Replaced)], Some((2, secs(20)))));
}

#[test]
fn a_read_does_not_bring_back_what_its_policy_removed() {
    let outcome = calling_back(
        Moment::Read,
        |cache, key| cache.invalidate(&key),
        |cache, _| {
            cache.insert(1, 1);
            assert_eq!(cache.get(&1), Some(1));
            assert!(!cache.contains_key(&1));
        },
    );
    assert_eq!(outcome, (vec![(1, 1, Explicit)], None));
}

#[test]
fn a_read_whose_policy_moves_the_deadline_each_time_ends() {
    must_end(|| {
        let slot = Slot::default();
        let (handle, asked) = (Arc::clone(&slot), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&asked);
        let cache: Cache<u32, u32> = Cache::builder()
            .ticker(ManualTicker::new())
            .record_stats()
            .expire_after(wheelhouse::expiry::accessing(move |&key: &u32, _: &u32| {
                let cache = handle.lock().unwrap().clone()?;
                let times = 1 + count.fetch_add(1, Ordering::SeqCst);
                assert!(cache.set_expiry(&key, Some(secs(100 + u64::from(times)))));
                Some(secs(50))
            }))
            .build();
        cache.insert(1, 10);
        *slot.lock().unwrap() = Some(cache.clone());
        for read in [
            |c: &Cache<u32, u32>| c.get(&1),
            |c: &Cache<u32, u32>| c.get_ref(&1).map(|e| *e),
        ] {
            let before = asked.load(Ordering::SeqCst);
            assert_eq!(read(&cache), Some(10));
            let times = asked.load(Ordering::SeqCst);
            assert!((2..100).contains(&(times - before)), "asked {times} times");
            let left = cache.peek_ref(&1).and_then(|entry| entry.time_left());
            assert_eq!(
                left,
                Some(secs(100 + u64::from(times))),
                "where it was moved to"
            );
        }
        assert_eq!((cache.stats().hits(), cache.stats().misses()), (2, 0));
        slot.lock().unwrap().take();
    });
}

#[test]
fn a_value_inserted_during_create_is_replaced() {
    let outcome = calling_back(
        Moment::Create,
        |cache, key| cache.insert(key, 2),
        |cache, _| cache.insert(1, 3),
    );
    assert_eq!(outcome, (vec![(1, 2, Replaced)], Some((3, secs(30)))));
}

#[test]
fn a_value_inserted_during_update_is_replaced_in_turn() {
    let outcome = calling_back(
        Moment::Update,
        |cache, key| cache.insert(key, 2),
        |cache, _| {
            cache.insert(1, 1);
            cache.insert(1, 3);
        },
    );
    assert_eq!(
        outcome,
        (
            vec![(1, 1, Replaced), (1, 2, Replaced)],
            Some((3, secs(30)))
        )
    );
}

#[test]
fn an_entry_removed_during_update_is_not_replaced() {
    let outcome = calling_back(
        Moment::Update,
        |cache, key| assert_eq!(cache.remove(&key), Some(1)),
        |cache, _| {
            cache.insert(1, 1);
            cache.insert(1, 3);
        },
    );
    assert_eq!(outcome, (vec![(1, 1, Explicit)], Some((3, secs(30)))));
}

#[test]
fn a_policy_may_call_everything() {
    for moment in [Moment::Create, Moment::Update, Moment::Read] {
        let outcome = calling_back(
            moment,
            |cache, _| {
                for other in 100..1_000 {
                    cache.insert_with_ttl(other, 5, secs(5));
                    assert_eq!(cache.get(&other), Some(5));
                }
                assert!(cache.set_expiry(&100, None));
                cache.retain(|&key, _| key == 1 || key % 2 == 0);
                assert!(cache.iter().count() >= 450);
                cache.run_pending_tasks();
                cache.invalidate(&102);
                assert_eq!(cache.remove(&104), Some(5));
                cache.run_pending_tasks();
            },
            |cache, clock| {
                cache.insert(1, 1);
                clock.advance(secs(1));
                cache.insert(1, 2);
                clock.advance(secs(1));
                assert_eq!(cache.get(&1), Some(2));
            },
        );
        assert_eq!(
            outcome,
            (vec![(1, 1, Replaced)], Some((2, secs(20)))),
            "{moment:?}"
        );
    }
}

#[test]
fn a_policy_that_clears_the_cache_meets_no_lock() {
    for moment in [Moment::Create, Moment::Update, Moment::Read] {
        let (heard, left) = calling_back(
            moment,
            |cache, _| {
                cache.invalidate_all();
                cache.run_pending_tasks();
            },
            |cache, _| {
                cache.insert(1, 1);
                cache.insert(1, 2);
                assert_eq!(cache.get(&1), Some(2));
            },
        );
        let (cause, present) = match moment {
            Moment::Create => (vec![(1, 1, Replaced)], true),
            Moment::Update => (vec![(1, 1, Explicit)], true),
            Moment::Read => (vec![(1, 1, Replaced), (1, 2, Explicit)], false),
        };
        assert_eq!(heard, cause, "{moment:?}");
        assert_eq!(left, present.then_some((2, secs(20))), "{moment:?}");
    }
}

#[test]
fn destructors_that_call_the_cache_do_not_nest_without_end() {
    const MANY: u32 = 100_000;
    let body = || {
        let cache: Arc<Cache<u32, Acting>> = Arc::new(
            Cache::builder()
                .scheduler(wheelhouse::Scheduler::disabled())
                .build(),
        );
        let value = || {
            let left = Arc::downgrade(&cache);
            Acting::when_dropped(0, move || {
                if let Some(cache) = left.upgrade() {
                    cache.run_pending_tasks();
                }
            })
        };
        cache.insert(MANY, value());
        let held = cache.get_ref(&MANY).expect("just inserted");
        for key in 0..MANY {
            cache.insert(key, value());
        }
        for key in 0..MANY {
            cache.invalidate(&key);
        }
        drop(held);
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!(cache.entry_count(), 1);
    };
    let thread = std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(body);
    thread
        .expect("a thread")
        .join()
        .expect("no end of the stack");
}

#[test]
fn a_destructor_that_a_view_runs_may_make_a_view() {
    const MANY: u32 = 1_000;
    let seen = must_end(|| {
        let seen = Arc::new(AtomicU32::new(0));
        let cache: Arc<Cache<u32, Acting>> = Arc::new(
            Cache::builder()
                .max_capacity(10 * u64::from(MANY))
                .scheduler(wheelhouse::Scheduler::disabled())
                .build(),
        );
        let insert = |key| {
            let (left, seen) = (Arc::downgrade(&cache), Arc::clone(&seen));
            let looks = move || {
                let cache = left.upgrade();
                if cache.is_some_and(|cache| cache.policy().coldest(1).next().is_some()) {
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            };
            cache.insert(key, Acting::when_dropped(key, looks));
        };
        (0..=MANY).for_each(insert);
        // Nothing is freed while it is held, so the view has something to free.
        let held = cache.peek_ref(&MANY);
        (0..MANY).for_each(|key| cache.invalidate(&key));
        drop(held);
        for _ in 0..3 {
            assert_eq!(cache.policy().coldest(2).count(), 1);
        }
        seen.load(Ordering::Relaxed)
    });
    assert!(seen > 0, "nothing was shown");
}
