//! Keys with different hashes that all fall into one of several shards: an attacker who knows the
//! hasher would choose them.

use crate::{Cache, ManualTicker, RemovalCause};
use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::mpsc;
use std::time::Duration;

/// A key's number is its hash.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const WRITERS: usize = 4;
const EACH: usize = 1_500;
const LIFETIME: Duration = Duration::from_secs(1);

#[test]
fn keys_that_all_fall_into_one_shard_are_stored_and_removed_like_others() {
    for capacity in [None, Some(1_000)] {
        let (clock, (tell, told)) = (ManualTicker::new(), mpsc::channel());
        let builder = Cache::builder()
            .ticker(clock.clone())
            .hasher(BuildHasherDefault::<Itself>::default())
            .removal_listener(move |&key: &u64, _: &u64, cause| tell.send((key, cause)).unwrap());
        let cache = match capacity {
            Some(capacity) => builder.max_capacity(capacity).build(),
            None => builder.build(),
        };
        let map = &cache.engine().map;
        assert!(map.shards() > 1, "a cache of one shard proves nothing");
        let keys: Vec<u64> = (0..)
            .filter(|key| map.shard_of(cache.hash(key)) == 0)
            .take(WRITERS * EACH)
            .collect();

        std::thread::scope(|threads| {
            for keys in keys.chunks(EACH) {
                let cache = &cache;
                threads.spawn(move || {
                    for &key in keys {
                        cache.insert_with_ttl(key, key, LIFETIME);
                        let found = cache.get(&key);
                        assert!(found == Some(key) || (found.is_none() && capacity.is_some()));
                    }
                });
            }
        });
        cache.run_pending_tasks();
        assert!(cache.entry_count() <= capacity.unwrap_or(u64::MAX));
        let found: BTreeSet<u64> = cache.get_many(&keys).into_iter().flatten().collect();
        assert_eq!(found.len() as u64, cache.entry_count());
        let evicted: Vec<_> = told.try_iter().collect();
        assert!(
            evicted
                .iter()
                .all(|&(_, cause)| cause == RemovalCause::Size)
        );
        assert_eq!(found.len() + evicted.len(), keys.len());
        assert!(evicted.iter().all(|(key, _)| !found.contains(key)));
        assert_eq!(evicted.is_empty(), capacity.is_none());

        let removed = *found.first().unwrap();
        assert_eq!(cache.remove(&removed), Some(removed));
        clock.advance(LIFETIME);
        cache.run_pending_tasks();
        assert_eq!(
            (cache.entry_count(), cache.next_maintenance_in()),
            (0, None)
        );
        let mut gone: Vec<_> = told.try_iter().collect();
        gone.sort_unstable_by_key(|&(key, _)| key);
        let cause = |key: u64| {
            if key == removed {
                RemovalCause::Explicit
            } else {
                RemovalCause::Expired
            }
        };
        let expected: Vec<_> = found.iter().map(|&key| (key, cause(key))).collect();
        assert_eq!(gone, expected);
    }
}
