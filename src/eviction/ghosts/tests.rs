use super::*;

/// A ghost of an entry that is being evicted.
fn evicted(last_use: u8, evictions: &Periods) -> Ghost {
    Ghost {
        last_use,
        removed_at: evictions.stamp(),
        expired: false,
    }
}

#[test]
fn remembers_once_what_was_put() {
    let evictions = Periods::default();
    let mut ghosts = Ghosts::default();
    assert_eq!(
        ghosts.take(mix_bits_twice(1)),
        None,
        "before the table exists"
    );
    ghosts.fit(100);
    ghosts.put(mix_bits_twice(1), evicted(7, &evictions), &evictions);
    assert_eq!(
        ghosts.take(mix_bits_twice(1)),
        Some(evicted(7, &Periods::default()))
    );
    assert_eq!(ghosts.take(mix_bits_twice(1)), None);
}

#[test]
fn keeps_most_of_a_turnover_and_nothing_beyond_the_horizon() {
    let order = Periods::default();
    let mut evictions = Periods::default();
    let mut ghosts = Ghosts::default();
    let resident = 6400;
    ghosts.fit(resident);
    for key in 0..4 * resident as u64 {
        ghosts.put(mix_bits_twice(key), evicted(0, &evictions), &evictions);
        if evictions.advance(resident) {
            ghosts.drop_old(&order, &evictions);
        }
    }
    let mut known = |keys: std::ops::Range<u64>| {
        keys.filter(|&key| ghosts.take(mix_bits_twice(key)).is_some())
            .count()
    };
    let n = resident as u64;
    assert!(known(3 * n..4 * n) > resident * 9 / 10);
    assert!(known(0..n) < resident / 50, "all but chance likenesses");
}

#[test]
fn regular_keys_of_a_plain_hasher_find_room() {
    let evictions = Periods::default();
    let mut ghosts = Ghosts::default();
    let keys = 0..200_000;
    ghosts.fit(keys.end as usize);
    // The keys are their own hashes; the cache mixes these for the map.
    let hash = |key: u64| mix_bits_twice(crate::hash::mix_bits(key << 16));
    for key in keys.clone() {
        ghosts.put(hash(key), evicted(0, &evictions), &evictions);
    }
    let known = keys.filter(|&key| ghosts.take(hash(key)).is_some()).count();
    assert!(known > 195_000, "{known} are known");
}

#[test]
fn no_stamp_grows_old_enough_to_be_misread() {
    for by_order in [false, true] {
        let (mut order, mut evictions) = (Periods::default(), Periods::default());
        let mut ghosts = Ghosts::default();
        ghosts.fit(1000);
        for key in 0..100 {
            ghosts.put(
                mix_bits_twice(key),
                evicted(order.stamp(), &evictions),
                &evictions,
            );
        }
        for _ in 0..192 {
            let periods = if by_order { &mut order } else { &mut evictions };
            assert!(periods.advance(1));
            ghosts.drop_old(&order, &evictions);
        }
        let known = (0..100).filter(|&key| ghosts.take(mix_bits_twice(key)).is_some());
        assert_eq!(known.count(), 0);
    }
}

#[test]
fn a_full_group_drops_its_oldest_ghost() {
    let mut evictions = Periods::default();
    let mut ghosts = Ghosts {
        groups: vec![Group::default()],
        cursor: 0,
    };
    for key in 0..9 {
        ghosts.put(mix_bits_twice(key), evicted(0, &evictions), &evictions);
        evictions.advance(1);
    }
    assert_eq!(ghosts.take(mix_bits_twice(0)), None);
    assert_eq!(
        (1..9)
            .filter(|&key| ghosts.take(mix_bits_twice(key)).is_some())
            .count(),
        8
    );
}

#[test]
fn follows_the_number_of_nodes() {
    let mut ghosts = Ghosts::default();
    ghosts.fit(1000);
    assert_eq!(ghosts.groups.len(), 250);
    ghosts.fit(1100);
    assert_eq!(ghosts.groups.len(), 250, "a small drift changes nothing");
    ghosts.fit(2000);
    assert_eq!(ghosts.groups.len(), 500);
    ghosts.fit(10);
    assert_eq!(ghosts.groups.len(), 2 * FEWEST / GHOSTS_PER_GROUP);
}

#[test]
fn a_turnover_is_64_periods_at_any_size() {
    for nodes in [64, 640, 64_000] {
        let mut periods = Periods::default();
        let ended: u64 = (0..nodes).map(|_| u64::from(periods.advance(nodes))).sum();
        assert_eq!(
            (ended, periods.period),
            (TURNOVER, TURNOVER),
            "{nodes} nodes"
        );
        assert_eq!(periods.count, nodes as u64);
    }
}

#[test]
fn with_few_nodes_every_event_is_a_period() {
    let mut periods = Periods::default();
    assert!(periods.advance(0));
    assert!(periods.advance(1));
    assert!(periods.advance(127));
    assert!(!periods.advance(128));
}

#[test]
fn ages_survive_the_wrap_of_the_byte() {
    let mut periods = Periods::default();
    for _ in 0..250 {
        periods.advance(1);
    }
    let stamp = periods.stamp();
    assert_eq!(periods.age(stamp), 0);
    for _ in 0..255 {
        periods.advance(1);
    }
    assert_eq!(periods.age(stamp), 255);
}
