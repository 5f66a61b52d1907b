//! The loads of one shard, found by the hash of the key; and what a call knows of those that share
//! its key's hash.
//!
//! Keys are compared outside of the shard's lock. A call that finds loads with its key's full hash,
//! whose keys it has not compared yet, copies their addresses, releases the lock, compares the
//! keys, and starts again.

use super::state::{Load, RevokedBy};
use crate::hash::Words;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// The loads of one shard; under its lock.
pub(crate) struct Loads<K, V> {
    /// How many loads are current: all that a write reads of a shard without loads.
    current: usize,
    /// A load that came when there was no other: mostly there is one at a time.
    single: Option<Arc<Load<K, V>>>,
    /// The other loads by their full hashes: one, and hardly ever more. Among them, and in
    /// `single`, stand loads that were revoked, until their runs end: calls may still wait for
    /// them.
    others: HashMap<u64, OfOneHash<K, V>, Words>,
    /// How many loads stand in `others`.
    len: usize,
    /// Loads that have rested, in their order: some have been run again since, or revoked. Weak: it
    /// keeps neither the key nor the error of a load that the table has let go.
    resting: VecDeque<Weak<Load<K, V>>>,
}

/// One load, and more if there are more.
type OfOneHash<K, V> = (Arc<Load<K, V>>, Vec<Arc<Load<K, V>>>);

/// How many failures a shard remembers.
const MOST_RESTING: usize = 256;

/// The memory of an empty table that was larger than this is given back.
const SPARE_LOADS: usize = 64;

/// The loads of one full hash that a call has found.
pub(crate) struct SameHashLoads<K, V> {
    /// The load of the call's own key.
    mine: Option<Arc<Load<K, V>>>,
    /// Loads of other keys, and former loads of this key.
    others: Vec<Arc<Load<K, V>>>,
    /// Those that are to be compared.
    unknown: Vec<Arc<Load<K, V>>>,
}

impl<K, V> SameHashLoads<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            mine: None,
            others: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// The current load of the call's own key, as [`Loads::classify`] found it last.
    pub(crate) fn mine(&self) -> Option<&Arc<Load<K, V>>> {
        self.mine.as_ref()
    }

    /// Compares the keys of loads that were found. With no lock held: `Eq` is user code.
    pub(crate) fn compare(&mut self, same: impl Fn(&K) -> bool) {
        while let Some(load) = self.unknown.pop() {
            if same(load.key()) {
                let former = self.mine.replace(load);
                self.others.extend(former);
            } else {
                self.others.push(load);
            }
        }
    }
}

impl<K, V> Loads<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            current: 0,
            single: None,
            others: HashMap::default(),
            len: 0,
            resting: VecDeque::new(),
        }
    }

    /// Whether no load is current.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.current == 0
    }

    /// The loads for which calls may wait, current or not.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        let others = self.others.values();
        let others = others.flat_map(|(one, more)| std::iter::once(one).chain(more));
        self.single.iter().chain(others)
    }

    /// Finds the load of a call's key. False if there are loads of the hash whose keys were not
    /// compared yet; it puts these among the unknown.
    #[cold]
    pub(crate) fn classify(&self, hash: u64, same_hash: &mut SameHashLoads<K, V>) -> bool {
        let mut found = false;
        let single = self.single.iter().filter(|load| load.hash() == hash);
        let others = self.others.get(&hash).into_iter();
        let others = others.flat_map(|(one, more)| std::iter::once(one).chain(more));
        let loads = single.chain(others);
        for load in loads.filter(|load| load.is_current()) {
            let same = |other: &Arc<Load<K, V>>| Arc::ptr_eq(other, load);
            if same_hash.mine.as_ref().is_some_and(same) {
                found = true;
            } else if !same_hash.others.iter().any(same) {
                same_hash.unknown.push(Arc::clone(load));
            }
        }
        if !found {
            // Kept, or its key might be dropped under the lock.
            same_hash.others.extend(same_hash.mine.take());
        }
        same_hash.unknown.is_empty()
    }

    pub(crate) fn add(&mut self, load: Arc<Load<K, V>>) {
        self.current += 1;
        if self.single.is_none() && self.len == 0 {
            self.single = Some(load);
            return;
        }
        self.len += 1;
        match self.others.entry(load.hash()) {
            Entry::Occupied(same) => same.into_mut().1.push(load),
            Entry::Vacant(vacant) => _ = vacant.insert((load, Vec::new())),
        }
    }

    /// A leader has made its own write: the load leaves the table unless it goes on. True if calls
    /// wait.
    pub(crate) fn seal(&mut self, load: &Arc<Load<K, V>>) -> bool {
        let waited = load.seal();
        if !load.is_current() {
            self.current -= 1;
            self.remove(load);
        }
        waited
    }

    /// The last run of a current load has ended. The caller holds another reference, so that its
    /// key is not dropped here.
    pub(crate) fn remove_ended(&mut self, load: &Arc<Load<K, V>>) {
        self.current -= 1;
        self.remove(load);
    }

    /// Takes a load out that is no longer current. The caller holds another reference.
    pub(crate) fn remove(&mut self, load: &Arc<Load<K, V>>) {
        let is_this = |other: &mut Arc<_>| Arc::ptr_eq(other, load);
        if self.single.take_if(is_this).is_some() {
            return;
        }
        let Entry::Occupied(mut same) = self.others.entry(load.hash()) else {
            return;
        };
        let (one, more) = same.get_mut();
        if !Arc::ptr_eq(one, load) {
            let Some(at) = more.iter_mut().position(is_this) else {
                return;
            };
            more.swap_remove(at);
        } else if let Some(next) = more.pop() {
            *one = next;
        } else {
            same.remove();
        }
        self.len -= 1;
        if self.len == 0 && self.others.capacity() > SPARE_LOADS {
            self.others = HashMap::default();
        }
    }

    /// A current load rests from now on. The oldest is forgotten if there are too many; it is to be
    /// dropped with the lock released.
    #[cold]
    pub(crate) fn rest(&mut self, load: &Arc<Load<K, V>>) -> Option<Arc<Load<K, V>>> {
        let same = |other: &Weak<_>| std::ptr::eq(other.as_ptr(), Arc::as_ptr(load));
        if self.resting.iter().any(same) {
            return None;
        }
        if self.resting.len() >= MOST_RESTING {
            self.resting.retain(|other| other.strong_count() > 0);
        }
        self.resting.push_back(Arc::downgrade(load));
        let oldest = (self.resting.len() > MOST_RESTING).then(|| self.resting.pop_front())??;
        let oldest = oldest.upgrade()?;
        if oldest.is_current() && oldest.is_resting() {
            self.revoke(&oldest, RevokedBy::NewerLoad);
        }
        Some(oldest)
    }

    /// Revokes a current load. The caller holds another reference.
    #[cold]
    pub(crate) fn revoke(&mut self, load: &Arc<Load<K, V>>, by: RevokedBy) {
        self.current -= 1;
        if !load.revoke(by) {
            self.remove(load);
        }
    }

    /// Revokes all loads. They are to be dropped with the lock released.
    #[cold]
    pub(crate) fn revoke_all(&mut self, by: RevokedBy) -> Vec<Arc<Load<K, V>>> {
        let current = self.awaited().filter(|load| load.is_current());
        let all: Vec<_> = current.cloned().collect();
        for load in &all {
            self.revoke(load, by);
        }
        self.resting = VecDeque::new();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(hash: u64, key: u8) -> Arc<Load<u8, ()>> {
        Arc::new(Load::new(hash, key, 7, 40))
    }

    #[test]
    fn loads_of_one_hash_are_told_apart_by_their_keys() {
        let mut loads = Loads::<u8, ()>::new();
        let (first, second, third) = (load(1, 10), load(1, 20), load(1, 30));
        for load in [&first, &second, &third] {
            loads.add(Arc::clone(load));
        }
        let mut same_hash = SameHashLoads::new();
        assert!(
            !loads.classify(1, &mut same_hash),
            "keys are yet to be compared"
        );
        same_hash.compare(|key| *key == 20);
        assert!(loads.classify(1, &mut same_hash));
        assert!(Arc::ptr_eq(same_hash.mine().unwrap(), &second));
        for (gone, left) in [(&first, 2), (&third, 1)] {
            loads.remove_ended(gone);
            assert_eq!(loads.awaited().count(), left);
            assert!(loads.classify(1, &mut same_hash) && same_hash.mine().is_some());
        }
        loads.remove_ended(&second);
        assert!(loads.is_empty());
        assert!(loads.classify(1, &mut same_hash) && same_hash.mine().is_none());
    }

    #[test]
    fn revoked_loads_stay_until_their_runs_end() {
        let mut loads = Loads::<u8, ()>::new();
        let all = [load(1, 10), load(1, 20), load(2, 30)];
        all.iter().for_each(|load| loads.add(Arc::clone(load)));
        assert_eq!(loads.revoke_all(RevokedBy::Overwrite).len(), 3);
        assert!(loads.is_empty() && loads.awaited().count() == 3);
        assert!(all.iter().all(|load| !load.is_current()));
        all.iter().for_each(|load| loads.remove(load));
        assert_eq!(loads.awaited().count(), 0);
    }

    #[test]
    fn the_memory_of_many_loads_is_given_back() {
        let mut loads = Loads::<u8, ()>::new();
        let all: Vec<_> = (0..10_000).map(|hash| load(hash / 2, 0)).collect();
        all.iter().for_each(|load| loads.add(Arc::clone(load)));
        assert_eq!(loads.awaited().count(), 10_000);
        all.iter().for_each(|load| loads.remove_ended(load));
        assert!(loads.is_empty() && loads.awaited().count() == 0);
        assert_eq!(loads.others.capacity(), 0);
    }
}
