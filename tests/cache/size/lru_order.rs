//! With `EvictionPolicy::Lru` the cache evicts the entry that was not used for the longest time:
//! what counts as a use, and what does not.

use crate::support::record::Record;
use crate::support::secs;
use wheelhouse::RemovalCause::{Replaced, Size};
use wheelhouse::{Cache, EvictionPolicy, ManualTicker};

type Touch = fn(&Cache<u32, u32>, u32);

/// Entries 1, 2, 3 in a cache for three; 1 is touched, then 4 is inserted: which one is evicted?
fn victim_after(touch: Touch) -> u32 {
    let heard = Record::new();
    let cache = Cache::builder()
        .max_capacity(3)
        .eviction_policy(EvictionPolicy::Lru)
        .ticker(ManualTicker::new())
        .removal_listener(heard.listener())
        .build();
    for key in 1..=3 {
        cache.insert(key, key);
        cache.run_pending_tasks();
    }
    touch(&cache, 1);
    cache.run_pending_tasks();
    cache.insert(4, 4);
    cache.run_pending_tasks();
    let victims: Vec<u32> = heard
        .take()
        .into_iter()
        .filter(|(_, _, cause)| *cause != Replaced)
        .map(|(key, value, cause)| {
            assert_eq!((key, cause), (value % 100, Size));
            key
        })
        .collect();
    assert_eq!((victims.len(), cache.entry_count()), (1, 3));
    victims[0]
}

#[test]
fn reads_and_writes_are_uses() {
    let uses: [(&str, Touch); 5] = [
        ("get", |cache, key| _ = cache.get(&key)),
        ("get_ref", |cache, key| _ = cache.get_ref(&key).is_some()),
        ("get_many", |cache, key| _ = cache.get_many([&key])),
        ("insert", |cache, key| cache.insert(key, key + 100)),
        ("insert_with_ttl", |cache, key| {
            cache.insert_with_ttl(key, key + 100, secs(60));
        }),
    ];
    for (name, touch) in uses {
        assert_eq!(victim_after(touch), 2, "{name} does not count as a use");
    }
}

#[test]
fn peeks_are_not_uses() {
    let looks: [(&str, Touch); 6] = [
        ("nothing", |_, _| {}),
        ("peek_ref", |cache, key| _ = cache.peek_ref(&key).is_some()),
        ("contains_key", |cache, key| _ = cache.contains_key(&key)),
        ("weight_of", |cache, key| _ = cache.policy().weight_of(&key)),
        ("iter", |cache, key| {
            _ = cache.iter().find(|e| *e.key() == key).is_some()
        }),
        ("retain", |cache, _| cache.retain(|_, _| true)),
    ];
    for (name, touch) in looks {
        assert_eq!(victim_after(touch), 1, "{name} counts as a use");
    }
}
