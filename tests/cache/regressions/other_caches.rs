//! Failures that other caches have had in public, each named after the failure and, if it has one,
//! its issue number there.

use std::time::Duration;

use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::rig::{KEY, OLD, Rig};
use crate::support::script::Answer;
use crate::support::{HOUR, NS, SPAN, must_end, secs};
use wheelhouse::RemovalCause::{Expired, Explicit};
use wheelhouse::{Cache, ManualTicker};

fn cache_at(origin: u64) -> (Cache<u64, u64>, ManualTicker, Record<u64, u64>) {
    let (clock, heard) = (ManualTicker::starting_at(origin), Record::new());
    let cache = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    (cache, clock, heard)
}

#[test]
fn moka_524_527_565_a_policy_that_answers_none_leaves_no_dangling_link() {
    let census = Census::default();
    let never_again = |key: &u32| key % 2 == 0;
    for by_read in [false, true] {
        struct Withdraws(bool);
        type Value = Counted<u32>;
        impl wheelhouse::Expiry<u32, Value> for Withdraws {
            fn expire_after_create(
                &self,
                _: &u32,
                _: &Value,
                _: std::time::Instant,
            ) -> Option<Duration> {
                Some(secs(10))
            }
            fn expire_after_update(
                &self,
                key: &u32,
                _: &Value,
                _: std::time::Instant,
                left: Option<Duration>,
            ) -> Option<Duration> {
                if self.0 || key % 2 == 1 { left } else { None }
            }
            fn expire_after_read(
                &self,
                key: &u32,
                _: &Value,
                _: std::time::Instant,
                left: Option<Duration>,
                _: std::time::Instant,
            ) -> Option<Duration> {
                if !self.0 || key % 2 == 1 { left } else { None }
            }
        }
        let clock = ManualTicker::new();
        let cache = Cache::builder()
            .expire_after(Withdraws(by_read))
            .ticker(clock.clone())
            .build();
        for round in 0..20 {
            for key in 0..200 {
                cache.insert(key, census.counted(key));
            }
            cache.run_pending_tasks();
            for key in 0..200 {
                if by_read {
                    assert!(cache.get_ref(&key).is_some());
                } else {
                    cache.insert(key, census.counted(key));
                }
            }
            if round % 2 == 0 {
                cache.run_pending_tasks();
            }
            clock.advance(secs(11));
            for key in 0..200 {
                assert_eq!(cache.contains_key(&key), never_again(&key));
            }
            if round % 3 == 0 {
                cache.run_pending_tasks();
            }
            cache.retain(|key, value| *key == value.payload && key % 4 == 0);
            (0..200).for_each(|key| cache.invalidate(&key));
        }
        for _ in 0..3 {
            cache.run_pending_tasks();
        }
        assert_eq!((cache.entry_count(), census.alive()), (0, 0));
    }
}

#[test]
fn moka_498_a_caller_does_not_do_the_work_of_a_mass_expiry() {
    const MANY: u64 = 200_000;
    let (cache, clock, heard) = cache_at(0);
    for key in 0..MANY {
        cache.insert_with_ttl(key, 0, secs(10));
    }
    cache.run_pending_tasks();
    clock.advance(secs(20));
    assert_eq!(cache.get(&0), None);
    cache.insert(MANY, 0);
    let left = cache.entry_count();
    assert!(
        left > MANY * 3 / 4,
        "one caller removed {} entries",
        MANY - left
    );
    cache.run_pending_tasks();
    assert_eq!(
        cache.entry_count(),
        1,
        "run_pending_tasks removes all of them"
    );
    assert_eq!(heard.take().len() as u64, MANY);
}

#[test]
fn operations_alone_remove_a_mass_of_expired_entries() {
    const MANY: u64 = 50_000;
    let (cache, clock, _heard) = cache_at(0);
    for key in 0..MANY {
        cache.insert_with_ttl(key, 0, secs(10));
    }
    cache.run_pending_tasks();
    clock.advance(secs(20));
    for n in 0..MANY * 4 {
        cache.insert(MANY + n % 100, n);
    }
    let left = cache.entry_count();
    assert!(
        left < MANY / 2,
        "{left} expired entries left after {} writes",
        MANY * 4
    );
}

#[test]
fn moka_590_events_out_of_order_do_not_bring_back_a_removed_key() {
    let census = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::builder().ticker(ManualTicker::new()).build();
    let (shared, counted) = (cache.clone(), census.clone());
    must_end(move || {
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for n in 0..25_000u32 {
                        shared.insert_with_ttl(
                            n % 7,
                            counted.counted(n),
                            secs(u64::from(n % 5) + 1),
                        );
                        shared.invalidate(&(n % 7));
                    }
                });
            }
        });
    });
    for _ in 0..3 {
        cache.run_pending_tasks();
    }
    assert_eq!(cache.iter().count(), 0);
    assert_eq!(
        (
            cache.entry_count(),
            census.alive(),
            cache.next_maintenance_in()
        ),
        (0, 0, None)
    );
}

#[test]
fn a_shortened_deadline_is_not_left_to_a_lossy_buffer() {
    const MANY: u32 = 20_000;
    let rig = Rig::new();
    rig.script.on_create(Answer::After(HOUR));
    rig.script.on_read(Answer::After(secs(1)));
    (0..MANY).for_each(|key| rig.cache.insert(key, OLD));
    rig.cache.run_pending_tasks();
    (0..MANY).for_each(|key| assert_eq!(rig.cache.get(&key), Some(OLD)));
    rig.clock.advance(secs(1));
    assert_eq!(rig.heard().len(), MANY as usize);
    assert_eq!(
        (rig.cache.entry_count(), rig.cache.next_maintenance_in()),
        (0, None)
    );
}

#[test]
fn an_extension_that_a_lossy_buffer_dropped_still_holds() {
    const MANY: u32 = 20_000;
    let rig = Rig::new();
    (0..MANY).for_each(|key| rig.cache.insert(key, OLD));
    rig.cache.run_pending_tasks();
    rig.clock.advance(secs(5));
    (0..MANY).for_each(|key| assert_eq!(rig.cache.get(&key), Some(OLD)));
    rig.clock.advance(secs(30) - NS);
    assert_eq!(rig.heard(), []);
    rig.clock.advance(NS);
    assert_eq!(rig.heard().len(), MANY as usize);
}

#[test]
fn a_panic_or_a_call_back_in_mid_bucket_loses_no_entry() {
    let slot: std::sync::Arc<std::sync::Mutex<Option<Cache<u64, u64>>>> = Default::default();
    let (clock, heard) = (ManualTicker::new(), Record::new());
    let (handle, record) = (slot.clone(), heard.clone());
    let cache = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(move |key: &u64, value: &u64, cause| {
            record.note(key, value, cause);
            let cache = handle.lock().unwrap().clone();
            if let (Some(cache), Expired) = (cache, cause) {
                cache.insert_with_ttl(key + 10_000, 1, secs(1));
                cache.invalidate(&(key + 10_000));
                cache.run_pending_tasks();
            }
            assert!(key % 5 != 0, "told to panic in mid-bucket");
        })
        .build();
    for key in 0..1_000 {
        cache.insert_with_ttl(key, 0, secs(1));
    }
    *slot.lock().unwrap() = Some(cache.clone());
    clock.advance(secs(1));
    let shared = cache.clone();
    must_end(move || {
        shared.run_pending_tasks();
        shared.clone()
    });
    slot.lock().unwrap().take();
    cache.run_pending_tasks();
    let heard = heard.take_sorted();
    let expired: Vec<u64> = heard
        .iter()
        .filter(|n| n.2 == Expired)
        .map(|n| n.0)
        .collect();
    assert_eq!(expired, (0..1_000).collect::<Vec<_>>());
    assert!(
        heard
            .iter()
            .filter(|notice| notice.2 != Expired)
            .all(|notice| notice.2 == Explicit)
    );
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn an_overwritten_expired_entry_is_not_reported_replaced_nor_returned() {
    let rig = Rig::expired();
    assert_eq!(rig.cache.remove(&KEY), None);
    rig.cache.insert(KEY, 1);
    rig.clock.advance(secs(10));
    rig.cache.insert_with_ttl(KEY, 2, secs(1));
    rig.clock.advance(secs(1));
    rig.cache.invalidate(&KEY);
    assert_eq!(
        rig.heard(),
        [(KEY, OLD, Expired), (KEY, 1, Expired), (KEY, 2, Expired)]
    );
}

#[test]
fn a_deadline_after_a_long_silence_is_filed_by_the_present_time() {
    for idle in [secs(100), secs(30 * 24 * 3600)] {
        let (cache, clock, _heard) = cache_at(0);
        clock.advance(idle);
        for ttl in [secs(10), secs(3600), secs(24 * 3600)] {
            cache.insert_with_ttl(1, 0, ttl);
            let wait = cache.next_maintenance_in().expect("one entry");
            assert!(
                !wait.is_zero() && wait <= ttl + SPAN,
                "{wait:?} for {ttl:?} after {idle:?}"
            );
            cache.invalidate(&1);
            cache.run_pending_tasks();
        }
    }
}
