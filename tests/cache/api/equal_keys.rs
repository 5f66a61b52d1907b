//! Which of two equal keys stays in the cache, and which one a call returns.

use std::hash::{Hash, Hasher};

use crate::support::record::Record;
use wheelhouse::compute::Op;
use wheelhouse::{Cache, LoadingCache, ManualTicker, loader_fn};

/// Equal to each key of the same name, whatever the mark.
#[derive(Clone, Debug, Eq)]
struct Key {
    name: u32,
    mark: u32,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

fn marked(mark: u32) -> Key {
    Key { name: 1, mark }
}

fn stored(cache: &Cache<Key, u32>) -> u32 {
    cache.peek_ref(&marked(0)).unwrap().key().mark
}

#[test]
fn a_write_stores_its_own_key_and_the_listener_gets_the_old_one() {
    let record = Record::new();
    let cache = Cache::builder()
        .ticker(ManualTicker::new())
        .removal_listener(record.listener())
        .build();
    cache.insert(marked(1), 1);
    cache.insert(marked(2), 2);
    assert_eq!(stored(&cache), 2);
    cache.entry(marked(3)).and_upsert_with(|_| 3);
    assert_eq!(stored(&cache), 3);
    cache.entry(marked(4)).and_compute_with(|_| Op::Put(4));
    assert_eq!(stored(&cache), 4);
    cache.run_pending_tasks();
    let marks: Vec<u32> = record.take().iter().map(|(key, _, _)| key.mark).collect();
    assert_eq!(marks, [1, 2, 3]);

    cache.invalidate(&marked(5));
    cache.get_with(marked(6), || 6);
    assert_eq!(stored(&cache), 6);
}

#[test]
fn a_conditional_replacement_and_a_hit_leave_the_stored_key_and_a_reload_stores_its_own() {
    let cache: Cache<Key, u32> = Cache::new(10);
    cache.insert(marked(1), 1);
    assert_eq!(cache.replace_if(&marked(2), 2, |_| true), Ok(()));
    assert_eq!(stored(&cache), 1);
    // The entry of a hit carries the key of the caller.
    let entry = cache.entry(marked(3)).or_insert(3);
    assert_eq!((entry.key().mark, *entry.value()), (3, 2));
    assert_eq!(stored(&cache), 1);

    let users: LoadingCache<Key, u32, ()> = Cache::builder()
        .loading(loader_fn(|key: &Key| Ok::<_, ()>(key.mark)))
        .build();
    assert_eq!(users.get(&marked(1)), Ok(1));
    assert_eq!(users.get(&marked(2)), Ok(1));
    assert_eq!(stored(users.cache()), 1);
    assert_eq!(users.refresh(marked(3)).wait(), Ok(Some(3)));
    assert_eq!(stored(users.cache()), 3);
}
