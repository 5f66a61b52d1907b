//! The effect of each operation on an entry, on plain and on awkward keys and values.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Duration;

use super::generic_code::{Key, Value};
use crate::support::record::Record;
use crate::support::{NS, OneHash, must_end, secs};
use wheelhouse::RemovalCause::{self, Explicit, Replaced};
use wheelhouse::expiry::accessing;
use wheelhouse::{Cache, EntryRef, Equivalent, ManualTicker};

fn manual<K, V>() -> (Cache<K, V>, ManualTicker, Record<K, V>)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    (cache, clock, heard)
}

#[test]
fn an_inserted_entry_is_found_until_it_is_removed() {
    let (cache, _clock, heard) = manual::<String, u32>();
    assert_eq!(cache.get("a"), None);
    cache.insert("a".to_string(), 1);
    cache.insert("b".to_string(), 2);
    assert_eq!(cache.get("a"), Some(1));
    assert_eq!(cache.get_ref("b").map(|entry| *entry), Some(2));
    assert_eq!(
        cache
            .peek_ref("b")
            .map(|entry| (entry.key().clone(), *entry.value())),
        Some(("b".into(), 2))
    );
    assert!(cache.contains_key("a") && !cache.contains_key("c"));
    cache.insert("a".to_string(), 3);
    assert_eq!(cache.get("a"), Some(3));
    assert_eq!(cache.remove("a"), Some(3));
    assert_eq!(cache.remove("a"), None);
    cache.invalidate("b");
    cache.invalidate("b");
    assert_eq!(cache.get("b"), None);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
    assert_eq!(
        heard.take_sorted(),
        [
            ("a".into(), 1, Replaced),
            ("a".into(), 3, Explicit),
            ("b".into(), 2, Explicit)
        ]
    );
}

#[test]
fn owned_keys_are_read_by_their_borrowed_form() {
    #[derive(PartialEq, Eq, Hash, Clone)]
    struct Address {
        host: String,
        port: u16,
    }
    struct Borrowed<'a>(&'a str, u16);
    impl Hash for Borrowed<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
            self.1.hash(state);
        }
    }
    impl Equivalent<Address> for Borrowed<'_> {
        fn equivalent(&self, key: &Address) -> bool {
            self.0 == key.host && self.1 == key.port
        }
    }
    let (cache, _clock, _heard) = manual::<Address, u32>();
    cache.insert(
        Address {
            host: "localhost".into(),
            port: 80,
        },
        1,
    );
    let key = Borrowed("localhost", 80);
    assert_eq!(cache.get(&key), Some(1));
    assert!(
        cache.contains_key(&key) && cache.get_ref(&key).is_some() && cache.peek_ref(&key).is_some()
    );
    assert!(cache.set_expiry(&key, Some(secs(1))));
    assert_eq!(cache.get(&Borrowed("localhost", 81)), None);
    assert_eq!(cache.remove(&key), Some(1));
    cache.invalidate(&key);

    let (cache, _clock, _heard) = manual::<Vec<u8>, u32>();
    cache.insert(b"key".to_vec(), 1);
    assert_eq!(cache.get(b"key".as_slice()), Some(1));
}

#[test]
fn keys_and_values_need_not_be_clone() {
    let cache: Cache<Key, Value> = Cache::builder().ticker(ManualTicker::new()).build();
    cache.insert(Key(1), Value(1));
    cache.insert(Key(1), Value(2));
    cache.insert_with_ttl(Key(2), Value(3), secs(1));
    assert!(cache.get_ref(&Key(1)).is_some_and(|entry| entry.0 == 2));
    assert!(
        cache
            .peek_ref(&Key(2))
            .is_some_and(|entry| entry.value().0 == 3)
    );
    assert!(cache.set_expiry(&Key(2), None));
    cache.invalidate(&Key(1));
    assert!(!cache.contains_key(&Key(1)));
    cache.retain(|key, _| key.0 != 2);
    cache.invalidate_all();
    assert_eq!(cache.iter().count(), 0);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 0);
}

#[test]
fn keys_and_values_of_no_size_or_great_alignment() {
    #[derive(Clone, Debug, PartialEq)]
    #[repr(align(256))]
    struct Wide([u8; 300]);
    let (cache, _clock, _heard) = manual::<(), Wide>();
    cache.insert((), Wide([7; 300]));
    cache.insert((), Wide([8; 300]));
    let entry = cache.get_ref(&()).unwrap();
    assert_eq!(std::ptr::from_ref(entry.value()).addr() % 256, 0);
    assert_eq!(*entry, Wide([8; 300]));

    let (cache, _clock, heard) = manual::<(), ()>();
    cache.insert((), ());
    cache.insert((), ());
    assert_eq!(cache.get(&()), Some(()));
    assert_eq!(cache.remove(&()), Some(()));
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [((), (), Replaced), ((), (), Explicit)]);
}

#[test]
fn colliding_hashes_are_distinguished() {
    let clock = ManualTicker::new();
    let cache = Cache::builder()
        .hasher(OneHash)
        .ticker(clock.clone())
        .build();
    for key in 0..300u32 {
        cache.insert_with_ttl(key, key, secs(u64::from(key % 3) + 1));
    }
    for key in (0..300).step_by(2) {
        assert_eq!(cache.remove(&key), Some(key));
    }
    for key in 0..300 {
        assert_eq!(cache.get(&key), (key % 2 == 1).then_some(key));
    }
    clock.advance(secs(2));
    cache.run_pending_tasks();
    for key in 0..300 {
        assert_eq!(
            cache.get(&key),
            (key % 2 == 1 && key % 3 == 2).then_some(key)
        );
    }
    assert_eq!(cache.entry_count(), 50);
}

#[test]
fn a_table_that_grew_and_shrank_has_lost_nothing() {
    let (cache, _clock, heard) = manual::<u32, u32>();
    const MANY: u32 = 100_000;
    for round in 0..2 {
        for key in 0..MANY {
            cache.insert(key, round);
            // What was stored before a step of growth is there after it.
            assert_eq!(cache.get(&(key / 2)), Some(round));
        }
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), u64::from(MANY));
        assert_eq!(cache.iter().count(), MANY as usize);
        for key in 0..MANY - 10 {
            assert_eq!(cache.remove(&key), Some(round), "{key}");
            assert!(!cache.contains_key(&key));
        }
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 10);
        let rest: BTreeSet<u32> = cache.iter().map(|entry| *entry.key()).collect();
        assert_eq!(rest, (MANY - 10..MANY).collect());
        cache.invalidate_all();
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0);
        assert_eq!(heard.take().len(), MANY as usize);
    }
}

#[test]
fn a_reference_keeps_its_value_and_blocks_no_writer() {
    let (cache, clock, _heard) = manual::<u32, String>();
    for key in 0..100 {
        cache.insert(key, key.to_string());
    }
    must_end(move || {
        let held: Vec<_> = (0..100).map(|key| cache.get_ref(&key).unwrap()).collect();
        for key in 0..50 {
            cache.insert(key, "other".into());
        }
        for key in 50..75 {
            assert_eq!(cache.remove(&key), Some(key.to_string()));
        }
        assert!(cache.set_expiry(&80, Some(secs(1))));
        clock.advance(secs(1));
        cache.invalidate_all();
        for _ in 0..5 {
            cache.run_pending_tasks();
        }
        let others = cache.clone();
        std::thread::spawn(move || {
            for key in 0..10_000 {
                others.insert(key, "another".into());
            }
            others.run_pending_tasks();
        })
        .join()
        .unwrap();
        for (key, entry) in held.iter().enumerate() {
            assert_eq!(**entry, key.to_string());
            assert_eq!(*entry.key(), key as u32);
        }
    });
}

#[test]
fn a_reference_to_a_replaced_entry_knows_the_time_its_value_would_have_left() {
    for reads_extend in [false, true] {
        let clock = ManualTicker::new();
        let builder = Cache::builder().ticker(clock.clone());
        let cache = if reads_extend {
            builder
                .expire_after(accessing(|key: &u32, _: &u32| {
                    (*key < 100).then(|| secs(10))
                }))
                .build()
        } else {
            builder.time_to_live(secs(10)).build()
        };
        cache.insert(1, 1);
        clock.advance(secs(4));
        let (read, peeked) = (
            cache.get_ref(&1).expect("present"),
            cache.peek_ref(&1).expect("present"),
        );
        let shown = cache.iter().next().expect("present");
        let left = if reads_extend { secs(10) } else { secs(6) };
        for round in 0..3 {
            for entry in [&read, &peeked, &shown] {
                assert_eq!((**entry, entry.time_left()), (1, Some(left - secs(round))));
            }
            clock.advance(secs(1));
            if round == 0 {
                cache.insert(1, 2);
            } else {
                cache.run_pending_tasks();
            }
        }
        // It expires by its own deadline, not by that of the new value.
        clock.advance(left - secs(3));
        assert_eq!(read.time_left(), Some(Duration::ZERO));
        assert_eq!(cache.peek_ref(&1).map(|entry| *entry), Some(2));

        if reads_extend {
            cache.insert(100, 1);
            let (read, peeked) = (cache.get_ref(&100).unwrap(), cache.peek_ref(&100).unwrap());
            cache.insert(100, 2);
            assert_eq!((read.time_left(), peeked.time_left()), (None, None));
        }
    }
}

#[test]
fn a_reference_knows_age_and_time_left() {
    let (cache, clock, _heard) = manual::<u32, u32>();
    cache.insert_with_ttl(1, 1, secs(10));
    clock.advance(secs(4));
    let entry = cache.get_ref(&1).unwrap();
    assert_eq!(entry.time_left(), Some(secs(6)));
    assert_eq!(entry.age(), secs(4));
    drop(entry);
    clock.advance(NS);
    assert_eq!(
        cache.peek_ref(&1).unwrap().age(),
        secs(4) + NS,
        "a read is no write"
    );
    cache.insert_with_ttl(1, 2, secs(10));
    assert_eq!(cache.peek_ref(&1).unwrap().age(), secs(0));
    assert!(cache.set_expiry(&1, None));
    assert_eq!(cache.peek_ref(&1).unwrap().time_left(), None);
    assert_eq!(cache.iter().next().unwrap().time_left(), None);
}

#[test]
fn clones_are_handles_of_one_cache() {
    let (cache, clock, heard) = manual::<u32, u32>();
    let other = cache.clone();
    cache.insert(1, 1);
    assert_eq!(other.get(&1), Some(1));
    other.insert_with_ttl(2, 2, secs(1));
    drop(other);
    assert_eq!(cache.get(&2), Some(2));
    clock.advance(secs(1));
    cache.clone().run_pending_tasks();
    assert_eq!(heard.take(), [(2, 2, RemovalCause::Expired)]);
    assert_eq!(cache.entry_count(), 1);
}

#[test]
fn handles_are_shared_between_threads_and_references_are_not() {
    fn shared<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<Cache<String, Vec<u8>>>();

    // Two candidates for `probe` if the type is `Send`, so that it compiles only if it is not.
    trait Probe<Case> {
        fn probe() {}
    }
    impl<T: ?Sized> Probe<()> for T {}
    struct IsSend;
    impl<T: ?Sized + Send> Probe<IsSend> for T {}
    <EntryRef<'static, String, u32> as Probe<_>>::probe();
}

#[test]
fn counts_are_exact_after_pending_tasks_have_run() {
    let (cache, clock, _heard) = manual::<u32, u32>();
    for key in 0..1_000u32 {
        cache.insert_with_ttl(key, key, secs(u64::from(key) + 1));
        cache.insert_with_ttl(key, key + 1, secs(u64::from(key) + 1));
    }
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 1_000);
    for gone in 1..=10 {
        clock.advance(secs(1));
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 1_000 - gone);
    }
    cache.invalidate(&500);
    assert!(cache.set_expiry(&600, Some(NS)));
    clock.advance(NS);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 988);
    cache.retain(|key, _| key % 2 == 0);
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 493);
}

#[test]
fn next_maintenance_follows_the_earliest_deadline() {
    let (cache, clock, _heard) = manual::<u32, u32>();
    let wait = || cache.next_maintenance_in();
    let span = crate::support::SPAN;
    assert_eq!(wait(), None);
    cache.insert_with_ttl(1, 1, secs(100));
    assert!(
        wait().is_some_and(|wait| wait <= secs(100) + span),
        "armed though still in a buffer: {:?}",
        wait()
    );
    cache.insert_with_ttl(2, 2, secs(10));
    assert!(wait().is_some_and(|wait| wait <= secs(10) + span));
    cache.run_pending_tasks();
    assert!(
        wait().is_some_and(|wait| wait > secs(0) && wait <= secs(10) + span),
        "{:?}",
        wait()
    );
    cache.invalidate(&2);
    cache.run_pending_tasks();
    assert!(
        wait().is_some_and(|wait| wait > secs(0) && wait <= secs(100) + span),
        "{:?}",
        wait()
    );
    assert!(cache.set_expiry(&1, Some(secs(3))));
    assert!(
        wait().is_some_and(|wait| wait <= secs(3) + span),
        "{:?}",
        wait()
    );
    clock.advance(secs(3));
    cache.run_pending_tasks();
    assert_eq!(wait(), None, "an empty cache has nothing to wake up for");
    cache.insert(3, 3);
    cache.run_pending_tasks();
    assert_eq!(wait(), None, "nor has one whose entries never expire");
}

/// The auto traits of a handle, for all keys, values and hashers that a cache accepts: checked at
/// compile time.
#[allow(dead_code, reason = "it is there to compile")]
fn a_handle_is_send_and_sync<K, V, S>()
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn may_be_shared<T: Send + Sync + Unpin + 'static>() {}
    may_be_shared::<Cache<K, V, S>>();
}

/// Neither a clone of a handle nor its `Debug` needs a bound on keys and values.
#[allow(dead_code, reason = "it is there to compile")]
fn a_handle_is_clone_and_debug<K, V, S>() {
    fn cloned_and_shown<T: Clone + Debug>() {}
    cloned_and_shown::<Cache<K, V, S>>();
}

/// Also if the deadline was moved to an earlier one after the look-up.
#[test]
fn a_reference_to_an_expired_entry_has_no_time_left() {
    for lifetime in [None, Some(secs(60))] {
        let (cache, clock, _heard) = manual::<u32, u32>();
        cache.insert(1, 1);
        cache.set_expiry(&1, lifetime);
        let entry = cache.get_ref(&1).unwrap();
        cache.set_expiry(&1, Some(secs(5)));
        clock.advance(secs(5));
        assert_eq!(entry.time_left(), Some(Duration::ZERO));
        assert!(!cache.contains_key(&1), "a look-up makes that final");
        assert_eq!(entry.time_left(), Some(Duration::ZERO));
        cache.run_pending_tasks();
        assert_eq!(entry.time_left(), Some(Duration::ZERO));
    }
}
