//! User code that takes time: the key's `Hash` and `Eq`, the weigher. A lifetime counts from a
//! moment after that code has run, and a look-up does not find entries that have expired meanwhile.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::support::record::Record;
use crate::support::secs;
use wheelhouse::RemovalCause::{Expired, Replaced};
use wheelhouse::{Cache, ManualTicker};

/// A key that takes three seconds to hash and two to compare.
#[derive(Clone)]
struct Slow(u32, ManualTicker);

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.advance(secs(3));
        self.0.hash(state);
    }
}

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        self.1.advance(secs(2));
        self.0 == other.0
    }
}

impl Eq for Slow {}

type Look = fn(&Cache<Slow, u32>, &Slow) -> bool;

fn slow() -> (Cache<Slow, u32>, Slow) {
    let clock = ManualTicker::new();
    let cache = Cache::builder().ticker(clock.clone()).build();
    (cache, Slow(1, clock))
}

/// Without hashing a key.
fn left<K, V>(cache: &Cache<K, V>) -> Option<Duration>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    cache.iter().next().and_then(|entry| entry.time_left())
}

#[test]
fn a_lifetime_counts_from_after_hash_and_eq() {
    let (cache, key) = slow();
    cache.insert_with_ttl(key.clone(), 1, secs(100));
    assert_eq!(left(&cache), Some(secs(100)), "over nothing");
    cache.insert_with_ttl(key.clone(), 2, secs(50));
    assert_eq!(left(&cache), Some(secs(50)), "over another");
    assert!(cache.set_expiry(&key, Some(secs(20))));
    assert_eq!(left(&cache), Some(secs(20)), "by hand");
}

#[test]
fn a_look_up_that_takes_longer_than_the_entry_has_left_misses_it() {
    let looks: [Look; 7] = [
        |cache, key| cache.get(key).is_some(),
        |cache, key| cache.get_ref(key).is_some(),
        |cache, key| cache.get_many([key]) != [None],
        |cache, key| cache.peek_ref(key).is_some(),
        |cache, key| cache.contains_key(key),
        |cache, key| cache.set_expiry(key, Some(secs(100))),
        |cache, key| cache.remove(key).is_some(),
    ];
    for (number, look) in looks.into_iter().enumerate() {
        let (cache, key) = slow();
        cache.insert_with_ttl(key.clone(), 1, secs(6));
        assert!(look(&cache, &key), "look {number}, a second before the end");
        let (cache, key) = slow();
        cache.insert_with_ttl(key.clone(), 1, secs(5));
        assert!(!look(&cache, &key), "look {number}, at the very end");
    }
}

#[test]
fn a_lifetime_counts_from_after_the_weigher() {
    let (clock, heard) = (ManualTicker::new(), Record::new());
    let takes = clock.clone();
    let cache = Cache::builder()
        .ticker(clock.clone())
        .time_to_live(secs(10))
        .time_to_idle(secs(8))
        .max_capacity(1_000)
        .weigher(move |_: &u32, _: &u32| {
            takes.advance(secs(7));
            1
        })
        .removal_listener(heard.listener())
        .build();
    cache.insert(1, 1);
    assert_eq!(left(&cache), Some(secs(8)));
    cache.insert(1, 2);
    assert_eq!(left(&cache), Some(secs(8)));
    cache.insert_with_ttl(1, 3, secs(4));
    assert_eq!(left(&cache), Some(secs(4)));
    // The third expires while the fourth is weighed.
    cache.insert_with_ttl(1, 4, secs(3));
    assert_eq!(left(&cache), Some(secs(3)));
    cache.run_pending_tasks();
    let told = [(1, 1, Replaced), (1, 2, Replaced), (1, 3, Expired)];
    assert_eq!(heard.take(), told);
}
