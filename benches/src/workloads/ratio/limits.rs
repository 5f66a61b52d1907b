//! What the hit ratios stand between: exact LRU, and a cache that knows the future.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
};

use super::requests::Requests;
use crate::peer::Hasher;

/// Hits of a least-recently-used cache of exactly `size` entries, from which the expired go first.
pub(super) fn lru(requests: &Requests, size: usize) -> u64 {
    let room = NonZeroUsize::new(size).expect("a cache has room");
    let mut cache = lru::LruCache::with_hasher(room, Hasher::default());
    let mut deadlines = BTreeSet::new();
    let mut hits = 0;
    for (key, at, deadline) in requests.all() {
        let held = cache.get(&key).copied();
        if held.is_some_and(|held| held > at) {
            hits += 1;
            continue;
        }
        let expired = deadlines.first().filter(|(held, _)| *held <= at);
        let leaving = match (held, expired) {
            (Some(_), _) => cache.pop_entry(&key),
            (None, _) if cache.len() < size => None,
            (None, Some((_, key))) => cache.pop_entry(key),
            (None, None) => cache.pop_lru(),
        };
        if let Some((key, held)) = leaving {
            deadlines.remove(&(held, key));
        }
        cache.put(key, deadline);
        if deadline != u64::MAX {
            deadlines.insert((deadline, key));
        }
    }
    hits
}

/// Hits of a cache that knows the future (Belady's rule): it keeps the keys that are asked for
/// again soonest and before they expire, and may pass a key by. Without deadlines no cache can hit
/// more.
pub(super) fn optimum(requests: &Requests, size: usize) -> u64 {
    // A key in the cache is known by the place where it is asked for next.
    let mut next = vec![usize::MAX; requests.keys.len()];
    let mut seen: HashMap<u64, usize, Hasher> = HashMap::default();
    for (place, key) in requests.keys.iter().enumerate().rev() {
        if let Some(later) = seen.insert(*key, place) {
            next[place] = later;
        }
    }
    let mut kept = BTreeSet::new();
    let mut deadlines = vec![0; next.len()];
    let mut hits = 0;
    for (place, (_, _, fresh)) in requests.all().enumerate() {
        let deadline = if kept.remove(&place) {
            hits += 1;
            deadlines[place]
        } else {
            fresh
        };
        let again = next[place];
        if again != usize::MAX && requests.times[again] < deadline {
            kept.insert(again);
            deadlines[again] = deadline;
            if kept.len() > size {
                kept.pop_last();
            }
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expired_are_missed_and_make_room() {
        let requests = Requests {
            keys: vec![1, 2, 1, 1, 3, 2],
            times: vec![0, 1, 5, 12, 13, 14],
            life: |key| if key == 1 { 10 } else { 100 },
        };
        // Key 1 expires at 10: a hit at 5, a miss at 12.
        assert_eq!(lru(&requests, 3), 2);
        assert_eq!(optimum(&requests, 3), 2);
        let short = Requests {
            life: |key| if key == 1 { 1 } else { 100 },
            ..requests
        };
        // Key 1 has expired when key 3 comes, so key 2 stays, though it was used before key 1.
        assert_eq!(lru(&short, 2), 1);
    }

    #[test]
    fn the_optimum_is_that_of_an_exhaustive_search() {
        let keys = [1, 2, 3, 1, 4, 2, 1, 3, 4, 2, 5, 1];
        let requests = Requests::without_deadlines(keys.to_vec());
        assert_eq!(optimum(&requests, 2), best(&keys, &[], 2));
    }

    /// Tries every choice of what to keep.
    fn best(keys: &[u64], kept: &[u64], size: usize) -> u64 {
        let Some((key, rest)) = keys.split_first() else {
            return 0;
        };
        if kept.contains(key) {
            return 1 + best(rest, kept, size);
        }
        let with = [kept, &[*key]].concat();
        let mut most = best(rest, kept, size);
        if with.len() <= size {
            return most.max(best(rest, &with, size));
        }
        for leaving in 0..with.len() {
            let mut kept = with.clone();
            kept.remove(leaving);
            most = most.max(best(rest, &kept, size));
        }
        most
    }
}
