//! A panic in user code reaches the caller, and the cache is as if the call had not been made.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::census::{Census, Counted};
use crate::support::record::Record;
use crate::support::rig::{KEY, NEW, OLD, Rig};
use crate::support::script::Answer::{self, Keep, Panic};
use crate::support::script::Script;
use crate::support::{OneHash, hide_scripted_panics, must_end, secs};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced};
use wheelhouse::{Cache, ManualTicker};

#[track_caller]
fn panics<T>(call: impl FnOnce() -> T) {
    assert!(
        catch_unwind(AssertUnwindSafe(call)).is_err(),
        "the panic did not reach the caller"
    );
}

/// Every kind of call, from another thread, so that a lock left locked is detected.
#[track_caller]
fn every_call_works(cache: &Cache<u32, u32>) {
    let cache = cache.clone();
    must_end(move || {
        for key in 10_000..10_200 {
            cache.insert_with_ttl(key, key, secs(1_000));
            assert_eq!(cache.peek_ref(&key).map(|entry| *entry), Some(key));
            assert!(cache.set_expiry(&key, None));
            assert_eq!(cache.remove(&key), Some(key));
        }
        cache.retain(|_, _| true);
        cache.run_pending_tasks();
    });
}

#[test]
fn a_panic_on_create_leaves_the_key_absent() {
    let rig = Rig::new();
    rig.script.on_create(Answer::Panic);
    panics(|| rig.cache.insert(KEY, OLD));
    assert!(!rig.cache.contains_key(&KEY));
    rig.cache.run_pending_tasks();
    assert_eq!(rig.cache.entry_count(), 0);
    assert_eq!(rig.heard(), []);

    rig.script.on_create(Answer::After(secs(10)));
    rig.cache.insert(KEY, NEW);
    assert_eq!(rig.left(), Some(Some(secs(10))));
    every_call_works(&rig.cache);
}

#[test]
fn a_panic_on_update_leaves_value_and_deadline() {
    let rig = Rig::present();
    rig.script.on_update(Answer::Panic);
    panics(|| rig.cache.insert(KEY, NEW));
    assert_eq!(rig.cache.peek_ref(&KEY).map(|entry| *entry), Some(OLD));
    assert_eq!(rig.left(), Some(Some(secs(7))));
    assert_eq!(rig.heard(), []);
    every_call_works(&rig.cache);
    rig.heard.take();
    rig.clock.advance(secs(7));
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
}

#[test]
fn a_panic_on_create_over_an_expired_entry_does_not_bring_it_back() {
    let rig = Rig::expired();
    rig.script.on_create(Answer::Panic);
    panics(|| rig.cache.insert(KEY, NEW));
    assert_eq!(rig.left(), None);
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
    assert_eq!(rig.cache.entry_count(), 0);
    every_call_works(&rig.cache);
}

#[test]
fn a_panic_on_read_leaves_value_and_deadline() {
    let rig = Rig::present();
    rig.script.on_read(Answer::Panic);
    panics(|| rig.cache.get(&KEY));
    panics(|| rig.cache.get_ref(&KEY).is_some());
    assert_eq!(rig.left(), Some(Some(secs(7))));
    rig.script.on_read(Answer::Keep);
    assert_eq!(rig.cache.get(&KEY), Some(OLD));
    every_call_works(&rig.cache);
    rig.heard.take();
    rig.clock.advance(secs(7));
    assert_eq!(rig.heard(), [(KEY, OLD, Expired)]);
}

#[test]
fn a_read_that_panics_does_not_reset_the_idle_time() {
    let (clock, script) = (ManualTicker::new(), Script::new(Keep, Keep, Panic));
    let cache = Cache::builder()
        .ticker(clock.clone())
        .expire_after(script.clone())
        .time_to_idle(secs(10))
        .build();
    let left = || cache.peek_ref(&KEY).and_then(|entry| entry.time_left());
    cache.insert(KEY, OLD);
    clock.advance(secs(4));
    panics(|| cache.get(&KEY));
    panics(|| cache.get_ref(&KEY).is_some());
    assert_eq!(left(), Some(secs(6)));
    script.on_read(Keep);
    assert_eq!(cache.get(&KEY), Some(OLD));
    assert_eq!(left(), Some(secs(10)));
}

#[test]
fn key_and_value_of_a_failed_insert_are_dropped() {
    let census = Census::default();
    let cache = Cache::builder()
        .expire_after(wheelhouse::expiry::writing(
            |_: &u32, value: &Counted<u32>| {
                assert!(value.payload > 0, "a policy that cannot take this value");
                None::<Duration>
            },
        ))
        .ticker(ManualTicker::new())
        .build();
    cache.insert(1, census.counted(1));
    panics(|| cache.insert(1, census.counted(0)));
    panics(|| cache.insert(2, census.counted(0)));
    assert_eq!(census.alive(), 1);
    assert!(cache.contains_key(&1));
    drop(cache);
    assert_eq!(census.alive(), 0);
}

thread_local! {
    static HASH_PANICS: Cell<bool> = const { Cell::new(false) };
    static EQ_PANICS: Cell<bool> = const { Cell::new(false) };
    static CLONE_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// A key and value whose every trait can be made to panic.
#[derive(Debug, PartialOrd, Ord)]
struct Prickly(u32);

impl Hash for Prickly {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!HASH_PANICS.get(), "told to panic in hash");
        self.0.hash(state);
    }
}

impl PartialEq for Prickly {
    fn eq(&self, other: &Self) -> bool {
        assert!(!EQ_PANICS.get(), "told to panic in eq");
        self.0 == other.0
    }
}

impl Eq for Prickly {}

impl Clone for Prickly {
    fn clone(&self) -> Self {
        assert!(!CLONE_PANICS.get(), "told to panic in clone");
        Prickly(self.0)
    }
}

fn with<T>(switch: &'static std::thread::LocalKey<Cell<bool>>, call: impl FnOnce() -> T) {
    switch.set(true);
    let panicked = catch_unwind(AssertUnwindSafe(call)).is_err();
    switch.set(false);
    assert!(panicked, "the panic did not reach the caller");
}

type PricklyCache = Cache<Prickly, Prickly, OneHash>;

/// Thirty entries that all share one hash, so that a look-up has to compare.
fn prickly() -> (PricklyCache, Record<Prickly, Prickly>) {
    let heard = Record::new();
    let cache = Cache::builder()
        .hasher(OneHash)
        .ticker(ManualTicker::new())
        .removal_listener(heard.listener())
        .build();
    for n in 0..30 {
        cache.insert(Prickly(n), Prickly(n + 100));
    }
    cache.run_pending_tasks();
    (cache, heard)
}

fn still_whole(cache: &PricklyCache, heard: &Record<Prickly, Prickly>) {
    cache.run_pending_tasks();
    assert_eq!(heard.count(), 0, "nothing left the cache");
    assert_eq!(cache.entry_count(), 30);
    let cache = cache.clone();
    must_end(move || {
        for n in 0..30 {
            assert_eq!(cache.get(&Prickly(n)), Some(Prickly(n + 100)));
        }
        cache.insert(Prickly(29), Prickly(0));
        assert_eq!(cache.remove(&Prickly(0)), Some(Prickly(100)));
        cache.invalidate_all();
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), 0);
    });
}

#[test]
fn a_panic_in_hash_changes_nothing() {
    let (cache, heard) = prickly();
    with(&HASH_PANICS, || cache.insert(Prickly(3), Prickly(0)));
    with(&HASH_PANICS, || {
        cache.insert_with_ttl(Prickly(77), Prickly(0), secs(1))
    });
    with(&HASH_PANICS, || cache.get(&Prickly(3)));
    with(&HASH_PANICS, || cache.contains_key(&Prickly(3)));
    with(&HASH_PANICS, || {
        cache.set_expiry(&Prickly(3), Some(secs(1)))
    });
    with(&HASH_PANICS, || cache.remove(&Prickly(3)));
    with(&HASH_PANICS, || cache.invalidate(&Prickly(3)));
    still_whole(&cache, &heard);
}

#[test]
fn a_panic_in_eq_changes_nothing() {
    let (cache, heard) = prickly();
    with(&EQ_PANICS, || cache.insert(Prickly(3), Prickly(0)));
    with(&EQ_PANICS, || {
        cache.insert_with_ttl(Prickly(77), Prickly(0), secs(1))
    });
    with(&EQ_PANICS, || cache.get(&Prickly(3)));
    with(&EQ_PANICS, || cache.peek_ref(&Prickly(3)).is_some());
    with(&EQ_PANICS, || cache.set_expiry(&Prickly(3), Some(secs(1))));
    with(&EQ_PANICS, || cache.remove(&Prickly(3)));
    with(&EQ_PANICS, || cache.invalidate(&Prickly(3)));
    still_whole(&cache, &heard);
}

#[test]
fn a_panic_in_clone_goes_to_the_reader() {
    let (cache, heard) = prickly();
    with(&CLONE_PANICS, || cache.get(&Prickly(3)));
    still_whole(&cache, &heard);
}

#[test]
fn a_panic_in_retain_goes_to_the_caller_and_entries_refused_before_are_removed() {
    let heard = Record::new();
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .removal_listener(heard.listener())
        .build();
    for key in 0..100 {
        cache.insert(key, key);
    }
    let mut shown = Vec::new();
    panics(|| {
        cache.retain(|&key, _| {
            assert!(shown.len() < 40, "told to panic in retain");
            shown.push(key);
            false
        });
    });
    assert_eq!(shown.len(), 40);
    cache.run_pending_tasks();
    let mut gone = Vec::new();
    for (key, _, cause) in heard.take() {
        assert_eq!(cause, Explicit);
        gone.push(key);
    }
    gone.sort_unstable();
    shown.sort_unstable();
    assert_eq!(gone, shown);
    assert_eq!(cache.entry_count(), 60);
    every_call_works(&cache);
}

#[test]
fn a_listener_whose_panic_carries_what_panics_when_dropped_is_contained_and_counted() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("told to panic in the drop of a payload");
        }
    }
    let heard = Record::new();
    let record = heard.clone();
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .record_stats()
        .removal_listener(move |key: &u32, value: &u32, cause| {
            record.note(key, value, cause);
            if key % 2 == 0 {
                std::panic::panic_any(Bomb);
            }
        })
        .build();
    for key in 0..4 {
        cache.insert(key, key);
        cache.invalidate(&key);
    }
    cache.run_pending_tasks();
    let delivered: Vec<_> = (0..4).map(|key| (key, key, Explicit)).collect();
    assert_eq!(heard.take_sorted(), delivered);
    assert_eq!(cache.stats().listener_panics(), 2);
    every_call_works(&cache);
}

#[test]
fn a_panic_in_the_middle_of_many_operations_loses_none_of_their_events() {
    let rig = Rig::new();
    for round in 0..500 {
        rig.script.on_create(Answer::After(secs(10)));
        rig.cache.insert(KEY, round);
        rig.script.on_update(Answer::Panic);
        panics(|| rig.cache.insert(KEY, 9_999));
        rig.script.on_update(Answer::After(secs(5)));
        rig.cache.insert(KEY, round + 1_000);
        rig.cache.invalidate(&KEY);
    }
    let expected: Vec<_> = (0..500)
        .flat_map(|n| [(KEY, n, Replaced), (KEY, n + 1_000, Explicit)])
        .collect();
    assert_eq!(rig.heard(), expected);
    assert_eq!(rig.cache.entry_count(), 0);
}

/// The panic of a destructor is none of the caller's: it takes back a value that was not stored,
/// or hears that an entry has expired.
#[test]
fn destructors_of_clones_that_a_call_drops_are_contained() {
    thread_local! {
        static ARMED: Cell<bool> = const { Cell::new(false) };
    }
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Brittle(u32);
    impl Drop for Brittle {
        fn drop(&mut self) {
            if ARMED.take() {
                panic!("told to panic in a destructor");
            }
        }
    }
    hide_scripted_panics();
    let clock = ManualTicker::new();
    let cache: Cache<Brittle, u32> = Cache::builder().ticker(clock.clone()).build();
    let key = Brittle(1);
    cache.insert(key.clone(), 1);
    ARMED.set(true);
    assert_eq!(cache.replace_if(&key, 2, |_| false), Err(2));
    assert!(!ARMED.take(), "the cache's clone of the key was dropped");

    let values: Cache<u32, Brittle> = Cache::builder().ticker(clock.clone()).build();
    values.insert_with_ttl(1, Brittle(1), secs(1));
    clock.advance(secs(1));
    ARMED.set(true);
    assert!(values.remove(&1).is_none());
    assert!(!ARMED.take(), "the clone of the value was dropped");
}

#[test]
fn a_key_and_its_value_may_both_panic_in_their_destructors() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    #[derive(PartialEq, Eq, Hash)]
    struct Brittle(u32);
    impl Borrow<u32> for Brittle {
        fn borrow(&self) -> &u32 {
            &self.0
        }
    }
    impl Drop for Brittle {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
            panic!("told to panic in a destructor");
        }
    }
    hide_scripted_panics();
    let cache: Cache<Brittle, Brittle> = Cache::builder().ticker(ManualTicker::new()).build();
    cache.insert(Brittle(1), Brittle(1));
    cache.insert(Brittle(2), Brittle(2));
    cache.invalidate(&1);
    cache.run_pending_tasks();
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2, "key and value");
    drop(cache);
    assert_eq!(
        DROPPED.load(Ordering::Relaxed),
        4,
        "those of the other entry, too"
    );
}

#[test]
fn destructors_of_clones_that_remove_made_in_vain_are_contained() {
    thread_local! {
        static CACHE: RefCell<Option<Cache<u32, Brittle>>> = const { RefCell::new(None) };
    }
    /// Each of its clones replaces it. Meanwhile its destructor panics.
    struct Brittle;
    impl Clone for Brittle {
        fn clone(&self) -> Self {
            CACHE.with_borrow(|cache| cache.as_ref().unwrap().insert(1, Brittle));
            Brittle
        }
    }
    impl Drop for Brittle {
        fn drop(&mut self) {
            if CACHE.with_borrow(Option::is_some) {
                panic!("told to panic in a destructor");
            }
        }
    }
    hide_scripted_panics();
    let cache = Cache::builder().ticker(ManualTicker::new()).build();
    cache.insert(1, Brittle);
    CACHE.set(Some(cache.clone()));
    let removed = catch_unwind(AssertUnwindSafe(|| cache.remove(&1)));
    CACHE.set(None);
    assert!(removed.is_ok_and(|value| value.is_some()));
}

/// A value whose clone panics.
struct Unclonable;

impl Clone for Unclonable {
    fn clone(&self) -> Self {
        panic!("told to panic");
    }
}

#[test]
fn a_read_counts_though_the_clone_panics() {
    hide_scripted_panics();
    let cache = Cache::builder().record_stats().build();
    cache.insert(KEY, Unclonable);
    panics(|| cache.get(&KEY));
    assert_eq!(cache.stats().hits(), 1);
    panics(|| cache.get_many([&KEY]));
    assert_eq!(cache.stats().hits(), 2, "get_many");
}
