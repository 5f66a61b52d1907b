//! What the hit ratios stand between: exact LRU, and a cache that knows the future.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
};

use crate::peers::Hasher;

/// Hits of a least-recently-used cache of exactly `size` entries.
pub(super) fn lru(keys: &[u64], size: NonZeroUsize) -> u64 {
    let mut cache = lru::LruCache::with_hasher(size, Hasher::default());
    let mut hits = 0;
    for &key in keys {
        if cache.put(key, ()).is_some() {
            hits += 1;
        }
    }
    hits
}

/// Hits of the clairvoyant optimum (Belady): keeps the keys that are asked for again soonest, and may pass a key by.
pub(super) fn optimum(keys: &[u64], size: NonZeroUsize) -> u64 {
    // A key in the cache is known by the place where it is asked for next.
    let mut next = vec![usize::MAX; keys.len()];
    let mut seen: HashMap<u64, usize, Hasher> = HashMap::default();
    for (place, key) in keys.iter().enumerate().rev() {
        if let Some(later) = seen.insert(*key, place) {
            next[place] = later;
        }
    }
    let mut kept = BTreeSet::new();
    let mut hits = 0;
    for (place, &again) in next.iter().enumerate() {
        if kept.remove(&place) {
            hits += 1;
        }
        if again != usize::MAX {
            kept.insert(again);
            if kept.len() > size.get() {
                kept.pop_last();
            }
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(size: usize) -> NonZeroUsize {
        NonZeroUsize::new(size).unwrap()
    }

    #[test]
    fn a_loop_defeats_lru_and_not_the_optimum() {
        let keys: Vec<u64> = (0..100).map(|place| place % 4).collect();
        assert_eq!(lru(&keys, size(3)), 0);
        assert_eq!(lru(&keys, size(4)), 96);
        assert_eq!(optimum(&keys, size(4)), 96);
        // Three keys stay for good, the fourth is passed by each time.
        assert_eq!(optimum(&keys, size(3)), 72);
    }

    #[test]
    fn the_optimum_is_that_of_an_exhaustive_search() {
        let keys = [1, 2, 3, 1, 4, 2, 1, 3, 4, 2, 5, 1];
        assert_eq!(optimum(&keys, size(2)), best(&keys, &mut Vec::new(), 2));
    }

    /// Tries every choice of what to keep.
    fn best(keys: &[u64], kept: &mut Vec<u64>, size: usize) -> u64 {
        let Some((key, rest)) = keys.split_first() else {
            return 0;
        };
        if kept.contains(key) {
            return 1 + best(rest, kept, size);
        }
        let mut most = best(rest, &mut kept.clone(), size);
        let mut with = kept.clone();
        with.push(*key);
        if with.len() <= size {
            return most.max(best(rest, &mut with, size));
        }
        for leaving in 0..with.len() {
            let mut kept = with.clone();
            kept.remove(leaving);
            most = most.max(best(rest, &mut kept, size));
        }
        most
    }
}
