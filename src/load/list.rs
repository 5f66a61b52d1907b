//! The current loads of one shard, and what a writer knows of those that share its key's hash.
//!
//! Keys are compared outside of the shard's lock. A call that finds loads with its key's full hash,
//! whose keys it has not compared yet, copies their addresses, releases the lock, compares the
//! keys, and starts again.
//!
//! # Bare loads
//!
//! Most loads begin and end while no other call asks for their key. Such a load is *bare*: a key in
//! the list, under a mark that only its leader knows. The first other call that meets it makes the
//! [`Load`] that calls can share. The leader finds this `Load` by the mark when its run has ended.

use super::{AfterCommit, Load, RevokedBy};
use std::sync::Arc;

/// The current loads of one shard; under its lock.
pub(crate) struct Loads<K, V> {
    // The hash stands beside the address, so that a search reads no load.
    listed: Vec<(u64, Listed<K, V>)>,
    /// The bare loads that were made shared, and whose leaders have yet to learn of it.
    shared: Vec<(Mark, Arc<Load<K, V>>)>,
    /// The loads that were revoked, until their runs end: calls may still wait for them.
    revoked: Vec<Arc<Load<K, V>>>,
    /// The next mark.
    next: u64,
}

enum Listed<K, V> {
    Bare(Mark, Bare<K>),
    Load(Arc<Load<K, V>>),
}

/// A load that only its leader knows.
pub(crate) struct Bare<K> {
    pub(crate) key: K,
    /// The thread that leads, or 0 if its number is not known.
    pub(crate) leader: u64,
    /// Cache time at which the run began.
    pub(crate) began: u64,
}

/// A leader finds its bare load by this number, which is unique in the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

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
    pub(crate) const fn new() -> Self {
        Self {
            listed: Vec::new(),
            shared: Vec::new(),
            revoked: Vec::new(),
            next: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whether a load's key has this hash.
    #[inline]
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.listed.iter().any(|(other, _)| *other == hash)
    }

    /// The loads for which calls may wait, current or not.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        self.iter().chain(&self.revoked)
    }

    /// The number of loads, current or not.
    pub(crate) fn len(&self) -> usize {
        self.listed.len() + self.revoked.len()
    }

    /// The loads that calls can share: no call waits for a bare one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        self.listed.iter().filter_map(|(_, listed)| match listed {
            Listed::Load(load) => Some(load),
            Listed::Bare(..) => None,
        })
    }

    /// Finds the load of a call's key. False if there are loads of the hash whose keys were not
    /// compared yet; it puts these among the unknown.
    #[cold]
    pub(crate) fn classify(&mut self, hash: u64, same_hash: &mut SameHashLoads<K, V>) -> bool {
        self.share_all(|other| other == hash);
        let mut found = false;
        for load in self.iter().filter(|load| load.hash() == hash) {
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
        self.listed.push((load.hash(), Listed::Load(load)));
    }

    pub(crate) fn add_bare(&mut self, hash: u64, bare: Bare<K>) -> Mark {
        self.next += 1;
        let mark = Mark(self.next);
        self.listed.push((hash, Listed::Bare(mark, bare)));
        mark
    }

    fn find_bare(&self, mark: Mark) -> Option<usize> {
        self.listed
            .iter()
            .position(|(_, listed)| matches!(listed, Listed::Bare(other, _) if *other == mark))
    }

    pub(crate) fn is_bare(&self, mark: Mark) -> bool {
        self.find_bare(mark).is_some()
    }

    /// Takes a load out that is still bare. Its key is to be dropped with no lock held.
    pub(crate) fn remove_bare(&mut self, mark: Mark) -> Option<K> {
        let at = self.find_bare(mark)?;
        match self.listed.swap_remove(at) {
            (_, Listed::Bare(_, bare)) => Some(bare.key),
            (_, Listed::Load(_)) => None,
        }
    }

    /// The shared load of a load that began bare, made now if it is still bare. `None` if the
    /// leader has taken it already, or its run has ended.
    #[cold]
    pub(crate) fn make_shared(&mut self, mark: Mark) -> Option<Arc<Load<K, V>>> {
        if let Some(at) = self.find_bare(mark) {
            self.share_at(at);
        }
        let at = self.shared.iter().position(|(other, _)| *other == mark)?;
        Some(self.shared.swap_remove(at).1)
    }

    fn share_at(&mut self, at: usize) {
        let (hash, listed) = self.listed.swap_remove(at);
        let load = match listed {
            Listed::Bare(mark, bare) => {
                let load = Arc::new(Load::new(hash, bare.key, bare.leader, bare.began));
                self.shared.push((mark, Arc::clone(&load)));
                load
            }
            Listed::Load(load) => load,
        };
        self.add(load);
    }

    /// Completes the bare loads of these hashes.
    fn share_all(&mut self, hashes: impl Fn(u64) -> bool) {
        let bare = |(hash, listed): &(u64, Listed<K, V>)| {
            hashes(*hash) && matches!(listed, Listed::Bare(..))
        };
        while let Some(at) = self.listed.iter().position(bare) {
            self.share_at(at);
        }
    }

    /// A leader has made its own write: the load leaves the list unless it goes on.
    pub(crate) fn seal(&mut self, load: &Arc<Load<K, V>>) -> AfterCommit {
        let sealed = load.seal();
        if sealed != AfterCommit::HasWaitersForTurn {
            self.remove(load);
        }
        sealed
    }

    /// Takes a load out. The caller holds another reference, so that its key is not dropped here.
    pub(crate) fn remove(&mut self, load: &Arc<Load<K, V>>) {
        let found = |(_, listed): &(u64, Listed<K, V>)| matches!(listed, Listed::Load(other) if Arc::ptr_eq(other, load));
        if let Some(at) = self.listed.iter().position(found) {
            self.listed.swap_remove(at);
        }
    }

    /// Revokes a load that has left the list.
    fn revoke_unlisted(&mut self, load: &Arc<Load<K, V>>, by: RevokedBy) {
        if load.revoke(by) {
            self.revoked.push(Arc::clone(load));
        }
    }

    /// Revokes a listed load.
    #[cold]
    pub(crate) fn revoke(&mut self, load: &Arc<Load<K, V>>, by: RevokedBy) {
        self.remove(load);
        self.revoke_unlisted(load, by);
    }

    /// The run of a revoked load has ended. The caller holds another reference.
    #[cold]
    pub(crate) fn forget_revoked(&mut self, load: &Arc<Load<K, V>>) {
        self.revoked.retain(|other| !Arc::ptr_eq(other, load));
    }

    /// Revokes all loads.
    #[cold]
    pub(crate) fn revoke_all(&mut self, by: RevokedBy) -> Vec<Arc<Load<K, V>>> {
        self.share_all(|_| true);
        let all: Vec<_> = self.iter().cloned().collect();
        self.listed.clear();
        for load in &all {
            self.revoke_unlisted(load, by);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(key: u8) -> Bare<u8> {
        Bare {
            key,
            leader: 7,
            began: 40,
        }
    }

    #[test]
    fn a_bare_load_that_no_call_met_leaves_its_key() {
        let mut loads = Loads::<u8, ()>::new();
        let (first, second) = (loads.add_bare(1, bare(10)), loads.add_bare(1, bare(20)));
        assert!(loads.has(1) && loads.len() == 2 && loads.iter().count() == 0);
        assert_eq!(loads.remove_bare(first), Some(10));
        assert!(!loads.is_bare(first) && loads.is_bare(second));
        assert!(loads.remove_bare(first).is_none() && loads.make_shared(first).is_none());
        assert_eq!(loads.remove_bare(second), Some(20));
        assert!(loads.is_empty());
    }

    #[test]
    fn a_call_that_meets_a_bare_load_shares_it_and_its_leader_finds_it() {
        let mut loads = Loads::<u8, ()>::new();
        let (mark, other) = (loads.add_bare(1, bare(10)), loads.add_bare(2, bare(20)));
        let mut same_hash = SameHashLoads::new();
        assert!(
            !loads.classify(1, &mut same_hash),
            "its key has yet to be compared"
        );
        same_hash.compare(|key| *key == 10);
        assert!(loads.classify(1, &mut same_hash));
        let mine = same_hash.mine().unwrap();
        assert_eq!((mine.leader(), mine.began()), (7, 40));
        assert!(!loads.is_bare(mark) && loads.is_bare(other) && loads.len() == 2);
        assert!(Arc::ptr_eq(&loads.make_shared(mark).unwrap(), mine));
        assert!(
            loads.make_shared(mark).is_none(),
            "the leader takes it once"
        );
        loads.remove(mine);
        assert_eq!(loads.len(), 1);
    }

    #[test]
    fn bare_loads_that_are_revoked_are_found_by_their_leaders() {
        let mut loads = Loads::<u8, ()>::new();
        let mark = loads.add_bare(1, bare(10));
        let revoked = loads.revoke_all(RevokedBy::Overwrite);
        assert!(loads.is_empty() && revoked.len() == 1);
        let load = loads.make_shared(mark).unwrap();
        assert!(Arc::ptr_eq(&load, &revoked[0]) && !load.is_current());
    }
}
