//! The order of entries in memory.

use crate::{Cache, ManualTicker, Scheduler};

/// How many of the live entries lie directly behind the previous entry of their shard.
fn in_order(cache: &Cache<u64, u64>, live: std::ops::Range<u64>) -> u64 {
    let map = &cache.engine().map;
    let mut last = vec![None; map.shards()];
    let mut in_order = 0;
    for key in live {
        let hash = cache.hash(&key);
        let pin = cache.engine().pin();
        let node = map.find(hash, &pin, |node| *node.key() == key);
        let at = node.expect("it is live").as_raw();
        let before = last[map.shard_of(hash)].replace(at);
        in_order += u64::from(before.is_some_and(|before| before.wrapping_add(1) == at));
    }
    in_order
}

#[test]
fn entries_removed_in_insertion_order_stay_in_address_order() {
    const LIVE: u64 = 20_000;
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .scheduler(Scheduler::disabled())
        .build();
    (0..LIVE).for_each(|key| cache.insert(key, key));
    let first = in_order(&cache, 0..LIVE);
    assert!(first > LIVE / 10 * 9, "{first} of new ones");
    let end = 40 * LIVE;
    for key in LIVE..end {
        cache.insert(key, key);
        cache.invalidate(&(key - LIVE));
    }
    let last = in_order(&cache, end - LIVE..end);
    // Nine of ten; fewer on a machine with a hundred cores, where a shard has only twenty entries.
    assert!(last > LIVE / 2, "{last} of {LIVE}, {first} at first");
}
