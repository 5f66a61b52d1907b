//! What a viewer sees of the wheel: its levels, the buckets of its entries, the positions of its
//! hands.

use std::time::Duration;

use crate::support::{Dice, SPAN, nanos, secs};
use wheelhouse::{Cache, ManualTicker};

fn cache(resolution: Duration) -> (Cache<u64, u64>, ManualTicker) {
    let clock = ManualTicker::starting_at(u64::MAX - 5);
    let cache = Cache::builder()
        .expiry_resolution(resolution)
        .ticker(clock.clone())
        .build();
    (cache, clock)
}

/// How many entries are in each level.
fn by_level(cache: &Cache<u64, u64>) -> Vec<usize> {
    let wheel = cache.policy().wheel();
    wheel.iter().map(|(_, _, lens)| lens.iter().sum()).collect()
}

#[test]
fn five_levels_that_scale_with_the_resolution() {
    for bits in [16, 20, 30, 31] {
        let (cache, _clock) = cache(nanos(1 << bits));
        let wheel = cache.policy().wheel();
        let shape: Vec<_> = wheel
            .iter()
            .map(|(span, _, lens)| (*span, lens.len()))
            .collect();
        let expected = [(0, 64), (6, 64), (12, 32), (17, 4), (19, 1)];
        assert_eq!(
            shape,
            expected.map(|(wider, buckets)| (nanos(1 << (bits + wider)), buckets))
        );
        assert!(wheel.iter().all(|(_, hand, lens)| *hand < lens.len()));
    }
}

#[test]
fn an_entry_is_linked_once_at_the_level_of_its_time_left() {
    let (cache, clock) = cache(SPAN);
    let lives = [
        secs(2),
        secs(2) + SPAN * 70,
        SPAN * 64 * 70,
        SPAN * 64 * 64 * 40,
        SPAN * 64 * 64 * 32 * 5,
    ];
    for (key, life) in (0..).zip(lives) {
        cache.insert_with_ttl(key, 0, life);
        cache.run_pending_tasks();
        let mut expected = vec![0; 5];
        expected[..=key as usize].fill(1);
        assert_eq!(by_level(&cache), expected);
    }
    cache.insert(100, 0);
    cache.run_pending_tasks();
    assert_eq!(
        by_level(&cache),
        [1, 1, 1, 1, 1],
        "an entry that never expires is in no bucket"
    );
    // With time, far entries cascade to finer levels.
    clock.advance(SPAN * 70);
    cache.run_pending_tasks();
    assert_eq!(by_level(&cache), [1, 0, 1, 1, 1]);
}

#[test]
fn every_entry_with_a_deadline_is_in_a_bucket() {
    let (cache, clock) = cache(nanos(1 << 20));
    let mut dice = Dice::new(5);
    for key in 0..5_000 {
        let bits = dice.below(60);
        cache.insert_with_ttl(key % 700, 0, nanos(dice.below(2 << bits)));
        if key % 9 == 0 {
            assert!(cache.set_expiry(&(key % 700), None) || !cache.contains_key(&(key % 700)));
        }
        if key % 13 == 0 {
            clock.advance(nanos(dice.below(1 << 40)));
            cache.invalidate(&(key % 300));
        }
        if key % 50 == 0 {
            cache.run_pending_tasks();
            let scheduled = cache
                .iter()
                .filter(|entry| entry.time_left().is_some())
                .count();
            assert_eq!(by_level(&cache).iter().sum::<usize>(), scheduled);
        }
    }
}

#[test]
fn the_hands_move_with_the_time_and_the_next_work_is_told() {
    let (cache, clock) = cache(SPAN);
    assert_eq!(cache.next_maintenance_in(), None);
    cache.insert_with_ttl(1, 0, secs(10));
    let (before, hand) = (cache.next_maintenance_in(), cache.policy().wheel()[0].1);
    assert!(before.is_some());
    clock.advance(SPAN * 3);
    cache.run_pending_tasks();
    assert_eq!(cache.policy().wheel()[0].1, (hand + 3) % 64);
    assert!(cache.next_maintenance_in() < before);
}
