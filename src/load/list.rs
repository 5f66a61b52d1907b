//! The current loads of one shard, and what a writer knows of those that share its key's hash.
//!
//! Keys are compared outside of the shard's lock. A call that finds loads of its key's full hash
//! which it has not compared yet takes them along, releases the lock, compares, and comes again.

use super::{By, Load};
use std::sync::Arc;

/// The current loads of one shard; under its lock.
pub(crate) struct Loads<K, V> {
    // The hash stands beside the address, so that a search reads no load.
    listed: Vec<(u64, Arc<Load<K, V>>)>,
}

/// The loads of one full hash that a call has met.
pub(crate) struct Known<K, V> {
    /// The load of the call's own key.
    mine: Option<Arc<Load<K, V>>>,
    /// Loads of other keys, and former loads of this key.
    others: Vec<Arc<Load<K, V>>>,
    /// Those that are to be compared.
    unknown: Vec<Arc<Load<K, V>>>,
}

impl<K, V> Known<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            mine: None,
            others: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// The current load of the call's own key, as [`Loads::sort_out`] found it last.
    pub(crate) fn mine(&self) -> Option<&Arc<Load<K, V>>> {
        self.mine.as_ref()
    }

    /// Compares the keys of loads that were met. With no lock held: `Eq` is user code.
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
        Self { listed: Vec::new() }
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

    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        self.listed.iter().map(|(_, load)| load)
    }

    /// Finds the load of a call's key. False if there are loads of the hash whose keys have yet to
    /// be compared: they are among the unknown now.
    pub(crate) fn sort_out(&self, hash: u64, known: &mut Known<K, V>) -> bool {
        let mut found = false;
        for (_, load) in self.listed.iter().filter(|(other, _)| *other == hash) {
            let same = |other: &Arc<Load<K, V>>| Arc::ptr_eq(other, load);
            if known.mine.as_ref().is_some_and(same) {
                found = true;
            } else if !known.others.iter().any(same) {
                known.unknown.push(Arc::clone(load));
            }
        }
        if !found {
            // Kept, or its key might be dropped under the lock.
            known.others.extend(known.mine.take());
        }
        known.unknown.is_empty()
    }

    pub(crate) fn add(&mut self, load: Arc<Load<K, V>>) {
        self.listed.push((load.hash(), load));
    }

    /// Takes a load out. The caller holds another reference, so that its key is not dropped here.
    pub(crate) fn remove(&mut self, load: &Arc<Load<K, V>>) {
        let found = |(_, other): &(u64, Arc<Load<K, V>>)| Arc::ptr_eq(other, load);
        if let Some(at) = self.listed.iter().position(found) {
            self.listed.swap_remove(at);
        }
    }

    /// Revokes all loads.
    pub(crate) fn revoke_all(&mut self, by: By) -> Vec<Arc<Load<K, V>>> {
        let all: Vec<_> = self.listed.drain(..).map(|(_, load)| load).collect();
        all.iter().for_each(|load| load.revoke(by));
        all
    }
}
