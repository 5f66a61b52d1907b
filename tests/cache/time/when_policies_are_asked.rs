//! When the cache calls the policy: the table of the documentation, row by row.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::rig::{KEY, NEW, OLD, Rig};
use crate::support::script::Asked;
use crate::support::secs;
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced};
use wheelhouse::{Cache, Expiry, ManualTicker};

#[test]
fn insert_on_an_absent_key_calls_create() {
    let rig = Rig::new();
    rig.cache.insert(KEY, NEW);
    assert_eq!(rig.created(), [(KEY, NEW)]);
    assert_eq!(rig.left(), Some(Some(secs(10))));
    assert_eq!(rig.heard(), []);
}

#[test]
fn insert_on_a_present_key_calls_update_with_the_new_value() {
    let rig = Rig::present();
    rig.cache.insert(KEY, NEW);
    let asked = rig.script.asked();
    assert!(
        matches!(asked[..], [Asked::Update { key: KEY, value: NEW, left: Some(left), .. }] if left == secs(7)),
        "{asked:?}"
    );
    assert_eq!(rig.left(), Some(Some(secs(20))));
    assert_eq!(rig.heard(), [(KEY, OLD, Replaced)]);
}

#[test]
fn insert_over_an_expired_entry_calls_create_and_the_old_one_leaves_as_expired() {
    let rig = Rig::expired();
    rig.cache.insert(KEY, NEW);
    assert_eq!(rig.created(), [(KEY, NEW)]);
    assert_eq!(rig.left(), Some(Some(secs(10))));
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
    assert_eq!(rig.cache.entry_count(), 1);
}

#[test]
fn insert_with_ttl_does_not_call_the_policy() {
    for (rig, heard) in [
        (Rig::new(), None),
        (Rig::present(), Some((KEY, OLD, Replaced))),
        (Rig::expired(), Some((KEY, OLD, Expired))),
    ] {
        rig.cache.insert_with_ttl(KEY, NEW, secs(44));
        rig.nobody_was_asked();
        assert_eq!(rig.left(), Some(Some(secs(44))));
        assert_eq!(rig.heard(), Vec::from_iter(heard));
    }
}

#[test]
fn get_on_an_absent_key_does_not_call_the_policy() {
    let rig = Rig::new();
    assert_eq!(rig.cache.get(&KEY), None);
    assert!(rig.cache.get_ref(&KEY).is_none());
    rig.nobody_was_asked();
}

#[test]
fn get_on_a_present_key_calls_read() {
    let ask_by_get: fn(&Cache<u32, u32>) -> Option<u32> = |cache| cache.get(&KEY);
    let ask_by_ref: fn(&Cache<u32, u32>) -> Option<u32> =
        |cache| cache.get_ref(&KEY).map(|entry| *entry);
    for read in [ask_by_get, ask_by_ref] {
        let rig = Rig::present();
        assert_eq!(read(&rig.cache), Some(OLD));
        let asked = rig.script.asked();
        let [
            Asked::Read {
                key: KEY,
                value: OLD,
                at,
                left: Some(left),
                modified,
            },
        ] = asked[..]
        else {
            panic!("{asked:?}")
        };
        assert_eq!(left, secs(7));
        assert_eq!(at - modified, secs(3));
        assert_eq!(rig.left(), Some(Some(secs(30))));
    }
}

#[test]
fn get_on_an_expired_entry_is_a_miss_that_does_not_call_the_policy() {
    let rig = Rig::expired();
    assert_eq!(rig.cache.get(&KEY), None);
    assert!(rig.cache.get_ref(&KEY).is_none());
    rig.nobody_was_asked();
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
}

#[test]
fn peeking_does_not_call_the_policy() {
    for (rig, visible) in [
        (Rig::new(), false),
        (Rig::present(), true),
        (Rig::expired(), false),
    ] {
        let left = rig.left();
        assert_eq!(rig.cache.peek_ref(&KEY).is_some(), visible);
        assert_eq!(rig.cache.contains_key(&KEY), visible);
        assert_eq!(rig.cache.iter().count(), usize::from(visible));
        let mut shown = 0;
        rig.cache.retain(|_, _| {
            shown += 1;
            true
        });
        assert_eq!(shown, u32::from(visible));
        rig.nobody_was_asked();
        assert_eq!(rig.left(), left, "a peek must leave the deadline unchanged");
    }
}

#[test]
fn set_expiry_sets_the_deadline_of_a_present_entry_only() {
    for life in [Some(secs(2)), Some(secs(60)), None] {
        let rig = Rig::present();
        assert!(rig.cache.set_expiry(&KEY, life));
        assert_eq!(rig.left(), Some(life));
        rig.nobody_was_asked();
        assert_eq!(rig.heard(), []);

        for rig in [Rig::new(), Rig::expired()] {
            assert!(!rig.cache.set_expiry(&KEY, life));
            assert_eq!(rig.left(), None);
            rig.nobody_was_asked();
        }
    }
}

#[test]
fn invalidate_and_remove() {
    let rig = Rig::present();
    rig.cache.invalidate(&KEY);
    assert_eq!(rig.heard(), [(KEY, OLD, Explicit)]);
    let rig = Rig::present();
    assert_eq!(rig.cache.remove(&KEY), Some(OLD));
    assert_eq!(rig.heard(), [(KEY, OLD, Explicit)]);
    rig.nobody_was_asked();

    let rig = Rig::expired();
    rig.cache.invalidate(&KEY);
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
    let rig = Rig::expired();
    assert_eq!(
        rig.cache.remove(&KEY),
        None,
        "an expired value is returned to no caller"
    );
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
    rig.nobody_was_asked();

    let rig = Rig::new();
    rig.cache.invalidate(&KEY);
    assert_eq!(rig.cache.remove(&KEY), None);
    assert_eq!(rig.heard(), []);
    rig.nobody_was_asked();
}

/// The answer counts from the call of the policy, and the entry was alive then.
#[test]
fn a_read_whose_policy_answers_after_the_deadline_extends_the_entry() {
    struct Slow(ManualTicker);
    impl Expiry<u32, u32> for Slow {
        fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
            Some(secs(10))
        }

        fn expire_after_read(
            &self,
            _: &u32,
            _: &u32,
            _: Instant,
            _: Option<Duration>,
            _: Instant,
        ) -> Option<Duration> {
            self.0.advance(secs(10));
            Some(secs(20))
        }
    }
    let clock = ManualTicker::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(Slow(clock.clone()))
        .ticker(clock)
        .build();
    cache.insert(1, 10);
    assert_eq!(cache.get(&1), Some(10));
    let left = cache.peek_ref(&1).and_then(|entry| entry.time_left());
    assert_eq!(left, Some(secs(10)));
}

/// On an update, sets another deadline with `set_expiry` before it answers "never".
struct Meddling(Arc<Mutex<Option<Cache<u32, u32>>>>);

impl Expiry<u32, u32> for Meddling {
    fn expire_after_create(&self, _: &u32, _: &u32, _: Instant) -> Option<Duration> {
        None
    }

    fn expire_after_update(
        &self,
        key: &u32,
        _: &u32,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        let cache = self.0.lock().unwrap().take();
        if let Some(cache) = cache {
            assert!(cache.set_expiry(key, Some(Duration::from_secs(10))));
        }
        None
    }
}

#[test]
fn if_the_deadline_moved_since_the_policy_is_called_again() {
    let (known, clock) = (Arc::new(Mutex::new(None)), ManualTicker::new());
    let cache: Cache<u32, u32> = Cache::builder()
        .expire_after(Meddling(Arc::clone(&known)))
        .ticker(clock.clone())
        .build();
    cache.insert(1, 1);
    *known.lock().unwrap() = Some(cache.clone());
    // The policy was called for an entry without a deadline and leaves that unchanged; but by then
    // there is a deadline.
    cache.insert(1, 2);
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), None);
    clock.advance(Duration::from_secs(10));
    assert_eq!(cache.get(&1), Some(2));
}
