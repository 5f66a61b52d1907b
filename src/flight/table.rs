//! The loads of one shard, found by the hash of the key.
//!
//! Keys are compared outside of the shard's lock: a transaction that finds loads with its key's
//! full hash, whose keys it has not compared yet, copies their addresses, releases the lock,
//! compares the keys, and starts again.

use super::load::{Load, RevokedBy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The current loads of one shard; under its lock.
pub(crate) struct Loads<K, V> {
    /// One of them, if there is any: all that a write reads of a shard without loads. Mostly there
    /// is one at a time.
    first: Option<Arc<Load<K, V>>>,
    /// The others, by the hashes of their keys and their addresses.
    others: BTreeMap<(u64, usize), Arc<Load<K, V>>>,
}

/// A load that was revoked. Its drop tells the calls that are to look again: no lock and no pin may
/// be held.
#[must_use]
pub(crate) struct RevokedLoad<K, V>(Arc<Load<K, V>>);

impl<K, V> Drop for RevokedLoad<K, V> {
    fn drop(&mut self) {
        self.0.release_waiters();
    }
}

/// Where a load stands among the others.
fn place<K, V>(load: &Arc<Load<K, V>>) -> (u64, usize) {
    (load.hash, Arc::as_ptr(load).addr())
}

impl<K, V> Loads<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            first: None,
            others: BTreeMap::new(),
        }
    }

    /// Whether there is no load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether a key with this hash may have a current load.
    #[inline]
    pub(crate) fn has(&self, hash: u64) -> bool {
        !self.is_empty() && self.of_hash(hash).next().is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        self.first.iter().chain(self.others.values())
    }

    /// How many loads there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all().count()
    }

    /// The loads of the keys with this hash.
    pub(crate) fn of_hash(&self, hash: u64) -> impl Iterator<Item = &Arc<Load<K, V>>> {
        let first = self.first.iter().filter(move |load| load.hash == hash);
        let others = self.others.range((hash, 0)..=(hash, usize::MAX));
        first.chain(others.map(|(_, load)| load))
    }

    pub(crate) fn add(&mut self, load: Arc<Load<K, V>>) {
        if self.first.is_none() {
            self.first = Some(load);
        } else {
            self.others.insert(place(&load), load);
        }
    }

    /// A leader has made its own write: the load leaves the table unless it goes on. True if calls
    /// wait.
    pub(crate) fn seal(&mut self, load: &Arc<Load<K, V>>) -> bool {
        let waited = load.seal();
        self.drop_if_outdated(load);
        waited
    }

    /// Takes a load out that is no longer current, if it still stands here. The caller holds
    /// another reference, so that its key is not dropped here.
    pub(crate) fn remove(&mut self, load: &Arc<Load<K, V>>) {
        match &self.first {
            Some(first) if Arc::ptr_eq(first, load) => {
                self.first = self.others.pop_first().map(|(_, next)| next);
            }
            _ => _ = self.others.remove(&place(load)),
        }
    }

    /// The run of a load has made its write, or has ended: the load leaves the table, unless it
    /// goes on. The caller holds another reference.
    pub(crate) fn drop_if_outdated(&mut self, load: &Arc<Load<K, V>>) {
        if !load.is_current() {
            self.remove(load);
        }
    }

    /// Revokes a current load.
    #[cold]
    pub(crate) fn revoke(&mut self, load: Arc<Load<K, V>>, by: RevokedBy) -> RevokedLoad<K, V> {
        load.revoke(by);
        self.remove(&load);
        RevokedLoad(load)
    }

    /// Revokes all loads.
    #[cold]
    pub(crate) fn revoke_all(&mut self, by: RevokedBy) -> Vec<RevokedLoad<K, V>> {
        let all: Vec<_> = self.all().cloned().collect();
        all.into_iter().map(|load| self.revoke(load, by)).collect()
    }
}

#[cfg(test)]
mod tests;
