//! References of every age into two caches, dropped in any order: each shows the value that it was
//! made for, and no memory is kept afterwards. What a leaked reference keeps.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::Dice;
use crate::support::census::{Census, Counted};
use wheelhouse::{Cache, EntryRef, ManualTicker};

/// Overwrites its content with nonsense when it is dropped, so that a read of freed memory that is
/// still mapped is detected.
struct Page(u64);

impl Drop for Page {
    fn drop(&mut self) {
        // Through a black box, otherwise the compiler would remove a write that is never read.
        std::hint::black_box(std::mem::replace(&mut self.0, u64::MAX));
    }
}

#[test]
fn references_dropped_in_any_order_show_their_own_value_and_keep_no_memory() {
    let census = Census::default();
    let caches: [Cache<u64, Counted<Page>>; 2] =
        [(); 2].map(|()| Cache::builder().ticker(ManualTicker::new()).build());
    let mut dice = Dice::new(5);
    let mut held: Vec<(u64, EntryRef<'_, u64, Counted<Page>>)> = Vec::new();
    let intact = |held: &[(u64, EntryRef<'_, u64, Counted<Page>>)]| {
        held.iter()
            .all(|(made_for, entry)| entry.payload.0 == *made_for)
    };
    for serial in 0..20_000 {
        let cache = &caches[serial as usize % 2];
        let key = dice.below(50);
        cache.insert(key, census.counted(Page(serial)));
        if dice.below(3) == 0 {
            held.push((serial, cache.get_ref(&key).expect("just inserted")));
        }
        if dice.below(4) == 0 {
            cache.invalidate(&(key ^ 1));
        }
        if held.len() > 40 {
            held.swap_remove(dice.below(held.len() as u64) as usize);
        }
        if serial % 50 == 0 {
            cache.run_pending_tasks();
            assert!(intact(&held), "after {serial} writes");
        }
    }
    assert!(intact(&held));
    drop(held);
    for _ in 0..3 {
        caches.iter().for_each(Cache::run_pending_tasks);
    }
    let present: u64 = caches.iter().map(Cache::entry_count).sum();
    assert_eq!(census.alive(), present as i64);
}

/// A value with methods of the names that a reference has, as the documentation of `EntryRef` says.
#[test]
fn methods_of_a_value_are_reached_though_the_reference_has_some_of_their_names() {
    #[derive(Clone, Debug, PartialEq)]
    struct Person {
        age: u32,
    }
    impl Person {
        fn age(&self) -> u32 {
            self.age
        }
        fn key(&self) -> &'static str {
            "of the value"
        }
        fn is_adult(&self) -> bool {
            self.age >= 18
        }
    }
    let clock = ManualTicker::new();
    let cache = Cache::builder().ticker(clock.clone()).build();
    cache.insert(7, Person { age: 36 });
    clock.advance(std::time::Duration::from_secs(5));
    let entry = cache.get_ref(&7).unwrap();
    assert_eq!((*entry.key(), entry.age().as_secs()), (7, 5));
    assert_eq!(
        (entry.value().key(), entry.value().age()),
        ("of the value", 36)
    );
    assert!(entry.is_adult() && entry.time_left().is_none());
    let owned: Person = entry.clone();
    assert_eq!(owned, Person { age: 36 });
}

/// As the documentation of `EntryRef` says. Not under leak detection: this is a leak.
#[test]
#[cfg_attr(wheelhouse_single, ignore = "leaks a reference")]
fn a_leaked_reference_of_an_ended_thread_keeps_what_is_removed_until_the_cache_is_dropped() {
    let census = Census::default();
    let cache: Cache<u32, Counted<u32>> = Cache::builder().ticker(ManualTicker::new()).build();
    for key in 0..100 {
        cache.insert(key, census.counted(key));
    }
    let theirs = cache.clone();
    std::thread::spawn(move || std::mem::forget(theirs.get_ref(&0)))
        .join()
        .unwrap();
    for key in 0..100 {
        cache.invalidate(&key);
    }
    for _ in 0..5 {
        cache.run_pending_tasks();
    }
    assert_eq!((cache.entry_count(), census.alive()), (0, 100));
    drop(cache);
    assert_eq!(census.alive(), 0);
}

/// Two threads, each of which writes a key and then reads the other's: at least one of them finds
/// it, whatever else they hold.
#[test]
fn a_thread_with_a_reference_sees_other_threads_writes() {
    const ROUNDS: u32 = 50_000;
    let cache: Cache<u32, u32> = Cache::builder().build();
    cache.insert(0, 0);
    let gates = [AtomicU32::new(0), AtomicU32::new(0)];
    let meet = |me: usize, at: u32| {
        gates[me].store(at, Ordering::SeqCst);
        let mut looks = 0;
        while gates[1 - me].load(Ordering::SeqCst) < at {
            looks += 1;
            if looks % 10_000 == 0 {
                std::thread::yield_now();
            }
        }
    };
    let missed = |me: usize| {
        let _held = cache.get_ref(&0);
        let mut missed = Vec::new();
        for round in 1..=ROUNDS {
            let keys = [2 * round, 2 * round + 1];
            meet(me, 2 * round);
            cache.insert(keys[me], 0);
            if cache.get(&keys[1 - me]).is_none() {
                missed.push(round);
            }
            meet(me, 2 * round + 1);
        }
        missed
    };
    let (one, other) = std::thread::scope(|threads| {
        let other = threads.spawn(|| missed(1));
        (missed(0), other.join().unwrap())
    });
    let both = one
        .iter()
        .filter(|round| other.binary_search(round).is_ok());
    assert_eq!(both.count(), 0, "neither has seen the other's write");
}
