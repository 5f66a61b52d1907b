//! Iteration over all entries: `iter`, `retain`, `invalidate_all`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::support::record::Record;
use crate::support::{OneHash, must_end, secs};
use wheelhouse::RemovalCause::{Expired, Explicit, Replaced};
use wheelhouse::{Cache, ManualTicker};

fn filled(count: u32) -> (Cache<u32, u32>, ManualTicker, Record<u32, u32>) {
    let clock = ManualTicker::new();
    let heard = Record::new();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .removal_listener(heard.listener())
        .build();
    for key in 0..count {
        cache.insert(key, key + 1);
    }
    (cache, clock, heard)
}

#[test]
fn iter_shows_each_entry_once() {
    for count in [0, 1, 7, 8, 9, 1_000, 20_000] {
        let (cache, _clock, _heard) = filled(count);
        let shown: Vec<(u32, u32)> = cache.iter().map(|entry| (*entry.key(), *entry)).collect();
        assert_eq!(shown.len(), count as usize);
        let shown: BTreeMap<u32, u32> = shown.into_iter().collect();
        assert_eq!(shown, (0..count).map(|key| (key, key + 1)).collect());
        assert_eq!((&cache).into_iter().count(), count as usize);
        let mut looped = 0;
        for entry in &cache {
            assert_eq!(*entry.value(), entry.key() + 1);
            looped += 1;
        }
        assert_eq!(looped, count);
    }
}

#[test]
fn iter_shows_each_entry_once_when_all_hashes_collide() {
    let cache = Cache::builder()
        .hasher(OneHash)
        .ticker(ManualTicker::new())
        .build();
    for key in 0..100u32 {
        cache.insert(key, key);
    }
    let shown: Vec<u32> = cache.iter().map(|entry| *entry.key()).collect();
    assert_eq!(shown.len(), 100);
    assert_eq!(shown.into_iter().collect::<BTreeSet<u32>>().len(), 100);
}

#[test]
fn iter_skips_the_expired_even_in_the_middle_of_the_walk() {
    let (cache, clock, _heard) = filled(0);
    for key in 0..100 {
        cache.insert_with_ttl(key, key, secs(u64::from(key % 2) * 5 + 5));
    }
    let mut walk = cache.iter();
    assert!(walk.next().is_some());
    clock.advance(secs(5));
    let rest: Vec<u32> = walk.by_ref().map(|entry| *entry.key()).collect();
    assert!(rest.iter().all(|key| key % 2 == 1), "{rest:?}");
    assert!(rest.len() == 50 || rest.len() == 49);
    let mut walk = cache.iter();
    clock.advance(secs(5));
    assert!(walk.next().is_none());
    assert!(walk.next().is_none(), "an ended iterator stays ended");
}

#[test]
fn iter_tolerates_any_change_during_the_walk() {
    let (cache, _clock, _heard) = filled(1_000);
    must_end(move || {
        let mut shown = BTreeSet::new();
        for (step, entry) in (0..).zip(&cache) {
            let key = *entry.key();
            assert!(key >= 1_000 || shown.insert(key), "{key} was shown twice");
            // Old entries are removed, new ones inserted, the table grows, maintenance runs, and
            // the iteration continues.
            if step < 2_000 {
                cache.insert(1_000_000 + step, 0);
                cache.insert(2_000_000 + step, 0);
                cache.invalidate(&(1_000_000 + step));
            }
            if step % 100 == 0 {
                cache.run_pending_tasks();
            }
        }
        assert_eq!(
            shown,
            (0..1_000).collect(),
            "entries that stayed all the time are shown"
        );

        let walk = cache.iter();
        cache.invalidate_all();
        assert_eq!(walk.count(), 0);
    });
}

#[test]
fn iter_shows_a_key_that_is_replaced_while_its_group_is_read() {
    // If reads extend deadlines, a replaced node is frozen and looks due; otherwise it keeps its
    // deadline.
    for reads_extend in [false, true] {
        let clock = ManualTicker::new();
        let builder = Cache::builder().hasher(OneHash).ticker(clock.clone());
        let cache: Cache<u32, u32, OneHash> = if reads_extend {
            builder.time_to_idle(secs(60)).build()
        } else {
            builder.build()
        };
        for key in 0..20u32 {
            cache.insert(key, 0);
        }
        // All keys share one hash, hence one group: the first step reads all of them.
        let mut walk = cache.iter();
        let mut shown = vec![*walk.next().expect("twenty entries").key()];
        for key in 0..20 {
            cache.insert(key, 1);
            // Removed and inserted again: another node, perhaps in another slot.
            if key % 5 == 0 {
                cache.invalidate(&key);
                cache.insert(key, 1);
            }
            if key % 7 == 0 {
                cache.run_pending_tasks();
            }
        }
        cache.invalidate(&19);
        for entry in walk {
            assert_eq!(
                *entry,
                1,
                "{} was replaced before it was shown",
                entry.key()
            );
            shown.push(*entry.key());
        }
        let all: BTreeSet<u32> = shown.iter().copied().collect();
        assert_eq!(all.len(), shown.len(), "shown twice: {shown:?}");
        assert!((0..19).all(|key| all.contains(&key)), "left out: {shown:?}");
    }
}

#[test]
fn iter_shows_each_key_once_while_other_threads_replace_all_of_them() {
    let (cache, _clock, _heard) = filled(500);
    must_end(move || {
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut round = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    round += 1;
                    for key in 0..500 {
                        cache.insert(key, round);
                    }
                    // The table grows and shrinks during the iterations.
                    for key in 1_000..1_000 + 3_000 * (round % 2) {
                        cache.insert(key, 0);
                    }
                    for key in 1_000..4_000 {
                        cache.invalidate(&key);
                    }
                }
            });
            let wrong = (0..300).find_map(|_| {
                let mut shown = vec![0; 500];
                for entry in &cache {
                    if let Some(times) = shown.get_mut(*entry.key() as usize) {
                        *times += 1;
                    }
                }
                shown.iter().any(|&times| times != 1).then_some(shown)
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(wrong, None, "how often each key was shown");
        });
    });
}

#[test]
fn retain_removes_entries_that_the_closure_refuses() {
    let (cache, clock, heard) = filled(1_000);
    cache.insert_with_ttl(5_000, 0, secs(1));
    clock.advance(secs(1));
    let mut shown = BTreeMap::new();
    cache.retain(|&key, &value| {
        assert_eq!(shown.insert(key, value), None, "{key} is shown twice");
        key % 3 == 0
    });
    assert_eq!(
        shown,
        (0..1_000).map(|key| (key, key + 1)).collect(),
        "the expired one is not shown"
    );
    for key in 0..1_000 {
        assert_eq!(cache.contains_key(&key), key % 3 == 0);
    }
    cache.run_pending_tasks();
    let mut expected: Vec<_> = (0..1_000)
        .filter(|key| key % 3 != 0)
        .map(|key| (key, key + 1, Explicit))
        .collect();
    expected.push((5_000, 0, Expired));
    assert_eq!(heard.take_sorted(), expected);
    assert_eq!(cache.entry_count(), 334);
}

#[test]
fn retain_may_call_the_cache() {
    let (cache, _clock, heard) = filled(100);
    let count = must_end(move || {
        let mut steps = 0;
        cache.retain(|&key, _| {
            steps += 1;
            assert!(
                steps < 10_000,
                "retain follows its own insertions without end"
            );
            if key < 100 {
                assert_eq!(cache.get(&key), Some(key + 1));
                // Replaced while the closure judged it: the judgement was about the value that it
                // saw.
                cache.insert(key, 0);
                cache.insert(key + 1_000, 0);
                cache.invalidate(&(key + 1_000));
                cache.run_pending_tasks();
            }
            key % 2 == 0
        });
        cache.run_pending_tasks();
        (0..100).for_each(|key| assert!(key % 2 == 1 || cache.contains_key(&key)));
        cache.entry_count()
    });
    let explicit_below_100 = heard
        .take()
        .iter()
        .filter(|notice| notice.0 < 100 && notice.2 == Explicit)
        .count();
    assert_eq!(count, 100 - explicit_below_100 as u64);
}

#[test]
fn invalidate_all_removes_and_delivers_each() {
    let (cache, clock, heard) = filled(10_000);
    cache.insert(0, 0);
    cache.insert_with_ttl(20_000, 1, secs(1));
    cache.insert_with_ttl(30_000, 1, secs(2));
    clock.advance(secs(1));
    cache.invalidate_all();
    assert_eq!(cache.iter().count(), 0);
    assert_eq!(cache.get(&5), None);
    cache.insert(5, 55);
    assert_eq!(cache.get(&5), Some(55));
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 1);
    let mut expected = vec![(0, 0, Explicit), (0, 1, Replaced)];
    expected.extend((1..10_000).map(|key| (key, key + 1, Explicit)));
    expected.extend([(20_000, 1, Expired), (30_000, 1, Explicit)]);
    assert_eq!(heard.take_sorted(), expected);

    cache.invalidate_all();
    cache.invalidate_all();
    cache.run_pending_tasks();
    assert_eq!(heard.take(), [(5, 55, Explicit)]);
    assert_eq!(
        (cache.entry_count(), cache.next_maintenance_in()),
        (0, None)
    );
}

#[test]
fn invalidate_all_ends_although_the_listener_inserts_everything_again() {
    let slot: Arc<Mutex<Option<Cache<u32, u32>>>> = Arc::default();
    let (handle, heard) = (Arc::clone(&slot), Record::new());
    let record = heard.clone();
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .removal_listener(move |key: &u32, value: &u32, cause| {
            record.note(key, value, cause);
            let cache = handle.lock().unwrap().clone();
            if let Some(cache) = cache {
                cache.insert(*key, value + 1);
            }
        })
        .build();
    *slot.lock().unwrap() = Some(cache.clone());
    let again = cache.clone();
    must_end(move || {
        for key in 0..5_000 {
            again.insert(key, 0);
        }
        for round in 0..3 {
            again.invalidate_all();
            again.run_pending_tasks();
            again.run_pending_tasks();
            assert_eq!(again.entry_count(), 5_000);
            assert!((0..5_000).all(|key| again.get(&key) == Some(round + 1)));
        }
    });
    let heard = heard.take_sorted();
    assert_eq!(heard.len(), 15_000);
    assert!(
        heard
            .iter()
            .zip(0..)
            .all(|(notice, n)| *notice == (n / 3, n % 3, Explicit))
    );
    slot.lock().unwrap().take();
    drop(cache);
}

#[test]
fn walks_of_several_threads_do_not_disturb_each_other() {
    let (cache, _clock, heard) = filled(2_000);
    must_end(move || {
        std::thread::scope(|threads| {
            for part in 0..2 {
                let cache = cache.clone();
                threads.spawn(move || {
                    for _ in 0..20 {
                        assert_eq!(
                            cache.iter().filter(|entry| *entry.key() < 1_000).count(),
                            1_000
                        );
                        cache.retain(|&key, _| key < 1_000 || key % 2 == part);
                        for key in 1_000..2_000 {
                            cache.insert(key, 0);
                        }
                    }
                });
            }
        });
        cache.run_pending_tasks();
        assert!(cache.entry_count() >= 1_000);
        assert_eq!(cache.iter().count() as u64, cache.entry_count());
        assert!(heard.take().iter().all(|notice| notice.0 >= 1_000));
    });
}

#[test]
fn a_cache_is_collected_extended_and_made_by_default() {
    let mut cache: Cache<u32, u32> = (0..100).map(|key| (key, key * 2)).collect();
    cache.extend([(7, 70), (100, 200)]);
    assert_eq!((cache.entry_count(), cache.get(&7)), (101, Some(70)));
    // A clone of a shared handle extends the same cache.
    cache.clone().extend([(101, 202)]);
    assert_eq!(cache.get(&101), Some(202));
    assert_eq!(cache.policy().max_capacity(), None);

    #[derive(Default)]
    struct Holder {
        names: Cache<String, u32, std::collections::hash_map::RandomState>,
    }
    let holder = Holder::default();
    holder.names.insert("ada".into(), 1815);
    assert_eq!(holder.names.get("ada"), Some(1815));
}
